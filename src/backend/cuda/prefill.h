// Prompts: many columns a step, in launches of their own (kernels/prefill*.cuh). The module is compiled and its memory
// taken when a step first needs it.
#ifndef MD_BACKEND_CUDA_PREFILL_H
#define MD_BACKEND_CUDA_PREFILL_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/cuda/dl.h"

enum {
    MD_CUDA_PREFILL_COLUMNS = 512, // of a step at most
    MD_CUDA_PREFILL_MATRICES = 4,  // qkv, out, gate_up, down
    MD_CUDA_PREFILL_SHAPES = 2     // of CTAs: tall, short
};

// What a launch is told: the host's side of the structures at the head of kernels/prefill.cuh. Field by field the same.
typedef struct md_cuda_prefill_column {
    uint64_t kv;
    uint32_t position, token;
} md_cuda_prefill_column;

typedef struct md_cuda_prefill_span {
    uint32_t first, count;
} md_cuda_prefill_span;

typedef struct md_cuda_prefill_params {
    uint64_t arena, runs, aux, embed, embed_scales, embed_biases, exchange;
    uint64_t places, columns_at, spans, rope;
    uint64_t x, q, attn, act, input, partials, stats;
    uint32_t workers, columns, layer, blocks, first, pad;
} md_cuda_prefill_params;

typedef struct md_cuda_prefill_wanted {
    uint32_t column[8], tag;
} md_cuda_prefill_wanted;

_Static_assert(sizeof(md_cuda_prefill_column) == 16 && sizeof(md_cuda_prefill_params) == 18 * 8 + 6 * 4,
               "as in kernels/prefill.cuh");

// md_prefill_sizes of kernels/prefill_attention.cuh.
typedef struct md_cuda_prefill_sizes {
    struct {
        uint32_t threads, row_tiles, bytes;
    } shape[MD_CUDA_PREFILL_SHAPES];
    uint32_t attention_bytes, set_columns, input_bytes; // the last: of a block of K and a set of columns
} md_cuda_prefill_sizes;

typedef struct md_cuda_prefill {
    bool ready, refused; // refused: it could not be made, and prompts go in steps of the resident kernel
    CUmodule module;
    CUfunction places, begin, hand, attention, merge;
    CUfunction input[MD_CUDA_PREFILL_MATRICES], matrix[MD_CUDA_PREFILL_MATRICES][MD_CUDA_PREFILL_SHAPES];
    md_cuda_prefill_sizes sizes;
    CUdeviceptr memory; // all that params point to
    md_cuda_prefill_params params;
    md_cuda_prefill_wanted wanted;
    uint32_t room; // attention blocks of columns that partials have room for
} md_cuda_prefill;

struct md_cuda_engine;

// Whether the step can be computed so: it has more columns than the resident kernel's, all caches are bf16, and the
// module and its memory are there (made now if need be; where that fails, a line in the log says why, once).
bool md_cuda_prefill_can(struct md_cuda_engine *engine, const md_column *columns, uint32_t count);
// The step: checked columns. Errors as md_engine_ops.step.
md_status md_cuda_prefill_step(struct md_cuda_engine *engine, const md_column *columns, uint32_t count, md_error *err);
void md_cuda_prefill_close(struct md_cuda_engine *engine);

#endif
