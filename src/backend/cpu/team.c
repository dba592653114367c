// Progress is one number a worker, on a cache line of its own: run << 32 | barriers passed in that run, with the low
// half all ones when the worker has left the run. It only grows, so "everyone has come" is "every number is at least
// mine", and no barrier has to be reset, not even after an abandoned run.
//
// Sleeping uses two futexes: `dispatch` (parked between runs) and `wake` (asleep at a barrier). A sleeper announces
// itself in a counter and then looks again; whoever changes what it waits for changes it first and then looks at the
// counter. Both pairs have a full fence between their two steps, so at least one side sees the other.
#define _GNU_SOURCE // pthread_setaffinity_np, sched_getcpu
#include "backend/cpu/team.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    SPINS = 3000,         // about 30 us of pause instructions: longer than a usual wait inside a step
    SPINS_CROWDED = 30,   // more workers than CPUs: the one waited for may need this CPU
    YIELDS = 100,         // then let others run
    SLEEP_MS = 20,        // then sleep, looking at the deadline this often
    COUNTED_SLICE_MS = 60 // a single look counts at most this: a stopped process doesn't run out of time
};

typedef struct team_line {
    _Alignas(128) _Atomic uint64_t progress; // 128: pairs of lines are fetched together
    _Atomic uint32_t phase;                  // of the last barrier, for reports
} team_line;

typedef struct team_worker {
    struct md_team *team;
    uint32_t index;
    pthread_t thread;
} team_worker;

struct md_team {
    uint32_t workers;
    uint32_t spins;
    md_topology topology;
    team_line *line; // [workers]
    team_worker *worker;
    uint32_t started; // threads that run: workers 1 .. started

    _Alignas(128) _Atomic uint32_t dispatch; // number of the current run (low 32 bits); futex
    _Atomic uint32_t parked;
    _Atomic bool closing;
    uint64_t run; // number of the current run; written before `dispatch`
    uint32_t deadline_ms;
    md_team_job job;
    void *context;

    _Alignas(128) _Atomic uint32_t wake; // futex
    _Atomic uint32_t sleepers;
    _Atomic uint64_t abandoned; // number of the last abandoned run
    _Atomic uint64_t reported;  // the same once `late` is filled
    md_team_late late;
};

static inline void cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t ms) {
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, seen, ms ? &limit : NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

// The first worker whose progress is below target, or `workers` when all have come.
static uint32_t first_missing(const md_team *team, uint64_t target) {
    for (uint32_t w = 0; w < team->workers; w++)
        // acquire: what the worker wrote before its release store is visible to whoever passes
        if (atomic_load_explicit(&team->line[w].progress, memory_order_acquire) < target) return w;
    return team->workers;
}

static void wake_sleepers(md_team *team) {
    // release: pairs with the sleeper's acquire load of `wake` before its last look
    atomic_fetch_add_explicit(&team->wake, 1, memory_order_release);
    futex_wake_all(&team->wake);
}

// Publishes progress and wakes sleepers when this arrival was the last one.
static void arrive(md_team *team, uint32_t worker, uint64_t progress) {
    // release: everything this worker wrote in the stage comes before its number
    atomic_store_explicit(&team->line[worker].progress, progress, memory_order_release);
    // full fence: the number is out before the sleepers are counted (see the head of this file)
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&team->sleepers, memory_order_relaxed) && first_missing(team, progress) == team->workers)
        wake_sleepers(team);
}

static void abandon(md_team *team, uint64_t target, uint32_t worker, uint32_t phase, uint32_t waited_ms) {
    uint64_t run = target >> 32, before = atomic_load_explicit(&team->abandoned, memory_order_relaxed);
    // acq_rel: only the first to find out writes the report
    if (before >= run || !atomic_compare_exchange_strong_explicit(&team->abandoned, &before, run, memory_order_acq_rel,
                                                                  memory_order_relaxed))
        return;
    uint32_t late = first_missing(team, target);
    if (late == team->workers) late = worker; // came just now; the run is given up all the same
    uint64_t seen = atomic_load_explicit(&team->line[late].progress, memory_order_relaxed);
    bool in_run = seen >> 32 == run;
    team->late = (md_team_late){
        .worker = worker,
        .phase = phase,
        .late = late,
        // relaxed: only for the report
        .late_phase = in_run ? atomic_load_explicit(&team->line[late].phase, memory_order_relaxed) : MD_TEAM_START,
        .expected = (uint32_t)target,
        .seen = in_run ? (uint32_t)seen : 0,
        .waited_ms = waited_ms};
    atomic_store_explicit(&team->reported, run, memory_order_release); // release: the report is whole before its flag
    wake_sleepers(team);
}

