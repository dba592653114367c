#include "server/schema_types.h"

#include <string.h>

#include "base/json.h"

enum {
    TYPES = sizeof md_type_names / sizeof md_type_names[0],
    CHAIN_MAX = 16,
    POINTER_PART_MAX = 256,
    ONE_OF_MAX = 64
};

static const uint64_t WORK_MAX = 1 << 21; // of md_schema.work

const struct md_type_name md_type_names[7] = {
    {"string", MD_TYPE_STRING}, {"number", MD_TYPE_NUMBER}, {"integer", MD_TYPE_INTEGER}, {"boolean", MD_TYPE_BOOLEAN},
    {"null", MD_TYPE_NULL},     {"array", MD_TYPE_ARRAY},   {"object", MD_TYPE_OBJECT}};

// ---- types -----------------------------------------------------------------------------------------------------

static md_status add_type(md_schema *s, const json_t *name, unsigned *types, md_error *err) {
    for (size_t i = 0; json_is_string(name) && i < TYPES; i++)
        if (strcmp(json_string_value(name), md_type_names[i].name) == 0) {
            *types |= md_type_names[i].bit;
            return MD_OK;
        }
    return md_fail(err, MD_E_USAGE,
                   "%s.type: found \"%.64s\", expected string, number, integer, boolean, null, array or object",
                   s->path, json_is_string(name) ? json_string_value(name) : md_json_type_name(name));
}

md_status md_schema_types(md_schema *s, const json_t *schema, unsigned *types, md_error *err) {
    static const struct {
        const char *keyword;
        unsigned type;
    } meanings[] = {
        {"properties", MD_TYPE_OBJECT}, {"required", MD_TYPE_OBJECT},         {"additionalProperties", MD_TYPE_OBJECT},
        {"items", MD_TYPE_ARRAY},       {"prefixItems", MD_TYPE_ARRAY},       {"minItems", MD_TYPE_ARRAY},
        {"maxItems", MD_TYPE_ARRAY},    {"minLength", MD_TYPE_STRING},        {"maxLength", MD_TYPE_STRING},
        {"pattern", MD_TYPE_STRING},    {"format", MD_TYPE_STRING},           {"minimum", MD_TYPE_NUMBER},
        {"maximum", MD_TYPE_NUMBER},    {"exclusiveMinimum", MD_TYPE_NUMBER}, {"exclusiveMaximum", MD_TYPE_NUMBER},
        {"multipleOf", MD_TYPE_NUMBER}};
    *types = 0;
    const json_t *type = json_object_get(schema, "type");
    if (json_is_array(type)) {
        if (json_array_size(type) == 0) return md_fail(err, MD_E_USAGE, "%s.type: found an empty array", s->path);
        for (size_t i = 0; i < json_array_size(type); i++) MD_TRY(add_type(s, json_array_get(type, i), types, err));
        return MD_OK;
    }
    if (type) return add_type(s, type, types, err);
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0] && !*types; i++)
        if (json_object_get(schema, meanings[i].keyword)) *types = meanings[i].type;
    return MD_OK;
}

unsigned md_type_of_value(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING: return MD_TYPE_STRING;
    case JSON_INTEGER: return MD_TYPE_INTEGER | MD_TYPE_NUMBER;
    case JSON_REAL: return MD_TYPE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return MD_TYPE_BOOLEAN;
    case JSON_NULL: return MD_TYPE_NULL;
    case JSON_ARRAY: return MD_TYPE_ARRAY;
    case JSON_OBJECT: return MD_TYPE_OBJECT;
    }
    return 0;
}

json_t *md_schema_required(const json_t *schema) {
    const json_t *required = json_object_get(schema, "required");
    json_t *set = json_object();
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name) json_object_set_new(set, name, json_true());
    }
    return set;
}

// ---- $ref ------------------------------------------------------------------------------------------------------

// The next part of a JSON pointer, with its ~0 and ~1 undone. False when it is too long or has another ~.
static bool next_part(const char **at, char part[POINTER_PART_MAX]) {
    size_t n = 0;
    for (; **at && **at != '/'; ++*at) {
        if (n + 1 == POINTER_PART_MAX) return false;
        char c = **at;
        if (c == '~') {
            ++*at;
            if (**at != '0' && **at != '1') return false;
            c = **at == '0' ? '~' : '/';
        }
        part[n++] = c;
    }
    part[n] = '\0';
    if (**at == '/') ++*at;
    return true;
}

