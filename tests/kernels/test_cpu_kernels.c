// Every kernel of every level this CPU has against docs/MODEL.md written out in scalar C on plain rows (not on tiles,
// not through the vector layer): exact bits, on random and edge-biased inputs. MEGADECODE_SEED repeats a failing run.
//
// Built alone for another ISA by tools/check-neon: needs src/base, src/model/quant.c, src/plan/tile_lanes.c and the
// kernels.
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/level.h"
#include "base/bf16.h"
#include "base/fpmode.h"
#include "base/mathx.h"
#include "model/quant.h"
#include "values.h"

static uint64_t seed;
static const md_kernels *k;
static int failures;

static int same(float a, float b) { return md_f32_bits(a) == md_f32_bits(b) || (a != a && b != b); }

static void fail_at(const char *what, size_t i, float found, float want) {
    if (failures++ < 10)
        fprintf(stderr, "%s, %s: element %zu is %.9g (%a), expected %.9g (%a); MEGADECODE_SEED=%llu\n", k->name, what,
                i, found, found, want, want, (unsigned long long)seed);
}

static void compare(const char *what, const float *found, const float *want, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!same(found[i], want[i])) {
            fail_at(what, i, found[i], want[i]);
            return;
        }
}

static void compare_bf16(const char *what, const uint16_t *found, const uint16_t *want, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!same(md_bf16_to_f32(found[i]), md_bf16_to_f32(want[i]))) {
            fail_at(what, i, md_bf16_to_f32(found[i]), md_bf16_to_f32(want[i]));
            return;
        }
}

// ---- the definition ----------------------------------------------------------------------------------------------

static float def_chunk(const float *w, const float *x, uint32_t n) {
    float a[2] = {0, 0};
    for (uint32_t p = 0; 2 * p < n; p++) {
        if (2 * p + 1 < n) a[p & 1] = fmaf(w[2 * p + 1], x[2 * p + 1], a[p & 1]);
        a[p & 1] = fmaf(w[2 * p], x[2 * p], a[p & 1]);
    }
    return a[0] + a[1];
}

// A block of up to 64 elements as integers and their unit, in double and by its own search for the exponent: the unit
// is 2^-14 of the least power of two that every |x| stays below by 1/128 of it.
static float def_ints(const float *x, uint32_t n, int32_t *ints) {
    double most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) most = INFINITY;
        if (fabs((double)x[i]) > most && fabsf(x[i]) >= 0x1p-126f) most = fabs((double)x[i]);
    }
    int e = -110; // units are 2^-125 at least, normal numbers
    while (e < 128 && most * (1 + 1.0 / 128) >= ldexp(1, e)) e++;
    bool finite = most * (1 + 1.0 / 128) < ldexp(1, 128);
    for (uint32_t i = 0; i < n; i++)
        ints[i] = finite && fabsf(x[i]) >= 0x1p-126f ? (int32_t)nearbyint(ldexp(x[i], 15 - e)) : 0;
    return finite ? (float)ldexp(1, e - 15) : NAN;
}

static float def_strided(const float *v, uint32_t n, int squares) {
    float a[16] = {0};
    for (uint32_t i = 0; i < n; i++) a[i % 16] = squares ? fmaf(v[i], v[i], a[i % 16]) : a[i % 16] + v[i];
    for (int half = 8; half; half /= 2)
        for (int j = 0; j < half; j++) a[j] = a[j] + a[j + half];
    return a[0];
}

// ---- products ----------------------------------------------------------------------------------------------------

enum { MAX_K = 1024, MAX_C = 8 };

typedef struct dot_case {
    md_matrix matrix;
    md_tile_shape shape;
    uint8_t weight[16][MAX_K * 4], scales[16][MAX_K / 32 * 4], biases[16][MAX_K / 32 * 4];
    float w[16][MAX_K], scale[16][MAX_K / 32], bias[16][MAX_K / 32]; // the same decoded
    _Alignas(64) uint8_t tile[16 * MAX_K * 4 + 4096];
    uint16_t x[MAX_C][MAX_K];
} dot_case;

// What the kernels read and write of a case, each of exactly the bytes that kernels.h says: under ASan a byte more is
// seen.
typedef struct dot_memory {
    uint16_t *rows;
    uint8_t *tile;
    void *x;
    float *unit, *parts, *sums, *out;
} dot_memory;

