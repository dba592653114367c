// 16 lanes as one AVX-512 register; with VEC_BF16_DOT defined, pairs of weights stay bf16 and meet activations in
// vdpbf16ps. The list of operations is in kernels/body.inl.
#ifndef MD_BACKEND_CPU_KERNELS_X86_VEC_AVX512_H
#define MD_BACKEND_CPU_KERNELS_X86_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define MD_INLINE static inline __attribute__((always_inline))

typedef __m512 vf;
typedef __m512i vcodes;

MD_INLINE vf v_set1(float a) { return _mm512_set1_ps(a); }
MD_INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
MD_INLINE void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
MD_INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
MD_INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
MD_INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
MD_INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
MD_INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
MD_INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
MD_INLINE vf v_abs(vf a) { return _mm512_abs_ps(a); }
MD_INLINE vf v_neg(vf a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
MD_INLINE vf v_select_lt(vf a, vf b, vf yes, vf no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
MD_INLINE vf v_exp_scale(vf p, vf t) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}
// md_bf16_from_f32 with junk left in the lower half. vcvtneps2bf16 would flush denormals instead of keeping them.
MD_INLINE __m512i vec_round_upper(vf a) {
    __m512i bits = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_mask_or_epi32(up, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x00400000));
}
MD_INLINE vf v_round(vf a) {
    return _mm512_castsi512_ps(_mm512_and_si512(vec_round_upper(a), _mm512_set1_epi32((int)0xffff0000u)));
}
MD_INLINE vf v_widen(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
MD_INLINE void v_narrow(uint16_t *p, vf a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(vec_round_upper(a), 16)));
}
MD_INLINE vf v_swap_halves(vf a) { return _mm512_shuffle_f32x4(a, a, 0x4e); }
// The fixed tree of a strided sum: lanes j and j + 8, then + 4, + 2, + 1.
MD_INLINE float v_sum(vf a) {
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
MD_INLINE float v_greatest(vf a) { return _mm512_reduce_max_ps(a); }
#define VEC_REDUCE

MD_INLINE vf v_nibbles(const uint8_t *p, int high) {
    __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_cvtepi32_ps(high ? _mm512_srli_epi32(b, 4) : _mm512_and_si512(b, _mm512_set1_epi32(15)));
}
MD_INLINE vf v_bytes(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
// The even and the odd ones: a shift and a mask, where widening in order takes four shuffles.
MD_INLINE void v_widen_two(const uint16_t *p, vf *two) {
    __m512i w = _mm512_loadu_si512(p);
    two[0] = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
    two[1] = _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000u)));
}
MD_INLINE void v_store_two(float *p, const vf *two) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    v_store(p, _mm512_permutex2var_ps(two[0], low, two[1]));
    v_store(p + 16, _mm512_permutex2var_ps(two[0], high, two[1]));
}
#define VEC_WIDEN_TWO
// One broadcast for both, instead of two ways through scalar registers.
MD_INLINE void v_scale_bias(const uint16_t *sb, vf *scale, vf *bias) {
    int32_t pair;
    memcpy(&pair, sb, sizeof pair);
    __m512i both = _mm512_set1_epi32(pair);
    *scale = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    *bias = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000u)));
}
#define VEC_SCALE_BIAS

MD_INLINE vcodes v_codes(const uint8_t *p) { return _mm512_loadu_si512(p); }

#ifdef VEC_BF16_DOT
typedef __m512i vpair; // bf16: low half even column, high half odd column

