#include "cli/hub_blob.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static md_status fail_errno(md_error *err, const md_hub_blob *blob, const char *what) {
    int code = errno;
    if (code == ENOSPC || code == EDQUOT)
        return md_fail(err, MD_E_IO, "%s: the disk is full at %" PRIu64 " of %" PRIu64 " bytes (%s)", blob->name,
                       blob->have, blob->size, blob->partial);
    return md_fail(err, MD_E_IO, "%s: %s: %s", blob->partial, what, strerror(code));
}

md_status md_hub_blob_restart(md_hub_blob *blob, md_error *err) {
    if (ftruncate(blob->fd, 0) != 0 || lseek(blob->fd, 0, SEEK_SET) != 0)
        return fail_errno(err, blob, "cannot be emptied");
    blob->have = 0;
    md_hub_hash_begin(&blob->hash, blob->etag, blob->size);
    return MD_OK;
}

// Hashes the bytes that are there; the file offset ends behind them.
static md_status read_partial(md_hub_blob *blob, md_error *err) {
    enum { CHUNK = 1 << 18 };
    struct stat st;
    if (fstat(blob->fd, &st) != 0) return fail_errno(err, blob, "cannot stat");
    if (!S_ISREG(st.st_mode)) return md_fail(err, MD_E_IO, "%s: not a regular file", blob->partial);
    md_hub_hash_begin(&blob->hash, blob->etag, blob->size);
    if ((uint64_t)st.st_size > blob->size) return md_hub_blob_restart(blob, err);
    char *chunk = malloc(CHUNK);
    if (!chunk) return md_fail(err, MD_E_MEMORY, "%s: out of memory", blob->name);
    ssize_t got = 0;
    while (blob->have < (uint64_t)st.st_size && (got = read(blob->fd, chunk, CHUNK)) > 0) {
        md_hub_hash_add(&blob->hash, chunk, (size_t)got);
        blob->have += (uint64_t)got;
    }
    free(chunk);
    return got < 0 ? fail_errno(err, blob, "cannot read") : MD_OK;
}

md_status md_hub_blob_begin(md_hub_blob *blob, const md_hub_cache *cache, const char *name, const char *etag,
                            uint64_t size, bool *complete, md_error *err) {
    *blob = (md_hub_blob){.name = name, .etag = etag, .size = size, .fd = -1, .lock = -1};
    struct stat st;
    md_status status;
    MD_TRY_GOTO(md_hub_cache_path(cache, &blob->path, err, "blobs/%s", etag));
    MD_TRY_GOTO(md_hub_cache_path(cache, &blob->partial, err, "blobs/%s.incomplete", etag));
    MD_TRY_GOTO(md_hub_cache_lock(cache, etag, &blob->lock, err));
    if (blob->lock < 0) {
        status = md_fail(err, MD_E_IO, "%s: another process is downloading it (it holds %s/%s.lock)", name,
                         cache->locks, etag);
        goto fail;
    }
    *complete = stat(blob->path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size;
    if (*complete) return MD_OK;
    blob->fd = open(blob->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (blob->fd < 0) {
        status = fail_errno(err, blob, "cannot open");
        goto fail;
    }
    MD_TRY_GOTO(read_partial(blob, err));
    return MD_OK;
fail:
    md_hub_blob_close(blob);
    return status;
}

md_status md_hub_blob_add(md_hub_blob *blob, const void *bytes, size_t n, md_error *err) {
    if (n > blob->size - blob->have)
        return md_fail(err, MD_E_FORMAT, "%s: the server sends more than the %" PRIu64 " bytes it announced",
                       blob->name, blob->size);
    const char *at = bytes;
    while (n > 0) {
        ssize_t put = write(blob->fd, at, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_errno(err, blob, "cannot write");
        md_hub_hash_add(&blob->hash, at, (size_t)put);
        blob->have += (uint64_t)put;
        at += put;
        n -= (size_t)put;
    }
    return MD_OK;
}

md_status md_hub_blob_finish(md_hub_blob *blob, md_error *err) {
    char found[MD_HUB_ETAG_MAX + 1];
    md_hub_hash hash = blob->hash;
    md_hub_hash_end(&hash, found);
    if (strcmp(found, blob->etag) != 0) {
        MD_TRY(md_hub_blob_restart(blob, err));
        return md_fail(err, MD_E_FORMAT, "%s: its %s is %s, expected %s (damaged on the way?)", blob->name,
                       hash.sha256 ? "SHA-256" : "git hash", found, blob->etag);
    }
    if (fsync(blob->fd) != 0) return fail_errno(err, blob, "cannot sync");
    if (rename(blob->partial, blob->path) != 0) return fail_errno(err, blob, "cannot be renamed to its hash");
    return MD_OK;
}

void md_hub_blob_close(md_hub_blob *blob) {
    if (blob->fd >= 0) close(blob->fd);
    if (blob->lock >= 0) close(blob->lock);
    free(blob->path);
    free(blob->partial);
    *blob = (md_hub_blob){.fd = -1, .lock = -1};
}
