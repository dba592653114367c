// What an engine holds: the arena, packed by the team so that every worker touches its own run first; norms and
// additive biases in the order the kernels want; the vectors of a step and each worker's scratch. Nothing is allocated
// later, except where a longer context asks for more attention scratch.
#include <stdatomic.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "base/checked.h"

typedef struct pack_job {
    md_cpu_engine *e;
    md_engine_options options;
    _Atomic bool stop;
    md_error result[]; // [workers]
} pack_job;

// One worker's run, stage by stage. Worker 0 is the calling thread and reports progress for all: the runs are equal.
static void pack_run(void *context, uint32_t worker) {
    pack_job *job = context;
    const md_engine_options *options = &job->options;
    uint32_t stages = job->e->base.plan->stage_count;
    for (uint32_t s = 0; s < stages; s++) {
        if (atomic_load_explicit(&job->stop, memory_order_relaxed)) return; // relaxed: only ends the work sooner
        md_status status = md_pack_stage(job->e->layout, s, worker, job->e->arena.at, &job->result[worker]);
        if (status == MD_OK && worker == 0 && options->progress &&
            !options->progress(options->progress_user, (s + 1.0) / stages))
            status = md_fail(&job->result[0], MD_E_CANCELLED, "loading was cancelled");
        if (status == MD_OK) continue;
        job->result[worker].code = status;
        atomic_store_explicit(&job->stop, true, memory_order_relaxed); // relaxed: as above
        return;
    }
}

// A run that is given up leaves a worker that may still use the job: it is then left to that worker, not freed.
static md_status pack_arena(md_cpu_engine *e, const md_engine_options *options, md_error *err) {
    MD_TRY(md_pages_alloc(&e->arena, e->layout->arena_bytes, true, "weights", err));
    pack_job *job = calloc(1, sizeof *job + e->workers * sizeof *job->result);
    if (!job) return md_fail(err, MD_E_MEMORY, "out of memory");
    job->e = e;
    job->options = *options;
    md_team_late late;
    if (!md_team_run(e->team, pack_run, job, MD_CPU_LOAD_DEADLINE_MS, &late)) return md_cpu_late(e, &late, err);
    md_status status = MD_OK;
    for (uint32_t w = 0; status == MD_OK && w < e->workers; w++)
        if (job->result[w].code != MD_OK) status = md_fail(err, job->result[w].code, "%s", job->result[w].message);
    free(job);
    return status;
}

static md_status load_vector(const md_tensor *tensor, float **out, md_error *err) {
    *out = aligned_alloc(64, md_round_up(tensor->cols * sizeof **out, 64));
    if (!*out) return md_fail(err, MD_E_MEMORY, "%s: out of memory", tensor->name);
    for (uint64_t i = tensor->cols; i < md_round_up(tensor->cols, 16); i++) (*out)[i] = 0;
    return md_tensor_read_f32(tensor, 0, 1, *out, err);
}

// An additive bias in the order of the tiles' lanes.
static md_status load_bias(const md_matrix *matrix, const md_row_map *map, float **out, md_error *err) {
    float *rows = NULL;
    uint32_t tiles = md_row_map_tiles(map);
    md_status status = load_vector(&matrix->bias, &rows, err);
    if (status == MD_OK) {
        *out = calloc((size_t)tiles * MD_TILE_ROWS, sizeof **out);
        if (!*out) status = md_fail(err, MD_E_MEMORY, "%s: out of memory for its bias", matrix->path);
    }
    for (uint32_t i = 0; status == MD_OK && i < tiles * MD_TILE_ROWS; i++) {
        int32_t row = md_row_map_row(map, i / MD_TILE_ROWS, i % MD_TILE_ROWS);
        if (row != MD_NO_ROW) (*out)[i] = rows[row];
    }
    free(rows);
    return status;
}

static md_status load_stages(md_cpu_engine *e, md_error *err) {
    const md_plan *plan = e->base.plan;
    e->stage = calloc(plan->stage_count, sizeof *e->stage);
    e->skip = calloc(plan->stage_count, 1);
    if (!e->stage || !e->skip) return md_fail(err, MD_E_MEMORY, "out of memory for %u stages", plan->stage_count);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const md_stage *stage = &plan->stage[s];
        if (stage->norm) MD_TRY(load_vector(stage->norm, &e->stage[s].norm, err));
        for (uint32_t m = 0; m < stage->matrix_count; m++)
            if (stage->matrix[m]->has_bias)
                MD_TRY(load_bias(stage->matrix[m], &e->layout->stage[s].map[m], &e->stage[s].bias[m], err));
    }
    return MD_OK;
}

// Hands out 64-byte aligned parts of one block; with base NULL only counts.
static void *take(uint8_t *base, uint64_t *at, uint64_t bytes) {
    void *part = base ? base + *at : NULL;
    *at += md_round_up(bytes, 64);
    return part;
}

