// A job: one prompt's work, handed from the connection's thread to the scheduler, and its answer, handed back. A
// request is a group of jobs, one for each of its prompts; nearly always there is one.
//
// The request part is written before the group is submitted and constant afterwards. The answer part is a mailbox: the
// scheduler appends, the connection's thread takes everything there is. It can't grow without bound, since an answer
// is no longer than the context. A group lives while either side holds a reference.
#ifndef MD_SERVER_JOB_H
#define MD_SERVER_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "server/constraint.h"

// A token of the answer whose text is complete.
typedef struct md_job_token {
    uint32_t id;
    bool hidden;          // not part of the text
    uint64_t text_offset; // byte of the answer at which its text begins
    double logprob;
    uint32_t top_first; // its likeliest tokens: delivery.tops[top_first .. top_first + top_count)
    uint32_t top_count;
} md_job_token;

// What came since the last take.
typedef struct md_delivery {
    md_buf text;
    md_job_token *tokens; // [token_count]; owned
    size_t token_count, token_cap;
    md_logprob *tops; // [top_count]; owned
    size_t top_count, top_cap;
} md_delivery;

void md_delivery_init(md_delivery *delivery);
void md_delivery_free(md_delivery *delivery);
void md_delivery_clear(md_delivery *delivery); // memory kept

// How a job ended.
typedef struct md_job_end {
    md_status status; // not MD_OK: error says why
    bool overloaded;  // the failure is the server's state (shutting down, too long in the queue), not a fault: 503
    md_error error;
    md_finish finish;
    uint32_t prompt_tokens, cached_tokens, completion_tokens;
    double first_seconds;  // from the request's arrival to its first token
    double decode_seconds; // from there to its last
} md_job_end;

typedef struct md_job_group md_job_group;

typedef struct md_job {
    md_job_group *group;
    // The request.
    uint32_t *prompt; // [prompt_size]; owned
    size_t prompt_size;
    md_generation_params params; // its pointers are owned by the group
    bool score_prompt;           // deliver the prompt's tokens too, with log-probabilities (the first has none: NaN)
    bool prompt_only;            // nothing is chosen: the answer is empty
    md_constraint *constraint;   // owned; NULL: none. Used by the scheduler's thread once submitted
    uint64_t submitted_ms, deadline_ms; // deadline 0: none

    // The answer; guarded by the group's mutex.
    md_delivery mail;
    bool done, done_taken;
    md_job_end end;

    struct md_job *next; // in the scheduler's queue
} md_job;

struct md_job_group {
    char **stop; // [stop_count] what the jobs' params point to; owned
    size_t stop_count;
    md_logit_bias *bias; // owned

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t turn;         // the job whose mail is looked for first, so that none is forgotten
    atomic_bool cancelled; // nobody wants the answers any more
    atomic_int refs;
    uint32_t count;
    md_job jobs[]; // [count]
};

// A group with one reference; NULL when out of memory. The caller fills in the request parts.
md_job_group *md_job_group_new(uint32_t count);
md_job_group *md_job_group_ref(md_job_group *group);
void md_job_group_unref(md_job_group *group); // NULL is fine

void md_job_group_cancel(md_job_group *group); // from any thread; wakes who waits
bool md_job_is_cancelled(const md_job *job);

typedef enum md_take {
    MD_TAKE_SOME,     // something came
    MD_TAKE_NOTHING,  // nothing within the time
    MD_TAKE_DONE,     // the last of this job; *end is filled
    MD_TAKE_CANCELLED // md_job_group_cancel was called
} md_take;

// Waits up to `ms` for mail of any job of the group, and moves one job's mail to *delivery (replacing what is there);
// *index says whose. Call it no more once every job was MD_TAKE_DONE.
md_take md_job_group_take(md_job_group *group, uint64_t ms, uint32_t *index, md_delivery *delivery, md_job_end *end);

// The scheduler's side.
md_status md_job_deliver(md_job *job, const md_piece *piece, md_error *err);
void md_job_finish(md_job *job, const md_job_end *end);

#endif
