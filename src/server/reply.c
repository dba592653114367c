// Replies: JSON, text, streams, and OpenAI's error objects.
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/http.h"

enum { STREAM_BLOCK = 16 << 10 };

static void queue(md_request *r, unsigned status, struct MHD_Response *response, const char *type) {
    if (!response) return; // not replied: the connection is closed
    if (type) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (r->allow_origin) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", r->allow_origin);
        MHD_add_response_header(response, "Vary", "Origin");
    }
    if (r->allow[0]) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, r->allow);
    if (r->retry_after[0]) MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, r->retry_after);
    if (status == MHD_HTTP_UNAUTHORIZED) MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (r->preflight) {
        MHD_add_response_header(response, "Access-Control-Allow-Methods", r->allow);
        MHD_add_response_header(response, "Access-Control-Allow-Headers", "Authorization, Content-Type");
        MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    }
    md_conn_enter(r->conn, MD_CONN_WRITE);
    r->replied = MHD_queue_response(r->connection, status, response) == MHD_YES;
    r->status = status;
    MHD_destroy_response(response);
}

static void send_bytes(md_request *r, unsigned status, const char *type, char *bytes, size_t size) {
    struct MHD_Response *response = MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE);
    if (!response) free(bytes);
    queue(r, status, response, type);
}

void md_reply_json(md_request *request, unsigned status, json_t *body) {
    static char no_memory[] = "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,"
                              "\"code\":null}}";
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (text && md_json_losses() == request->json_losses) {
        send_bytes(request, status, "application/json", text, strlen(text));
        return;
    }
    free(text); // something is missing in it
    queue(request, MHD_HTTP_INTERNAL_SERVER_ERROR,
          MHD_create_response_from_buffer(sizeof no_memory - 1, no_memory, MHD_RESPMEM_PERSISTENT), "application/json");
}

void md_reply_text(md_request *request, unsigned status, const char *type, const char *text, size_t size) {
    char *copy = malloc(size + 1);
    if (!copy) return;
    memcpy(copy, text, size);
    send_bytes(request, status, type, copy, size);
}

void md_reply_fixed(md_request *request, unsigned status, const char *type, const char *bytes, size_t size,
                    const md_header *headers) {
    // Persistent: libmicrohttpd does not write to it, whatever its parameter's type says.
    struct MHD_Response *response = MHD_create_response_from_buffer(size, (void *)bytes, MHD_RESPMEM_PERSISTENT);
    for (; response && headers->name; headers++) MHD_add_response_header(response, headers->name, headers->value);
    queue(request, status, response, type);
}

void md_reply_empty(md_request *request, unsigned status) {
    queue(request, status, MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT), NULL);
}

// ---- errors ----------------------------------------------------------------------------------------------------

static json_t *error_json(const char *type, const char *code, const char *param, const char *message) {
    json_t *error = json_object(), *body = json_object();
    json_t *text = json_string(message);
    if (!text) text = json_string("the message is not valid UTF-8");
    json_object_set_new(error, "message", text);
    json_object_set_new(error, "type", json_string(type));
    json_object_set_new(error, "param", param ? json_string(param) : json_null());
    json_object_set_new(error, "code", code ? json_string(code) : json_null());
    json_object_set_new(body, "error", error);
    return body;
}

void md_reply_error(md_request *request, unsigned status, const char *type, const char *code, const char *param,
                    const char *message) {
    md_reply_json(request, status, error_json(type, code, param, message));
}

// "messages[2].content: found ..." -> "messages[2].content". False where the message begins otherwise.
static bool split_param(const char *message, char *param, size_t size) {
    size_t n = strcspn(message, ": ");
    if (n == 0 || n >= size || message[n] != ':' || message[n + 1] != ' ') return false;
    memcpy(param, message, n);
    param[n] = '\0';
    return true;
}

// What a failed status is to a client.
static const struct {
    md_status status;
    unsigned http;
    const char *type, *code;
} failures[] = {
    {MD_E_USAGE, 400, "invalid_request_error", NULL},
    {MD_E_UNSUPPORTED, 400, "invalid_request_error", "unsupported"},
    {MD_E_CONTEXT, 400, "invalid_request_error", "context_length_exceeded"},
    {MD_E_NOT_FOUND, 404, "invalid_request_error", "model_not_found"},
    {MD_E_TIMEOUT, 500, "server_error", "timeout"},
    {MD_OK, 500, "server_error", NULL},
};

static size_t failure_of(md_status status) {
    size_t i = 0;
    while (failures[i].status != MD_OK && failures[i].status != status) i++;
    return i;
}

json_t *md_failure_json(md_status status, const md_error *err, bool overloaded) {
    char param[128];
    size_t i = failure_of(status);
    bool named = failures[i].http < 500 && split_param(err->message, param, sizeof param);
    return error_json(overloaded ? "overloaded_error" : failures[i].type, failures[i].code, named ? param : NULL,
                      err->message);
}

void md_reply_failure(md_request *request, md_status status, const md_error *err, bool overloaded) {
    unsigned http = overloaded ? MHD_HTTP_SERVICE_UNAVAILABLE : failures[failure_of(status)].http;
    md_reply_json(request, http, md_failure_json(status, err, overloaded));
}

void md_reply_overloaded(md_request *request, md_submit why) {
    md_scheduler *scheduler = request->app->scheduler;
    if (why == MD_SUBMIT_FULL) {
        snprintf(request->retry_after, sizeof request->retry_after, "%u", md_scheduler_retry_after(scheduler));
        md_reply_error(request, MHD_HTTP_TOO_MANY_REQUESTS, "overloaded_error", "queue_full", NULL,
                       "too many requests are waiting; try again later");
        return;
    }
    bool loading = md_scheduler_state(scheduler) == MD_SERVER_LOADING;
    snprintf(request->retry_after, sizeof request->retry_after, "%d", loading ? 2 : 30);
    md_reply_error(request, MHD_HTTP_SERVICE_UNAVAILABLE, "overloaded_error", loading ? "loading" : "shutting_down",
                   NULL, loading ? "the model is being loaded" : "the server is shutting down");
}

// ---- streams ---------------------------------------------------------------------------------------------------

typedef struct stream {
    md_conn *conn;
    md_stream_read read;
    void (*release)(void *);
    void *user;
} stream;

static ssize_t read_stream(void *user, uint64_t position, char *out, size_t max) {
    (void)position;
    stream *s = user;
    md_conn_enter(s->conn, MD_CONN_WORK);
    long n = s->read(s->user, out, max);
    md_conn_enter(s->conn, MD_CONN_WRITE);
    if (n == MD_STREAM_END) return MHD_CONTENT_READER_END_OF_STREAM;
    return n == MD_STREAM_BROKEN ? MHD_CONTENT_READER_END_WITH_ERROR : (ssize_t)n;
}

static void release_stream(void *user) {
    stream *s = user;
    s->release(s->user);
    free(s);
}

void md_reply_stream(md_request *request, const char *type, md_stream_read read, void (*release)(void *), void *user) {
    stream *s = malloc(sizeof *s);
    if (!s) {
        release(user);
        return;
    }
    *s = (stream){request->conn, read, release, user};
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, s, release_stream);
    if (!response) {
        release_stream(s);
        return;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); // nginx would hold events back
    queue(request, MHD_HTTP_OK, response, type);
}
