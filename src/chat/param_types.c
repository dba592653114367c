#include "chat/param_types.h"

#include <string.h>

enum { DEPTH_MAX = 8, WORK_MAX = 4096 }; // a union of unions may name the same schema over and over

static unsigned of_name(const json_t *type) {
    const char *name = json_string_value(type);
    if (!name) return 0;
    return strcmp(name, "string") == 0 ? MD_PARAM_STRING : strcmp(name, "null") == 0 ? MD_PARAM_NULL : MD_PARAM_OTHER;
}

static unsigned of_value(const json_t *value) {
    return json_is_string(value) ? MD_PARAM_STRING : json_is_null(value) ? MD_PARAM_NULL : MD_PARAM_OTHER;
}

// "#/$defs/NAME" and "#/definitions/NAME"; NULL for others.
static const json_t *find_ref(const json_t *root, const char *ref) {
    static const char *const places[][2] = {{"#/$defs/", "$defs"}, {"#/definitions/", "definitions"}};
    for (size_t i = 0; ref && i < 2; i++)
        if (strncmp(ref, places[i][0], strlen(places[i][0])) == 0)
            return json_object_get(json_object_get(root, places[i][1]), ref + strlen(places[i][0]));
    return NULL;
}

// A union is known only when all of its parts are.
static unsigned types_of(const json_t *root, const json_t *schema, int depth, int *work) {
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    const json_t *constant = json_object_get(schema, "const");
    unsigned types = 0;
    if (!json_is_object(schema) || depth == DEPTH_MAX || ++*work > WORK_MAX) return 0;
    if (json_is_string(type)) return of_name(type);
    for (size_t i = 0; i < json_array_size(type); i++) types |= of_name(json_array_get(type, i));
    if (types) return types;
    if (constant) return of_value(constant);
    for (size_t i = 0; i < json_array_size(values); i++) types |= of_value(json_array_get(values, i));
    if (types) return types;
    for (size_t u = 0; u < 3; u++) {
        const json_t *parts = json_object_get(schema, unions[u]);
        for (size_t i = 0; i < json_array_size(parts); i++) {
            unsigned more = types_of(root, json_array_get(parts, i), depth + 1, work);
            if (!more) return 0;
            types |= more;
        }
        if (types) return types;
    }
    return types_of(root, find_ref(root, json_string_value(json_object_get(schema, "$ref"))), depth + 1, work);
}

unsigned md_param_types(const json_t *root, const json_t *schema) {
    int work = 0;
    return types_of(root, schema, 0, &work);
}

const json_t *md_param_schema(const json_t *function, const char *name, size_t n) {
    return json_object_getn(json_object_get(json_object_get(function, "parameters"), "properties"), name, n);
}
