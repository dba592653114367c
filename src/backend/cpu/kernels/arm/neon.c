// The neon level: NEON. Only kernels may live here: this file is compiled for its ISA.
#include "backend/cpu/kernels/arm/vec_neon.h"

#include "backend/cpu/kernels/body.inl"
