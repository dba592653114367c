// JSON Schema to a grammar (server/grammar.h). What can't be expressed is refused, never left out: an answer is either
// constrained by the whole schema or there is none.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/schema_json.h"

enum {
    NESTING_MAX = 48,    // of the schema itself
    BOUND_MAX = 1 << 20, // of minLength, maxItems, ...
    ENUM_MAX = 1024,     // values of one enum
    PATH_MAX_BYTES = 256,
    REFS_MAX = 512
};

// A subschema that $ref names, compiled once as a subroutine.
typedef struct ref {
    const json_t *schema;
    uint32_t subroutine;
    bool open; // being compiled: a $ref to it is a recursion
} ref;

typedef struct compiler {
    md_grammar *grammar;
    md_json_parts parts;
    const json_t *root;
    ref refs[REFS_MAX];
    uint32_t ref_count;
    uint32_t nesting;
    char path[PATH_MAX_BYTES]; // of the subschema being compiled, for messages
} compiler;

static md_status compile(compiler *c, const json_t *schema, md_error *err);

// ---- paths and keywords ----------------------------------------------------------------------------------------

// Appends to the path and returns its old length, to be given back to leave().
static size_t enter(compiler *c, const char *part) {
    size_t length = strlen(c->path);
    snprintf(c->path + length, sizeof c->path - length, ".%s", part);
    return length;
}

static void leave(compiler *c, size_t length) { c->path[length] = '\0'; }

static md_status compile_at(compiler *c, const char *part, const json_t *schema, md_error *err) {
    size_t length = enter(c, part);
    md_status status = compile(c, schema, err);
    leave(c, length);
    return status;
}

static bool in_list(const char *word, const char *const *list) {
    for (; *list; list++)
        if (strcmp(word, *list) == 0) return true;
    return false;
}

// Words that say nothing about which values are valid.
static const char *const annotations[] = {"title",   "description", "default",     "examples",      "$schema",
                                          "$id",     "$comment",    "deprecated",  "readOnly",      "writeOnly",
                                          "$anchor", "$defs",       "definitions", "discriminator", NULL};
static const char *const modelled[] = {"type",     "enum",     "const",     "anyOf",     "oneOf",
                                       "allOf",    "$ref",     "required",  "items",     "properties",
                                       "minItems", "maxItems", "minLength", "maxLength", "additionalProperties",
                                       NULL};

static md_status check_keywords(compiler *c, const json_t *schema, md_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) {
        (void)value;
        if (!in_list(key, annotations) && !in_list(key, modelled))
            return md_fail(err, MD_E_UNSUPPORTED, "%s: the keyword \"%.64s\" can't constrain an answer here", c->path,
                           key);
    }
    return MD_OK;
}

// `word` decides alone; beside it only annotations and `also` may stand.
static md_status check_alone(compiler *c, const json_t *schema, const char *word, const char *also, md_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) {
        (void)value;
        if (!in_list(key, annotations) && strcmp(key, word) != 0 && strcmp(key, also) != 0)
            return md_fail(err, MD_E_UNSUPPORTED, "%s: \"%s\" beside \"%s\" can't constrain an answer here", c->path,
                           key, word);
    }
    return MD_OK;
}

static md_status get_bound(compiler *c, const json_t *schema, const char *key, uint32_t *out, md_error *err) {
    const json_t *value = json_object_get(schema, key);
    if (!value) return MD_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return md_fail(err, MD_E_USAGE, "%s.%s: found %s, expected a whole number of at least 0", c->path, key,
                       md_json_type_name(value));
    if (json_integer_value(value) > BOUND_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.%s: found %" JSON_INTEGER_FORMAT ", expected at most %d", c->path,
                       key, json_integer_value(value), BOUND_MAX);
    *out = (uint32_t)json_integer_value(value);
    return MD_OK;
}

static md_status get_bounds(compiler *c, const json_t *schema, const char *low, const char *high, uint32_t *min,
                            uint32_t *max, md_error *err) {
    *min = 0;
    *max = MD_GRAMMAR_UNBOUNDED;
    MD_TRY(get_bound(c, schema, low, min, err));
    MD_TRY(get_bound(c, schema, high, max, err));
    if (*min > *max) return md_fail(err, MD_E_USAGE, "%s: %s is greater than %s", c->path, low, high);
    return MD_OK;
}

