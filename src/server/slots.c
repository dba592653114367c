#include "server/slots.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "server/clock.h"

enum {
    SLICE_SHARED_MS = 20, // of prefill between two decode steps while others decode: they keep streaming
    SLICE_ALONE_MS = 200, // while nobody decodes: how long a cancel may go unseen
    TOKENS_TOGETHER = 8   // of each request in one call, where the engine can: how long a new request waits
};

void md_slots_init(md_slots *slots, const md_served *served, uint32_t count, md_metrics *metrics) {
    memset(slots, 0, sizeof *slots);
    slots->served = served;
    slots->metrics = metrics;
    slots->count = count;
    md_pool_init(&slots->pool, served->model, &served->session_options, count);
}

uint32_t md_slots_used(const md_slots *slots) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < slots->count; i++) used += slots->slot[i].state != MD_SLOT_FREE;
    return used;
}

double md_slots_mean_ms(const md_slots *slots) { return slots->mean_ms; }

// ---- begin and end ---------------------------------------------------------------------------------------------

bool md_slots_admit(md_slots *slots, md_job *job) {
    md_slot *slot = NULL;
    for (uint32_t i = 0; i < slots->count && !slot; i++)
        if (slots->slot[i].state == MD_SLOT_FREE) slot = &slots->slot[i];
    if (!slot) return false;
    memset(slot, 0, sizeof *slot);
    slot->job = job;
    slot->order = slots->admitted++;
    slot->end.prompt_tokens = (uint32_t)job->prompt_size;
    md_histogram_add(&slots->metrics->queue_time, md_clock_ms() - job->submitted_ms);
    // To score a prompt all of its logits are wanted, also those whose cache is there.
    md_status status = job->score_prompt ? md_pool_take_empty(&slots->pool, &slot->session, &slot->end.error)
                                         : md_pool_take(&slots->pool, job->prompt, job->prompt_size, &slot->session,
                                                        &slot->end.cached_tokens, &slot->end.error);
    if (status != MD_OK) {
        slot->end.status = status;
        slot->end.overloaded = status == MD_E_MEMORY;
        md_count(&slots->metrics->failed, 1);
        md_job_finish(job, &slot->end);
        md_job_group_unref(job->group);
        memset(slot, 0, sizeof *slot);
        return true;
    }
    slot->state = MD_SLOT_PREFILL;
    return true;
}

// Ends the slot's job with what slot->end says. `sound`: its session may serve again.
static void release(md_slots *slots, md_slot *slot, bool sound) {
    md_metrics *metrics = slots->metrics;
    const md_job_end *end = &slot->end;
    md_generation_close(slot->generation);
    if (sound)
        md_pool_give(&slots->pool, slot->session);
    else
        md_pool_discard(&slots->pool, slot->session);
    uint64_t ms = md_clock_ms() - slot->job->submitted_ms;
    md_count(&metrics->prompt_tokens, end->prompt_tokens);
    md_count(&metrics->cached_tokens, end->cached_tokens);
    if (end->status == MD_OK) {
        md_histogram_add(&metrics->request_time, ms);
        slots->mean_ms = slots->mean_ms == 0 ? (double)ms : 0.8 * slots->mean_ms + 0.2 * (double)ms;
    } else if (end->status == MD_E_CANCELLED) {
        md_count(&metrics->cancelled, 1);
    } else {
        md_count(&metrics->failed, 1);
        md_log(MD_LOG_ERROR, "a request failed: %s", end->error.message);
    }
    md_job_finish(slot->job, end);
    md_job_group_unref(slot->job->group);
    memset(slot, 0, sizeof *slot);
}

static void fail(md_slots *slots, md_slot *slot, md_status status, const md_error *err, bool sound) {
    slot->end.status = status;
    slot->end.error = *err;
    release(slots, slot, sound);
}

void md_slots_free(md_slots *slots) {
    for (uint32_t i = 0; i < slots->count; i++) {
        md_slot *slot = &slots->slot[i];
        if (slot->state == MD_SLOT_FREE) continue;
        md_error err;
        md_fail(&err, MD_E_CANCELLED, "the server is shutting down");
        slot->end.overloaded = true;
        fail(slots, slot, MD_E_CANCELLED, &err, true);
    }
    md_pool_free(&slots->pool);
}

