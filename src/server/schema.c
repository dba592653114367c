#include "server/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/choice.h"
#include "server/schema_types.h"

enum {
    NESTING_MAX = 48,   // of the schema itself
    BOUND_MAX = 1 << 20 // of minLength, maxItems, ...
};

// ---- paths and keywords ----------------------------------------------------------------------------------------

md_status md_schema_compile_at(md_schema *s, const char *part, const json_t *schema, md_error *err) {
    size_t length = strlen(s->path);
    snprintf(s->path + length, sizeof s->path - length, ".%s", part);
    md_status status = md_schema_compile(s, schema, err);
    s->path[length] = '\0';
    return status;
}

static bool in_list(const char *word, const char *const *list) {
    for (; *list; list++)
        if (strcmp(word, *list) == 0) return true;
    return false;
}

// Words that say nothing about which values are valid.
static const char *const annotations[] = {"title",       "description",   "default",  "examples",  "$schema", "$id",
                                          "$comment",    "deprecated",    "readOnly", "writeOnly", "$anchor", "$defs",
                                          "definitions", "discriminator", "strict",   NULL};
static const char *const modelled[] = {"type",
                                       "enum",
                                       "const",
                                       "anyOf",
                                       "oneOf",
                                       "allOf",
                                       "$ref",
                                       "required",
                                       "items",
                                       "minItems",
                                       "maxItems",
                                       "minimum",
                                       "maximum",
                                       "properties",
                                       "pattern",
                                       "format",
                                       "exclusiveMinimum",
                                       "minLength",
                                       "maxLength",
                                       "prefixItems",
                                       "multipleOf",
                                       "additionalProperties",
                                       "exclusiveMaximum",
                                       NULL};

static md_status check_keywords(md_schema *s, const json_t *schema, md_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        if (in_list(key, annotations) || in_list(key, modelled)) continue;
        if (strcmp(key, "uniqueItems") == 0 && json_is_false(value)) continue;
        return md_fail(err, MD_E_UNSUPPORTED, "%s: the keyword \"%.64s\" can't constrain an answer here", s->path, key);
    }
    return MD_OK;
}

// `word` decides alone; beside it only annotations and `also` may stand.
static md_status check_alone(md_schema *s, const json_t *schema, const char *word, const char *also, md_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
        (void)value;
        if (!in_list(key, annotations) && strcmp(key, word) != 0 && strcmp(key, also) != 0)
            return md_fail(err, MD_E_UNSUPPORTED, "%s: \"%s\" beside \"%s\" can't constrain an answer here", s->path,
                           key, word);
    }
    return MD_OK;
}

static md_status get_bound(md_schema *s, const json_t *schema, const char *key, uint32_t *out, md_error *err) {
    const json_t *value = json_object_get(schema, key);
    if (!value) return MD_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return md_fail(err, MD_E_USAGE, "%s.%s: found %s, expected a whole number of at least 0", s->path, key,
                       md_json_type_name(value));
    if (json_integer_value(value) > BOUND_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.%s: found %" JSON_INTEGER_FORMAT ", expected at most %d", s->path,
                       key, json_integer_value(value), BOUND_MAX);
    *out = (uint32_t)json_integer_value(value);
    return MD_OK;
}

md_status md_schema_bounds(md_schema *s, const json_t *schema, const char *low, const char *high, uint32_t *min,
                           uint32_t *max, md_error *err) {
    *min = 0;
    *max = MD_GRAMMAR_UNBOUNDED;
    MD_TRY(get_bound(s, schema, low, min, err));
    MD_TRY(get_bound(s, schema, high, max, err));
    if (*min > *max) return md_fail(err, MD_E_USAGE, "%s: %s is greater than %s", s->path, low, high);
    return MD_OK;
}

// ---- enum and const --------------------------------------------------------------------------------------------

md_status md_schema_nothing(md_schema *s, md_error *err) {
    return md_grammar_emit(s->grammar, MD_GRAMMAR_RANGE, 1, 0, NULL, err);
}

