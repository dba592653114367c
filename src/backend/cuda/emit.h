// The emitter: from the plan to the CUDA source of this one model. Bits, shapes, offsets and counts become literals and
// constant tables at the head of the source; the kernels' text (kernels/*.cuh) follows.
#ifndef MD_BACKEND_CUDA_EMIT_H
#define MD_BACKEND_CUDA_EMIT_H

#include <stdbool.h>

#include "backend/cuda/shape.h"
#include "base/buf.h"

typedef struct md_cuda_target {
    char arch[16];         // "sm_90a"
    uint32_t shared_bytes; // shared memory a block may have
    bool ring;             // bulk copies: sm_90 and later
    bool lends;            // warps hand registers to others (setmaxnreg): sm_90a
} md_cuda_target;

// The target of a compute capability or of a name ("sm_90a"); MD_E_UNSUPPORTED for what the kernels can't run on.
md_status md_cuda_target_of(int major, int minor, md_cuda_target *out, md_error *err);
md_status md_cuda_target_named(const char *arch, md_cuda_target *out, md_error *err);

enum { MD_CUDA_EMIT_PREFILL = 64 }; // in place of `columns`, for those who have but a number: the launches of prompts

typedef struct md_cuda_emit_options {
    uint32_t columns; // widest step the source is for: 1, 2, 4 or 8
    bool inject;      // with the hooks for delays and dropped handoffs that tests use
    bool account;     // with the account of where the time goes
    bool graph;       // for launches that are repeated as they are (graph.c)
    bool prefill;     // the launches of prompts instead of the step; `columns` is not looked at
    const char *tune; // "NAME=VALUE,..." in place of defaults, for measurements; may be NULL
} md_cuda_emit_options;

// MD_E_USAGE where `tune` (may be NULL) is no list of NAME=VALUE, or a name is none of the tunables': the message is
// MEGADECODE_CUDA_TUNE's, from where it comes, and has all names. md_cuda_emit asks for itself.
md_status md_cuda_tune_check(const char *tune, md_error *err);

// Threads of a CTA of that source: the consumer warps and the producer's.
uint32_t md_cuda_threads(const md_cuda_target *target, const md_cuda_emit_options *options);

// shared.c. Bytes of shared memory that a CTA of that source needs at least, tunables as they are by default;
// MD_E_UNSUPPORTED where the target has less, with the model's widths, these bytes and the target's.
uint64_t md_cuda_shared_need(const md_cuda_shape *shape, const md_cuda_target *target,
                             const md_cuda_emit_options *options);
md_status md_cuda_shared_check(const md_cuda_shape *shape, const md_cuda_target *target,
                               const md_cuda_emit_options *options, md_error *err);
// The widest step (8, 4, 2 or 1 columns) that fits the target; 1 also where nothing does.
uint32_t md_cuda_columns(const md_cuda_shape *shape, const md_cuda_target *target, bool account);

// Appends the source to `out`. Errors: those of the two checks.
md_status md_cuda_emit(const md_cuda_shape *shape, const md_cuda_target *target, const md_cuda_emit_options *options,
                       md_buf *out, md_error *err);

#endif
