// A generation: tokens chosen from a session's logits, turned into text that leaves in whole characters and never holds
// a part of a stop string. The order of one step: sampler, end-of-text, detokenizer, stop strings, limits.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gen/rng.h"
#include "gen/sampler.h"
#include "gen/stop.h"
#include "gen/weight.h"
#include "session/generation.h"
#include "text/detok.h"

enum { MAX_TEXT = 1 << 26 }; // bytes of one piece, and of what is held back: far beyond what one token can stand for

// A token whose text has not left yet.
typedef struct waiting {
    md_token token;
    uint64_t end; // byte of the answer at which its text ends; UINT64_MAX: inside a character that is not complete
} waiting;

struct md_generation {
    md_session *session; // borrowed; its logits and position are read
    md_generation_params params;
    md_sampler *sampler;
    md_stop *stop;     // NULL: no stop strings
    md_detok detok;    // unused without a tokenizer
    uint32_t count;    // tokens chosen
    md_finish finish;  // MD_FINISH_NONE while it goes on
    uint64_t written;  // bytes the detokenizer gave so far
    uint64_t released; // bytes that left in pieces
    md_buf raw;        // what the detokenizer gave in this call
    md_buf text;       // the piece's text

    waiting *queue; // [queue_size of queue_cap]; the first `taken` left with the last piece
    size_t queue_size, queue_cap, taken;
    md_logprob *top;    // [queue_cap][top_logprobs] beside the queue
    md_token *delivery; // [queue_cap] the piece's tokens
};

static const md_tokenizer *tokenizer_of(const md_generation *g) { return g->session->model->tokenizer; }

md_status md_generation_open(md_session *session, const md_generation_params *params, md_generation **out,
                             md_error *err) {
    *out = NULL;
    const md_model *model = session->model;
    if (params->top_logprobs > MD_TOP_LOGPROBS_MAX)
        return md_fail(err, MD_E_USAGE, "top_logprobs: found %" PRIu32 ", expected at most %d", params->top_logprobs,
                       MD_TOP_LOGPROBS_MAX);
    if (params->stop_count && !model->tokenizer)
        return md_fail(err, MD_E_UNSUPPORTED, "stop: %s has no tokenizer.json, so that there is no text to stop at",
                       model->name);
    md_generation *g = calloc(1, sizeof *g);
    if (!g) return md_fail(err, MD_E_MEMORY, "generation: out of memory");
    md_status status = MD_OK;
    g->session = session;
    g->params = *params;
    md_buf_init(&g->raw, MAX_TEXT);
    md_buf_init(&g->text, MAX_TEXT);
    if (params->stop_count) MD_TRY_GOTO(md_stop_open(params->stop, params->stop_count, &g->stop, err));
    MD_TRY_GOTO(md_sampler_open(&params->sampling, model->info.vocab, session->context, &g->sampler, err));
    md_sampler_observe(g->sampler, session->tokens, session->position);
    if (model->tokenizer) md_detok_init(&g->detok, model->tokenizer, !params->keep_special, session->position > 0);
    *out = g;
    return MD_OK;
fail:
    md_generation_close(g);
    return status;
}

void md_generation_close(md_generation *g) {
    if (!g) return;
    md_sampler_close(g->sampler);
    md_stop_close(g->stop);
    md_buf_free(&g->raw);
    md_buf_free(&g->text);
    free(g->queue);
    free(g->top);
    free(g->delivery);
    free(g);
}

// ---- the queue of tokens ---------------------------------------------------------------------------------------

static md_status grow_queue(md_generation *g, md_error *err) {
    size_t cap = g->queue_cap ? g->queue_cap * 2 : 16, n = g->params.top_logprobs;
    waiting *queue = realloc(g->queue, cap * sizeof *queue);
    if (queue) g->queue = queue;
    md_token *delivery = realloc(g->delivery, cap * sizeof *delivery);
    if (delivery) g->delivery = delivery;
    md_logprob *top = n ? realloc(g->top, cap * n * sizeof *top) : NULL;
    if (top) g->top = top;
    if (!queue || !delivery || (n && !top)) return md_fail(err, MD_E_MEMORY, "generation: out of memory");
    g->queue_cap = cap;
    return MD_OK;
}

