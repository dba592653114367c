// Objects and arrays of a schema.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/schema_types.h"

// What stands inside of an object or an array is JSON.
static md_status compile_inside(md_schema *s, const char *part, const json_t *schema, md_error *err) {
    bool raw = s->raw;
    s->raw = false;
    md_status status = md_schema_compile_at(s, part, schema, err);
    s->raw = raw;
    return status;
}

// ---- objects ---------------------------------------------------------------------------------------------------

static md_status compile_member(md_schema *s, const char *key, const json_t *schema, uint32_t *at, md_error *err) {
    uint32_t over;
    MD_TRY(md_grammar_emit(s->grammar, MD_GRAMMAR_JUMP, 0, 0, &over, err));
    *at = s->grammar->size;
    if (key) {
        MD_TRY(md_grammar_emit_bytes(s->grammar, "\"", 1, err));
        MD_TRY(md_text_emit(s->grammar, key, strlen(key), s->parts->form, err));
        MD_TRY(md_grammar_emit_bytes(s->grammar, "\"", 1, err));
    } else {
        MD_TRY(md_json_call(s->grammar, s->parts->string, err));
    }
    MD_TRY(md_grammar_emit_bytes(s->grammar, ":", 1, err));
    MD_TRY(md_json_call(s->grammar, s->parts->space, err));
    MD_TRY(compile_inside(s, key ? key : "additionalProperties", schema, err));
    MD_TRY(md_grammar_emit(s->grammar, MD_GRAMMAR_RETURN, 0, 0, NULL, err));
    s->grammar->code[over].a = s->grammar->size;
    return MD_OK;
}

// All members that are written: the declared ones in their order, then those that are only required. A new reference.
static md_status collect_members(md_schema *s, const json_t *schema, json_t **out, md_error *err) {
    const json_t *properties = json_object_get(schema, "properties"), *required = json_object_get(schema, "required");
    const json_t *additional = json_object_get(schema, "additionalProperties");
    if (properties && !json_is_object(properties))
        return md_fail(err, MD_E_USAGE, "%s.properties: found %s, expected an object", s->path,
                       md_json_type_name(properties));
    if (required && !json_is_array(required))
        return md_fail(err, MD_E_USAGE, "%s.required: found %s, expected an array", s->path,
                       md_json_type_name(required));
    json_t *members = properties ? json_copy((json_t *)properties) : json_object();
    if (!members) return md_fail(err, MD_E_MEMORY, "%s: out of memory", s->path);
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *key = json_string_value(json_array_get(required, i));
        if (key && json_object_get(members, key)) continue;
        if (!key || json_is_false(additional)) {
            json_decref(members);
            return md_fail(err, MD_E_USAGE, "%s.required[%zu]: expected the name of one of the properties", s->path, i);
        }
        json_object_set_new(members, key, additional ? json_incref((json_t *)additional) : json_true());
    }
    *out = members;
    return MD_OK;
}

// Members in a fixed order, those that are not required each written or left out. Two rows of code, one before the
// first member was written and one after it, which begins with commas.
static md_status compile_members(md_schema *s, const json_t *members, const json_t *required, md_error *err) {
    md_grammar *grammar = s->grammar;
    size_t n = json_object_size(members), i = 0;
    uint32_t *places = malloc((3 * n + 2) * sizeof *places);
    if (!places) return md_fail(err, MD_E_MEMORY, "%s: out of memory", s->path);
    uint32_t *reads = places, *jumps = places + n, *after = places + 2 * n; // after: [n + 1], in the second row
    md_status status = MD_OK;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)members, key, value) {
        MD_TRY_GOTO(compile_member(s, key, value, &reads[i], err));
        i++;
    }
    MD_TRY_GOTO(md_grammar_emit_bytes(grammar, "{", 1, err));
    MD_TRY_GOTO(md_json_call(grammar, s->parts->space, err));
    i = 0;
    bool all_optional = true;
    size_t first_row = 0; // members that the first row has
    json_object_foreach((json_t *)members, key, value) {
        bool must = json_object_get(required, key) != NULL;
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
        if (!json_object_get(required, key))
            MD_TRY_GOTO(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, grammar->size + 4, NULL, err));
        MD_TRY_GOTO(md_grammar_emit_bytes(grammar, ",", 1, err));
        MD_TRY_GOTO(md_json_call(grammar, s->parts->space, err));
        MD_TRY_GOTO(md_json_call(grammar, reads[i], err));
        i++;
    }
    after[n] = grammar->size;
    MD_TRY_GOTO(md_json_call(grammar, s->parts->space, err));
    MD_TRY_GOTO(md_grammar_emit_bytes(grammar, "}", 1, err));
    for (size_t k = 0; k < first_row; k++) grammar->code[jumps[k]].a = after[k + 1];
    if (over != UINT32_MAX) grammar->code[over].a = grammar->size;
