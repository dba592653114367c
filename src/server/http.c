#include "server/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "server/route.h"

enum {
    HEAD_MAX = 64 << 10,           // bytes of all headers
    CONNECTION_MEMORY = 128 << 10, // of a connection's head and write buffer: a head that is too large can be read and
                                   // refused by an error object; libmicrohttpd refuses what does not fit in here
    STACK_BYTES = 2 << 20,         // of a connection's thread; templates and schemas recurse within bounds
    BODIES_MAX = 256 << 20,        // bytes of all bodies being received
    URL_MAX = 8 << 10,             // bytes
    DRAIN_MAX = 64 << 20,          // a refused body up to this is read to its end, so that the client reads the refusal
    BACKLOG = 512
};

struct md_http {
    md_app *app;
    struct MHD_Daemon *daemon;
};

// ---- checks of a request's head --------------------------------------------------------------------------------

typedef struct head_count {
    int lengths, encodings, hosts;
    bool bad_length, bad_encoding;
    uint64_t length;
    size_t bytes;
} head_count;

static enum MHD_Result count_header(void *user, enum MHD_ValueKind kind, const char *key, const char *value) {
    (void)kind;
    head_count *count = user;
    count->bytes += strlen(key) + (value ? strlen(value) : 0) + 4; // ": " and the line's end
    if (strcasecmp(key, "Host") == 0) count->hosts++;
    if (strcasecmp(key, "Transfer-Encoding") == 0) {
        count->encodings++;
        count->bad_encoding = !value || strcasecmp(value, "chunked") != 0;
    }
    if (strcasecmp(key, "Content-Length") != 0) return MHD_YES;
    count->lengths++;
    bool digits = value && value[0] && strspn(value, "0123456789") == strlen(value) && strlen(value) < 19;
    if (digits)
        count->length = strtoull(value, NULL, 10);
    else
        count->bad_length = true;
    return MHD_YES;
}

// The status to refuse the head with; 0: it is fine. *at_once: the rest of the message is not to be read.
static unsigned check_head(md_request *r, const char *url, const char *version, bool *at_once) {
    head_count count = {0};
    MHD_get_connection_values(r->connection, MHD_HEADER_KIND, count_header, &count);
    // Two framings of one message are how requests are smuggled past a proxy.
    *at_once = count.lengths > 1 || count.encodings > 1 || (count.lengths && count.encodings) || count.bad_length ||
               count.bad_encoding;
    if (*at_once) return MHD_HTTP_BAD_REQUEST;
    *at_once = count.hosts > 1 || (count.hosts == 0 && strcmp(version, MHD_HTTP_VERSION_1_1) == 0);
    if (*at_once) return MD_BAD_HOST;
    *at_once = strlen(url) > URL_MAX;
    if (*at_once) return MHD_HTTP_URI_TOO_LONG;
    *at_once = count.bytes > HEAD_MAX;
    if (*at_once) return MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE;
    *at_once = count.length > DRAIN_MAX;
    if (count.length > r->app->options->body_max) return MHD_HTTP_CONTENT_TOO_LARGE;
    return md_request_header(r, "Content-Encoding") ? MHD_HTTP_UNSUPPORTED_MEDIA_TYPE : 0;
}

const char *md_request_header(const md_request *request, const char *name) {
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

// ---- a request's life ------------------------------------------------------------------------------------------

static md_request *request_new(md_app *app, struct MHD_Connection *connection) {
    md_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    r->app = app;
    r->connection = connection;
    r->conn = info ? info->socket_context : NULL;
    md_buf_init(&r->body, app->options->body_max);
    return r;
}

static bool take_body(md_request *r, const char *bytes, size_t n) {
    md_app *app = r->app;
    // A sum alone; nothing is read on the strength of it.
    size_t all = atomic_fetch_add_explicit(&app->body_bytes, n, memory_order_relaxed) + n;
    if (all > BODIES_MAX || md_buf_append(&r->body, bytes, n) != MD_OK) {
        atomic_fetch_sub_explicit(&app->body_bytes, n, memory_order_relaxed);
        return false;
    }
    return true;
}

static char bad_target; // what a request's context is until its first call, where its line can't be trusted

// The request's target as it was sent: a space in it makes two readings of the line possible, a NUL of the path.
static void *on_target(void *user, const char *target, struct MHD_Connection *connection) {
    (void)user, (void)connection;
    return strchr(target, ' ') || strstr(target, "%00") ? &bad_target : NULL;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **context) {
    md_request *r = *context;
    if (!r || *context == &bad_target) {
        bool bad_line = *context == &bad_target;
        r = request_new(user, connection);
        if (!r) return MHD_NO;
        r->json_losses = md_json_losses();
        *context = r;
        md_conn_enter(r->conn, MD_CONN_BODY);
        bool at_once;
        unsigned problem = check_head(r, url, version, &at_once);
        md_route_find(r, method, url);
        if (bad_line) problem = MD_BAD_LINE, at_once = true;
        if (problem) r->early = problem;
        if (!at_once) return MHD_YES;
        md_route_refuse(r, problem);
        return r->replied ? MHD_YES : MHD_NO;
    }
    if (*upload_size) {
        if (!r->early && !take_body(r, upload, *upload_size)) r->early = MHD_HTTP_CONTENT_TOO_LARGE;
        *upload_size = 0;
        return MHD_YES;
    }
    md_conn_enter(r->conn, MD_CONN_WORK);
    r->json_losses = md_json_losses();
    if (r->early)
        md_route_refuse(r, r->early);
    else
        md_route_run(r);
    return r->replied ? MHD_YES : MHD_NO;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **context,
                         enum MHD_RequestTerminationCode code) {
    (void)user, (void)connection, (void)code;
    md_request *r = *context;
    if (!r || *context == &bad_target) return;
    if (r->replied) md_metrics_response(&r->app->metrics, r->status);
    atomic_fetch_sub_explicit(&r->app->body_bytes, r->body.size, memory_order_relaxed);
    md_conn_set_job(r->conn, NULL);
    md_conn_enter(r->conn, MD_CONN_HEAD);
    md_buf_free(&r->body);
    free(r);
    *context = NULL;
}

static void on_connection(void *user, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code) {
    md_app *app = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *socket_context = info ? md_conn_open(app->conns, info->connect_fd) : NULL;
        // Nobody would notice when its client goes or dawdles.
        if (info && !*socket_context) shutdown(info->connect_fd, SHUT_RDWR);
    } else {
        md_conn_close(*socket_context);
        *socket_context = NULL;
    }
}

