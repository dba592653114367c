// The input is a request without a socket: a byte that chooses route and headers, the body, a NUL, and the text that
// the model is to answer. Every request gets exactly one reply of valid JSON (or of events that are), never the
// server's own fault. libmicrohttpd's functions are replaced by the ones below, the scheduler by fake_scheduler.c.
#include <microhttpd.h>
#include <string.h>

#include "base/json.h"
#include "fuzz/fake_scheduler.h"
#include "fuzz/fuzz.h"
#include "server/route.h"

// ---- libmicrohttpd -----------------------------------------------------------------------------------------------

struct MHD_Response {
    char *bytes; // owned
    size_t size;
    MHD_ContentReaderCallback read;
    MHD_ContentReaderFreeCallback release;
    void *user;
};

static unsigned replies, last_status, header_flags;

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *bytes, enum MHD_ResponseMemoryMode mode) {
    struct MHD_Response *response = calloc(1, sizeof *response);
    require(response != NULL);
    response->bytes = mode == MHD_RESPMEM_MUST_FREE ? bytes : NULL;
    response->size = size;
    return response;
}

struct MHD_Response *MHD_create_response_from_callback(uint64_t size, size_t block, MHD_ContentReaderCallback read,
                                                       void *user, MHD_ContentReaderFreeCallback release) {
    (void)size, (void)block;
    struct MHD_Response *response = calloc(1, sizeof *response);
    require(response != NULL);
    *response = (struct MHD_Response){.read = read, .release = release, .user = user};
    return response;
}

enum MHD_Result MHD_add_response_header(struct MHD_Response *response, const char *header, const char *content) {
    (void)response;
    require(strlen(header) > 0 && !strpbrk(content, "\r\n"));
    return MHD_YES;
}

const char *MHD_lookup_connection_value(struct MHD_Connection *connection, enum MHD_ValueKind kind, const char *key) {
    (void)connection, (void)kind;
    static const char *const keys[] = {"Bearer key", "Bearer kez", "", "Bearer"};
    static const char *const origins[] = {NULL, "https://a.example", "https://c.example", ""};
    if (strcmp(key, "Authorization") == 0) return keys[header_flags & 3];
    return strcmp(key, "Origin") == 0 ? origins[header_flags >> 2 & 3] : NULL;
}

static void check_json(const char *text, size_t n) {
    json_t *json = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    require(json != NULL);
    json_decref(json);
}

static void check_events(const char *at, size_t n) {
    const char *end = at + n;
    require(n >= 2 && memcmp(end - 2, "\n\n", 2) == 0);
    while (at < end) {
        const char *stop = strchr(at, '\n');
        require(stop != NULL && stop[1] == '\n' && strncmp(at, "data: ", 6) == 0);
        if (strncmp(at, "data: [DONE]\n", 13) != 0) check_json(at + 6, (size_t)(stop - at) - 6);
        at = stop + 2;
    }
}

static void read_events(const struct MHD_Response *response) {
    md_buf all;
    char block[512];
    ssize_t n;
    md_buf_init(&all, 1 << 24);
    while ((n = response->read(response->user, 0, block, sizeof block)) > 0)
        require(md_buf_append(&all, block, (size_t)n) == MD_OK);
    require(n == MHD_CONTENT_READER_END_OF_STREAM);
    check_events(md_buf_str(&all), all.size);
    md_buf_free(&all);
}

enum MHD_Result MHD_queue_response(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response) {
    (void)connection;
    replies++;
    last_status = status;
    if (response->read)
        read_events(response);
    else if (response->bytes && response->size && response->bytes[0] == '{')
        check_json(response->bytes, response->size);
    return MHD_YES;
}

void MHD_destroy_response(struct MHD_Response *response) {
    if (response->release) response->release(response->user);
    free(response->bytes);
    free(response);
}

// ---- the target --------------------------------------------------------------------------------------------------

static const struct {
    const char *method, *url;
} requests[] = {{"POST", "/v1/chat/completions"},
                {"POST", "/v1/completions"},
                {"POST", "/tokenize"},
                {"POST", "/detokenize"},
                {"POST", "/apply-template"},
                {"GET", "/v1/models"},
                {"GET", "/v1/models/fairytales"},
                {"GET", "/props"},
                {"GET", "/metrics"},
                {"GET", "/health"},
                {"OPTIONS", "/v1/chat/completions"},
                {"PUT", "/v1/chat/completions"},
                {"GET", "/nothing"}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t which = data[0] % (sizeof requests / sizeof *requests), body_size, answer_size;
    const char *at = (const char *)data + 2, *end = (const char *)data + size;
    const char *body = next_part(&at, end, &body_size);
    const char *answer = next_part(&at, end, &answer_size);
    md_request request = {.app = fake_app()};
    header_flags = data[1];
    replies = 0;
    fake_answer(answer, answer_size);
    md_buf_init(&request.body, request.app->options->body_max);
    if (md_buf_append(&request.body, body, body_size) != MD_OK) return 0;
    md_route_find(&request, requests[which].method, requests[which].url);
    if (request.early)
        md_route_refuse(&request, request.early);
    else
        md_route_run(&request);
    require(replies == 1 && request.replied && request.status == last_status && last_status >= 200);
    require(last_status < 500);
    md_buf_free(&request.body);
    return 0;
}
