/* The CPU workers' waits, as src/backend/cpu/team.c has them: dispatch and park between runs, the barrier inside a run,
 * its deadline. W workers, RUNS runs of ROUNDS barriers. Worker 0 is the caller.
 *
 * Mirrored, name by name: arrive, wake_sleepers, abandon, sleep_until_wake, wait_all, md_team_barrier, work, park,
 * dispatch, md_team_run, md_team_settle. Left out: spinning and yielding (they only look again), and the time limit of a
 * sleep: a sleep here ends only by a wake, so that a lost wake is a deadlock and not a delay. A deadline may pass at any
 * time, but in DEADLINES waits only: all others must get out because of that one. With a deadline the last worker may
 * stall in a stage until md_team_run has returned without it.
 *
 * Memory: every worker has a store buffer of one stage's data and one progress number, which reach the others at any later
 * time; a release store keeps the data before the number, a full fence waits for both. Atomic read-modify-writes act at
 * once; loads are in order (acquire). look() reads all numbers in one step: they only grow, so what it finds is what some
 * sequence of reads finds.
 *
 * With NO_PARK workers wait for a run without sleeping, which leaves fewer states.
 *
 * Held: no deadlock; after a barrier that returns true every worker sees what all wrote before it, with two buffers by
 * parity and no second barrier; without a deadline no run fails; after an abandoned run the next one is whole again.
 *
 * Mutations, each of which must be found: M_ONE_BUFFER (no parity), M_NO_RUN (the numbers begin again in every run),
 * M_EXACT (waits for the very number), M_NO_RECHECK (no look between the announcement and the sleep), M_SEEN_LATE (the
 * futex word is read after that look), M_NO_FENCE (none between a number and the count of sleepers), M_NO_RELEASE,
 * M_QUIET_ABANDON (abandons without waking), M_DEAF (a sleeper does not look whether the run is abandoned), M_NO_SETTLE.
 */
#ifndef W
#define W 2
#endif
#ifndef RUNS
#define RUNS 1
#endif
#ifndef ROUNDS
#define ROUNDS 3
#endif
#ifndef DEADLINES
#define DEADLINES 0
#endif

#define LAST 15 /* the low half of a number all ones: the worker has left the run */
#ifdef M_NO_RUN
#define STEP(run, n) (n)
#else
#define STEP(run, n) ((run) * 16 + (n))
#endif
#ifdef M_ONE_BUFFER
#define PARITY(n) 0
#else
#define PARITY(n) ((n) % 2)
#endif

byte progress[W], out_progress[W]; /* memory; the store buffer: 0 is empty */
byte data[2 * W], out_data[W], out_parity[W];
byte dispatched, parked, sleepers, abandoned, reported;
byte current; /* team->run, written before `dispatched` */
bool closing;
bool in_park[W], in_sleep[W];
bool unchanged[W]; /* `wake` has the value that the worker read (it counts, so it never comes back to one) */
byte deadlines = DEADLINES;
byte returned; /* the last run that md_team_run returned false from */
bool stalled;

#define FENCED(me) (out_progress[me] == 0 && out_data[me] == 0)
#ifdef M_NO_RELEASE
#define RELEASED(me) true
#else
#define RELEASED(me) (out_data[me] == 0)
#endif

#define DRAIN(x)                                                                                                       \
    ::d_step { out_data[x] != 0 -> data[out_parity[x] * W + x] = out_data[x]; out_data[x] = 0 }                       \
    ::d_step { out_progress[x] != 0 && RELEASED(x) -> progress[x] = out_progress[x]; out_progress[x] = 0 }

active proctype memory() {
end:
    do
    DRAIN(0)
    DRAIN(1)
#if W > 2
    DRAIN(2)
#endif
#if W > 3
    DRAIN(3)
#endif
    od
}

inline look(target) { /* all = first_missing() == workers */
    d_step {
        all = true;
        i = 0;
        do
        :: i < W ->
#ifdef M_EXACT
            if
            :: i != me && progress[i] != target -> all = false
            :: else
            fi;
#else
            if
            :: i != me && progress[i] < target -> all = false
            :: else
            fi;
#endif
            i++
        :: else -> break
        od;
        i = 0
    }
}

inline wake_sleepers() {
    d_step { /* wake++ */
        i = 0;
        do
        :: i < W -> unchanged[i] = false; i++
        :: else -> break
        od;
        i = 0
    };
    d_step {
        i = 0;
        do
        :: i < W -> in_sleep[i] = false; i++
        :: else -> break
        od;
        i = 0
    }
}

inline arrive(number) { /* the number is in the store buffer */
#ifdef M_NO_FENCE
    any = (sleepers > 0);
#else
    d_step { FENCED(me) -> any = (sleepers > 0) };
#endif
    if
    :: any ->
        any = false;
        look(number);
        if
        :: all -> all = false; wake_sleepers()
        :: else
        fi
    :: else
    fi
}