// ---- listening -------------------------------------------------------------------------------------------------

// What an error of bind or listen has its user do.
static const char *hint(int why) {
    switch (why) {
    case EADDRINUSE: return "; another program listens there: --port takes another one, 0 a free one";
    case EADDRNOTAVAIL: return "; --host is an address of this machine, or 0.0.0.0 or :: for all of them";
    case EACCES: return "; ports below 1024 are for root alone: --port takes another one";
    default: return "";
    }
}

static bool is_this_machine(const struct sockaddr *address) {
    if (address->sa_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    }
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}

static md_status resolve(const char *host, uint16_t port, struct addrinfo **list, md_error *err) {
    static const char expected[] = "an address or a name of this machine, or 0.0.0.0 or :: for all of its addresses";
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    // The resolver takes "*" for all addresses; nobody could open what is then said to be listened on.
    if (!*host || strcmp(host, "*") == 0)
        return md_fail(err, MD_E_USAGE, "--host: found \"%s\", expected %s", host, expected);
    const int problem = getaddrinfo(host, service, &hints, list);
    if (!problem) return MD_OK;
    const char *colon = strchr(host, ':'); // one: a port stands behind it
    return md_fail(err, MD_E_USAGE, "--host: found \"%s\", expected %s: %s%s", host, expected, gai_strerror(problem),
                   colon && !strchr(colon + 1, ':') ? "; the port is --port's" : "");
}

static md_status listen_on(const char *host, uint16_t port, int *out, md_http_place *place, md_error *err) {
    struct addrinfo *list;
    MD_TRY(resolve(host, port, &list, err));
    int fd = -1, why = EADDRNOTAVAIL;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM, 0);
        int on = 1;
        if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) break;
        why = errno;
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0) return md_fail(err, MD_E_IO, "can't listen on %s port %u: %s%s", host, port, strerror(why), hint(why));
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } name;
    socklen_t size = sizeof name;
    getsockname(fd, &name.any, &size);
    place->port = ntohs(name.any.sa_family == AF_INET6 ? name.v6.sin6_port : name.v4.sin_port);
    place->this_machine = is_this_machine(&name.any);
    *out = fd;
    return MD_OK;
}

static void on_log(void *user, const char *format, va_list arguments) {
    (void)user;
    char line[256];
    vsnprintf(line, sizeof line, format, arguments);
    line[strcspn(line, "\n")] = '\0';
    md_log(MD_LOG_DEBUG, "http: %s", line);
}

md_status md_http_start(md_app *app, const char *host, uint16_t port, md_http **out, md_http_place *place,
                        md_error *err) {
    *out = NULL;
    int fd = -1;
    MD_TRY(listen_on(host, port, &fd, place, err));
    md_http *http = calloc(1, sizeof *http);
    if (http) {
        http->app = app;
        http->daemon = MHD_start_daemon(
            MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ERROR_LOG |
                MHD_USE_ITC,
            port, NULL, NULL, on_request, app, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
            MHD_OPTION_CONNECTION_LIMIT, (unsigned)MD_CONNS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)CONNECTION_MEMORY, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_URI_LOG_CALLBACK,
            on_target, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, app, MHD_OPTION_NOTIFY_CONNECTION,
            on_connection, app, MHD_OPTION_END);
    }
    if (!http || !http->daemon) {
        close(fd);
        free(http);
        return md_fail(err, MD_E_IO, "can't start the HTTP server");
    }
    *out = http;
    return MD_OK;
}

void md_http_stop(md_http *http) {
    if (!http) return;
    MHD_stop_daemon(http->daemon);
    free(http);
}
