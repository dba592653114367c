#include "server/chat_answer.h"

#include <stdlib.h>
#include <time.h>

#include "chat/reasoning.h"
#include "server/logprobs.h"

enum { TEXT_MAX = 256 << 20, CALLS_MAX = 128 };

// A tool call of a whole answer.
typedef struct call {
    char id[40];
    md_buf name, arguments;
    bool valid;
} call;

struct md_chat_answer {
    const md_served *served;
    char id[40];
    int64_t created;
    bool stream, include_usage, parallel_calls;
    json_t *tools;
    bool splits; // the answer may begin with reasoning
    md_reasoning reasoning;
    md_toolcall_parser *parser; // NULL: no tools
    json_t *logprobs;           // array: those not written yet (stream) or all; NULL: not asked for
    size_t valid_calls;
    // The stream's buffer while a delivery is written.
    md_buf *out;
    // The whole answer.
    md_buf content, thoughts;
    call *calls; // [call_count]; owned
    size_t call_count;
    md_job_end end;
};

// ---- chunks ----------------------------------------------------------------------------------------------------

static md_status no_memory(md_error *err) { return md_fail(err, MD_E_MEMORY, "answer: out of memory"); }

// {"content": [...]} of the tokens not written yet, or null.
static json_t *take_logprobs(md_chat_answer *a) {
    if (!a->logprobs || json_array_size(a->logprobs) == 0) return json_null();
    json_t *taken = a->logprobs;
    a->logprobs = json_array();
    return json_pack("{s:o}", "content", taken);
}

// One chunk with `delta` (takes the reference). finish NULL: not the last.
static md_status write_chunk(md_chat_answer *a, json_t *delta, const char *finish, md_error *err) {
    json_t *choice = json_pack("{s:i,s:o,s:o,s:o}", "index", 0, "delta", delta, "logprobs", take_logprobs(a),
                               "finish_reason", finish ? json_string(finish) : json_null());
    json_t *chunk = json_pack("{s:s,s:s,s:I,s:s,s:[o]}", "id", a->id, "object", "chat.completion.chunk", "created",
                              (json_int_t)a->created, "model", a->served->id, "choices", choice);
    if (chunk && a->include_usage) json_object_set_new(chunk, "usage", json_null());
    return md_event(a->out, chunk, err);
}

static md_status put_text(md_chat_answer *a, const char *key, md_buf *whole, const char *text, size_t n,
                          md_error *err) {
    if (!a->stream) return md_buf_append(whole, text, n) == MD_OK ? MD_OK : no_memory(err);
    json_t *delta = json_object();
    json_object_set_new(delta, key, md_text_json(text, n));
    return write_chunk(a, delta, NULL, err);
}

// ---- the parts of the answer -----------------------------------------------------------------------------------

static md_status begin_call(md_chat_answer *a, const md_toolcall_event *event) {
    char id[40];
    md_answer_id("call", id);
    if (a->stream) {
        json_t *function = json_pack("{s:o,s:s}", "name", md_text_json(event->text, event->size), "arguments", "");
        json_t *item = json_pack("{s:I,s:s,s:s,s:o}", "index", (json_int_t)event->index, "id", id, "type", "function",
                                 "function", function);
        return write_chunk(a, json_pack("{s:[o]}", "tool_calls", item), NULL, NULL);
    }
    call *calls = realloc(a->calls, (event->index + 1) * sizeof *calls);
    if (!calls) return MD_E_MEMORY;
    a->calls = calls;
    call *c = &calls[a->call_count++];
    *c = (call){0};
    snprintf(c->id, sizeof c->id, "%s", id);
    md_buf_init(&c->name, TEXT_MAX);
    md_buf_init(&c->arguments, TEXT_MAX);
    return md_buf_append(&c->name, event->text, event->size);
}

static md_status add_arguments(md_chat_answer *a, const md_toolcall_event *event) {
    if (!a->stream) return md_buf_append(&a->calls[event->index].arguments, event->text, event->size);
    json_t *function = json_pack("{s:o}", "arguments", md_text_json(event->text, event->size));
    json_t *item = json_pack("{s:I,s:o}", "index", (json_int_t)event->index, "function", function);
    return write_chunk(a, json_pack("{s:[o]}", "tool_calls", item), NULL, NULL);
}

static md_status on_toolcall(void *user, const md_toolcall_event *event) {
    md_chat_answer *a = user;
    if (event->kind == MD_TOOLCALL_CONTENT) return put_text(a, "content", &a->content, event->text, event->size, NULL);
    if (event->index >= (a->parallel_calls ? CALLS_MAX : 1)) return MD_OK;
    switch (event->kind) {
    case MD_TOOLCALL_BEGIN: return begin_call(a, event);
    case MD_TOOLCALL_ARGS: return add_arguments(a, event);
    default: break;
    }
    a->valid_calls += event->valid;
    if (!a->stream) a->calls[event->index].valid = event->valid;
    return MD_OK;
}

static md_status put_content(md_chat_answer *a, const char *text, size_t n, md_error *err) {
    return a->parser ? md_toolcall_parser_feed(a->parser, text, n, err)
                     : put_text(a, "content", &a->content, text, n, err);
}

static md_status on_part(void *user, bool reasoning, const char *text, size_t n) {
    md_chat_answer *a = user;
    return reasoning ? put_text(a, "reasoning_content", &a->thoughts, text, n, NULL) : put_content(a, text, n, NULL);
}

// ---- the writer ------------------------------------------------------------------------------------------------