void md_slots_drop(md_slots *slots) {
    uint64_t now = md_clock_ms();
    for (uint32_t i = 0; i < slots->count; i++) {
        md_slot *slot = &slots->slot[i];
        if (slot->state == MD_SLOT_FREE) continue;
        md_error err;
        if (md_job_is_cancelled(slot->job)) {
            md_fail(&err, MD_E_CANCELLED, "the client went away");
            fail(slots, slot, MD_E_CANCELLED, &err, true);
        } else if (slot->job->deadline_ms && now >= slot->job->deadline_ms) {
            md_fail(&err, MD_E_TIMEOUT, "the request took too long");
            fail(slots, slot, MD_E_TIMEOUT, &err, true);
        }
    }
}

// ---- prefill ---------------------------------------------------------------------------------------------------

// The slot in prefill that came first; NULL: none.
static md_slot *next_prefill(md_slots *slots) {
    md_slot *next = NULL;
    for (uint32_t i = 0; i < slots->count; i++) {
        md_slot *slot = &slots->slot[i];
        if (slot->state == MD_SLOT_PREFILL && (!next || slot->order < next->order)) next = slot;
    }
    return next;
}

static bool anyone_decodes(const md_slots *slots) {
    for (uint32_t i = 0; i < slots->count; i++)
        if (slots->slot[i].state == MD_SLOT_DECODE || slots->slot[i].state == MD_SLOT_FEED) return true;
    return false;
}

typedef struct scoring {
    md_job *job;
    uint32_t vocab;
    md_status status;
    md_error *err;
} scoring;

static md_status deliver_scored(scoring *s, uint32_t at, double logprob, const md_logprob *top) {
    md_token token = {.id = s->job->prompt[at], .logprob = logprob};
    token.top = top;
    token.top_count = top ? s->job->params.top_logprobs : 0;
    return md_job_deliver(s->job, &(md_piece){.text = "", .tokens = &token, .token_count = 1}, s->err);
}

// The logits after a prompt's token say how likely the next one was.
static bool on_prompt_logits(void *user, uint32_t position, const float *logits) {
    scoring *s = user;
    md_logprob top[MD_TOP_LOGPROBS_MAX];
    uint32_t next = position + 1, tops = s->job->params.top_logprobs;
    double logprob;
    if (position == 0) s->status = deliver_scored(s, 0, NAN, NULL);
    if (s->status != MD_OK || next == s->job->prompt_size) return s->status == MD_OK;
    s->status = md_logprobs(logits, s->vocab, s->job->prompt[next], tops, top, &logprob, s->err);
    if (s->status == MD_OK) s->status = deliver_scored(s, next, logprob, top);
    return s->status == MD_OK;
}

// One step of the prompt. *left: tokens that are still missing.
static md_status advance(md_slots *slots, md_slot *slot, uint32_t *left, md_error *err) {
    md_job *job = slot->job;
    uint32_t most = slots->served->info.max_columns;
    if (!job->score_prompt) return md_session_advance(slot->session, slots->served->info.prompt_columns, left, err);
    uint32_t done = md_session_position(slot->session), missing = (uint32_t)job->prompt_size - done;
    if (most > missing) most = missing;
    scoring s = {job, slots->served->info.vocab, MD_OK, err};
    md_status status = md_session_feed_each(slot->session, job->prompt + done, most, on_prompt_logits, &s, err);
    *left = missing - most;
    return s.status != MD_OK ? s.status : status;
}

// At least one step, and more until the slice's time is over. A prompt that is complete begins to decode.
void md_slots_prefill(md_slots *slots) {
    uint64_t until = md_clock_ms() + (anyone_decodes(slots) ? SLICE_SHARED_MS : SLICE_ALONE_MS);
    do {
        md_slot *slot = next_prefill(slots);
        if (!slot) return;
        if (md_job_is_cancelled(slot->job)) return; // md_slots_drop comes next time
        md_error err;
        uint32_t left;
        md_status status = advance(slots, slot, &left, &err);
        if (status != MD_OK) {
            fail(slots, slot, status, &err, false);
            continue;
        }
        if (left) continue;
        if (slot->job->prompt_only) {
            slot->end.finish = MD_FINISH_LENGTH;
            release(slots, slot, true);
            continue;
        }
        status = md_generation_open(slot->session, &slot->job->params, &slot->generation, &err);
        if (status != MD_OK) {
            fail(slots, slot, status, &err, true);
            continue;
        }
        slot->state = MD_SLOT_DECODE;
    } while (md_clock_ms() < until);
}

// ---- decode ----------------------------------------------------------------------------------------------------