static dot_memory dot_memory_of(const dot_case *d, uint32_t columns) {
    const uint32_t K = d->matrix.cols, even = (K + 1) / 2 * 2, bits = d->matrix.bits;
    const size_t element = bits || k->act == MD_ACT_PAIRS ? 2 : 4, f = columns * sizeof(float);
    dot_memory memory = {.rows = malloc(sizeof *memory.rows * columns * K),
                         .tile = malloc(d->shape.tile_bytes),
                         .x = malloc(columns * even * element),
                         .unit = malloc(f * ((K + 63) / 64)),
                         .parts = malloc(f * (K / 32 + !bits)),
                         .sums = malloc(f * d->shape.chunks),
                         .out = malloc(f * 16)};
    for (uint32_t c = 0; c < columns; c++) memcpy(memory.rows + c * K, d->x[c], K * sizeof *memory.rows);
    memcpy(memory.tile, d->tile, d->shape.tile_bytes);
    return memory;
}

static void dot_memory_free(const dot_memory *m) {
    void *const all[] = {m->rows, m->tile, m->x, m->unit, m->parts, m->sums, m->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static float store_scale(md_dtype dtype, float v, uint8_t *at) {
    if (dtype == MD_DTYPE_BF16) {
        uint16_t half = md_bf16_from_f32(v);
        memcpy(at, &half, 2);
        return md_bf16_to_f32(half);
    }
    if (dtype == MD_DTYPE_F16) {
        uint16_t half = (uint16_t)(rnd() & 0xbfffu); // finite, any sign, denormals too
        memcpy(at, &half, 2);
        return md_f16_to_f32(half);
    }
    memcpy(at, &v, 4);
    return v;
}

static void make_quantized(dot_case *d, uint32_t bits, uint32_t group, md_dtype dtype, uint32_t mood) {
    uint32_t K = d->matrix.cols, size = dtype == MD_DTYPE_F32 ? 4 : 2;
    uint8_t codes[MAX_K];
    for (int r = 0; r < 16; r++) {
        uint32_t style = below(4);
        for (uint32_t i = 0; i < K; i++)
            codes[i] = (uint8_t)(style == 0 ? 0 : style == 1 ? (1u << bits) - 1 : rnd() & ((1u << bits) - 1));
        md_codes_pack(codes, bits, K, d->weight[r]);
        for (uint32_t i = 0; i < K; i++) d->w[r][i] = codes[i];
        for (uint32_t g = 0; g < K / group; g++) {
            d->scale[r][g] = store_scale(dtype, value(mood) * 0.05f, d->scales[r] + g * size);
            d->bias[r][g] = store_scale(dtype, value(mood), d->biases[r] + g * size);
        }
    }
}

static void make_plain(dot_case *d, md_dtype dtype, uint32_t mood) {
    for (int r = 0; r < 16; r++)
        for (uint32_t i = 0; i < d->matrix.cols; i++)
            d->w[r][i] = store_scale(dtype, value(mood), d->weight[r] + i * (dtype == MD_DTYPE_F32 ? 4 : 2));
}

// t of row r and what X_g of column c are, by docs/MODEL.md.
static float def_quantized(const dot_case *d, int r, const float *x, uint32_t group, float *sums) {
    float t = 0;
    for (uint32_t at = 0, g = 0; at < d->matrix.cols; g++) {
        sums[g] = 0;
        for (uint32_t end = at + group; at < end;) {
            int32_t n[64];
            uint32_t size = group < 64 ? group : 64, block = at / 64 * 64;
            uint32_t left = d->matrix.cols - block;
            float unit = def_ints(x + block, left < 64 ? left : 64, n);
            int64_t sum = 0, plain = 0;
            for (uint32_t i = 0; i < size; i++, at++) {
                sum += (int64_t)d->w[r][at] * n[at - block];
                plain += n[at - block];
            }
            t = fmaf(d->scale[r][g], (float)sum * unit, t);
            sums[g] = sums[g] + (float)plain * unit;
        }
        t = fmaf(d->bias[r][g], sums[g], t);
    }
    return t;
}

static float def_plain(const dot_case *d, int r, const float *x) {
    float t = 0;
    for (uint32_t at = 0; at < d->matrix.cols; at += 64)
        t = t + def_chunk(d->w[r] + at, x + at, d->matrix.cols - at < 64 ? d->matrix.cols - at : 64);
    return t;
}

static void make_tile(dot_case *d, uint32_t bits, uint32_t group, md_dtype dtype, uint32_t K, uint32_t mood) {
    memset(d, 0, sizeof *d);
    d->matrix = (md_matrix){.rows = 16, .cols = K, .bits = bits, .group = group};
    d->matrix.weight.dtype = bits ? MD_DTYPE_U32 : dtype;
    d->matrix.scales.dtype = d->matrix.biases.dtype = dtype;
    if (bits)
        make_quantized(d, bits, group, dtype, mood);
    else
        make_plain(d, dtype, mood);
    md_codec_lanes.shape(&d->matrix, &d->shape);
    md_tile_rows rows = {.matrix = &d->matrix};
    for (int r = 0; r < 16; r++)
        rows.weight[r] = d->weight[r], rows.scales[r] = d->scales[r], rows.biases[r] = d->biases[r];
    md_codec_lanes.pack(&d->shape, &rows, d->tile);
}

static void check_dot(dot_case *d, uint32_t bits, uint32_t group, md_dtype dtype, uint32_t K, uint32_t columns) {
    uint32_t mood = below(6), x_mood = below(7);
    make_tile(d, bits, group, dtype, K, mood);
    for (uint32_t c = 0; c < columns; c++)
        for (uint32_t i = 0; i < K; i++) d->x[c][i] = half_value(x_mood);
    if (below(8) == 0) d->x[below(columns)][below(K)] = (uint16_t)(0x7f7f + below(3)); // the greatest, infinity, NaN
    dot_memory m = dot_memory_of(d, columns);
    md_ints ints = {.x = m.x, .unit = m.unit, .sums = m.parts};
    if (bits) {
        k->act_ints(m.rows, K, columns, K, &ints);
        k->act_sums(&ints, columns, K, group, m.sums);
    } else {
        k->act_pack(m.rows, K, columns, K, m.x);
    }
    md_dot dot = {.cols = K,
                  .group = d->shape.group,
                  .chunks = d->shape.chunks,
                  .chunk_bytes = d->shape.chunk_bytes,
                  .columns = columns,
                  .prefetch = below(2) * 64,
                  .x = m.x,
                  .unit = m.unit,
                  .sums = m.sums};
    k->dot[d->shape.cell][d->shape.wide_scales](&dot, m.tile, m.out);
    float want[MAX_C * 16], want_sums[MAX_C * MAX_K / 32];
    for (uint32_t c = 0; c < columns; c++) {
        float x[MAX_K], sums[MAX_K / 32];
        for (uint32_t i = 0; i < K; i++) x[i] = md_bf16_to_f32(d->x[c][i]);
        for (int r = 0; r < 16; r++) want[c * 16 + r] = bits ? def_quantized(d, r, x, group, sums) : def_plain(d, r, x);
        for (uint32_t g = 0; bits && g < K / group; g++) want_sums[g * columns + c] = sums[g];
    }
    char what[96];
    snprintf(what, sizeof what, "product of %u bits, group %u, dtype %d, K %u, %u columns, moods %u %u", bits, group,
             dtype, K, columns, mood, x_mood);
    if (bits) compare("group sums", m.sums, want_sums, (size_t)columns * (K / group));
    compare(what, m.out, want, columns * 16);
    dot_memory_free(&m);
}

static void check_dots(int rounds) {
    static const uint32_t all_bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    static const md_dtype dtypes[] = {MD_DTYPE_BF16, MD_DTYPE_F16, MD_DTYPE_F32};
    dot_case *d = aligned_alloc(64, (sizeof *d + 63) / 64 * 64);
    for (int round = 0; round < rounds; round++) {
        for (uint32_t columns = 1; columns <= MAX_C; columns++) {
            for (size_t b = 0; b < 6; b++) {
                uint32_t group = groups[below(3)];
                check_dot(d, all_bits[b], group, dtypes[below(3)], group * (1 + below(MAX_K / group)), columns);
            }
            for (size_t t = 0; t < 3; t++) check_dot(d, 0, 0, dtypes[t], 1 + below(300), columns);
        }
        check_dot(d, 4, 64, MD_DTYPE_BF16, 512, 1 + below(8));
        check_dot(d, 8, 64, MD_DTYPE_BF16, 512, 1 + below(8));
    }
    free(d);
}

// ---- norm and epilogues ------------------------------------------------------------------------------------------

static void check_rmsnorm(void) {
    uint32_t n = 1 + below(400), mood = below(6);
    uint16_t x[512], found[512], want[512];
    float weight[512] = {0}, wide[512];
    float eps = below(2) ? 1e-5f : 1e-6f;
    for (uint32_t i = 0; i < n; i++) x[i] = half_value(mood), wide[i] = md_bf16_to_f32(x[i]), weight[i] = value(0);
    k->rmsnorm(x, weight, n, eps, found);
    float r = 1.0f / sqrtf(def_strided(wide, n, 1) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++) want[i] = md_bf16_from_f32(weight[i] * md_bf16_round(wide[i] * r));
    compare_bf16("rmsnorm", found, want, n);
}

static float def_row(float t, const float *bias, int i) {
    float y = md_bf16_round(t);
    return bias ? md_bf16_round(y + bias[i]) : y;
}

static void check_epilogues(void) {
    float t[16], u[16], bias_values[16], up_bias[16], c[8], s[8];
    uint16_t x[16], found[16], want[16];
    const float *bias = below(2) ? bias_values : NULL, *ub = bias ? up_bias : NULL;
    uint32_t mood = below(6);
    for (int i = 0; i < 16; i++) {
        t[i] = value(mood) * (below(2) ? 1.0f : 20.0f);
        u[i] = value(mood);
        bias_values[i] = value(0);
        up_bias[i] = value(0);
        x[i] = half_value(mood);
    }
    k->store(t, bias, found);
    for (int i = 0; i < 16; i++) want[i] = md_bf16_from_f32(def_row(t[i], bias, i));
    compare_bf16("store", found, want, 16);

    memcpy(found, x, sizeof found);
    k->residual(t, bias, found);
    for (int i = 0; i < 16; i++) want[i] = md_bf16_from_f32(md_bf16_to_f32(x[i]) + def_row(t[i], bias, i));
    compare_bf16("residual", found, want, 16);

    k->swiglu(t, bias, u, ub, found);
    for (int i = 0; i < 16; i++) {
        float g = def_row(t[i], bias, i), up = def_row(u[i], ub, i);
        float e = md_bf16_round(md_expf(fabsf(g))), y = 1.0f / (1.0f + e);
        float sig = md_bf16_round(g < 0 ? y : 1.0f - y);
        want[i] = md_bf16_from_f32(md_bf16_round(g * sig) * up);
    }
    compare_bf16("swiglu", found, want, 16);

    for (int i = 0; i < 8; i++) md_sincosf(value(0) * 100, &s[i], &c[i]);
    k->rope(t, bias, c, s, found);
    for (int i = 0; i < 8; i++) {
        float x1 = def_row(t[i], bias, i), x2 = def_row(t[i + 8], bias, i + 8);
        want[i] = md_bf16_from_f32(fmaf(x1, c[i], -(x2 * s[i])));
        want[i + 8] = md_bf16_from_f32(fmaf(x1, s[i], x2 * c[i]));
    }
    compare_bf16("rope", found, want, 16);
}

// ---- attention ---------------------------------------------------------------------------------------------------

// A maximum's sign of zero and a denormal's bits are nobody's: they leave in the subtraction that follows.
static void compare_maxima(const char *what, const float *found, const float *want, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (found[i] - want[i] != 0.0f) {
            fail_at(what, i, found[i], want[i]);
            return;
        }
}

static void check_softmax(void) {
    uint32_t n = 1 + below(128), heads = 1 + below(12), mood = below(6);
    static float s[12 * 128], wide[12 * 128], p[12 * 128];
    float m[16] = {0}, l[16] = {0}, found_m[16] = {0}, found_l[16] = {0}, factor = value(0);
    for (uint32_t i = 0; i < heads * 128; i++) s[i] = value(mood) * (below(2) ? 1.0f : 30.0f);
    for (uint32_t h = 0; h < heads; h++) {
        const float *row = s + h * 128;
        m[h] = -INFINITY;
        for (uint32_t i = 0; i < n; i++) m[h] = row[i] > m[h] ? row[i] : m[h];
        for (uint32_t i = 0; i < n; i++) wide[h * 128 + i] = md_expf(row[i] - m[h]);
        l[h] = def_strided(wide + h * 128, n, 0);
    }
    memcpy(p, s, sizeof p);
    k->softmax(p, heads, n, found_m, found_l);
    compare("softmax", found_l, l, heads);
    compare_maxima("softmax's maximum", found_m, m, heads);
    for (uint32_t h = 0; h < heads; h++) compare("softmax's exponentials", p + h * 128, wide + h * 128, n);
    float top[16] = {0}, shares[16], want_shares[16];
    for (uint32_t h = 0; h < heads; h++) {
        top[h] = m[h] + fabsf(value(0));
        want_shares[h] = md_expf(m[h] - top[h]) * (1.0f / l[h]);
    }
    k->shares(m, top, l, heads, shares);
    compare("shares", shares, want_shares, heads);
    float lengths[128], found = 0, want_sum = 0;
    for (uint32_t i = 0; i < n; i++) lengths[i] = fabsf(value(mood));
    found = k->weigh(s, lengths, n, p, found_m);
    compare_maxima("weights' maximum", found_m, m, 1);
    for (uint32_t i = 0; i < n; i++) wide[i] = md_expf(s[i] - m[0]), want_sum = fmaf(lengths[i], wide[i], want_sum);
    compare("weights", p, wide, n);
    compare("weighted sum", &found, &want_sum, 1);

    float t[8 * 16], rows[8 * 128], want[16];
    for (int i = 0; i < 128; i++) t[i] = value(mood);
    k->scale(t, 8, factor, rows);
    for (int h = 0; h < 8; h++) {
        for (int i = 0; i < 16; i++) want[i] = factor * t[h * 16 + i];
        compare("scaled scores", rows + h * 128, want, 16);
    }
}

static void check_values(void) {
    enum { MAX_D = 160 };
    uint32_t heads = 1 + below(12), n = 1 + below(128), D = 16 * (1 + below(10)), mood = below(6), stride = D * 2;
    static uint16_t rows[128 * MAX_D];
    static float v[128][MAX_D], p[12 * 128], o[12 * MAX_D], want[12 * MAX_D];
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t d = 0; d < D; d++) {
            rows[j * D + d] = half_value(mood);
            v[j][d] = md_bf16_to_f32(rows[j * D + d]);
        }
    for (uint32_t i = 0; i < heads * 128; i++) p[i] = fabsf(value(0)) / 4;
    for (uint32_t i = 0; i < heads * D; i++) o[i] = value(0), want[i] = 0;
    md_values values = {.rows = (const uint8_t *)rows, .stride = stride, .dim = D};
    k->pv_bf16(&values, p, n, heads, o);
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t d = 0; d < D; d++)
            for (uint32_t j = 0; j < n; j++) want[h * D + d] = fmaf(p[h * 128 + j], v[j][d], want[h * D + d]);
    char what[80];
    snprintf(what, sizeof what, "values, %u positions, %u heads, dim %u", n, heads, D);
    compare(what, o, want, heads * D);

    float acc[MAX_D], l = fabsf(value(0)) + 0.5f, weights[12];
    const float *w = below(2) ? weights : NULL;
    uint16_t found[MAX_D], halves[MAX_D];
    uint32_t dim = D - below(16);
    for (uint32_t h = 0; h < heads; h++) weights[h] = fabsf(value(0)) / 4;
    for (uint32_t d = 0; d < D; d++) {
        want[d] = 0;
        for (uint32_t h = 0; h < heads; h++) want[d] = fmaf(o[h * D + d], w ? w[h] : 1.0f, want[d]);
    }
    k->merge(o, D, w, heads, D, acc);
    compare("merge", acc, want, D);
    k->finish(acc, l, dim, found);
    for (uint32_t d = 0; d < dim; d++) halves[d] = md_bf16_from_f32(acc[d] / l);
    compare_bf16("finish", found, halves, dim);
}

