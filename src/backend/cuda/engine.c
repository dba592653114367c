// Opening and closing a CUDA engine.
#include "backend/cuda/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/compile.h"
#include "base/log.h"

enum { DEFAULT_DEADLINE_MS = 2000, MAX_SOURCE = 8 << 20, MAILBOX_BYTES = 4096 };

md_status md_cuda_enter(const md_cuda_engine *engine, md_error *err) {
    if (engine->lost) return md_fail(err, MD_E_DEVICE, "%s", engine->why);
    return MD_CU(engine, cuCtxSetCurrent(engine->context), "cuCtxSetCurrent");
}

md_status md_cuda_alloc(const md_cuda_engine *engine, uint64_t bytes, const char *what, CUdeviceptr *out,
                        md_error *err) {
    CUresult result = engine->cu->cuMemAlloc(out, bytes ? bytes : 1);
    if (result == 0) return engine->poison ? md_cuda_fill(engine, *out, MD_CUDA_POISON, bytes, err) : MD_OK;
    *out = 0;
    size_t available = 0, total = 0;
    engine->cu->cuMemGetInfo(&available, &total);
    return md_fail(err, MD_E_MEMORY, "%s: %llu MB for %s, %zu of %zu MB are free", engine->device.name,
                   (unsigned long long)(bytes >> 20), what, available >> 20, total >> 20);
}

md_status md_cuda_lose(md_cuda_engine *engine, CUresult result, const char *what, md_error *err) {
    md_error why;
    md_cuda_check(engine->cu, result, what, &why);
    snprintf(engine->why, sizeof engine->why, "%s is lost to this program, which has to be started again: %.300s",
             engine->device.name, why.message);
    engine->lost = true;
    return md_fail(err, MD_E_DEVICE, "%s", engine->why);
}

md_status md_cuda_fill(const md_cuda_engine *engine, CUdeviceptr at, unsigned char byte, uint64_t bytes,
                       md_error *err) {
    MD_TRY(MD_CU(engine, cuMemsetD8Async(at, byte, bytes, engine->stream), "filling memory"));
    return MD_CU(engine, cuStreamSynchronize(engine->stream),
                 "filling memory"); // other copies don't wait for the stream
}

void md_cuda_free(const md_cuda_engine *engine, CUdeviceptr *memory) {
    if (*memory) engine->cu->cuMemFree(*memory);
    *memory = 0;
}

static bool close_engine(md_engine *base) {
    md_cuda_engine *engine = md_cuda_of(base);
    if (engine->context) {
        const md_cuda_driver *cu = engine->cu;
        cu->cuCtxSetCurrent(engine->context);
        if (engine->stream) cu->cuStreamSynchronize(engine->stream);
        md_cuda_graph_close(engine);
        CUdeviceptr *memory[] = {&engine->arena,        &engine->runs,         &engine->aux,      &engine->embed,
                                 &engine->embed_scales, &engine->embed_biases, &engine->exchange, &engine->records,
                                 &engine->logits,       &engine->report,       &engine->stats,    &engine->partials,
                                 &engine->account};
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) md_cuda_free(engine, memory[i]);
        if (engine->logits_host) cu->cuMemFreeHost(engine->logits_host);
        if (engine->mailbox) cu->cuMemFreeHost(engine->mailbox);
        md_cuda_prefill_close(engine);
        for (uint32_t i = 0; i < engine->width_count; i++)
            if (engine->width[i].module) cu->cuModuleUnload(engine->width[i].module);
        if (engine->stream) cu->cuStreamDestroy(engine->stream);
        cu->cuDevicePrimaryCtxRelease(engine->handle);
    }
    md_cuda_shape_free(engine->shape);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
    return true;
}

static void engine_info(const md_engine *base, md_engine_info *out) {
    const md_cuda_engine *engine = (const md_cuda_engine *)base;
    *out = (md_engine_info){.engine = engine->resident ? "resident" : "ops",
                            .backend = "cuda",
                            .workers = engine->groups,
                            .max_columns = engine->width[engine->width_count - 1].columns,
                            .prompt_columns = MD_CUDA_PREFILL_COLUMNS,
                            .weight_bytes = engine->weight_bytes};
    snprintf(out->device, sizeof out->device, "%s, %u of %d SMs%s", engine->device.name, engine->groups,
             engine->device.sms, engine->graph.on ? ", a graph a token" : "");
}

