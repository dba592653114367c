// Where a step's time goes on the CPU: each worker's clock, read before and behind each stage.
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"

md_status md_cpu_account_open(md_cpu_engine *e, md_error *err) {
    size_t bytes = e->workers * sizeof *e->clock;
    e->clock = aligned_alloc(_Alignof(md_cpu_clock), bytes);
    if (!e->clock) return md_fail(err, MD_E_MEMORY, "out of memory for the clocks of %u workers", e->workers);
    memset(e->clock, 0, bytes);
    return MD_OK;
}

void md_cpu_account_begin(md_cpu_engine *e) {
    if (!e->clock) return;
    double now = md_clock_seconds();
    for (uint32_t w = 0; w < e->workers; w++) e->clock[w].last = now;
}

void md_cpu_account_embed(md_cpu_engine *e) {
    if (!e->clock) return;
    double now = md_clock_seconds();
    for (uint32_t w = 0; w < e->workers; w++) {
        (w ? e->clock[w].wait : e->clock[w].work)[MD_STAGE_EMBED] += now - e->clock[w].last;
        e->clock[w].last = now;
    }
}

md_status md_cpu_account(md_engine *engine, md_account *out, md_error *err) {
    md_cpu_engine *e = (md_cpu_engine *)engine;
    if (!e->clock) return md_fail(err, MD_E_USAGE, "account: the model was not opened with it");
    md_team_late late;
    pthread_mutex_lock(&e->lock);
    if (!md_team_settle(e->team, e->deadline_ms, &late)) { // whoever is late in an abandoned step may still write
        pthread_mutex_unlock(&e->lock);
        return md_cpu_late(e, &late, err);
    }
    *out = (md_account){.steps = e->account_steps, .kinds = MD_STAGE_KIND_COUNT};
    for (uint32_t s = 0; s < engine->plan->stage_count; s++) out->stage[engine->plan->stage[s].kind].stages++;
    double each = out->steps ? 1e3 / (double)out->steps : 0; // milliseconds a step for each second
    for (uint32_t k = 0; k < MD_STAGE_KIND_COUNT; k++) {
        md_stage_time *stage = &out->stage[k];
        stage->kind = md_stage_name((md_stage_kind)k);
        for (uint32_t w = 0; w < e->workers; w++) {
            double work = e->clock[w].work[k] * each;
            stage->handoff += e->clock[w].wait[k] * each / e->workers;
            stage->arithmetic += work / e->workers;
            if (work > stage->slowest) stage->slowest = work;
        }
    }
    memset(e->clock, 0, e->workers * sizeof *e->clock);
    e->account_steps = 0;
    pthread_mutex_unlock(&e->lock);
    return MD_OK;
}