// Takes the tokens that left with the last piece off the queue.
static void drop_taken(md_generation *g) {
    size_t n = g->params.top_logprobs;
    g->queue_size -= g->taken;
    if (g->taken && g->queue_size) {
        memmove(g->queue, g->queue + g->taken, g->queue_size * sizeof *g->queue);
        if (n) memmove(g->top, g->top + g->taken * n, g->queue_size * n * sizeof *g->top);
    }
    g->taken = 0;
}

// Puts the token on the queue, with its log-probabilities if they are wanted.
static md_status enqueue(md_generation *g, uint32_t id, const float *logits, md_error *err) {
    if (g->queue_size == g->queue_cap) MD_TRY(grow_queue(g, err));
    uint32_t n = g->params.top_logprobs, vocab = g->session->model->info.vocab;
    waiting *w = &g->queue[g->queue_size];
    *w = (waiting){.token = {.id = id, .text_offset = g->written}, .end = UINT64_MAX};
    if (g->params.logprobs || n)
        w->token.logprob =
            md_sampler_logprobs(g->sampler, logits, id, n, n ? g->top + g->queue_size * (size_t)n : NULL);
    w->token.top_count = n < vocab ? n : vocab;
    g->queue_size++;
    return MD_OK;
}

// Fills the piece from the text that has been decided. At the end every token leaves, those without text in it hidden.
static void make_piece(md_generation *g, uint32_t next, int stop_index, md_piece *piece) {
    g->released += g->text.size;
    size_t n = 0;
    for (; n < g->queue_size && (g->finish || g->queue[n].end <= g->released); n++) {
        md_token *token = &g->queue[n].token;
        token->top = token->top_count ? g->top + n * g->params.top_logprobs : NULL;
        if (stop_index >= 0 && token->text_offset >= g->released) token->hidden = true;
        g->delivery[n] = *token;
    }
    g->taken = n;
    *piece = (md_piece){.text = md_buf_str(&g->text),
                        .size = g->text.size,
                        .tokens = g->delivery,
                        .token_count = n,
                        .next = next,
                        .finish = g->finish,
                        .stop_index = stop_index};
}

// ---- text ------------------------------------------------------------------------------------------------------

// Moves what the detokenizer gave (g->raw) through the stop strings to g->text.
static md_status pass_text(md_generation *g, int *stop_index, md_error *err) {
    g->written += g->raw.size;
    md_status status = MD_OK;
    if (g->stop)
        status = md_stop_put(g->stop, md_buf_str(&g->raw), g->raw.size, &g->text, stop_index, err);
    else if (md_buf_append(&g->text, md_buf_str(&g->raw), g->raw.size) != MD_OK)
        status = md_fail(err, MD_E_MEMORY, "generated text: out of memory for %zu bytes", g->raw.size);
    md_buf_clear(&g->raw);
    return status;
}

// After the newest token's text: those that waited for a character to be completed have their end, once there is text;
// the newest has one unless it leaves a character incomplete.
static void set_ends(md_generation *g, bool text_came, bool incomplete) {
    for (size_t i = g->queue_size; i-- > 0;) {
        waiting *w = &g->queue[i];
        bool newest = i + 1 == g->queue_size;
        if (!newest && w->end != UINT64_MAX) break;
        if (newest ? !incomplete : text_came || !incomplete) w->end = g->written;
    }
}

// The end of the text: the detokenizer's half character, and what was held back. That may still complete a stop.
static md_status end_text(md_generation *g, int *stop_index, md_error *err) {
    if (tokenizer_of(g)) MD_TRY(md_detok_flush(&g->detok, &g->raw, err));
    MD_TRY(pass_text(g, stop_index, err));
    if (*stop_index >= 0) g->finish = MD_FINISH_STOP;
    set_ends(g, true, false);
    return g->stop && *stop_index < 0 ? md_stop_flush(g->stop, &g->text, err) : MD_OK;
}

