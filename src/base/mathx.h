// The project's own elementary functions: the same operations, hence the same bits, on every platform (docs/MODEL.md).
#ifndef MD_BASE_MATHX_H
#define MD_BASE_MATHX_H

#include <math.h>
#include <stdint.h>

#include "base/bf16.h"

// Constants of md_expf, shared with the vector kernels, which perform the same operations lane by lane.
#define MD_EXP_MAX 88.0f
#define MD_EXP_MIN (-87.0f)
#define MD_EXP_LOG2E 1.44269504f
#define MD_EXP_MAGIC 12582912.0f // 1.5 * 2^23: adding it rounds to an integer
#define MD_EXP_LN2_HI 0.693145752f
#define MD_EXP_LN2_LO 1.42860677e-6f
#define MD_EXP_C7 1.98412698e-4f // 1/7! .. 1/2!
#define MD_EXP_C6 1.38888889e-3f
#define MD_EXP_C5 8.33333333e-3f
#define MD_EXP_C4 4.16666667e-2f
#define MD_EXP_C3 1.66666667e-1f
#define MD_EXP_C2 0.5f

// e^x in fp32, within 2 ulp on [-87, 88]; above 88 as for 88; below -87 exactly 0. NaN gives NaN.
static inline float md_expf(float x) {
    if (x < MD_EXP_MIN) return 0.0f;
    if (x > MD_EXP_MAX) x = MD_EXP_MAX;
    float t = fmaf(x, MD_EXP_LOG2E, MD_EXP_MAGIC);
    float n = t - MD_EXP_MAGIC;
    float r = fmaf(n, -MD_EXP_LN2_HI, x);
    r = fmaf(n, -MD_EXP_LN2_LO, r);
    float p = MD_EXP_C7;
    p = fmaf(p, r, MD_EXP_C6);
    p = fmaf(p, r, MD_EXP_C5);
    p = fmaf(p, r, MD_EXP_C4);
    p = fmaf(p, r, MD_EXP_C3);
    p = fmaf(p, r, MD_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    // n is in [-126, 127] and p in [0.7, 1.42); at n = -126, p > 1 (x >= -87), so the exponent never leaves the
    // normal range. The integer n sits in the low bits of t: t = MAGIC + n exactly.
    return md_f32_from_bits(md_f32_bits(p) + (md_f32_bits(t) << 23));
}

// Attention over codes (docs/MODEL.md): where a block's greatest probability is at least the share, and the unit not
// tiny, integers are finer by the factor and meet codes as a top (rint(x / 32768)) and a rest of 16 bits.
#define MD_WIDE_SHARE 0x1p-6f
#define MD_WIDE_FACTOR 64.0f
#define MD_WIDE_TOP 32768.0f
#define MD_WIDE_LEAST_UNIT 0x1p-100f

#define MD_UNIT_ROOM 1.0078125f // 1/128 over the greatest, so that no integer needs clamping
enum {
    MD_UNIT_BITS = 14,          // of the greatest's integer, below its leading one
    MD_UNIT_LEAST_EXPONENT = 16 // biased, of the greatest: the unit stays a normal number
};

// The power of two that values of magnitude up to m share when they are written as integers of 16 bits:
// t = fmaf(v, *inverse, MD_EXP_MAGIC) holds x = rint(v * *inverse) in its low 16 bits, and v is x times the unit but
// for half a unit. |x| <= 32514, so that x is two signed digits of base 256 too (at most 32639). An m that is infinite
// or NaN (or finite and within 1/128 of infinity) has a NaN for its unit. m: sign bit clear.
static inline float md_shared_unit(float m, float *inverse) {
    uint32_t exponent = md_f32_bits(m * MD_UNIT_ROOM) >> 23 & 255;
    if (exponent < MD_UNIT_LEAST_EXPONENT) exponent = MD_UNIT_LEAST_EXPONENT;
    *inverse = md_f32_from_bits((254 + MD_UNIT_BITS - exponent) << 23);
    return exponent == 255 ? md_f32_from_bits(0x7fc00000u) : md_f32_from_bits((exponent - MD_UNIT_BITS) << 23);
}

// sin and cos of an fp32 angle, |angle| < 2^24, computed in double and rounded once.
void md_sincosf(float angle, float *sine, float *cosine);

// e^x in double, |x| <= 700, and ln(x), x > 0 (relative error below 1e-14): for log-probabilities and sampling.
double md_exp(double x);
double md_ln(double x);

// base^(-num/den) for RoPE, base > 0, in double (relative error below 1e-14).
double md_pow_neg(double base, double num, double den);

#endif
