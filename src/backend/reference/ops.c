#include "backend/reference/ops.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/bf16.h"
#include "base/mathx.h"
#include "model/quant.h"
#include "plan/plan.h"

enum { UNQUANTIZED_CHUNK = 64 };

float md_ref_chunk(const float *w, const float *x, uint32_t n) {
    float acc[2] = {0, 0};
    for (uint32_t p = 0; 2 * p < n; p++) {
        float a = acc[p % 2];
        if (2 * p + 1 < n) a = fmaf(w[2 * p + 1], x[2 * p + 1], a);
        acc[p % 2] = fmaf(w[2 * p], x[2 * p], a);
    }
    return acc[0] + acc[1];
}

float md_ref_sum(const float *w, const float *x, uint32_t k) {
    float t = 0;
    for (uint32_t at = 0; at < k; at += UNQUANTIZED_CHUNK) {
        uint32_t n = k - at < UNQUANTIZED_CHUNK ? k - at : UNQUANTIZED_CHUNK;
        t = t + md_ref_chunk(w + at, x + at, n);
    }
    return t;
}

void md_ref_integers(const float *x, uint32_t k, float *n, float *unit) {
    for (uint32_t at = 0; at < k; at += MD_REF_INT_BLOCK) {
        uint32_t end = k - at < MD_REF_INT_BLOCK ? k : at + MD_REF_INT_BLOCK, greatest = 0;
        for (uint32_t i = at; i < end; i++) { // as integers: infinities and NaN are the greatest
            uint32_t bits = md_f32_bits(fabsf(x[i]));
            if (bits > greatest) greatest = bits;
        }
        float inverse;
        unit[at / MD_REF_INT_BLOCK] = md_shared_unit(md_f32_from_bits(greatest), &inverse);
        for (uint32_t i = at; i < end; i++)
            n[i] = isfinite(x[i]) ? fmaf(x[i], inverse, MD_EXP_MAGIC) - MD_EXP_MAGIC : 0.0f; // times NaN anyway
    }
}

static float scaled(int64_t sum, float unit) { return (float)(int32_t)sum * unit; }

static uint32_t exact_size(uint32_t group) { return group < MD_REF_INT_BLOCK ? group : MD_REF_INT_BLOCK; }

void md_ref_group_sums(const float *n, const float *unit, uint32_t k, uint32_t group, float *sums) {
    for (uint32_t g = 0; g < k / group; g++) {
        sums[g] = 0;
        for (uint32_t at = g * group; at < (g + 1) * group; at += exact_size(group)) {
            int64_t sum = 0;
            for (uint32_t i = at; i < at + exact_size(group); i++) sum += (int32_t)n[i];
            sums[g] = sums[g] + scaled(sum, unit[at / MD_REF_INT_BLOCK]);
        }
    }
}

float md_ref_quantized_sum(const float *q, const float *scales, const float *biases, const float *n, const float *unit,
                           const float *sums, uint32_t k, uint32_t group) {
    float t = 0;
    for (uint32_t g = 0; g < k / group; g++) {
        for (uint32_t at = g * group; at < (g + 1) * group; at += exact_size(group)) {
            int64_t sum = 0;
            for (uint32_t i = at; i < at + exact_size(group); i++) sum += (int32_t)q[i] * (int32_t)n[i];
            t = fmaf(scales[g], scaled(sum, unit[at / MD_REF_INT_BLOCK]), t);
        }
        t = fmaf(biases[g], sums[g], t);
    }
    return t;
}

float md_ref_strided_sum(const float *values, uint32_t n) {
    float acc[16] = {0};
    for (uint32_t i = 0; i < n; i++) acc[i % 16] = acc[i % 16] + values[i];
    for (uint32_t half = 8; half; half /= 2)
        for (uint32_t j = 0; j < half; j++) acc[j] = acc[j] + acc[j + half];
    return acc[0];
}

