// A team of threads that run one job together: created once, pinned, parked on a futex between runs. The calling thread
// is worker 0. Every wait spins briefly, then yields, then sleeps, and has a deadline: when a worker does not come, the
// run is abandoned everywhere and says who waited for whom.
//
// Thread rule: md_team_run, md_team_settle and md_team_close from one thread at a time; md_team_barrier inside a job.
#ifndef MD_BACKEND_CPU_TEAM_H
#define MD_BACKEND_CPU_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/topology.h"
#include "base/status.h"

typedef struct md_team md_team;
typedef void (*md_team_job)(void *context, uint32_t worker);

// A wait that ran out.
typedef struct md_team_late {
    uint32_t worker, phase;  // who waited, and in which phase (as given to md_team_barrier; MD_TEAM_END at the end)
    uint32_t late;           // for whom
    uint32_t late_phase;     // the last phase that worker finished a barrier for, or MD_TEAM_START
    uint32_t expected, seen; // barriers passed in this run; MD_TEAM_END = the end of the run
    uint32_t waited_ms;
} md_team_late;

#define MD_TEAM_END UINT32_MAX
#define MD_TEAM_START (UINT32_MAX - 1)

// workers >= 1. Fewer CPUs than workers is allowed and only slower.
md_status md_team_open(uint32_t workers, const md_topology *topology, md_team **out, md_error *err);

// Waits (up to deadline_ms) until no worker is inside an abandoned run any more, then frees everything. A worker that
// never comes back keeps its memory: freeing it would let it write into somebody else's. Returns whether all came back.
bool md_team_close(md_team *team, uint32_t deadline_ms);

// Whether every worker has left the last run; waits for it up to deadline_ms. False fills *late.
bool md_team_settle(md_team *team, uint32_t deadline_ms, md_team_late *late);

// Runs job(context, w) on every worker w and returns when all are done. False when a wait took longer than deadline_ms
// (time in which this process was stopped doesn't count): *late says which; the other workers have left or will leave
// their job at their next barrier. The team can run again; md_team_settle first.
bool md_team_run(md_team *team, md_team_job job, void *context, uint32_t deadline_ms, md_team_late *late);

// Waits until all workers of the run have come here. Everything they wrote before is visible after. False: the run is
// abandoned, the job must return.
bool md_team_barrier(md_team *team, uint32_t worker, uint32_t phase);

uint32_t md_team_workers(const md_team *team);

#endif
