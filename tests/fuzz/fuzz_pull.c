// The input is what a hub answers to `megadecode pull`: the description of a repository, a NUL, the headers of every
// file (etag, linked etag, commit, size, each to its line's end), a NUL, the weights' index. The network is replaced by
// the functions below. Whatever the hub says, what is written lies inside the cache: snapshots/COMMIT holds links to
// blobs/, nothing else.
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hubdir.h"
#include "cli/hub_pull.h"
#include "fuzz/scratch.h"

static const char *listing, *headers, *headers_end, *index_text;
static size_t listing_size, index_size;

// ---- the network -------------------------------------------------------------------------------------------------

char *curl_easy_escape(CURL *curl, const char *text, int n) {
    (void)curl, (void)n;
    return strdup(text);
}
void curl_free(void *text) { free(text); }
CURLcode curl_global_init(long flags) {
    (void)flags;
    return CURLE_OK;
}
void curl_global_cleanup(void) {}

md_status md_hub_http_open(md_hub_http *http, const char *repo, const char *revision, md_error *err) {
    (void)err;
    *http = (md_hub_http){.repo = repo, .revision = revision, .endpoint = strdup("https://hub.example")};
    return MD_OK;
}

void md_hub_http_close(md_hub_http *http) { free(http->endpoint); }

md_status md_hub_http_get(md_hub_http *http, const char *url, const char *what, md_buf *body, md_error *err) {
    (void)http, (void)url, (void)what;
    return md_buf_append(body, listing, listing_size) == MD_OK ? MD_OK : md_fail(err, MD_E_MEMORY, "too large");
}

static void take_line(char *out, size_t room) {
    size_t n = strcspn(headers, "\n");
    if (n >= room) n = room - 1;
    memcpy(out, headers, n);
    out[n] = 0;
    headers += strcspn(headers, "\n");
    if (headers < headers_end) headers++;
}

md_status md_hub_http_head(md_hub_http *http, const char *url, const char *what, md_hub_reply *reply, long *status,
                           md_error *err) {
    (void)http, (void)url, (void)what, (void)err;
    char size[32];
    *reply = (md_hub_reply){0};
    take_line(reply->etag, sizeof reply->etag);
    take_line(reply->linked_etag, sizeof reply->linked_etag);
    take_line(reply->commit, sizeof reply->commit);
    take_line(size, sizeof size);
    reply->has_length = size[0] != 0;
    reply->length = strtoull(size, NULL, 0);
    *status = 200;
    return MD_OK;
}

// "Downloads" the index into every blob, where the files' names were found fit for a path.
md_status md_hub_download(const md_hub_downloads *what, md_hub_file *files, size_t count, md_error *err) {
    for (size_t i = 0; i < count; i++) {
        char *path;
        require(md_hub_plain_name(files[i].name, strlen(files[i].name)));
        require(md_hub_plain_name(files[i].etag, strlen(files[i].etag)));
        MD_TRY(md_hub_cache_path(what->cache, &path, err, "blobs/%s", files[i].etag));
        FILE *file = fopen(path, "wb");
        require(file != NULL && fwrite(index_text, 1, index_size, file) == index_size && fclose(file) == 0);
        free(path);
    }
    return MD_OK;
}

// ---- the target --------------------------------------------------------------------------------------------------

static void check_links(const char *dir) {
    DIR *folder = opendir(dir);
    require(folder != NULL);
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        char path[512], target[256] = {0};
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        require(readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "../../blobs/", 12) == 0);
        require(md_hub_plain_name(target + 12, strlen(target + 12)));
        unlink(path);
    }
    closedir(folder);
    rmdir(dir);
}

// Only the cache's own three folders, and in blobs/ plain files, which go so that they don't become many.
static void check_cache(const char *root) {
    char dir[256];
    snprintf(dir, sizeof dir, "%s/models--org--name/blobs", root);
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    if (folder) closedir(folder);
    folder = opendir(root);
    require(folder != NULL);
    while ((entry = readdir(folder)))
        require(entry->d_name[0] == '.' || strcmp(entry->d_name, "models--org--name") == 0);
    closedir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    const char *at = text;
    size_t headers_size;
    listing = next_part(&at, text + size, &listing_size);
    headers = next_part(&at, text + size, &headers_size);
    headers_end = headers + headers_size;
    index_text = at;
    index_size = (size_t)(text + size - at);
    setenv("HF_HUB_CACHE", scratch_dir(), 1);
    const md_hub_request request = {.repo = "org/name"};
    md_hub_snapshot snapshot;
    md_error err = {0};
    if (md_hub_pull(&request, &snapshot, &err) == MD_OK) {
        check_links(snapshot.dir);
        md_hub_snapshot_free(&snapshot);
    } else {
        require(err.message[0] != 0);
    }
    check_cache(scratch_dir());
    free(text);
    return 0;
}