// ---- attention over codes ----------------------------------------------------------------------------------------

// Integers that share a power of two: the largest with which the greatest magnitude, and 1/128 more, is below
// 2^bits.
// Returns the unit.
static double def_integers(const float *v, uint32_t n, int bits, int32_t *x) {
    float m = 0;
    for (uint32_t i = 0; i < n; i++) m = fabsf(v[i]) > m ? fabsf(v[i]) : m;
    int exponent;
    frexpf(m * 1.0078125f, &exponent);
    if (m == 0 || exponent < -110) exponent = -110;
    for (uint32_t i = 0; i < n; i++) x[i] = (int32_t)rint(ldexp((double)v[i], bits - exponent));
    return ldexp(1.0, exponent - bits);
}

enum { CODES_D = 256, CODES_HEADS = 12 };

// A block of codes in both forms: plain, and as backend/cpu/kv.h lays it out.
typedef struct code_case {
    uint32_t bits, group, D, heads, n;
    uint8_t key[128][CODES_D], value[128][CODES_D];
    float key_scale[128][8], key_bias[128][8], value_scale[128][8], value_bias[128][8];
    _Alignas(64) uint8_t tiles[8 * 8 * 64 + 128 * CODES_D], values[128 * CODES_D];
    uint16_t scales[8 * 256], q[CODES_HEADS * CODES_D];
} code_case;

