// The table of CPU kernels: one struct of functions a level (scalar, avx2, avx512, avx512vnni, avx512bf16, neon), all
// with the same bits (docs/MODEL.md). Every kernel is a pure function of its arguments; any number of threads may run
// them. Callers have FTZ and DAZ set (cpu.h).
//
// Lanes: a vector is always 16 floats wide, whatever the ISA. In products of a matrix lane r is row r of a tile
// (plan/pack.h), in attention scores lane r is position r of 16, elsewhere lanes are consecutive elements; so no sum
// ever runs across lanes, except in the strided sums, which end with a fixed tree.
#ifndef MD_BACKEND_CPU_KERNELS_KERNELS_H
#define MD_BACKEND_CPU_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "plan/pack.h"

enum {
    MD_ACT_BLOCK = 8, // columns that share one decoded tile
    MD_LANES = 16
};

// How activations enter a product with an unquantized matrix: blocks of up to 8 columns, interleaved so that one walk
// reads them all.
typedef enum md_act_format {
    MD_ACT_PAIRS, // x[p * columns + c]: u32, elements 2p (low half) and 2p+1 of column c in bf16
    MD_ACT_F32    // x[k * columns + c]: fp32, element k of column c
} md_act_format;

// How they enter a product with codes: as integers of 16 bits, each 64 columns of a vector with a unit of their own
// (docs/MODEL.md). K is a multiple of 32.
typedef struct md_ints {
    void *x;     // [K / 4][columns] times 8 bytes: four integers as the level's products want them
    float *unit; // [ceil(K / 64)][columns]
    float *sums; // [K / 32][columns]: exact sums of 32 integers
} md_ints;

// One product of a tile with a block of columns. An odd `cols` (unquantized only) is filled up with one zero element.
typedef struct md_dot {
    uint32_t cols;   // K
    uint32_t group;  // elements of a chunk
    uint32_t chunks; // ceil(cols / group)
    uint32_t chunk_bytes;
    uint32_t columns;  // 1..MD_ACT_BLOCK
    uint32_t prefetch; // bytes ahead of the tile to prefetch; 0 = none
    const void *x;     // the block: md_ints.x for quantized cells, else in the table's md_act_format
    const float *unit; // quantized cells: md_ints.unit
    const float *sums; // quantized cells: [chunks][columns]: X_g
} md_dot;

// out[c * 16 + lane]: the sum before its rounding.
typedef void (*md_dot_fn)(const md_dot *dot, const uint8_t *tile, float *out);

// Values of a block of positions for attention: rows of `stride` bytes, one a position.
typedef struct md_values {
    const uint8_t *rows;
    uint32_t stride; // bytes from one position to the next
    uint32_t dim;    // head_dim rounded up to a multiple of 16 (rows are padded)
} md_values;

// A quantized cache's block of one KV head; the layout is described in backend/cpu/kv.h.
typedef struct md_key_codes {
    const uint8_t *tiles; // of 16 positions
    uint32_t group, chunks, chunk_bytes;
} md_key_codes;

typedef struct md_value_codes {
    const uint8_t *codes;
    const uint16_t *scales;
    uint32_t dim, group;
} md_value_codes;

// Query heads as integers, for scores over codes.
typedef struct md_queries {
    void *x;     // [heads * head_dim * 2 bytes], in the level's order
    float *unit; // [heads]
    float *sums; // [head_dim / group][heads]: the sum of a head's integers over a group
} md_queries;

// o[h * dim + d] = fma(p[h * 128 + j], v[j][d], o[h * dim + d]) for j ascending, from +0.
typedef void (*md_pv_fn)(const md_values *v, const float *p, uint32_t positions, uint32_t heads, float *o);

typedef void (*md_scores_fn)(const md_key_codes *keys, const md_queries *q, uint32_t positions, uint32_t heads,
                             float *s);

// o[h * dim + d] = sum of p_j v_j[d] with p_j = bf(e[h * 128 + j] * w[h]), which replaces e.
typedef void (*md_value_codes_fn)(const md_value_codes *v, float *e, const float *w, uint32_t positions, uint32_t heads,
                                  float *o);

