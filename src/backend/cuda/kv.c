// A sequence's KV cache on the device. Layout: for each layer keys, then values, [kv head][position][head_dim].
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/engine.h"
#include "base/checked.h"

// 2^32 divided by the golden ratio: multiples of it, however many, leave no wide gaps. Spreads the first blocks of
// several sequences over the workers, so that few have blocks of two of them.
#define HOME_STRIDE 0x9e3779b9u

// Where a cache's first block lies follows from its seat, the first that is free: an only sequence's is with the
// workers that the layout spares for attention (src/plan/layout.c). The last seat may be shared.
#define SEATS 64
static void seat_take(md_cuda_engine *engine, md_cuda_kv *kv) {
    while (kv->seat + 1 < SEATS && engine->seats >> kv->seat & 1) kv->seat++;
    engine->seats |= 1ull << kv->seat;
    kv->home = (uint32_t)((uint64_t)(kv->seat * HOME_STRIDE) * engine->groups >> 32);
}

static const md_snapshot *model_of(const md_cuda_engine *engine) { return engine->base.snapshot; }

// Entries of one layer's keys (or values): kv heads times positions.
static uint64_t entries(const md_cuda_engine *engine, const md_cuda_kv *kv) {
    return (uint64_t)model_of(engine)->kv_heads * kv->context;
}

static md_status publish(md_cuda_engine *engine, md_cuda_kv *kv, md_error *err) {
    return MD_CU_OR_LOST(
        engine, cuMemcpyHtoDAsync(kv->layers, kv->layer, model_of(engine)->layers * sizeof *kv->layer, engine->stream),
        "writing a cache's table");
}

// Bytes of attention statistics and partials for `blocks` blocks of every column and head.
static uint64_t stats_bytes(const md_cuda_engine *engine, uint32_t blocks) {
    return 16ull * MD_CUDA_COLUMNS * model_of(engine)->q_heads * blocks;
}
static uint64_t partials_bytes(const md_cuda_engine *engine, uint32_t blocks) {
    return stats_bytes(engine, blocks) * MD_CUDA_PARTIAL_ENTRIES(model_of(engine)->head_dim);
}

// Room for attention blocks 0 .. blocks-1. Where there is none, what was there stays.
static md_status grow_partials(md_cuda_engine *engine, uint32_t blocks, md_error *err) {
    if (blocks <= engine->blocks) return MD_OK;
    CUdeviceptr stats = 0, partials = 0;
    md_status status;
    MD_TRY(MD_CU_OR_LOST(engine, cuStreamSynchronize(engine->stream), "waiting for the last step"));
    MD_TRY_GOTO(md_cuda_alloc(engine, stats_bytes(engine, blocks), "attention statistics", &stats, err));
    MD_TRY_GOTO(md_cuda_alloc(engine, partials_bytes(engine, blocks), "attention partials", &partials, err));
    MD_TRY_GOTO(md_cuda_fill(engine, stats, MD_CUDA_NO_TAG, stats_bytes(engine, blocks), err));
    MD_TRY_GOTO(md_cuda_fill(engine, partials, MD_CUDA_NO_TAG, partials_bytes(engine, blocks), err));
    md_cuda_free(engine, &engine->stats);
    md_cuda_free(engine, &engine->partials);
    engine->stats = stats, engine->partials = partials, engine->blocks = blocks;
    return MD_OK;
fail:
    md_cuda_free(engine, &stats);
    md_cuda_free(engine, &partials);
    return status;
}

// A cache that did not fit: how much it takes, and how many positions would fit what is free.
static md_status too_long(md_cuda_engine *engine, uint32_t context, md_error *err) {
    const md_snapshot *model = model_of(engine);
    uint64_t position = 4ull * model->layers * model->kv_heads * model->head_dim, cache = position * MD_CUDA_ATTN_ROWS;
    uint64_t partials = stats_bytes(engine, 1) + partials_bytes(engine, 1); // of a block, like `cache`
    size_t available = 0, total = 0;
    engine->cu->cuMemGetInfo(&available, &total);
    uint64_t fit = available / cache;
    if (fit > engine->blocks) fit = (available + partials * engine->blocks) / (cache + partials);
    return md_fail(err, MD_E_MEMORY,
                   "%s: a KV cache of %u positions takes %llu MB, %zu of %zu MB are free: about %llu positions fit",
                   engine->device.name, context, (unsigned long long)(context * position >> 20), available >> 20,
                   total >> 20, (unsigned long long)fit * MD_CUDA_ATTN_ROWS);
}

