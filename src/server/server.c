#include "server/server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/clock.h"
#include "server/http.h"

enum {
    GATE_THREADS = 4,
    POLL_MS = 100,
    FIRST_POLL_MS = 10, // until the address is told
    LONG_LOADING_MS = 1000,
    FLUSH_MS = 2000 // for clients to read the ends of their answers
};

// Blocked in every thread that is started from here on, so that sigtimedwait gets them.
static void block_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    signal(SIGPIPE, SIG_IGN); // a client that closes is an error of its socket
}

static bool signal_came(const sigset_t *set, uint64_t ms) {
    struct timespec wait = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    return sigtimedwait(set, NULL, &wait) > 0;
}

// Until a signal asks to end, or the model turns out not to load. The address is told when there is a model behind it,
// or when loading it takes long.
static void serve(md_app *app, const sigset_t *signals, const char *host, uint16_t port) {
    const char *open = strchr(host, ':') ? "[" : "", *close = *open ? "]" : ""; // RFC 3986: an IPv6 address in a URL
    bool listening = false, said = false;
    uint64_t begin = md_clock_ms();
    while (!signal_came(signals, listening ? POLL_MS : FIRST_POLL_MS)) {
        md_server_state state = md_scheduler_state(app->scheduler);
        if (state == MD_SERVER_FAILED) return;
        bool ready = state == MD_SERVER_READY;
        if (!listening && (ready || md_clock_ms() - begin >= LONG_LOADING_MS)) {
            listening = true;
            fprintf(stderr, "listening on http://%s%s%s:%u%s\n", open, host, close, port,
                    ready ? "" : ", loading the model");
        }
        if (ready && !said) {
            said = true;
            fprintf(stderr, "ready: http://%s%s%s:%u/v1 serves %s; chat at http://%s%s%s:%u/\n", open, host, close,
                    port, md_scheduler_served(app->scheduler)->id, open, host, close, port);
        }
    }
    fprintf(stderr, "finishing what runs; the same signal again ends at once\n");
    for (uint64_t end = md_clock_ms() + (uint64_t)app->options->drain_seconds * 1000; md_clock_ms() < end;)
        if (md_scheduler_drain(app->scheduler, POLL_MS) || signal_came(signals, 0)) break;
}

md_status md_server_run(const md_server_options *options, md_error *err) {
    static md_app app; // large, and one a process: signals are the process's
    memset(&app, 0, sizeof app);
    app.options = options;
    md_gate_init(&app.gate, GATE_THREADS);
    sigset_t signals;
    block_signals(&signals);
    md_http *http = NULL;
    md_http_place place;
    md_status status;
    MD_TRY_GOTO(md_conns_start(&app.metrics, &app.conns, err));
    MD_TRY_GOTO(md_scheduler_start(options, &app.metrics, &app.scheduler, err));
    MD_TRY_GOTO(md_http_start(&app, options->host, options->port, &http, &place, err));
    if (!options->api_key && !place.this_machine)
        fprintf(stderr, "warning: whoever reaches %s may use this server: no --api-key is asked for\n", options->host);
    serve(&app, &signals, options->host, place.port);
fail:
    // A handler may read the model until its connection is closed, so the model goes last.
    if (app.scheduler) md_scheduler_end(app.scheduler);
    if (http) md_conns_wait_idle(app.conns, FLUSH_MS);
    md_http_stop(http);
    if (app.scheduler) {
        md_status loading = md_scheduler_free(app.scheduler, status == MD_OK ? err : NULL);
        if (status == MD_OK && loading != MD_E_CANCELLED) status = loading; // cancelled: a signal came first
    }
    if (app.conns) md_conns_stop(app.conns);
    md_gate_destroy(&app.gate);
    return status;
}
