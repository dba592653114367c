// The reference engine: walks the plan operator by operator, column by column, on the calling thread. Slow and plain.
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend/reference/kv.h"
#include "backend/reference/ops.h"
#include "backend/reference/reference.h"
#include "base/bf16.h"
#include "base/fpmode.h"
#include "model/rope.h"
#include "plan/check.h"

typedef struct ref_stage {
    md_ref_matrix matrix[3];
    float *norm; // owned
} ref_stage;

typedef struct ref_engine {
    md_engine base;
    pthread_mutex_t lock; // one step at a time: it has one set of vectors
    ref_stage *stage;     // [plan->stage_count]
    md_ref_matrix embed;
    float *inv_freq, rope_scale;                 // [head_dim / 2]
    float *x, *normed, *q, *k, *v, *attn, *proj; // one column's vectors
    float *gate, *up, *act, *row;                // row: scratch of products
    uint64_t weight_bytes;
} ref_engine;

static bool ref_close(md_engine *engine) {
    ref_engine *e = (ref_engine *)engine;
    for (uint32_t s = 0; e->stage && s < e->base.plan->stage_count; s++) {
        for (uint32_t m = 0; m < 3; m++) md_ref_matrix_free(&e->stage[s].matrix[m]);
        free(e->stage[s].norm);
    }
    md_ref_matrix_free(&e->embed);
    float *vectors[] = {e->inv_freq, e->x,    e->normed, e->q,  e->k,   e->v,
                        e->attn,     e->proj, e->gate,   e->up, e->act, e->row};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) free(vectors[i]);
    free(e->stage);
    pthread_mutex_destroy(&e->lock);
    free(e);
    return true;
}

static void ref_info(const md_engine *engine, md_engine_info *out) {
    const ref_engine *e = (const ref_engine *)engine;
    *out = (md_engine_info){.engine = "reference",
                            .backend = "cpu",
                            .device = "plain C, 1 thread",
                            .workers = 1,
                            .max_columns = MD_MAX_STEP_COLUMNS,
                            .prompt_columns = 1, // a token may take seconds: whoever waits can stop behind each
                            .weight_bytes = e->weight_bytes};
}

static void run_qkv(ref_engine *e, const ref_stage *stage, uint32_t layer, md_ref_kv *kv, uint32_t position) {
    const md_snapshot *model = e->base.snapshot;
    md_ref_rmsnorm(e->x, stage->norm, model->hidden, model->norm_eps, e->normed);
    md_ref_matmul(&stage->matrix[0], e->normed, e->q, e->row);
    md_ref_matmul(&stage->matrix[1], e->normed, e->k, e->row);
    md_ref_matmul(&stage->matrix[2], e->normed, e->v, e->row);
    md_ref_rope(e->q, model->q_heads, model->head_dim, position, e->inv_freq, e->rope_scale);
    md_ref_rope(e->k, model->kv_heads, model->head_dim, position, e->inv_freq, e->rope_scale);
    md_ref_kv_append(kv, layer, position, e->k, e->v);
}

static void run_attention(ref_engine *e, uint32_t layer, md_ref_kv *kv, uint32_t position) {
    const md_snapshot *model = e->base.snapshot;
    uint32_t dim = model->head_dim, heads_a_group = model->q_heads / model->kv_heads;
    for (uint32_t h = 0; h < model->q_heads; h++)
        md_ref_kv_attend(kv, layer, h / heads_a_group, e->q + (size_t)h * dim, position + 1, e->attn + (size_t)h * dim);
}

static void add_residual(ref_engine *e, const md_ref_matrix *matrix, const float *input) {
    md_ref_matmul(matrix, input, e->proj, e->row);
    for (uint32_t i = 0; i < e->base.snapshot->hidden; i++) e->x[i] = md_bf16_round(e->x[i] + e->proj[i]);
}

static void run_stage(ref_engine *e, uint32_t s, const md_column *column) {
    const md_snapshot *model = e->base.snapshot;
    const ref_stage *stage = &e->stage[s];
    uint32_t layer = (uint32_t)e->base.plan->stage[s].layer;
    md_ref_kv *kv = (md_ref_kv *)column->kv;
    switch (e->base.plan->stage[s].kind) {
    case MD_STAGE_EMBED: md_ref_embedding(&e->embed, column->token, e->x); break;
    case MD_STAGE_QKV: run_qkv(e, stage, layer, kv, column->position); break;
    case MD_STAGE_ATTN: run_attention(e, layer, kv, column->position); break;
    case MD_STAGE_OUT: add_residual(e, &stage->matrix[0], e->attn); break;
    case MD_STAGE_GATE_UP:
        md_ref_rmsnorm(e->x, stage->norm, model->hidden, model->norm_eps, e->normed);
        md_ref_matmul(&stage->matrix[0], e->normed, e->gate, e->row);
        md_ref_matmul(&stage->matrix[1], e->normed, e->up, e->row);
        md_ref_swiglu(e->gate, e->up, model->ffn, e->act);
        break;
    case MD_STAGE_DOWN: add_residual(e, &stage->matrix[0], e->act); break;
    case MD_STAGE_HEAD:
        if (!column->logits) break;
        md_ref_rmsnorm(e->x, stage->norm, model->hidden, model->norm_eps, e->normed);
        md_ref_matmul(&stage->matrix[0], e->normed, column->logits, e->row);
        break;
    default: break; // scores and merge are inside run_attention here
    }
}

