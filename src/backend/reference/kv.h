// The reference engine's KV cache: every value as fp32 (bf16 values, or codes beside their scales and biases).
#ifndef MD_BACKEND_REFERENCE_KV_H
#define MD_BACKEND_REFERENCE_KV_H

#include "backend/backend.h"

typedef struct md_ref_kv_layer {
    md_kv_format format;
    float *k, *v;                                     // [context][kv_heads * head_dim]: values, or codes when quantized
    float *k_scales, *k_biases, *v_scales, *v_biases; // [context][kv_heads * head_dim / group]
} md_ref_kv_layer;

typedef struct md_ref_kv {
    uint32_t context, layers, heads, dim;
    md_ref_kv_layer *layer;
    float *scratch; // [context] scores
} md_ref_kv;

md_status md_ref_kv_open(md_engine *engine, uint32_t context, md_kv **out, md_error *err);
void md_ref_kv_close(md_engine *engine, md_kv *kv);
uint64_t md_ref_kv_bytes(const md_engine *engine, const md_kv *kv);
md_status md_ref_kv_quantize(md_engine *engine, md_kv *kv, const md_kv_format *format, uint32_t positions,
                             md_error *err);
md_status md_ref_kv_copy(md_engine *engine, md_kv *dst, const md_kv *src, uint32_t positions, md_error *err);

// Stores one token's keys (after RoPE) and values: [heads * dim] bf16 values, quantized where the layer is.
void md_ref_kv_append(md_ref_kv *kv, uint32_t layer, uint32_t position, const float *k, const float *v);

// One query head against the first `positions` entries of KV head `head`; out[dim].
void md_ref_kv_attend(md_ref_kv *kv, uint32_t layer, uint32_t head, const float *q, uint32_t positions, float *out);

#endif
