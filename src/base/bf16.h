// bfloat16 and IEEE half conversions. Values live in uint16_t; arithmetic is done in fp32.
#ifndef MD_BASE_BF16_H
#define MD_BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t md_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float md_f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float md_bf16_to_f32(uint16_t half) { return md_f32_from_bits((uint32_t)half << 16); }

// Round to nearest, ties to even; NaN stays NaN (quiet), overflow becomes infinity.
static inline uint16_t md_bf16_from_f32(float value) {
    uint32_t bits = md_f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x0040u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// The fp32 value rounded to bf16 and widened again: "one rounding" of the numerics rules (docs/MODEL.md).
static inline float md_bf16_round(float value) { return md_bf16_to_f32(md_bf16_from_f32(value)); }

// IEEE binary16 -> fp32, exact.
static inline float md_f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1f) return md_f32_from_bits(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
        if (mantissa == 0) return md_f32_from_bits(sign);
        uint32_t shift = (uint32_t)__builtin_clz(mantissa) - 21u; // brings the leading one to bit 10
        mantissa = (mantissa << shift) & 0x3ffu;
        return md_f32_from_bits(sign | ((113u - shift) << 23) | (mantissa << 13));
    }
    return md_f32_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// fp32 -> IEEE binary16, round to nearest even; exact for values that came from binary16.
static inline uint16_t md_f16_from_f32(float value) {
    uint32_t bits = md_f32_bits(value), sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7c00u | 1u << 9 | (magnitude >> 13 & 0x3ffu)); // NaN
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);                                       // infinity
    uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u, exponent = magnitude >> 23;
    uint32_t shift = exponent >= 113 ? 13u : 126u - exponent; // subnormal results lose more bits
    if (shift > 24) return (uint16_t)sign;                    // below half the smallest subnormal
    uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1u));
    return (uint16_t)(sign | (exponent >= 113 ? kept + ((exponent - 113u) << 10) : kept));
}

#endif