inline abandon() {
    if
    :: d_step { abandoned < at_run -> abandoned = at_run };
        reported = at_run;
#ifndef M_QUIET_ABANDON
        wake_sleepers()
#endif
    :: else
    fi
}

#ifdef M_DEAF
#define SEES_ABANDONED false
#else
#define SEES_ABANDONED (abandoned >= at_run)
#endif

inline sleep_until_wake(target) {
#ifndef M_SEEN_LATE
    unchanged[me] = true;
#endif
    sleepers++;
#ifdef M_NO_RECHECK
    FENCED(me);
#else
    atomic { FENCED(me); look(target) };
#endif
    if
    :: !all && !SEES_ABANDONED ->
#ifdef M_SEEN_LATE
        unchanged[me] = true;
#endif
        d_step { /* the kernel compares and enqueues under one lock */
            if
            :: unchanged[me] -> in_sleep[me] = true
            :: else
            fi;
            unchanged[me] = false
        };
        if
        :: !in_sleep[me]
        :: in_sleep[me] && deadlines > 0 -> in_sleep[me] = false /* the sleep's time limit */
        fi
    :: else
    fi;
    d_step { sleepers--; unchanged[me] = false; all = false }
}

inline wait_all(target) { /* ok: everyone has come */
    do
    :: true ->
        look(target);
        if
        :: all -> d_step { ok = true; all = false }; break
        :: else
        fi;
#if DEADLINES
        if
        :: abandoned >= at_run -> break
        :: else
        fi;
#endif
        sleep_until_wake(target);
#if DEADLINES
        if
        :: deadlines > 0 ->
            look(target);
            if
            :: all -> d_step { ok = true; all = false }
            :: !all && deadlines > 0 -> deadlines--; abandon()
            :: !all && deadlines == 0 -> abandon() /* another was quicker */
            fi;
            break
        :: true
        fi
#endif
    od
}

inline work() {
    at_run = current;
    d_step { FENCED(me) -> out_progress[me] = STEP(at_run, 0); round = 1 }
    do
    :: round <= ROUNDS -> /* a stage: write, barrier, read what all wrote */
#if DEADLINES
        if
        :: d_step { me == W - 1 && deadlines > 0 && !stalled -> stalled = true }; /* comes when it is too late */
            returned >= at_run
        :: true
        fi;
#endif
        d_step {
            FENCED(me) -> out_data[me] = at_run * 16 + round;
            out_parity[me] = PARITY(round);
            out_progress[me] = STEP(at_run, round)
        };
        arrive(STEP(at_run, round));
        wait_all(STEP(at_run, round));
        if
        :: !ok || abandoned >= at_run -> break
        :: else -> ok = false
        fi;
        skip;
        d_step { /* at any time before the next stage */
            do
            :: i < W -> assert(i == me || data[PARITY(round) * W + i] == at_run * 16 + round); i++
            :: else -> i = 0; break
            od;
            round++
        }
    :: else -> break
    od;
    skip;
    d_step { FENCED(me) -> out_progress[me] = STEP(at_run, LAST); round = 0; ok = false };
    arrive(STEP(at_run, LAST))
}

inline dispatch() {
    FENCED(me);
    dispatched = current;
    if
    :: parked > 0 ->
        d_step {
            i = 0;
            do
            :: i < W -> in_park[i] = false; i++
            :: else -> break
            od;
            i = 0
        }
    :: else
    fi
}

proctype worker(byte me) {
    byte i, at_run, round, seen_run;
    bool all, any, ok;
    do
    :: true ->
#ifdef NO_PARK
        dispatched != seen_run;
#else
        do /* park */
        :: dispatched != seen_run -> break
        :: dispatched == seen_run ->
            parked++;
            d_step {
                if
                :: dispatched == seen_run -> in_park[me] = true
                :: else
                fi
            };
            !in_park[me];
            parked--
        od;
#endif
        seen_run = dispatched;
        if
        :: closing -> break
        :: else
        fi;
        work()
    od
}

init {
    byte me, i, at_run, round;
    bool all, any, ok;
    d_step {
        do
        :: i < W -> progress[i] = LAST; i++
        :: else -> i = 0; break
        od
    };
    atomic {
        run worker(1);
#if W > 2
        run worker(2);
#endif
#if W > 3
        run worker(3);
#endif
    }
    do
    :: current < RUNS ->
        current++;
        dispatch();
        work();
        wait_all(STEP(at_run, LAST));
        if
        :: ok && abandoned < at_run -> ok = false
        :: !(ok && abandoned < at_run) ->
            ok = false;
            assert(DEADLINES > 0 && abandoned == at_run);
            reported >= at_run; /* the report is whole */
            returned = at_run;
#ifndef M_NO_SETTLE
            do
            :: i < W -> i == me || progress[i] >= STEP(at_run, LAST); i++
            :: else -> i = 0; break
            od
#endif
        fi
    :: else -> break
    od;
    closing = true;
    current++;
    dispatch();
    _nr_pr == 2 /* joined: only `memory` is left beside this one */
}
