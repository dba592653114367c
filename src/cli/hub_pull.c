#include "cli/hub_pull.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hubdir.h"
#include "base/json.h"

enum { MAX_URL_BYTES = 2048, MAX_REVISION_BYTES = 200, MAX_LISTED = 20000, MAX_FILES = 4096, PARALLEL_DEFAULT = 4 };
static const size_t max_listing_bytes = (size_t)16 << 20, max_index_bytes = (size_t)64 << 20;
static const uint64_t max_small_bytes = (uint64_t)1 << 30; // of a file that is read into memory as a whole

static const char index_name[] = "model.safetensors.index.json";
// What the program reads beside the weights and their index.
static const char *const small_names[] = {"config.json",    "generation_config.json", "kv_config.json",
                                          "tokenizer.json", "tokenizer_config.json",  "chat_template.jinja"};

typedef struct pull {
    const md_hub_request *request;
    const char *revision;
    md_hub_http http;
    md_hub_cache cache;
    json_t *listing; // the hub's answer
    json_t *names;   // an object whose keys are the files in the repository's top folder
    md_hub_snapshot *out;
} pull;

// ---- names -------------------------------------------------------------------------------------------------------

static bool is_revision(const char *text) {
    if (strlen(text) > MAX_REVISION_BYTES) return false;
    for (;;) {
        size_t n = strcspn(text, "/");
        if (!md_hub_plain_name(text, n)) return false;
        if (!text[n]) return true;
        text += n + 1;
    }
}