static void decode_row(const md_ref_matrix *matrix, uint32_t row, float *out) {
    const md_matrix *desc = matrix->desc;
    const uint8_t *at = matrix->weight + (size_t)row * desc->weight.row_bytes;
    uint8_t codes[128];
    if (desc->bits) {
        for (uint32_t k = 0; k < desc->cols; k += desc->group) {
            md_codes_unpack(at + (size_t)k * desc->bits / 8, desc->bits, desc->group, codes);
            for (uint32_t i = 0; i < desc->group; i++) out[k + i] = codes[i];
        }
        return;
    }
    for (uint32_t k = 0; k < desc->cols; k++) {
        uint16_t half;
        memcpy(&half, at + 2 * (size_t)k, sizeof half);
        switch (desc->weight.dtype) {
        case MD_DTYPE_BF16: out[k] = md_bf16_to_f32(half); break;
        case MD_DTYPE_F16: out[k] = md_f16_to_f32(half); break;
        default: memcpy(&out[k], at + 4 * (size_t)k, 4); break;
        }
    }
}

void md_ref_matmul(const md_ref_matrix *matrix, const float *x, float *y, float *scratch) {
    const md_matrix *desc = matrix->desc;
    float *n = scratch + desc->cols, *sums = n + desc->cols, *unit = sums + desc->cols / 2;
    if (desc->bits) {
        md_ref_integers(x, desc->cols, n, unit);
        md_ref_group_sums(n, unit, desc->cols, desc->group, sums);
    }
    for (uint32_t row = 0; row < desc->rows; row++) {
        decode_row(matrix, row, scratch);
        float t;
        if (desc->bits) {
            size_t at = (size_t)row * (desc->cols / desc->group);
            t = md_ref_quantized_sum(scratch, matrix->scales + at, matrix->biases + at, n, unit, sums, desc->cols,
                                     desc->group);
        } else {
            t = md_ref_sum(scratch, x, desc->cols);
        }
        y[row] = md_bf16_round(t);
        if (matrix->bias) y[row] = md_bf16_round(y[row] + matrix->bias[row]);
    }
}

void md_ref_embedding(const md_ref_matrix *matrix, uint32_t row, float *out) {
    const md_matrix *desc = matrix->desc;
    decode_row(matrix, row, out);
    if (!desc->bits) {
        for (uint32_t k = 0; k < desc->cols; k++) out[k] = md_bf16_round(out[k]);
        return;
    }
    size_t at = (size_t)row * (desc->cols / desc->group);
    for (uint32_t k = 0; k < desc->cols; k++) {
        float scaled = md_bf16_round(matrix->scales[at + k / desc->group] * out[k]);
        out[k] = md_bf16_round(scaled + matrix->biases[at + k / desc->group]);
    }
}

void md_ref_rmsnorm(const float *x, const float *weight, uint32_t n, float eps, float *y) {
    float acc[16] = {0};
    for (uint32_t i = 0; i < n; i++) acc[i % 16] = fmaf(x[i], x[i], acc[i % 16]);
    for (uint32_t half = 8; half; half /= 2)
        for (uint32_t j = 0; j < half; j++) acc[j] = acc[j] + acc[j + half];
    float r = 1.0f / sqrtf(acc[0] / (float)n + eps);
    for (uint32_t i = 0; i < n; i++) y[i] = md_bf16_round(weight[i] * md_bf16_round(x[i] * r));
}

void md_ref_rope(float *x, uint32_t heads, uint32_t dim, uint32_t position, const float *inv_freq, float scale) {
    float at = (float)position * scale;
    for (uint32_t h = 0; h < heads; h++, x += dim) {
        for (uint32_t i = 0; i < dim / 2; i++) {
            float s, c;
            md_sincosf(at * inv_freq[i], &s, &c);
            float x1 = x[i], x2 = x[i + dim / 2];
            x[i] = md_bf16_round(fmaf(x1, c, -(x2 * s)));
            x[i + dim / 2] = md_bf16_round(fmaf(x1, s, x2 * c));
        }
    }
}