md_status md_cuda_kv_open(md_engine *base, uint32_t context, md_kv **out, md_error *err) {
    *out = NULL;
    md_cuda_engine *engine = md_cuda_of(base);
    const md_snapshot *model = model_of(engine);
    uint32_t limit = engine->shape->attn_blocks * MD_CUDA_ATTN_ROWS;
    if (context < 1 || context > limit)
        return md_fail(err, MD_E_USAGE, "a context of %u positions, expected 1 to %u", context, limit);
    MD_TRY(md_cuda_enter(engine, err));
    md_status status = MD_OK;
    md_cuda_kv *kv = calloc(1, sizeof *kv);
    if (!kv) return md_fail(err, MD_E_MEMORY, "out of memory");
    kv->context = context;
    seat_take(engine, kv);
    kv->layer = calloc(model->layers, sizeof *kv->layer);
    if (!kv->layer) {
        status = md_fail(err, MD_E_MEMORY, "out of memory");
        goto fail;
    }
    uint64_t half = entries(engine, kv) * model->head_dim * 2;
    kv->wide_bytes = 2 * half * model->layers;
    status = grow_partials(engine, (uint32_t)md_ceil_div(context, MD_CUDA_ATTN_ROWS), err);
    if (status == MD_OK) status = md_cuda_alloc(engine, kv->wide_bytes, "a KV cache", &kv->wide, err);
    if (status == MD_E_MEMORY) status = too_long(engine, context, err);
    if (status != MD_OK) goto fail;
    MD_TRY_GOTO(md_cuda_alloc(engine, model->layers * sizeof *kv->layer, "a cache table", &kv->layers, err));
    for (uint32_t l = 0; l < model->layers; l++)
        kv->layer[l] =
            (md_cuda_kv_layer){.k = kv->wide + 2 * half * l, .v = kv->wide + 2 * half * l + half, .context = context};
    MD_TRY_GOTO(publish(engine, kv, err));
    *out = (md_kv *)kv;
    return MD_OK;
fail:
    md_cuda_kv_close(base, (md_kv *)kv);
    return status;
}

void md_cuda_kv_close(md_engine *base, md_kv *handle) {
    md_cuda_engine *engine = md_cuda_of(base);
    md_cuda_kv *kv = (md_cuda_kv *)handle;
    if (!kv) return;
    engine->cu->cuCtxSetCurrent(engine->context); // also when the GPU is lost: what can be freed is
    md_cuda_free(engine, &kv->layers);
    md_cuda_free(engine, &kv->wide);
    md_cuda_free(engine, &kv->codes);
    engine->seats &= ~(1ull << kv->seat);
    free(kv->layer);
    free(kv);
}

uint64_t md_cuda_kv_bytes(const md_engine *base, const md_kv *handle) {
    (void)base;
    const md_cuda_kv *kv = (const md_cuda_kv *)handle;
    return (kv->wide ? kv->wide_bytes : 0) + kv->code_bytes;
}

// Bytes of one layer's quantized keys (or values): codes, then scales and biases, each at a multiple of 128.
static uint64_t code_bytes(const md_cuda_engine *engine, const md_cuda_kv *kv, md_kv_format format) {
    return md_round_up(entries(engine, kv) * model_of(engine)->head_dim * format.bits / 8, 128);
}
static uint64_t scale_bytes(const md_cuda_engine *engine, const md_cuda_kv *kv, md_kv_format format) {
    return md_round_up(entries(engine, kv) * (model_of(engine)->head_dim / format.group) * 4, 128);
}

static md_status quantize_layer(md_cuda_engine *engine, const md_cuda_kv_layer *from, const md_cuda_kv_layer *to,
                                uint32_t positions, md_error *err) {
    if (!positions) return MD_OK;
    md_cuda_kv_layer arguments[2] = {*from, *to};
    void *pointers[] = {&arguments[0], &arguments[1], &positions};
    return MD_CU_OR_LOST(engine,
                         cuLaunchKernel(engine->width[0].quantize, (unsigned)engine->device.sms, 1, 1, 256, 1, 1, 0,
                                        engine->stream, pointers, NULL),
                         "quantizing a KV cache");
}

