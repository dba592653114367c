// 16 lanes as one AVX-512 register. With VEC_DIGITS defined (VNNI), codes meet integers as two digits in vpdpbusd; with
// VEC_BF16_DOT defined, pairs of bf16 weights meet bf16 activations in vdpbf16ps. The list of operations is in
// kernels/body.inl.
#ifndef MD_BACKEND_CPU_KERNELS_X86_VEC_AVX512_H
#define MD_BACKEND_CPU_KERNELS_X86_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/kernels/unroll.h"

#define MD_INLINE static inline __attribute__((always_inline))

typedef __m512 vf;

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
MD_INLINE vf v_max_bits(vf a, vf b) {
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

#ifdef VEC_DIGITS
// Four codes a lane times four integers as two signed digits of base 256: x is four upper and four lower digits.
typedef __m512i vquad;
typedef struct vacc {
    __m512i upper, lower;
} vacc;

MD_INLINE vquad v_quad8(const uint8_t *p) { return _mm512_loadu_si512(p); }
MD_INLINE vquad v_quad4(const uint8_t *p, int high) {
    __m512i w = _mm512_loadu_si512(p);
#ifndef __clang__
    __asm__("" : "+v"(w)); // or gcc would load the codes twice, once for each half
#endif
    return _mm512_and_si512(high ? _mm512_srli_epi16(w, 4) : w, _mm512_set1_epi8(15));
}
MD_INLINE void v_acc_clear(vacc *acc) { acc->upper = acc->lower = _mm512_setzero_si512(); }
MD_INLINE void v_quad_dot(vacc *acc, vquad w, const void *x) {
    const int32_t *digits = x;
#ifdef __clang__
    acc->upper = _mm512_dpbusd_epi32(acc->upper, w, _mm512_set1_epi32(digits[0]));
    acc->lower = _mm512_dpbusd_epi32(acc->lower, w, _mm512_set1_epi32(digits[1]));
#else // as in dot_pair
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc->upper) : "v"(w), "m"(digits[0]));
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc->lower) : "v"(w), "m"(digits[1]));
#endif
}
MD_INLINE vf v_acc_float(const vacc *acc) {
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(acc->upper, 8), acc->lower));
}
// The upper digits of small integers are zero.
typedef __m512i vsmall;
MD_INLINE void v_small_clear(vsmall *acc) { *acc = _mm512_setzero_si512(); }
MD_INLINE void v_small_dot(vsmall *acc, vquad w, const void *x) {
    const int32_t *digits = x;
#ifdef __clang__
    *acc = _mm512_dpbusd_epi32(*acc, w, _mm512_set1_epi32(digits[1]));
#else
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(*acc) : "v"(w), "m"(digits[1]));
#endif
}
MD_INLINE vf v_small_float(const vsmall *acc) { return _mm512_cvtepi32_ps(*acc); }
#define VEC_SMALL
// 32 integers of 16 bits in that order: n's low byte is its lower digit, the second byte of n + 128 the upper one.
MD_INLINE __m512i vec_quads(__m512i n) {
    const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(1, 3, 5, 7, 0, 2, 4, 6, 9, 11, 13, 15, 8, 10, 12, 14));
    __m512i upper = _mm512_add_epi16(n, _mm512_set1_epi16(128));
    return _mm512_shuffle_epi8(_mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, n, upper), order);
}
// 8 sums of quads, each in two halves; joined in the lower 32 bits of 64.
MD_INLINE __m512i vec_add_quads(__m512i sum, __m512i quads) {
    return _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), quads);
}
MD_INLINE __m512i vec_quad_sums(__m512i sum) {
    return _mm512_add_epi32(_mm512_slli_epi32(sum, 8), _mm512_srli_epi64(sum, 32));
}
#else
// A lane's codes 0 and 2, and 1 and 3, in 16 bits; integers lie in the same order.
typedef struct vquad {
    __m512i even, odd;
} vquad;
typedef __m512i vacc;

MD_INLINE vquad vec_quad(const uint8_t *p, unsigned even, unsigned odd, int mask) {
    __m512i w = _mm512_loadu_si512(p), field = _mm512_set1_epi16((short)mask);
    return (vquad){_mm512_and_si512(_mm512_srli_epi16(w, even), field),
                   _mm512_and_si512(_mm512_srli_epi16(w, odd), field)};
}
MD_INLINE vquad v_quad8(const uint8_t *p) { return vec_quad(p, 0, 8, 255); }
MD_INLINE vquad v_quad4(const uint8_t *p, int high) { return high ? vec_quad(p, 4, 12, 15) : vec_quad(p, 0, 8, 15); }
MD_INLINE void v_acc_clear(vacc *acc) { *acc = _mm512_setzero_si512(); }
MD_INLINE void v_quad_dot(vacc *acc, vquad w, const void *x) {
    int32_t pair[2];
    memcpy(pair, x, sizeof pair);
    *acc = _mm512_add_epi32(*acc, _mm512_madd_epi16(w.even, _mm512_set1_epi32(pair[0])));
    *acc = _mm512_add_epi32(*acc, _mm512_madd_epi16(w.odd, _mm512_set1_epi32(pair[1])));
}
MD_INLINE vf v_acc_float(const vacc *acc) { return _mm512_cvtepi32_ps(*acc); }
// 32 integers of 16 bits in that order.
MD_INLINE __m512i vec_quads(__m512i n) {
    const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    return _mm512_shuffle_epi8(n, order);
}
// 8 sums of quads, each in two halves; joined in the lower 32 bits of 64.
MD_INLINE __m512i vec_add_quads(__m512i sum, __m512i quads) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(quads, _mm512_set1_epi16(1)));
}
MD_INLINE __m512i vec_quad_sums(__m512i sum) { return _mm512_add_epi32(sum, _mm512_srli_epi64(sum, 32)); }
#endif

MD_INLINE void v_store_ints(void *x, vf t) {
    __m512i n = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(_mm512_castps_si512(t)));
    _mm256_storeu_si256((__m256i *)x, _mm512_castsi512_si256(vec_quads(n)));
}

#ifdef VEC_BF16_DOT
// v_round of what is no denormal: those the instruction would flush.
MD_INLINE vf v_round_product(vf a) {
    __m256i half = (__m256i)_mm512_cvtneps_pbh(a);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
#define VEC_ROUND_PRODUCT

typedef __m512i vpair; // bf16: low half even column, high half odd column

MD_INLINE vpair v_pair_bf16(const uint8_t *p) { return _mm512_loadu_si512(p); }

#define VEC_ACT MD_ACT_PAIRS
#define VEC_NAME avx512bf16
#else
typedef struct vpair {
    vf even, odd;
} vpair;

MD_INLINE vpair v_pair_bf16(const uint8_t *p) {
    __m512i w = _mm512_loadu_si512(p);
    return (vpair){_mm512_castsi512_ps(_mm512_slli_epi32(w, 16)),
                   _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000u)))};
}

#define VEC_ACT MD_ACT_F32
#ifdef VEC_DIGITS
#define VEC_NAME avx512vnni
#else
#define VEC_NAME avx512
#endif
#endif

#define VEC_BLOCK 8
#define VEC_INTS
#define VEC_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)

#endif
