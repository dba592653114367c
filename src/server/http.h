// HTTP: the glue to libmicrohttpd, requests and replies. A handler runs on its connection's own thread and may block.
#ifndef MD_SERVER_HTTP_H
#define MD_SERVER_HTTP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "server/conns.h"
#include "server/gate.h"
#include "server/metrics.h"
#include "server/scheduler.h"
#include "server/server.h"

// What all requests share.
typedef struct md_app {
    const md_server_options *options;
    md_metrics metrics;
    md_scheduler *scheduler;
    md_conns *conns;
    md_gate gate;             // bounds how many requests are read and checked at the same time
    atomic_size_t body_bytes; // held by all requests that are being received
} md_app;

struct MHD_Connection;
typedef struct md_route md_route;

typedef struct md_request {
    md_app *app;
    struct MHD_Connection *connection;
    md_conn *conn;         // NULL: not watched
    const char *url;       // path, percent-decoded; borrowed
    const md_route *route; // NULL: none matches
    md_buf body;
    uint64_t json_losses; // md_json_losses when its thread began to work on it
    unsigned early;       // not 0: the status to refuse with once the body was read
    bool replied;         // a response was given to libmicrohttpd
    unsigned status;      // of it
    // Headers of the response; NULL or "": without.
    const char *allow_origin; // borrowed: the origin that may read it
    char allow[32];           // methods
    bool preflight;           // a browser asks what it may do
    char retry_after[16];
} md_request;

typedef struct md_http md_http;

typedef struct md_http_place {
    uint16_t port;
    bool this_machine; // only programs of this machine reach it
} md_http_place;

// Listens on host:port and serves; *place is where. MD_E_USAGE: host is no address and no known name.
md_status md_http_start(md_app *app, const char *host, uint16_t port, md_http **out, md_http_place *place,
                        md_error *err);
void md_http_stop(md_http *http); // closes all connections and waits for their threads; NULL is fine

const char *md_request_header(const md_request *request, const char *name); // NULL: none

// ---- replies: exactly one a request ----------------------------------------------------------------------------

void md_reply_json(md_request *request, unsigned status, json_t *body); // takes the reference
void md_reply_text(md_request *request, unsigned status, const char *type, const char *text, size_t size);
// Bytes that stay (borrowed for good), with headers of their own, which a NULL name ends; type NULL: none.
typedef struct md_header {
    const char *name, *value;
} md_header;
void md_reply_fixed(md_request *request, unsigned status, const char *type, const char *bytes, size_t size,
                    const md_header *headers);
void md_reply_empty(md_request *request, unsigned status);
// OpenAI's error object. param and code may be NULL.
void md_reply_error(md_request *request, unsigned status, const char *type, const char *code, const char *param,
                    const char *message);
// The error object for a failed status, with `param` split off the front of the message ("temperature: found ...").
// MD_E_USAGE, MD_E_UNSUPPORTED and MD_E_CONTEXT are the client's (400), MD_E_NOT_FOUND is 404, others are the server's:
// 500, or 503 when it is `overloaded`.
void md_reply_failure(md_request *request, md_status status, const md_error *err, bool overloaded);
// The same object, for a stream that has begun. A new reference.
json_t *md_failure_json(md_status status, const md_error *err, bool overloaded);
void md_reply_overloaded(md_request *request, md_submit why); // 429 or 503 with Retry-After

// A response whose bytes come from `read` until it returns MD_STREAM_END. It may block, and is called on the
// connection's thread; `release` is called once at the end, whatever happened.
enum { MD_STREAM_END = -1, MD_STREAM_BROKEN = -2 };
typedef long (*md_stream_read)(void *user, char *out, size_t max);
void md_reply_stream(md_request *request, const char *type, md_stream_read read, void (*release)(void *), void *user);

#endif