static bool is_abandoned(const md_team *team, uint64_t run) {
    // acquire: not needed for data, but keeps the check after the wait that led here
    return atomic_load_explicit(&team->abandoned, memory_order_acquire) >= run;
}

static void sleep_until_wake(md_team *team, uint64_t target) {
    uint32_t seen = atomic_load_explicit(&team->wake, memory_order_acquire); // acquire: before the last look
    atomic_fetch_add_explicit(&team->sleepers, 1, memory_order_seq_cst);     // full fence: announced, then look again
    atomic_thread_fence(memory_order_seq_cst);
    if (first_missing(team, target) != team->workers && !is_abandoned(team, target >> 32))
        futex_wait(&team->wake, seen, SLEEP_MS);
    atomic_fetch_sub_explicit(&team->sleepers, 1, memory_order_relaxed); // relaxed: too late is only one wake too many
}

// Waits until every worker's progress is at least target. False when the run is abandoned, by this call or another's.
static bool wait_all(md_team *team, uint64_t target, uint32_t worker, uint32_t phase, uint32_t deadline_ms) {
    uint32_t spins = team->spins;
    for (uint32_t i = 0; i < spins; i++) {
        if (first_missing(team, target) == team->workers) return true;
        cpu_pause();
    }
    uint64_t last = md_clock_ms(), waited = 0;
    for (uint32_t i = 0;; i++) {
        if (first_missing(team, target) == team->workers) return true;
        if (is_abandoned(team, target >> 32)) return false;
        if (i < YIELDS)
            sched_yield();
        else
            sleep_until_wake(team, target);
        uint64_t now = md_clock_ms(), slice = now - last;
        waited += slice < COUNTED_SLICE_MS ? slice : COUNTED_SLICE_MS;
        last = now;
        if (waited < deadline_ms) continue;
        if (first_missing(team, target) == team->workers) return true;
        abandon(team, target, worker, phase, (uint32_t)waited);
        return false;
    }
}

bool md_team_barrier(md_team *team, uint32_t worker, uint32_t phase) {
    team_line *line = &team->line[worker];
    // relaxed: a worker's own line
    uint64_t target = atomic_load_explicit(&line->progress, memory_order_relaxed) + 1;
    atomic_store_explicit(&line->phase, phase, memory_order_relaxed); // relaxed: only for reports
    if (team->workers == 1) {
        atomic_store_explicit(&line->progress, target, memory_order_relaxed); // relaxed: nobody else reads it
        return true;
    }
    arrive(team, worker, target);
    return wait_all(team, target, worker, phase, team->deadline_ms) && !is_abandoned(team, target >> 32);
}

static void work(md_team *team, uint32_t worker) {
    uint64_t run = team->run;
    atomic_store_explicit(&team->line[worker].phase, MD_TEAM_START, memory_order_relaxed); // relaxed: for reports
    // relaxed: a number of this run with no barrier passed satisfies nobody's wait
    atomic_store_explicit(&team->line[worker].progress, run << 32, memory_order_relaxed);
    team->job(team->context, worker);
    arrive(team, worker, run << 32 | MD_TEAM_END);
}

// Parks until `dispatch` is no longer `seen`; returns its new value.
static uint32_t park(md_team *team, uint32_t seen) {
    uint32_t spins = team->spins, now;
    for (uint32_t i = 0; i < spins + YIELDS; i++) {
        // acquire: job and context were written before the dispatch number
        now = atomic_load_explicit(&team->dispatch, memory_order_acquire);
        if (now != seen) return now;
        if (i < spins)
            cpu_pause();
        else
            sched_yield();
    }
    while ((now = atomic_load_explicit(&team->dispatch, memory_order_acquire)) == seen) { // acquire: as above
        atomic_fetch_add_explicit(&team->parked, 1,
                                  memory_order_seq_cst); // full fence: announced, then the futex looks
        futex_wait(&team->dispatch, seen, 0);
        atomic_fetch_sub_explicit(&team->parked, 1, memory_order_relaxed); // relaxed: too late is one wake too many
    }
    return now;
}

static void *thread_main(void *argument) {
    team_worker *self = argument;
    md_team *team = self->team;
    for (uint32_t seen = 0;;) {
        seen = park(team, seen);
        if (atomic_load_explicit(&team->closing, memory_order_relaxed)) return NULL; // ordered by `dispatch`
        work(team, self->index);
    }
}

static void dispatch(md_team *team) {
    // seq_cst exchange: run, job and context are out before it, and it is out before `parked` is read
    atomic_exchange_explicit(&team->dispatch, (uint32_t)team->run, memory_order_seq_cst);
    if (atomic_load_explicit(&team->parked, memory_order_seq_cst)) futex_wake_all(&team->dispatch);
}

static void pin(pthread_t thread, uint32_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(thread, sizeof set, &set); // a refusal costs speed only
}

