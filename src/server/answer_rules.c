#include "server/answer_rules.h"

#include <string.h>

#include "base/json.h"
#include "server/choice.h"
#include "server/fields.h"
#include "server/free_text.h"
#include "server/schema.h"
#include "server/tool_grammar.h"

// What response_format asks for.
typedef struct asked_format {
    bool json;            // false: any text
    const json_t *schema; // borrowed; NULL: any object
    const char *path;     // what to call it in messages
} asked_format;

static md_status find_schema(const json_t *given, const char *type, asked_format *out, md_error *err) {
    out->json = true;
    if (strcmp(type, "json_object") == 0) {
        out->path = "response_format.schema";
        out->schema = md_field(given, "schema"); // an extension that some clients use
        return MD_OK;
    }
    out->path = "response_format.json_schema.schema";
    const json_t *holder = md_field(given, "json_schema");
    if (!json_is_object(holder))
        return md_fail(err, MD_E_USAGE, "response_format.json_schema: found %s, expected an object",
                       md_json_type_name(holder));
    if (!json_is_string(json_object_get(holder, "name")))
        return md_fail(err, MD_E_USAGE, "response_format.json_schema.name: found %s, expected a string",
                       md_json_type_name(json_object_get(holder, "name")));
    out->schema = md_field(holder, "schema");
    if (!out->schema) return md_fail(err, MD_E_USAGE, "%s: found nothing, expected a schema", out->path);
    return MD_OK;
}

static md_status read_format(const json_t *body, asked_format *out, md_error *err) {
    const json_t *given = NULL;
    *out = (asked_format){0};
    MD_TRY(md_field_object(body, "response_format", &given, err));
    if (!given) return MD_OK;
    const char *type = json_string_value(json_object_get(given, "type"));
    if (type && strcmp(type, "text") == 0) return MD_OK;
    if (!type || (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0))
        return md_fail(err, MD_E_USAGE, "response_format.type: found %.32s, expected text, json_object or json_schema",
                       type ? type : md_json_type_name(json_object_get(given, "type")));
    return find_schema(given, type, out, err);
}

// ---- the grammar -----------------------------------------------------------------------------------------------

static md_status emit_calls(md_grammar *grammar, const md_call_rules *rules, md_error *err) {
    md_json_parts parts;
    uint32_t over;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, 0, 0, &over, err));
    MD_TRY(md_json_parts_emit(grammar, md_call_text_form(rules->style), &parts, err));
    grammar->code[over].a = grammar->size;
    return md_calls_emit(grammar, &parts, rules, err);
}

// Models part their reasoning from the answer by up to two line breaks.
static md_status emit_leading_space(md_grammar *grammar, md_error *err) {
    for (int i = 0; i < 2; i++) {
        MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, grammar->size + 2, NULL, err));
        MD_TRY(md_grammar_emit_bytes(grammar, "\n", 1, err));
    }
    return MD_OK;
}

// Reasoning from its opening mark on, or none.
static md_status emit_reasoning(md_grammar *grammar, md_error *err) {
    uint32_t split;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &split, err));
    MD_TRY(md_grammar_emit_bytes(grammar, "<think>", 7, err));
    MD_TRY(md_free_text_emit(grammar, "</think>", NULL, err));
    MD_TRY(emit_leading_space(grammar, err));
    grammar->code[split].b = grammar->size;
    return MD_OK;
}

static md_status emit_answer(md_grammar *grammar, const asked_format *format, const md_call_rules *calls,
                             md_thinking thinking, md_error *err) {
    md_choice choice = MD_CHOICE;
    if (thinking == MD_THINKING_OPEN) MD_TRY(emit_leading_space(grammar, err));
    if (thinking == MD_THINKING_MAY && !(calls && calls->free)) MD_TRY(emit_reasoning(grammar, err));
    if (format) {
        MD_TRY(md_choice_begin(grammar, &choice, calls != NULL, err));
        MD_TRY(md_schema_emit(grammar, format->schema, format->path, err));
        MD_TRY(md_choice_join(grammar, &choice, err));
    }
    if (calls) {
        MD_TRY(md_choice_begin(grammar, &choice, false, err));
        MD_TRY(emit_calls(grammar, calls, err));
    }
    md_choice_end(grammar, &choice);
    return md_grammar_emit(grammar, MD_GRAMMAR_MATCH, 0, 0, NULL, err);
}

static bool any_strict(const json_t *tools) {
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (json_is_true(json_object_get(json_object_get(json_array_get(tools, i), "function"), "strict"))) return true;
    return false;
}

md_status md_answer_rules_read(const json_t *body, const md_served *served, const json_t *tools,
                               const md_tool_choice *choice, md_thinking thinking, md_job *job, md_error *err) {
    asked_format asked;
    MD_TRY(read_format(body, &asked, err));
    bool must = choice->need == MD_CALL_MUST, may = choice->need == MD_CALL_MAY;
    bool strict = may && !asked.json && any_strict(tools) &&
                  (served->toolcall_style == MD_TOOLCALL_XML || served->toolcall_style == MD_TOOLCALL_HERMES);
    if (!must && !asked.json && !strict) return MD_OK;
    md_call_rules calls = {.style = served->toolcall_style,
                           .tools = tools,
                           .only = choice->only,
                           .several = choice->several && !choice->only,
                           .free = strict};
    bool can = must || (may && calls.style != MD_TOOLCALL_NONE);
    md_grammar grammar = {0};
    md_error problem;
    md_status status = emit_answer(&grammar, asked.json && !must ? &asked : NULL, can ? &calls : NULL, thinking, err);
    if (status != MD_OK) {
        md_grammar_free(&grammar);
        return status;
    }
    status = md_constraint_new(&grammar, &served->order, served->info.eos, served->info.eos_count,
                               thinking == MD_THINKING_OPEN ? "</think>" : NULL, &job->constraint, &problem);
    if (status != MD_OK)
        return md_fail(err, status, "%s: %s", asked.json && !must ? "response_format" : "tools", problem.message);
    job->params.sampling.adjust = md_constraint_adjust;
    job->params.sampling.adjust_user = job->constraint;
    return MD_OK;
}
