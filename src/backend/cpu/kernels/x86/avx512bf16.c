// The avx512bf16 level: avx512vnni with vdpbf16ps, and the check that the instruction is the two FMAs of docs/MODEL.md.
// Only kernels may live here: this file is compiled for its ISA.
#define VEC_DIGITS
#define VEC_BF16_DOT
#include "backend/cpu/kernels/x86/ints_avx512.h"

#include "backend/cpu/kernels/body.inl"

// A bf16 that is often an edge: zero, denormal, huge, one, infinity, or anything.
static uint16_t edge_bf16(uint64_t *state) {
    static const uint16_t edges[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x8080, 0x3f80, 0xbf80,
                                     0x7f7f, 0xff7f, 0x4370, 0x4170, 0x1fff, 0x9fff, 0x5f00, 0x0100};
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint32_t bits = (uint32_t)(*state >> 33);
    return bits & 0x30000 ? (uint16_t)bits : edges[bits % 16];
}

int md_avx512bf16_check(uint32_t count) {
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint32_t k = 0; k < count; k += 16) {
        uint32_t w[16], x[16];
        float acc[16], want[16], got[16];
        for (int i = 0; i < 16; i++) {
            w[i] = edge_bf16(&state) | (uint32_t)edge_bf16(&state) << 16;
            x[i] = edge_bf16(&state) | (uint32_t)edge_bf16(&state) << 16;
            acc[i] = md_f32_from_bits((uint32_t)edge_bf16(&state) << 16 | edge_bf16(&state));
        }
        __m512i wv = _mm512_loadu_si512(w), xv = _mm512_loadu_si512(x), up = _mm512_set1_epi32((int)0xffff0000u);
        vf a = v_load(acc);
        v_store(got, _mm512_dpbf16_ps(a, (__m512bh)wv, (__m512bh)xv));
        a = v_fma(_mm512_castsi512_ps(_mm512_and_si512(wv, up)), _mm512_castsi512_ps(_mm512_and_si512(xv, up)), a);
        a = v_fma(_mm512_castsi512_ps(_mm512_slli_epi32(wv, 16)), _mm512_castsi512_ps(_mm512_slli_epi32(xv, 16)), a);
        v_store(want, a);
        for (int i = 0; i < 16; i++)
            if (md_f32_bits(got[i]) != md_f32_bits(want[i]) && !(got[i] != got[i] && want[i] != want[i])) return 0;
    }
    return 1;
}
