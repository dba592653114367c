// Opening a CPU engine, its caches, and the step.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/level.h"
#include "base/bf16.h"
#include "base/fpmode.h"
#include "base/mathx.h"
#include "model/rope.h"

static const char *phase_name(const md_cpu_engine *e, uint32_t phase, char buffer[48]) {
    if (phase == MD_TEAM_END) return "the end of the step";
    if (phase == MD_TEAM_START) return "the start";
    const md_stage *stage = &e->base.plan->stage[phase];
    snprintf(buffer, 48, "%s of layer %d", md_stage_name(stage->kind), (int)stage->layer);
    return buffer;
}

static const char *progress_name(uint32_t barriers, char buffer[48]) {
    if (barriers == MD_TEAM_END) return "the end";
    snprintf(buffer, 48, "barrier %u", barriers);
    return buffer;
}

md_status md_cpu_late(const md_cpu_engine *e, const md_team_late *late, md_error *err) {
    char at[48], last[48], expected[48], seen[48];
    return md_fail(err, MD_E_TIMEOUT,
                   "worker %u waited %u ms at %s for worker %u: expected %s, seen %s (its last: %s); the step is void",
                   late->worker, late->waited_ms, phase_name(e, late->phase, at), late->late,
                   progress_name(late->expected, expected), progress_name(late->seen, seen),
                   phase_name(e, late->late_phase, last));
}

// ---- the step ----------------------------------------------------------------------------------------------------

static void run_resident(void *context, uint32_t worker) {
    md_cpu_engine *e = context;
    uint64_t mode = md_fpmode_enter();
    uint32_t stages = e->base.plan->stage_count;
    bool first = true;
    for (uint32_t s = 0; s < stages; s++) {
        if (e->skip[s]) continue;
        if (!first && !md_team_barrier(e->team, worker, s)) break; // everyone has finished the stage before
        first = false;
        md_cpu_spent(e, worker, s, true);
        md_cpu_run_stage(e, s, worker);
        md_cpu_spent(e, worker, s, false);
    }
    md_fpmode_leave(mode);
}

static void run_one_stage(void *context, uint32_t worker) {
    md_cpu_engine *e = context;
    uint64_t mode = md_fpmode_enter();
    md_cpu_spent(e, worker, e->current_stage, true);
    md_cpu_run_stage(e, e->current_stage, worker);
    md_cpu_spent(e, worker, e->current_stage, false);
    md_fpmode_leave(mode);
}

static bool dispatch_step(md_cpu_engine *e, md_team_late *late) {
    if (e->resident) return md_team_run(e->team, run_resident, e, e->deadline_ms, late);
    for (uint32_t s = 0; s < e->base.plan->stage_count; s++) {
        if (e->skip[s]) continue;
        e->current_stage = s;
        if (!md_team_run(e->team, run_one_stage, e, e->deadline_ms, late)) return false;
    }
    return true;
}

// The step's columns, grouped into sequences (md_step_check: columns of one cache stand together).
static void set_columns(md_cpu_engine *e, const md_column *columns, uint32_t count) {
    memcpy(e->column, columns, count * sizeof *columns);
    e->count = count;
    e->sequences = 0;
    e->wanted_count = 0;
    e->deep = false;
    for (uint32_t c = 0; c < count; c++) {
        if (columns[c].logits) e->wanted[e->wanted_count++] = c;
        md_cpu_kv *kv = (md_cpu_kv *)columns[c].kv;
        if (c == 0 || columns[c - 1].kv != columns[c].kv)
            e->sequence[e->sequences++] = (md_cpu_sequence){.kv = kv, .first = c, .position = columns[c].position};
        md_cpu_sequence *sequence = &e->sequence[e->sequences - 1];
        sequence->count++;
        sequence->blocks = columns[c].position / MD_ATTN_BLOCK + 1;
        e->deep |= sequence->blocks > 1;
    }
}

