// 16 lanes as one AVX-512 register; with VEC_BF16_DOT defined, pairs of weights stay bf16 and meet activations in
// vdpbf16ps. The list of operations is in kernels/body.inl.
#ifndef MD_BACKEND_CPU_KERNELS_X86_VEC_AVX512_H
#define MD_BACKEND_CPU_KERNELS_X86_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

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
MD_INLINE vf v_nibbles(const uint8_t *p, int high) {
    __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_cvtepi32_ps(high ? _mm512_srli_epi32(b, 4) : _mm512_and_si512(b, _mm512_set1_epi32(15)));
}
MD_INLINE vf v_bytes(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

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
MD_INLINE vpair v_pair_q8(const uint8_t *p) {
    // vpermb takes byte 2r (or 2r + 1) to lane r and leaves zeros around it
    const __m512i even_index = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd_index = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    const __mmask64 low = 0x1111111111111111u;
    __m512i w = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)p));
    __m512i even = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(low, even_index, w)));
    __m512i odd = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(low, odd_index, w)));
    return _mm512_or_si512(_mm512_srli_epi32(even, 16), odd); // integers below 256 have empty lower halves
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
MD_INLINE vpair v_pair_q8(const uint8_t *p) {
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return (vpair){_mm512_cvtepi32_ps(_mm512_and_si512(w, _mm512_set1_epi32(255))),
                   _mm512_cvtepi32_ps(_mm512_srli_epi32(w, 8))};
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
