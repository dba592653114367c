// Where a step's time goes on the GPU: what the kernels have added up (SPENT in kernels/exchange.cuh), as milliseconds.
#include <stdlib.h>

#include "backend/cuda/engine.h"

_Static_assert((int)MD_CUDA_KINDS == (int)MD_STAGE_KIND_COUNT + 1, "the plan's kinds, and the choice of tokens");
_Static_assert((int)MD_CUDA_KINDS <= (int)MD_STAGE_KINDS_MAX, "the public account has room");

static uint64_t account_bytes(const md_cuda_engine *engine) {
    return MD_CUDA_ACCOUNT_WORDS(engine->groups) * sizeof(uint64_t);
}

md_status md_cuda_account_open(md_cuda_engine *engine, md_error *err) {
    MD_TRY(md_cuda_alloc(engine, account_bytes(engine), "the account", &engine->account, err));
    return md_cuda_fill(engine, engine->account, 0, account_bytes(engine), err);
}

// Milliseconds a cycle and step of a worker: all its cycles took as long as its launches did.
static double cycle_worth(const uint64_t *words, uint32_t groups, uint32_t worker, uint64_t steps) {
    const size_t spendings = MD_CUDA_KINDS * MD_CUDA_SPENDINGS;
    uint64_t cycles = 0, ns = words[spendings * groups + worker];
    for (size_t i = 0; i < spendings; i++) cycles += words[i * groups + worker];
    return cycles ? (double)ns * 1e-6 / ((double)cycles * (double)steps) : 0;
}

static void add_worker(md_account *out, const uint64_t *words, uint32_t groups, uint32_t worker) {
    double worth = cycle_worth(words, groups, worker, out->steps);
    for (uint32_t k = 0; k < MD_CUDA_KINDS; k++) {
        md_stage_time *stage = &out->stage[k];
        double own = 0;
        double *sums[MD_CUDA_SPENDINGS] = {&stage->setup, &stage->weights, &stage->handoff, &stage->arithmetic,
                                           &stage->out};
        for (uint32_t i = 0; i < MD_CUDA_SPENDINGS; i++) {
            double ms = (double)words[(size_t)(k * MD_CUDA_SPENDINGS + i) * groups + worker] * worth;
            *sums[i] += ms / groups;
            if (i != MD_CUDA_HANDOFF) own += ms;
        }
        if (own > stage->slowest) stage->slowest = own;
    }
}

md_status md_cuda_account(md_engine *base, md_account *out, md_error *err) {
    md_cuda_engine *engine = md_cuda_of(base);
    const md_plan *plan = base->plan;
    if (!engine->account_on) return md_fail(err, MD_E_USAGE, "account: the model was not opened with it");
    MD_TRY(md_cuda_enter(engine, err));
    uint64_t *words = malloc(account_bytes(engine));
    if (!words) return md_fail(err, MD_E_MEMORY, "out of memory for the account");
    md_status status =
        MD_CU_OR_LOST(engine, cuMemcpyDtoH(words, engine->account, account_bytes(engine)), "the account");
    if (status == MD_OK) status = md_cuda_fill(engine, engine->account, 0, account_bytes(engine), err);
    if (status == MD_OK) {
        *out = (md_account){.steps = engine->account_steps, .kinds = MD_CUDA_KINDS, .split = true};
        for (uint32_t s = 0; s < plan->stage_count; s++) out->stage[plan->stage[s].kind].stages++;
        for (uint32_t k = 0; k < MD_STAGE_KIND_COUNT; k++) out->stage[k].kind = md_stage_name((md_stage_kind)k);
        out->stage[MD_STAGE_KIND_COUNT].kind = "next";
        out->stage[MD_STAGE_KIND_COUNT].stages = 1;
        for (uint32_t w = 0; w < engine->groups && out->steps; w++) add_worker(out, words, engine->groups, w);
        engine->account_steps = 0;
    }
    free(words);
    return status;
}
