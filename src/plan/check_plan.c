// The plan against the forward pass: who must have written what a stage reads, and which weights are whose.
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "plan/check.h"

// What a stage reads of a vector, by who wrote it last.
typedef enum producer {
    BY_NOBODY, // the stage does not read it
    BY_BELOW,  // the layer below: its down projection; the embedding for layer 0
    BY_LAST,   // the last layer's down projection
    BY_QKV,    // of the same layer, as all that follow
    BY_SCORES, //
    BY_ATTN,   //
    BY_MERGE,  //
    BY_OUT,    //
    BY_GATE_UP //
} producer;

static const md_stage_kind producer_kind[] = {[BY_BELOW] = MD_STAGE_DOWN, [BY_LAST] = MD_STAGE_DOWN,
                                              [BY_QKV] = MD_STAGE_QKV,    [BY_SCORES] = MD_STAGE_ATTN_SCORES,
                                              [BY_ATTN] = MD_STAGE_ATTN,  [BY_MERGE] = MD_STAGE_ATTN_MERGE,
                                              [BY_OUT] = MD_STAGE_OUT,    [BY_GATE_UP] = MD_STAGE_GATE_UP};

typedef struct rule {
    producer reads[MD_VEC_COUNT];
    uint32_t writes; // 1 << md_vector
    uint32_t matrices;
    size_t matrix[3]; // where the layer has them: offsets in md_layer (in md_snapshot for the head)
    bool has_norm;
    size_t norm;
} rule;

static const rule rules[MD_STAGE_KIND_COUNT] = {
    [MD_STAGE_EMBED] = {.writes = 1u << MD_VEC_X},
    [MD_STAGE_QKV] = {.reads = {[MD_VEC_X] = BY_BELOW},
                      .writes = 1u << MD_VEC_Q | 1u << MD_VEC_KV,
                      .matrices = 3,
                      .matrix = {offsetof(md_layer, q), offsetof(md_layer, k), offsetof(md_layer, v)},
                      .has_norm = true,
                      .norm = offsetof(md_layer, attn_norm)},
    [MD_STAGE_ATTN_SCORES] = {.reads = {[MD_VEC_Q] = BY_QKV, [MD_VEC_KV] = BY_QKV}, .writes = 1u << MD_VEC_SCORES},
    [MD_STAGE_ATTN] = {.reads = {[MD_VEC_Q] = BY_QKV, [MD_VEC_KV] = BY_QKV, [MD_VEC_SCORES] = BY_SCORES},
                       .writes = 1u << MD_VEC_PARTIALS},
    [MD_STAGE_ATTN_MERGE] = {.reads = {[MD_VEC_PARTIALS] = BY_ATTN}, .writes = 1u << MD_VEC_ATTN},
    [MD_STAGE_OUT] = {.reads = {[MD_VEC_ATTN] = BY_MERGE, [MD_VEC_X] = BY_BELOW},
                      .writes = 1u << MD_VEC_X,
                      .matrices = 1,
                      .matrix = {offsetof(md_layer, o)}},
    [MD_STAGE_GATE_UP] = {.reads = {[MD_VEC_X] = BY_OUT},
                          .writes = 1u << MD_VEC_ACT,
                          .matrices = 2,
                          .matrix = {offsetof(md_layer, gate), offsetof(md_layer, up)},
                          .has_norm = true,
                          .norm = offsetof(md_layer, ffn_norm)},
    [MD_STAGE_DOWN] = {.reads = {[MD_VEC_ACT] = BY_GATE_UP, [MD_VEC_X] = BY_OUT},
                       .writes = 1u << MD_VEC_X,
                       .matrices = 1,
                       .matrix = {offsetof(md_layer, down)}},
    [MD_STAGE_HEAD] = {.reads = {[MD_VEC_X] = BY_LAST},
                       .writes = 1u << MD_VEC_LOGITS,
                       .matrices = 1,
                       .matrix = {offsetof(md_snapshot, head)},
                       .has_norm = true,
                       .norm = offsetof(md_snapshot, final_norm)},
};

