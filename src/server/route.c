#include "server/route.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const md_route routes[] = {
    {"/v1/chat/completions", false, true, false, true, md_handle_chat},
    {"/v1/completions", false, true, false, true, md_handle_completion},
    {"/v1/models", false, false, false, true, md_handle_models},
    {"/v1/models/", true, false, false, true, md_handle_model},
    {"/", false, false, true, false, md_handle_page},
    {"/health", false, false, true, false, md_handle_health},
    {"/metrics", false, false, false, false, md_handle_metrics},
    {"/props", false, false, false, true, md_handle_props},
    {"/tokenize", false, true, false, true, md_handle_tokenize},
    {"/detokenize", false, true, false, true, md_handle_detokenize},
    {"/apply-template", false, true, false, true, md_handle_apply_template},
};
enum { ROUTES = sizeof routes / sizeof routes[0] };

// ---- who may ask -----------------------------------------------------------------------------------------------

// Takes the same time wherever the two differ, so that a key can't be guessed byte by byte.
static bool same_key(const char *given, const char *key) {
    size_t n = strlen(key), m = strlen(given);
    unsigned char different = n != m;
    for (size_t i = 0; i < m; i++) different |= (unsigned char)(given[i] ^ key[n ? i % n : 0]);
    return !different;
}

static bool has_key(const md_request *r) {
    const char *key = r->app->options->api_key, *given = md_request_header(r, "Authorization");
    if (!key) return true;
    return given && strncmp(given, "Bearer ", 7) == 0 && same_key(given + 7, key);
}

// Is `origin` one of the list's, which is "*" or origins with commas?
static bool is_listed(const char *list, const char *origin) {
    size_t n = strlen(origin);
    while (list && *list) {
        list += strspn(list, ", ");
        size_t item = strcspn(list, ", ");
        if (item == n && memcmp(list, origin, n) == 0) return true;
        list += item;
    }
    return false;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcasecmp(text + n - m, end) == 0;
}

// A host that no foreign name server can point here: an address, a name of this machine or of the local network, or the
// name of --host.
static bool is_safe_host(const char *host, const char *own) {
    static const char *const local[] = {".local", ".localhost", ".internal", ".home.arpa"};
    char name[256];
    struct in6_addr address;
    size_t n = strcspn(host, host[0] == '[' ? "]" : ":");
    if (host[0] == '[') return host[n] == ']';
    if (n == 0 || n >= sizeof name) return false;
    memcpy(name, host, n);
    name[n] = '\0';
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        if (ends_with(name, local[i])) return true;
    return !strchr(name, '.') || inet_pton(AF_INET, name, &address) == 1 || (own && strcasecmp(name, own) == 0);
}

// Is `origin` this server itself, so that the asking page is the one at "/"? A name that some other site makes point
// here (DNS rebinding) would have the same origin as its page; where a key is needed that page does not have it.
static bool is_own_origin(const md_request *r, const char *origin) {
    const char *host = md_request_header(r, "Host"), *rest = strstr(origin, "://");
    if (!host || !rest || strcasecmp(rest + 3, host) != 0) return false;
    return r->app->options->api_key || is_safe_host(host, r->app->options->host);
}

// ---- finding ---------------------------------------------------------------------------------------------------

static bool matches(const md_route *route, const char *url) {
    size_t n = strlen(route->path);
    return route->prefix ? strncmp(url, route->path, n) == 0 && url[n] : strcmp(url, route->path) == 0;
}

// Clients of a proxy name the host too: "http://host/path".
static const char *path_of(const char *url) {
    static const char scheme[] = "http://";
    if (strncasecmp(url, scheme, sizeof scheme - 1) != 0) return url;
    const char *path = strchr(url + sizeof scheme - 1, '/');
    return path ? path : "/";
}

void md_route_find(md_request *request, const char *method, const char *url) {
    md_request *r = request;
    url = path_of(url);
    const md_route *route = NULL;
    const char *list = r->app->options->cors_origins, *origin = md_request_header(r, "Origin");
    bool any = list && strcmp(list, "*") == 0;
    if (origin && (any || is_listed(list, origin))) r->allow_origin = any ? "*" : origin;
    r->url = url;
    for (int i = 0; i < ROUTES && !route; i++)
        if (matches(&routes[i], url)) route = &routes[i];
    if (!route) {
        r->early = 404;
        return;
    }
    bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0, post = strcmp(method, "POST") == 0;
    const char *methods = route->post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
    if (strcmp(method, "OPTIONS") == 0) {
        snprintf(r->allow, sizeof r->allow, "%s", methods);
        r->preflight = r->allow_origin != NULL;
        r->early = 204;
    } else if (route->post ? !post : !get) {
        snprintf(r->allow, sizeof r->allow, "%s", methods);
        r->early = 405;
    } else if (!route->open && !has_key(r)) {
        r->early = 401;
    } else if (post && origin && !r->allow_origin && !is_own_origin(r, origin)) {
        r->early = 403; // a page in a browser must not make the model work unasked
    } else if (route->post && md_scheduler_has_room(r->app->scheduler) == MD_SUBMIT_FULL &&
               (route->run == md_handle_chat || route->run == md_handle_completion)) {
        r->early = 429;
    }
    r->route = route;
}

void md_route_run(md_request *request) {
    const md_served *served = md_scheduler_served(request->app->scheduler);
    if (request->route->loaded && !served)
        md_reply_overloaded(request, MD_SUBMIT_DRAINING);
    else
        request->route->run(request, served);
}

void md_route_refuse(md_request *request, unsigned status) {
    static const char bad[] = "invalid_request_error";
    char message[256];
    switch (status) {
    case 204: md_reply_empty(request, 204); return;
    case 400:
        md_reply_error(request, 400, bad, NULL, NULL,
                       "the request's length is not clear: expected one Content-Length or one Transfer-Encoding");
        return;
    case MD_BAD_HOST:
        md_reply_error(request, 400, bad, NULL, NULL, "found no Host header, or several, expected one");
        return;
    case MD_BAD_LINE:
        md_reply_error(request, 400, bad, NULL, NULL, "the request's first line has a space or a NUL in its path");
        return;
    case 401:
        md_reply_error(request, 401, bad, "invalid_api_key", NULL,
                       "an API key is needed: Authorization: Bearer KEY (--api-key)");
        return;
    case 403:
        md_reply_error(request, 403, bad, "origin_not_allowed", NULL,
                       "pages of this origin may not use the server (--cors-origins)");
        return;
    case 404:
        snprintf(message, sizeof message, "there is no %.128s here", request->url);
        md_reply_error(request, 404, bad, "not_found", NULL, message);
        return;
    case 405:
        snprintf(message, sizeof message, "%.128s takes %s", request->url, request->allow);
        md_reply_error(request, 405, bad, "method_not_allowed", NULL, message);
        return;
    case 413:
        snprintf(message, sizeof message, "the body is larger than the %zu bytes that are taken",
                 request->app->options->body_max);
        md_reply_error(request, 413, bad, "body_too_large", NULL, message);
        return;
    case 414: md_reply_error(request, 414, bad, "url_too_long", NULL, "the URL is too long"); return;
    case 415:
        md_reply_error(request, 415, bad, "unsupported_encoding", NULL, "bodies with a Content-Encoding are not read");
        return;
    case 431:
        md_reply_error(request, 431, bad, "head_too_large", NULL, "the request's headers are larger than 64 KiB");
        return;
    default: md_reply_overloaded(request, MD_SUBMIT_FULL); return;
    }
}