md_status md_schema_find_ref(md_schema *s, const json_t *target, const json_t **out, md_error *err) {
    const char *text = json_string_value(target);
    bool here = text && text[0] == '#' && (text[1] == '\0' || text[1] == '/') && !strchr(text, '%');
    if (!here)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.$ref: found \"%.64s\", expected \"#\" or \"#/...\", as #/$defs/NAME",
                       s->path, text ? text : md_json_type_name(target));
    const json_t *at = s->root;
    char part[POINTER_PART_MAX];
    for (const char *rest = text[1] ? text + 2 : text + 1; at && *rest;) {
        if (!next_part(&rest, part)) at = NULL;
        size_t index = 0;
        for (const char *c = part; at && json_is_array(at) && *c; c++)
            index = *c >= '0' && *c <= '9' && index < 100000 ? index * 10 + (size_t)(*c - '0') : SIZE_MAX / 16;
        at = json_is_array(at) ? json_array_get(at, index) : json_object_get(at, part);
    }
    if (!at) return md_fail(err, MD_E_USAGE, "%s.$ref: there is no \"%.64s\"", s->path, text);
    *out = at;
    return MD_OK;
}

// ---- oneOf -----------------------------------------------------------------------------------------------------

// All that telling schemas apart looks at is charged here, since $refs let a short schema name a large one often.
static md_status charge(md_schema *s, uint64_t work, md_error *err) {
    s->work += work;
    if (s->work <= WORK_MAX) return MD_OK;
    return md_fail(err, MD_E_UNSUPPORTED,
                   "%s.oneOf: the schemas are too large or too many to be told apart here; use anyOf", s->path);
}

// Follows $refs to a schema that is none; NULL when there is no end.
static const json_t *resolve(md_schema *s, const json_t *schema) {
    for (int i = 0; i < CHAIN_MAX; i++) {
        const json_t *target = json_object_get(schema, "$ref");
        if (!target) return schema;
        s->work += 1 + json_string_length(target) / 16;
        if (md_schema_find_ref(s, target, &schema, NULL) != MD_OK) return NULL;
    }
    return NULL;
}

// The values that a schema allows by "const" or "enum": a new reference to an array; NULL: neither is there.
static md_status allowed_values(md_schema *s, const json_t *schema, json_t **out, md_error *err) {
    *out = NULL;
    schema = resolve(s, schema);
    const json_t *constant = json_object_get(schema, "const"), *values = json_object_get(schema, "enum");
    size_t n = json_array_size(values);
    if (!constant && n > MD_SCHEMA_ENUM_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.oneOf: found an enum of %zu values, expected at most %d", s->path, n,
                       MD_SCHEMA_ENUM_MAX);
    MD_TRY(charge(s, 1 + n, err));
    if (constant)
        *out = json_pack("[O]", constant);
    else if (json_is_array(values))
        *out = json_incref((json_t *)(uintptr_t)values);
    return MD_OK;
}

// What comparing a value with another costs at most: its nodes and the bytes of its strings. Stops counting at `most`.
static uint64_t cost_of(const json_t *value, uint64_t most) {
    uint64_t cost = 1 + json_string_length(value) / 64;
    for (size_t i = 0; i < json_array_size(value) && cost < most; i++)
        cost += cost_of(json_array_get(value, i), most - cost);
    void *at = json_object_iter((json_t *)(uintptr_t)value);
    for (; at && cost < most; at = json_object_iter_next((json_t *)(uintptr_t)value, at)) {
        cost += 1 + strlen(json_object_iter_key(at)) / 64;
        if (cost < most) cost += cost_of(json_object_iter_value(at), most - cost);
    }
    return cost;
}