static md_status deliver(md_slots *slots, md_slot *slot, const md_piece *piece, md_error *err) {
    md_job *job = slot->job;
    md_count(&slots->metrics->generated_tokens, 1);
    double now = md_clock_seconds();
    if (slot->end.completion_tokens++ == 0) {
        uint64_t ms = md_clock_ms() - job->submitted_ms;
        md_histogram_add(&slots->metrics->first_token_time, ms);
        slot->end.first_seconds = (double)ms / 1000;
        slot->first_at = now;
    }
    slot->end.decode_seconds = now - slot->first_at;
    return md_job_deliver(job, piece, err);
}

static md_status choose(md_slots *slots, md_slot *slot, md_piece *piece, md_error *err) {
    MD_TRY(md_generation_next(slot->generation, piece, err));
    if (slot->job->constraint) MD_TRY(md_constraint_accept(slot->job->constraint, piece->next, err));
    return deliver(slots, slot, piece, err);
}

void md_slots_choose(md_slots *slots) {
    for (uint32_t i = 0; i < slots->count; i++) {
        md_slot *slot = &slots->slot[i];
        if (slot->state != MD_SLOT_DECODE) continue;
        md_piece piece;
        md_error err;
        md_status status = choose(slots, slot, &piece, &err);
        if (status != MD_OK) {
            fail(slots, slot, status, &err, true);
        } else if (piece.finish != MD_FINISH_NONE) {
            slot->end.finish = piece.finish;
            release(slots, slot, true);
        } else {
            slot->token = piece.next;
            slot->state = MD_SLOT_FEED;
        }
    }
}

// A slot while its tokens are computed.
typedef struct stepping {
    md_slots *slots;
    md_slot *slot;
    uint32_t before; // tokens it had
    md_finish finish;
    md_status status; // of delivering
    md_error err;
} stepping;

static bool on_piece(void *user, const md_piece *piece) {
    stepping *s = user;
    s->finish = piece->finish;
    s->status = deliver(s->slots, s->slot, piece, &s->err);
    return s->status == MD_OK && !md_job_is_cancelled(s->slot->job);
}

// What became of a slot after md_batch_generate. A step that fails ends the requests in it, not the server; what the
// engine left in their sessions is not trusted.
static void stepped(stepping *s, const md_batch_turn *turn, md_status status, const md_error *err) {
    bool sound = status == MD_OK;
    if (s->status != MD_OK) {
        fail(s->slots, s->slot, s->status, &s->err, sound);
    } else if (s->finish != MD_FINISH_NONE) { // its answer was whole before anything failed
        s->slot->end.finish = s->finish;
        release(s->slots, s->slot, sound);
    } else if (!sound) {
        fail(s->slots, s->slot, status, err, false);
    } else if (turn->error.code != MD_OK) {
        fail(s->slots, s->slot, turn->error.code, &turn->error, true);
    } else {
        s->slot->token = turn->token;
        s->slot->state = turn->choose ? MD_SLOT_DECODE : MD_SLOT_FEED;
    }
}

static void step_some(md_slots *slots, md_slot **of, uint32_t n) {
    md_batch_turn turns[MD_PARALLEL_MAX];
    stepping steppings[MD_PARALLEL_MAX];
    uint32_t most = next_prefill(slots) ? 1 : TOKENS_TOGETHER, steps = 0, columns = 0;
    md_error err;
    for (uint32_t i = 0; i < n; i++) {
        steppings[i] = (stepping){.slots = slots, .slot = of[i], .before = of[i]->end.completion_tokens};
        turns[i] = (md_batch_turn){
            .generation = of[i]->generation, .token = of[i]->token, .on_piece = on_piece, .user = &steppings[i]};
    }
    md_status status = md_batch_generate(slots->served->model, turns, n, most, &err);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t took = of[i]->end.completion_tokens - steppings[i].before + turns[i].choose;
        columns += took;
        if (took > steps) steps = took;
        stepped(&steppings[i], &turns[i], status, &err);
    }
    md_count(&slots->metrics->steps, steps);
    md_count(&slots->metrics->columns, columns);
}

void md_slots_step(md_slots *slots) {
    md_slot *of[MD_PARALLEL_MAX];
    uint32_t most = slots->served->info.max_columns, n = 0;
    for (uint32_t i = 0; i < slots->count; i++) {
        if (slots->slot[i].state == MD_SLOT_FEED) of[n++] = &slots->slot[i];
        bool last = i + 1 == slots->count;
        if (n == 0 || (n < most && !last)) continue;
        step_some(slots, of, n);
        n = 0;
    }
}
