#include "backend/reference/kv.h"

#include <stdlib.h>
#include <string.h>

#include "backend/reference/ops.h"
#include "base/bf16.h"
#include "model/quant.h"

static uint32_t width(const md_ref_kv *kv) { return kv->heads * kv->dim; }

static md_status alloc_values(float **out, size_t n, md_error *err) {
    *out = calloc(n, sizeof **out);
    return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory for a KV cache of %zu values", n);
}

md_status md_ref_kv_open(md_engine *engine, uint32_t context, md_kv **out, md_error *err) {
    *out = NULL;
    const md_snapshot *model = engine->snapshot;
    if (context < 1 || context > MD_MAX_CONTEXT)
        return md_fail(err, MD_E_USAGE, "a context of %u positions, expected 1 to %d", context, MD_MAX_CONTEXT);
    md_ref_kv *kv = calloc(1, sizeof *kv);
    if (!kv) return md_fail(err, MD_E_MEMORY, "out of memory");
    *kv = (md_ref_kv){.context = context, .layers = model->layers, .heads = model->kv_heads, .dim = model->head_dim};
    md_status status = MD_OK;
    kv->layer = calloc(model->layers, sizeof *kv->layer);
    if (!kv->layer) {
        status = md_fail(err, MD_E_MEMORY, "out of memory");
        goto fail;
    }
    MD_TRY_GOTO(alloc_values(&kv->scratch, context, err));
    for (uint32_t l = 0; l < kv->layers; l++) {
        MD_TRY_GOTO(alloc_values(&kv->layer[l].k, (size_t)context * width(kv), err));
        MD_TRY_GOTO(alloc_values(&kv->layer[l].v, (size_t)context * width(kv), err));
    }
    *out = (md_kv *)kv;
    return MD_OK;
fail:
    md_ref_kv_close(engine, (md_kv *)kv);
    return status;
}

void md_ref_kv_close(md_engine *engine, md_kv *base) {
    (void)engine;
    md_ref_kv *kv = (md_ref_kv *)base;
    if (!kv) return;
    for (uint32_t l = 0; kv->layer && l < kv->layers; l++) {
        md_ref_kv_layer *layer = &kv->layer[l];
        float *arrays[] = {layer->k, layer->v, layer->k_scales, layer->k_biases, layer->v_scales, layer->v_biases};
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    }
    free(kv->layer);
    free(kv->scratch);
    free(kv);
}

uint64_t md_ref_kv_bytes(const md_engine *engine, const md_kv *base) {
    (void)engine;
    const md_ref_kv *kv = (const md_ref_kv *)base;
    uint64_t floats = 0;
    for (uint32_t l = 0; l < kv->layers; l++) {
        floats += 2ull * kv->context * width(kv);
        if (kv->layer[l].format.bits) floats += 4ull * kv->context * (width(kv) / kv->layer[l].format.group);
    }
    return floats * sizeof(float);
}

// Quantizes one entry of `n` values in place: codes replace the values.
static void quantize_entry(float *values, uint32_t n, md_kv_format format, float *scales, float *biases) {
    for (uint32_t at = 0; at < n; at += format.group) {
        uint8_t codes[255];
        uint16_t scale, bias;
        md_affine_quantize(values + at, format.group, format.bits, format.group, codes, &scale, &bias);
        for (uint32_t i = 0; i < format.group; i++) values[at + i] = codes[i];
        scales[at / format.group] = md_bf16_to_f32(scale);
        biases[at / format.group] = md_bf16_to_f32(bias);
    }
}

static void quantize_position(md_ref_kv *kv, uint32_t l, uint32_t position) {
    md_ref_kv_layer *layer = &kv->layer[l];
    uint32_t n = width(kv), groups = n / layer->format.group;
    size_t value = (size_t)position * n, group = (size_t)position * groups;
    quantize_entry(layer->k + value, n, layer->format, layer->k_scales + group, layer->k_biases + group);
    quantize_entry(layer->v + value, n, layer->format, layer->v_scales + group, layer->v_biases + group);
}