static void put_code(code_case *c, uint8_t *vectors, uint32_t quad, uint32_t lane, uint32_t place, uint8_t code) {
    uint8_t *at = vectors + (c->bits == 8 ? quad : quad / 2) * 64 + lane * 4 + place;
    *at = c->bits == 8 ? code : quad % 2 ? (uint8_t)((*at & 15) | code << 4) : (uint8_t)((*at & 240) | code);
}

static float put_half(uint16_t *at, uint32_t mood) {
    *at = half_value(mood);
    return md_bf16_to_f32(*at);
}

static void make_codes(code_case *c) {
    static const uint32_t groups[] = {32, 64, 128};
    c->bits = below(2) ? 4 : 8;
    c->group = groups[below(3)];
    c->D = c->group * (1 + below(2));
    c->heads = 1 + below(CODES_HEADS);
    c->n = 1 + below(128);
    uint32_t mood = below(6), mask = c->bits == 8 ? 255 : 15, chunk = 64 + 16 * c->group * c->bits / 8;
    memset(c->scales, 0xff, sizeof c->scales); // NaN past the end is nobody's
    for (uint32_t j = 0; j < c->n; j++)
        for (uint32_t d = 0; d < c->D; d++) {
            uint32_t g = d / c->group, style = below(4);
            uint8_t *at = c->tiles + (j / 16 * (c->D / c->group) + g) * chunk;
            c->key[j][d] = (uint8_t)(style == 0 ? mask : rnd() & mask);
            c->value[j][d] = (uint8_t)(style == 1 ? mask : rnd() & mask);
            put_code(c, at + 64, d % c->group / 4, j % 16, d % 4, c->key[j][d]);
            put_code(c, c->values + d / 16 * (2048 * c->bits / 8), j / 4, d % 16, j % 4, c->value[j][d]);
            if (d % c->group) continue;
            c->key_scale[j][g] = put_half((uint16_t *)(void *)at + j % 16, mood);
            c->key_bias[j][g] = put_half((uint16_t *)(void *)at + 16 + j % 16, mood);
            c->value_scale[j][g] = put_half(c->scales + 256 * g + j, mood);
            c->value_bias[j][g] = put_half(c->scales + 256 * g + 128 + j, mood);
        }
    for (uint32_t i = 0; i < c->heads * c->D; i++) c->q[i] = half_value(mood);
}