// No path that leads out of a folder, on any system.
static bool is_harmless(const char *path) {
    if (path[0] == '/' || strchr(path, '\\') || strlen(path) > MD_HUB_PATH_MAX / 2) return false;
    for (const char *at = path;; at++) {
        size_t n = strcspn(at, "/");
        if ((n == 2 && at[0] == '.' && at[1] == '.') || (n == 1 && at[0] == '.')) return false;
        at += n;
        if (!*at) return true;
    }
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static bool is_weights(const char *name) { return strncmp(name, "model", 5) == 0 && ends_with(name, ".safetensors"); }

// ---- what the repository has -------------------------------------------------------------------------------------

static md_status read_names(pull *p, md_error *err) {
    const char *repo = p->request->repo;
    const json_t *siblings = json_object_get(p->listing, "siblings");
    if (!json_is_array(siblings) || json_array_size(siblings) > MAX_LISTED)
        return md_fail(err, MD_E_FORMAT,
                       "%s: its description's \"siblings\" is %s of %zu, expected an array of at "
                       "most %d files",
                       repo, md_json_type_name(siblings), json_array_size(siblings), MAX_LISTED);
    p->names = json_object();
    size_t i;
    const json_t *entry;
    json_array_foreach(siblings, i, entry) {
        const char *name = json_string_value(json_object_get(entry, "rfilename"));
        if (!name || !is_harmless(name))
            return md_fail(err, MD_E_FORMAT, "%s: lists a file \"%.80s\"; refused: no path inside a folder", repo,
                           name ? name : "");
        size_t n = strlen(name);
        if (n > MD_HUB_NAME_MAX - 32 || !md_hub_plain_name(name, n)) continue; // nothing that the program reads
        if (json_object_set_new(p->names, name, json_true()) != 0)
            return md_fail(err, MD_E_MEMORY, "%s: out of memory for the list of files", repo);
    }
    return MD_OK;
}

static md_status read_listing(pull *p, md_error *err) {
    const char *repo = p->request->repo, *what = "its description";
    char url[MAX_URL_BYTES];
    md_buf body;
    md_buf_init(&body, max_listing_bytes);
    char *escaped = curl_easy_escape(p->http.curl, p->revision, 0);
    int n = snprintf(url, sizeof url, "%s/api/models/%s/revision/%s", p->http.endpoint, repo, escaped ? escaped : "");
    curl_free(escaped);
    md_status status = MD_OK;
    if (!escaped || n < 0 || n >= (int)sizeof url) {
        status = md_fail(err, MD_E_USAGE, "%s: a URL of over %d bytes", repo, MAX_URL_BYTES);
        goto fail;
    }
    MD_TRY_GOTO(md_hub_http_get(&p->http, url, what, &body, err));
    MD_TRY_GOTO(
        md_json_parse(md_buf_str(&body), body.size, false, "the hub's description of the model", &p->listing, err));
    const char *sha = json_string_value(json_object_get(p->listing, "sha"));
    if (!sha || !md_hub_is_hex(sha, 40)) {
        status = md_fail(err, MD_E_FORMAT,
                         "%s: its description's \"sha\" is \"%.80s\", expected a commit's 40 hex "
                         "digits",
                         repo, sha ? sha : "");
        goto fail;
    }
    memcpy(p->out->commit, sha, sizeof p->out->commit);
    MD_TRY_GOTO(read_names(p, err));
fail:
    md_buf_free(&body);
    return status;
}

// ---- which of it is needed ---------------------------------------------------------------------------------------

// Appends a file with its hash and size, as the answer to a HEAD request gives them.
static md_status add_file(pull *p, const char *name, md_error *err) {
    const char *repo = p->request->repo;
    md_hub_snapshot *out = p->out;
    char url[MAX_URL_BYTES];
    md_hub_reply reply;
    long http_status = 0;
    if (out->count == MAX_FILES) return md_fail(err, MD_E_FORMAT, "%s: over %d files", repo, MAX_FILES);
    int n = snprintf(url, sizeof url, "%s/%s/resolve/%s/%s", p->http.endpoint, repo, out->commit, name);
    if (n < 0 || n >= (int)sizeof url)
        return md_fail(err, MD_E_USAGE, "%s: a URL of over %d bytes", repo, MAX_URL_BYTES);
    MD_TRY(md_hub_http_head(&p->http, url, name, &reply, &http_status, err));
    const char *etag = reply.linked_etag[0] ? reply.linked_etag : reply.etag;
    bool has_size = reply.has_linked_size || (http_status < 300 && reply.has_length);
    uint64_t size = reply.has_linked_size ? reply.linked_size : reply.length;
    if (!md_hub_is_etag(etag))
        return md_fail(err, MD_E_FORMAT, "%s: %s: its etag is \"%.80s\", expected a SHA-256 or a git hash", repo, name,
                       etag);
    if (!has_size) return md_fail(err, MD_E_FORMAT, "%s: %s: the server does not tell its size", repo, name);
    if (!is_weights(name) && size > max_small_bytes)
        return md_fail(err, MD_E_FORMAT, "%s: %s: %" PRIu64 " bytes, at most %" PRIu64 " expected", repo, name, size,
                       max_small_bytes);
    if (reply.commit[0] && strcmp(reply.commit, out->commit) != 0)
        return md_fail(err, MD_E_FORMAT, "%s: %s: is of commit %.40s, expected %s", repo, name, reply.commit,
                       out->commit);
    md_hub_file *files = realloc(out->files, (out->count + 1) * sizeof *files);
    if (!files) return md_fail(err, MD_E_MEMORY, "%s: out of memory for the list of files", repo);
    out->files = files;
    md_hub_file *file = &files[out->count++];
    *file = (md_hub_file){.size = size};
    memcpy(file->name, name, strlen(name) + 1);
    memcpy(file->etag, etag, strlen(etag) + 1);
    return MD_OK;
}

static md_status download(pull *p, md_hub_file *files, size_t count, bool quiet, md_error *err) {
    const md_hub_request *request = p->request;
    const md_hub_downloads what = {.http = &p->http,
                                   .cache = &p->cache,
                                   .commit = p->out->commit,
                                   .parallel = request->parallel ? request->parallel : PARALLEL_DEFAULT,
                                   .progress = quiet ? NULL : request->progress,
                                   .user = request->user};
    return md_hub_download(&what, files, count, err);
}

// The files that the index (the first of the files, which is fetched for that) spreads the weights over.
static md_status add_indexed_weights(pull *p, md_error *err) {
    const char *repo = p->request->repo;
    char *path = NULL;
    json_t *index = NULL, *seen = json_object();
    md_status status;
    MD_TRY_GOTO(add_file(p, index_name, err));
    md_hub_file *file = &p->out->files[p->out->count - 1];
    MD_TRY_GOTO(download(p, file, 1, true, err));
    MD_TRY_GOTO(md_hub_cache_path(&p->cache, &path, err, "blobs/%s", file->etag));
    MD_TRY_GOTO(md_json_read_file(path, max_index_bytes, &index, err));
    const char *tensor;
    json_t *entry;
    json_object_foreach(json_object_get(index, "weight_map"), tensor, entry) {
        const char *name = json_string_value(entry);
        if (name && json_object_get(seen, name)) continue;
        if (!name || !ends_with(name, ".safetensors") || !json_object_get(p->names, name)) {
            status = md_fail(err, MD_E_FORMAT,
                             "%s: %s: tensor %.100s is said to be in \"%.80s\", which is no weight "
                             "file of the model",
                             repo, index_name, tensor, name ? name : "");
            goto fail;
        }
        json_object_set_new(seen, name, json_true());
        MD_TRY_GOTO(add_file(p, name, err));
    }
fail:
    free(path);
    json_decref(index);
    json_decref(seen);
    return status;
}

static md_status add_needed_files(pull *p, md_error *err) {
    const char *repo = p->request->repo;
    if (!json_object_get(p->names, "config.json"))
        return md_fail(err, MD_E_UNSUPPORTED, "%s: has no config.json: not a model in the safetensors format", repo);
    size_t before = 0;
    if (json_object_get(p->names, index_name)) {
        MD_TRY(add_indexed_weights(p, err));
        before = 1; // the index
    } else {
        const char *name;
        const json_t *value;
        json_object_foreach(p->names, name, value) {
            if (is_weights(name)) MD_TRY(add_file(p, name, err));
        }
    }
    if (p->out->count == before)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: has no weights: neither model*.safetensors nor an index of them",
                       repo);
    for (size_t i = 0; i < sizeof small_names / sizeof *small_names; i++)
        if (json_object_get(p->names, small_names[i])) MD_TRY(add_file(p, small_names[i], err));
    return MD_OK;
}