static uint64_t lay_vectors(md_cpu_engine *e, uint8_t *base) {
    const uint64_t columns = MD_CPU_MAX_COLUMNS;
    uint64_t at = 0;
    e->x = take(base, &at, columns * e->hidden_stride * 2);
    e->q = take(base, &at, columns * e->q_stride * 2);
    e->key = take(base, &at, columns * e->kv_stride * 2);
    e->value = take(base, &at, columns * e->kv_stride * 2);
    e->attn = take(base, &at, columns * e->q_stride * 2);
    e->act = take(base, &at, columns * e->ffn_stride * 2);
    e->cosine = take(base, &at, columns * e->half_stride * 4);
    e->sine = take(base, &at, columns * e->half_stride * 4);
    e->logits = take(base, &at, columns * e->vocab_stride * 2);
    return at;
}

static uint64_t lay_scratch(const md_cpu_engine *e, md_cpu_scratch *scratch, uint8_t *base) {
    const md_snapshot *model = e->base.snapshot;
    const uint64_t columns = MD_CPU_MAX_COLUMNS;
    uint64_t widest = md_max_u64(md_max_u64(e->hidden_stride, e->ffn_stride), e->q_stride);
    uint64_t heads = model->q_heads / model->kv_heads, at = 0;
    scratch->rows = take(base, &at, columns * widest * 2);
    scratch->x = take(base, &at, columns * (widest + 2) * 4 + heads * 64);
    scratch->ints.x = take(base, &at, columns * widest * 2);
    scratch->ints.unit = take(base, &at, columns * (widest / 64 + 1) * 4);
    scratch->ints.sums = take(base, &at, columns * (widest / 32 + 1) * 4);
    for (int i = 0; i < 3; i++) scratch->sums[i] = take(base, &at, columns * (widest / 32 + 1) * 4);
    for (int i = 0; i < 2; i++) scratch->out[i] = take(base, &at, MD_ACT_BLOCK * 16 * 4);
    scratch->scores = take(base, &at, heads * MD_ATTN_BLOCK * 4);
    scratch->o = take(base, &at, heads * e->dim * 4);
    scratch->accumulator = take(base, &at, (uint64_t)e->dim * 4);
    scratch->m = take(base, &at, columns * heads * 4);
    scratch->l = take(base, &at, columns * heads * 4);
    scratch->embed = take(base, &at, 2 * (uint64_t)model->hidden * 4);
    return at;
}

static md_status alloc_vectors(md_cpu_engine *e, md_error *err) {
    const md_snapshot *model = e->base.snapshot;
    e->hidden_stride = (uint32_t)md_round_up(model->hidden, 16);
    e->q_stride = (uint32_t)md_round_up((uint64_t)model->q_heads * model->head_dim, 16);
    e->kv_stride = (uint32_t)md_round_up((uint64_t)model->kv_heads * model->head_dim, 16);
    e->ffn_stride = (uint32_t)md_round_up(model->ffn, 16);
    e->vocab_stride = (uint32_t)md_round_up(model->vocab, 16);
    e->half_stride = (uint32_t)md_round_up(model->head_dim / 2, 16);
    e->dim = (uint32_t)md_round_up(model->head_dim, 16);
    MD_TRY(md_pages_alloc(&e->vectors, lay_vectors(e, NULL), false, "vectors of a step", err));
    lay_vectors(e, e->vectors.at);
    e->scratch = calloc(e->workers, sizeof *e->scratch);
    if (!e->scratch) return md_fail(err, MD_E_MEMORY, "out of memory for %u workers", e->workers);
    for (uint32_t w = 0; w < e->workers; w++) {
        md_cpu_scratch *scratch = &e->scratch[w];
        MD_TRY(md_pages_alloc(&scratch->pages, lay_scratch(e, scratch, NULL), false, "a worker's scratch", err));
        lay_scratch(e, scratch, scratch->pages.at);
    }
    return MD_OK;
}

md_status md_cpu_load(md_cpu_engine *e, const md_engine_options *options, md_error *err) {
    MD_TRY(load_stages(e, err));
    MD_TRY(md_matrix_check_scales(&e->base.snapshot->embed, err)); // its rows are read when their tokens come
    MD_TRY(alloc_vectors(e, err));
    return pack_arena(e, options, err);
}

void md_cpu_unload(md_cpu_engine *e) {
    for (uint32_t s = 0; e->stage && s < e->base.plan->stage_count; s++) {
        free(e->stage[s].norm);
        for (uint32_t m = 0; m < 3; m++) free(e->stage[s].bias[m]);
    }
    for (uint32_t w = 0; e->scratch && w < e->workers; w++) md_pages_free(&e->scratch[w].pages);
    free(e->stage);
    free(e->skip);
    free(e->scratch);
    md_pages_free(&e->vectors);
    md_pages_free(&e->partials);
    md_pages_free(&e->scores);
    md_pages_free(&e->statistics);
    md_pages_free(&e->weights);
    md_pages_free(&e->arena);
}