// Which stages have nothing to do in this step. The embedding is read by the caller.
static void set_skips(md_cpu_engine *e) {
    const md_plan *plan = e->base.plan;
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const md_stage *stage = &plan->stage[s];
        bool quantized = false, plain = false;
        for (uint32_t i = 0; stage->layer >= 0 && i < e->sequences; i++) {
            bool bits = e->sequence[i].kv->layer[stage->layer].shape.format.bits != 0;
            quantized |= bits;
            plain |= !bits;
        }
        switch (stage->kind) {
        case MD_STAGE_EMBED: e->skip[s] = 1; break;
        case MD_STAGE_ATTN_SCORES: e->skip[s] = !quantized; break;
        case MD_STAGE_ATTN: e->skip[s] = !plain && !e->deep; break;
        case MD_STAGE_ATTN_MERGE: e->skip[s] = !e->deep; break;
        case MD_STAGE_HEAD: e->skip[s] = e->wanted_count == 0; break;
        default: e->skip[s] = 0; break;
        }
    }
}

static void set_angles(md_cpu_engine *e) {
    for (uint32_t c = 0; c < e->count; c++) {
        float at = (float)e->column[c].position * e->rope_scale;
        size_t row = (size_t)c * e->half_stride;
        for (uint32_t i = 0; i < e->base.snapshot->head_dim / 2; i++)
            md_sincosf(at * e->inv_freq[i], &e->sine[row + i], &e->cosine[row + i]);
    }
}

static md_status prepare_step(md_cpu_engine *e, const md_column *columns, uint32_t count, md_error *err) {
    set_columns(e, columns, count);
    set_skips(e);
    uint64_t mode = md_fpmode_enter();
    set_angles(e);
    md_status status = MD_OK;
    for (uint32_t c = 0; c < count && status == MD_OK; c++) status = md_cpu_embed(e, c, err);
    md_fpmode_leave(mode);
    return status;
}

// Frees caches that were closed while a worker of an abandoned step could still touch them. The team has settled.
static void free_stuck(md_cpu_engine *e) {
    while (e->stuck) {
        md_cpu_kv *next = e->stuck->next;
        md_cpu_kv_free(e->stuck);
        e->stuck = next;
    }
}

static md_status settle(md_cpu_engine *e, md_error *err) {
    md_team_late late;
    if (!md_team_settle(e->team, e->deadline_ms, &late)) return md_cpu_late(e, &late, err);
    free_stuck(e);
    return MD_OK;
}

static md_status locked_step(md_cpu_engine *e, const md_column *columns, uint32_t count, md_error *err) {
    MD_TRY(settle(e, err));
    md_cpu_account_begin(e);
    MD_TRY(prepare_step(e, columns, count, err));
    md_cpu_account_embed(e);
    md_team_late late;
    if (!dispatch_step(e, &late)) return md_cpu_late(e, &late, err);
    e->account_steps++;
    for (uint32_t i = 0; i < e->sequences; i++) {
        md_cpu_sequence *sequence = &e->sequence[i];
        uint32_t end = sequence->position + sequence->count;
        if (sequence->kv->used < end) sequence->kv->used = end;
    }
    // Only now does the caller's memory get its logits: a late worker of an abandoned step must not write there.
    for (uint32_t i = 0; i < e->wanted_count; i++) {
        const uint16_t *from = e->logits + (size_t)e->wanted[i] * e->vocab_stride;
        float *to = e->column[e->wanted[i]].logits;
        for (uint32_t v = 0; v < e->base.snapshot->vocab; v++) to[v] = md_bf16_to_f32(from[v]);
    }
    return MD_OK;
}

static md_status cpu_step(md_engine *engine, const md_column *columns, uint32_t count, md_error *err) {
    md_cpu_engine *e = (md_cpu_engine *)engine;
    MD_TRY(md_step_check(engine, columns, count, MD_CPU_MAX_COLUMNS, err));
    for (uint32_t c = 0; c < count; c++)
        MD_TRY(md_column_check_context(&columns[c], ((const md_cpu_kv *)columns[c].kv)->context, err));
    pthread_mutex_lock(&e->lock);
    md_status status = locked_step(e, columns, count, err);
    pthread_mutex_unlock(&e->lock);
    return status;
}