typedef struct checker {
    const md_plan *plan;
    int64_t writer[MD_VEC_COUNT]; // the stage that wrote the vector last; -1: none
    uint8_t *seen;                // [layers + 1][MD_STAGE_KIND_COUNT]; the last row: stages without a layer
    md_error *err;
} checker;

static md_status wrong(const checker *c, uint32_t s, const char *field, int64_t found, int64_t expected) {
    const md_stage *stage = &c->plan->stage[s];
    return md_fail(c->err, MD_E_INTERNAL, "plan: stage %u (%s of layer %d): %s: found %lld, expected %lld", s,
                   md_stage_name(stage->kind), (int)stage->layer, field, (long long)found, (long long)expected);
}

static md_status check_place(checker *c, uint32_t s) {
    const md_stage *stage = &c->plan->stage[s];
    uint32_t layers = c->plan->snapshot->layers;
    if ((unsigned)stage->kind >= MD_STAGE_KIND_COUNT)
        return wrong(c, s, "kind", (int64_t)stage->kind, MD_STAGE_KIND_COUNT - 1);
    bool whole = stage->kind == MD_STAGE_EMBED || stage->kind == MD_STAGE_HEAD;
    if (whole ? stage->layer != -1 : stage->layer < 0 || (uint32_t)stage->layer >= layers)
        return wrong(c, s, "layer", stage->layer, whole ? -1 : (int64_t)layers - 1);
    uint8_t *seen = &c->seen[(whole ? layers : (uint32_t)stage->layer) * MD_STAGE_KIND_COUNT + stage->kind];
    if (*seen) return wrong(c, s, "times this stage is in the plan", 2, 1);
    *seen = 1;
    return MD_OK;
}

static bool is_producer(const checker *c, const md_stage *reader, producer by, const md_stage *writer) {
    int32_t layer = by == BY_BELOW  ? reader->layer - 1
                    : by == BY_LAST ? (int32_t)c->plan->snapshot->layers - 1
                                    : reader->layer;
    if (layer < 0) return writer->kind == MD_STAGE_EMBED;
    return writer->kind == producer_kind[by] && writer->layer == layer;
}

// Reads and writes are those of the stage's kind, and what it reads was written last by the right stage.
static md_status check_flow(checker *c, uint32_t s) {
    const md_stage *stage = &c->plan->stage[s];
    const rule *r = &rules[stage->kind];
    uint32_t reads = 0;
    for (uint32_t v = 0; v < MD_VEC_COUNT; v++)
        if (r->reads[v] != BY_NOBODY) reads |= 1u << v;
    if (stage->reads != reads) return wrong(c, s, "reads", stage->reads, reads);
    if (stage->writes != r->writes) return wrong(c, s, "writes", stage->writes, r->writes);
    for (uint32_t v = 0; v < MD_VEC_COUNT; v++) {
        if (r->reads[v] == BY_NOBODY) continue;
        int64_t by = c->writer[v];
        if (by >= 0 && is_producer(c, stage, r->reads[v], &c->plan->stage[by])) continue;
        return md_fail(c->err, MD_E_INTERNAL,
                       "plan: stage %u (%s of layer %d): reads: found %s as %s of layer %d left it, expected %s%s", s,
                       md_stage_name(stage->kind), (int)stage->layer, md_vector_name((md_vector)v),
                       by < 0 ? "nobody" : md_stage_name(c->plan->stage[by].kind),
                       by < 0 ? -1 : (int)c->plan->stage[by].layer, md_stage_name(producer_kind[r->reads[v]]),
                       r->reads[v] == BY_BELOW ? " of the layer below" : "");
    }
    for (uint32_t v = 0; v < MD_VEC_COUNT; v++)
        if (stage->writes & 1u << v) c->writer[v] = s;
    return MD_OK;
}

