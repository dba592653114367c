// The avx2 level: AVX2 and FMA. Only kernels may live here: this file is compiled for its ISA.
#include "backend/cpu/kernels/x86/vec_avx2.h"

#include "backend/cpu/kernels/body.inl"