md_status md_ref_kv_quantize(md_engine *engine, md_kv *base, const md_kv_format *format, uint32_t positions,
                             md_error *err) {
    (void)engine;
    md_ref_kv *kv = (md_ref_kv *)base;
    for (uint32_t l = 0; l < kv->layers; l++) {
        md_ref_kv_layer *layer = &kv->layer[l];
        if (layer->format.bits) return md_fail(err, MD_E_USAGE, "layer %u's KV cache is quantized already", l);
    }
    for (uint32_t l = 0; l < kv->layers; l++) {
        md_ref_kv_layer *layer = &kv->layer[l];
        if (!format[l].bits) continue;
        size_t groups = (size_t)kv->context * (width(kv) / format[l].group);
        MD_TRY(alloc_values(&layer->k_scales, groups, err));
        MD_TRY(alloc_values(&layer->k_biases, groups, err));
        MD_TRY(alloc_values(&layer->v_scales, groups, err));
        MD_TRY(alloc_values(&layer->v_biases, groups, err));
        layer->format = format[l];
        for (uint32_t p = 0; p < positions; p++) quantize_position(kv, l, p);
    }
    return MD_OK;
}

md_status md_ref_kv_copy(md_engine *engine, md_kv *dst_base, const md_kv *src_base, uint32_t positions, md_error *err) {
    md_ref_kv *dst = (md_ref_kv *)dst_base;
    const md_ref_kv *src = (const md_ref_kv *)src_base;
    if (positions > dst->context || positions > src->context)
        return md_fail(err, MD_E_CONTEXT, "cannot copy %u positions into a cache of %u from one of %u", positions,
                       dst->context, src->context);
    md_kv_format format[MD_MAX_LAYERS];
    bool quantized = false;
    for (uint32_t l = 0; l < src->layers; l++) {
        format[l] = src->layer[l].format;
        quantized |= format[l].bits != 0;
        if (dst->layer[l].format.bits)
            return md_fail(err, MD_E_USAGE, "the cache to copy into is quantized already (layer %u)", l);
    }
    if (quantized) MD_TRY(md_ref_kv_quantize(engine, dst_base, format, 0, err));
    size_t n = (size_t)positions * width(src) * sizeof(float);
    for (uint32_t l = 0; l < src->layers; l++) {
        const md_ref_kv_layer *from = &src->layer[l];
        md_ref_kv_layer *to = &dst->layer[l];
        memcpy(to->k, from->k, n);
        memcpy(to->v, from->v, n);
        if (!from->format.bits) continue;
        size_t g = n / from->format.group;
        memcpy(to->k_scales, from->k_scales, g);
        memcpy(to->k_biases, from->k_biases, g);
        memcpy(to->v_scales, from->v_scales, g);
        memcpy(to->v_biases, from->v_biases, g);
    }
    return MD_OK;
}

void md_ref_kv_append(md_ref_kv *kv, uint32_t l, uint32_t position, const float *k, const float *v) {
    md_ref_kv_layer *layer = &kv->layer[l];
    size_t at = (size_t)position * width(kv);
    memcpy(layer->k + at, k, width(kv) * sizeof *k);
    memcpy(layer->v + at, v, width(kv) * sizeof *v);
    if (layer->format.bits) quantize_position(kv, l, position);
}

void md_ref_kv_attend(md_ref_kv *kv, uint32_t l, uint32_t head, const float *q, uint32_t positions, float *out) {
    md_ref_kv_layer *layer = &kv->layer[l];
    size_t at = (size_t)head * kv->dim;
    if (!layer->format.bits) {
        md_ref_attention(q, layer->k + at, layer->v + at, width(kv), positions, kv->dim, out, kv->scratch);
        return;
    }
    uint32_t group = layer->format.group;
    size_t g = at / group;
    md_ref_quantized_kv quantized = {.k_codes = layer->k + at,
                                     .v_codes = layer->v + at,
                                     .k_scales = layer->k_scales + g,
                                     .k_biases = layer->k_biases + g,
                                     .v_scales = layer->v_scales + g,
                                     .v_biases = layer->v_biases + g,
                                     .stride = width(kv),
                                     .group_stride = width(kv) / group,
                                     .group = group,
                                     .bits = layer->format.bits};
    md_ref_attention_quantized(q, &quantized, positions, kv->dim, out, kv->scratch);
}
