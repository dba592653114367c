// MD_UNROLL before a loop of few constant rounds: unrolled whole.
#ifndef MD_BACKEND_CPU_KERNELS_UNROLL_H
#define MD_BACKEND_CPU_KERNELS_UNROLL_H

#if defined(__clang__)
#define MD_UNROLL _Pragma("unroll")
#else
#define MD_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