// ---- types -----------------------------------------------------------------------------------------------------

enum { T_STRING = 1, T_NUMBER = 2, T_INTEGER = 4, T_BOOLEAN = 8, T_NULL = 16, T_ARRAY = 32, T_OBJECT = 64 };

static const struct {
    const char *name;
    unsigned bit;
} type_names[] = {{"string", T_STRING}, {"number", T_NUMBER}, {"integer", T_INTEGER}, {"boolean", T_BOOLEAN},
                  {"null", T_NULL},     {"array", T_ARRAY},   {"object", T_OBJECT}};
enum { TYPES = sizeof type_names / sizeof type_names[0] };

static md_status add_type(compiler *c, const json_t *name, unsigned *types, md_error *err) {
    for (size_t i = 0; json_is_string(name) && i < TYPES; i++)
        if (strcmp(json_string_value(name), type_names[i].name) == 0) {
            *types |= type_names[i].bit;
            return MD_OK;
        }
    return md_fail(err, MD_E_USAGE,
                   "%s.type: found \"%.64s\", expected string, number, integer, boolean, null, array or object",
                   c->path, json_is_string(name) ? json_string_value(name) : md_json_type_name(name));
}

// The types a schema allows; 0 when it says nothing. Without "type", the keywords for one type pick it.
static md_status get_types(compiler *c, const json_t *schema, unsigned *types, md_error *err) {
    *types = 0;
    const json_t *type = json_object_get(schema, "type");
    if (json_is_array(type)) {
        if (json_array_size(type) == 0) return md_fail(err, MD_E_USAGE, "%s.type: found an empty array", c->path);
        for (size_t i = 0; i < json_array_size(type); i++) MD_TRY(add_type(c, json_array_get(type, i), types, err));
        return MD_OK;
    }
    if (type) return add_type(c, type, types, err);
    if (json_object_get(schema, "properties") || json_object_get(schema, "required") ||
        json_object_get(schema, "additionalProperties"))
        *types = T_OBJECT;
    else if (json_object_get(schema, "items") || json_object_get(schema, "minItems") ||
             json_object_get(schema, "maxItems"))
        *types = T_ARRAY;
    else if (json_object_get(schema, "minLength") || json_object_get(schema, "maxLength"))
        *types = T_STRING;
    return MD_OK;
}

static unsigned type_of_value(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_STRING: return T_STRING;
    case JSON_INTEGER: return T_INTEGER | T_NUMBER;
    case JSON_REAL: return T_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return T_BOOLEAN;
    case JSON_NULL: return T_NULL;
    case JSON_ARRAY: return T_ARRAY;
    case JSON_OBJECT: return T_OBJECT;
    }
    return 0;
}

// ---- enum and const --------------------------------------------------------------------------------------------

static md_status compile_literal(compiler *c, const json_t *value, md_error *err) {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text) return md_fail(err, MD_E_MEMORY, "%s: out of memory", c->path);
    md_status status = md_grammar_emit_bytes(c->grammar, text, strlen(text), err);
    free(text);
    return status;
}

static md_status compile_enum(compiler *c, const json_t *schema, const json_t *values, md_error *err) {
    unsigned types;
    MD_TRY(check_alone(c, schema, "enum", "type", err));
    MD_TRY(get_types(c, schema, &types, err));
    if (!json_is_array(values) || json_array_size(values) == 0)
        return md_fail(err, MD_E_USAGE, "%s.enum: found %s, expected an array with at least one value", c->path,
                       json_is_array(values) ? "an empty array" : md_json_type_name(values));
    if (json_array_size(values) > ENUM_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.enum: found %zu values, expected at most %d", c->path,
                       json_array_size(values), ENUM_MAX);
    size_t last = json_array_size(values);
    for (size_t i = 0; i < json_array_size(values); i++)
        if (!types || types & type_of_value(json_array_get(values, i))) last = i;
    if (last == json_array_size(values))
        return md_fail(err, MD_E_USAGE, "%s.enum: no value is of the type that \"type\" says", c->path);
    md_json_choice choice = MD_JSON_CHOICE;
    for (size_t i = 0; i <= last; i++) {
        const json_t *value = json_array_get(values, i);
        if (types && !(types & type_of_value(value))) continue;
        MD_TRY(md_json_alternative(c->grammar, &choice, i < last, err));
        MD_TRY(compile_literal(c, value, err));
        MD_TRY(md_json_join(c->grammar, &choice, err));
    }
    md_json_choice_end(c->grammar, &choice);
    return MD_OK;
}