// A string as it is, in CDATA where it has a "<".
static md_status emit_raw(md_schema *s, const char *text, size_t n, md_error *err) {
    bool cdata = memchr(text, '<', n) != NULL;
    if (strlen(text) != n || (cdata && strstr(text, "]]>")))
        return md_fail(err, MD_E_UNSUPPORTED, "%s: a call's XML has no form for \"%.64s\"", s->path, text);
    if (!cdata) return md_grammar_emit_bytes(s->grammar, text, n, err);
    MD_TRY(md_grammar_emit_bytes(s->grammar, "<![CDATA[", 9, err));
    MD_TRY(md_grammar_emit_bytes(s->grammar, text, n, err));
    return md_grammar_emit_bytes(s->grammar, "]]>", 3, err);
}

md_status md_schema_literal(md_schema *s, const json_t *value, md_error *err) {
    if (s->raw && json_is_string(value)) return emit_raw(s, json_string_value(value), json_string_length(value), err);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text) return md_fail(err, MD_E_MEMORY, "%s: out of memory", s->path);
    md_status status = MD_OK;
    for (const char *c = text; *c && status == MD_OK; c++) // "<" stands in strings only
        status = *c == '<' && s->parts->form == MD_TEXT_JSON_LT ? md_grammar_emit_bytes(s->grammar, "\\u003c", 6, err)
                                                                : md_grammar_emit_bytes(s->grammar, c, 1, err);
    free(text);
    return status;
}

static bool is_left_out(const md_schema *s, unsigned types) {
    return s->raw && s->raw_types && !(types & s->raw_types);
}

static md_status compile_enum(md_schema *s, const json_t *schema, const json_t *values, md_error *err) {
    unsigned types;
    MD_TRY(check_alone(s, schema, "enum", "type", err));
    MD_TRY(md_schema_types(s, schema, &types, err));
    size_t n = json_array_size(values), kept = 0;
    if (n == 0)
        return md_fail(err, MD_E_USAGE, "%s.enum: found %s, expected an array with at least one value", s->path,
                       json_is_array(values) ? "an empty array" : md_json_type_name(values));
    if (n > MD_SCHEMA_ENUM_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.enum: found %zu values, expected at most %d", s->path, n,
                       MD_SCHEMA_ENUM_MAX);
    md_choice choice = MD_CHOICE;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(values, i);
        unsigned type = md_type_of_value(value);
        if (types && !(types & type)) continue;
        kept++;
        if (is_left_out(s, type)) continue;
        MD_TRY(md_choice_begin(s->grammar, &choice, true, err));
        MD_TRY(md_schema_literal(s, value, err));
        MD_TRY(md_choice_join(s->grammar, &choice, err));
    }
    if (kept == 0) return md_fail(err, MD_E_USAGE, "%s.enum: no value is of the type that \"type\" says", s->path);
    MD_TRY(md_choice_begin(s->grammar, &choice, false, err));
    MD_TRY(md_schema_nothing(s, err));
    md_choice_end(s->grammar, &choice);
    return MD_OK;
}

static md_status compile_const(md_schema *s, const json_t *schema, const json_t *value, md_error *err) {
    unsigned types;
    MD_TRY(check_alone(s, schema, "const", "type", err));
    MD_TRY(md_schema_types(s, schema, &types, err));
    if (types && !(types & md_type_of_value(value)))
        return md_fail(err, MD_E_USAGE, "%s.const: its type is not the one that \"type\" says", s->path);
    return is_left_out(s, md_type_of_value(value)) ? md_schema_nothing(s, err) : md_schema_literal(s, value, err);
}

// ---- anyOf, oneOf, allOf, $ref ---------------------------------------------------------------------------------

static md_status compile_any_of(md_schema *s, const json_t *schema, const char *word, md_error *err) {
    const json_t *list = json_object_get(schema, word);
    MD_TRY(check_alone(s, schema, word, word, err));
    if (!json_is_array(list) || json_array_size(list) == 0)
        return md_fail(err, MD_E_USAGE, "%s.%s: found %s, expected an array of schemas", s->path, word,
                       json_is_array(list) ? "an empty array" : md_json_type_name(list));
    size_t n = json_array_size(list);
    if (n > MD_SCHEMA_ENUM_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.%s: found %zu schemas, expected at most %d", s->path, word, n,
                       MD_SCHEMA_ENUM_MAX);
    if (strcmp(word, "oneOf") == 0) MD_TRY(md_schema_check_disjoint(s, list, err));
    if (strcmp(word, "allOf") == 0 && n > 1)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.allOf: several schemas can't constrain an answer here", s->path);
    md_choice choice = MD_CHOICE;
    for (size_t i = 0; i < n; i++) {
        char part[32];
        snprintf(part, sizeof part, "%s[%zu]", word, i);
        MD_TRY(md_choice_begin(s->grammar, &choice, i + 1 < n, err));
        MD_TRY(md_schema_compile_at(s, part, json_array_get(list, i), err));
        MD_TRY(md_choice_join(s->grammar, &choice, err));
    }
    md_choice_end(s->grammar, &choice);
    return MD_OK;
}

