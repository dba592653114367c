// The CUDA engine's parts, shared by its files: engine.c (open, close), upload.c (weights), kv.c (caches), launch.c
// (steps), prefill.c (prompts), burst.c (many tokens a launch), locked.c (the same for any thread).
#ifndef MD_BACKEND_CUDA_ENGINE_H
#define MD_BACKEND_CUDA_ENGINE_H

#include <pthread.h>

#include "backend/backend.h"
#include "backend/cuda/dl.h"
#include "backend/cuda/emit.h"
#include "backend/cuda/params.h"
#include "backend/cuda/prefill.h"
#include "backend/cuda/shape.h"

enum { MD_CUDA_MAX_GROUPS = 512 }; // workers: what the choice of the next token has room for

typedef struct md_cuda_width { // the kernel for steps of up to `columns` columns
    uint32_t columns, shared_bytes, threads;
    CUmodule module;
    CUfunction step, quantize;
} md_cuda_width;

typedef struct md_cuda_graph { // the ops engine's launches of a token, captured (graph.c)
    bool on;
    CUgraphExec exec;      // NULL: none yet
    uint32_t columns;      // of the width it was captured with
    md_cuda_params params; // and the parameters, but for what the state holds
    CUdeviceptr state;     // u32 [MD_CUDA_STATE_WORDS]
} md_cuda_graph;

typedef struct md_cuda_engine {
    md_engine base;       // first: the public handle
    pthread_mutex_t lock; // of the functions that the table holds (locked.c); the others are called under it
    const md_cuda_driver *cu;
    md_cuda_device device;
    CUdevice handle;
    CUcontext context; // the device's primary context, retained
    CUstream stream;
    md_cuda_shape *shape;
    md_cuda_target target;
    md_cuda_width width[2]; // one column; the widest
    uint32_t width_count;
    bool resident;
    uint32_t groups, deadline_us;
    CUdeviceptr arena, runs, aux, embed, embed_scales, embed_biases;
    CUdeviceptr exchange, records, logits, report;
    CUdeviceptr stats, partials; // grown as contexts need them
    uint32_t blocks;             // attention blocks they have room for
    uint64_t arena_bytes, weight_bytes;
    md_cuda_prefill prefill;
    uint32_t epoch;         // of the next step; a multiple of the stage count
    uint16_t *logits_host;  // pinned, [columns][vocab]
    uint32_t *mailbox;      // pinned: {steps done, cancel}, then each step's tokens
    CUdeviceptr mailbox_at; // the same, as the device sees it
    uint64_t seats;         // a bit each, those of open caches (kv.c)

    uint32_t delay_seed, drop_worker, drop_stage; // fault injection of tests, 0 = none; see md_cuda_inject
    bool inject;
    bool in_burst; // md_cuda_burst is under way; by whoever holds the lock
    bool lost;     // a launch or a step failed in the driver: nothing works in this context any more
    char why[512];
    bool poison; // of tests: memory is filled with NaN before it is used, the kernel's shared memory too
    md_cuda_graph graph;
    bool account_on;
    CUdeviceptr account;    // with account_on: u64 [MD_CUDA_ACCOUNT_WORDS]
    uint64_t account_steps; // that are in it
} md_cuda_engine;

// The records of kernels/next.cuh: two buffers of bests and candidates for each column.
static inline uint64_t md_cuda_record_bytes(const md_cuda_engine *engine) {
    return 2ull * MD_CUDA_COLUMNS * (engine->groups * (MD_CUDA_CANDIDATES + 2) + 256) * 16;
}

static inline md_cuda_engine *md_cuda_of(md_engine *engine) { return (md_cuda_engine *)engine; }

typedef struct md_cuda_kv {
    uint32_t context, seat, home;
    bool quantized;
    CUdeviceptr layers;      // md_cuda_kv_layer[layers]
    CUdeviceptr wide, codes; // bf16 of all layers; codes and scales of the quantized ones
    uint64_t wide_bytes, code_bytes;
    md_cuda_kv_layer *layer; // the host's copy of `layers`, owned
} md_cuda_kv;

#define MD_CU(engine, call, what) md_cuda_check((engine)->cu, (engine)->cu->call, what, err)
// Copies to the device go through the engine's stream: cuMemcpyHtoD comes back when pageable memory has been read,
// which may be before the bytes are there, and this stream waits for no other. The source may change as soon as the
// call is back.

// Makes the engine's context current in the calling thread: before any driver call. MD_E_DEVICE once the GPU is lost.
md_status md_cuda_enter(const md_cuda_engine *engine, md_error *err);
md_status md_cuda_alloc(const md_cuda_engine *engine, uint64_t bytes, const char *what, CUdeviceptr *out,
                        md_error *err);