static md_finish limit_reached(const md_generation *g) {
    if (g->params.max_tokens && g->count >= g->params.max_tokens) return MD_FINISH_LENGTH;
    return g->session->position >= g->session->context ? MD_FINISH_CONTEXT : MD_FINISH_NONE;
}

// Takes a chosen token into the answer.
static md_status take(md_generation *g, uint32_t id, const float *logits, md_piece *piece, md_error *err) {
    int stop_index = -1;
    md_buf_clear(&g->text);
    drop_taken(g);
    MD_TRY(enqueue(g, id, logits, err));
    g->count++;
    if (!g->params.ignore_eos && md_model_is_eos(g->session->model, id)) {
        g->finish = MD_FINISH_STOP;
        g->queue[g->queue_size - 1].token.hidden = true;
    } else {
        if (tokenizer_of(g)) MD_TRY(md_detok_put(&g->detok, id, &g->raw, err));
        bool text_came = g->raw.size > 0;
        MD_TRY(pass_text(g, &stop_index, err));
        set_ends(g, text_came, tokenizer_of(g) && g->detok.held_size > 0);
        g->finish = stop_index >= 0 ? MD_FINISH_STOP : limit_reached(g);
    }
    if (g->finish && stop_index < 0) MD_TRY(end_text(g, &stop_index, err));
    make_piece(g, id, stop_index, piece);
    return MD_OK;
}

md_status md_generation_next(md_generation *g, md_piece *piece, md_error *err) {
    const float *logits = md_session_logits(g->session);
    uint32_t id = 0;
    if (g->finish) return md_fail(err, MD_E_USAGE, "generation: it has ended (%s)", md_finish_name(g->finish));
    if (!logits) return md_fail(err, MD_E_USAGE, "generation: the session has no logits after its last token");
    MD_TRY(md_sampler_next(g->sampler, logits, &id, err));
    return take(g, id, logits, piece, err);
}

bool md_generation_is_plain(const md_generation *g, md_burst_column *column, uint32_t *most) {
    const md_sampling *s = &g->params.sampling;
    if (s->bias_count || s->adjust || md_sampler_penalises(s) || g->params.logprobs || g->params.top_logprobs)
        return false;
    column->choice = (md_choice){0};
    if (s->temperature > 0)
        column->choice = (md_choice){.sampled = true,
                                     .per_unit = MD_LOG2_E / s->temperature,
                                     .top_k = s->top_k,
                                     .top_p = s->top_p,
                                     .least_weight = s->min_p > 0 ? md_least_weight(s->min_p) : 0,
                                     .seed = md_mix64(s->seed),
                                     .draw = md_sampler_draws(g->sampler)};
    column->stop = g->session->model->info.eos;
    column->stop_count = g->params.ignore_eos ? 0 : g->session->model->info.eos_count;
    uint32_t left = g->session->context - g->session->position;
    if (g->params.max_tokens && g->params.max_tokens - g->count < left) left = g->params.max_tokens - g->count;
    if (*most > left) *most = left;
    return true;
}

md_session *md_generation_session(const md_generation *g) { return g->session; }

md_status md_generation_take(md_generation *g, uint32_t id, md_piece *piece, md_error *err) {
    md_sampler_take(g->sampler, id);
    return take(g, id, NULL, piece, err);
}

md_status md_generation_cancel(md_generation *g, md_piece *piece, md_error *err) {
    if (g->finish) return md_fail(err, MD_E_USAGE, "generation: it has ended (%s)", md_finish_name(g->finish));
    int stop_index = -1;
    md_buf_clear(&g->text);
    drop_taken(g);
    g->finish = MD_FINISH_CANCELLED;
    MD_TRY(end_text(g, &stop_index, err));
    make_piece(g, 0, stop_index, piece);
    return MD_OK;
}

const char *md_finish_name(md_finish finish) {
    switch (finish) {
    case MD_FINISH_NONE: return "none";
    case MD_FINISH_STOP: return "stop";
    case MD_FINISH_LENGTH: return "length";
    case MD_FINISH_CONTEXT: return "context";
    case MD_FINISH_CANCELLED: return "cancelled";
    }
    return "unknown";
}
