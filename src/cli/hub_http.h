// Requests to the hub: what every request sends, the bounds every answer is held to, and the wording of what went
// wrong.
//
// Nothing a server answers is trusted: redirects are few and keep to http(s) (https alone when the endpoint is https),
// headers and bodies are bounded, a transfer that stalls is cut, and the token goes to the endpoint's host only
// (libcurl drops it on the way to another). A failure that may pass (a cut connection, 429, 5xx) is tried again, a few
// times. One thread for each md_hub_http.
#ifndef MD_CLI_HUB_HTTP_H
#define MD_CLI_HUB_HTTP_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

enum { MD_HUB_TRIES = 5, MD_HUB_REDIRECTS = 5 };

typedef struct md_hub_http {
    const char *repo, *revision; // of the pull, for messages; borrowed
    bool (*cancelled)(void);     // asked often; may be NULL
    char *endpoint;              // "https://host", no '/' at its end; owned
    char *token;                 // NULL: none; owned
    struct curl_slist *headers;  // owned
    CURL *curl;                  // for small requests, so that they share a connection; owned
    long stall_seconds;          // a transfer without a byte for that long is cut
} md_hub_http;

// What an answer's headers say. Texts are empty where the header is missing or longer than its room.
typedef struct md_hub_reply {
    char etag[96], linked_etag[96]; // without W/ and quotes
    char commit[96];                // X-Repo-Commit
    char error_code[48];            // X-Error-Code: "RepoNotFound", "GatedRepo", ...
    char content_range[96];
    bool has_length, has_linked_size;
    uint64_t length, linked_size;
    size_t header_bytes;        // of all answers on the way
    char text[CURL_ERROR_SIZE]; // libcurl's words
} md_hub_reply;

// Reads HF_ENDPOINT, HF_HUB_DOWNLOAD_TIMEOUT and the token. curl_global_init was called.
md_status md_hub_http_open(md_hub_http *http, const char *repo, const char *revision, md_error *err);
void md_hub_http_close(md_hub_http *http);

// Prepares `curl` for one request of `url`; its headers go to `reply`, which is cleared and must outlive the transfer.
md_status md_hub_http_prepare(const md_hub_http *http, CURL *curl, const char *url, md_hub_reply *reply, md_error *err);

// GET of a small document, at most body->max bytes. `what` names it in messages.
md_status md_hub_http_get(md_hub_http *http, const char *url, const char *what, md_buf *body, md_error *err);

// HEAD. Redirects are followed on the endpoint's own host only: an answer that sends elsewhere is where a large file's
// hash and size are told. *status is 200 or 3xx.
md_status md_hub_http_head(md_hub_http *http, const char *url, const char *what, md_hub_reply *reply, long *status,
                           md_error *err);

bool md_hub_may_pass(CURLcode code, long status); // worth another try
// Seconds to wait before try number `tries` + 1; what the server asked for, if it did (CURLINFO_RETRY_AFTER).
double md_hub_delay(CURL *curl, int tries);
enum { MD_HUB_PATIENCE_S = 60 }; // longer than this is not waited

// Fails with the text for a transfer that ended with `code` and HTTP `status` (0: none).
md_status md_hub_http_fail(const md_hub_http *http, const char *what, CURL *curl, CURLcode code,
                           const md_hub_reply *reply, md_error *err);

#endif
