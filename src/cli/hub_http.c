#include "cli/hub_http.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/hubdir.h"
#include "cli/hub_cache.h"

enum { CONNECT_SECONDS = 20, STALL_SECONDS = 20, MAX_STALL_SECONDS = 3600, MAX_URL_BYTES = 2048 };
static const size_t max_header_bytes = (size_t)256 << 10;

// ---- opening -----------------------------------------------------------------------------------------------------

static bool is_https(const md_hub_http *http) { return strncmp(http->endpoint, "https://", 8) == 0; }

static md_status read_endpoint(md_hub_http *http, md_error *err) {
    const char *text = md_env("HF_ENDPOINT") ? md_env("HF_ENDPOINT") : "https://huggingface.co";
    size_t scheme = strncmp(text, "https://", 8) == 0 ? 8 : strncmp(text, "http://", 7) == 0 ? 7 : 0;
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '/') n--;
    if (scheme == 0 || n <= scheme || n > MAX_URL_BYTES / 4 || strpbrk(text, " \t\r\n?#@"))
        return md_fail(err, MD_E_USAGE, "HF_ENDPOINT: found \"%.100s\", expected http(s)://host", text);
    http->endpoint = strndup(text, n);
    return http->endpoint ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory");
}

static long stall_seconds(void) {
    const char *text = md_env("HF_HUB_DOWNLOAD_TIMEOUT");
    long value = text ? strtol(text, NULL, 10) : 0;
    return value >= 1 && value <= MAX_STALL_SECONDS ? value : STALL_SECONDS;
}

md_status md_hub_http_open(md_hub_http *http, const char *repo, const char *revision, md_error *err) {
    *http = (md_hub_http){.repo = repo, .revision = revision, .stall_seconds = stall_seconds()};
    md_status status;
    MD_TRY_GOTO(read_endpoint(http, err));
    MD_TRY_GOTO(md_hub_token(&http->token, err));
    http->curl = curl_easy_init();
    // The sizes in the headers are those of the file only when it is not compressed on the way.
    http->headers = curl_slist_append(NULL, "Accept-Encoding: identity");
    if (http->curl && http->headers) return MD_OK;
    status = md_fail(err, MD_E_MEMORY, "out of memory for the download");
fail:
    md_hub_http_close(http);
    return status;
}

void md_hub_http_close(md_hub_http *http) {
    curl_easy_cleanup(http->curl);
    curl_slist_free_all(http->headers);
    free(http->endpoint);
    free(http->token);
    *http = (md_hub_http){0};
}

// ---- headers -----------------------------------------------------------------------------------------------------

static void copy_text(char *out, size_t size, const char *value, size_t n) {
    if (n >= size) return;
    memcpy(out, value, n);
    out[n] = 0;
}

static void copy_etag(char *out, size_t size, const char *value, size_t n) {
    if (n >= 2 && value[0] == 'W' && value[1] == '/') value += 2, n -= 2;
    if (n >= 2 && value[0] == '"' && value[n - 1] == '"') value++, n -= 2;
    copy_text(out, size, value, n);
}

static void copy_size(uint64_t *out, bool *has, const char *value, size_t n) {
    uint64_t size = 0;
    if (n == 0 || n > 18) return; // 18 digits cannot overflow
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)value[i])) return;
        size = 10 * size + (uint64_t)(value[i] - '0');
    }
    *out = size;
    *has = true;
}

static void store_header(md_hub_reply *reply, const char *name, size_t name_size, const char *value, size_t n) {
#define IS(text) (name_size == sizeof text - 1 && strncasecmp(name, text, name_size) == 0)
    if (IS("etag"))
        copy_etag(reply->etag, sizeof reply->etag, value, n);
    else if (IS("x-linked-etag"))
        copy_etag(reply->linked_etag, sizeof reply->linked_etag, value, n);
    else if (IS("x-repo-commit"))
        copy_text(reply->commit, sizeof reply->commit, value, n);
    else if (IS("x-error-code"))
        copy_text(reply->error_code, sizeof reply->error_code, value, n);
    else if (IS("content-range"))
        copy_text(reply->content_range, sizeof reply->content_range, value, n);
    else if (IS("content-length"))
        copy_size(&reply->length, &reply->has_length, value, n);
    else if (IS("x-linked-size"))
        copy_size(&reply->linked_size, &reply->has_linked_size, value, n);
#undef IS
}

