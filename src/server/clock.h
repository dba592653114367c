// Deadlines as the server's condition variables want them; base/clock.h is the clock itself.
#ifndef MD_SERVER_CLOCK_H
#define MD_SERVER_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "base/clock.h"

// `ms` milliseconds from now as pthread_cond_timedwait wants it (the condition must use CLOCK_MONOTONIC).
static inline struct timespec md_ms_from_now(uint64_t ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(ms / 1000);
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

#endif
