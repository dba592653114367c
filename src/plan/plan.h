// The plan: the only description of the forward pass. It turns a snapshot into one list of stages; for each, what it
// computes, its matrices, the vectors it reads and writes. Every worker must have finished a stage before any starts
// the next. The reference walks it operator by operator; the CPU engines and the CUDA emitter are driven by it. Nothing
// else knows the order of layers. Immutable after md_plan_build; no backend code here.
#ifndef MD_PLAN_PLAN_H
#define MD_PLAN_PLAN_H

#include <stdint.h>

#include "base/status.h"
#include "model/snapshot.h"

enum {
    MD_MAX_STEP_COLUMNS = 8, // columns of one decode step; prefill may use wider steps where an engine offers them
    MD_ATTN_BLOCK = 128      // positions of one attention block: fixed, so that sums depend on positions alone
};

// Vectors of one column that stages hand to each other. All hold bf16 values except partials and scores (fp32).
typedef enum md_vector {
    MD_VEC_X,        // [hidden] the residual stream
    MD_VEC_Q,        // [q_heads][head_dim] queries after RoPE
    MD_VEC_KV,       // this token's entry of the layer's KV cache
    MD_VEC_SCORES,   // [q_heads][positions] scores of a layer with a quantized cache
    MD_VEC_PARTIALS, // [q_heads][blocks]{m, l, o[head_dim]} attention partials
    MD_VEC_ATTN,     // [q_heads][head_dim] attention output
    MD_VEC_ACT,      // [ffn] silu(gate) * up
    MD_VEC_LOGITS,   // [vocab]
    MD_VEC_COUNT
} md_vector;

typedef enum md_stage_kind {
    MD_STAGE_EMBED,       // X = row of the embedding
    MD_STAGE_QKV,         // norm(X) -> Q, KV (RoPE and append in its epilogue); matrices q, k, v
    MD_STAGE_ATTN_SCORES, // quantized cache only: Q, KV -> SCORES; skipped for a column whose layer cache is bf16
    MD_STAGE_ATTN,        // Q, KV (or SCORES, KV) -> PARTIALS
    MD_STAGE_ATTN_MERGE,  // PARTIALS -> ATTN
    MD_STAGE_OUT,         // ATTN -> X += o;  matrix o
    MD_STAGE_GATE_UP,     // norm(X) -> ACT;  matrices gate, up
    MD_STAGE_DOWN,        // ACT -> X += down; matrix down
    MD_STAGE_HEAD,        // norm(X) -> LOGITS; matrix head; skipped when no column wants logits
    MD_STAGE_KIND_COUNT
} md_stage_kind;

typedef struct md_stage {
    md_stage_kind kind;
    int32_t layer;              // -1 for embed and head
    uint32_t matrix_count;      // 0..3
    const md_matrix *matrix[3]; // borrowed from the snapshot
    const md_tensor *norm;      // RMSNorm weight applied to the input; NULL = none
    uint32_t reads, writes;     // bit sets of 1 << md_vector
} md_stage;

typedef struct md_plan {
    const md_snapshot *snapshot; // borrowed; outlives the plan
    uint32_t stage_count;
    md_stage *stage; // owned
} md_plan;

const char *md_stage_name(md_stage_kind kind); // "qkv", "gate_up", ...
const char *md_vector_name(md_vector vector);  // "x", "q", ...

md_status md_plan_build(const md_snapshot *snapshot, md_plan **out, md_error *err);
void md_plan_free(md_plan *plan);

// Bytes of weights a decode step reads: every matrix of every stage once (codes, scales, biases as the snapshot stores
// them), norms, and one embedding row.
uint64_t md_plan_bytes_per_token(const md_plan *plan);

#endif
