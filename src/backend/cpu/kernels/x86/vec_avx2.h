// 16 lanes as two AVX2 registers. The list of operations is in kernels/body.inl.
#ifndef MD_BACKEND_CPU_KERNELS_X86_VEC_AVX2_H
#define MD_BACKEND_CPU_KERNELS_X86_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/kernels/unroll.h"

#define MD_INLINE static inline __attribute__((always_inline))

typedef struct vf {
    __m256 lo, hi;
} vf;
typedef struct vint {
    __m256i lo, hi;
} vint;
typedef struct vpair {
    vf even, odd;
} vpair;

#define VEC_UN(op, a) ((vf){op((a).lo), op((a).hi)})
#define VEC_BIN(op, a, b) ((vf){op((a).lo, (b).lo), op((a).hi, (b).hi)})

MD_INLINE vf v_set1(float a) { return (vf){_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
MD_INLINE vf v_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
MD_INLINE void v_store(float *p, vf a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
MD_INLINE vf v_add(vf a, vf b) { return VEC_BIN(_mm256_add_ps, a, b); }
MD_INLINE vf v_sub(vf a, vf b) { return VEC_BIN(_mm256_sub_ps, a, b); }
MD_INLINE vf v_mul(vf a, vf b) { return VEC_BIN(_mm256_mul_ps, a, b); }
MD_INLINE vf v_div(vf a, vf b) { return VEC_BIN(_mm256_div_ps, a, b); }
MD_INLINE vf v_max(vf a, vf b) { return VEC_BIN(_mm256_max_ps, a, b); }
MD_INLINE vf v_fma(vf a, vf b, vf c) {
    return (vf){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
MD_INLINE vf v_abs(vf a) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
MD_INLINE vf v_neg(vf a) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){_mm256_xor_ps(sign, a.lo), _mm256_xor_ps(sign, a.hi)};
}
MD_INLINE vf v_select_lt(vf a, vf b, vf yes, vf no) {
    return (vf){_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
                _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
MD_INLINE __m256 vec_exp_scale8(__m256 p, __m256 t) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}
MD_INLINE vf v_exp_scale(vf p, vf t) { return VEC_BIN(vec_exp_scale8, p, t); }

// md_bf16_from_f32 with the result left in the upper half.
MD_INLINE __m256i vec_round8(__m256 a) {
    __m256i bits = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_and_si256(_mm256_blendv_epi8(up, nan, is_nan), _mm256_set1_epi32((int)0xffff0000u));
}
MD_INLINE vf v_round(vf a) {
    return (vf){_mm256_castsi256_ps(vec_round8(a.lo)), _mm256_castsi256_ps(vec_round8(a.hi))};
}
MD_INLINE vf v_widen(const uint16_t *p) {
    __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 8)));
    return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
MD_INLINE void v_narrow(uint16_t *p, vf a) {
    __m256i lo = _mm256_srli_epi32(vec_round8(a.lo), 16), hi = _mm256_srli_epi32(vec_round8(a.hi), 16);
    __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
    _mm256_storeu_si256((__m256i *)p, both);
}
MD_INLINE vf v_swap_halves(vf a) { return (vf){a.hi, a.lo}; }
MD_INLINE __m256 vec_max_bits8(__m256 a, __m256 b) {
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
}
MD_INLINE vf v_max_bits(vf a, vf b) { return VEC_BIN(vec_max_bits8, a, b); }

MD_INLINE vint vec_load(const uint8_t *p) {
    return (vint){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32))};
}

// A lane's codes 0 and 2, and 1 and 3, in 16 bits; integers lie in the same order.
typedef struct vquad {
    vint even, odd;
} vquad;
typedef vint vacc;

MD_INLINE vint vec_field16(vint w, int shift, int mask) {
    __m256i field = _mm256_set1_epi16((short)mask);
    return (vint){_mm256_and_si256(_mm256_srli_epi16(w.lo, shift), field),
                  _mm256_and_si256(_mm256_srli_epi16(w.hi, shift), field)};
}
MD_INLINE vquad vec_quad(const uint8_t *p, int even, int odd, int mask) {
    vint w = vec_load(p);
    return (vquad){vec_field16(w, even, mask), vec_field16(w, odd, mask)};
}
MD_INLINE vquad v_quad8(const uint8_t *p) { return vec_quad(p, 0, 8, 255); }
MD_INLINE vquad v_quad4(const uint8_t *p, int high) { return high ? vec_quad(p, 4, 12, 15) : vec_quad(p, 0, 8, 15); }
MD_INLINE void v_acc_clear(vacc *acc) { acc->lo = acc->hi = _mm256_setzero_si256(); }
MD_INLINE void v_quad_dot(vacc *acc, vquad w, const void *x) {
    int32_t pair[2];
    memcpy(pair, x, sizeof pair);
    __m256i even = _mm256_set1_epi32(pair[0]), odd = _mm256_set1_epi32(pair[1]);
    acc->lo = _mm256_add_epi32(acc->lo, _mm256_madd_epi16(w.even.lo, even));
    acc->hi = _mm256_add_epi32(acc->hi, _mm256_madd_epi16(w.even.hi, even));
    acc->lo = _mm256_add_epi32(acc->lo, _mm256_madd_epi16(w.odd.lo, odd));
    acc->hi = _mm256_add_epi32(acc->hi, _mm256_madd_epi16(w.odd.hi, odd));
}
MD_INLINE vf v_acc_float(const vacc *acc) { return (vf){_mm256_cvtepi32_ps(acc->lo), _mm256_cvtepi32_ps(acc->hi)}; }
MD_INLINE void v_store_ints(void *x, vf t) {
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1));
    __m256i lo = _mm256_shuffle_epi8(_mm256_castps_si256(t.lo), order);
    __m256i hi = _mm256_shuffle_epi8(_mm256_castps_si256(t.hi), order);
    __m256i quads = _mm256_permute4x64_epi64(_mm256_unpacklo_epi64(lo, hi), 0xd8); // of 0 2 1 3
    _mm256_storeu_si256((__m256i *)x, quads);
}

MD_INLINE vpair v_pair_bf16(const uint8_t *p) {
    vint w = vec_load(p);
    __m256i upper = _mm256_set1_epi32((int)0xffff0000u);
    return (vpair){
        {_mm256_castsi256_ps(_mm256_slli_epi32(w.lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(w.hi, 16))},
        {_mm256_castsi256_ps(_mm256_and_si256(w.lo, upper)), _mm256_castsi256_ps(_mm256_and_si256(w.hi, upper))}};
}

#define VEC_ACT MD_ACT_F32
#define VEC_NAME avx2
#define VEC_BLOCK 2
#define VEC_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)

#endif
