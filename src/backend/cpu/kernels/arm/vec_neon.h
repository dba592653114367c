// 16 lanes as four NEON registers. The list of operations is in kernels/body.inl.
#ifndef MD_BACKEND_CPU_KERNELS_ARM_VEC_NEON_H
#define MD_BACKEND_CPU_KERNELS_ARM_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/kernels/unroll.h"

#define MD_INLINE static inline __attribute__((always_inline))

typedef float32x4x4_t vf;
typedef struct vpair {
    vf even, odd;
} vpair;

#define VEC_UN(op, a) ((vf){{op((a).val[0]), op((a).val[1]), op((a).val[2]), op((a).val[3])}})
#define VEC_BIN(op, a, b)                                                                                              \
    ((vf){{op((a).val[0], (b).val[0]), op((a).val[1], (b).val[1]), op((a).val[2], (b).val[2]),                         \
           op((a).val[3], (b).val[3])}})
#define VEC_TRI(op, a, b, c)                                                                                           \
    ((vf){{op((a).val[0], (b).val[0], (c).val[0]), op((a).val[1], (b).val[1], (c).val[1]),                             \
           op((a).val[2], (b).val[2], (c).val[2]), op((a).val[3], (b).val[3], (c).val[3])}})

MD_INLINE vf v_set1(float a) {
    float32x4_t v = vdupq_n_f32(a);
    return (vf){{v, v, v, v}};
}
MD_INLINE vf v_load(const float *p) {
    return (vf){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
MD_INLINE void v_store(float *p, vf a) {
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.val[i]);
}
MD_INLINE vf v_add(vf a, vf b) { return VEC_BIN(vaddq_f32, a, b); }
MD_INLINE vf v_sub(vf a, vf b) { return VEC_BIN(vsubq_f32, a, b); }
MD_INLINE vf v_mul(vf a, vf b) { return VEC_BIN(vmulq_f32, a, b); }
MD_INLINE vf v_div(vf a, vf b) { return VEC_BIN(vdivq_f32, a, b); }
MD_INLINE vf v_fma(vf a, vf b, vf c) { return VEC_TRI(vfmaq_f32, c, a, b); }
MD_INLINE float32x4_t vec_max4(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
MD_INLINE vf v_max(vf a, vf b) { return VEC_BIN(vec_max4, a, b); }
MD_INLINE vf v_abs(vf a) { return VEC_UN(vabsq_f32, a); }
MD_INLINE vf v_neg(vf a) { return VEC_UN(vnegq_f32, a); }
MD_INLINE vf v_select_lt(vf a, vf b, vf yes, vf no) {
    vf r;
    for (int i = 0; i < 4; i++) r.val[i] = vbslq_f32(vcltq_f32(a.val[i], b.val[i]), yes.val[i], no.val[i]);
    return r;
}
MD_INLINE float32x4_t vec_exp_scale4(float32x4_t p, float32x4_t t) {
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), vshlq_n_u32(vreinterpretq_u32_f32(t), 23)));
}
MD_INLINE vf v_exp_scale(vf p, vf t) { return VEC_BIN(vec_exp_scale4, p, t); }

// md_bf16_from_f32 with junk left in the lower half.
MD_INLINE uint32x4_t vec_round4(float32x4_t a) {
    uint32x4_t bits = vreinterpretq_u32_f32(a);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t up = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    return vbslq_u32(vceqq_f32(a, a), up, vorrq_u32(bits, vdupq_n_u32(0x00400000)));
}
MD_INLINE float32x4_t vec_rounded4(float32x4_t a) {
    return vreinterpretq_f32_u32(vandq_u32(vec_round4(a), vdupq_n_u32(0xffff0000u)));
}
MD_INLINE vf v_round(vf a) { return VEC_UN(vec_rounded4, a); }
MD_INLINE float32x4_t vec_widen4(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
MD_INLINE vf v_widen(const uint16_t *p) {
    return (vf){{vec_widen4(p), vec_widen4(p + 4), vec_widen4(p + 8), vec_widen4(p + 12)}};
}
MD_INLINE void v_narrow(uint16_t *p, vf a) {
    for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vshrn_n_u32(vec_round4(a.val[i]), 16));
}
MD_INLINE vf v_swap_halves(vf a) { return (vf){{a.val[2], a.val[3], a.val[0], a.val[1]}}; }
MD_INLINE float32x4_t vec_max_bits4(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
}
MD_INLINE vf v_max_bits(vf a, vf b) { return VEC_BIN(vec_max_bits4, a, b); }