static const md_engine_ops cuda_ops = {.close = close_engine,
                                       .info = engine_info,
                                       .kv_open = md_cuda_locked_kv_open,
                                       .kv_close = md_cuda_locked_kv_close,
                                       .kv_bytes = md_cuda_kv_bytes,
                                       .kv_quantize = md_cuda_locked_kv_quantize,
                                       .kv_copy = md_cuda_locked_kv_copy,
                                       .step = md_cuda_locked_step,
                                       .burst = md_cuda_locked_burst,
                                       .account = md_cuda_locked_account};

static md_status open_device(md_cuda_engine *engine, int index, md_error *err) {
    MD_TRY(md_cuda_driver_get(&engine->cu, err));
    MD_TRY(md_cuda_device_get(index, &engine->device, err));
    if (engine->device.unsupported)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: %s", engine->device.name, engine->device.unsupported);
    MD_TRY(MD_CU(engine, cuDeviceGet(&engine->handle, index), "cuDeviceGet"));
    MD_TRY(MD_CU(engine, cuDevicePrimaryCtxRetain(&engine->context, engine->handle), "cuDevicePrimaryCtxRetain"));
    MD_TRY(md_cuda_enter(engine, err));
    return MD_CU(engine, cuStreamCreate(&engine->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

md_status md_cuda_width_open(md_cuda_engine *engine, md_cuda_width *width, md_error *err) {
    const md_cuda_target *target = &engine->target;
    if (width->module) return MD_OK;
    md_buf source;
    md_cubin cubin = {0};
    md_status status;
    md_buf_init(&source, MAX_SOURCE);
    const md_cuda_emit_options options = {.columns = width->columns,
                                          .inject = engine->inject,
                                          .account = engine->account_on,
                                          .graph = engine->graph.on,
                                          .tune = getenv("MEGADECODE_CUDA_TUNE")};
    MD_TRY_GOTO(md_cuda_emit(engine->shape, target, &options, &source, err));
    MD_TRY_GOTO(md_cuda_compile_cached(md_buf_str(&source), target->arch, &cubin, err));
    MD_TRY_GOTO(MD_CU(engine, cuModuleLoadData(&width->module, cubin.bytes), "loading the compiled kernel"));
    MD_TRY_GOTO(MD_CU(engine, cuModuleGetFunction(&width->step, width->module, "md_step"), "md_step"));
    MD_TRY_GOTO(
        MD_CU(engine, cuModuleGetFunction(&width->quantize, width->module, "md_cache_quantize"), "md_cache_quantize"));
    MD_TRY_GOTO(MD_CU(engine, cuFuncSetAttribute(width->step, CU_FUNC_MAX_DYNAMIC_SHARED, (int)target->shared_bytes),
                      "shared memory of the kernel"));
    width->shared_bytes = target->shared_bytes;
    width->threads = md_cuda_threads(target, &options);
    int per_sm = 0;
    MD_TRY_GOTO(MD_CU(
        engine,
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, width->step, (int)width->threads, target->shared_bytes),
        "occupancy of the kernel"));
    if (engine->groups > (uint32_t)(per_sm * engine->device.sms))
        status = md_fail(err, MD_E_DEVICE, "%s: %u workers can't all run at once, at most %d can", engine->device.name,
                         engine->groups, per_sm * engine->device.sms);
fail:
    if (status != MD_OK && width->module) { // half a width is none
        (void)engine->cu->cuModuleUnload(width->module);
        width->module = NULL;
    }
    md_cubin_free(&cubin);
    md_buf_free(&source);
    return status;
}

// A variable of measurements and tests that is 1 or 0; unset or empty: 0.
static md_status switch_of(const char *variable, bool *on, md_error *err) {
    const char *text = getenv(variable);
    *on = text && strcmp(text, "1") == 0;
    if (!text || !*text || *on || strcmp(text, "0") == 0) return MD_OK;
    return md_fail(err, MD_E_USAGE, "%s: found \"%s\", expected 0 or 1", variable, text);
}

static md_status read_switches(md_cuda_engine *engine, md_error *err) {
    MD_TRY(switch_of("MEGADECODE_CUDA_POISON", &engine->poison, err));
    MD_TRY(switch_of("MEGADECODE_CUDA_INJECT", &engine->inject, err));
    MD_TRY(switch_of("MEGADECODE_CUDA_GRAPH", &engine->graph.on, err));
    engine->inject = engine->inject || engine->poison;
    engine->graph.on = engine->graph.on && !engine->resident;
    return md_cuda_tune_check(getenv("MEGADECODE_CUDA_TUNE"), err);
}

// The kernel of one column now; the wide one when a step first needs it.
static md_status open_kernels(md_cuda_engine *engine, md_error *err) {
    md_cuda_target *target = &engine->target;
    MD_TRY(md_cuda_target_of(engine->device.major, engine->device.minor, target, err));
    if (engine->device.shared_bytes < target->shared_bytes) target->shared_bytes = engine->device.shared_bytes;
    engine->width[engine->width_count++].columns = 1;
    uint32_t widest = md_cuda_columns(engine->shape, target, engine->account_on);
    if (widest > 1) engine->width[engine->width_count++].columns = widest;
    return md_cuda_width_open(engine, &engine->width[0], err);
}

// Buffers that don't depend on a context's length.
static md_status open_buffers(md_cuda_engine *engine, md_error *err) {
    uint32_t widest = engine->width[engine->width_count - 1].columns;
    uint64_t exchange = 16ull * engine->shape->exchange_entries, records = md_cuda_record_bytes(engine);
    uint64_t logits = 2ull * widest * engine->base.snapshot->vocab;
    MD_TRY(md_cuda_alloc(engine, exchange, "vectors", &engine->exchange, err));
    MD_TRY(md_cuda_alloc(engine, records, "records", &engine->records, err));
    MD_TRY(md_cuda_alloc(engine, logits, "logits", &engine->logits, err));
    MD_TRY(md_cuda_alloc(engine, 4 * MD_CUDA_REPORT_WORDS, "the report", &engine->report, err));
    MD_TRY(md_cuda_fill(engine, engine->exchange, MD_CUDA_NO_TAG, exchange, err));
    MD_TRY(md_cuda_fill(engine, engine->records, MD_CUDA_NO_TAG, records, err));
    MD_TRY(md_cuda_fill(engine, engine->report, 0, 4 * MD_CUDA_REPORT_WORDS, err));
    if (engine->account_on) MD_TRY(md_cuda_account_open(engine, err));
    if (engine->graph.on) MD_TRY(md_cuda_graph_open(engine, err));
    void *pinned;
    MD_TRY(MD_CU(engine, cuMemHostAlloc(&pinned, logits, 0), "pinned memory for logits"));
    engine->logits_host = pinned;
    MD_TRY(MD_CU(engine, cuMemHostAlloc(&pinned, MAILBOX_BYTES, CU_HOST_ALLOC_DEVICEMAP), "pinned memory for tokens"));
    engine->mailbox = pinned;
    memset(pinned, 0, MAILBOX_BYTES);
    return MD_CU(engine, cuMemHostGetDevicePointer(&engine->mailbox_at, pinned, 0), "cuMemHostGetDevicePointer");
}

md_status md_cuda_open(const md_plan *plan, bool resident, const md_engine_options *options, md_engine **out,
                       md_error *err) {
    *out = NULL;
    md_status status;
    md_cuda_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return md_fail(err, MD_E_MEMORY, "out of memory");
    md_cuda_lock_init(engine);
    engine->base = (md_engine){.ops = &cuda_ops, .snapshot = plan->snapshot, .plan = plan};
    engine->resident = resident;
    engine->deadline_us = (options->deadline_ms ? options->deadline_ms : DEFAULT_DEADLINE_MS) * 1000;
    engine->epoch = plan->stage_count;
    engine->account_on = options->account;
    MD_TRY_GOTO(read_switches(engine, err));
    MD_TRY_GOTO(open_device(engine, options->device_index, err));
    engine->groups = options->groups ? options->groups : (uint32_t)engine->device.sms;
    if (engine->groups > MD_CUDA_MAX_GROUPS) {
        status = md_fail(err, MD_E_USAGE, "groups: found %u, expected at most %d on a GPU", engine->groups,
                         MD_CUDA_MAX_GROUPS);
        goto fail;
    }
    MD_TRY_GOTO(md_cuda_shape_build(plan, &engine->shape, err));
    MD_TRY_GOTO(open_kernels(engine, err));
    MD_TRY_GOTO(open_buffers(engine, err));
    MD_TRY_GOTO(md_cuda_upload(engine, options, err));
    *out = &engine->base;
    return MD_OK;
fail:
    close_engine(&engine->base);
    return status;
}
