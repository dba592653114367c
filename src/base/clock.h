// Seconds of a clock that never goes back, for durations.
#ifndef MD_BASE_CLOCK_H
#define MD_BASE_CLOCK_H

#include <time.h>

static inline double md_clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
