// The table of functions behind which an engine stands: one snapshot's weights, ready to compute steps.
//
// A step takes 1..max_columns columns, each a (sequence, position, token): one sequence decoding is one column, a batch
// is several sequences, a prefill chunk is consecutive positions of one sequence. A column's bits depend on its own
// sequence's history alone.
//
// Thread rule: one step at a time per engine (the engine holds a lock); kv functions of different caches may run from
// different threads, but not beside a step that uses the same cache.
#ifndef MD_BACKEND_BACKEND_H
#define MD_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "plan/plan.h"

typedef struct md_kv md_kv; // one sequence's KV cache; defined by each backend
typedef struct md_engine md_engine;

typedef struct md_column {
    md_kv *kv;
    uint32_t position; // 0-based; the cache holds valid entries for [0, position) or they are columns of this step.
                       // Columns of one cache come in ascending, consecutive positions.
    uint32_t token;    // < vocab
    float *logits;     // [vocab], filled with bf16-rounded values; NULL = not wanted
} md_column;

typedef struct md_engine_options {
    uint32_t threads;                              // 0 = as many as affinity and cgroup quota allow
    uint32_t groups;                               // workers; 0 = the engine's default (CPU: threads; GPU: one an SM)
    int device_index;                              // GPU
    uint32_t deadline_ms;                          // bound of every wait inside a step; 0 = default
    bool account;                                  // note where each step's time goes
    bool (*progress)(void *user, double fraction); // while packing; false cancels (MD_E_CANCELLED); may be NULL
    void *progress_user;
} md_engine_options;

typedef struct md_engine_info {
    const char *engine;  // "reference", "ops", "resident"
    const char *backend; // "cpu", "cuda"
    char device[128];    // "AVX-512 (vdpbf16ps), 2 threads", "NVIDIA H200, 132 SMs"
    uint32_t workers;
    uint32_t max_columns;    // widest step of any columns
    uint32_t prompt_columns; // of a prompt's steps: more where many columns are computed in another way, fewer where a
                             // step takes long; 0 = max_columns
    uint64_t weight_bytes;   // memory the weights take
} md_engine_info;

// How an engine chooses tokens itself: as md_sampling says, without biases, penalties or `adjust`, in the sampler's own
// units (src/gen). Zeros: the greatest logit.
typedef struct md_choice {
    bool sampled;          // false: the greatest
    double per_unit;       // halvings of a weight (gen/weight.h) a unit of logit: log2(e) / temperature
    uint32_t top_k;        // 0: off
    double top_p;          // 0 or 1: off
    uint64_t least_weight; // md_least_weight of min_p; 0: off
    uint64_t seed, draw;   // md_mix64 of the seed; number of the first token's draw
} md_choice;

// One sequence of a burst.
typedef struct md_burst_column {
    md_kv *kv;
    uint32_t position, token; // the first step's
    const uint32_t *stop;     // producing one of these ends the call; it is handed on, too
    uint32_t stop_count;      // at most 32, and so many different ones in all columns
    md_choice choice;
    float *logits; // [vocab], filled when the column ends undecided; NULL: not wanted
    // From the calling thread, as tokens come; false ends the call. Of the engine only kv_close may be called from it.
    bool (*on_token)(void *user, uint32_t token);
    void *user;
    uint32_t produced, last; // out: tokens handed on, and the last of them; the cache holds position .. + produced - 1
    bool undecided; // out: the engine could not choose the next token (it may need more than the likeliest candidates);
                    // `logits` are those to choose it from, and the cache holds one position more
} md_burst_column;

// Many tokens of up to max_columns sequences, each with a cache of its own, in one call: each step's tokens are chosen
// by the engine and fed to the next. The call ends for all when one ends.
typedef struct md_burst {
    md_burst_column *column;
    uint32_t count;
    uint32_t max_tokens; // to produce at most, for each
} md_burst;

typedef struct md_engine_ops {
    // False: a worker of an abandoned step has not come back in time and may still read the plan and its snapshot; they
    // and the engine's memory stay where they are.
    bool (*close)(md_engine *engine);
    void (*info)(const md_engine *engine, md_engine_info *out);

    // A cache for up to `context` positions, all layers bf16.
    md_status (*kv_open)(md_engine *engine, uint32_t context, md_kv **out, md_error *err);
    void (*kv_close)(md_engine *engine, md_kv *kv);
    uint64_t (*kv_bytes)(const md_engine *engine, const md_kv *kv); // memory it takes
    // Quantizes the first `positions` entries of every layer with format[layer].bits != 0, and from then on appends
    // quantized. format: [layers]. A second call with another format is MD_E_USAGE; with positions 0 it only sets the
    // format.
    md_status (*kv_quantize)(md_engine *engine, md_kv *kv, const md_kv_format *format, uint32_t positions,
                             md_error *err);
    // Makes dst's first `positions` entries (and formats) equal to src's; dst's context must hold them.
    md_status (*kv_copy)(md_engine *engine, md_kv *dst, const md_kv *src, uint32_t positions, md_error *err);

    // Computes `count` columns (1..max_columns, or ..prompt_columns): appends each token's keys and values, fills the
    // logits asked for. Errors: MD_E_USAGE (count, position, token out of range), MD_E_CONTEXT (position >= context),
    // MD_E_TIMEOUT (a wait ran out: worker, stage, expected, seen; the step's results are void, the engine stays
    // usable), MD_E_DEVICE.
    md_status (*step)(md_engine *engine, const md_column *columns, uint32_t count, md_error *err);

    // NULL where an engine has none: the caller then steps. Errors as step; what came out is right in any case.
    md_status (*burst)(md_engine *engine, md_burst *request, md_error *err);

    // Where the time of the steps since the last call went, on an engine opened with `account`. NULL: it keeps none.
    md_status (*account)(md_engine *engine, md_account *out, md_error *err);
} md_engine_ops;

struct md_engine {
    const md_engine_ops *ops;
    const md_snapshot *snapshot; // borrowed
    const md_plan *plan;         // borrowed
};

// The argument checks every engine makes before a step: count, tokens, the order of one sequence's columns (which stand
// next to each other) and, per column, that its position lies inside its cache's context.
md_status md_step_check(const md_engine *engine, const md_column *columns, uint32_t count, uint32_t max_columns,
                        md_error *err);
md_status md_column_check_context(const md_column *column, uint32_t context, md_error *err);

// Each opens an engine on its backend; `plan` and its snapshot outlive the engine, and also a failure with
// MD_E_TIMEOUT: a worker may then still be reading weights.
md_status md_reference_open(const md_plan *plan, const md_engine_options *options, md_engine **out, md_error *err);
// resident = true: one dispatch a step; false: one dispatch an operator ("ops"), same kernels.
md_status md_cpu_open(const md_plan *plan, bool resident, const md_engine_options *options, md_engine **out,
                      md_error *err);
md_status md_cuda_open(const md_plan *plan, bool resident, const md_engine_options *options, md_engine **out,
                       md_error *err);

#endif
