// Arithmetic on sizes that come from a file or a client: true when the result does not fit (`*out` is then undefined).
#ifndef MD_BASE_CHECKED_H
#define MD_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool md_mul_overflow(uint64_t a, uint64_t b, uint64_t *out) { return __builtin_mul_overflow(a, b, out); }
static inline bool md_add_overflow(uint64_t a, uint64_t b, uint64_t *out) { return __builtin_add_overflow(a, b, out); }

// `value` rounded up to a multiple of `multiple` (> 0); the caller has bounded `value` well below 2^63.
static inline uint64_t md_round_up(uint64_t value, uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
static inline uint64_t md_ceil_div(uint64_t value, uint64_t by) { return (value + by - 1) / by; }
static inline uint64_t md_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t md_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

#endif