static md_status ref_step(md_engine *engine, const md_column *columns, uint32_t count, md_error *err) {
    ref_engine *e = (ref_engine *)engine;
    MD_TRY(md_step_check(engine, columns, count, MD_MAX_STEP_COLUMNS, err));
    for (uint32_t c = 0; c < count; c++) {
        const md_ref_kv *kv = (const md_ref_kv *)columns[c].kv;
        MD_TRY(md_column_check_context(&columns[c], kv->context, err));
    }
    pthread_mutex_lock(&e->lock);
    uint64_t mode = md_fpmode_enter();
    for (uint32_t c = 0; c < count; c++)
        for (uint32_t s = 0; s < engine->plan->stage_count; s++) run_stage(e, s, &columns[c]);
    md_fpmode_leave(mode);
    pthread_mutex_unlock(&e->lock);
    return MD_OK;
}

const float *md_reference_residual(const md_engine *engine) { return ((const ref_engine *)engine)->x; }

static const md_engine_ops ref_ops = {.close = ref_close,
                                      .info = ref_info,
                                      .kv_open = md_ref_kv_open,
                                      .kv_close = md_ref_kv_close,
                                      .kv_bytes = md_ref_kv_bytes,
                                      .kv_quantize = md_ref_kv_quantize,
                                      .kv_copy = md_ref_kv_copy,
                                      .step = ref_step};

static md_status load_norm(const md_tensor *tensor, float **out, md_error *err) {
    *out = malloc(tensor->cols * sizeof **out);
    if (!*out) return md_fail(err, MD_E_MEMORY, "%s: out of memory", tensor->name);
    return md_tensor_read_f32(tensor, 0, 1, *out, err);
}

static md_status load_stages(ref_engine *e, const md_engine_options *options, md_error *err) {
    const md_plan *plan = e->base.plan;
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const md_stage *stage = &plan->stage[s];
        for (uint32_t m = 0; m < stage->matrix_count; m++) {
            MD_TRY(md_ref_matrix_load(stage->matrix[m], &e->stage[s].matrix[m], err));
            e->weight_bytes += md_matrix_bytes(stage->matrix[m]);
        }
        if (stage->norm) MD_TRY(load_norm(stage->norm, &e->stage[s].norm, err));
        if (options->progress && !options->progress(options->progress_user, (s + 1.0) / plan->stage_count))
            return md_fail(err, MD_E_CANCELLED, "loading was cancelled");
    }
    return MD_OK;
}

static md_status alloc_vectors(ref_engine *e, md_error *err) {
    const md_snapshot *model = e->base.snapshot;
    size_t q = (size_t)model->q_heads * model->head_dim, kv = (size_t)model->kv_heads * model->head_dim;
    size_t widest = model->hidden > model->ffn ? model->hidden : model->ffn;
    if (q > widest) widest = q;
    struct {
        float **to;
        size_t n;
    } vectors[] = {{&e->inv_freq, model->head_dim / 2},
                   {&e->x, model->hidden},
                   {&e->normed, model->hidden},
                   {&e->q, q},
                   {&e->k, kv},
                   {&e->v, kv},
                   {&e->attn, q},
                   {&e->proj, model->hidden},
                   {&e->gate, model->ffn},
                   {&e->up, model->ffn},
                   {&e->act, model->ffn},
                   {&e->row, 3 * widest}};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        *vectors[i].to = calloc(vectors[i].n, sizeof(float));
        if (!*vectors[i].to) return md_fail(err, MD_E_MEMORY, "out of memory for a vector of %zu values", vectors[i].n);
    }
    return MD_OK;
}

md_status md_reference_open(const md_plan *plan, const md_engine_options *options, md_engine **out, md_error *err) {
    *out = NULL;
#if defined(__x86_64__)
    // ops.c is compiled for FMA: docs/MODEL.md is written in fused multiply-adds, and a library call for each would
    // cost five times the time.
    if (!__builtin_cpu_supports("fma"))
        return md_fail(err, MD_E_UNSUPPORTED, "this CPU has no FMA instructions; the reference engine needs them");
#endif
    MD_TRY(md_plan_check(plan, err));
    ref_engine *e = calloc(1, sizeof *e);
    if (!e) return md_fail(err, MD_E_MEMORY, "out of memory");
    pthread_mutex_init(&e->lock, NULL);
    e->base = (md_engine){.ops = &ref_ops, .snapshot = plan->snapshot, .plan = plan};
    md_status status = MD_OK;
    e->stage = calloc(plan->stage_count, sizeof *e->stage);
    if (!e->stage) {
        status = md_fail(err, MD_E_MEMORY, "out of memory for %u stages", plan->stage_count);
        goto fail;
    }
    MD_TRY_GOTO(alloc_vectors(e, err));
    md_rope_frequencies(&plan->snapshot->rope, plan->snapshot->head_dim, e->inv_freq, &e->rope_scale);
    MD_TRY_GOTO(md_ref_matrix_load(&plan->snapshot->embed, &e->embed, err));
    e->weight_bytes = md_matrix_bytes(&plan->snapshot->embed);
    MD_TRY_GOTO(load_stages(e, options, err));
    *out = &e->base;
    return MD_OK;
fail:
    ref_close(&e->base);
    return status;
}
