// The floating-point mode of a step: denormals flushed to zero, in and out (docs/MODEL.md). Per thread: enter when a
// thread begins to compute, leave with the returned value when it ends.
#ifndef MD_BASE_FPMODE_H
#define MD_BASE_FPMODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
static inline uint64_t md_fpmode_enter(void) {
    uint32_t saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u); // FTZ (bit 15) and DAZ (bit 6)
    return saved;
}
static inline void md_fpmode_leave(uint64_t saved) { _mm_setcsr((uint32_t)saved); }
#elif defined(__aarch64__)
static inline uint64_t md_fpmode_enter(void) {
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" : : "r"(saved | (uint64_t)1 << 24)); // FZ
    return saved;
}
static inline void md_fpmode_leave(uint64_t saved) { __asm__ volatile("msr fpcr, %0" : : "r"(saved)); }
#else
#error "no flush-to-zero mode known for this architecture"
#endif

#endif
