// A clock that never goes back, for durations and deadlines.
#ifndef MD_BASE_CLOCK_H
#define MD_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline double md_clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline uint64_t md_clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#endif
