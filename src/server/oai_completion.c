// POST /v1/completions
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/json.h"
#include "server/answer.h"
#include "server/fields.h"
#include "server/logprobs.h"
#include "server/params.h"
#include "server/route.h"

enum {
    DEFAULT_MAX = 16, // OpenAI's max_tokens for completions
    TEXT_MAX = 256 << 20,
    SCORES_MAX = 1 << 19 // log-probabilities of a request's prompts: some 100 MB of JSON
};

// ---- the request -----------------------------------------------------------------------------------------------

// The answer to one of the request's prompts.
typedef struct choice {
    char *prompt_text; // with echo; owned
    size_t prompt_text_size, prompt_size;
    size_t scored;       // tokens of the prompt whose log-probabilities came
    uint64_t characters; // of the choice's text before what is written next: logprobs count in them
    md_buf text;         // the whole answer
    json_t *tokens, *token_logprobs, *top_logprobs, *text_offset; // arrays not written yet (stream) or whole
} choice;

typedef struct completion {
    const md_served *served;
    char id[40];
    int64_t created;
    md_params params;
    bool echo, logprobs;
    choice *choices;  // [count]; owned
    md_job_end *ends; // [count]; owned
    uint32_t count;
    md_buf *out;
} completion;

static md_status read_ids(const json_t *list, const char *where, const md_served *served, md_job *job, md_error *err) {
    size_t n = json_array_size(list);
    job->prompt = malloc((n + 1) * sizeof *job->prompt);
    if (!job->prompt) return md_fail(err, MD_E_MEMORY, "prompt: out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id))
            return md_fail(err, MD_E_USAGE, "%s[%zu]: found %s, expected a token id", where, i, md_json_type_name(id));
        json_int_t value = json_integer_value(id);
        if (value < 0 || value >= (json_int_t)served->info.vocab)
            return md_fail(err, MD_E_USAGE, "%s[%zu]: found %" JSON_INTEGER_FORMAT ", expected a token id from 0 to %u",
                           where, i, value, served->info.vocab - 1);
        job->prompt[job->prompt_size++] = (uint32_t)value;
    }
    return MD_OK;
}

static md_status read_prompt(const json_t *prompt, const char *where, const md_served *served, md_job *job,
                             md_error *err) {
    if (json_is_array(prompt))
        MD_TRY(read_ids(prompt, where, served, job, err));
    else if (json_is_string(prompt))
        MD_TRY(md_encode(served->tokenizer, json_string_value(prompt), json_string_length(prompt),
                         MD_ENCODE_ADD_SPECIAL | MD_ENCODE_PARSE_SPECIAL, &job->prompt, &job->prompt_size, err));
    else
        return md_fail(err, MD_E_USAGE, "%s: found %s, expected a string or an array of token ids", where,
                       md_json_type_name(prompt));
    return job->prompt_size ? MD_OK : md_fail(err, MD_E_USAGE, "%s: found no tokens, expected at least 1", where);
}

// Is the member a list of prompts, rather than one prompt (a string, or token ids)?
static bool is_list_of_prompts(const json_t *prompt) {
    const json_t *first = json_array_get(prompt, 0);
    return json_is_string(first) || json_is_array(first);
}

// A job for each prompt, all sampled in the same way. *out is owned by the caller, also on failure; may be NULL then.
static md_status read_prompts(const json_t *body, const md_served *served, uint32_t most, md_job_group **out,
                              md_error *err) {
    const json_t *prompt = md_field(body, "prompt");
    bool list = is_list_of_prompts(prompt);
    size_t n = list ? json_array_size(prompt) : 1;
    if (n > most)
        return md_fail(err, MD_E_USAGE, "prompt: found %zu prompts, expected at most %u (--parallel and --queue)", n,
                       most);
    md_job_group *jobs = *out = md_job_group_new((uint32_t)n);
    if (!jobs) return md_fail(err, MD_E_MEMORY, "prompt: out of memory");
    for (size_t i = 0; i < n; i++) {
        char where[32] = "prompt";
        if (list) snprintf(where, sizeof where, "prompt[%zu]", i);
        MD_TRY(read_prompt(list ? json_array_get(prompt, i) : prompt, where, served, &jobs->jobs[i], err));
    }
    return MD_OK;
}

