// MLX's affine quantization: codes in and out of packed rows, and the quantizer itself.
//
// w = scale * q + bias for each group along a row. Codes are a little-endian bit stream: for 2, 4 and 8 bits code i of
// a 32-bit word lies at bits [i*bits, (i+1)*bits); 3, 5 and 6 bits are packed 8 in 3 bytes, 8 in 5, 4 in 3, which is
// the same stream (source: mlx/ops.cpp, kernels/quantized.h).
#ifndef MD_MODEL_QUANT_H
#define MD_MODEL_QUANT_H

#include <stddef.h>
#include <stdint.h>

// Unpacks `n` codes (a whole number of bytes: n * bits % 8 == 0) from `packed` to one byte each.
void md_codes_unpack(const uint8_t *packed, uint32_t bits, size_t n, uint8_t *codes);
// The inverse: `codes` (each < 2^bits) to n * bits / 8 bytes.
void md_codes_pack(const uint8_t *codes, uint32_t bits, size_t n, uint8_t *packed);

// Quantizes n fp32 values (n % group == 0) as MLX's CPU affine_quantize does: true minimum and maximum of the group,
// ties to even, codes clamped to [0, 2^bits - 1]; arithmetic in fp32 from the unrounded scale and bias; scales and
// biases are then rounded to bf16. A group with an infinity or a NaN has a NaN for its scale. codes: n bytes; scales,
// biases: n / group bf16.
void md_affine_quantize(const float *values, size_t n, uint32_t bits, uint32_t group, uint8_t *codes, uint16_t *scales,
                        uint16_t *biases);

#endif
