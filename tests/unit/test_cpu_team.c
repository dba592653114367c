// The team of threads: barriers order memory, a worker that doesn't come is reported and the run abandoned, and the
// team works again afterwards; more workers than CPUs get through.
#include "md_test.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/team.h"

enum { MAX_WORKERS = 64, ROUNDS = 300 };

static md_topology topology;

static md_team *open_team(uint32_t workers) {
    md_team *team = NULL;
    md_error err = {0};
    if (md_team_open(workers, &topology, &team, &err) != MD_OK) fail_msg("%s", err.message);
    return team;
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

// Each round every worker adds up what all workers wrote in the round before: plain memory, ordered by barriers alone.
typedef struct sum_job {
    md_team *team;
    uint64_t value[2][MAX_WORKERS];
} sum_job;

static void sum_run(void *context, uint32_t worker) {
    sum_job *job = context;
    uint32_t workers = md_team_workers(job->team);
    job->value[0][worker] = worker + 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (!md_team_barrier(job->team, worker, round)) return;
        uint64_t sum = 0;
        for (uint32_t w = 0; w < workers; w++) sum += job->value[round % 2][w];
        job->value[(round + 1) % 2][worker] = sum % 1000003 + worker;
    }
}

static void test_barriers(void **state) {
    (void)state;
    static const uint32_t counts[] = {1, 2, 3, 8, 33};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint32_t workers = counts[i];
        sum_job job = {.team = open_team(workers)};
        md_team_late late;
        for (int again = 0; again < 3; again++) {
            assert_true(md_team_run(job.team, sum_run, &job, 30000, &late));
            uint64_t value[MAX_WORKERS], next[MAX_WORKERS];
            for (uint32_t w = 0; w < workers; w++) value[w] = w + 1;
            for (uint32_t round = 0; round < ROUNDS; round++) {
                uint64_t sum = 0;
                for (uint32_t w = 0; w < workers; w++) sum += value[w];
                for (uint32_t w = 0; w < workers; w++) next[w] = sum % 1000003 + w;
                memcpy(value, next, sizeof value);
            }
            for (uint32_t w = 0; w < workers; w++) assert_true(job.value[ROUNDS % 2][w] == value[w]);
            sleep_ms(again * 5); // the second and third start find the workers asleep
        }
        assert_true(md_team_close(job.team, 1000));
    }
}

typedef struct stall_job {
    md_team *team;
    uint32_t stalled; // this worker sleeps before the barrier of phase 5
    long ms;
    _Atomic uint32_t finished, active;
} stall_job;

static void stall_run(void *context, uint32_t worker) {
    stall_job *job = context;
    atomic_fetch_add(&job->active, 1);
    bool whole = true;
    for (uint32_t phase = 1; phase <= 8 && whole; phase++) {
        if (phase == 5 && worker == job->stalled) sleep_ms(job->ms);
        whole = md_team_barrier(job->team, worker, phase);
    }
    if (whole) atomic_fetch_add(&job->finished, 1);
    atomic_fetch_sub(&job->active, 1);
}

static void test_short_stall(void **state) {
    (void)state;
    stall_job job = {.team = open_team(3), .stalled = 2, .ms = 400};
    md_team_late late;
    assert_true(md_team_run(job.team, stall_run, &job, 5000, &late));
    assert_int_equal(atomic_load(&job.finished), 3);
    assert_true(md_team_close(job.team, 1000));
}

static void stall(uint32_t stalled) {
    stall_job job = {.team = open_team(3), .stalled = stalled, .ms = 1200};
    md_team_late late = {0};
    assert_false(md_team_run(job.team, stall_run, &job, 200, &late));
    assert_int_equal(atomic_load(&job.finished), 0);
    assert_int_equal(late.late, stalled);
    assert_int_not_equal(late.worker, stalled);
    assert_int_equal(late.phase, 5);
    assert_int_equal(late.late_phase, 4);
    assert_int_equal(late.expected, 5);
    assert_int_equal(late.seen, 4);
    assert_true(late.waited_ms >= 200);
    if (stalled != 0) { // the caller is back while worker `stalled` still sleeps
        assert_false(md_team_settle(job.team, 10, &late));
        assert_int_equal(late.late, stalled);
    }
    assert_true(md_team_settle(job.team, 10000, &late));
    assert_int_equal(atomic_load(&job.active), 0); // nobody is inside the old run
    job.ms = 0;
    assert_true(md_team_run(job.team, stall_run, &job, 5000, &late));
    assert_int_equal(atomic_load(&job.finished), 3);
    assert_true(md_team_close(job.team, 1000));
}

static void test_long_stall(void **state) {
    (void)state;
    stall(1);
    stall(2);
    stall(0); // the caller itself: the others find out
}

static void test_topology(void **state) {
    (void)state;
    assert_true(topology.count >= 1 && topology.cores >= 1 && topology.cores <= topology.count);
    md_topology made = {.count = 8, .cores = 4};
    assert_int_equal(md_topology_default_threads(&made), 4);
    made.quota = 1.5;
    assert_int_equal(md_topology_default_threads(&made), 1);
    made.quota = 1.75;
    assert_int_equal(md_topology_default_threads(&made), 2);
    made.quota = 0.1;
    assert_int_equal(md_topology_default_threads(&made), 1);
    made.quota = 64;
    assert_int_equal(md_topology_default_threads(&made), 4);
}

int main(void) {
    md_topology_read(&topology);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_barriers), cmocka_unit_test(test_short_stall),
                                       cmocka_unit_test(test_long_stall), cmocka_unit_test(test_topology)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
