// Which CPUs this process may use, and how many of them are worth a thread.
#ifndef MD_BACKEND_CPU_TOPOLOGY_H
#define MD_BACKEND_CPU_TOPOLOGY_H

#include <stdint.h>

enum { MD_MAX_CPUS = 1024 };

typedef struct md_topology {
    uint32_t count;            // allowed CPUs (affinity mask); at least 1
    uint32_t cpu[MD_MAX_CPUS]; // their numbers, one of each core first, then the cores' other hardware threads
    uint32_t cores;            // how many stand for a core of their own
    double quota;              // CPUs the cgroup quota (v1 or v2) allows; 0 = no quota
} md_topology;

void md_topology_read(md_topology *out);

// Threads to start when the user doesn't say: one a core, no more than the quota feeds (1.5 gives 1: a second thread
// would be throttled in the middle of steps; 1.75 gives 2).
uint32_t md_topology_default_threads(const md_topology *topology);

#endif
