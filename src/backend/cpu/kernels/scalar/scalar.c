// The scalar level: plain C. Only kernels may live here: this file is compiled for its ISA.
#include "backend/cpu/kernels/scalar/vec_scalar.h"

#include "backend/cpu/kernels/body.inl"