// ---- anyOf, oneOf, allOf, $ref ---------------------------------------------------------------------------------

// oneOf wants exactly one of its schemas to hold. That follows from the types alone, or is refused.
static md_status check_disjoint(compiler *c, const json_t *list, md_error *err) {
    unsigned seen = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *schema = json_array_get(list, i);
        unsigned types = 0;
        if (json_is_object(schema)) {
            MD_TRY(get_types(c, schema, &types, err));
            const json_t *constant = json_object_get(schema, "const");
            if (constant) types = type_of_value(constant);
        }
        if (types & (T_INTEGER | T_NUMBER)) types |= T_INTEGER | T_NUMBER;
        if (!types || types & seen)
            return md_fail(err, MD_E_UNSUPPORTED,
                           "%s.oneOf: can't constrain an answer unless the types differ; use anyOf", c->path);
        seen |= types;
    }
    return MD_OK;
}

static md_status compile_any_of(compiler *c, const json_t *schema, const char *word, md_error *err) {
    const json_t *list = json_object_get(schema, word);
    MD_TRY(check_alone(c, schema, word, word, err));
    if (!json_is_array(list) || json_array_size(list) == 0)
        return md_fail(err, MD_E_USAGE, "%s.%s: found %s, expected an array of schemas", c->path, word,
                       json_is_array(list) ? "an empty array" : md_json_type_name(list));
    size_t n = json_array_size(list);
    if (strcmp(word, "oneOf") == 0 && n > 1) MD_TRY(check_disjoint(c, list, err));
    if (strcmp(word, "allOf") == 0 && n > 1)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.allOf: several schemas can't constrain an answer here", c->path);
    md_json_choice choice = MD_JSON_CHOICE;
    for (size_t i = 0; i < n; i++) {
        char part[32];
        snprintf(part, sizeof part, "%s[%zu]", word, i);
        MD_TRY(md_json_alternative(c->grammar, &choice, i + 1 < n, err));
        MD_TRY(compile_at(c, part, json_array_get(list, i), err));
        MD_TRY(md_json_join(c->grammar, &choice, err));
    }
    md_json_choice_end(c->grammar, &choice);
    return MD_OK;
}

// Appends `jump over; <schema>; return` and gives the subroutine's place.
static md_status compile_subroutine(compiler *c, const char *part, const json_t *schema, uint32_t *at, md_error *err) {
    uint32_t over;
    MD_TRY(md_grammar_emit(c->grammar, MD_GRAMMAR_JUMP, 0, 0, &over, err));
    *at = c->grammar->size;
    MD_TRY(compile_at(c, part, schema, err));
    MD_TRY(md_grammar_emit(c->grammar, MD_GRAMMAR_RETURN, 0, 0, NULL, err));
    c->grammar->code[over].a = c->grammar->size;
    return MD_OK;
}