static md_status share_value(md_schema *s, const json_t *a, const json_t *b, bool *shared, md_error *err) {
    *shared = false;
    for (size_t i = 0; i < json_array_size(a) && !*shared; i++) {
        const json_t *value = json_array_get(a, i);
        uint64_t cost = cost_of(value, WORK_MAX);
        MD_TRY(charge(s, cost, err));
        for (size_t k = 0; k < json_array_size(b) && !*shared; k++) {
            const json_t *other = json_array_get(b, k);
            MD_TRY(charge(s, json_typeof(value) == json_typeof(other) ? cost : 1, err));
            *shared = json_equal(value, other);
        }
    }
    return MD_OK;
}

// Do both allow only the values of a "const" or "enum", and none in common?
static md_status differ_in_values(md_schema *s, const json_t *a, const json_t *b, bool *differ, md_error *err) {
    json_t *mine = NULL, *theirs = NULL;
    bool shared = true;
    md_status status = allowed_values(s, a, &mine, err);
    if (status == MD_OK) status = allowed_values(s, b, &theirs, err);
    if (status == MD_OK && mine && theirs) status = share_value(s, mine, theirs, &shared, err);
    json_decref(mine);
    json_decref(theirs);
    *differ = !shared;
    return status;
}

// Is there a member that both require, with no value in common?
static md_status told_apart(md_schema *s, const json_t *a, const json_t *b, bool *apart, md_error *err) {
    const json_t *members = json_object_get(a, "properties"), *others = json_object_get(b, "properties");
    *apart = false;
    MD_TRY(charge(s,
                  json_array_size(json_object_get(a, "required")) + json_array_size(json_object_get(b, "required")) +
                      json_object_size(members),
                  err));
    json_t *required_a = md_schema_required(a), *required_b = md_schema_required(b);
    md_status status = MD_OK;
    void *at = json_object_iter((json_t *)(uintptr_t)members);
    for (; at && status == MD_OK && !*apart; at = json_object_iter_next((json_t *)(uintptr_t)members, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *other = json_object_get(others, key);
        if (other && json_object_get(required_a, key) && json_object_get(required_b, key))
            status = differ_in_values(s, json_object_iter_value(at), other, apart, err);
    }
    json_decref(required_a);
    json_decref(required_b);
    return status;
}

static md_status types_of(md_schema *s, const json_t *schema, unsigned *types, md_error *err) {
    *types = 0;
    if (!json_is_object(schema)) return MD_OK;
    json_t *values;
    MD_TRY(charge(s, json_array_size(json_object_get(schema, "type")), err));
    MD_TRY(allowed_values(s, schema, &values, err));
    if (!values) {
        MD_TRY(md_schema_types(s, schema, types, err));
    } else {
        for (size_t i = 0; i < json_array_size(values); i++) *types |= md_type_of_value(json_array_get(values, i));
        json_decref(values);
    }
    if (*types & (MD_TYPE_INTEGER | MD_TYPE_NUMBER)) *types |= MD_TYPE_INTEGER | MD_TYPE_NUMBER;
    return MD_OK;
}

static md_status check_pair(md_schema *s, const json_t *a, const json_t *b, md_error *err) {
    unsigned types_a, types_b;
    bool apart;
    MD_TRY(types_of(s, a, &types_a, err));
    MD_TRY(types_of(s, b, &types_b, err));
    if (types_a && types_b && !(types_a & types_b)) return MD_OK;
    MD_TRY(differ_in_values(s, a, b, &apart, err));
    if (!apart && (types_a & types_b) == MD_TYPE_OBJECT) MD_TRY(told_apart(s, a, b, &apart, err));
    if (apart) return MD_OK;
    return md_fail(err, MD_E_UNSUPPORTED,
                   "%s.oneOf: can't constrain an answer unless the schemas differ in their types or in the const of a "
                   "required member; use anyOf",
                   s->path);
}

md_status md_schema_check_disjoint(md_schema *s, const json_t *list, md_error *err) {
    if (json_array_size(list) > ONE_OF_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.oneOf: found %zu schemas, expected at most %d", s->path,
                       json_array_size(list), ONE_OF_MAX);
    const json_t *schemas[ONE_OF_MAX];
    for (size_t i = 0; i < json_array_size(list); i++) {
        schemas[i] = resolve(s, json_array_get(list, i));
        for (size_t k = 0; k < i; k++) MD_TRY(check_pair(s, schemas[k], schemas[i], err));
    }
    return MD_OK;
}
