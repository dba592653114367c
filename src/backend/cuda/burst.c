// Many tokens a launch: the kernel chooses each next token itself and writes it to pinned memory as it comes; the host
// hands tokens on while the kernel runs, and can ask it to stop.
#include <sched.h>
#include <string.h>

#include "backend/cuda/engine.h"

enum { TOKENS_A_LAUNCH = 32, COUNT = 0, CANCEL = 1, FIRST_TOKEN = 2 };

// The mailbox is shared with the device: words are read and written whole.
static uint32_t mailbox_read(const md_cuda_engine *engine, uint32_t word) {
    return __atomic_load_n(&engine->mailbox[word], __ATOMIC_ACQUIRE); // pairs with the kernel's st.release.sys
}
static void mailbox_write(md_cuda_engine *engine, uint32_t word, uint32_t value) {
    __atomic_store_n(&engine->mailbox[word], value, __ATOMIC_RELAXED); // a wish; orders nothing
}

// Hands on the tokens that have come since; false when the caller wants no more.
static bool hand_on(md_cuda_engine *engine, md_burst *request, uint32_t *handed) {
    uint32_t count = mailbox_read(engine, COUNT);
    bool more = true;
    for (; more && *handed < count; (*handed)++) {
        request->last = engine->mailbox[FIRST_TOKEN + *handed];
        request->produced++;
        more = !request->on_token || request->on_token(request->user, request->last);
    }
    return more;
}

// Waits for the launch, handing on tokens. *more = false when the caller stopped.
static md_status watch(md_cuda_engine *engine, md_burst *request, uint32_t *handed, bool *more, md_error *err) {
    *more = true;
    for (;;) {
        CUresult result = engine->cu->cuStreamQuery(engine->stream);
        if (*more && !hand_on(engine, request, handed)) {
            mailbox_write(engine, CANCEL, 1);
            *more = false;
        }
        if (result != CU_ERROR_NOT_READY) break;
        sched_yield();
    }
    MD_TRY(md_cuda_finish(engine, err));
    if (*more) *more = hand_on(engine, request, handed);
    return MD_OK;
}

static bool is_stop(const md_burst *request, uint32_t token) {
    for (uint32_t i = 0; i < request->stop_count; i++)
        if (request->stop[i] == token) return true;
    return false;
}

md_status md_cuda_burst(md_engine *base, md_burst *request, md_error *err) {
    md_cuda_engine *engine = md_cuda_of(base);
    const md_cuda_kv *kv = (const md_cuda_kv *)request->kv;
    md_cuda_params params;
    request->produced = 0;
    if (request->stop_count > MD_CUDA_MAX_STOPS)
        return md_fail(err, MD_E_USAGE, "%u stop tokens, expected at most %d", request->stop_count, MD_CUDA_MAX_STOPS);
    MD_TRY(md_step_check(base, &(md_column){.kv = request->kv, .position = request->position, .token = request->token},
                         1, 1, err));
    MD_TRY(md_cuda_enter(engine, err));
    request->last = request->token;
    for (bool more = true; more && request->produced < request->max_tokens;) {
        uint32_t position = request->position + request->produced, steps = request->max_tokens - request->produced;
        if (steps > TOKENS_A_LAUNCH) steps = TOKENS_A_LAUNCH;
        if (!engine->resident) steps = 1;
        if (position >= kv->context) break;
        if (steps > kv->context - position) steps = kv->context - position;
        md_cuda_params_fill(engine, &params);
        params.col[0] = (md_cuda_col){.kv = kv->layers, .position = position, .token = request->last, .home = kv->home};
        params.columns = 1, params.tokens = steps, params.next = 1;
        params.stage_end = base->plan->stage_count;
        params.mailbox = engine->mailbox_at;
        params.stop_count = request->stop_count;
        memcpy(params.stop, request->stop, request->stop_count * sizeof *params.stop);
        MD_TRY(md_cuda_epoch_take(engine, steps, &params.epoch, err));
        mailbox_write(engine, COUNT, 0);
        mailbox_write(engine, CANCEL, 0);
        uint32_t handed = 0;
        MD_TRY(md_cuda_launch_step(engine, &engine->width[0], &params, err));
        MD_TRY(watch(engine, request, &handed, &more, err));
        if (handed < steps || is_stop(request, request->last)) break;
    }
    return MD_OK;
}