// ---- caches ------------------------------------------------------------------------------------------------------

static md_status cpu_kv_open(md_engine *engine, uint32_t context, md_kv **out, md_error *err) {
    md_cpu_engine *e = (md_cpu_engine *)engine;
    *out = NULL;
    md_cpu_kv *kv;
    MD_TRY(md_cpu_kv_new(engine->snapshot, context, &kv, err));
    pthread_mutex_lock(&e->lock);
    md_status status = settle(e, err);
    if (status == MD_OK) status = md_cpu_attention_reserve(e, context, err);
    pthread_mutex_unlock(&e->lock);
    if (status != MD_OK) {
        md_cpu_kv_free(kv);
        return status;
    }
    *out = (md_kv *)kv;
    return MD_OK;
}

static void cpu_kv_close(md_engine *engine, md_kv *kv) {
    md_cpu_engine *e = (md_cpu_engine *)engine;
    md_team_late late;
    if (!kv) return;
    pthread_mutex_lock(&e->lock);
    if (md_team_settle(e->team, 0, &late)) {
        md_cpu_kv_free((md_cpu_kv *)kv);
    } else {
        ((md_cpu_kv *)kv)->next = e->stuck;
        e->stuck = (md_cpu_kv *)kv;
    }
    pthread_mutex_unlock(&e->lock);
}

static uint64_t cpu_kv_bytes(const md_engine *engine, const md_kv *kv) {
    (void)engine;
    return md_cpu_kv_size((const md_cpu_kv *)kv);
}

typedef struct convert_job {
    md_cpu_kv *kv;
    uint32_t positions, workers;
    md_cpu_kv_layer to[]; // [layers]; unmapped where a layer stays as it is
} convert_job;

static void convert_layers(void *context, uint32_t worker) {
    convert_job *job = context;
    uint64_t mode = md_fpmode_enter();
    for (uint32_t l = worker; l < job->kv->layers; l += job->workers)
        if (job->to[l].pages.at) md_cpu_kv_convert_layer(job->kv, l, &job->to[l], job->positions);
    md_fpmode_leave(mode);
}

static md_status convert(md_cpu_engine *e, convert_job *job, md_error *err) {
    md_team_late late;
    pthread_mutex_lock(&e->lock);
    md_status status = settle(e, err);
    if (status == MD_OK && !md_team_run(e->team, convert_layers, job, MD_CPU_LOAD_DEADLINE_MS, &late))
        status = md_cpu_late(e, &late, err);
    pthread_mutex_unlock(&e->lock);
    return status;
}

static md_status cpu_kv_quantize(md_engine *engine, md_kv *base, const md_kv_format *format, uint32_t positions,
                                 md_error *err) {
    md_cpu_engine *e = (md_cpu_engine *)engine;
    md_cpu_kv *kv = (md_cpu_kv *)base;
    if (positions > kv->context)
        return md_fail(err, MD_E_CONTEXT, "cannot quantize %u positions of a context of %u", positions, kv->context);
    MD_TRY(md_cpu_kv_check_formats(kv, format, err));
    convert_job *job = calloc(1, sizeof *job + kv->layers * sizeof *job->to);
    if (!job) return md_fail(err, MD_E_MEMORY, "out of memory for %u layers", kv->layers);
    job->kv = kv;
    job->positions = positions;
    job->workers = e->workers;
    md_cpu_kv_layer *to = job->to;
    md_status status = MD_OK;
    for (uint32_t l = 0; l < kv->layers && status == MD_OK; l++)
        if (format[l].bits && !kv->layer[l].shape.format.bits)
            status = md_cpu_kv_prepare_layer(kv, l, format[l], &to[l], err);
    if (status == MD_OK && positions) status = convert(e, job, err);
    if (status == MD_E_TIMEOUT) return status; // a late worker may still use the job: it is left to that worker
    for (uint32_t l = 0; l < kv->layers; l++) {
        if (!to[l].pages.at) continue;
        if (status == MD_OK) {
            md_pages_free(&kv->layer[l].pages);
            kv->layer[l] = to[l];
        } else {
            md_pages_free(&to[l].pages);
        }
    }
    free(job);
    return status;
}