// The shape that a matrix of a layer must have for the vectors it is between.
static md_status check_shape(const checker *c, uint32_t s, uint32_t m) {
    const md_snapshot *model = c->plan->snapshot;
    const md_stage *stage = &c->plan->stage[s];
    const md_matrix *matrix = stage->matrix[m];
    uint32_t q = model->q_heads * model->head_dim, kv = model->kv_heads * model->head_dim;
    uint32_t rows = model->hidden;
    if (stage->kind == MD_STAGE_QKV) rows = m == 0 ? q : kv;
    if (stage->kind == MD_STAGE_GATE_UP) rows = model->ffn;
    if (stage->kind == MD_STAGE_HEAD) rows = model->vocab;
    uint32_t cols = stage->kind == MD_STAGE_OUT ? q : stage->kind == MD_STAGE_DOWN ? model->ffn : model->hidden;
    if (matrix->rows != rows) return wrong(c, s, "rows of a matrix", matrix->rows, rows);
    return matrix->cols == cols ? MD_OK : wrong(c, s, "columns of a matrix", matrix->cols, cols);
}

static md_status check_weights(const checker *c, uint32_t s) {
    const md_snapshot *model = c->plan->snapshot;
    const md_stage *stage = &c->plan->stage[s];
    const rule *r = &rules[stage->kind];
    const char *owner = stage->layer < 0 ? (const char *)model : (const char *)&model->layer[(uint32_t)stage->layer];
    if (stage->matrix_count != r->matrices) return wrong(c, s, "matrix_count", stage->matrix_count, r->matrices);
    for (uint32_t m = 0; m < 3; m++) {
        const void *expected = m < r->matrices ? owner + r->matrix[m] : NULL;
        if (stage->matrix[m] != expected)
            return md_fail(c->err, MD_E_INTERNAL,
                           "plan: stage %u (%s of layer %d): matrix[%u]: found another one, expected %s", s,
                           md_stage_name(stage->kind), (int)stage->layer, m,
                           expected ? ((const md_matrix *)expected)->path : "none");
        if (expected) MD_TRY(check_shape(c, s, m));
    }
    const void *norm = r->has_norm ? owner + r->norm : NULL;
    if (stage->norm == norm) return MD_OK;
    return md_fail(c->err, MD_E_INTERNAL, "plan: stage %u (%s of layer %d): norm: found another one, expected %s", s,
                   md_stage_name(stage->kind), (int)stage->layer, norm ? ((const md_tensor *)norm)->name : "none");
}

// Every stage kind once a layer, embedding and head once. That each was found where its inputs were ready (check_flow)
// is then also the proof that nothing is overwritten too early, since an overwritten input has another writer, and that
// the order is the one and only: each stage but the embedding waits for another.
md_status md_plan_check(const md_plan *plan, md_error *err) {
    const uint32_t a_layer = MD_STAGE_KIND_COUNT - 2; // all but embed and head
    if (!plan->snapshot || !plan->stage)
        return md_fail(err, MD_E_INTERNAL, "plan: snapshot or stage: found none, expected one");
    uint32_t layers = plan->snapshot->layers, expected = layers * a_layer + 2;
    if (layers < 1 || layers > MD_MAX_LAYERS || plan->stage_count != expected)
        return md_fail(err, MD_E_INTERNAL, "plan: stage_count: found %u, expected %u for %u layers", plan->stage_count,
                       expected, layers);
    checker c = {.plan = plan, .err = err, .seen = calloc(layers + 1, MD_STAGE_KIND_COUNT)};
    if (!c.seen) return md_fail(err, MD_E_MEMORY, "plan: out of memory for the check");
    for (uint32_t v = 0; v < MD_VEC_COUNT; v++) c.writer[v] = -1;
    md_status status = MD_OK;
    for (uint32_t s = 0; s < plan->stage_count && status == MD_OK; s++) {
        status = check_place(&c, s);
        if (status == MD_OK) status = check_weights(&c, s);
        if (status == MD_OK) status = check_flow(&c, s);
    }
    free(c.seen);
    return status; // MD_OK: as many stages as there are places, none twice, so each is there
}