static md_status begin(void *self, md_buf *out, md_error *err) {
    md_chat_answer *a = self;
    a->out = out;
    return a->stream ? write_chunk(a, json_pack("{s:s,s:s}", "role", "assistant", "content", ""), NULL, err) : MD_OK;
}

static md_status delivery(void *self, uint32_t job, const md_delivery *d, md_buf *out, md_error *err) {
    (void)job; // a chat request has one
    md_chat_answer *a = self;
    a->out = out;
    for (size_t i = 0; a->logprobs && i < d->token_count; i++)
        if (md_token_is_shown(a->served, &d->tokens[i]) &&
            json_array_append_new(a->logprobs, md_chat_logprob_json(a->served, d, &d->tokens[i])) != 0)
            return no_memory(err);
    if (d->text.size == 0) return MD_OK;
    return a->splits ? md_reasoning_feed(&a->reasoning, d->text.data, d->text.size, err)
                     : put_content(a, d->text.data, d->text.size, err);
}

static const char *finish_reason(const md_chat_answer *a) {
    if (a->valid_calls) return "tool_calls";
    return a->end.finish == MD_FINISH_STOP ? "stop" : "length";
}

static md_status end(void *self, uint32_t job, const md_job_end *job_end, md_buf *out, md_error *err) {
    (void)job;
    md_chat_answer *a = self;
    a->out = out;
    a->end = *job_end;
    if (a->splits) MD_TRY(md_reasoning_finish(&a->reasoning, err));
    if (a->parser) MD_TRY(md_toolcall_parser_finish(a->parser, err));
    return a->stream ? write_chunk(a, json_object(), finish_reason(a), err) : MD_OK;
}

static md_status finish(void *self, md_buf *out, md_error *err) {
    md_chat_answer *a = self;
    if (!a->stream || !a->include_usage) return MD_OK;
    return md_event(out,
                    json_pack("{s:s,s:s,s:I,s:s,s:[],s:o,s:o}", "id", a->id, "object", "chat.completion.chunk",
                              "created", (json_int_t)a->created, "model", a->served->id, "choices", "usage",
                              md_usage_json(&a->end, 1), "timings", md_timings_json(&a->end)),
                    err);
}

static json_t *calls_json(const md_chat_answer *a) {
    json_t *list = json_array();
    for (size_t i = 0; i < a->call_count; i++) {
        const call *c = &a->calls[i];
        if (!c->valid) continue;
        json_t *function = json_pack("{s:o,s:o}", "name", md_text_json(md_buf_str(&c->name), c->name.size), "arguments",
                                     md_text_json(md_buf_str(&c->arguments), c->arguments.size));
        json_array_append_new(list, json_pack("{s:s,s:s,s:o}", "id", c->id, "type", "function", "function", function));
    }
    return list;
}

static json_t *whole(void *self) {
    md_chat_answer *a = self;
    bool calls = a->valid_calls > 0;
    json_t *content =
        calls && a->content.size == 0 ? json_null() : md_text_json(md_buf_str(&a->content), a->content.size);
    json_t *message = json_pack("{s:s,s:o,s:n}", "role", "assistant", "content", content, "refusal");
    if (a->thoughts.size)
        json_object_set_new(message, "reasoning_content", md_text_json(a->thoughts.data, a->thoughts.size));
    if (calls) json_object_set_new(message, "tool_calls", calls_json(a));
    json_t *choice = json_pack("{s:i,s:o,s:o,s:s}", "index", 0, "message", message, "logprobs", take_logprobs(a),
                               "finish_reason", finish_reason(a));
    return json_pack("{s:s,s:s,s:I,s:s,s:[o],s:o,s:o}", "id", a->id, "object", "chat.completion", "created",
                     (json_int_t)a->created, "model", a->served->id, "choices", choice, "usage",
                     md_usage_json(&a->end, 1), "timings", md_timings_json(&a->end));
}

static void release(void *self) {
    md_chat_answer *a = self;
    for (size_t i = 0; i < a->call_count; i++) {
        md_buf_free(&a->calls[i].name);
        md_buf_free(&a->calls[i].arguments);
    }
    free(a->calls);
    md_toolcall_parser_free(a->parser);
    md_reasoning_free(&a->reasoning);
    md_buf_free(&a->content);
    md_buf_free(&a->thoughts);
    json_decref(a->logprobs);
    json_decref(a->tools);
    free(a);
}

const md_answer_writer md_chat_writer = {begin, delivery, end, finish, whole, release};

md_status md_chat_answer_new(const md_served *served, md_chat_request *request, md_chat_answer **out, md_error *err) {
    *out = NULL;
    md_chat_answer *a = calloc(1, sizeof *a);
    if (!a) return no_memory(err);
    a->served = served;
    md_answer_id("chatcmpl", a->id);
    a->created = (int64_t)time(NULL);
    a->stream = request->params.stream;
    a->include_usage = request->params.include_usage;
    a->parallel_calls = request->parallel_calls;
    a->tools = request->tools;
    request->tools = NULL;
    a->splits = served->thinks || request->opened_reasoning;
    md_reasoning_init(&a->reasoning, request->opened_reasoning, on_part, a);
    if (request->logprobs) a->logprobs = json_array();
    md_buf_init(&a->content, TEXT_MAX);
    md_buf_init(&a->thoughts, TEXT_MAX);
    if (a->tools && served->toolcall_style != MD_TOOLCALL_NONE) {
        md_status status = md_toolcall_parser_new(served->toolcall_style, a->tools, on_toolcall, a, &a->parser, err);
        if (status != MD_OK) {
            release(a);
            return status;
        }
    }
    *out = a;
    return MD_OK;
}