// The calling thread stays unpinned, but it should not start on a CPU where another worker is pinned: the system would
// need milliseconds to part them. Moving there and allowing all CPUs again leaves it where it belongs.
static void step_aside(const md_team *team) {
    const md_topology *topology = &team->topology;
    if (team->workers == 1 || team->workers > topology->count) return;
    int here = sched_getcpu();
    for (uint32_t w = 1; w < team->workers; w++) {
        if (here != (int)topology->cpu[w]) continue;
        cpu_set_t all;
        if (pthread_getaffinity_np(pthread_self(), sizeof all, &all) != 0) return;
        pin(pthread_self(), topology->cpu[0]);
        pthread_setaffinity_np(pthread_self(), sizeof all, &all);
        return;
    }
}

bool md_team_settle(md_team *team, uint32_t deadline_ms, md_team_late *late) {
    uint64_t target = team->run << 32 | MD_TEAM_END;
    uint64_t last = md_clock_ms(), waited = 0;
    uint32_t missing;
    while ((missing = first_missing(team, target)) != team->workers) {
        if (waited >= deadline_ms) {
            *late = (md_team_late){
                .phase = MD_TEAM_END,
                .late = missing,
                // relaxed: only for the report
                .late_phase = atomic_load_explicit(&team->line[missing].phase, memory_order_relaxed),
                .expected = MD_TEAM_END,
                .seen = (uint32_t)atomic_load_explicit(&team->line[missing].progress, memory_order_relaxed),
                .waited_ms = (uint32_t)waited};
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        uint64_t now = md_clock_ms(), slice = now - last;
        waited += slice < COUNTED_SLICE_MS ? slice : COUNTED_SLICE_MS;
        last = now;
    }
    return true;
}

bool md_team_run(md_team *team, md_team_job job, void *context, uint32_t deadline_ms, md_team_late *late) {
    team->job = job;
    team->context = context;
    team->deadline_ms = deadline_ms;
    team->run++;
    if (team->workers > 1) {
        step_aside(team);
        dispatch(team);
    }
    work(team, 0);
    bool whole = team->workers == 1 || wait_all(team, team->run << 32 | MD_TEAM_END, 0, MD_TEAM_END, deadline_ms);
    if (whole && !is_abandoned(team, team->run)) return true;
    // acquire: the report was written before; whoever abandoned the run fills it without waiting for anything
    while (atomic_load_explicit(&team->reported, memory_order_acquire) < team->run) sched_yield();
    *late = team->late;
    return false;
}

static void free_team(md_team *team) {
    free(team->line);
    free(team->worker);
    free(team);
}

md_status md_team_open(uint32_t workers, const md_topology *topology, md_team **out, md_error *err) {
    *out = NULL;
    md_team *team = aligned_alloc(128, (sizeof *team + 127) / 128 * 128);
    if (!team) return md_fail(err, MD_E_MEMORY, "out of memory for a team of %u workers", workers);
    *team = (md_team){.workers = workers, .topology = *topology};
    team->spins = workers > topology->count ? SPINS_CROWDED : SPINS;
    team->line = aligned_alloc(128, workers * sizeof *team->line);
    team->worker = calloc(workers, sizeof *team->worker);
    if (!team->line || !team->worker) {
        free_team(team);
        return md_fail(err, MD_E_MEMORY, "out of memory for a team of %u workers", workers);
    }
    for (uint32_t w = 0; w < workers; w++) {
        atomic_init(&team->line[w].progress, MD_TEAM_END); // "has left run 0"
        atomic_init(&team->line[w].phase, MD_TEAM_START);
    }
    for (uint32_t w = 1; w < workers; w++, team->started++) {
        team->worker[w] = (team_worker){.team = team, .index = w};
        int failed = pthread_create(&team->worker[w].thread, NULL, thread_main, &team->worker[w]);
        if (failed) {
            md_team_close(team, 0);
            return md_fail(err, MD_E_IO, "%u workers asked for, %u threads made besides the caller's: %s", workers,
                           w - 1, strerror(failed));
        }
        pin(team->worker[w].thread, topology->cpu[w % topology->count]);
    }
    *out = team;
    return MD_OK;
}

bool md_team_close(md_team *team, uint32_t deadline_ms) {
    if (!team) return true;
    md_team_late late;
    if (!md_team_settle(team, deadline_ms, &late)) return false;
    atomic_store_explicit(&team->closing, true, memory_order_relaxed); // ordered by the dispatch number
    team->run++;
    dispatch(team);
    for (uint32_t w = 1; w <= team->started; w++) pthread_join(team->worker[w].thread, NULL);
    free_team(team);
    return true;
}

uint32_t md_team_workers(const md_team *team) { return team->workers; }
