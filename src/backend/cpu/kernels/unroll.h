// Before a loop. MD_UNROLL: of few constant rounds, unrolled whole; MD_UNROLL_IF_KNOWN: where their number may be known
// to the compiler (clang needs no word for it, and would warn elsewhere).
#ifndef MD_BACKEND_CPU_KERNELS_UNROLL_H
#define MD_BACKEND_CPU_KERNELS_UNROLL_H

#if defined(__clang__)
#define MD_UNROLL _Pragma("unroll")
#define MD_UNROLL_IF_KNOWN
#else
#define MD_UNROLL _Pragma("GCC unroll 16")
#define MD_UNROLL_IF_KNOWN MD_UNROLL
#endif

#endif
