/* The flag-in-data handoffs between CTAs, as src/backend/cuda/kernels/exchange.cuh, stages.cuh and kernel.cuh have them:
 * a vector's entry is one 16-byte store {values, tag}; a reader polls the entry until the tag is the one it waits for.
 * No counter, no fence, no grid barrier. G CTAs, STEPS tokens.
 *
 * A token here is the embedding (X), one layer, X -> A (qkv, attention), A -> X (output projection), X -> F (gate, up),
 * F -> X (down), and the head, X -> records. Each vector has one buffer, written again every layer and token; the records
 * (every CTA's best logit, from which every CTA finds the next token) alternate between two by the token's parity. Which
 * CTAs have rows of A, X and F is chosen freely at the start, each by at least one: a CTA without rows of a stage's output
 * reads nothing of its input. A CTA has one entry in each vector that it has rows of.
 *
 * Memory: an entry is one atomic location. Relaxed stores to different locations may be seen in any order, but here every
 * value is in the location of its own tag, so order between locations decides nothing, and a poll that sees an older entry
 * only polls again; what is left is when an entry is written and when it is read, which is explored in full. What a CTA
 * stores depends on what it has loaded, so the store is after the load. With M_TORN the tag and the value are two
 * locations: then a reader may see a new tag beside the old value.
 *
 * Held: no deadlock (an entry overwritten before it was read would be one: its tag never comes back); every value read is
 * the one awaited; an entry is never written while a reader that awaits it has not read it. With STOPS one CTA stops for
 * ever at any store: whoever waits may find its deadline passed, and all others leave.
 *
 * Mutations, each of which must be found: M_ONE_RECORD (one buffer of records), M_NO_EPOCH (tags begin again with every
 * token), M_TORN, M_OWN_SLICE (an item is put out when only a part of its input was read).
 */
#ifndef G
#define G 2
#endif
#ifndef STEPS
#define STEPS 3
#endif
#ifndef STOPS
#define STOPS 0
#endif

#ifndef FREE
#define FREE 3 /* vectors whose rows are spread freely; each CTA has rows of the others */
#endif

#define A 0
#define X 1
#define F 2
#define RECORDS 3 /* and RECORDS + 1 */
#define STAGES 6

#ifdef M_NO_EPOCH
#define TAG(stage) (1 + (stage))
#else
#define TAG(stage) (step * STAGES + 1 + (stage))
#endif
#define TRUE_TAG(stage) (step * STAGES + 1 + (stage))
#ifdef M_ONE_RECORD
#define RECORD RECORDS
#else
#define RECORD (RECORDS + step % 2)
#endif

byte tag[5 * G];   /* of entry `vector * G + cta` */
byte value[5 * G]; /* what was meant: the tag that never repeats */
#ifdef M_TORN
byte old_value[5 * G];
#endif
bool has_rows[3 * G];
#if G == 2
#define SOMEONE(vector) (has_rows[(vector) * G] || has_rows[(vector) * G + 1])
#elif G == 3
#define SOMEONE(vector) (has_rows[(vector) * G] || has_rows[(vector) * G + 1] || has_rows[(vector) * G + 2])
#else
#define SOMEONE(vector)                                                                                                \
    (has_rows[(vector) * G] || has_rows[(vector) * G + 1] || has_rows[(vector) * G + 2] || has_rows[(vector) * G + 3])
#endif
bool report, has_stopped;

inline put(vector, stage) {
#if STOPS
    if
    :: d_step { !has_stopped -> has_stopped = true }; goto stop
    :: true
    fi;
#endif
    d_step {
#ifdef M_TORN
        old_value[(vector) * G + me] = value[(vector) * G + me];
#endif
        value[(vector) * G + me] = TRUE_TAG(stage);
        tag[(vector) * G + me] = TAG(stage)
    }
}

inline wait_entry(vector, stage) {
    if
    :: d_step {
        tag[(vector) * G + i] == TAG(stage) ->
            assert(value[(vector) * G + i] == TRUE_TAG(stage))
       }
#ifdef M_TORN
    :: d_step {
        tag[(vector) * G + i] == TAG(stage) ->
            assert(old_value[(vector) * G + i] == TRUE_TAG(stage))
       }
#endif
#if STOPS
    :: has_stopped && tag[(vector) * G + i] != TAG(stage) -> /* its deadline has passed */
        report = true;
        goto stop
    :: report -> goto stop
#endif
    fi
}

/* Reads all of `from`, which `stage` - 1 wrote, then puts the own entry of `to`: where the CTA has rows of it. */
inline stage_matrix(stage, from, to) {
    if
    :: has_rows[(to) * G + me] ->
        do
        :: i < G ->
            if
            :: has_rows[(from) * G + i] -> wait_entry(from, (stage) - 1)
            :: else
            fi;
            i++
#ifdef M_OWN_SLICE
        :: i == G - 1 -> i = G
#endif
        :: i == G -> i = 0; break
        od;
        put(to, stage)
    :: else
    fi
}

inline head(stage) { /* who has rows of A has tiles of the head too; the others read nothing and put a record */
    if
    :: has_rows[A * G + me] ->
        do
        :: i < G ->
            if
            :: has_rows[X * G + i] -> wait_entry(X, (stage) - 1)
            :: else
            fi;
            i++
        :: else -> i = 0; break
        od
    :: else
    fi;
    put(RECORD, stage)
}

inline next_token(stage) {
    do
    :: i < G -> wait_entry(RECORD, stage); i++
    :: else -> i = 0; break
    od
}

proctype cta(byte me) {
    byte i, step;
    do
    :: step < STEPS ->
        if /* the embedding of a token that all know */
        :: has_rows[X * G + me] -> put(X, 0)
        :: else
        fi;
        stage_matrix(1, X, A);
        stage_matrix(2, A, X);
        stage_matrix(3, X, F);
        stage_matrix(4, F, X);
        head(5);
        next_token(5);
        step++
    :: else -> break
    od;
stop:
    skip
}

init {
    byte i;
    atomic {
        do
        :: i < 3 * G -> has_rows[i] = true; i++
        :: i < FREE * G -> i++
        :: i == 3 * G -> break
        od;
        i = 0;
        do
        :: i < 3 ->
            if
            :: SOMEONE(i)
            :: else -> has_rows[i * G] = true
            fi;
            i++
        :: i == 3 -> break
        od;
        run cta(0);
        run cta(1);
#if G > 2
        run cta(2);
#endif
#if G > 3
        run cta(3);
#endif
    }
    _nr_pr == 1 /* all have left */
}
