#include "plan/plan.h"

#include <stdlib.h>

enum { STAGES_A_LAYER = 7 };

const char *md_stage_name(md_stage_kind kind) {
    static const char *const names[MD_STAGE_KIND_COUNT] = {"embed", "qkv",     "attn_scores", "attn", "attn_merge",
                                                           "out",   "gate_up", "down",        "head"};
    return (unsigned)kind < MD_STAGE_KIND_COUNT ? names[kind] : "unknown";
}

const char *md_vector_name(md_vector vector) {
    static const char *const names[MD_VEC_COUNT] = {"x", "q", "kv", "scores", "partials", "attn", "act", "logits"};
    return (unsigned)vector < MD_VEC_COUNT ? names[vector] : "unknown";
}

static void add(md_plan *plan, md_stage stage) { plan->stage[plan->stage_count++] = stage; }

static void add_layer(md_plan *plan, uint32_t index) {
    const md_layer *w = &plan->snapshot->layer[index];
    int32_t layer = (int32_t)index;
    add(plan, (md_stage){.kind = MD_STAGE_QKV,
                         .layer = layer,
                         .matrix_count = 3,
                         .matrix = {&w->q, &w->k, &w->v},
                         .norm = &w->attn_norm,
                         .reads = 1u << MD_VEC_X,
                         .writes = 1u << MD_VEC_Q | 1u << MD_VEC_KV});
    add(plan, (md_stage){.kind = MD_STAGE_ATTN_SCORES,
                         .layer = layer,
                         .reads = 1u << MD_VEC_Q | 1u << MD_VEC_KV,
                         .writes = 1u << MD_VEC_SCORES});
    add(plan, (md_stage){.kind = MD_STAGE_ATTN,
                         .layer = layer,
                         .reads = 1u << MD_VEC_Q | 1u << MD_VEC_KV | 1u << MD_VEC_SCORES,
                         .writes = 1u << MD_VEC_PARTIALS});
    add(plan,
        (md_stage){
            .kind = MD_STAGE_ATTN_MERGE, .layer = layer, .reads = 1u << MD_VEC_PARTIALS, .writes = 1u << MD_VEC_ATTN});
    add(plan, (md_stage){.kind = MD_STAGE_OUT,
                         .layer = layer,
                         .matrix_count = 1,
                         .matrix = {&w->o},
                         .reads = 1u << MD_VEC_ATTN | 1u << MD_VEC_X,
                         .writes = 1u << MD_VEC_X});
    add(plan, (md_stage){.kind = MD_STAGE_GATE_UP,
                         .layer = layer,
                         .matrix_count = 2,
                         .matrix = {&w->gate, &w->up},
                         .norm = &w->ffn_norm,
                         .reads = 1u << MD_VEC_X,
                         .writes = 1u << MD_VEC_ACT});
    add(plan, (md_stage){.kind = MD_STAGE_DOWN,
                         .layer = layer,
                         .matrix_count = 1,
                         .matrix = {&w->down},
                         .reads = 1u << MD_VEC_ACT | 1u << MD_VEC_X,
                         .writes = 1u << MD_VEC_X});
}

md_status md_plan_build(const md_snapshot *snapshot, md_plan **out, md_error *err) {
    *out = NULL;
    md_plan *plan = calloc(1, sizeof *plan);
    uint32_t stages = snapshot->layers * STAGES_A_LAYER + 2;
    if (plan) plan->stage = calloc(stages, sizeof *plan->stage);
    if (!plan || !plan->stage) {
        md_plan_free(plan);
        return md_fail(err, MD_E_MEMORY, "out of memory for a plan of %u stages", stages);
    }
    plan->snapshot = snapshot;
    add(plan, (md_stage){.kind = MD_STAGE_EMBED, .layer = -1, .writes = 1u << MD_VEC_X});
    for (uint32_t i = 0; i < snapshot->layers; i++) add_layer(plan, i);
    add(plan, (md_stage){.kind = MD_STAGE_HEAD,
                         .layer = -1,
                         .matrix_count = 1,
                         .matrix = {&snapshot->head},
                         .norm = &snapshot->final_norm,
                         .reads = 1u << MD_VEC_X,
                         .writes = 1u << MD_VEC_LOGITS});
    *out = plan;
    return MD_OK;
}

void md_plan_free(md_plan *plan) {
    if (!plan) return;
    free(plan->stage);
    free(plan);
}

uint64_t md_plan_bytes_per_token(const md_plan *plan) {
    const md_matrix *embed = &plan->snapshot->embed;
    uint64_t bytes = md_matrix_bytes(embed) / embed->rows; // one row
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const md_stage *stage = &plan->stage[s];
        for (uint32_t m = 0; m < stage->matrix_count; m++) bytes += md_matrix_bytes(stage->matrix[m]);
        if (stage->norm) bytes += stage->norm->row_bytes;
    }
    return bytes;
}
