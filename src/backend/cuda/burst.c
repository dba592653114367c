// Many tokens a launch: the kernel chooses each next token itself and writes it to pinned memory as it comes; the host
// hands tokens on while the kernel runs, and can ask it to stop.
#include <sched.h>
#include <string.h>

#include "backend/cuda/engine.h"

enum { TOKENS_A_LAUNCH = 32, STEPS_DONE = 0, CANCEL = 1, FIRST_TOKEN = 2 };
enum { GRAPH_TOKENS = 1000 }; // of steps that follow each other unseen: the mailbox holds them

// One launch, as the host follows it.
typedef struct launch {
    md_cuda_engine *engine;
    md_burst *burst;
    uint32_t steps, seen; // of the launch; of them, handed on
    bool go_on;           // no column has ended
} launch;

// The mailbox is shared with the device: words are read and written whole.
static uint32_t mailbox_read(const md_cuda_engine *engine, uint32_t word) {
    return __atomic_load_n(&engine->mailbox[word], __ATOMIC_ACQUIRE); // pairs with the kernel's st.release.sys
}
static void mailbox_write(md_cuda_engine *engine, uint32_t word, uint32_t value) {
    __atomic_store_n(&engine->mailbox[word], value, __ATOMIC_RELAXED); // a wish; orders nothing
}

static bool is_stop(const md_burst_column *column, uint32_t token) {
    for (uint32_t i = 0; i < column->stop_count; i++)
        if (column->stop[i] == token) return true;
    return false;
}

// Hands on the tokens that have come since. A caller that wants no more ends the launch: the kernel sees it at its next
// token.
static void hand_on(launch *l) {
    md_cuda_engine *engine = l->engine;
    uint32_t done = mailbox_read(engine, STEPS_DONE), count = l->burst->count;
    for (; l->go_on && l->seen < done; l->seen++) {
        const uint32_t *tokens = engine->mailbox + FIRST_TOKEN + l->seen * count;
        bool cancel = false;
        for (uint32_t c = 0; c < count; c++) {
            md_burst_column *column = &l->burst->column[c];
            column->undecided = tokens[c] == MD_CUDA_UNDECIDED;
            if (column->undecided) {
                l->go_on = false;
                continue;
            }
            column->last = tokens[c];
            column->produced++;
            if (column->on_token && !column->on_token(column->user, column->last)) cancel = true;
            if (is_stop(column, column->last)) l->go_on = false;
        }
        if (!cancel) continue;
        l->go_on = false;
        mailbox_write(engine, CANCEL, 1);
    }
}

// Waits for the launch, handing on tokens.
static md_status watch(launch *l, md_error *err) {
    for (;;) {
        CUresult result = l->engine->cu->cuStreamQuery(l->engine->stream);
        hand_on(l);
        if (result != CU_ERROR_NOT_READY) break;
        sched_yield();
    }
    MD_TRY(md_cuda_finish(l->engine, err));
    hand_on(l);
    return MD_OK;
}

// The columns' stop tokens, each once, with the columns it stops.
static md_status fill_stops(const md_burst *burst, md_cuda_params *params, md_error *err) {
    for (uint32_t c = 0; c < burst->count; c++)
        for (uint32_t i = 0; i < burst->column[c].stop_count; i++) {
            uint32_t token = burst->column[c].stop[i], k = 0;
            while (k < params->stop_count && params->stop[k] != token) k++;
            if (k == MD_CUDA_MAX_STOPS)
                return md_fail(err, MD_E_USAGE, "over %d different stop tokens", MD_CUDA_MAX_STOPS);
            if (k == params->stop_count) params->stop[params->stop_count++] = token;
            params->stop_columns[k] |= (uint8_t)(1u << c);
        }
    return MD_OK;
}

static md_cuda_choice choice_of(const md_burst_column *column) {
    const md_choice *choice = &column->choice;
    if (!choice->sampled) return (md_cuda_choice){.sampled = 0};
    bool all = !choice->top_k || choice->top_k > MD_CUDA_CANDIDATES;
    return (md_cuda_choice){.per_unit = choice->per_unit,
                            .top_p = choice->top_p,
                            .least_weight = choice->least_weight,
                            .seed = choice->seed,
                            .draw = choice->draw + column->produced,
                            .top_k = choice->top_k,
                            .candidates = all ? MD_CUDA_CANDIDATES : choice->top_k,
                            .all = all,
                            .sampled = 1};
}

