#include "backend/cpu/level.h"

#include <stdlib.h>
#include <string.h>

#include "base/fpmode.h"

#if defined(__x86_64__)
enum { BF16_CHECK_OPERANDS = 1 << 15 }; // well under a millisecond

static bool has_avx512(void) {
    // __builtin_cpu_supports asks CPUID and, by XGETBV, whether the system saves the registers.
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_exact_bf16_dot(void) {
    if (!__builtin_cpu_supports("avx512bf16")) return false;
    uint64_t mode = md_fpmode_enter();
    bool exact = md_avx512bf16_check(BF16_CHECK_OPERANDS) != 0;
    md_fpmode_leave(mode);
    return exact;
}
#endif

uint32_t md_cpu_levels(const md_kernels *level[MD_CPU_MAX_LEVELS]) {
    uint32_t n = 0;
    level[n++] = &md_kernels_scalar;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return n;
    level[n++] = &md_kernels_avx2;
    if (!has_avx512()) return n;
    level[n++] = &md_kernels_avx512;
    if (!__builtin_cpu_supports("avx512vnni")) return n;
    level[n++] = &md_kernels_avx512vnni;
    if (has_exact_bf16_dot()) level[n++] = &md_kernels_avx512bf16;
#elif defined(__aarch64__)
    level[n++] = &md_kernels_neon;
#endif
    return n;
}

md_status md_cpu_level_select(const md_kernels **out, md_error *err) {
    static const char *const known[] = {"scalar", "avx2", "avx512", "avx512vnni", "avx512bf16", "neon"};
    const md_kernels *level[MD_CPU_MAX_LEVELS];
    uint32_t n = md_cpu_levels(level);
    *out = level[n - 1];
    const char *name = getenv("MEGADECODE_CPU");
    if (!name || !*name) return MD_OK;
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(level[i]->name, name) != 0) continue;
        *out = level[i];
        return MD_OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], name) == 0)
            return md_fail(err, MD_E_UNSUPPORTED,
                           "MEGADECODE_CPU: found \"%s\", but this CPU has no such kernels; its best are %s", name,
                           level[n - 1]->name);
    return md_fail(err, MD_E_USAGE,
                   "MEGADECODE_CPU: found \"%s\", expected scalar, avx2, avx512, avx512vnni, avx512bf16 or neon", name);
}
