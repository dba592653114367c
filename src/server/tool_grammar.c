#include "server/tool_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "chat/param_types.h"
#include "server/choice.h"
#include "server/free_text.h"
#include "server/schema_types.h"

typedef struct emitter {
    md_grammar *grammar;
    const md_json_parts *parts;
    const md_call_rules *rules;
    bool loose; // arguments are not held to the function's parameters
    md_schema schema;
} emitter;

static md_status put(emitter *e, const char *text, md_error *err) {
    return md_grammar_emit_bytes(e->grammar, text, strlen(text), err);
}

md_text_form md_call_text_form(md_toolcall_style style) {
    return style == MD_TOOLCALL_XML ? MD_TEXT_JSON_LT : MD_TEXT_JSON;
}

// ---- XML -------------------------------------------------------------------------------------------------------

// A character that is none of the two, then on at `back`. In CDATA "<" is a character like any other.
static md_status emit_other(emitter *e, uint32_t not1, uint32_t not2, uint32_t back, md_error *err) {
    md_charset set = {.count = 0};
    md_charset_add(&set, not1, not1);
    md_charset_add(&set, not2, not2);
    md_charset_negate(&set);
    md_choice choice = MD_CHOICE;
    MD_TRY(md_choice_begin(e->grammar, &choice, true, err));
    MD_TRY(md_charset_emit(e->grammar, &set, MD_TEXT_RAW, err));
    MD_TRY(md_choice_join(e->grammar, &choice, err));
    MD_TRY(md_choice_begin(e->grammar, &choice, false, err));
    MD_TRY(put(e, "<", err));
    md_choice_end(e->grammar, &choice);
    return md_grammar_emit(e->grammar, MD_GRAMMAR_JUMP, back, 0, NULL, err);
}

// "<![CDATA[", any text without "]]>", and "]]>": three states, by how many brackets came last.
static md_status emit_cdata(emitter *e, md_error *err) {
    md_grammar *g = e->grammar;
    uint32_t split, more;
    MD_TRY(put(e, "<![CDATA[", err));
    uint32_t none = g->size;
    MD_TRY(md_grammar_emit(g, MD_GRAMMAR_SPLIT, g->size + 1, 0, &split, err));
    MD_TRY(emit_other(e, ']', ']', none, err));
    g->code[split].b = g->size;
    MD_TRY(put(e, "]", err));
    MD_TRY(md_grammar_emit(g, MD_GRAMMAR_SPLIT, g->size + 1, 0, &split, err));
    MD_TRY(emit_other(e, ']', ']', none, err));
    g->code[split].b = g->size;
    MD_TRY(put(e, "]", err));
    uint32_t two = g->size;
    MD_TRY(md_grammar_emit(g, MD_GRAMMAR_SPLIT, g->size + 1, 0, &split, err));
    MD_TRY(emit_other(e, ']', '>', none, err));
    g->code[split].b = g->size;
    MD_TRY(md_grammar_emit(g, MD_GRAMMAR_SPLIT, g->size + 1, g->size + 3, &more, err));
    MD_TRY(put(e, "]", err));
    MD_TRY(md_grammar_emit(g, MD_GRAMMAR_JUMP, two, 0, NULL, err));
    return put(e, ">", err);
}

// Text that the call's reader takes as a string: plain, or in CDATA.
static md_status emit_text(emitter *e, md_error *err) {
    md_choice choice = MD_CHOICE;
    MD_TRY(md_choice_begin(e->grammar, &choice, true, err));
    MD_TRY(md_json_characters(e->grammar, e->parts->raw_character, 0, MD_GRAMMAR_UNBOUNDED, err));
    MD_TRY(md_choice_join(e->grammar, &choice, err));
    MD_TRY(md_choice_begin(e->grammar, &choice, false, err));
    MD_TRY(emit_cdata(e, err));
    md_choice_end(e->grammar, &choice);
    return MD_OK;
}

static bool is_any_string(const json_t *schema) {
    static const char *const telling[] = {"enum", "const", "pattern", "format", "minLength", "maxLength"};
    for (size_t i = 0; i < sizeof telling / sizeof telling[0]; i++)
        if (json_object_get(schema, telling[i])) return false;
    return true;
}

static md_status emit_param(emitter *e, const char *key, const json_t *schema, md_error *err) {
    unsigned types = md_param_types(e->schema.root, schema);
    bool any = types == 0 && json_object_size(schema) == 0;
    bool text = types == MD_PARAM_STRING && json_object_get(schema, "type") && is_any_string(schema);
    if (e->loose || any || text) return emit_text(e, err);
    e->schema.raw = types == 0 || types & MD_PARAM_STRING;
    // Beside strings, of which text can't be told apart, only null stands for itself.
    e->schema.raw_types = types & MD_PARAM_STRING ? MD_TYPE_STRING | MD_TYPE_NULL : 0;
    md_status status = md_schema_compile_at(&e->schema, key, schema, err);
    e->schema.raw = false;
    e->schema.raw_types = 0;
    return status;
}

static md_status emit_element(emitter *e, const char *key, const json_t *schema, bool required, md_error *err) {
    uint32_t split = UINT32_MAX;
    if (strpbrk(key, "\"<>&\n\r"))
        return md_fail(err, MD_E_UNSUPPORTED, "%s: a call's XML has no form for the parameter \"%.64s\"",
                       e->schema.path, key);
    if (!required) MD_TRY(md_grammar_emit(e->grammar, MD_GRAMMAR_SPLIT, e->grammar->size + 1, 0, &split, err));
    MD_TRY(put(e, "<param name=\"", err));
    MD_TRY(put(e, key, err));
    MD_TRY(put(e, "\">", err));
    MD_TRY(emit_param(e, key, schema, err));
    MD_TRY(put(e, "</param>", err));
    if (!required) e->grammar->code[split].b = e->grammar->size;
    return MD_OK;
}

