#include "server/chat_request.h"

#include <string.h>

#include "base/json.h"
#include "chat/messages.h"
#include "chat/reasoning.h"
#include "server/answer_rules.h"
#include "server/fields.h"

// ---- what the template is given --------------------------------------------------------------------------------

// chat_template_kwargs, with enable_thinking and reasoning_effort put into it. *out: a new reference.
static md_status read_variables(const json_t *body, json_t **out, md_error *err) {
    const json_t *given = NULL;
    const char *effort = NULL;
    bool thinking = false;
    MD_TRY(md_field_object(body, "chat_template_kwargs", &given, err));
    MD_TRY(md_field_bool(body, "enable_thinking", &thinking, err));
    MD_TRY(md_field_string(body, "reasoning_effort", &effort, err));
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    size_t level = 0, levels = sizeof efforts / sizeof efforts[0];
    while (effort && level < levels && strcmp(effort, efforts[level]) != 0) level++;
    if (level == levels)
        return md_fail(err, MD_E_USAGE,
                       "reasoning_effort: found \"%.32s\", expected none, minimal, low, medium, high "
                       "or xhigh",
                       effort);
    *out = given ? json_copy((json_t *)given) : json_object();
    if (!*out) return md_fail(err, MD_E_MEMORY, "chat_template_kwargs: out of memory");
    if (effort && !json_object_get(*out, "reasoning_effort"))
        json_object_set_new(*out, "reasoning_effort", json_string(effort));
    bool set = md_field(body, "enable_thinking") != NULL;
    if (!json_object_get(*out, "enable_thinking")) {
        if (set)
            json_object_set_new(*out, "enable_thinking", json_boolean(thinking));
        else if (effort)
            json_object_set_new(*out, "enable_thinking", json_boolean(strcmp(effort, "none") != 0));
    }
    return MD_OK;
}

// {"type": "function", "function": {"name"}}: the function that is to be called.
static md_status read_named(const json_t *choice, const json_t *tools, md_tool_choice *out, md_error *err) {
    const char *type = json_string_value(json_object_get(choice, "type"));
    if (!type || strcmp(type, "function") != 0)
        return md_fail(err, MD_E_USAGE, "tool_choice.type: found %.32s, expected function",
                       type ? type : md_json_type_name(json_object_get(choice, "type")));
    const json_t *name = json_object_get(json_object_get(choice, "function"), "name");
    if (!json_is_string(name))
        return md_fail(err, MD_E_USAGE, "tool_choice.function.name: found %s, expected a string",
                       md_json_type_name(name));
    if (!md_chat_tool_find(tools, json_string_value(name), json_string_length(name)))
        return md_fail(err, MD_E_USAGE, "tool_choice.function.name: \"%.64s\" is none of the tools",
                       json_string_value(name));
    *out = (md_tool_choice){.need = MD_CALL_MUST, .only = json_string_value(name)};
    return MD_OK;
}

// tools: those that the request has; NULL: none.
static md_status read_tool_choice(const json_t *body, const json_t *tools, md_tool_choice *out, md_error *err) {
    const json_t *choice = md_field(body, "tool_choice");
    bool several = true;
    MD_TRY(md_field_bool(body, "parallel_tool_calls", &several, err));
    *out = (md_tool_choice){.need = tools ? MD_CALL_MAY : MD_CALL_NEVER, .several = several};
    if (!choice) return MD_OK;
    const char *word = json_string_value(choice);
    bool none = word && strcmp(word, "none") == 0, must = word && strcmp(word, "required") == 0;
    if (!none && !must && !json_is_object(choice) && !(word && strcmp(word, "auto") == 0))
        return md_fail(err, MD_E_USAGE,
                       "tool_choice: found %.32s, expected \"auto\", \"none\", \"required\" or a function",
                       word ? word : md_json_type_name(choice));
    if ((must || json_is_object(choice)) && !tools)
        return md_fail(err, MD_E_USAGE, "tool_choice: only allowed with tools");
    if (json_is_object(choice)) return read_named(choice, tools, out, err);
    if (none) out->need = MD_CALL_NEVER;
    if (must) out->need = MD_CALL_MUST;
    return MD_OK;
}

// *tools: those that may be called, NULL: none; a new reference.
static md_status read_tools(const json_t *body, const md_served *served, json_t **tools, md_tool_choice *choice,
                            md_error *err) {
    *tools = NULL;
    MD_TRY(md_field_refuse(body, "functions", NULL, "not supported; use tools", err));
    MD_TRY(md_field_refuse(body, "function_call", NULL, "not supported; use tool_choice", err));
    const json_t *given = md_field(body, "tools");
    json_t *checked = NULL;
    if (given) MD_TRY(md_chat_tools_check(given, &checked, err));
    md_status status = read_tool_choice(body, checked, choice, err);
    bool never = choice->need == MD_CALL_NEVER;
    if (status == MD_OK && !never && !md_chat_template_mentions(served->format.chat_template, "tools"))
        status = md_fail(err, MD_E_UNSUPPORTED, "tools: this model's chat template knows no tools");
    if (status != MD_OK || never) {
        json_decref(checked);
        return status;
    }
    *tools = checked;
    return MD_OK;
}