typedef struct md_kernels {
    const char *name;
    md_act_format act;
    md_dot_fn dot[MD_CELL_F32 + 1][2]; // [md_cell][wide_scales]

    // Brings `columns` rows of bf16 (row c at rows + c * row_stride elements, `cols` long) into the act format.
    void (*act_pack)(const uint16_t *rows, size_t row_stride, uint32_t columns, uint32_t cols, void *x);
    // The same rows as integers; cols is a multiple of 32.
    void (*act_ints)(const uint16_t *rows, size_t row_stride, uint32_t columns, uint32_t cols, const md_ints *to);
    // X_g of every group of 32, 64 or 128 columns: sums[g * columns + c]. cols is a multiple of group.
    void (*act_sums)(const md_ints *ints, uint32_t columns, uint32_t cols, uint32_t group, float *sums);
    // RMSNorm of one row. weight: fp32, readable up to a multiple of 16.
    void (*rmsnorm)(const uint16_t *x, const float *weight, uint32_t n, float eps, uint16_t *out);

    // Epilogues on 16 lanes of one column. bias: 16 fp32 values or NULL.
    void (*store)(const float *t, const float *bias, uint16_t *y);    // y = bf(t), then bf(y + bias)
    void (*residual)(const float *t, const float *bias, uint16_t *x); // x = bf(x + y)
    void (*swiglu)(const float *gate, const float *gate_bias, const float *up, const float *up_bias, uint16_t *act);
    // Lanes 0..7 and 8..15 are the two halves of RoPE's pairs; cosine and sine: 8 values.
    void (*rope)(const float *t, const float *bias, const float *cosine, const float *sine, uint16_t *y);

    // Rows of MD_ATTN_BLOCK scores, one a head, n of them in use (readable and writable up to a multiple of 16):
    // m[h] = max s, s = exp(s - m[h]), l[h] = their strided sum.
    void (*softmax)(float *s, uint32_t heads, uint32_t n, float *m, float *l);
    // *top = max m, w[i] = exp(m[i] - *top); returns the sum of l[i] * w[i] by fma, ascending from +0. m is readable
    // and w writable up to a multiple of 16.
    float (*weigh)(const float *m, const float *l, uint32_t n, float *w, float *top);
    // Products t[h * 16 + lane] to scores s[h * 128 + lane], times a factor.
    void (*scale)(const float *t, uint32_t heads, float factor, float *s);
    md_pv_fn pv_bf16;

    // Attention over codes. bf(q * factor) of `heads` heads as integers; group divides head_dim.
    void (*query_ints)(const uint16_t *q, float factor, uint32_t heads, uint32_t head_dim, uint32_t group,
                       const md_queries *to);
    // s[h * 128 + j] of the block's first `positions` (up to a multiple of 16), rounded to bf16.
    md_scores_fn scores_q4, scores_q8;
    // w[h] = exp(m[h] - top[h]) * (1 / l[h]): a block's share.
    void (*shares)(const float *m, const float *top, const float *l, uint32_t heads, float *w);
    md_value_codes_fn values_q4, values_q8;

    // acc[i] = sum of o[b * stride + i] * w[b] by fma over the blocks b, ascending from +0; w NULL: 1. n a multiple
    // of 16.
    void (*merge)(const float *o, size_t stride, const float *w, uint32_t blocks, uint32_t n, float *acc);
    // y[i] = bf(acc[i] / l); l = 1 leaves the plain rounding.
    void (*finish)(const float *acc, float l, uint32_t n, uint16_t *y);
} md_kernels;

extern const md_kernels md_kernels_scalar;
#if defined(__x86_64__)
extern const md_kernels md_kernels_avx2, md_kernels_avx512, md_kernels_avx512vnni, md_kernels_avx512bf16;
// Whether vdpbf16ps gives the bits of two FMAs, odd element first, on `count` random and edge-biased operands.
int md_avx512bf16_check(uint32_t count);
#elif defined(__aarch64__)
extern const md_kernels md_kernels_neon;
#endif

#endif
