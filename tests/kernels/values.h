// Random numbers for the kernels' tests, among them those at the borders of what a float holds. One thread.
#ifndef MD_TESTS_KERNELS_VALUES_H
#define MD_TESTS_KERNELS_VALUES_H

#include <math.h>
#include <stdint.h>

#include "base/bf16.h"

static uint64_t state; // of the generator; a test sets it to its seed

static inline uint32_t rnd(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}
static inline uint32_t below(uint32_t n) { return (uint32_t)((uint64_t)rnd() * n >> 32); }

// Finite values: mostly ordinary, by `mood` zeros, denormals, huge, alternating signs or of very different sizes.
static inline float value(uint32_t mood) {
    float ordinary = ((float)(rnd() >> 8) / 8388608.0f - 1.0f) * 4.0f;
    switch (mood) {
    case 1: return below(2) ? 0.0f : -0.0f;
    case 2: return md_f32_from_bits((rnd() & 0x80ffffffu)); // zero, denormal, barely normal
    case 3: return ordinary * 1e15f;
    case 4: return below(3) ? ordinary : value(below(4));
    case 5: return ordinary * 1e-18f;
    case 6: return ldexpf(ordinary, (int)below(24) - 12);
    default: return ordinary;
    }
}
static inline uint16_t half_value(uint32_t mood) { return md_bf16_from_f32(value(mood)); }

#endif