static size_t on_header(char *line, size_t size, size_t count, void *user) {
    md_hub_reply *reply = user;
    size_t n = size * count;
    reply->header_bytes += n;
    if (reply->header_bytes > max_header_bytes) return 0;
    if (n >= 5 && memcmp(line, "HTTP/", 5) == 0) { // of the next answer, after a redirect
        *reply = (md_hub_reply){.header_bytes = reply->header_bytes};
        return n;
    }
    const char *colon = memchr(line, ':', n);
    if (!colon) return n;
    const char *value = colon + 1, *end = line + n;
    while (value < end && isspace((unsigned char)*value)) value++;
    while (end > value && isspace((unsigned char)end[-1])) end--;
    store_header(reply, line, (size_t)(colon - line), value, (size_t)(end - value));
    return n;
}

// ---- requests ----------------------------------------------------------------------------------------------------

static int on_tick(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    (void)a, (void)b, (void)c, (void)d;
    const md_hub_http *http = user;
    return http->cancelled && http->cancelled();
}

md_status md_hub_http_prepare(const md_hub_http *http, CURL *curl, const char *url, md_hub_reply *reply,
                              md_error *err) {
    char agent[64];
    const char *protocols = is_https(http) ? "https" : "http,https";
    snprintf(agent, sizeof agent, "megadecode/%s", md_version());
    *reply = (md_hub_reply){0};
    curl_easy_reset(curl);
    bool ok = curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
              curl_easy_setopt(curl, CURLOPT_USERAGENT, agent) == CURLE_OK &&
              curl_easy_setopt(curl, CURLOPT_HTTPHEADER, http->headers) == CURLE_OK &&
              curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols) == CURLE_OK &&
              curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols) == CURLE_OK;
    if (ok && http->token)
        ok = curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER) == CURLE_OK &&
             curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, http->token) == CURLE_OK;
    if (!ok) return md_fail(err, MD_E_MEMORY, "out of memory for a request");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MD_HUB_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L); // bytes a second
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, http->stall_seconds);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reply->text);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, reply);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_tick);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, (void *)http);
    return MD_OK;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user) {
    return md_buf_append(user, bytes, size * count) == MD_OK ? size * count : 0;
}

bool md_hub_may_pass(CURLcode code, long status) {
    if (status == 408 || status == 429 || status >= 500) return true;
    if (status >= 400) return false;
    switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_SSL_CONNECT_ERROR: return true;
    default: return false;
    }
}

double md_hub_delay(CURL *curl, int tries) {
    curl_off_t asked = 0;
    curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &asked);
    double delay = 0.125 * (double)(1 << (tries < 6 ? tries : 6));
    return asked > delay ? (double)asked : delay;
}

static bool pause_for(const md_hub_http *http, double seconds) {
    enum { STEP_MS = 50 };
    for (long left = (long)(seconds * 1000); left > 0; left -= STEP_MS) {
        if (http->cancelled && http->cancelled()) return false;
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
    }
    return true;
}

// Performs what http->curl is prepared for, again where that may help. *http_status is below 400 on MD_OK.
static md_status perform(md_hub_http *http, const char *what, md_buf *body, md_hub_reply *reply, long *http_status,
                         md_error *err) {
    for (int tries = 1;; tries++) {
        if (body) md_buf_clear(body);
        reply->header_bytes = 0;
        CURLcode code = curl_easy_perform(http->curl);
        curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, http_status);
        if (code == CURLE_OK && *http_status >= 200 && *http_status < 400) return MD_OK;
        if (body && body->failed)
            return md_fail(err, MD_E_FORMAT, "%s: %s: over %zu bytes", http->repo, what, body->max);
        double delay = md_hub_delay(http->curl, tries);
        if (tries == MD_HUB_TRIES || !md_hub_may_pass(code, *http_status) || delay > MD_HUB_PATIENCE_S)
            return md_hub_http_fail(http, what, http->curl, code, reply, err);
        if (!pause_for(http, delay)) return md_fail(err, MD_E_CANCELLED, "%s: interrupted", http->repo);
    }
}

md_status md_hub_http_get(md_hub_http *http, const char *url, const char *what, md_buf *body, md_error *err) {
    md_hub_reply reply;
    long http_status = 0;
    MD_TRY(md_hub_http_prepare(http, http->curl, url, &reply, err));
    curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, body);
    return perform(http, what, body, &reply, &http_status, err);
}

// `url` is on the endpoint's scheme, host and port.
static bool same_origin(const md_hub_http *http, const char *url) {
    const char *host = strstr(http->endpoint, "://") + 3;
    size_t n = (size_t)(host - http->endpoint) + strcspn(host, "/");
    return strncasecmp(url, http->endpoint, n) == 0 && (url[n] == '/' || url[n] == 0);
}

