// The read ceiling of this machine: how fast memory can be streamed by a number of threads, for comparing engines with.
#ifndef MD_BASE_MEMBENCH_H
#define MD_BASE_MEMBENCH_H

#include <stdint.h>

#include "base/status.h"

// The best of `passes` passes in which `threads` threads each read their own share of a buffer of `bytes` bytes (much
// larger than the caches) once, with software prefetch: bytes a second. MD_E_MEMORY, MD_E_USAGE (no threads or passes).
md_status md_membench_read(uint32_t threads, uint64_t bytes, uint32_t passes, double *bytes_per_second, md_error *err);

#endif
