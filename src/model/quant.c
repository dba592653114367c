// Packed codes and MLX's affine quantizer. Pure functions, no state.
#include "model/quant.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/bf16.h"

// Eight codes of b bits fill exactly b bytes, so every width goes through one 64-bit word: the word is spread to (or
// gathered from) one code a byte by halving lanes, 8 codes -> 2 x 4 -> 4 x 2 -> 8 x 1. `b` is a constant at each call.
static inline uint64_t spread_codes(uint64_t word, uint32_t b) {
    uint64_t four = ((uint64_t)1 << (4 * b)) - 1;
    word = (word & four) | ((word & (four << (4 * b))) << (32 - 4 * b));
    uint64_t two = (((uint64_t)1 << (2 * b)) - 1) * 0x0000000100000001u;
    word = (word & two) | ((word & (two << (2 * b))) << (16 - 2 * b));
    uint64_t one = (((uint64_t)1 << b) - 1) * 0x0001000100010001u;
    return (word & one) | ((word & (one << b)) << (8 - b));
}

static inline uint64_t gather_codes(uint64_t word, uint32_t b) {
    uint64_t one = (((uint64_t)1 << b) - 1) * 0x0001000100010001u;
    word = (word & one) | ((word >> (8 - b)) & (one << b));
    uint64_t two = (((uint64_t)1 << (2 * b)) - 1) * 0x0000000100000001u;
    word = (word & two) | ((word >> (16 - 2 * b)) & (two << (2 * b)));
    uint64_t four = ((uint64_t)1 << (4 * b)) - 1;
    return (word & four) | ((word >> (32 - 4 * b)) & (four << (4 * b)));
}

static inline uint64_t little_endian(uint64_t word) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(word);
#else
    return word;
#endif
}

// Little-endian loads and stores of 1 to 8 bytes.
static inline uint64_t load_le(const uint8_t *bytes, size_t n) {
    uint64_t word = 0;
    memcpy(&word, bytes, n);
    return little_endian(word);
}

static inline void store_le(uint8_t *bytes, uint64_t word, size_t n) {
    word = little_endian(word);
    memcpy(bytes, &word, n);
}

static inline void unpack_width(const uint8_t *packed, uint32_t b, size_t n, uint8_t *codes) {
    size_t whole = n / 8;
    for (size_t i = 0; i < whole; i++) store_le(codes + 8 * i, spread_codes(load_le(packed + b * i, b), b), 8);
    size_t rest = n % 8;
    if (rest) store_le(codes + 8 * whole, spread_codes(load_le(packed + b * whole, rest * b / 8), b), rest);
}

static inline void pack_width(const uint8_t *codes, uint32_t b, size_t n, uint8_t *packed) {
    size_t whole = n / 8;
    for (size_t i = 0; i < whole; i++) store_le(packed + b * i, gather_codes(load_le(codes + 8 * i, 8), b), b);
    size_t rest = n % 8;
    if (rest) store_le(packed + b * whole, gather_codes(load_le(codes + 8 * whole, rest), b), rest * b / 8);
}

void md_codes_unpack(const uint8_t *packed, uint32_t bits, size_t n, uint8_t *codes) {
    switch (bits) {
    case 2: unpack_width(packed, 2, n, codes); break;
    case 3: unpack_width(packed, 3, n, codes); break;
    case 4: unpack_width(packed, 4, n, codes); break;
    case 5: unpack_width(packed, 5, n, codes); break;
    case 6: unpack_width(packed, 6, n, codes); break;
    default: memcpy(codes, packed, n); break; // 8
    }
}

void md_codes_pack(const uint8_t *codes, uint32_t bits, size_t n, uint8_t *packed) {
    switch (bits) {
    case 2: pack_width(codes, 2, n, packed); break;
    case 3: pack_width(codes, 3, n, packed); break;
    case 4: pack_width(codes, 4, n, packed); break;
    case 5: pack_width(codes, 5, n, packed); break;
    case 6: pack_width(codes, 6, n, packed); break;
    default: memcpy(packed, codes, n); break; // 8
    }
}

// One group. The scale's sign puts the end of larger magnitude at code 0 or at the top, and the scale is then adjusted
// so that this end is hit exactly: both from MLX's CPU affine_quantize, whose order of operations is kept.
static void quantize_group(const float *values, uint32_t bits, uint32_t group, uint8_t *codes, uint16_t *scale_out,
                           uint16_t *bias_out) {
    const float top = (float)((1u << bits) - 1u);
    float low = values[0], high = values[0], poison = values[0] * 0.0f; // NaN of an infinity or NaN, which < and > lose
    for (uint32_t i = 1; i < group; i++) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
        poison += values[i] * 0.0f;
    }
    float scale = fmaxf((high - low) / top, 1e-7f);
    bool low_end = fabsf(low) > fabsf(high);
    scale = low_end ? scale : -scale;
    float edge = low_end ? low : high;
    float steps = rintf(edge / scale);
    float bias = 0.0f;
    if (steps != 0.0f) {
        scale = edge / steps;
        bias = edge;
    }
    for (uint32_t i = 0; i < group; i++) // fmaxf also turns the NaN of a non-finite group into code 0
        codes[i] = (uint8_t)fminf(fmaxf(rintf((values[i] - bias) / scale), 0.0f), top);
    *scale_out = md_bf16_from_f32(scale + poison); // + 0 of a finite group
    *bias_out = md_bf16_from_f32(bias);
}

void md_affine_quantize(const float *values, size_t n, uint32_t bits, uint32_t group, uint8_t *codes, uint16_t *scales,
                        uint16_t *biases) {
    for (size_t g = 0; g < n / group; g++)
        quantize_group(values + g * group, bits, group, codes + g * group, &scales[g], &biases[g]);
}
