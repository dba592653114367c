// The requests that run: up to `parallel` slots, each a session in prefill or decoding. Used by the scheduler's thread
// alone.
#ifndef MD_SERVER_SLOTS_H
#define MD_SERVER_SLOTS_H

#include "server/job.h"
#include "server/metrics.h"
#include "server/pool.h"
#include "server/served.h"

typedef enum md_slot_state {
    MD_SLOT_FREE,
    MD_SLOT_PREFILL,
    MD_SLOT_DECODE, // its session has logits
    MD_SLOT_FEED    // `token` is chosen and not computed yet
} md_slot_state;

typedef struct md_slot {
    md_slot_state state;
    uint64_t order; // of admission
    md_job *job;    // a reference
    md_session *session;
    md_generation *generation;
    uint32_t token;
    double first_at; // when the first token was chosen, by md_clock_seconds
    md_job_end end;  // the counts so far
} md_slot;

typedef struct md_slots {
    const md_served *served;
    md_metrics *metrics;
    md_pool pool;
    md_slot slot[MD_PARALLEL_MAX];
    uint32_t count; // slots that may be used
    uint64_t admitted;
    double mean_ms; // of a request
} md_slots;

void md_slots_init(md_slots *slots, const md_served *served, uint32_t count, md_metrics *metrics);
void md_slots_free(md_slots *slots); // ends what still runs

uint32_t md_slots_used(const md_slots *slots);
double md_slots_mean_ms(const md_slots *slots);

// Gives the job a slot, and takes over the caller's reference; false when none is free. A job that can't start is ended
// with its error.
bool md_slots_admit(md_slots *slots, md_job *job);

void md_slots_drop(md_slots *slots);    // ends those whose client is gone or whose time is up
void md_slots_prefill(md_slots *slots); // computes a slice of prompts
void md_slots_choose(md_slots *slots);  // chooses one token for each that decodes, and delivers
void md_slots_step(md_slots *slots);    // computes the chosen tokens, all in one step, and what follows where it can

#endif