md_status md_hub_http_head(md_hub_http *http, const char *url, const char *what, md_hub_reply *reply, long *status,
                           md_error *err) {
    char next[MAX_URL_BYTES];
    for (int hops = 0;; hops++) {
        MD_TRY(md_hub_http_prepare(http, http->curl, url, reply, err));
        curl_easy_setopt(http->curl, CURLOPT_NOBODY, 1L);
        curl_easy_setopt(http->curl, CURLOPT_FOLLOWLOCATION, 0L);
        MD_TRY(perform(http, what, NULL, reply, status, err));
        if (*status < 300 || reply->linked_etag[0]) return MD_OK;
        const char *target = NULL;
        curl_easy_getinfo(http->curl, CURLINFO_REDIRECT_URL, &target);
        if (!target || !same_origin(http, target)) return MD_OK;
        if (hops == MD_HUB_REDIRECTS)
            return md_fail(err, MD_E_FORMAT, "%s: %s: over %d redirects", http->repo, what, MD_HUB_REDIRECTS);
        int n = snprintf(next, sizeof next, "%s", target);
        if (n < 0 || n >= (int)sizeof next)
            return md_fail(err, MD_E_FORMAT, "%s: %s: a redirect of over %d bytes", http->repo, what, MAX_URL_BYTES);
        url = next;
    }
}

// ---- wording -----------------------------------------------------------------------------------------------------

static md_status fail_by_code(const md_hub_http *http, const char *what, const md_hub_reply *reply, bool *known,
                              md_error *err) {
    const char *code = reply->error_code, *repo = http->repo;
    *known = true;
    if (strcmp(code, "RepoNotFound") == 0)
        return md_fail(err, MD_E_NOT_FOUND, "%s: no such model at %s (or a private one: %s)", repo, http->endpoint,
                       http->token ? "the token has no access to it" : "set HF_TOKEN");
    if (strcmp(code, "RevisionNotFound") == 0)
        return md_fail(err, MD_E_NOT_FOUND, "%s: no revision \"%s\" of it at %s", repo, http->revision, http->endpoint);
    if (strcmp(code, "EntryNotFound") == 0)
        return md_fail(err, MD_E_NOT_FOUND, "%s: %s: listed, but not there", repo, what);
    if (strcmp(code, "GatedRepo") == 0)
        return md_fail(err, MD_E_NOT_FOUND, "%s: access is given on request: ask for it at %s/%s%s", repo,
                       http->endpoint, repo, http->token ? "" : ", then set HF_TOKEN");
    *known = false;
    return MD_OK;
}

static md_status fail_by_status(const md_hub_http *http, const char *what, CURL *curl, long status, md_error *err) {
    const char *repo = http->repo, *endpoint = http->endpoint;
    curl_off_t later = 0;
    switch (status) {
    case 401:
        if (http->token) return md_fail(err, MD_E_NOT_FOUND, "%s: %s refuses the token (HTTP 401)", repo, endpoint);
        return md_fail(err, MD_E_NOT_FOUND,
                       "%s: no such model at %s, or one that needs a token: set HF_TOKEN "
                       "(HTTP 401)",
                       repo, endpoint);
    case 403: return md_fail(err, MD_E_NOT_FOUND, "%s: %s: %s denies access (HTTP 403)", repo, what, endpoint);
    case 404:
        return md_fail(err, MD_E_NOT_FOUND, "%s: %s: not at %s (HTTP 404); is the name right?", repo, what, endpoint);
    case 429:
        curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &later);
        if (later <= 0) break;
        return md_fail(err, MD_E_IO, "%s: %s: too many requests (HTTP 429); %s asks to come back in %ld s", repo, what,
                       endpoint, (long)later);
    default: break;
    }
    return md_fail(err, MD_E_IO, "%s: %s: %s answered HTTP %ld%s", repo, what, endpoint, status,
                   status == 429   ? " (too many requests)"
                   : status >= 500 ? " (its own fault: try later)"
                                   : "");
}

md_status md_hub_http_fail(const md_hub_http *http, const char *what, CURL *curl, CURLcode code,
                           const md_hub_reply *reply, md_error *err) {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_ABORTED_BY_CALLBACK) return md_fail(err, MD_E_CANCELLED, "%s: interrupted", http->repo);
    if (status >= 400) {
        bool known;
        md_status failed = fail_by_code(http, what, reply, &known, err);
        return known ? failed : fail_by_status(http, what, curl, status, err);
    }
    if (reply->header_bytes > max_header_bytes)
        return md_fail(err, MD_E_FORMAT, "%s: %s: over %zu bytes of headers", http->repo, what, max_header_bytes);
    const char *text = reply->text[0] ? reply->text : curl_easy_strerror(code);
    if (code == CURLE_OK) return fail_by_status(http, what, curl, status, err);
    return md_fail(err, MD_E_IO, "%s: %s from %s: %s", http->repo, what, http->endpoint, text);
}