md_status md_cuda_kv_quantize(md_engine *base, md_kv *handle, const md_kv_format *format, uint32_t positions,
                              md_error *err) {
    md_cuda_engine *engine = md_cuda_of(base);
    md_cuda_kv *kv = (md_cuda_kv *)handle;
    const md_snapshot *model = model_of(engine);
    if (kv->quantized) return md_fail(err, MD_E_USAGE, "the KV cache is quantized already");
    if (positions > kv->context)
        return md_fail(err, MD_E_CONTEXT, "cannot quantize %u positions of a context of %u", positions, kv->context);
    MD_TRY(md_cuda_enter(engine, err));
    bool all = true;
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < model->layers; l++) {
        if (format[l].bits)
            bytes += 2 * (code_bytes(engine, kv, format[l]) + scale_bytes(engine, kv, format[l]));
        else
            all = false;
    }
    if (!bytes) return MD_OK;
    MD_TRY(md_cuda_alloc(engine, bytes, "a quantized KV cache", &kv->codes, err));
    kv->code_bytes = bytes;
    kv->quantized = true;
    CUdeviceptr at = kv->codes;
    for (uint32_t l = 0; l < model->layers; l++) {
        if (!format[l].bits) continue;
        uint64_t codes = code_bytes(engine, kv, format[l]), scales = scale_bytes(engine, kv, format[l]);
        md_cuda_kv_layer to = {.k = at,
                               .v = at + codes,
                               .k_scales = at + 2 * codes,
                               .v_scales = at + 2 * codes + scales,
                               .bits = format[l].bits,
                               .group = format[l].group,
                               .context = kv->context};
        at += 2 * (codes + scales);
        MD_TRY(quantize_layer(engine, &kv->layer[l], &to, positions, err));
        kv->layer[l] = to;
    }
    MD_TRY(MD_CU_OR_LOST(engine, cuStreamSynchronize(engine->stream), "quantizing a KV cache"));
    if (all) md_cuda_free(engine, &kv->wide);
    return publish(engine, kv, err);
}

// Rows of `row` bytes of each head, from a cache of one context into one of another.
static md_status copy_rows(md_cuda_engine *engine, CUdeviceptr to, uint64_t to_context, CUdeviceptr from,
                           uint64_t from_context, uint64_t row, uint32_t positions, md_error *err) {
    for (uint32_t h = 0; h < model_of(engine)->kv_heads; h++)
        MD_TRY(MD_CU_OR_LOST(engine,
                             cuMemcpyDtoDAsync(to + h * to_context * row, from + h * from_context * row,
                                               positions * row, engine->stream),
                             "copying a KV cache"));
    return MD_OK;
}

md_status md_cuda_kv_copy(md_engine *base, md_kv *to_handle, const md_kv *from_handle, uint32_t positions,
                          md_error *err) {
    md_cuda_engine *engine = md_cuda_of(base);
    md_cuda_kv *to = (md_cuda_kv *)to_handle;
    const md_cuda_kv *from = (const md_cuda_kv *)from_handle;
    const md_snapshot *model = model_of(engine);
    if (positions > to->context || positions > from->context)
        return md_fail(err, MD_E_CONTEXT, "cannot copy %u positions into a cache of %u from one of %u", positions,
                       to->context, from->context);
    if (to->quantized) return md_fail(err, MD_E_USAGE, "the cache to copy into is quantized already");
    MD_TRY(md_cuda_enter(engine, err));
    if (from->quantized) {
        md_kv_format format[MD_MAX_LAYERS];
        for (uint32_t l = 0; l < model->layers; l++)
            format[l] = (md_kv_format){.bits = (uint8_t)from->layer[l].bits, .group = (uint8_t)from->layer[l].group};
        MD_TRY(md_cuda_kv_quantize(base, to_handle, format, 0, err));
    }
    if (!positions) return MD_OK;
    for (uint32_t l = 0; l < model->layers; l++) {
        const md_cuda_kv_layer *a = &to->layer[l], *b = &from->layer[l];
        uint64_t row = b->bits ? model->head_dim * b->bits / 8 : model->head_dim * 2;
        MD_TRY(copy_rows(engine, a->k, to->context, b->k, from->context, row, positions, err));
        MD_TRY(copy_rows(engine, a->v, to->context, b->v, from->context, row, positions, err));
        if (!b->bits) continue;
        row = model->head_dim / b->group * 4;
        MD_TRY(copy_rows(engine, a->k_scales, to->context, b->k_scales, from->context, row, positions, err));
        MD_TRY(copy_rows(engine, a->v_scales, to->context, b->v_scales, from->context, row, positions, err));
    }
    return MD_CU_OR_LOST(engine, cuStreamSynchronize(engine->stream), "copying a KV cache");
}
