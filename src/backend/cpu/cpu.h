// The CPU engines: what their files share. `resident` gives the whole step to the team at once, with barriers between
// stages; `ops` gives it one stage at a time. The stages themselves are the same functions.
//
// In a step a stage's work is split among workers by the layout's runs (matrices) or by units (attention); the state
// below is written by the caller before the dispatch and read by everyone, except the vectors, which a stage writes in
// disjoint parts and the next stages read.
#ifndef MD_BACKEND_CPU_CPU_H
#define MD_BACKEND_CPU_CPU_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kv.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/team.h"
#include "base/clock.h"
#include "plan/pack.h"

enum {
    MD_CPU_MAX_COLUMNS = 64, // of one step: wide enough that prefill reads weights rarely
    MD_CPU_DEADLINE_MS = 10000,
    MD_CPU_LOAD_DEADLINE_MS = 600000 // packing reads files; a slow disk is no fault
};

typedef struct md_cpu_stage { // what a stage needs besides the layout
    float *norm;              // [hidden, rounded up to 16] or NULL
    float *bias[3];           // [tiles][16] in lane order, or NULL
} md_cpu_stage;

// Columns of one cache in a step.
typedef struct md_cpu_sequence {
    md_cpu_kv *kv;
    uint32_t first, count; // columns
    uint32_t position;     // of the first
    uint32_t blocks;       // attention blocks its last column sees
} md_cpu_sequence;

typedef struct md_cpu_scratch { // one worker's
    uint16_t *rows;             // normalized rows [columns][widest]
    void *x;                    // activations, or queries, in the kernels' format for unquantized matrices
    md_ints ints;               // the same for codes
    float *sums[3];             // group sums for up to three different groups
    float *out[2];              // [8][16] products
    float *scores;              // [group heads][128]
    float *o;                   // [group heads][dim]
    float *accumulator;         // [dim]
    float *embed;               // [2 * hidden]
    md_pages pages;
    float *m, *l; // [columns][group heads]: over all blocks of totals_sequence and totals_kv_head
    const struct md_cpu_sequence *totals_sequence; // NULL: none
    uint32_t totals_kv_head;
    uint32_t packed_column, packed_kv_head; // whose queries lie in x
} md_cpu_scratch;

// Where a worker's time goes, seconds by kind of stage. Written by that worker alone while a step runs.
typedef struct md_cpu_clock {
    _Alignas(128) double last; // until when it is told
    double wait[MD_STAGE_KIND_COUNT], work[MD_STAGE_KIND_COUNT];
} md_cpu_clock;

typedef struct md_cpu_engine {
    md_engine base;
    bool resident;
    const md_kernels *k;
    md_layout *layout;
    md_team *team;
    uint32_t workers, deadline_ms;
    md_pages arena;
    md_cpu_stage *stage; // [plan->stage_count]
    float *inv_freq, rope_scale;
    uint64_t weight_bytes;
    pthread_mutex_t lock; // one step at a time; also guards scratch growth and `stuck`
    md_cpu_kv *stuck;     // closed caches that a worker of an abandoned step may still touch

    // strides in elements, multiples of 16
    uint32_t hidden_stride, q_stride, kv_stride, ffn_stride, vocab_stride, half_stride, dim;
    // vectors of a step: [column][stride] bf16
    uint16_t *x, *q, *key, *value, *attn, *act, *logits;
    float *cosine, *sine; // [column][half_stride]
    md_pages vectors;
    md_pages partials, scores, statistics, weights; // sized by the largest context; see attention.c
    uint32_t context;                               // that context
    md_cpu_scratch *scratch;                        // [workers]
    md_cpu_clock *clock;                            // [workers]; NULL: no account is kept
    uint64_t account_steps;                         // that are in it

    // the step
    md_column column[MD_CPU_MAX_COLUMNS];
    uint32_t count;
    md_cpu_sequence sequence[MD_CPU_MAX_COLUMNS];
    uint32_t sequences;
    uint32_t wanted[MD_CPU_MAX_COLUMNS]; // columns that want logits
    uint32_t wanted_count;
    bool deep;              // some column sees more than one attention block
    uint8_t *skip;          // [plan->stage_count] in this step
    uint32_t current_stage; // of the ops engine's dispatch
} md_cpu_engine;

// ---- stages.c: one worker's share of stage s
void md_cpu_run_stage(md_cpu_engine *e, uint32_t s, uint32_t worker);

// ---- attention.c
md_status md_cpu_attention_reserve(md_cpu_engine *e, uint32_t context, md_error *err); // grows its scratch
void md_cpu_attention_scores(md_cpu_engine *e, uint32_t layer, uint32_t worker);
void md_cpu_attention(md_cpu_engine *e, uint32_t layer, uint32_t worker);
void md_cpu_attention_merge(md_cpu_engine *e, uint32_t layer, uint32_t worker);

// ---- account.c: where time goes, for engines opened with it
md_status md_cpu_account_open(md_cpu_engine *e, md_error *err);
md_status md_cpu_account(md_engine *engine, md_account *out, md_error *err);
void md_cpu_account_begin(md_cpu_engine *e); // of a step, before the embedding
void md_cpu_account_embed(md_cpu_engine *e); // the caller has brought the embedding, everyone waited for it
// A worker's time since it last said so went into waiting for stage s, or into computing it.
static inline void md_cpu_spent(md_cpu_engine *e, uint32_t worker, uint32_t s, bool waiting) {
    if (!e->clock) return;
    md_cpu_clock *clock = &e->clock[worker];
    double now = md_clock_seconds();
    (waiting ? clock->wait : clock->work)[e->base.plan->stage[s].kind] += now - clock->last;
    clock->last = now;
}

// ---- load.c: arena, norms, biases, vectors, scratch
md_status md_cpu_load(md_cpu_engine *e, const md_engine_options *options, md_error *err);
void md_cpu_unload(md_cpu_engine *e);

// ---- embed.c: column c's row of the embedding into e->x
md_status md_cpu_embed(md_cpu_engine *e, uint32_t c, md_error *err);

// MD_E_TIMEOUT with the words for *late.
md_status md_cpu_late(const md_cpu_engine *e, const md_team_late *late, md_error *err);

#endif