static uint64_t count_characters(const char *text, size_t n) {
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80; // not a continuation byte
    return count;
}

static void reset_logprobs(choice *c) {
    c->tokens = json_array();
    c->token_logprobs = json_array();
    c->top_logprobs = json_array();
    c->text_offset = json_array();
}

// Room for the answers, with the prompts that are to be echoed.
static md_status make_choices(completion *c, const md_job_group *jobs, md_error *err) {
    c->choices = calloc(jobs->count, sizeof *c->choices);
    c->ends = calloc(jobs->count, sizeof *c->ends);
    if (!c->choices || !c->ends) return md_fail(err, MD_E_MEMORY, "request: out of memory");
    for (c->count = 0; c->count < jobs->count;) {
        const md_job *job = &jobs->jobs[c->count];
        choice *answer = &c->choices[c->count++];
        answer->prompt_size = job->prompt_size;
        md_buf_init(&answer->text, TEXT_MAX);
        reset_logprobs(answer);
        if (!c->echo) continue;
        MD_TRY(md_decode(c->served->tokenizer, job->prompt, job->prompt_size, true, &answer->prompt_text,
                         &answer->prompt_text_size, err));
        if (!c->logprobs) answer->characters = count_characters(answer->prompt_text, answer->prompt_text_size);
    }
    return MD_OK;
}

static md_status check_scores(const md_job_group *jobs, md_error *err) {
    uint64_t tokens = 0, each = 1 + jobs->jobs[0].params.top_logprobs;
    for (uint32_t i = 0; i < jobs->count; i++) tokens += jobs->jobs[i].prompt_size;
    if (!jobs->jobs[0].score_prompt || tokens * each <= SCORES_MAX) return MD_OK;
    return md_fail(err, MD_E_USAGE,
                   "prompt: found %" PRIu64 " tokens to echo with log-probabilities, expected at most %" PRIu64
                   " with this many logprobs",
                   tokens, SCORES_MAX / each);
}

static md_status read_request(const json_t *body, completion *c, uint32_t most, md_job_group **out, md_error *err) {
    int64_t logprobs = 0;
    MD_TRY(md_params_check_model(body, c->served, err));
    MD_TRY(md_field_int(body, "logprobs", 0, MD_TOP_LOGPROBS_ALLOWED, &logprobs, err));
    MD_TRY(md_field_bool(body, "echo", &c->echo, err));
    MD_TRY(md_field_refuse(body, "response_format", NULL, "only supported by /v1/chat/completions", err));
    c->logprobs = md_field(body, "logprobs") != NULL;
    MD_TRY(read_prompts(body, c->served, most, out, err));
    md_job *first = &(*out)->jobs[0];
    MD_TRY(md_params_read(body, c->served, (md_length_rule){.otherwise = DEFAULT_MAX}, first, &c->params, err));
    first->params.logprobs = c->logprobs;
    first->params.top_logprobs = (uint32_t)logprobs;
    first->score_prompt = c->echo && c->logprobs;
    md_generation_params params = first->params;
    bool seeded = md_field(body, "seed") != NULL;
    for (uint32_t i = 0; i < (*out)->count; i++) {
        md_job *job = &(*out)->jobs[i];
        job->params = params;
        job->prompt_only = first->prompt_only;
        job->score_prompt = first->score_prompt;
        if (!seeded) job->params.sampling.seed = md_random_seed();
        MD_TRY(md_params_fit_context(c->served, &c->params, job, err));
    }
    MD_TRY(check_scores(*out, err));
    return make_choices(c, *out, err);
}

// ---- the answer ------------------------------------------------------------------------------------------------

// Two tokens may look the same; the likelier one, which comes first, stays.
static void add_top(const md_served *served, json_t *top, uint32_t id, double logprob) {
    json_t *text = md_token_text_json(served, id);
    if (text && !json_object_getn(top, json_string_value(text), json_string_length(text)))
        json_object_setn_new(top, json_string_value(text), json_string_length(text),
                             json_real(md_logprob_shown(logprob)));
    json_decref(text);
}