// A call of a subroutine that is not there yet.
static md_status call_later(md_schema *s, md_schema_ref *ref, md_error *err) {
    uint32_t at;
    MD_TRY(md_grammar_emit(s->grammar, MD_GRAMMAR_CALL, ref->calls, 0, &at, err));
    ref->calls = at;
    return MD_OK;
}

static md_status compile_ref(md_schema *s, const json_t *schema, const json_t *target, md_error *err) {
    const json_t *found;
    MD_TRY(check_alone(s, schema, "$ref", "$ref", err));
    MD_TRY(md_schema_find_ref(s, target, &found, err));
    for (uint32_t i = 0; i < s->ref_count; i++) {
        md_schema_ref *ref = &s->refs[i];
        if (ref->schema == found && ref->raw == s->raw && ref->raw_types == s->raw_types)
            return call_later(s, ref, err);
    }
    if (s->ref_count == MD_SCHEMA_REFS_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.$ref: more than %d schemas are referred to", s->path,
                       MD_SCHEMA_REFS_MAX);
    md_schema_ref *ref = &s->refs[s->ref_count++];
    *ref = (md_schema_ref){.schema = found,
                           .name = json_string_value(target),
                           .raw = s->raw,
                           .raw_types = s->raw_types,
                           .calls = UINT32_MAX};
    return call_later(s, ref, err);
}

md_status md_schema_finish(md_schema *s, md_error *err) {
    uint32_t over;
    if (s->ref_count == 0) return MD_OK;
    MD_TRY(md_grammar_emit(s->grammar, MD_GRAMMAR_JUMP, 0, 0, &over, err));
    for (uint32_t i = 0; i < s->ref_count; i++) { // they may add more
        const md_schema_ref ref = s->refs[i];
        s->refs[i].at = s->grammar->size;
        size_t length = strlen(s->path);
        snprintf(s->path + length, sizeof s->path - length, "%s", ref.name);
        s->raw = ref.raw;
        s->raw_types = ref.raw_types;
        MD_TRY(md_schema_compile(s, ref.schema, err));
        MD_TRY(md_grammar_emit(s->grammar, MD_GRAMMAR_RETURN, 0, 0, NULL, err));
        s->path[length] = '\0';
    }
    for (uint32_t i = 0; i < s->ref_count; i++)
        for (uint32_t call = s->refs[i].calls; call != UINT32_MAX;) {
            uint32_t next = s->grammar->code[call].a;
            s->grammar->code[call].a = s->refs[i].at;
            call = next;
        }
    s->grammar->code[over].a = s->grammar->size;
    return MD_OK;
}

// ---- a schema --------------------------------------------------------------------------------------------------

static md_status compile_boolean(md_schema *s, md_error *err) {
    md_choice choice = MD_CHOICE;
    MD_TRY(md_choice_begin(s->grammar, &choice, true, err));
    MD_TRY(md_grammar_emit_bytes(s->grammar, "true", 4, err));
    MD_TRY(md_choice_join(s->grammar, &choice, err));
    MD_TRY(md_choice_begin(s->grammar, &choice, false, err));
    MD_TRY(md_grammar_emit_bytes(s->grammar, "false", 5, err));
    md_choice_end(s->grammar, &choice);
    return MD_OK;
}