static void check_scores(code_case *c) {
    static _Alignas(64) uint8_t x[CODES_HEADS * CODES_D * 2];
    static float unit[CODES_HEADS], sums[8 * CODES_HEADS], s[CODES_HEADS * 128], want[128];
    float factor = md_bf16_round(value(0));
    md_queries q = {.x = x, .unit = unit, .sums = sums};
    md_key_codes keys = {.tiles = c->tiles,
                         .group = c->group,
                         .chunks = c->D / c->group,
                         .chunk_bytes = 64 + 16 * c->group * c->bits / 8};
    k->query_ints(c->q, factor, c->heads, c->D, c->group, &q);
    (c->bits == 4 ? k->scores_q4 : k->scores_q8)(&keys, &q, c->n, c->heads, s);
    for (uint32_t h = 0; h < c->heads; h++) {
        float wide[CODES_D];
        int32_t integers[CODES_D];
        for (uint32_t d = 0; d < c->D; d++) wide[d] = md_bf16_round(md_bf16_to_f32(c->q[h * c->D + d]) * factor);
        float u = (float)def_integers(wide, c->D, 15, integers);
        for (uint32_t j = 0; j < c->n; j++) {
            float t = 0;
            for (uint32_t g = 0; g < keys.chunks; g++) {
                int64_t sum = 0, all = 0;
                for (uint32_t d = g * c->group; d < (g + 1) * c->group; d++)
                    sum += integers[d] * c->key[j][d], all += integers[d];
                t = fmaf(c->key_scale[j][g], (float)sum, t);
                t = fmaf(c->key_bias[j][g], (float)all, t);
            }
            want[j] = md_bf16_round(u * t);
        }
        char what[80];
        snprintf(what, sizeof what, "scores of %u bits, group %u, D %u, head %u", c->bits, c->group, c->D, h);
        compare(what, s + h * 128, want, c->n);
    }
}

