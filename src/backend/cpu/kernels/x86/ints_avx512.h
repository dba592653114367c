// Activations as integers (kernels/ints.inl) by AVX-512: 32 elements a vector, and 8 rows at once. Included by
// vec_avx512.h.
#ifndef MD_BACKEND_CPU_KERNELS_X86_INTS_AVX512_H
#define MD_BACKEND_CPU_KERNELS_X86_INTS_AVX512_H

#include "backend/cpu/kernels/x86/vec_avx512.h"
#include "base/mathx.h"

// The greatest |bf16| of 32 or 64 elements, as an unsigned integer, turned over, in the lowest 16 bits.
MD_INLINE __m128i vec_top(const uint16_t *row, const uint32_t n) {
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    __m512i a = _mm512_and_si512(_mm512_loadu_si512(row), magnitude);
    if (n > 32) a = _mm512_max_epu16(a, _mm512_and_si512(_mm512_loadu_si512(row + 32), magnitude));
    __m256i b = _mm256_max_epu16(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i c = _mm_max_epu16(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    return _mm_minpos_epu16(_mm_xor_si128(c, _mm_set1_epi8(-1)));
}
MD_INLINE float v_top(const uint16_t *row, const uint32_t n) {
    return md_f32_from_bits(~(uint32_t)_mm_cvtsi128_si32(vec_top(row, n)) << 16);
}

// 32 elements as 16 bits each.
MD_INLINE __m512i vec_ints(const uint16_t *row, vf inverse) {
    __m512i w = _mm512_loadu_si512(row);
    vf magic = v_set1(MD_EXP_MAGIC);
    vf even = v_fma(_mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), inverse, magic);
    vf odd = v_fma(_mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000u))), inverse, magic);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_castps_si512(even),
                                   _mm512_slli_epi32(_mm512_castps_si512(odd), 16));
}
MD_INLINE float v_ints(const uint16_t *row, float inverse, void *x) {
    __m512i n = vec_ints(row, v_set1(inverse));
    _mm512_storeu_si512(x, vec_quads(n));
    return (float)_mm512_reduce_add_epi32(_mm512_madd_epi16(n, _mm512_set1_epi16(1)));
}

// md_shared_unit of 8 rows.
MD_INLINE __m256 vec_units(__m256 top, __m256 *inverse) {
    __m256i exponent = _mm256_castps_si256(_mm256_mul_ps(top, _mm256_set1_ps(MD_UNIT_ROOM)));
    exponent = _mm256_max_epu32(_mm256_srli_epi32(exponent, 23), _mm256_set1_epi32(MD_UNIT_LEAST_EXPONENT));
    *inverse =
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(254 + MD_UNIT_BITS), exponent), 23));
    __m256i unit = _mm256_slli_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(MD_UNIT_BITS)), 23);
    return _mm256_castsi256_ps(_mm256_mask_mov_epi32(unit, _mm256_cmpeq_epi32_mask(exponent, _mm256_set1_epi32(255)),
                                                     _mm256_set1_epi32(0x7fc00000)));
}
MD_INLINE __m256 vec_tops(const uint16_t *rows, size_t stride, const uint32_t n) {
    __m128i t[8];
    MD_UNROLL for (int c = 0; c < 8; c++) t[c] = vec_top(rows + (size_t)c * stride, n);
    MD_UNROLL for (int c = 0; c < 8; c += 2) t[c] = _mm_unpacklo_epi32(t[c], t[c + 1]);
    __m256i all = _mm256_set_m128i(_mm_unpacklo_epi64(t[4], t[6]), _mm_unpacklo_epi64(t[0], t[2]));
    return _mm256_castsi256_ps(_mm256_xor_si256(_mm256_slli_epi32(all, 16), _mm256_set1_epi32((int)0xffff0000u)));
}

// 8 x 8 of 64 bits.
MD_INLINE void vec_transpose(__m512i *r) {
    __m512i t[8];
    MD_UNROLL for (int c = 0; c < 8; c += 2) {
        t[c] = _mm512_unpacklo_epi64(r[c], r[c + 1]); // rows c, c + 1; elements 0 2 4 6
        t[c + 1] = _mm512_unpackhi_epi64(r[c], r[c + 1]);
    }
    MD_UNROLL for (int odd = 0; odd < 2; odd++) {
        __m512i a = _mm512_shuffle_i64x2(t[odd], t[2 + odd], 0x88), b = _mm512_shuffle_i64x2(t[odd], t[2 + odd], 0xdd);
        __m512i c = _mm512_shuffle_i64x2(t[4 + odd], t[6 + odd], 0x88);
        __m512i d = _mm512_shuffle_i64x2(t[4 + odd], t[6 + odd], 0xdd);
        r[odd] = _mm512_shuffle_i64x2(a, c, 0x88);
        r[2 + odd] = _mm512_shuffle_i64x2(b, d, 0x88);
        r[4 + odd] = _mm512_shuffle_i64x2(a, c, 0xdd);
        r[6 + odd] = _mm512_shuffle_i64x2(b, d, 0xdd);
    }
}

// n = 32 or 64 elements of 8 rows: x[n / 4][8 rows][8 bytes], unit[8], sums[n / 32][8].
MD_INLINE void v_ints_of_eight(const uint16_t *rows, size_t stride, const uint32_t n, uint8_t *x, float *unit,
                               float *sums) {
    __m256 inverse;
    float scale[8];
    _mm256_storeu_ps(unit, vec_units(vec_tops(rows, stride, n), &inverse));
    _mm256_storeu_ps(scale, inverse);
    for (uint32_t i = 0; i < n; i += 32, sums += 8) {
        __m512i r[8], sum = _mm512_setzero_si512();
        MD_UNROLL for (int c = 0; c < 8; c++) r[c] =
            vec_quads(vec_ints(rows + (size_t)c * stride + i, v_set1(scale[c])));
        vec_transpose(r);
        MD_UNROLL for (int q = 0; q < 8; q++, x += 64) {
            _mm512_storeu_si512(x, r[q]);
            sum = vec_add_quads(sum, r[q]);
        }
        _mm256_storeu_ps(sums, _mm256_cvtepi32_ps(_mm512_cvtepi64_epi32(vec_quad_sums(sum))));
    }
}

#endif