static md_status compile_ref(compiler *c, const json_t *schema, const json_t *target, md_error *err) {
    MD_TRY(check_alone(c, schema, "$ref", "$ref", err));
    const char *text = json_string_value(target), *name = NULL;
    const json_t *defs = NULL;
    if (text && strncmp(text, "#/$defs/", 8) == 0) defs = json_object_get(c->root, "$defs"), name = text + 8;
    if (text && strncmp(text, "#/definitions/", 14) == 0)
        defs = json_object_get(c->root, "definitions"), name = text + 14;
    if (text && strcmp(text, "#") == 0)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.$ref: a recursive schema can't constrain an answer here", c->path);
    if (!name || strpbrk(name, "/~%"))
        return md_fail(err, MD_E_UNSUPPORTED,
                       "%s.$ref: found \"%.64s\", expected \"#/$defs/NAME\" or \"#/definitions/NAME\"", c->path,
                       text ? text : md_json_type_name(target));
    const json_t *found = json_object_get(defs, name);
    if (!found) return md_fail(err, MD_E_USAGE, "%s.$ref: there is no \"%.64s\"", c->path, text);
    for (uint32_t i = 0; i < c->ref_count; i++) {
        if (c->refs[i].schema != found) continue;
        if (c->refs[i].open)
            return md_fail(err, MD_E_UNSUPPORTED, "%s.$ref: a recursive schema can't constrain an answer here",
                           c->path);
        return md_json_call(c->grammar, c->refs[i].subroutine, err);
    }
    if (c->ref_count == REFS_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.$ref: more than %d schemas are referred to", c->path, REFS_MAX);
    ref *entry = &c->refs[c->ref_count++];
    *entry = (ref){.schema = found, .open = true};
    MD_TRY(compile_subroutine(c, "$ref", found, &entry->subroutine, err));
    entry->open = false;
    return md_json_call(c->grammar, entry->subroutine, err);
}

// ---- objects and arrays ----------------------------------------------------------------------------------------

static md_status compile_member(compiler *c, const char *key, const json_t *schema, uint32_t *at, md_error *err) {
    uint32_t over;
    MD_TRY(md_grammar_emit(c->grammar, MD_GRAMMAR_JUMP, 0, 0, &over, err));
    *at = c->grammar->size;
    if (key) {
        json_t *name = json_string(key);
        md_status status =
            name ? compile_literal(c, name, err) : md_fail(err, MD_E_MEMORY, "%s: out of memory", c->path);
        json_decref(name);
        MD_TRY(status);
    } else {
        MD_TRY(md_json_call(c->grammar, c->parts.string, err));
    }
    MD_TRY(md_grammar_emit_bytes(c->grammar, ":", 1, err));
    MD_TRY(md_json_call(c->grammar, c->parts.space, err));
    MD_TRY(compile_at(c, key ? key : "additionalProperties", schema, err));
    MD_TRY(md_grammar_emit(c->grammar, MD_GRAMMAR_RETURN, 0, 0, NULL, err));
    c->grammar->code[over].a = c->grammar->size;
    return MD_OK;
}

static bool is_required(const json_t *required, const char *key) {
    for (size_t i = 0; i < json_array_size(required); i++)
        if (strcmp(json_string_value(json_array_get(required, i)), key) == 0) return true;
    return false;
}

// All members that are written: the declared ones in their order, then those that are only required. A new reference.
static md_status collect_members(compiler *c, const json_t *schema, json_t **out, md_error *err) {
    const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    const json_t *additional = json_object_get(schema, "additionalProperties");
    if (properties && !json_is_object(properties))
        return md_fail(err, MD_E_USAGE, "%s.properties: found %s, expected an object", c->path,
                       md_json_type_name(properties));
    if (required && !json_is_array(required))
        return md_fail(err, MD_E_USAGE, "%s.required: found %s, expected an array", c->path,
                       md_json_type_name(required));
    json_t *members = properties ? json_copy((json_t *)properties) : json_object();
    if (!members) return md_fail(err, MD_E_MEMORY, "%s: out of memory", c->path);
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *key = json_string_value(json_array_get(required, i));
        if (key && json_object_get(members, key)) continue;
        if (!key || json_is_false(additional)) {
            json_decref(members);
            return md_fail(err, MD_E_USAGE, "%s.required[%zu]: expected the name of one of the properties", c->path, i);
        }
        json_object_set_new(members, key, additional ? json_incref((json_t *)additional) : json_true());
    }
    *out = members;
    return MD_OK;
}