static void check_value_codes(const code_case *c) {
    static float e[CODES_HEADS * 128], o[CODES_HEADS * CODES_D], p[128], a[128], w[16];
    int32_t integers[128];
    for (uint32_t h = 0; h < c->heads; h++) {
        w[h] = fabsf(value(0)) * (below(2) ? 1 : 0.002f); // more and less than the share of wide integers
        for (uint32_t j = 0; j < 128; j++) e[h * 128 + j] = j < c->n ? fabsf(value(below(2) ? 0 : 5)) : 0;
    }
    static float before[CODES_HEADS * 128];
    memcpy(before, e, sizeof e);
    md_value_codes values = {.codes = c->values, .scales = c->scales, .dim = c->D, .group = c->group};
    (c->bits == 4 ? k->values_q4 : k->values_q8)(&values, e, w, c->n, c->heads, o);
    for (uint32_t h = 0; h < c->heads; h++)
        for (uint32_t g = 0; g < c->D / c->group; g++) {
            float strided[16] = {0}, want[CODES_D], half = c->bits == 8 ? 128 : 8;
            int32_t all[16] = {0};
            for (uint32_t j = 0; j < c->n; j++) {
                p[j] = md_bf16_round(before[h * 128 + j] * w[h]);
                a[j] = p[j] * c->value_scale[j][g];
            }
            float u = (float)def_integers(a, c->n, 15, integers);
            bool wide = w[h] >= 1.0f / 64 && u >= 0x1p-100f;
            if (wide) u = (float)def_integers(a, c->n, 21, integers);
            for (uint32_t j = 0; j < c->n; j++) {
                float middle = fmaf(half, c->value_scale[j][g], c->value_bias[j][g]);
                strided[j % 16] = fmaf(p[j], middle, strided[j % 16]);
                all[j % 16] += integers[j];
            }
            for (int i = 0; i < 16; i++) strided[i] = fmaf(-half * u, (float)all[i], strided[i]);
            for (int step = 8; step; step /= 2)
                for (int i = 0; i < step; i++) strided[i] += strided[i + step];
            for (uint32_t i = 0; i < c->group; i++) {
                int64_t sum = 0, top_sum = 0;
                for (uint32_t j = 0; j < c->n; j++) {
                    int32_t code = c->value[j][g * c->group + i], top = wide ? (int32_t)rint(integers[j] / 32768.0) : 0;
                    sum += (integers[j] - 32768 * top) * code;
                    top_sum += top * code;
                }
                want[i] = fmaf((float)sum, u, fmaf((float)top_sum, 32768 * u, strided[0]));
            }
            char what[80];
            snprintf(what, sizeof what, "values of %u bits, group %u, D %u, %u positions, head %u", c->bits, c->group,
                     c->D, c->n, h);
            compare(what, o + h * c->D + g * c->group, want, c->group);
        }
}

static void check_codes(void) {
    static code_case c;
    make_codes(&c);
    check_scores(&c);
    check_value_codes(&c);
}

int main(int argc, char **argv) {
    const md_kernels *level[MD_CPU_MAX_LEVELS];
    uint32_t levels = md_cpu_levels(level);
    const char *given = getenv("MEGADECODE_SEED");
    int rounds = argc > 1 ? atoi(argv[1]) : 12;
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    uint64_t mode = md_fpmode_enter();
    for (uint32_t i = 0; i < levels; i++) {
        k = level[i];
        state = seed;
        int before = failures;
        check_dots(rounds);
        for (int n = 0; n < 40 * rounds; n++) {
            check_rmsnorm();
            check_epilogues();
            check_softmax();
            check_values();
            check_codes();
        }
        printf("%-10s %s\n", k->name, failures == before ? "ok" : "FAILED");
    }
    md_fpmode_leave(mode);
    printf("seed %llu\n", (unsigned long long)seed);
    return failures != 0;
}