static md_status compile_type(md_schema *s, const json_t *schema, unsigned type, md_error *err) {
    switch (type) {
    case MD_TYPE_STRING: return md_schema_string(s, schema, err);
    case MD_TYPE_NUMBER: return md_schema_number(s, schema, false, err);
    case MD_TYPE_INTEGER: return md_schema_number(s, schema, true, err);
    case MD_TYPE_NULL: return md_grammar_emit_bytes(s->grammar, "null", 4, err);
    case MD_TYPE_ARRAY: return md_schema_array(s, schema, err);
    case MD_TYPE_OBJECT: return md_schema_object(s, schema, err);
    default: return compile_boolean(s, err);
    }
}

static md_status compile_anything(md_schema *s, md_error *err) {
    if (!s->raw) return md_json_call(s->grammar, s->parts->value, err);
    return md_json_characters(s->grammar, s->parts->raw_character, 0, MD_GRAMMAR_UNBOUNDED, err);
}

static md_status compile_types(md_schema *s, const json_t *schema, md_error *err) {
    unsigned types;
    MD_TRY(md_schema_types(s, schema, &types, err));
    if (!types) return compile_anything(s, err);
    if (types & MD_TYPE_NUMBER) types &= ~(unsigned)MD_TYPE_INTEGER; // an integer is a number
    if (s->raw && s->raw_types) types &= s->raw_types;
    md_choice choice = MD_CHOICE;
    for (size_t i = 0; i < sizeof md_type_names / sizeof md_type_names[0]; i++) {
        if (!(types & md_type_names[i].bit)) continue;
        MD_TRY(md_choice_begin(s->grammar, &choice, true, err));
        MD_TRY(compile_type(s, schema, md_type_names[i].bit, err));
        MD_TRY(md_choice_join(s->grammar, &choice, err));
    }
    MD_TRY(md_choice_begin(s->grammar, &choice, false, err));
    MD_TRY(md_schema_nothing(s, err));
    md_choice_end(s->grammar, &choice);
    return MD_OK;
}

static md_status compile_object_form(md_schema *s, const json_t *schema, md_error *err) {
    static const char *const combiners[] = {"anyOf", "oneOf", "allOf"};
    MD_TRY(check_keywords(s, schema, err));
    const json_t *target = json_object_get(schema, "$ref"), *constant = json_object_get(schema, "const"),
                 *values = json_object_get(schema, "enum");
    if (target) return compile_ref(s, schema, target, err);
    if (constant) return compile_const(s, schema, constant, err);
    if (values) return compile_enum(s, schema, values, err);
    for (size_t i = 0; i < 3; i++)
        if (json_object_get(schema, combiners[i])) return compile_any_of(s, schema, combiners[i], err);
    return compile_types(s, schema, err);
}

void md_schema_init(md_schema *s, md_grammar *grammar, const md_json_parts *parts, const json_t *root,
                    const char *path) {
    *s = (md_schema){.grammar = grammar, .parts = parts, .root = root};
    snprintf(s->path, sizeof s->path, "%s", path);
}

md_status md_schema_compile(md_schema *s, const json_t *schema, md_error *err) {
    if (json_is_true(schema)) return compile_anything(s, err);
    if (json_is_false(schema)) return md_fail(err, MD_E_USAGE, "%s: found false, which no answer can satisfy", s->path);
    if (!json_is_object(schema))
        return md_fail(err, MD_E_USAGE, "%s: found %s, expected a schema (an object)", s->path,
                       md_json_type_name(schema));
    if (s->nesting == NESTING_MAX)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: the schema is nested deeper than %d levels", s->path, NESTING_MAX);
    s->nesting++;
    md_status status = compile_object_form(s, schema, err);
    s->nesting--;
    return status;
}

md_status md_schema_emit(md_grammar *grammar, const json_t *schema, const char *path, md_error *err) {
    md_json_parts parts;
    uint32_t over;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, 0, 0, &over, err));
    MD_TRY(md_json_parts_emit(grammar, MD_TEXT_JSON, &parts, err));
    grammar->code[over].a = grammar->size;
    if (!schema) return md_json_call(grammar, parts.object, err);
    md_schema *s = malloc(sizeof *s);
    if (!s) return md_fail(err, MD_E_MEMORY, "%s: out of memory", path);
    md_schema_init(s, grammar, &parts, schema, path);
    md_status status = md_schema_compile(s, schema, err);
    if (status == MD_OK) status = md_schema_finish(s, err);
    free(s);
    return status;
}