void md_ref_swiglu(const float *gate, const float *up, uint32_t n, float *act) {
    for (uint32_t i = 0; i < n; i++) {
        float e = md_bf16_round(md_expf(fabsf(gate[i])));
        float y = 1.0f / (1.0f + e);
        float sigmoid = md_bf16_round(gate[i] < 0 ? y : 1.0f - y);
        act[i] = md_bf16_round(md_bf16_round(gate[i] * sigmoid) * up[i]);
    }
}

static float max_of(const float *values, uint32_t n) {
    float m = values[0];
    for (uint32_t i = 1; i < n; i++)
        if (values[i] > m) m = values[i];
    return m;
}

// Exponentials of one block's scores relative to m, in place; returns their strided sum.
static float exp_block(float *s, uint32_t n, float m) {
    for (uint32_t j = 0; j < n; j++) s[j] = md_expf(s[j] - m);
    return md_ref_strided_sum(s, n);
}

static uint32_t block_size(uint32_t positions, uint32_t at) {
    return positions - at < MD_ATTN_BLOCK ? positions - at : MD_ATTN_BLOCK;
}

void md_ref_attention(const float *q, const float *k, const float *v, uint32_t stride, uint32_t positions, uint32_t dim,
                      float *out, float *scratch) {
    float scale = (float)(1.0 / sqrt((double)dim));
    for (uint32_t j = 0; j < positions; j++) scratch[j] = scale * md_ref_sum(k + (size_t)j * stride, q, dim);
    float m_all = max_of(scratch, positions), total = 0;
    for (uint32_t d = 0; d < dim; d++) out[d] = 0;
    for (uint32_t at = 0; at < positions; at += MD_ATTN_BLOCK) {
        uint32_t n = block_size(positions, at);
        float m = max_of(scratch + at, n);
        float l = exp_block(scratch + at, n, m);
        float w = md_expf(m - m_all);
        total = fmaf(l, w, total);
        for (uint32_t d = 0; d < dim; d++) {
            float o = 0;
            for (uint32_t j = at; j < at + n; j++) o = fmaf(scratch[j], v[(size_t)j * stride + d], o);
            out[d] = fmaf(o, w, out[d]);
        }
    }
    for (uint32_t d = 0; d < dim; d++) out[d] = md_bf16_round(out[d] / total);
}

// Integers x that share a power of two, which is returned: v is about x times it. *wide: finer ones are asked for, and
// made unless the unit is tiny.
static float integers(const float *v, uint32_t n, bool *wide, float *x) {
    uint32_t greatest = 0; // as bits, where infinities and NaN are the greatest
    for (uint32_t i = 0; i < n; i++)
        if ((md_f32_bits(v[i]) & 0x7fffffffu) > greatest) greatest = md_f32_bits(v[i]) & 0x7fffffffu;
    float inverse, unit = md_shared_unit(md_f32_from_bits(greatest), &inverse);
    *wide = *wide && unit >= MD_WIDE_LEAST_UNIT;
    float factor = *wide ? MD_WIDE_FACTOR : 1.0f;
    for (uint32_t i = 0; i < n; i++) x[i] = fmaf(v[i], inverse * factor, MD_EXP_MAGIC) - MD_EXP_MAGIC;
    return unit / factor;
}

// An exact sum of integers times codes; what a NaN unit makes NaN anyway may be anything.
static float integer_sum(const float *x, const float *codes, size_t stride, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * (double)(codes ? codes[i * stride] : 1.0f);
    return (float)sum;
}

