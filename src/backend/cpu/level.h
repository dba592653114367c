// Which kernels this CPU runs.
#ifndef MD_BACKEND_CPU_LEVEL_H
#define MD_BACKEND_CPU_LEVEL_H

#include "backend/cpu/kernels/kernels.h"
#include "base/status.h"

enum { MD_CPU_MAX_LEVELS = 5 };

// The levels this build and this CPU have, from the lowest (scalar) to the best: instruction sets, the operating
// system's support for their registers, and for avx512bf16 the check that vdpbf16ps has the bits of two FMAs. Returns
// their number. Thread-safe.
uint32_t md_cpu_levels(const md_kernels *level[MD_CPU_MAX_LEVELS]);

// The best level, or the one MEGADECODE_CPU names (scalar, avx2, avx512, avx512vnni, avx512bf16, neon). MD_E_USAGE for
// an unknown name, MD_E_UNSUPPORTED for a level this CPU doesn't have.
md_status md_cpu_level_select(const md_kernels **out, md_error *err);

#endif
