// POST /v1/completions
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "server/answer.h"
#include "server/fields.h"
#include "server/logprobs.h"
#include "server/params.h"
#include "server/route.h"

enum { DEFAULT_MAX = 16, TEXT_MAX = 256 << 20 }; // OpenAI's max_tokens for completions

// ---- the request -----------------------------------------------------------------------------------------------

typedef struct completion {
    const md_served *served;
    char id[40];
    int64_t created;
    md_params params;
    bool echo, logprobs;
    char *prompt_text; // with echo; owned
    size_t prompt_text_size;
    uint64_t characters; // of the response's text before what is written next: logprobs count in them
    md_buf text;         // the whole answer
    json_t *tokens, *token_logprobs, *top_logprobs, *text_offset; // arrays not written yet (stream) or whole
    md_job_end end;
    md_buf *out;
} completion;

static md_status read_ids(const json_t *list, const md_served *served, md_job *job, md_error *err) {
    size_t n = json_array_size(list);
    job->prompt = malloc((n + 1) * sizeof *job->prompt);
    if (!job->prompt) return md_fail(err, MD_E_MEMORY, "prompt: out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id))
            return md_fail(err, MD_E_USAGE, "prompt[%zu]: found %s, expected a token id", i, md_json_type_name(id));
        json_int_t value = json_integer_value(id);
        if (value < 0 || value >= (json_int_t)served->info.vocab)
            return md_fail(err, MD_E_USAGE,
                           "prompt[%zu]: found %" JSON_INTEGER_FORMAT ", expected a token id from 0 to %u", i, value,
                           served->info.vocab - 1);
        job->prompt[job->prompt_size++] = (uint32_t)value;
    }
    return MD_OK;
}

static md_status read_prompt(const json_t *body, const md_served *served, md_job *job, md_error *err) {
    const json_t *prompt = md_field(body, "prompt");
    bool list = json_is_array(prompt);
    if (list && (json_is_string(json_array_get(prompt, 0)) || json_is_array(json_array_get(prompt, 0)))) {
        if (json_array_size(prompt) > 1)
            return md_fail(err, MD_E_UNSUPPORTED, "prompt: found %zu prompts, only one a request is supported",
                           json_array_size(prompt));
        prompt = json_array_get(prompt, 0);
    }
    if (json_is_array(prompt))
        MD_TRY(read_ids(prompt, served, job, err));
    else if (json_is_string(prompt))
        MD_TRY(md_encode(served->tokenizer, json_string_value(prompt), json_string_length(prompt),
                         MD_ENCODE_ADD_SPECIAL | MD_ENCODE_PARSE_SPECIAL, &job->prompt, &job->prompt_size, err));
    else
        return md_fail(err, MD_E_USAGE, "prompt: found %s, expected a string or an array of token ids",
                       md_json_type_name(prompt));
    return job->prompt_size ? MD_OK : md_fail(err, MD_E_USAGE, "prompt: found no tokens, expected at least 1");
}

static uint64_t count_characters(const char *text, size_t n) {
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80; // not a continuation byte
    return count;
}

static md_status read_request(const json_t *body, completion *c, md_job *job, md_error *err) {
    int64_t logprobs = 0;
    MD_TRY(md_params_check_model(body, c->served, err));
    MD_TRY(md_params_read(body, c->served, DEFAULT_MAX, job, &c->params, err));
    MD_TRY(md_field_int(body, "logprobs", 0, MD_TOP_LOGPROBS_ALLOWED, &logprobs, err));
    MD_TRY(md_field_bool(body, "echo", &c->echo, err));
    c->logprobs = md_field(body, "logprobs") != NULL;
    if (c->echo && c->logprobs) return md_fail(err, MD_E_UNSUPPORTED, "logprobs: not supported for an echoed prompt");
    job->params.logprobs = c->logprobs;
    job->params.top_logprobs = (uint32_t)logprobs;
    MD_TRY(md_field_refuse(body, "response_format", NULL, "only supported by /v1/chat/completions", err));
    MD_TRY(read_prompt(body, c->served, job, err));
    MD_TRY(md_params_fit_context(c->served, &c->params, job, err));
    if (!c->echo) return MD_OK;
    MD_TRY(md_decode(c->served->tokenizer, job->prompt, job->prompt_size, true, &c->prompt_text, &c->prompt_text_size,
                     err));
    c->characters = count_characters(c->prompt_text, c->prompt_text_size);
    return MD_OK;
}

// ---- the answer ------------------------------------------------------------------------------------------------

static void reset_logprobs(completion *c) {
    c->tokens = json_array();
    c->token_logprobs = json_array();
    c->top_logprobs = json_array();
    c->text_offset = json_array();
}

// Adds a token that begins at byte `at` of a delivery whose first byte has the answer's offset `first`.
static void add_logprob(completion *c, const md_delivery *d, const md_job_token *token, uint64_t offset) {
    json_array_append_new(c->tokens, md_token_text_json(c->served, token->id));
    json_array_append_new(c->token_logprobs, json_real(token->logprob));
    json_array_append_new(c->text_offset, json_integer((json_int_t)offset));
    json_t *top = json_object();
    for (uint32_t i = 0; i < token->top_count; i++) {
        const md_logprob *t = &d->tops[token->top_first + i];
        json_t *text = md_token_text_json(c->served, t->token);
        // Two tokens may look the same; the likelier one stays.
        if (text && !json_object_getn(top, json_string_value(text), json_string_length(text)))
            json_object_setn_new(top, json_string_value(text), json_string_length(text), json_real(t->logprob));
        json_decref(text);
    }
    json_array_append_new(c->top_logprobs, top);
}