// A lane's codes 0 and 2, and 1 and 3, in 16 bits; integers lie in the same order. A lane's sum is two neighbours' of
// acc.
typedef struct vquad {
    int16x8_t even[4], odd[4];
} vquad;
typedef struct vacc {
    int32x4_t lo[4], hi[4];
} vacc;

MD_INLINE vquad vec_quad(const uint8_t *p, int even, int odd, uint16_t mask) {
    vquad r;
    for (int i = 0; i < 4; i++) {
        uint16x8_t w = vreinterpretq_u16_u8(vld1q_u8(p + 16 * i)), field = vdupq_n_u16(mask);
        r.even[i] = vreinterpretq_s16_u16(vandq_u16(vshlq_u16(w, vdupq_n_s16((int16_t)-even)), field));
        r.odd[i] = vreinterpretq_s16_u16(vandq_u16(vshlq_u16(w, vdupq_n_s16((int16_t)-odd)), field));
    }
    return r;
}
MD_INLINE vquad v_quad8(const uint8_t *p) { return vec_quad(p, 0, 8, 255); }
MD_INLINE vquad v_quad4(const uint8_t *p, int high) { return high ? vec_quad(p, 4, 12, 15) : vec_quad(p, 0, 8, 15); }
MD_INLINE void v_acc_clear(vacc *acc) {
    for (int i = 0; i < 4; i++) acc->lo[i] = acc->hi[i] = vdupq_n_s32(0);
}
MD_INLINE void v_quad_dot(vacc *acc, vquad w, const void *x) {
    int32_t pair[2];
    memcpy(pair, x, sizeof pair);
    int16x4_t even = vreinterpret_s16_s32(vdup_n_s32(pair[0])), odd = vreinterpret_s16_s32(vdup_n_s32(pair[1]));
    for (int i = 0; i < 4; i++) {
        acc->lo[i] = vmlal_s16(acc->lo[i], vget_low_s16(w.even[i]), even);
        acc->hi[i] = vmlal_s16(acc->hi[i], vget_high_s16(w.even[i]), even);
        acc->lo[i] = vmlal_s16(acc->lo[i], vget_low_s16(w.odd[i]), odd);
        acc->hi[i] = vmlal_s16(acc->hi[i], vget_high_s16(w.odd[i]), odd);
    }
}
MD_INLINE vf v_acc_float(const vacc *acc) {
    vf r;
    for (int i = 0; i < 4; i++) r.val[i] = vcvtq_f32_s32(vpaddq_s32(acc->lo[i], acc->hi[i]));
    return r;
}
MD_INLINE void v_store_ints(void *x, vf t) {
    static const uint8_t order[8] = {0, 1, 8, 9, 4, 5, 12, 13};
    for (int i = 0; i < 4; i++)
        vst1_u8((uint8_t *)x + 8 * i, vqtbl1_u8(vreinterpretq_u8_f32(t.val[i]), vld1_u8(order)));
}

MD_INLINE vpair v_pair_bf16(const uint8_t *p) {
    vpair r;
    for (int i = 0; i < 4; i++) {
        uint32x4_t w = vreinterpretq_u32_u8(vld1q_u8(p + 16 * i));
        r.even.val[i] = vreinterpretq_f32_u32(vshlq_n_u32(w, 16));
        r.odd.val[i] = vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xffff0000u)));
    }
    return r;
}

#define VEC_ACT MD_ACT_F32
#define VEC_NAME neon
#define VEC_BLOCK 2
#define VEC_PREFETCH(p) __builtin_prefetch(p)

#endif
