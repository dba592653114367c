// 16 lanes in plain C: the vector layer of the scalar level. The list of operations is in kernels/body.inl.
#ifndef MD_BACKEND_CPU_KERNELS_SCALAR_VEC_SCALAR_H
#define MD_BACKEND_CPU_KERNELS_SCALAR_VEC_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/bf16.h"

// Inlining is left to the compiler: this level is for reading and for CPUs without vectors. Under the sanitizers the
// 16-element loops would take it minutes, so there nothing is inlined.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MD_INLINE static __attribute__((noinline, unused))
#else
#define MD_INLINE static inline
#endif
#define MD_UNROLL
#define MD_UNROLL_IF_KNOWN

typedef struct vf {
    float f[16];
} vf;
typedef struct vquad {
    uint8_t code[64];
} vquad;
typedef struct vacc {
    int32_t i[16];
} vacc;
typedef struct vpair {
    vf even, odd;
} vpair;

#define VEC_EACH for (int i = 0; i < 16; i++)

MD_INLINE vf v_set1(float a) {
    vf r;
    VEC_EACH r.f[i] = a;
    return r;
}
MD_INLINE vf v_load(const float *p) {
    vf r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}
MD_INLINE void v_store(float *p, vf a) { memcpy(p, a.f, sizeof a.f); }
MD_INLINE vf v_add(vf a, vf b) {
    VEC_EACH a.f[i] = a.f[i] + b.f[i];
    return a;
}
MD_INLINE vf v_sub(vf a, vf b) {
    VEC_EACH a.f[i] = a.f[i] - b.f[i];
    return a;
}
MD_INLINE vf v_mul(vf a, vf b) {
    VEC_EACH a.f[i] = a.f[i] * b.f[i];
    return a;
}
MD_INLINE vf v_div(vf a, vf b) {
    VEC_EACH a.f[i] = a.f[i] / b.f[i];
    return a;
}
MD_INLINE vf v_fma(vf a, vf b, vf c) {
    VEC_EACH c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
    return c;
}
MD_INLINE vf v_max(vf a, vf b) {
    VEC_EACH a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return a;
}
MD_INLINE vf v_abs(vf a) {
    VEC_EACH a.f[i] = fabsf(a.f[i]);
    return a;
}
MD_INLINE vf v_neg(vf a) {
    VEC_EACH a.f[i] = -a.f[i];
    return a;
}
MD_INLINE vf v_select_lt(vf a, vf b, vf yes, vf no) {
    VEC_EACH yes.f[i] = a.f[i] < b.f[i] ? yes.f[i] : no.f[i];
    return yes;
}
MD_INLINE vf v_exp_scale(vf p, vf t) {
    VEC_EACH p.f[i] = md_f32_from_bits(md_f32_bits(p.f[i]) + (md_f32_bits(t.f[i]) << 23));
    return p;
}
MD_INLINE vf v_max_bits(vf a, vf b) {
    VEC_EACH a.f[i] = md_f32_bits(a.f[i]) > md_f32_bits(b.f[i]) ? a.f[i] : b.f[i];
    return a;
}
MD_INLINE vf v_round(vf a) {
    VEC_EACH a.f[i] = md_bf16_round(a.f[i]);
    return a;
}
MD_INLINE vf v_widen(const uint16_t *p) {
    vf r;
    VEC_EACH r.f[i] = md_bf16_to_f32(p[i]);
    return r;
}
MD_INLINE void v_narrow(uint16_t *p, vf a) { VEC_EACH p[i] = md_bf16_from_f32(a.f[i]); }
MD_INLINE vf v_swap_halves(vf a) {
    vf r;
    VEC_EACH r.f[i] = a.f[i ^ 8];
    return r;
}
MD_INLINE vquad v_quad8(const uint8_t *p) {
    vquad r;
    memcpy(r.code, p, sizeof r.code);
    return r;
}
MD_INLINE vquad v_quad4(const uint8_t *p, int high) {
    vquad r;
    for (int i = 0; i < 64; i++) r.code[i] = p[i] >> (high ? 4 : 0) & 15;
    return r;
}
MD_INLINE void v_acc_clear(vacc *acc) { memset(acc, 0, sizeof *acc); }
MD_INLINE void v_quad_dot(vacc *acc, vquad w, const void *x) {
    int16_t n[4];
    memcpy(n, x, sizeof n);
    VEC_EACH for (int k = 0; k < 4; k++) acc->i[i] += w.code[4 * i + k] * n[k];
}
MD_INLINE vf v_acc_float(const vacc *acc) {
    vf r;
    VEC_EACH r.f[i] = (float)acc->i[i];
    return r;
}
MD_INLINE void v_store_ints(void *x, vf t) {
    uint16_t n[16];
    VEC_EACH n[i] = (uint16_t)md_f32_bits(t.f[i]);
    memcpy(x, n, sizeof n);
}

MD_INLINE vpair v_pair_bf16(const uint8_t *p) {
    vpair r;
    uint32_t w[16];
    memcpy(w, p, sizeof w);
    VEC_EACH r.even.f[i] = md_f32_from_bits(w[i] << 16);
    VEC_EACH r.odd.f[i] = md_f32_from_bits(w[i] & 0xffff0000u);
    return r;
}

#define VEC_ACT MD_ACT_F32
#define VEC_NAME scalar
#define VEC_BLOCK 2 // columns a product keeps in registers at once
#define VEC_PREFETCH(p) ((void)(p))

#endif