// Adds a token whose text begins at the character `offset`. Nothing comes before the first token of a prompt: null.
static void add_logprob(const md_served *served, choice *c, const md_delivery *d, const md_job_token *token,
                        uint64_t offset) {
    bool known = !isnan(token->logprob);
    json_array_append_new(c->tokens, md_token_text_json(served, token->id));
    json_array_append_new(c->token_logprobs, known ? json_real(md_logprob_shown(token->logprob)) : json_null());
    json_array_append_new(c->text_offset, json_integer((json_int_t)offset));
    json_t *top = known ? json_object() : json_null();
    for (uint32_t i = 0; i < token->top_count; i++)
        add_top(served, top, d->tops[token->top_first + i].token, d->tops[token->top_first + i].logprob);
    if (known) add_top(served, top, token->id, token->logprob); // OpenAI: it is always among them
    json_array_append_new(c->top_logprobs, top);
}

static json_t *take_logprobs(const completion *c, choice *answer) {
    if (!c->logprobs) return json_null();
    json_t *taken = json_pack("{s:o,s:o,s:o,s:o}", "tokens", answer->tokens, "token_logprobs", answer->token_logprobs,
                              "top_logprobs", answer->top_logprobs, "text_offset", answer->text_offset);
    reset_logprobs(answer);
    return taken;
}

static json_t *choice_json(completion *c, uint32_t index, const char *text, size_t n, const char *finish) {
    return json_pack("{s:I,s:o,s:o,s:o}", "index", (json_int_t)index, "text", md_text_json(text, n), "logprobs",
                     take_logprobs(c, &c->choices[index]), "finish_reason", finish ? json_string(finish) : json_null());
}

static json_t *response(const completion *c, json_t *choices) {
    return json_pack("{s:s,s:s,s:I,s:s,s:o}", "id", c->id, "object", "text_completion", "created",
                     (json_int_t)c->created, "model", c->served->id, "choices", choices);
}

static md_status write_chunk(completion *c, uint32_t index, const char *text, size_t n, const char *finish,
                             md_error *err) {
    json_t *chunk = response(c, json_pack("[o]", choice_json(c, index, text, n, finish)));
    if (chunk && c->params.include_usage) json_object_set_new(chunk, "usage", json_null());
    return md_event(c->out, chunk, err);
}

static md_status put(completion *c, uint32_t index, const char *text, size_t n, md_error *err) {
    if (c->params.stream) return n ? write_chunk(c, index, text, n, NULL, err) : MD_OK;
    return md_buf_append(&c->choices[index].text, text, n) == MD_OK
               ? MD_OK
               : md_fail(err, MD_E_MEMORY, "answer: out of memory");
}

static md_status begin(void *self, md_buf *out, md_error *err) {
    completion *c = self;
    c->out = out;
    for (uint32_t i = 0; c->echo && !c->logprobs && i < c->count; i++)
        MD_TRY(put(c, i, c->choices[i].prompt_text, c->choices[i].prompt_text_size, err));
    return MD_OK;
}

// The scored tokens of the prompt, which come before those of the answer; *used: how many of the delivery's they are.
// A control token has no place in the text. The decoder may leave out a space at the very beginning.
static md_status take_prompt(completion *c, uint32_t index, const md_delivery *d, size_t *used, md_error *err) {
    choice *answer = &c->choices[index];
    for (*used = 0; *used < d->token_count && answer->scored < answer->prompt_size; ++*used) {
        const md_job_token *token = &d->tokens[*used];
        size_t n = 0;
        const char *bytes = md_tokenizer_token_bytes(c->served->tokenizer, token->id, &n);
        add_logprob(c->served, answer, d, token, answer->characters);
        bool dropped = answer->characters == 0 && n && bytes[0] == ' ' && answer->prompt_text[0] != ' ';
        if (bytes && !md_tokenizer_is_special(c->served->tokenizer, token->id))
            answer->characters += count_characters(bytes + dropped, n - dropped);
        if (++answer->scored == answer->prompt_size)
            MD_TRY(put(c, index, answer->prompt_text, answer->prompt_text_size, err));
    }
    return MD_OK;
}

// Control tokens have an entry too, the end-of-text token that ended the answer among them: who scores continuations
// counts on one entry a token.
static bool is_listed(const md_served *served, const md_job_token *token) {
    return !token->hidden || md_tokenizer_is_special(served->tokenizer, token->id) ||
           md_model_is_eos(served->model, token->id);
}

