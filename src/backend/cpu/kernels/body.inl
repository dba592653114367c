// All kernels of one level. A level's file includes a vector layer (16 lanes) and then this text, which ends with the
// level's table. The vector layer gives:
//   vf                       16 floats: v_set1 v_load v_store v_add v_sub v_mul v_div v_fma(a, b, c) = a*b + c
//                            v_max(a, b) = a > b ? a : b   v_abs v_neg   v_select_lt(a, b, yes, no) = a < b ? yes : no
//                            v_exp_scale(p, t): bits(p) + (bits(t) << 23)
//                            v_round: to bf16 and back; v_widen: 16 bf16 -> vf; v_narrow: vf -> 16 bf16
//                            v_swap_halves: lanes 0..7 and 8..15 exchanged
//                            v_max_bits: the greater as unsigned integers
//   vquad, vacc              64 codes, four a lane: v_quad8(64 bytes), v_quad4(64 bytes, high); 16 exact integer sums:
//                            v_acc_clear, v_quad_dot(acc, codes, x) adds a lane's codes times the four integers at x,
//                            v_acc_float; v_store_ints(x, t): the low 16 bits of t's lanes as four such x of 8 bytes
//   vpair                    v_pair_bf16(64 bytes): columns 2i and 2i + 1 of an unquantized tile
//   VEC_NAME VEC_ACT VEC_BLOCK VEC_PREFETCH
//   VEC_REDUCE               defined where the layer has its own v_sum and v_greatest
//   VEC_INTS                 defined where the layer has its own v_top and v_ints, and v_ints_of_eight
//   VEC_SMALL                defined where the layer has its own vsmall, v_small_clear, v_small_dot, v_small_float: as
//                            vacc, for integers of 8 bits
//   VEC_ROUND_PRODUCT        defined where the layer has its own v_round_product: v_round of the result of a product,
//                            which is no denormal
//   VEC_WIDEN_TWO            defined where the layer has its own v_widen_two and v_store_two
// Plain loops in this text run on one lane each; -ffp-contract=off keeps the compiler from changing any sum.

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "backend/cpu/kernels/kernels.h"
#include "base/mathx.h"

#include "backend/cpu/kernels/attention.inl"
#include "backend/cpu/kernels/codes.inl"
#include "backend/cpu/kernels/ints.inl"

#include "backend/cpu/kernels/dot.inl"

static void rmsnorm(const uint16_t *x, const float *weight, uint32_t n, float eps, uint16_t *out) {
    vf acc = v_set1(0.0f);
    uint16_t tail[16] = {0};
    uint32_t whole = n / 16 * 16;
    memcpy(tail, x + whole, (n - whole) * sizeof *x);
    for (uint32_t i = 0; i < whole; i += 16) {
        vf v = v_widen(x + i);
        acc = v_fma(v, v, acc);
    }
    vf last = v_widen(tail);
    acc = v_fma(last, last, acc); // zeros past the end change nothing
    vf r = v_set1(1.0f / sqrtf(v_sum(acc) / (float)n + eps));
    for (uint32_t i = 0; i < whole; i += 16)
        v_narrow(out + i, v_mul(v_load(weight + i), v_round(v_mul(v_widen(x + i), r))));
    if (whole < n) {
        v_narrow(tail, v_mul(v_load(weight + whole), v_round(v_mul(last, r))));
        memcpy(out + whole, tail, (n - whole) * sizeof *out);
    }
}

MD_INLINE vf row_value(const float *t, const float *bias) {
    vf y = v_round(v_load(t));
    return bias ? v_round(v_add(y, v_load(bias))) : y;
}

static void store(const float *t, const float *bias, uint16_t *y) { v_narrow(y, row_value(t, bias)); }

static void residual(const float *t, const float *bias, uint16_t *x) {
    v_narrow(x, v_add(v_widen(x), row_value(t, bias)));
}

static void swiglu(const float *gate, const float *gate_bias, const float *up, const float *up_bias, uint16_t *act) {
    vf g = row_value(gate, gate_bias), u = row_value(up, up_bias), one = v_set1(1.0f);
    vf e = v_round(v_exp(v_abs(g)));
    vf y = v_div(one, v_add(one, e));
    vf sig = v_round(v_select_lt(g, v_set1(0.0f), y, v_sub(one, y)));
    v_narrow(act, v_mul(v_round(v_mul(g, sig)), u));
}

static void rope(const float *t, const float *bias, const float *cosine, const float *sine, uint16_t *y) {
    float c[16], s[16], sign[16];
    for (int i = 0; i < 8; i++) {
        c[i] = c[i + 8] = cosine[i];
        s[i] = s[i + 8] = sine[i];
        sign[i] = -1.0f;
        sign[i + 8] = 1.0f;
    }
    // lanes 0..7: fma(x1, c, -(x2*s)); lanes 8..15: fma(x1, s, x2*c) with x1 in the other half
    vf x = row_value(t, bias), other = v_swap_halves(x);
    vf low = v_fma(x, v_load(c), v_neg(v_mul(other, v_load(s))));
    vf high = v_fma(other, v_load(s), v_mul(x, v_load(c)));
    v_narrow(y, v_select_lt(v_load(sign), v_set1(0.0f), low, high));
}

#define MD_TABLE_(level) md_kernels_##level
#define MD_TABLE(level) MD_TABLE_(level)
#define MD_STRING_(text) #text
#define MD_STRING(text) MD_STRING_(text)

const md_kernels MD_TABLE(VEC_NAME) = {
    .name = MD_STRING(VEC_NAME),
    .act = VEC_ACT,
    .dot = {[MD_CELL_Q4] = {dot_q4, dot_q4_wide},
            [MD_CELL_Q8] = {dot_q8, dot_q8_wide},
            [MD_CELL_BF16] = {dot_bf16, dot_bf16},
            [MD_CELL_F16] = {dot_f16, dot_f16},
            [MD_CELL_F32] = {dot_f32, dot_f32}},
    .act_pack = act_pack,
    .act_ints = act_ints,
    .act_sums = act_sums,
    .rmsnorm = rmsnorm,
    .store = store,
    .residual = residual,
    .swiglu = swiglu,
    .rope = rope,
    .softmax = softmax,
    .weigh = weigh,
    .scale = scale,
    .pv_bf16 = pv_bf16,
    .query_ints = query_ints,
    .scores_q4 = scores_q4,
    .scores_q8 = scores_q8,
    .shares = shares,
    .values_q4 = values_q4,
    .values_q8 = values_q8,
    .merge = merge,
    .finish = finish,
};
