// The avx512 level: AVX-512 F, BW, VL, DQ. Only kernels may live here: this file is compiled for its ISA.
#include "backend/cpu/kernels/x86/ints_avx512.h"

#include "backend/cpu/kernels/body.inl"