// Members in a fixed order, those that are not required each written or left out. Two rows of code, one before the
// first member was written and one after it, which begins with commas.
static md_status compile_members(compiler *c, const json_t *members, const json_t *required, md_error *err) {
    md_grammar *grammar = c->grammar;
    size_t n = json_object_size(members), i = 0;
    uint32_t *places = malloc((3 * n + 2) * sizeof *places);
    if (!places) return md_fail(err, MD_E_MEMORY, "%s: out of memory", c->path);
    uint32_t *reads = places, *jumps = places + n, *after = places + 2 * n; // after: [n + 1], in the second row
    md_status status = MD_OK;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)members, key, value) {
        MD_TRY_GOTO(compile_member(c, key, value, &reads[i], err));
        i++;
    }
    MD_TRY_GOTO(md_grammar_emit_bytes(grammar, "{", 1, err));
    MD_TRY_GOTO(md_json_call(grammar, c->parts.space, err));
    i = 0;
    bool all_optional = true;
    size_t first_row = 0; // members that the first row has
    json_object_foreach((json_t *)members, key, value) {
        bool must = is_required(required, key);
        if (!must)
            MD_TRY_GOTO(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, grammar->size + 3, NULL, err));
        MD_TRY_GOTO(md_json_call(grammar, reads[i], err));
        MD_TRY_GOTO(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, 0, 0, &jumps[i], err));
        first_row = ++i;
        if (must) {
            all_optional = false;
            break;
        }
    }
    if (all_optional) MD_TRY_GOTO(md_grammar_emit_bytes(grammar, "}", 1, err));
    uint32_t over = UINT32_MAX;
    if (all_optional) MD_TRY_GOTO(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, 0, 0, &over, err));
    i = 0;
    json_object_foreach((json_t *)members, key, value) {
        after[i] = grammar->size;
        if (!is_required(required, key))
            MD_TRY_GOTO(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, grammar->size + 4, NULL, err));
        MD_TRY_GOTO(md_grammar_emit_bytes(grammar, ",", 1, err));
        MD_TRY_GOTO(md_json_call(grammar, c->parts.space, err));
        MD_TRY_GOTO(md_json_call(grammar, reads[i], err));
        i++;
    }
    after[n] = grammar->size;
    MD_TRY_GOTO(md_json_call(grammar, c->parts.space, err));
    MD_TRY_GOTO(md_grammar_emit_bytes(grammar, "}", 1, err));
    for (size_t k = 0; k < first_row; k++) grammar->code[jumps[k]].a = after[k + 1];
    if (over != UINT32_MAX) grammar->code[over].a = grammar->size;
fail:
    free(places);
    return status;
}

static md_status compile_object(compiler *c, const json_t *schema, md_error *err) {
    const json_t *additional = json_object_get(schema, "additionalProperties");
    if (additional && !json_is_boolean(additional) && !json_is_object(additional))
        return md_fail(err, MD_E_USAGE, "%s.additionalProperties: found %s, expected a boolean or a schema", c->path,
                       md_json_type_name(additional));
    json_t *members = NULL;
    MD_TRY(collect_members(c, schema, &members, err));
    md_status status;
    if (json_object_size(members) || json_is_false(additional)) {
        status = compile_members(c, members, json_object_get(schema, "required"), err);
    } else if (json_is_object(additional)) {
        uint32_t member;
        status = compile_member(c, NULL, additional, &member, err);
        if (status == MD_OK) status = md_json_map(c->grammar, &c->parts, member, err);
    } else {
        status = md_json_call(c->grammar, c->parts.object, err);
    }
    json_decref(members);
    return status;
}

static md_status compile_array(compiler *c, const json_t *schema, md_error *err) {
    uint32_t min, max, item = c->parts.value;
    MD_TRY(get_bounds(c, schema, "minItems", "maxItems", &min, &max, err));
    const json_t *items = json_object_get(schema, "items");
    if (items) MD_TRY(compile_subroutine(c, "items", items, &item, err));
    return md_json_array(c->grammar, &c->parts, item, min, max, err);
}

// ---- a schema --------------------------------------------------------------------------------------------------

static md_status compile_type(compiler *c, const json_t *schema, unsigned type, md_error *err) {
    uint32_t min, max;
    switch (type) {
    case T_STRING:
        MD_TRY(get_bounds(c, schema, "minLength", "maxLength", &min, &max, err));
        return md_json_string(c->grammar, &c->parts, min, max, err);
    case T_NUMBER: return md_json_call(c->grammar, c->parts.number, err);
    case T_INTEGER: return md_json_call(c->grammar, c->parts.integer, err);
    case T_NULL: return md_grammar_emit_bytes(c->grammar, "null", 4, err);
    case T_ARRAY: return compile_array(c, schema, err);
    case T_OBJECT: return compile_object(c, schema, err);
    default: break;
    }
    md_json_choice choice = MD_JSON_CHOICE;
    MD_TRY(md_json_alternative(c->grammar, &choice, true, err));
    MD_TRY(md_grammar_emit_bytes(c->grammar, "true", 4, err));
    MD_TRY(md_json_join(c->grammar, &choice, err));
    MD_TRY(md_json_alternative(c->grammar, &choice, false, err));
    MD_TRY(md_grammar_emit_bytes(c->grammar, "false", 5, err));
    md_json_choice_end(c->grammar, &choice);
    return MD_OK;
}