fail:
    free(places);
    return status;
}

md_status md_schema_object(md_schema *s, const json_t *schema, md_error *err) {
    const json_t *additional = json_object_get(schema, "additionalProperties");
    if (additional && !json_is_boolean(additional) && !json_is_object(additional))
        return md_fail(err, MD_E_USAGE, "%s.additionalProperties: found %s, expected a boolean or a schema", s->path,
                       md_json_type_name(additional));
    json_t *members = NULL;
    MD_TRY(collect_members(s, schema, &members, err));
    md_status status;
    if (json_object_size(members) || json_is_false(additional)) {
        json_t *required = md_schema_required(schema);
        status = compile_members(s, members, required, err);
        json_decref(required);
    } else if (json_is_object(additional)) {
        uint32_t member;
        status = compile_member(s, NULL, additional, &member, err);
        if (status == MD_OK) status = md_json_map(s->grammar, s->parts, member, err);
    } else {
        status = md_json_call(s->grammar, s->parts->object, err);
    }
    json_decref(members);
    return status;
}

// ---- arrays ----------------------------------------------------------------------------------------------------

// "prefixItems" with as many items as there must be and may be.
static md_status compile_tuple(md_schema *s, const json_t *list, uint32_t min, uint32_t max, md_error *err) {
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || min != n || max != n)
        return md_fail(err, MD_E_UNSUPPORTED,
                       "%s.prefixItems: can't constrain an answer unless minItems and maxItems are its length",
                       s->path);
    MD_TRY(md_grammar_emit_bytes(s->grammar, "[", 1, err));
    for (size_t i = 0; i < n; i++) {
        char part[32];
        snprintf(part, sizeof part, "prefixItems[%zu]", i);
        MD_TRY(md_json_call(s->grammar, s->parts->space, err));
        MD_TRY(compile_inside(s, part, json_array_get(list, i), err));
        if (i + 1 < n) MD_TRY(md_grammar_emit_bytes(s->grammar, ",", 1, err));
    }
    MD_TRY(md_json_call(s->grammar, s->parts->space, err));
    return md_grammar_emit_bytes(s->grammar, "]", 1, err);
}

md_status md_schema_array(md_schema *s, const json_t *schema, md_error *err) {
    uint32_t min, max, item = s->parts->value, over;
    MD_TRY(md_schema_bounds(s, schema, "minItems", "maxItems", &min, &max, err));
    const json_t *items = json_object_get(schema, "items"), *tuple = json_object_get(schema, "prefixItems");
    if (tuple) return compile_tuple(s, tuple, min, max, err);
    if (items) {
        MD_TRY(md_grammar_emit(s->grammar, MD_GRAMMAR_JUMP, 0, 0, &over, err));
        item = s->grammar->size;
        MD_TRY(compile_inside(s, "items", items, err));
        MD_TRY(md_grammar_emit(s->grammar, MD_GRAMMAR_RETURN, 0, 0, NULL, err));
        s->grammar->code[over].a = s->grammar->size;
    }
    return md_json_array(s->grammar, s->parts, item, min, max, err);
}
