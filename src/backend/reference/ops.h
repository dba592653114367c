// The operators of docs/MODEL.md in plain C, one after the other: the definition of right. Never optimized.
// Vectors are fp32 arrays that hold bf16 values at operator boundaries. All functions expect the floating-point mode of
// base/fpmode.h.
#ifndef MD_BACKEND_REFERENCE_OPS_H
#define MD_BACKEND_REFERENCE_OPS_H

#include <stdint.h>

#include "model/snapshot.h"

// A matrix in memory as the snapshot stores it.
typedef struct md_ref_matrix {
    const md_matrix *desc;
    uint8_t *weight;        // rows * row_bytes; owned
    float *scales, *biases; // [rows][cols / group]; owned, NULL when not quantized
    float *bias;            // [rows] additive; owned, NULL when absent
} md_ref_matrix;

md_status md_ref_matrix_load(const md_matrix *desc, md_ref_matrix *out, md_error *err);
void md_ref_matrix_free(md_ref_matrix *matrix);

// The sum rule of unquantized rows over one chunk of n products.
float md_ref_chunk(const float *w, const float *x, uint32_t n);

// sum(w, x) over K elements in chunks of 64, for unquantized rows.
float md_ref_sum(const float *w, const float *x, uint32_t k);

// x[K] as integers n[K], each MD_REF_INT_BLOCK of them times a power of two: unit[ceil(K / 64)].
enum { MD_REF_INT_BLOCK = 64 };
void md_ref_integers(const float *x, uint32_t k, float *n, float *unit);

// X_g of each of the k / group groups of a vector as integers.
void md_ref_group_sums(const float *n, const float *unit, uint32_t k, uint32_t group, float *sums);

// The quantized row rule over codes q[K] with scales and biases [K / group] and a vector as integers; sums: its X_g.
float md_ref_quantized_sum(const float *q, const float *scales, const float *biases, const float *n, const float *unit,
                           const float *sums, uint32_t k, uint32_t group);

// Plain sum of n values: 16 strided accumulators and a fixed tree.
float md_ref_strided_sum(const float *values, uint32_t n);

// y[rows] = bf(row . x) (+ additive bias). scratch: [cols * 3] floats.
void md_ref_matmul(const md_ref_matrix *matrix, const float *x, float *y, float *scratch);

// One row of the embedding.
void md_ref_embedding(const md_ref_matrix *matrix, uint32_t row, float *out);

void md_ref_rmsnorm(const float *x, const float *weight, uint32_t n, float eps, float *y);

// Rotates `heads` heads of `dim` at `position` in place. inv_freq [dim / 2] and scale: model/rope.h.
void md_ref_rope(float *x, uint32_t heads, uint32_t dim, uint32_t position, const float *inv_freq, float scale);

void md_ref_swiglu(const float *gate, const float *up, uint32_t n, float *act);

// One query head over `positions` cached entries; k(j) and v(j) lie at k + j * stride, v + j * stride.
// out[dim]. scratch: [positions] floats.
void md_ref_attention(const float *q, const float *k, const float *v, uint32_t stride, uint32_t positions, uint32_t dim,
                      float *out, float *scratch);

// The same over a quantized cache: codes [positions][stride], scales and biases [positions][group_stride].
typedef struct md_ref_quantized_kv {
    const float *k_codes, *v_codes;
    const float *k_scales, *k_biases, *v_scales, *v_biases;
    uint32_t stride, group_stride, group, bits;
} md_ref_quantized_kv;
// o[group]: the sum of p_j v_j over one block of n positions from `at` on, for the dims of one group; p[0] is position
// `at`'s. share: the block's greatest probability before its rounding.
void md_ref_quantized_values(const float *p, float share, const md_ref_quantized_kv *kv, uint32_t at, uint32_t n,
                             uint32_t group, float *o);
void md_ref_attention_quantized(const float *q, const md_ref_quantized_kv *kv, uint32_t positions, uint32_t dim,
                                float *out, float *scratch);

#endif