// The index's fifth bit is junk from the next nibble: the table holds its 16 entries twice.
MD_INLINE vpair v_pair_q4(vcodes w, int i4) {
    const __m512i table =
        _mm512_broadcast_i64x4(_mm256_setr_epi16(0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100,
                                                 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170));
    return _mm512_permutexvar_epi16(i4 ? _mm512_srli_epi16(w, (unsigned)(4 * i4)) : w, table);
}
// bf16 of 0..127: the lower halves; the upper halves ^ 0x43. Then the indices that interleave two vectors' bytes.
static const _Alignas(64) uint8_t vec_q8_lower[128] = {
    0x00, 0x80, 0x00, 0x40, 0x80, 0xa0, 0xc0, 0xe0, 0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x88, 0x90,
    0x98, 0xa0, 0xa8, 0xb0, 0xb8, 0xc0, 0xc8, 0xd0, 0xd8, 0xe0, 0xe8, 0xf0, 0xf8, 0x00, 0x04, 0x08, 0x0c, 0x10, 0x14,
    0x18, 0x1c, 0x20, 0x24, 0x28, 0x2c, 0x30, 0x34, 0x38, 0x3c, 0x40, 0x44, 0x48, 0x4c, 0x50, 0x54, 0x58, 0x5c, 0x60,
    0x64, 0x68, 0x6c, 0x70, 0x74, 0x78, 0x7c, 0x80, 0x82, 0x84, 0x86, 0x88, 0x8a, 0x8c, 0x8e, 0x90, 0x92, 0x94, 0x96,
    0x98, 0x9a, 0x9c, 0x9e, 0xa0, 0xa2, 0xa4, 0xa6, 0xa8, 0xaa, 0xac, 0xae, 0xb0, 0xb2, 0xb4, 0xb6, 0xb8, 0xba, 0xbc,
    0xbe, 0xc0, 0xc2, 0xc4, 0xc6, 0xc8, 0xca, 0xcc, 0xce, 0xd0, 0xd2, 0xd4, 0xd6, 0xd8, 0xda, 0xdc, 0xde, 0xe0, 0xe2,
    0xe4, 0xe6, 0xe8, 0xea, 0xec, 0xee, 0xf0, 0xf2, 0xf4, 0xf6, 0xf8, 0xfa, 0xfc, 0xfe,
};
static const _Alignas(64) uint8_t vec_q8_upper[128] = {
    0x43, 0x7c, 0x03, 0x03, 0x03, 0x03, 0x03, 0x03, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02,
    0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x02, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01,
    0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01,
    0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01,
    0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01,
    0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01,
    0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01,
};
static const _Alignas(64) uint8_t vec_q8_interleave[128] = {
    0x00, 0x40, 0x01, 0x41, 0x02, 0x42, 0x03, 0x43, 0x04, 0x44, 0x05, 0x45, 0x06, 0x46, 0x07, 0x47, 0x08, 0x48, 0x09,
    0x49, 0x0a, 0x4a, 0x0b, 0x4b, 0x0c, 0x4c, 0x0d, 0x4d, 0x0e, 0x4e, 0x0f, 0x4f, 0x10, 0x50, 0x11, 0x51, 0x12, 0x52,
    0x13, 0x53, 0x14, 0x54, 0x15, 0x55, 0x16, 0x56, 0x17, 0x57, 0x18, 0x58, 0x19, 0x59, 0x1a, 0x5a, 0x1b, 0x5b, 0x1c,
    0x5c, 0x1d, 0x5d, 0x1e, 0x5e, 0x1f, 0x5f, 0x20, 0x60, 0x21, 0x61, 0x22, 0x62, 0x23, 0x63, 0x24, 0x64, 0x25, 0x65,
    0x26, 0x66, 0x27, 0x67, 0x28, 0x68, 0x29, 0x69, 0x2a, 0x6a, 0x2b, 0x6b, 0x2c, 0x6c, 0x2d, 0x6d, 0x2e, 0x6e, 0x2f,
    0x6f, 0x30, 0x70, 0x31, 0x71, 0x32, 0x72, 0x33, 0x73, 0x34, 0x74, 0x35, 0x75, 0x36, 0x76, 0x37, 0x77, 0x38, 0x78,
    0x39, 0x79, 0x3a, 0x7a, 0x3b, 0x7b, 0x3c, 0x7c, 0x3d, 0x7d, 0x3e, 0x7e, 0x3f, 0x7f,
};
// Bytes to bf16 through two tables of 128, one for each half: a code below 128 is looked up; for a greater one the
// lower half is its low seven bits and the upper half 0x43. Codes enter with bit 7 turned over, so that vpermi2b's
// merge mask (it keeps the index where the mask is clear) gives the lower half, and the upper table is stored ^ 0x43,
// so that the zeroing mask and one xor give the upper half. Two last permutes interleave the halves into pairs.
MD_INLINE void vec_pairs_q8_table(const uint8_t *p, vpair *w0, vpair *w1) {
    __m512i code = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8((char)0x80));
    __mmask64 below = _mm512_movepi8_mask(code);
    __m512i lower = _mm512_mask2_permutex2var_epi8(_mm512_load_si512(vec_q8_lower), code, below,
                                                   _mm512_load_si512(vec_q8_lower + 64));
    __m512i upper = _mm512_maskz_permutex2var_epi8(below, _mm512_load_si512(vec_q8_upper), code,
                                                   _mm512_load_si512(vec_q8_upper + 64));
    upper = _mm512_xor_si512(upper, _mm512_set1_epi8(0x43));
    *w0 = _mm512_permutex2var_epi8(lower, _mm512_load_si512(vec_q8_interleave), upper);
    *w1 = _mm512_permutex2var_epi8(lower, _mm512_load_si512(vec_q8_interleave + 64), upper);
}
MD_INLINE vpair vec_pair_q8(const uint8_t *p) {
    // vpermb takes byte 2r (or 2r + 1) to lane r and leaves zeros around it
    const __m512i even_index = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd_index = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    const __mmask64 low = 0x1111111111111111u;
    __m512i w = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
    __m512i even = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(low, even_index, w)));
    __m512i odd = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(low, odd_index, w)));
    return _mm512_or_si512(_mm512_srli_epi32(even, 16), odd); // integers below 256 have empty lower halves
}
// 9 instructions for two pairs against 14; but with 8 columns the converting ones find free ports beside vdpbf16ps and
// vpermi2b does not (docs/SPEED.md).
MD_INLINE void v_pairs_q8(const uint8_t *p, const int columns, vpair *w0, vpair *w1) {
    if (columns < 8) {
        vec_pairs_q8_table(p, w0, w1);
    } else {
        *w0 = vec_pair_q8(p);
        *w1 = vec_pair_q8(p + 32);
    }
}
MD_INLINE vpair v_pair_bf16(const uint8_t *p) { return _mm512_loadu_si512(p); }

