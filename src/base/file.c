#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FOLDER = 4096 };

md_status md_fail_errno(md_error *err, const char *what, const char *path) {
    int code = errno;
    bool missing = code == ENOENT || code == ENOTDIR;
    return md_fail(err,
                   missing          ? MD_E_NOT_FOUND
                   : code == ENOMEM ? MD_E_MEMORY
                                    : MD_E_IO,
                   "%s: %s: %s", path, what, strerror(code));
}

md_status md_file_open(md_file *file, const char *path, md_error *err) {
    *file = (md_file){.fd = -1};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return md_fail_errno(err, "cannot open", path);
    struct stat st;
    if (fstat(fd, &st) != 0) {
        md_status status = md_fail_errno(err, "cannot stat", path);
        close(fd);
        return status;
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return md_fail(err, MD_E_IO, "%s: not a regular file", path);
    }
    file->path = strdup(path);
    if (!file->path) {
        close(fd);
        return md_fail(err, MD_E_MEMORY, "%s: out of memory", path);
    }
    file->fd = fd;
    file->size = (uint64_t)st.st_size;
    return MD_OK;
}

void md_file_close(md_file *file) {
    if (file->fd >= 0) close(file->fd);
    free(file->path);
    *file = (md_file){.fd = -1};
}

md_status md_file_pread(const md_file *file, uint64_t offset, void *out, size_t n, md_error *err) {
    char *at = out;
    while (n > 0) {
        size_t want = n < ((size_t)1 << 30) ? n : (size_t)1 << 30;
        ssize_t got = pread(file->fd, at, want, (off_t)offset);
        if (got < 0) {
            if (errno == EINTR) continue;
            return md_fail_errno(err, "cannot read", file->path);
        }
        if (got == 0)
            return md_fail(err, MD_E_IO, "%s: file ends at byte %llu, %zu more expected (was it truncated?)",
                           file->path, (unsigned long long)offset, n);
        at += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return MD_OK;
}

md_status md_file_read_all(const char *path, size_t max, char **out, size_t *out_size, md_error *err) {
    *out = NULL;
    if (out_size) *out_size = 0;
    md_file file;
    MD_TRY(md_file_open(&file, path, err));
    md_status status = MD_OK;
    char *data = NULL;
    if (file.size > max) {
        status =
            md_fail(err, MD_E_FORMAT, "%s: %llu bytes, at most %zu expected", path, (unsigned long long)file.size, max);
        goto fail;
    }
    data = malloc((size_t)file.size + 1);
    if (!data) {
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory for %llu bytes", path, (unsigned long long)file.size);
        goto fail;
    }
    MD_TRY_GOTO(md_file_pread(&file, 0, data, (size_t)file.size, err));
    data[file.size] = 0;
    *out = data;
    if (out_size) *out_size = (size_t)file.size;
    md_file_close(&file);
    return MD_OK;
fail:
    free(data);
    md_file_close(&file);
    return status;
}

static md_status write_fully(int fd, const void *bytes, size_t n, const char *path, md_error *err) {
    const char *at = bytes;
    while (n > 0) {
        ssize_t put = write(fd, at, n);
        if (put < 0) {
            if (errno == EINTR) continue;
            return md_fail_errno(err, "cannot write", path);
        }
        at += put;
        n -= (size_t)put;
    }
    return MD_OK;
}

static md_status write_atomic(const char *path, const void *bytes, size_t n, mode_t mode, md_error *err) {
    size_t len = strlen(path) + 16;
    char *temp = malloc(len);
    if (!temp) return md_fail(err, MD_E_MEMORY, "%s: out of memory", path);
    snprintf(temp, len, "%s.tmpXXXXXX", path);
    md_status status;
    int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) {
        status = md_fail_errno(err, "cannot create", path);
        free(temp);
        return status;
    }
    fchmod(fd, mode);
    MD_TRY_GOTO(write_fully(fd, bytes, n, path, err));
    if (fsync(fd) != 0) {
        status = md_fail_errno(err, "cannot sync", path);
        goto fail;
    }
    if (close(fd) != 0) {
        fd = -1;
        status = md_fail_errno(err, "cannot close", path);
        goto fail;
    }
    fd = -1;
    if (rename(temp, path) != 0) {
        status = md_fail_errno(err, "cannot rename over", path);
        goto fail;
    }
    free(temp);
    return MD_OK;
fail:
    if (fd >= 0) close(fd);
    unlink(temp);
    free(temp);
    return status;
}

md_status md_file_write_atomic(const char *path, const void *bytes, size_t n, md_error *err) {
    return write_atomic(path, bytes, n, 0644, err);
}

md_status md_file_write_private(const char *path, const void *bytes, size_t n, md_error *err) {
    return write_atomic(path, bytes, n, 0600, err);
}

bool md_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool md_path_present(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

bool md_path_absent(const char *path) {
    struct stat st;
    return lstat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool md_dir_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

md_status md_dir_check(const char *path, md_error *err) {
    struct stat st;
    if (stat(path, &st) != 0) return md_fail_errno(err, "cannot open", path);
    return S_ISDIR(st.st_mode) ? MD_OK : md_fail(err, MD_E_IO, "%s: not a folder", path);
}

char *md_path_join(const char *dir, const char *name) {
    size_t a = strlen(dir), b = strlen(name);
    char *out = malloc(a + b + 2);
    if (!out) return NULL;
    memcpy(out, dir, a);
    size_t at = a;
    if (a && dir[a - 1] != '/') out[at++] = '/';
    memcpy(out + at, name, b + 1);
    return out;
}

md_status md_dir_make(const char *path, unsigned mode, md_error *err) {
    char part[MAX_FOLDER + 1];
    size_t n = strlen(path);
    if (n > MAX_FOLDER) return md_fail(err, MD_E_USAGE, "%.80s...: a path of %zu bytes", path, n);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != 0) continue;
        char kept = part[i];
        part[i] = 0;
        if (mkdir(part, (mode_t)mode) != 0 && errno != EEXIST)
            return md_fail(err, MD_E_IO, "%s: cannot make the folder: %s", part, strerror(errno));
        part[i] = kept;
    }
    if (!md_dir_exists(path)) return md_fail(err, MD_E_IO, "%s: is in the way of a folder of that name", path);
    return MD_OK;
}
