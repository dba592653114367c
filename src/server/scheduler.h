// The scheduler: one thread that owns the model's sessions. Requests wait in a bounded queue, are prefilled in slices
// between decode steps, and decode together, one column of a step each. They join and leave between two tokens.
#ifndef MD_SERVER_SCHEDULER_H
#define MD_SERVER_SCHEDULER_H

#include "base/status.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/served.h"

typedef struct md_scheduler md_scheduler;

// Starts the thread, which loads the model first. Options and metrics are borrowed and must outlive it.
md_status md_scheduler_start(const md_server_options *options, md_metrics *metrics, md_scheduler **out, md_error *err);

typedef enum md_server_state {
    MD_SERVER_LOADING,
    MD_SERVER_READY,
    MD_SERVER_DRAINING, // what was accepted is finished, nothing new is taken
    MD_SERVER_FAILED    // the model could not be loaded
} md_server_state;
md_server_state md_scheduler_state(md_scheduler *scheduler);
double md_scheduler_loaded(md_scheduler *scheduler); // the fraction of the model that is loaded

// The model; NULL until it is loaded. It lives until md_scheduler_free.
const md_served *md_scheduler_served(md_scheduler *scheduler);

typedef enum md_submit { MD_SUBMIT_OK, MD_SUBMIT_FULL, MD_SUBMIT_DRAINING } md_submit;
// Puts all jobs of a group into the queue (each takes a reference), or none and says why not.
md_submit md_scheduler_submit(md_scheduler *scheduler, md_job_group *group);
// Would a job be taken now? A look before work is spent on a request.
md_submit md_scheduler_has_room(md_scheduler *scheduler);
// Seconds after which a place is likely free, 1 to 60: Retry-After.
unsigned md_scheduler_retry_after(md_scheduler *scheduler);

// Takes no more jobs; true once all that were accepted are finished, false after `ms`.
bool md_scheduler_drain(md_scheduler *scheduler, uint64_t ms);
// Ends what still runs (503), takes nothing more and joins the thread. The model stays, for those who still read it.
void md_scheduler_end(md_scheduler *scheduler);
// Closes the model. *err and the result: why loading failed, if it did.
md_status md_scheduler_free(md_scheduler *scheduler, md_error *err);

#endif