// Remembers that the GPU is lost, and in what; MD_E_DEVICE.
md_status md_cuda_lose(md_cuda_engine *engine, CUresult result, const char *what, md_error *err);
// For calls that only fail with a GPU that is lost: whatever they say, it is.
#define MD_CU_OR_LOST(engine, call, what) md_cuda_or_lost(engine, (engine)->cu->call, what, err)
static inline md_status md_cuda_or_lost(md_cuda_engine *engine, CUresult result, const char *what, md_error *err) {
    return result == 0 ? MD_OK : md_cuda_lose(engine, result, what, err);
}
// Memory set to a byte. MD_CUDA_NO_TAG: entries that nobody waits for, since tags stay far below.
enum { MD_CUDA_NO_TAG = 0xff, MD_CUDA_POISON = 0xff };
md_status md_cuda_fill(const md_cuda_engine *engine, CUdeviceptr at, unsigned char byte, uint64_t bytes, md_error *err);
void md_cuda_free(const md_cuda_engine *engine, CUdeviceptr *memory);

// Generates, compiles and loads the kernel of one width, once; G CTAs of it must fit the GPU at once.
md_status md_cuda_width_open(md_cuda_engine *engine, md_cuda_width *width, md_error *err);

// Packs and uploads the weights: arena, runs, aux, embedding.
md_status md_cuda_upload(md_cuda_engine *engine, const md_engine_options *options, md_error *err);

md_status md_cuda_kv_open(md_engine *engine, uint32_t context, md_kv **out, md_error *err);
void md_cuda_kv_close(md_engine *engine, md_kv *kv);
uint64_t md_cuda_kv_bytes(const md_engine *engine, const md_kv *kv);
md_status md_cuda_kv_quantize(md_engine *engine, md_kv *kv, const md_kv_format *format, uint32_t positions,
                              md_error *err);
md_status md_cuda_kv_copy(md_engine *engine, md_kv *dst, const md_kv *src, uint32_t positions, md_error *err);

// The parameters every launch has, and a launch of stages [params->stage_begin, params->stage_end).
void md_cuda_params_fill(md_cuda_engine *engine, md_cuda_params *params);
md_status md_cuda_launch(md_cuda_engine *engine, const md_cuda_width *width, const md_cuda_params *params,
                         bool cooperative, md_error *err);
// Whether a launch of one stage, too, must have all its CTAs at once: of several columns digits pass between them. (Not
// in a graph, which is for measurements alone.)
bool md_cuda_together(const md_cuda_engine *engine, const md_cuda_width *width);
// One launch a stage, and one for each part of the choice of the next tokens.
md_status md_cuda_launch_stages(md_cuda_engine *engine, const md_cuda_width *width, md_cuda_params *params,
                                md_error *err);
// A whole step of the engine's kind: one launch, or one a stage.
md_status md_cuda_launch_step(md_cuda_engine *engine, const md_cuda_width *width, md_cuda_params *params,
                              md_error *err);
// Waits for the stream, then looks at the report: MD_E_TIMEOUT with its words when a wait ran out. The engine then goes
// on as `ops`, which needs no CTA to run beside another.
md_status md_cuda_finish(md_cuda_engine *engine, md_error *err);
// Reserves `steps` steps' tags.
md_status md_cuda_epoch_take(md_cuda_engine *engine, uint32_t steps, uint32_t *epoch, md_error *err);

// Column `column`'s logits of the last launch: on their way to the host; after md_cuda_finish, as floats to out
// [vocab].
md_status md_cuda_logits_ask(md_cuda_engine *engine, uint32_t column, md_error *err);
void md_cuda_logits_take(const md_cuda_engine *engine, uint32_t column, float *out);

md_status md_cuda_step(md_engine *engine, const md_column *columns, uint32_t count, md_error *err);
md_status md_cuda_burst(md_engine *engine, md_burst *request, md_error *err);

// graph.c, for an ops engine with graph.on: memory; what a step's launches find there; `steps` steps in a row.
md_status md_cuda_graph_open(md_cuda_engine *engine, md_error *err);
void md_cuda_graph_close(md_cuda_engine *engine);
md_status md_cuda_graph_state(md_cuda_engine *engine, const md_cuda_params *params, md_error *err);
md_status md_cuda_graph_steps(md_cuda_engine *engine, const md_cuda_width *width, md_cuda_params *params,
                              uint32_t steps, md_error *err);

// account.c: the account's memory; what has come together since it was last read.
md_status md_cuda_account_open(md_cuda_engine *engine, md_error *err);
md_status md_cuda_account(md_engine *engine, md_account *out, md_error *err);

// locked.c: the functions of the same names, one at a time.
void md_cuda_lock_init(md_cuda_engine *engine);
md_status md_cuda_locked_kv_open(md_engine *engine, uint32_t context, md_kv **out, md_error *err);
void md_cuda_locked_kv_close(md_engine *engine, md_kv *kv);
md_status md_cuda_locked_kv_quantize(md_engine *engine, md_kv *kv, const md_kv_format *format, uint32_t positions,
                                     md_error *err);
md_status md_cuda_locked_kv_copy(md_engine *engine, md_kv *dst, const md_kv *src, uint32_t positions, md_error *err);
md_status md_cuda_locked_step(md_engine *engine, const md_column *columns, uint32_t count, md_error *err);
md_status md_cuda_locked_burst(md_engine *engine, md_burst *burst, md_error *err);
md_status md_cuda_locked_account(md_engine *engine, md_account *out, md_error *err);

#endif
