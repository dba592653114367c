#ifndef _GNU_SOURCE
#define _GNU_SOURCE // POLLRDHUP
#endif
#include "server/conns.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/clock.h"

enum {
    WATCH_MS = 100,         // a client that went away is noticed within this time
    HEAD_MS = 20000,        // to send a request's head, also between two requests
    BODY_MS = 60000,        // to send its body
    WRITE_MS = 30000,       // to read what was written
    ROOM = MD_CONNS_MAX / 4 // places that idle connections may not take
};

struct md_conn {
    md_conns *conns;
    bool used;
    bool kept; // it has had a request already
    int fd;    // a duplicate of the connection's, so that its number can't come to mean another connection
    md_conn_phase phase;
    uint64_t since_ms, deadline_ms; // of the phase; deadline 0: none
    md_job_group *job;
};

struct md_conns {
    md_metrics *metrics;
    pthread_t thread;
    pthread_mutex_t mutex; // guards what follows
    pthread_cond_t stop_asked, job_ended;
    bool stopping;
    uint32_t count;
    md_conn conn[MD_CONNS_MAX];
};

// ---- the watch -------------------------------------------------------------------------------------------------

static void drop(md_conn *conn) {
    // Said before the close, where a client that is still sending its first request may read it. A connection that is
    // kept open between requests is just closed.
#define LATE                                                                                                           \
    "{\"error\":{\"message\":\"the request took too long to "                                                          \
    "arrive\",\"type\":\"invalid_request_error\",\"param\":null,"                                                      \
    "\"code\":\"request_timeout\"}}"
    char late[512];
    int n = snprintf(late, sizeof late,
                     "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n" LATE,
                     sizeof LATE - 1);
    if (conn->phase == MD_CONN_BODY || (conn->phase == MD_CONN_HEAD && !conn->kept))
        (void)!send(conn->fd, late, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(conn->fd, SHUT_RDWR); // its own thread sees the end and cleans up
    conn->deadline_ms = 0;
    if (conn->job) md_job_group_cancel(conn->job);
    md_count(&conn->conns->metrics->connections_dropped, 1);
}

static void watch_once(md_conns *conns) {
    struct pollfd fds[MD_CONNS_MAX];
    md_conn *of[MD_CONNS_MAX];
    nfds_t n = 0;
    uint64_t now = md_clock_ms();
    for (uint32_t i = 0; i < MD_CONNS_MAX; i++) {
        md_conn *conn = &conns->conn[i];
        if (!conn->used) continue;
        if (conn->deadline_ms && now >= conn->deadline_ms) drop(conn);
        if (!conn->job) continue;
        of[n] = conn;
        fds[n++] = (struct pollfd){.fd = conn->fd, .events = POLLRDHUP};
    }
    if (n == 0 || poll(fds, n, 0) <= 0) return;
    // A client that closed its side, even half of it, takes no answer: the column is free for another.
    for (nfds_t i = 0; i < n; i++)
        if (fds[i].revents) md_job_group_cancel(of[i]->job);
}

static void *watch(void *user) {
    md_conns *conns = user;
    pthread_mutex_lock(&conns->mutex);
    while (!conns->stopping) {
        struct timespec until = md_ms_from_now(WATCH_MS);
        pthread_cond_timedwait(&conns->stop_asked, &conns->mutex, &until);
        watch_once(conns);
    }
    pthread_mutex_unlock(&conns->mutex);
    return NULL;
}

md_status md_conns_start(md_metrics *metrics, md_conns **out, md_error *err) {
    *out = NULL;
    md_conns *conns = calloc(1, sizeof *conns);
    if (!conns) return md_fail(err, MD_E_MEMORY, "connections: out of memory");
    conns->metrics = metrics;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&conns->mutex, NULL);
    pthread_cond_init(&conns->stop_asked, &monotonic);
    pthread_cond_init(&conns->job_ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int failed = pthread_create(&conns->thread, NULL, watch, conns);
    if (failed) {
        free(conns);
        return md_fail(err, MD_E_IO, "connections: the system gives no thread: %s", strerror(failed));
    }
    *out = conns;
    return MD_OK;
}

void md_conns_stop(md_conns *conns) {
    pthread_mutex_lock(&conns->mutex);
    conns->stopping = true;
    pthread_cond_signal(&conns->stop_asked);
    pthread_mutex_unlock(&conns->mutex);
    pthread_join(conns->thread, NULL);
    pthread_mutex_destroy(&conns->mutex);
    pthread_cond_destroy(&conns->stop_asked);
    pthread_cond_destroy(&conns->job_ended);
    free(conns);
}

// ---- connections -----------------------------------------------------------------------------------------------

static void set_phase(md_conn *conn, md_conn_phase phase) {
    static const uint64_t allowed_ms[] = {HEAD_MS, BODY_MS, 0, WRITE_MS};
    if (phase != MD_CONN_HEAD) conn->kept = true;
    conn->phase = phase;
    conn->since_ms = md_clock_ms();
    conn->deadline_ms = allowed_ms[phase] ? conn->since_ms + allowed_ms[phase] : 0;
}

// Closes the connection that has waited longest for a request.
static void make_room(md_conns *conns) {
    md_conn *oldest = NULL;
    for (uint32_t i = 0; i < MD_CONNS_MAX; i++) {
        md_conn *conn = &conns->conn[i];
        if (conn->used && conn->phase == MD_CONN_HEAD && conn->deadline_ms &&
            (!oldest || conn->since_ms < oldest->since_ms))
            oldest = conn;
    }
    if (oldest) drop(oldest);
}

md_conn *md_conn_open(md_conns *conns, int fd) {
    md_conn *conn = NULL;
    pthread_mutex_lock(&conns->mutex);
    if (conns->count >= MD_CONNS_MAX - ROOM) make_room(conns);
    for (uint32_t i = 0; i < MD_CONNS_MAX && !conn; i++)
        if (!conns->conn[i].used) conn = &conns->conn[i];
    int own = conn ? dup(fd) : -1;
    if (own < 0) conn = NULL;
    if (conn) {
        *conn = (md_conn){.conns = conns, .used = true, .fd = own};
        set_phase(conn, MD_CONN_HEAD);
        md_gauge(&conns->metrics->connections, ++conns->count);
    }
    pthread_mutex_unlock(&conns->mutex);
    return conn;
}

void md_conn_close(md_conn *conn) {
    if (!conn) return;
    md_conns *conns = conn->conns;
    pthread_mutex_lock(&conns->mutex);
    close(conn->fd);
    conn->used = false;
    md_job_group_unref(conn->job);
    conn->job = NULL;
    md_gauge(&conns->metrics->connections, --conns->count);
    pthread_mutex_unlock(&conns->mutex);
}

void md_conn_enter(md_conn *conn, md_conn_phase phase) {
    if (!conn) return;
    pthread_mutex_lock(&conn->conns->mutex);
    set_phase(conn, phase);
    pthread_mutex_unlock(&conn->conns->mutex);
}

void md_conn_set_job(md_conn *conn, md_job_group *job) {
    if (!conn) return;
    pthread_mutex_lock(&conn->conns->mutex);
    md_job_group *old = conn->job;
    conn->job = job ? md_job_group_ref(job) : NULL;
    if (old) pthread_cond_signal(&conn->conns->job_ended);
    pthread_mutex_unlock(&conn->conns->mutex);
    md_job_group_unref(old);
}

static bool any_job(const md_conns *conns) {
    for (uint32_t i = 0; i < MD_CONNS_MAX; i++)
        if (conns->conn[i].used && conns->conn[i].job) return true;
    return false;
}

void md_conns_wait_idle(md_conns *conns, uint64_t ms) {
    struct timespec until = md_ms_from_now(ms);
    pthread_mutex_lock(&conns->mutex);
    while (any_job(conns) && pthread_cond_timedwait(&conns->job_ended, &conns->mutex, &until) == 0) {
    }
    pthread_mutex_unlock(&conns->mutex);
}
