#define _DEFAULT_SOURCE // flock
#include "cli/hub_cache.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hubdir.h"

static md_status take_path(md_buf *path, char **out, md_error *err) {
    *out = path->failed ? NULL : md_buf_take(path);
    md_buf_free(path);
    if (*out) return MD_OK;
    return md_fail(err, MD_E_USAGE, "hub cache: a path of over %d bytes (or out of memory)", MD_HUB_PATH_MAX);
}

static md_status make_subfolder(const md_hub_cache *cache, const char *name, md_error *err) {
    char *path = NULL;
    MD_TRY(md_hub_cache_path(cache, &path, err, "%s", name));
    md_status status = md_dir_make(path, 0777, err);
    free(path);
    return status;
}

md_status md_hub_cache_open(md_hub_cache *cache, const char *repo, md_error *err) {
    *cache = (md_hub_cache){0};
    md_status status;
    md_buf path;
    md_buf_init(&path, MD_HUB_PATH_MAX);
    md_hub_append_cache(&path);
    md_buf_putc(&path, '/');
    md_hub_append_folder(&path, repo);
    MD_TRY_GOTO(take_path(&path, &cache->dir, err));
    md_buf_init(&path, MD_HUB_PATH_MAX);
    md_hub_append_cache(&path);
    md_buf_puts(&path, "/.locks/");
    md_hub_append_folder(&path, repo);
    MD_TRY_GOTO(take_path(&path, &cache->locks, err));
    MD_TRY_GOTO(md_dir_make(cache->locks, 0777, err));
    MD_TRY_GOTO(make_subfolder(cache, "blobs", err));
    MD_TRY_GOTO(make_subfolder(cache, "refs", err));
    MD_TRY_GOTO(make_subfolder(cache, "snapshots", err));
    return MD_OK;
fail:
    md_hub_cache_close(cache);
    return status;
}

void md_hub_cache_remove(const md_hub_cache *cache, const char *etag) {
    char *path = NULL;
    if (md_hub_cache_path(cache, &path, NULL, "blobs/%s", etag) == MD_OK) unlink(path);
    free(path);
}

void md_hub_cache_discard(const md_hub_cache *cache) {
    static const char *const names[] = {"blobs", "refs", "snapshots"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = md_path_join(cache->dir, names[i]);
        if (path) rmdir(path); // fails where there is something in it
        free(path);
    }
    rmdir(cache->dir);
    rmdir(cache->locks);
}

void md_hub_cache_close(md_hub_cache *cache) {
    free(cache->dir);
    free(cache->locks);
    *cache = (md_hub_cache){0};
}

md_status md_hub_cache_path(const md_hub_cache *cache, char **out, md_error *err, const char *fmt, ...) {
    char name[MD_HUB_PATH_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    *out = NULL;
    if (n < 0 || n >= (int)sizeof name) return md_fail(err, MD_E_USAGE, "%s: a path too long", cache->dir);
    *out = md_path_join(cache->dir, name);
    return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "%s: out of memory", cache->dir);
}

md_status md_hub_cache_lock(const md_hub_cache *cache, const char *etag, int *fd, md_error *err) {
    char path[MD_HUB_PATH_MAX];
    *fd = -1;
    int n = snprintf(path, sizeof path, "%s/%s.lock", cache->locks, etag);
    if (n < 0 || n >= (int)sizeof path) return md_fail(err, MD_E_USAGE, "%s: a path too long", cache->locks);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return md_fail(err, MD_E_IO, "%s: cannot open the lock: %s", path, strerror(errno));
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
        *fd = file;
        return MD_OK;
    }
    int code = errno;
    close(file);
    if (code == EWOULDBLOCK) return MD_OK;
    return md_fail(err, MD_E_IO, "%s: cannot lock: %s", path, strerror(code));
}

md_status md_hub_cache_link(const md_hub_cache *cache, const char *commit, const char *name, const char *etag,
                            md_error *err) {
    char target[MD_HUB_NAME_MAX + 1];
    char folder[MD_HUB_NAME_MAX + 1];
    char *path = NULL, *temp = NULL;
    snprintf(target, sizeof target, "../../blobs/%s", etag);
    snprintf(folder, sizeof folder, "snapshots/%s", commit);
    md_status status;
    MD_TRY_GOTO(make_subfolder(cache, folder, err));
    MD_TRY_GOTO(md_hub_cache_path(cache, &path, err, "%s/%s", folder, name));
    MD_TRY_GOTO(md_hub_cache_path(cache, &temp, err, "%s/.%s.%ld", folder, name, (long)getpid()));
    unlink(temp); // left by a process of the same id that was killed
    if (symlink(target, temp) != 0 || rename(temp, path) != 0) {
        status = md_fail(err, MD_E_IO, "%s: cannot make the link: %s", path, strerror(errno));
        unlink(temp);
    }
fail:
    free(path);
    free(temp);
    return status;
}

md_status md_hub_cache_ref(const md_hub_cache *cache, const char *revision, const char *commit, md_error *err) {
    if (strcmp(revision, commit) == 0) return MD_OK;
    char *path = NULL;
    MD_TRY(md_hub_cache_path(cache, &path, err, "refs/%s", revision));
    char *slash = strrchr(path, '/');
    *slash = 0;
    md_status status = md_dir_make(path, 0777, err);
    *slash = '/';
    if (status == MD_OK) status = md_file_write_atomic(path, commit, strlen(commit), err);
    free(path);
    return status;
}

uint64_t md_hub_cache_free_bytes(const md_hub_cache *cache) {
    struct statvfs fs;
    if (statvfs(cache->dir, &fs) != 0) return UINT64_MAX;
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

// ---- the token ---------------------------------------------------------------------------------------------------

static md_status token_path(char **out, md_error *err) {
    md_buf path;
    md_buf_init(&path, MD_HUB_PATH_MAX);
    if (md_env("HF_TOKEN_PATH")) {
        md_buf_puts(&path, md_env("HF_TOKEN_PATH"));
    } else {
        md_hub_append_home(&path);
        md_buf_puts(&path, "/token");
    }
    return take_path(&path, out, err);
}

// `text` without the spaces around it, checked: a control character in it would end the header line it stands in.
static md_status checked_token(const char *text, const char *source, char **token, md_error *err) {
    while (isspace((unsigned char)*text)) text++;
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
    if (n == 0) return MD_OK;
    for (size_t i = 0; i < n; i++)
        if (!isgraph((unsigned char)text[i]) || (unsigned char)text[i] >= 128)
            return md_fail(err, MD_E_FORMAT, "%s: does not hold a token (letters, digits and signs only)", source);
    *token = strndup(text, n);
    return *token ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory for the token");
}

md_status md_hub_token(char **token, md_error *err) {
    enum { MAX_TOKEN_BYTES = 4096 };
    *token = NULL;
    if (md_env("HF_TOKEN")) return checked_token(md_env("HF_TOKEN"), "HF_TOKEN", token, err);
    char *path = NULL, *text = NULL;
    md_status status;
    MD_TRY_GOTO(token_path(&path, err));
    if (md_path_absent(path)) goto fail;
    MD_TRY_GOTO(md_file_read_all(path, MAX_TOKEN_BYTES, &text, NULL, err));
    MD_TRY_GOTO(checked_token(text, path, token, err));
fail:
    free(path);
    free(text);
    return status;
}