#define VEC_ACT MD_ACT_PAIRS
#define VEC_NAME avx512bf16
#define VEC_BLOCK 8
#else
typedef struct vpair {
    vf even, odd;
} vpair;

MD_INLINE vpair v_pair_q4(vcodes w, int i4) {
    const vf table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); // reads 4 bits of the index
    return (vpair){_mm512_permutexvar_ps(i4 ? _mm512_srli_epi32(w, (unsigned)(4 * i4)) : w, table),
                   _mm512_permutexvar_ps(_mm512_srli_epi32(w, (unsigned)(16 + 4 * i4)), table)};
}
MD_INLINE vpair vec_pair_q8(const uint8_t *p) {
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return (vpair){_mm512_cvtepi32_ps(_mm512_and_si512(w, _mm512_set1_epi32(255))),
                   _mm512_cvtepi32_ps(_mm512_srli_epi32(w, 8))};
}
MD_INLINE void v_pairs_q8(const uint8_t *p, const int columns, vpair *w0, vpair *w1) {
    (void)columns;
    *w0 = vec_pair_q8(p);
    *w1 = vec_pair_q8(p + 32);
}
MD_INLINE vpair v_pair_bf16(const uint8_t *p) {
    __m512i w = _mm512_loadu_si512(p);
    return (vpair){_mm512_castsi512_ps(_mm512_slli_epi32(w, 16)),
                   _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000u)))};
}

#define VEC_ACT MD_ACT_F32
#define VEC_NAME avx512
#define VEC_BLOCK 8
#endif

#define VEC_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)

#endif