void md_ref_quantized_values(const float *p, float share, const md_ref_quantized_kv *kv, uint32_t at, uint32_t n,
                             uint32_t group, float *o) {
    float a[MD_ATTN_BLOCK] = {0}, x[MD_ATTN_BLOCK], top[MD_ATTN_BLOCK], all[16] = {0}, rest[16] = {0};
    const size_t first = (size_t)at * kv->group_stride + group;
    const float half = kv->bits == 8 ? 128.0f : 8.0f;
    bool wide = share >= MD_WIDE_SHARE;
    for (uint32_t j = 0; j < n; j++) a[j] = p[j] * kv->v_scales[first + (size_t)j * kv->group_stride];
    float unit = integers(a, n, &wide, x);
    for (uint32_t j = 0; j < n; j++) {
        size_t g = first + (size_t)j * kv->group_stride;
        all[j % 16] = all[j % 16] + x[j];
        rest[j % 16] = fmaf(p[j], fmaf(half, kv->v_scales[g], kv->v_biases[g]), rest[j % 16]);
        top[j] = wide ? fmaf(x[j], 1.0f / MD_WIDE_TOP, MD_EXP_MAGIC) - MD_EXP_MAGIC : 0.0f;
        x[j] = x[j] - MD_WIDE_TOP * top[j];
    }
    for (uint32_t i = 0; i < 16; i++) rest[i] = fmaf(-half * unit, all[i], rest[i]);
    float constant = md_ref_strided_sum(rest, 16);
    for (uint32_t d = 0; d < kv->group; d++) {
        const float *codes = kv->v_codes + (size_t)at * kv->stride + (size_t)group * kv->group + d;
        float upper = fmaf(integer_sum(top, codes, kv->stride, n), MD_WIDE_TOP * unit, constant);
        o[d] = fmaf(integer_sum(x, codes, kv->stride, n), unit, upper);
    }
}

// Scores of all positions, rounded to bf16.
static void quantized_scores(const float *q, const md_ref_quantized_kv *kv, uint32_t positions, uint32_t dim,
                             float *s) {
    float scale = md_bf16_round((float)(1.0 / sqrt((double)dim)));
    float scaled[MD_MAX_HEAD_DIM] = {0}, x[MD_MAX_HEAD_DIM];
    for (uint32_t d = 0; d < dim; d++) scaled[d] = md_bf16_round(q[d] * scale);
    bool wide = false;
    float unit = integers(scaled, dim, &wide, x);
    for (uint32_t j = 0; j < positions; j++) {
        float t = 0;
        for (uint32_t g = 0; g < dim / kv->group; g++) {
            const size_t of = (size_t)j * kv->group_stride + g;
            const float *codes = kv->k_codes + (size_t)j * kv->stride + (size_t)g * kv->group,
                        *xs = x + (size_t)g * kv->group;
            t = fmaf(kv->k_scales[of], integer_sum(xs, codes, 1, kv->group), t);
            t = fmaf(kv->k_biases[of], integer_sum(xs, NULL, 0, kv->group), t);
        }
        s[j] = md_bf16_round(unit * t);
    }
}

void md_ref_attention_quantized(const float *q, const md_ref_quantized_kv *kv, uint32_t positions, uint32_t dim,
                                float *out, float *scratch) {
    float o[MD_MAX_HEAD_DIM], m_all, total = 0;
    quantized_scores(q, kv, positions, dim, scratch);
    m_all = max_of(scratch, positions);
    for (uint32_t at = 0; at < positions; at += MD_ATTN_BLOCK) {
        float block[MD_ATTN_BLOCK];
        uint32_t n = block_size(positions, at);
        float m = max_of(scratch + at, n);
        memcpy(block, scratch + at, n * sizeof *block);
        total = fmaf(exp_block(block, n, m), md_expf(m - m_all), total);
    }
    for (uint32_t d = 0; d < dim; d++) out[d] = 0;
    for (uint32_t at = 0; at < positions; at += MD_ATTN_BLOCK) {
        uint32_t n = block_size(positions, at);
        float *p = scratch + at, m = max_of(p, n), share = md_expf(m - m_all) * (1.0f / total);
        for (uint32_t j = 0; j < n; j++) p[j] = md_bf16_round(md_expf(p[j] - m) * share);
        for (uint32_t g = 0; g < dim / kv->group; g++)
            md_ref_quantized_values(p, share, kv, at, n, g, o + (size_t)g * kv->group);
        for (uint32_t d = 0; d < dim; d++) out[d] = out[d] + o[d];
    }
    for (uint32_t d = 0; d < dim; d++) out[d] = md_bf16_round(out[d]);
}
