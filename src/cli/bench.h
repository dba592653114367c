// Measuring engines: decode and prefill rates, beside the memory's own read ceiling measured in the same run.
//
// Every repeat measures each side once, in turn, and the ceiling once; what is reported are medians over the repeats,
// and ratios pair by pair, since on a shared machine only figures of the same moment compare. Tokenization and sampling
// are not part of any figure.
#ifndef MD_CLI_BENCH_H
#define MD_CLI_BENCH_H

#include <stdint.h>

#include "megadecode.h"

enum { MD_BENCH_SIDES_MAX = 2, MD_BENCH_REPEATS_MAX = 1000, MD_BENCH_SWEEP_MAX = 64 };

typedef struct md_bench_options {
    const char *model;
    const char *engine[MD_BENCH_SIDES_MAX]; // NULL: the default; the second only with an A/B comparison
    uint32_t sides;                         // 1 or 2
    const char *device, *kv;
    uint32_t threads, groups, deadline_ms; // 0: the model's defaults
    uint32_t prompt, decode;               // tokens of one measurement; 0: not measured
    uint32_t depth;                        // positions already in the cache (not computed)
    uint32_t repeats;                      // 1..MD_BENCH_REPEATS_MAX
} md_bench_options;

typedef struct md_bench_rate { // medians of one engine at one setting
    uint32_t workers, depth;
    double decode_tps, prefill_tps; // 0: not measured
    double read_gbps;               // weights and cache bytes of a token x decode_tps, 1e9 bytes a second
    double ceiling_gbps;            // of the read ceilings measured between; 0: not known for this device
    double ceiling_fraction;        // read over ceiling, median pair by pair
} md_bench_rate;

typedef struct md_bench_side {
    md_model_info info; // its strings are below: those of a closed model are gone
    char name[128], engine[32], backend[32];
    md_bench_rate rate;
} md_bench_side;

typedef struct md_bench_sweep {
    uint32_t count; // 0: not measured
    md_bench_rate rate[MD_BENCH_SWEEP_MAX];
} md_bench_sweep;

typedef struct md_bench_stages { // where a token's time goes
    md_account account;          // steps 0: not measured
    double ms;                   // a token, of the whole loop that generates
} md_bench_stages;

typedef struct md_bench_result {
    md_bench_side side[MD_BENCH_SIDES_MAX];
    double ratio, ratio_min, ratio_max;  // decode rate of side 1 over side 0, pair by pair (median, least, most)
    md_bench_sweep by_workers, by_depth; // decode only, of the last side
    md_bench_stages stages;              // of the last side
} md_bench_result;

// MD_E_USAGE for options that do not fit the model (depth + tokens beyond its context), and what opening it gives.
// Fills all of *out but the sweeps and the stages.
md_status md_bench_run(const md_bench_options *options, md_bench_result *out, md_error *err);

// The decode rate of the last side's engine at `count` depths, in turn, with one model open.
md_status md_bench_by_depth(const md_bench_options *options, const uint32_t *depth, uint32_t count, md_bench_sweep *out,
                            md_error *err);
// The same with 1, 2, 4, ... and at last `most` workers.
md_status md_bench_by_workers(const md_bench_options *options, uint32_t most, md_bench_sweep *out, md_error *err);

// Where the time of the last side's tokens goes, by kind of stage: of the repeat with the quickest tokens, since
// nothing but other programs makes the others slower. The model is opened for it once more, with the account.
md_status md_bench_by_stage(const md_bench_options *options, md_bench_stages *out, md_error *err);

#endif