static md_status cpu_kv_copy(md_engine *engine, md_kv *dst, const md_kv *src, uint32_t positions, md_error *err) {
    (void)engine;
    return md_cpu_kv_copy_into((md_cpu_kv *)dst, (const md_cpu_kv *)src, positions, err);
}

// ---- open and close ----------------------------------------------------------------------------------------------

static bool cpu_close(md_engine *engine) {
    md_cpu_engine *e = (md_cpu_engine *)engine;
    // A worker that never came back may still write into everything below: then it all stays.
    if (!md_team_close(e->team, e->deadline_ms)) return false;
    free_stuck(e);
    md_cpu_unload(e);
    md_layout_free(e->layout);
    free(e->inv_freq);
    free(e->clock);
    pthread_mutex_destroy(&e->lock);
    free(e);
    return true;
}

static void cpu_info(const md_engine *engine, md_engine_info *out) {
    const md_cpu_engine *e = (const md_cpu_engine *)engine;
    *out = (md_engine_info){.engine = e->resident ? "resident" : "ops",
                            .backend = "cpu",
                            .workers = e->workers,
                            .max_columns = MD_CPU_MAX_COLUMNS,
                            .weight_bytes = e->arena.bytes};
    snprintf(out->device, sizeof out->device, "%s, %u thread%s", e->k->name, e->workers, e->workers == 1 ? "" : "s");
}

static const md_engine_ops cpu_ops = {.close = cpu_close,
                                      .info = cpu_info,
                                      .kv_open = cpu_kv_open,
                                      .kv_close = cpu_kv_close,
                                      .kv_bytes = cpu_kv_bytes,
                                      .kv_quantize = cpu_kv_quantize,
                                      .kv_copy = cpu_kv_copy,
                                      .step = cpu_step,
                                      .account = md_cpu_account};

md_status md_cpu_open(const md_plan *plan, bool resident, const md_engine_options *options, md_engine **out,
                      md_error *err) {
    *out = NULL;
    md_topology topology;
    md_topology_read(&topology);
    uint32_t workers = options->groups ? options->groups : options->threads;
    if (!workers) workers = md_topology_default_threads(&topology);
    md_cpu_engine *e = calloc(1, sizeof *e);
    if (!e) return md_fail(err, MD_E_MEMORY, "out of memory");
    pthread_mutex_init(&e->lock, NULL);
    e->base = (md_engine){.ops = &cpu_ops, .snapshot = plan->snapshot, .plan = plan};
    e->resident = resident;
    e->workers = workers;
    e->deadline_ms = options->deadline_ms ? options->deadline_ms : MD_CPU_DEADLINE_MS;
    md_status status;
    MD_TRY_GOTO(md_cpu_level_select(&e->k, err));
    MD_TRY_GOTO(md_layout_build(plan, &md_codec_lanes, workers, &e->layout, err)); // bounds `workers`
    e->inv_freq = calloc(plan->snapshot->head_dim / 2 + 1, sizeof *e->inv_freq);
    if (!e->inv_freq) {
        status = md_fail(err, MD_E_MEMORY, "out of memory");
        goto fail;
    }
    if (options->account) MD_TRY_GOTO(md_cpu_account_open(e, err));
    md_rope_frequencies(&plan->snapshot->rope, plan->snapshot->head_dim, e->inv_freq, &e->rope_scale);
    MD_TRY_GOTO(md_team_open(workers, &topology, &e->team, err));
    MD_TRY_GOTO(md_cpu_load(e, options, err));
    *out = &e->base;
    return MD_OK;
fail:
    cpu_close(&e->base);
    return status;
}