static md_status delivery(void *self, uint32_t index, const md_delivery *d, md_buf *out, md_error *err) {
    completion *c = self;
    choice *answer = &c->choices[index];
    size_t first = 0, at = 0;
    c->out = out;
    if (c->echo && c->logprobs) MD_TRY(take_prompt(c, index, d, &first, err));
    const char *text = md_buf_str(&d->text);
    uint64_t base = first < d->token_count ? d->tokens[first].text_offset : 0; // where this delivery's text begins
    uint64_t characters = answer->characters;
    for (size_t i = first; c->logprobs && i < d->token_count; i++) {
        const md_job_token *token = &d->tokens[i];
        if (!is_listed(c->served, token)) continue;
        size_t to = (size_t)(token->text_offset - base);
        if (to > d->text.size) to = d->text.size;
        if (to > at) {
            characters += count_characters(text + at, to - at);
            at = to;
        }
        add_logprob(c->served, answer, d, token, characters);
    }
    answer->characters += count_characters(text, d->text.size);
    return put(c, index, text, d->text.size, err);
}

static const char *finish_reason(const completion *c, uint32_t index) {
    return c->ends[index].finish == MD_FINISH_STOP ? "stop" : "length";
}

static md_status end(void *self, uint32_t index, const md_job_end *job_end, md_buf *out, md_error *err) {
    completion *c = self;
    c->out = out;
    c->ends[index] = *job_end;
    return c->params.stream ? write_chunk(c, index, "", 0, finish_reason(c, index), err) : MD_OK;
}

// Of several prompts, which share the server's time, none has a speed of its own.
static void add_usage(const completion *c, json_t *body) {
    json_object_set_new(body, "usage", md_usage_json(c->ends, c->count));
    if (c->count == 1) json_object_set_new(body, "timings", md_timings_json(c->ends));
}

static md_status finish(void *self, md_buf *out, md_error *err) {
    completion *c = self;
    if (!c->params.stream || !c->params.include_usage) return MD_OK;
    json_t *chunk = response(c, json_array());
    if (chunk) add_usage(c, chunk);
    return md_event(out, chunk, err);
}

static json_t *whole(void *self) {
    completion *c = self;
    json_t *choices = json_array();
    for (uint32_t i = 0; i < c->count; i++) {
        const md_buf *text = &c->choices[i].text;
        json_array_append_new(choices, choice_json(c, i, md_buf_str(text), text->size, finish_reason(c, i)));
    }
    json_t *body = response(c, choices);
    if (body) add_usage(c, body);
    return body;
}

static void release(void *self) {
    completion *c = self;
    for (uint32_t i = 0; i < c->count; i++) {
        choice *answer = &c->choices[i];
        json_decref(answer->tokens);
        json_decref(answer->token_logprobs);
        json_decref(answer->top_logprobs);
        json_decref(answer->text_offset);
        md_buf_free(&answer->text);
        md_free(answer->prompt_text);
    }
    free(c->choices);
    free(c->ends);
    free(c);
}

static const md_answer_writer writer = {begin, delivery, end, finish, whole, release};

// ---- the handler -----------------------------------------------------------------------------------------------

static completion *completion_new(const md_served *served) {
    completion *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->served = served;
    c->created = (int64_t)time(NULL);
    md_answer_id("cmpl", c->id);
    return c;
}

void md_handle_completion(md_request *request, const md_served *served) {
    md_error err;
    md_job_group *jobs = NULL;
    completion *c = completion_new(served);
    uint32_t most = request->app->options->parallel + request->app->options->queue;
    md_status status = c ? MD_OK : md_fail(&err, MD_E_MEMORY, "request: out of memory");
    if (status == MD_OK) {
        json_t *body;
        md_gate_enter(&request->app->gate);
        status = md_body_parse(request, &body, &err);
        if (status == MD_OK) status = read_request(body, c, most, &jobs, &err);
        if (status == MD_OK && md_json_losses() != request->json_losses)
            status = md_fail(&err, MD_E_MEMORY, "request: out of memory");
        json_decref(body);
        md_gate_leave(&request->app->gate);
    }
    if (status == MD_OK) {
        md_answer(request, jobs, c->params.stream, &writer, c);
        return;
    }
    md_job_group_unref(jobs);
    if (c) release(c);
    md_reply_failure(request, status, &err, false);
}
