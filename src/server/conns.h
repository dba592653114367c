// Every open connection, what it is doing and until when it may, and the watch thread that sees to it: it closes those
// that pass a deadline (a client that sends a byte a second, one that never reads) and cancels the job of a client that
// went away. Every function may be called from any thread.
#ifndef MD_SERVER_CONNS_H
#define MD_SERVER_CONNS_H

#include "base/status.h"
#include "server/job.h"
#include "server/metrics.h"

enum { MD_CONNS_MAX = 256 };

typedef enum md_conn_phase {
    MD_CONN_HEAD, // waiting for a request, or reading its head
    MD_CONN_BODY, // reading its body
    MD_CONN_WORK, // the server works on it: no deadline here
    MD_CONN_WRITE // the client is to read what was written
} md_conn_phase;

typedef struct md_conns md_conns;
typedef struct md_conn md_conn;

md_status md_conns_start(md_metrics *metrics, md_conns **out, md_error *err);
void md_conns_stop(md_conns *conns); // when no connection is left

// A connection opened on `fd`. When the table gets full, the connection that has waited longest for a request is closed
// to make room. NULL when there is no place at all.
md_conn *md_conn_open(md_conns *conns, int fd);
void md_conn_close(md_conn *conn); // NULL is fine

void md_conn_enter(md_conn *conn, md_conn_phase phase);
// The jobs to cancel when the client goes away (it keeps a reference); NULL: none any more.
void md_conn_set_job(md_conn *conn, md_job_group *job);

// Waits up to `ms` until no connection has a job: all answers are written.
void md_conns_wait_idle(md_conns *conns, uint64_t ms);

#endif
