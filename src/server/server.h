// The HTTP server: one model behind OpenAI's routes (docs/SERVER.md).
//
// Threads. The scheduler's thread owns the model's sessions and computes every step. Each connection has a thread of
// libmicrohttpd's, which reads and checks a request, gives a job to the scheduler and writes what comes back. The
// watch thread enforces every deadline of a connection and notices clients that went away. The thread that called
// md_server_run waits for signals.
#ifndef MD_SERVER_SERVER_H
#define MD_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { MD_PARALLEL_MAX = 32, MD_QUEUE_MAX = 4096 };

typedef struct md_server_options {
    const char *model;              // folder or repo id
    const char *host;               // address to listen on; a name is resolved
    uint16_t port;                  // 0: any free one (said on stderr)
    md_model_options model_options; // engine, device, threads
    uint32_t context;               // positions of each request; 0: the library's default
    const char *kv;                 // KV cache, as md_session_options says
    uint32_t parallel;              // requests that decode together, 1 to MD_PARALLEL_MAX
    uint32_t queue;                 // requests that may wait beyond those
    const char *api_key;            // NULL: none is asked for
    const char *cors_origins;       // "*" or a list with commas; NULL: no browser page may call
    const char *alias;              // the model's id; NULL: its name
    uint32_t request_seconds;       // a request ends with an error after this long; 0: never
    uint32_t drain_seconds;         // after SIGTERM, running requests have this long
    const char *chat_template_file; // NULL: the snapshot's
    size_t body_max;                // bytes of a request's body
} md_server_options;

// Serves until SIGTERM or SIGINT; these must not have been blocked or handled before. Says on stderr where it listens.
// MD_E_USAGE and MD_E_IO for an address that can't be listened on; what md_model_open gives when loading fails.
md_status md_server_run(const md_server_options *options, md_error *err);

#endif
