#include "fuzz/fake_scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "text/detok.h"

enum { MOST_TOKENS = 64 };

struct md_scheduler {
    md_served *served;
    const char *text;
    size_t n;
    float *logits; // [vocab]
};

static struct md_scheduler scheduler;

static const md_server_options options = {.model = "models/fairytales",
                                          .model_options = {.device = "cpu", .threads = 1},
                                          .context = 512,
                                          .parallel = 1,
                                          .queue = 4,
                                          .api_key = "key",
                                          .cors_origins = "https://a.example, https://b.example",
                                          .chat_template_file = "tests/fuzz/chat_template.jinja",
                                          .body_max = 1 << 16};

md_app *fake_app(void) {
    static md_app app;
    if (app.scheduler) return &app;
    _Atomic(double) fraction = 0;
    atomic_bool give_up = false;
    app.options = &options;
    require(md_served_open(&options, &fraction, &give_up, &scheduler.served, NULL) == MD_OK);
    scheduler.logits = calloc(scheduler.served->info.vocab, sizeof *scheduler.logits);
    require(scheduler.logits != NULL);
    md_gate_init(&app.gate, 2);
    app.scheduler = &scheduler;
    return &app;
}

void fake_answer(const char *text, size_t n) {
    scheduler.text = text;
    scheduler.n = n;
}

// ---- the scheduler's functions -----------------------------------------------------------------------------------

md_server_state md_scheduler_state(md_scheduler *s) {
    (void)s;
    return MD_SERVER_READY;
}

double md_scheduler_loaded(md_scheduler *s) {
    (void)s;
    return 1;
}

const md_served *md_scheduler_served(md_scheduler *s) { return s->served; }

md_submit md_scheduler_has_room(md_scheduler *s) {
    (void)s;
    return MD_SUBMIT_OK;
}

unsigned md_scheduler_retry_after(md_scheduler *s) {
    (void)s;
    return 1;
}

// ---- the answer --------------------------------------------------------------------------------------------------

// The token the model "wants", or what the job's constraint leaves of that.
static md_status choose(md_scheduler *s, md_job *job, uint32_t wanted, uint32_t *chosen, md_error *err) {
    *chosen = wanted;
    if (!job->constraint) return MD_OK;
    uint32_t vocab = s->served->info.vocab;
    memset(s->logits, 0, vocab * sizeof *s->logits);
    s->logits[wanted] = 1;
    MD_TRY(job->params.sampling.adjust(job->params.sampling.adjust_user, s->logits, vocab, err));
    for (uint32_t i = 0; i < vocab; i++)
        if (s->logits[i] > s->logits[*chosen]) *chosen = i;
    return md_constraint_accept(job->constraint, *chosen, err);
}

static bool is_end(const md_scheduler *s, uint32_t token) {
    for (uint32_t i = 0; i < s->served->info.eos_count; i++)
        if (s->served->info.eos[i] == token) return true;
    return false;
}

static md_status deliver(md_job *job, md_detok *detok, uint32_t id, bool end, md_buf *answer, md_error *err) {
    md_logprob tops[MD_TOP_LOGPROBS_MAX]; // of words: U+0000 would be a key that jansson can't read back
    for (uint32_t i = 0; i < job->params.top_logprobs; i++) tops[i] = (md_logprob){300 + (id + i) % 1000, -1.0 - i};
    const md_token token = {.id = id,
                            .hidden = end,
                            .text_offset = answer->size,
                            .logprob = -0.5,
                            .top = tops,
                            .top_count = job->params.top_logprobs};
    size_t before = answer->size;
    MD_TRY(end ? md_detok_flush(detok, answer, err) : md_detok_put(detok, id, answer, err));
    const md_piece piece = {.text = md_buf_str(answer) + before,
                            .size = answer->size - before,
                            .tokens = &token,
                            .token_count = 1,
                            .next = id,
                            .stop_index = -1};
    return md_job_deliver(job, &piece, err);
}

static void check_sentence(const md_job *job, const md_buf *answer) {
    if (!job->constraint || memchr(md_buf_str(answer), '<', answer->size)) return; // perhaps after reasoning
    json_t *json = json_loadb(md_buf_str(answer), answer->size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    require(json != NULL);
    json_decref(json);
}

static md_status answer_job(md_scheduler *s, md_job *job, const uint32_t *ids, size_t n, md_job_end *end) {
    md_buf answer;
    md_detok detok;
    md_status status = MD_OK;
    md_buf_init(&answer, 1 << 16);
    md_detok_init(&detok, s->served->tokenizer, true, true);
    end->finish = MD_FINISH_LENGTH;
    for (uint32_t i = 0; i < MOST_TOKENS && i < job->params.max_tokens && status == MD_OK; i++) {
        if (!job->constraint && i == n) break;
        uint32_t token, wanted = i < n ? ids[i] : s->served->info.eos[0];
        status = choose(s, job, wanted, &token, &end->error);
        bool last = status == MD_OK && is_end(s, token);
        if (status == MD_OK) status = deliver(job, &detok, token, last, &answer, &end->error);
        end->completion_tokens++;
        if (!last) continue;
        if (status == MD_OK) check_sentence(job, &answer);
        end->finish = MD_FINISH_STOP;
        break;
    }
    md_buf_free(&answer);
    return status;
}

static void run_job(md_scheduler *s, md_job *job) {
    md_job_end end = {.prompt_tokens = (uint32_t)job->prompt_size};
    uint32_t *ids;
    size_t n;
    require(job->prompt_size > 0 && (job->prompt_only || job->params.max_tokens > 0));
    require(job->prompt_size + job->params.max_tokens <= s->served->context);
    for (size_t i = 0; i < job->prompt_size; i++) require(job->prompt[i] < s->served->info.vocab);
    require(md_encode(s->served->tokenizer, s->text, s->n, MD_ENCODE_PARSE_SPECIAL, &ids, &n, NULL) == MD_OK);
    for (size_t i = 0; job->score_prompt && i < job->prompt_size; i++) {
        const md_token token = {.id = job->prompt[i], .logprob = i ? -0.5 : NAN};
        require(md_job_deliver(job, &(md_piece){.text = "", .tokens = &token, .token_count = 1}, NULL) == MD_OK);
    }
    end.finish = MD_FINISH_LENGTH;
    if (!job->prompt_only) end.status = answer_job(s, job, ids, n, &end);
    // What the client asked for may be too much; nothing else may go wrong.
    require(end.status == MD_OK || end.status == MD_E_UNSUPPORTED);
    md_free(ids);
    md_job_finish(job, &end);
}

md_submit md_scheduler_submit(md_scheduler *s, md_job_group *group) {
    for (uint32_t i = 0; i < group->count; i++) run_job(s, &group->jobs[i]);
    return MD_SUBMIT_OK;
}