static md_status emit_xml_call(emitter *e, const char *name, const json_t *parameters, md_error *err) {
    const char *key;
    json_t *schema, *required = md_schema_required(parameters);
    md_status status;
    MD_TRY_GOTO(put(e, name, err));
    MD_TRY_GOTO(put(e, "\">", err));
    json_object_foreach(json_object_get(parameters, "properties"), key, schema) {
        MD_TRY_GOTO(emit_element(e, key, schema, json_object_get(required, key) != NULL, err));
    }
    MD_TRY_GOTO(put(e, "</function>", err));
fail:
    json_decref(required);
    return status;
}

// ---- JSON ------------------------------------------------------------------------------------------------------

static md_status emit_arguments(emitter *e, const json_t *parameters, md_error *err) {
    if (!parameters) return put(e, "{}", err);
    if (e->loose || json_object_size(parameters) == 0) return md_json_call(e->grammar, e->parts->object, err);
    return md_schema_compile(&e->schema, parameters, err);
}

static md_status emit_json_call(emitter *e, const char *name, const json_t *parameters, md_error *err) {
    bool hermes = e->rules->style == MD_TOOLCALL_HERMES;
    MD_TRY(put(e, hermes ? "\n{\"name\": \"" : "{\"name\": \"", err));
    MD_TRY(put(e, name, err));
    MD_TRY(put(e, hermes ? "\", \"arguments\": " : "\", \"parameters\": ", err));
    MD_TRY(emit_arguments(e, parameters, err));
    return put(e, hermes ? "}\n</tool_call>" : "}", err);
}

// ---- calls -----------------------------------------------------------------------------------------------------

static md_status try_call(emitter *e, size_t index, const json_t *function, bool loose, md_error *err) {
    const json_t *parameters = json_object_get(function, "parameters");
    const char *name = json_string_value(json_object_get(function, "name"));
    char path[64];
    snprintf(path, sizeof path, "tools[%zu].function.parameters", index);
    if (!json_is_object(parameters)) parameters = NULL;
    md_schema_init(&e->schema, e->grammar, e->parts, parameters, path);
    e->loose = loose;
    MD_TRY(e->rules->style == MD_TOOLCALL_XML ? emit_xml_call(e, name, parameters, err)
                                              : emit_json_call(e, name, parameters, err));
    return md_schema_finish(&e->schema, err);
}

// A function that is not strict is called all the same where its parameters can't be expressed.
static md_status emit_call(emitter *e, size_t index, const json_t *function, md_error *err) {
    uint32_t size = e->grammar->size;
    md_error problem;
    md_status status = try_call(e, index, function, false, &problem);
    if (status == MD_OK) return status;
    if (status != MD_E_UNSUPPORTED || json_is_true(json_object_get(function, "strict")))
        return md_fail(err, status, "%s", problem.message);
    e->grammar->size = size;
    return try_call(e, index, function, true, err);
}

// What all calls of a style begin with.
static const char *mark_of(md_toolcall_style style) {
    return style == MD_TOOLCALL_XML ? "<function name=\"" : style == MD_TOOLCALL_HERMES ? "<tool_call>" : "";
}

static md_status emit_calls(emitter *e, md_error *err) {
    md_grammar *g = e->grammar;
    uint32_t first = g->size, again, end = UINT32_MAX;
    const char *mark = mark_of(e->rules->style);
    md_choice choice = MD_CHOICE;
    MD_TRY(e->rules->free ? md_free_text_emit(g, mark, &end, err) : put(e, mark, err));
    for (size_t i = 0; i < json_array_size(e->rules->tools); i++) {
        const json_t *function = json_object_get(json_array_get(e->rules->tools, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (e->rules->only && strcmp(e->rules->only, name) != 0) continue;
        MD_TRY(md_choice_begin(g, &choice, true, err));
        MD_TRY(emit_call(e, i, function, err));
        MD_TRY(md_choice_join(g, &choice, err));
    }
    MD_TRY(md_choice_begin(g, &choice, false, err));
    MD_TRY(md_grammar_emit(g, MD_GRAMMAR_RANGE, 1, 0, NULL, err)); // no other function
    md_choice_end(g, &choice);
    if (e->rules->free) { // after a call text goes on, where another one may come
        if (e->rules->several) MD_TRY(md_grammar_emit(g, MD_GRAMMAR_JUMP, first, 0, NULL, err));
        md_free_text_end(g, end);
        return MD_OK;
    }
    if (!e->rules->several) return MD_OK;
    // The next one, after a line break, or the end.
    MD_TRY(md_grammar_emit(g, MD_GRAMMAR_SPLIT, g->size + 1, 0, &again, err));
    MD_TRY(put(e, e->rules->style == MD_TOOLCALL_LLAMA3 ? "; " : "\n", err));
    MD_TRY(md_grammar_emit(g, MD_GRAMMAR_JUMP, first, 0, NULL, err));
    g->code[again].b = g->size;
    return MD_OK;
}

md_status md_calls_emit(md_grammar *grammar, const md_json_parts *parts, const md_call_rules *rules, md_error *err) {
    if (rules->style == MD_TOOLCALL_NONE)
        return md_fail(err, MD_E_UNSUPPORTED, "tool_choice: how this model writes calls is not known here");
    emitter *e = calloc(1, sizeof *e);
    if (!e) return md_fail(err, MD_E_MEMORY, "tools: out of memory");
    e->grammar = grammar;
    e->parts = parts;
    e->rules = rules;
    md_status status = emit_calls(e, err);
    free(e);
    return status;
}