// ---- all of it ---------------------------------------------------------------------------------------------------

static uint64_t bytes_there(const pull *p, const md_hub_file *file) {
    static const char *const endings[] = {"", ".incomplete"};
    for (size_t i = 0; i < 2; i++) {
        char *path = NULL;
        struct stat st;
        if (md_hub_cache_path(&p->cache, &path, NULL, "blobs/%s%s", file->etag, endings[i]) != MD_OK) return 0;
        bool there = stat(path, &st) == 0;
        free(path);
        if (there) return (uint64_t)st.st_size < file->size ? (uint64_t)st.st_size : file->size;
    }
    return 0;
}

// Whether what is missing has room and is wanted.
static md_status check_missing(const pull *p, md_error *err) {
    const md_hub_request *request = p->request;
    uint64_t needed = 0, room = md_hub_cache_free_bytes(&p->cache);
    size_t files = 0;
    for (size_t i = 0; i < p->out->count; i++) {
        const md_hub_file *file = &p->out->files[i];
        uint64_t more = file->size - bytes_there(p, file);
        needed = needed + more < needed ? UINT64_MAX : needed + more;
        files += more > 0;
    }
    if (needed > room)
        return md_fail(err, MD_E_IO, "%s: needs %" PRIu64 " MB more, but %s has %" PRIu64 " MB free", request->repo,
                       needed / 1000000 + 1, p->cache.dir, room / 1000000);
    if (!files || !request->confirm || request->confirm(request->user, files, needed)) return MD_OK;
    for (size_t i = 0; i < p->out->count; i++) // the index, which had to be read
        if (p->out->files[i].received) md_hub_cache_remove(&p->cache, p->out->files[i].etag);
    md_hub_cache_discard(&p->cache);
    return md_fail(err, MD_E_CANCELLED, "%s: not downloaded", request->repo);
}

static md_status link_snapshot(pull *p, md_error *err) {
    md_hub_snapshot *out = p->out;
    for (size_t i = 0; i < out->count; i++) {
        const md_hub_file *file = &out->files[i];
        MD_TRY(md_hub_cache_link(&p->cache, out->commit, file->name, file->etag, err));
        out->bytes += file->size;
        out->received += file->received;
    }
    MD_TRY(md_hub_cache_ref(&p->cache, p->revision, out->commit, err));
    return md_hub_cache_path(&p->cache, &out->dir, err, "snapshots/%s", out->commit);
}

bool md_hub_offline(void) { return md_env("HF_HUB_OFFLINE") && strcmp(md_env("HF_HUB_OFFLINE"), "0") != 0; }

static md_status check_request(const pull *p, md_error *err) {
    if (!md_hub_is_repo_id(p->request->repo))
        return md_fail(err, MD_E_USAGE, "\"%.100s\": expected a model's name like org/name", p->request->repo);
    if (!is_revision(p->revision))
        return md_fail(err, MD_E_USAGE, "revision \"%.100s\": expected the name of a branch or tag, or a commit",
                       p->revision);
    if (md_hub_offline()) return md_fail(err, MD_E_USAGE, "%s: HF_HUB_OFFLINE is set", p->request->repo);
    return MD_OK;
}

md_status md_hub_pull(const md_hub_request *request, md_hub_snapshot *out, md_error *err) {
    pull p = {.request = request, .revision = request->revision ? request->revision : "main", .out = out};
    double began = md_clock_seconds();
    *out = (md_hub_snapshot){0};
    MD_TRY(check_request(&p, err));
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return md_fail(err, MD_E_INTERNAL, "libcurl cannot be initialized");
    md_status status;
    MD_TRY_GOTO(md_hub_http_open(&p.http, request->repo, p.revision, err));
    p.http.cancelled = request->cancelled;
    MD_TRY_GOTO(read_listing(&p, err));
    MD_TRY_GOTO(md_hub_cache_open(&p.cache, request->repo, err));
    MD_TRY_GOTO(add_needed_files(&p, err));
    MD_TRY_GOTO(check_missing(&p, err));
    MD_TRY_GOTO(download(&p, out->files, out->count, false, err));
    MD_TRY_GOTO(link_snapshot(&p, err));
    out->seconds = md_clock_seconds() - began;
fail:
    if (status != MD_OK) md_hub_snapshot_free(out);
    json_decref(p.names);
    json_decref(p.listing);
    md_hub_cache_close(&p.cache);
    md_hub_http_close(&p.http);
    curl_global_cleanup();
    return status;
}

void md_hub_snapshot_free(md_hub_snapshot *snapshot) {
    free(snapshot->dir);
    free(snapshot->files);
    *snapshot = (md_hub_snapshot){0};
}
