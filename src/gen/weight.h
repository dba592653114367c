// The weight of a candidate token as a whole number, so that sums of weights are exact in any order: a GPU that adds
// them up by many workers gets what a CPU gets. The kernels hold the same operations
// (src/backend/cuda/kernels/next.cuh).
#ifndef MD_GEN_WEIGHT_H
#define MD_GEN_WEIGHT_H

#include <math.h>
#include <stdint.h>

// The greatest logit weighs 2^42: MD_MAX_VOCAB (2^21) of them fit 64 bits. What weighs less than 2^-42 of it counts as
// nothing.
enum { MD_WEIGHT_BITS = 42 };
#define MD_WEIGHT_ONE (UINT64_C(1) << MD_WEIGHT_BITS)
#define MD_LOG2_E 1.44269504088896340736

// 2^42 * 2^-halvings for halvings >= 0 (within 2^-27, truncated; exact at 0); NaN and what is too small give 0.
// For a logit that lies `below` under the greatest: halvings = below * (MD_LOG2_E / temperature).
static inline uint64_t md_weight(double halvings) {
    if (!(halvings < MD_WEIGHT_BITS + 1)) return 0;
    uint64_t fixed = (uint64_t)(halvings * 0x1p32);                  // 32 bits of fraction
    uint64_t t = (fixed & 0xffffffffu) * UINT64_C(2977044472) >> 32; // times ln 2: e^-t by its series, 31 bits
    uint64_t sum = UINT64_C(1) << 31;
    for (unsigned k = 10; k >= 1; k--) sum = (UINT64_C(1) << 31) - (t * sum >> 32) / k;
    return (sum << (MD_WEIGHT_BITS - 31)) >> (fixed >> 32);
}

// What min_p leaves: weights of this and more.
static inline uint64_t md_least_weight(double min_p) { return (uint64_t)ceil(min_p * (double)MD_WEIGHT_ONE); }

// The high 64 bits of a * b.
static inline uint64_t md_mul_high(uint64_t a, uint64_t b) {
    uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

#endif