static json_t *take_logprobs(completion *c) {
    if (!c->logprobs) return json_null();
    json_t *taken = json_pack("{s:o,s:o,s:o,s:o}", "tokens", c->tokens, "token_logprobs", c->token_logprobs,
                              "top_logprobs", c->top_logprobs, "text_offset", c->text_offset);
    reset_logprobs(c);
    return taken;
}

static json_t *response(completion *c, const char *text, size_t n, const char *finish) {
    json_t *choice = json_pack("{s:i,s:o,s:o,s:o}", "index", 0, "text", md_text_json(text, n), "logprobs",
                               take_logprobs(c), "finish_reason", finish ? json_string(finish) : json_null());
    return json_pack("{s:s,s:s,s:I,s:s,s:[o]}", "id", c->id, "object", "text_completion", "created",
                     (json_int_t)c->created, "model", c->served->id, "choices", choice);
}

static md_status write_chunk(completion *c, const char *text, size_t n, const char *finish, md_error *err) {
    json_t *chunk = response(c, text, n, finish);
    if (chunk && c->params.include_usage) json_object_set_new(chunk, "usage", json_null());
    return md_event(c->out, chunk, err);
}

static md_status put(completion *c, const char *text, size_t n, md_error *err) {
    if (c->params.stream) return n ? write_chunk(c, text, n, NULL, err) : MD_OK;
    return md_buf_append(&c->text, text, n) == MD_OK ? MD_OK : md_fail(err, MD_E_MEMORY, "answer: out of memory");
}

static md_status begin(void *self, md_buf *out, md_error *err) {
    completion *c = self;
    c->out = out;
    return c->echo ? put(c, c->prompt_text, c->prompt_text_size, err) : MD_OK;
}

static md_status delivery(void *self, const md_delivery *d, md_buf *out, md_error *err) {
    completion *c = self;
    c->out = out;
    const char *text = md_buf_str(&d->text);
    uint64_t base = d->token_count ? d->tokens[0].text_offset : 0; // where this delivery's text begins
    size_t at = 0;
    uint64_t characters = c->characters;
    for (size_t i = 0; c->logprobs && i < d->token_count; i++) {
        const md_job_token *token = &d->tokens[i];
        if (!md_token_is_shown(c->served, token)) continue;
        size_t to = (size_t)(token->text_offset - base);
        if (to > d->text.size) to = d->text.size;
        if (to > at) {
            characters += count_characters(text + at, to - at);
            at = to;
        }
        add_logprob(c, d, token, characters);
    }
    c->characters += count_characters(text, d->text.size);
    return put(c, text, d->text.size, err);
}

static const char *finish_reason(const completion *c) { return c->end.finish == MD_FINISH_STOP ? "stop" : "length"; }

static md_status end(void *self, const md_job_end *job_end, md_buf *out, md_error *err) {
    completion *c = self;
    c->out = out;
    c->end = *job_end;
    if (!c->params.stream) return MD_OK;
    MD_TRY(write_chunk(c, "", 0, finish_reason(c), err));
    if (!c->params.include_usage) return MD_OK;
    return md_event(out,
                    json_pack("{s:s,s:s,s:I,s:s,s:[],s:o}", "id", c->id, "object", "text_completion", "created",
                              (json_int_t)c->created, "model", c->served->id, "choices", "usage",
                              md_usage_json(&c->end)),
                    err);
}

static json_t *whole(void *self) {
    completion *c = self;
    json_t *body = response(c, md_buf_str(&c->text), c->text.size, finish_reason(c));
    if (body) json_object_set_new(body, "usage", md_usage_json(&c->end));
    return body;
}

static void release(void *self) {
    completion *c = self;
    json_decref(c->tokens);
    json_decref(c->token_logprobs);
    json_decref(c->top_logprobs);
    json_decref(c->text_offset);
    md_buf_free(&c->text);
    md_free(c->prompt_text);
    free(c);
}

static const md_answer_writer writer = {begin, delivery, end, whole, release};

// ---- the handler -----------------------------------------------------------------------------------------------

static completion *completion_new(const md_served *served) {
    completion *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->served = served;
    c->created = (int64_t)time(NULL);
    md_answer_id("cmpl", c->id);
    md_buf_init(&c->text, TEXT_MAX);
    reset_logprobs(c);
    return c;
}

void md_handle_completion(md_request *request, const md_served *served) {
    md_error err;
    md_job *job = md_job_new();
    completion *c = completion_new(served);
    md_status status = job && c ? MD_OK : md_fail(&err, MD_E_MEMORY, "request: out of memory");
    if (status == MD_OK) {
        json_t *body;
        md_gate_enter(&request->app->gate);
        status = md_body_parse(request, &body, &err);
        if (status == MD_OK) status = read_request(body, c, job, &err);
        if (status == MD_OK && md_json_losses() != request->json_losses)
            status = md_fail(&err, MD_E_MEMORY, "request: out of memory");
        json_decref(body);
        md_gate_leave(&request->app->gate);
    }
    if (status == MD_OK) {
        md_answer(request, job, c->params.stream, &writer, c);
        return;
    }
    md_job_unref(job);
    if (c) release(c);
    md_reply_failure(request, status, &err, false);
}