// What rendering finds out beside the prompt.
typedef struct rendered {
    json_t *tools; // those that may be called; NULL: none; owned
    md_tool_choice choice;
    bool thinking_off; // as the client asked the template
} rendered;

static md_status render(const json_t *body, const md_served *served, rendered *found, md_chat_prompt *out,
                        md_error *err) {
    json_t *used = NULL, *variables = NULL;
    bool add = true;
    md_status status;
    *out = (md_chat_prompt){0};
    *found = (rendered){0};
    if (!served->format.chat_template)
        return md_fail(err, MD_E_UNSUPPORTED,
                       "messages: this model has no chat template; use /v1/completions, or start "
                       "the server with --chat-template-file");
    const json_t *given = md_field(body, "messages");
    if (!given) return md_fail(err, MD_E_USAGE, "messages: found nothing, expected an array of messages");
    MD_TRY_GOTO(read_tools(body, served, &used, &found->choice, err));
    MD_TRY_GOTO(read_variables(body, &variables, err));
    MD_TRY_GOTO(md_field_bool(body, "add_generation_prompt", &add, err));
    status = md_chat_format_render(&served->format, given, used, variables, add, out, err);
    if (status == MD_E_CONTEXT) // the conversation's fault, and no matter of the model's context
        status = md_fail(err, MD_E_USAGE, "messages: rendering them takes too much work or memory");
    if (status == MD_OK) found->tools = json_incref(used);
    found->thinking_off = json_is_false(json_object_get(variables, "enable_thinking"));
fail:
    json_decref(used);
    json_decref(variables);
    return status;
}

md_status md_chat_request_render(const json_t *body, const md_served *served, md_chat_prompt *out, md_error *err) {
    rendered found;
    MD_TRY(render(body, served, &found, out, err));
    json_decref(found.tools);
    return MD_OK;
}

// ---- the whole request -----------------------------------------------------------------------------------------

static md_status read_logprobs(const json_t *body, md_job *job, md_chat_request *out, md_error *err) {
    int64_t top = 0;
    MD_TRY(md_field_bool(body, "logprobs", &out->logprobs, err));
    MD_TRY(md_field_int(body, "top_logprobs", 0, MD_TOP_LOGPROBS_ALLOWED, &top, err));
    if (top && !out->logprobs) return md_fail(err, MD_E_USAGE, "top_logprobs: only allowed with \"logprobs\": true");
    job->params.logprobs = out->logprobs;
    job->params.top_logprobs = (uint32_t)top;
    return MD_OK;
}

static md_status encode_prompt(const md_served *served, const md_chat_prompt *prompt, md_job *job, md_error *err) {
    MD_TRY(md_encode_spans(served->tokenizer, prompt->spans, prompt->span_count, false, &job->prompt, &job->prompt_size,
                           err));
    return job->prompt_size ? MD_OK : md_fail(err, MD_E_USAGE, "messages: the prompt made of them is empty");
}

static md_thinking thinking_of(const md_served *served, const md_chat_request *request, const rendered *found) {
    if (request->opened_reasoning) return MD_THINKING_OPEN;
    return served->thinks && !found->thinking_off ? MD_THINKING_MAY : MD_THINKING_NEVER;
}

md_status md_chat_request_read(const json_t *body, const md_served *served, md_job *job, md_chat_request *out,
                               md_error *err) {
    *out = (md_chat_request){0};
    rendered found;
    md_chat_prompt prompt = {0};
    md_status status;
    MD_TRY_GOTO(md_params_check_model(body, served, err));
    MD_TRY_GOTO(md_params_read(body, served, (md_length_rule){.least = 1}, job, &out->params, err));
    MD_TRY_GOTO(read_logprobs(body, job, out, err));
    job->params.keep_special = served->mark_count > 0; // the marks are read from the text
    MD_TRY_GOTO(render(body, served, &found, &prompt, err));
    out->tools = found.tools;
    out->parallel_calls = found.choice.several;
    out->opened_reasoning = md_reasoning_prompt_opens(prompt.text, prompt.size);
    MD_TRY_GOTO(
        md_answer_rules_read(body, served, out->tools, &found.choice, thinking_of(served, out, &found), job, err));
    MD_TRY_GOTO(encode_prompt(served, &prompt, job, err));
    MD_TRY_GOTO(md_params_fit_context(served, &out->params, job, err));
fail:
    md_chat_prompt_free(&prompt);
    return status; // on failure the caller frees *out as on success
}

void md_chat_request_free(md_chat_request *request) {
    json_decref(request->tools);
    *request = (md_chat_request){0};
}