static md_status compile_types(compiler *c, const json_t *schema, md_error *err) {
    unsigned types;
    MD_TRY(get_types(c, schema, &types, err));
    if (!types) return md_json_call(c->grammar, c->parts.value, err);
    if (types & T_NUMBER) types &= ~(unsigned)T_INTEGER; // an integer is a number
    md_json_choice choice = MD_JSON_CHOICE;
    for (size_t i = 0; i < TYPES; i++) {
        if (!(types & type_names[i].bit)) continue;
        bool more = types >> 1 >= type_names[i].bit;
        MD_TRY(md_json_alternative(c->grammar, &choice, more, err));
        MD_TRY(compile_type(c, schema, type_names[i].bit, err));
        MD_TRY(md_json_join(c->grammar, &choice, err));
    }
    md_json_choice_end(c->grammar, &choice);
    return MD_OK;
}

static md_status compile_object_form(compiler *c, const json_t *schema, md_error *err) {
    static const char *const combiners[] = {"anyOf", "oneOf", "allOf"};
    MD_TRY(check_keywords(c, schema, err));
    const json_t *target = json_object_get(schema, "$ref");
    if (target) return compile_ref(c, schema, target, err);
    const json_t *constant = json_object_get(schema, "const");
    if (constant) {
        unsigned types;
        MD_TRY(check_alone(c, schema, "const", "type", err));
        MD_TRY(get_types(c, schema, &types, err));
        if (types && !(types & type_of_value(constant)))
            return md_fail(err, MD_E_USAGE, "%s.const: its type is not the one that \"type\" says", c->path);
        return compile_literal(c, constant, err);
    }
    const json_t *values = json_object_get(schema, "enum");
    if (values) return compile_enum(c, schema, values, err);
    for (size_t i = 0; i < 3; i++)
        if (json_object_get(schema, combiners[i])) return compile_any_of(c, schema, combiners[i], err);
    return compile_types(c, schema, err);
}

static md_status compile(compiler *c, const json_t *schema, md_error *err) {
    if (json_is_true(schema)) return md_json_call(c->grammar, c->parts.value, err);
    if (json_is_false(schema)) return md_fail(err, MD_E_USAGE, "%s: found false, which no answer can satisfy", c->path);
    if (!json_is_object(schema))
        return md_fail(err, MD_E_USAGE, "%s: found %s, expected a schema (an object)", c->path,
                       md_json_type_name(schema));
    if (c->nesting == NESTING_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: the schema is nested deeper than %d levels", c->path, NESTING_MAX);
    c->nesting++;
    md_status status = compile_object_form(c, schema, err);
    c->nesting--;
    return status;
}

md_status md_schema_compile(const json_t *schema, bool leading_space, const char *path, md_grammar *out,
                            md_error *err) {
    *out = (md_grammar){0};
    compiler *c = calloc(1, sizeof *c);
    if (!c) return md_fail(err, MD_E_MEMORY, "%s: out of memory", path);
    c->grammar = out;
    c->root = schema;
    snprintf(c->path, sizeof c->path, "%s", path);
    uint32_t start;
    md_status status;
    MD_TRY_GOTO(md_grammar_emit(out, MD_GRAMMAR_JUMP, 0, 0, &start, err));
    MD_TRY_GOTO(md_json_parts_emit(out, &c->parts, err));
    out->code[start].a = out->size;
    if (leading_space) {
        // Models part their reasoning from the answer by up to two line breaks.
        MD_TRY_GOTO(md_json_call(out, c->parts.space, err));
        MD_TRY_GOTO(md_json_call(out, c->parts.space, err));
    }
    if (schema)
        MD_TRY_GOTO(compile(c, schema, err));
    else
        MD_TRY_GOTO(md_json_call(out, c->parts.object, err));
    MD_TRY_GOTO(md_grammar_emit(out, MD_GRAMMAR_MATCH, 0, 0, NULL, err));
    free(c);
    return MD_OK;
fail:
    free(c);
    md_grammar_free(out);
    return status;
}
