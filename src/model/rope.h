// RoPE's inverse frequencies from a snapshot's description; every engine takes them from here.
#ifndef MD_MODEL_ROPE_H
#define MD_MODEL_ROPE_H

#include "model/snapshot.h"

// inv_freq[head_dim / 2], and the factor that multiplies the position before it (1, or 1/factor for linear scaling).
// The angle of pair i at position p is ((float)p * *scale) * inv_freq[i] in fp32 (mlx kernels/rope.metal); llama3
// scaling as mlx-lm's rope_utils (Llama3RoPE): wavelengths above original_context / low_freq_factor are stretched by
// factor, those below original_context / high_freq_factor kept, the ones between interpolated.
void md_rope_frequencies(const md_rope *rope, uint32_t head_dim, float *inv_freq, float *scale);

#endif
