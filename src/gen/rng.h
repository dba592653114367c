// The random numbers of sampling: splitmix64 taken at a counter, so that draw i of a seed is the same on every machine
// and needs no state (a GPU computes it from the seed and the draw's number alone).
#ifndef MD_GEN_RNG_H
#define MD_GEN_RNG_H

#include <stdint.h>

// The finalizer of splitmix64 (Steele, Lea, Flood 2014; constants by Stafford, variant 13).
static inline uint64_t md_mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// Draw number `draw` (from 0) of a seed: output number draw + 1 of a splitmix64 generator that starts at `seed`.
static inline uint64_t md_draw_u64(uint64_t seed, uint64_t draw) {
    return md_mix64(seed + (draw + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

#endif
