// What a launch is told: the host's side of the structures at the head of kernels/base.cuh. Field by field the same.
#ifndef MD_BACKEND_CUDA_PARAMS_H
#define MD_BACKEND_CUDA_PARAMS_H

#include <stdint.h>

enum { MD_CUDA_MAX_STOPS = 32, MD_CUDA_PARAM_COLUMNS = 8, MD_CUDA_REPORT_WORDS = 8 };

typedef struct md_cuda_col {
    uint64_t kv; // md_cuda_kv_layer[layers] on the device
    uint32_t position, token, home, logits;
} md_cuda_col;

typedef struct md_cuda_kv_layer {
    uint64_t k, v, k_scales, v_scales;
    uint32_t bits, group, context, pad;
} md_cuda_kv_layer;

typedef struct md_cuda_run {
    uint64_t offset;
    uint32_t first, count;
} md_cuda_run;

typedef struct md_cuda_choice {
    double per_unit, top_p;
    uint64_t least_weight, seed, draw;
    uint32_t top_k, candidates, all, sampled;
} md_cuda_choice;

enum { MD_CUDA_NEXT_BEST = 1, MD_CUDA_NEXT_CANDIDATES = 2, MD_CUDA_NEXT_TOKEN = 4, MD_CUDA_NEXT = 7 };
// What an account tells apart (kernels/exchange.cuh), and its words: cycles of each, then nanoseconds of launches.
enum { MD_CUDA_SETUP, MD_CUDA_WEIGHTS, MD_CUDA_HANDOFF, MD_CUDA_ARITHMETIC, MD_CUDA_OUT, MD_CUDA_SPENDINGS };
enum { MD_CUDA_KINDS = 10 };                                   // the plan's, and the choice of the next tokens
#define MD_CUDA_PARTIAL_ENTRIES(head_dim) ((head_dim) / 4 + 1) // of a block's output and its statistics
#define MD_CUDA_ACCOUNT_WORDS(groups) ((size_t)(groups) * (MD_CUDA_KINDS * MD_CUDA_SPENDINGS + 1))
// What launches of a graph find in memory, u32 each: steps done, the step's epoch, then its tokens.
enum { MD_CUDA_STATE_STEPS, MD_CUDA_STATE_EPOCH, MD_CUDA_STATE_TOKENS };
enum { MD_CUDA_STATE_WORDS = MD_CUDA_STATE_TOKENS + MD_CUDA_PARAM_COLUMNS };
#define MD_CUDA_UNDECIDED UINT32_MAX // in place of a token
enum { MD_CUDA_CANDIDATES = 64 };

typedef struct md_cuda_params {
    uint64_t arena, runs, aux, embed, embed_scales, embed_biases;
    uint64_t exchange, stats, partials, records;
    uint64_t logits, report, mailbox, account, state;
    uint32_t groups, columns, stage_begin, stage_end;
    uint32_t tokens, epoch, blocks, next, sampled, deadline_us, stop_count;
    uint32_t stop[MD_CUDA_MAX_STOPS];
    uint8_t stop_columns[MD_CUDA_MAX_STOPS];
    uint32_t delay_seed, drop_worker, drop_tag;
    md_cuda_col col[MD_CUDA_PARAM_COLUMNS];
    md_cuda_choice choice[MD_CUDA_PARAM_COLUMNS];
} md_cuda_params;

_Static_assert(sizeof(md_cuda_col) == 24 && sizeof(md_cuda_kv_layer) == 48 && sizeof(md_cuda_run) == 16 &&
                   sizeof(md_cuda_choice) == 56,
               "as in kernels/base.cuh");
_Static_assert(sizeof(md_cuda_params) == 15 * 8 + 14 * 4 + MD_CUDA_MAX_STOPS * 5 + MD_CUDA_PARAM_COLUMNS * (24 + 56),
               "as in kernels/base.cuh");

#endif