// Fills in the columns where they stand now; the result: for how many steps every cache has room.
static uint32_t fill_columns(const md_burst *burst, md_cuda_params *params) {
    uint32_t room = UINT32_MAX;
    params->columns = burst->count;
    params->sampled = 0;
    for (uint32_t c = 0; c < burst->count; c++) {
        const md_burst_column *column = &burst->column[c];
        const md_cuda_kv *kv = (const md_cuda_kv *)column->kv;
        uint32_t position = column->position + column->produced;
        if (room > kv->context - position) room = kv->context - position;
        params->col[c] =
            (md_cuda_col){.kv = kv->layers, .position = position, .token = column->last, .home = kv->home, .logits = 1};
        params->choice[c] = choice_of(column);
        params->sampled |= params->choice[c].sampled;
    }
    params->next = params->sampled ? MD_CUDA_NEXT : MD_CUDA_NEXT_BEST | MD_CUDA_NEXT_TOKEN;
    return room;
}

static md_status check_burst(md_cuda_engine *engine, md_burst *burst, md_error *err) {
    md_column columns[MD_CUDA_COLUMNS];
    uint32_t widest = engine->width[engine->width_count - 1].columns;
    for (uint32_t c = 0; c < burst->count; c++) {
        md_burst_column *column = &burst->column[c];
        column->produced = 0, column->last = column->token, column->undecided = false;
        if (c < MD_CUDA_COLUMNS)
            columns[c] = (md_column){.kv = column->kv, .position = column->position, .token = column->token};
        for (uint32_t i = 0; i < c; i++)
            if (burst->column[i].kv == column->kv)
                return md_fail(err, MD_E_USAGE, "burst: columns %u and %u have one cache", i, c);
    }
    MD_TRY(md_step_check(&engine->base, columns, burst->count, widest, err));
    for (uint32_t c = 0; c < burst->count; c++)
        MD_TRY(md_column_check_context(&columns[c], ((const md_cuda_kv *)columns[c].kv)->context, err));
    return MD_OK;
}

static bool wants_logits(const md_burst_column *column) { return column->undecided && column->logits; }

// The logits of the columns that the host has to choose for.
static md_status fetch_undecided(md_cuda_engine *engine, const md_burst *burst, md_error *err) {
    for (uint32_t c = 0; c < burst->count; c++)
        if (wants_logits(&burst->column[c])) MD_TRY(md_cuda_logits_ask(engine, c, err));
    MD_TRY(MD_CU_OR_LOST(engine, cuStreamSynchronize(engine->stream), "reading the logits"));
    for (uint32_t c = 0; c < burst->count; c++)
        if (wants_logits(&burst->column[c])) md_cuda_logits_take(engine, c, burst->column[c].logits);
    return MD_OK;
}

md_status md_cuda_burst(md_engine *base, md_burst *burst, md_error *err) {
    md_cuda_engine *engine = md_cuda_of(base);
    md_cuda_width *width = &engine->width[burst->count == 1 ? 0 : engine->width_count - 1];
    md_cuda_params params;
    launch l = {.engine = engine, .burst = burst, .go_on = true};
    MD_TRY(check_burst(engine, burst, err));
    MD_TRY(md_cuda_enter(engine, err));
    MD_TRY(md_cuda_width_open(engine, width, err));
    md_cuda_params_fill(engine, &params);
    params.stage_end = base->plan->stage_count;
    params.mailbox = engine->mailbox_at;
    MD_TRY(fill_stops(burst, &params, err));
    for (uint32_t done = 0; l.go_on && done < burst->max_tokens; done += l.steps) {
        l.steps = engine->resident ? TOKENS_A_LAUNCH : engine->graph.on ? GRAPH_TOKENS / burst->count : 1, l.seen = 0;
        if (l.steps > burst->max_tokens - done) l.steps = burst->max_tokens - done;
        uint32_t room = fill_columns(burst, &params);
        if (room == 0) break;
        if (l.steps > room) l.steps = room;
        params.tokens = engine->resident ? l.steps : 1;
        MD_TRY(md_cuda_epoch_take(engine, l.steps, &params.epoch, err));
        mailbox_write(engine, STEPS_DONE, 0);
        mailbox_write(engine, CANCEL, 0);
        MD_TRY(engine->graph.on ? md_cuda_graph_steps(engine, width, &params, l.steps, err)
                                : md_cuda_launch_step(engine, width, &params, err));
        MD_TRY(watch(&l, err));
        engine->account_steps += mailbox_read(engine, STEPS_DONE);
    }
    return fetch_undecided(engine, burst, err);
}
