// The avx512vnni level: avx512 with vpdpbusd. Only kernels may live here: this file is compiled for its ISA.
#define VEC_DIGITS
#include "backend/cpu/kernels/x86/ints_avx512.h"

#include "backend/cpu/kernels/body.inl"
