// Files: read with limits, read at an offset, written whole or not at all. All paths are UTF-8 bytes as given.
#ifndef MD_BASE_FILE_H
#define MD_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// "path: what: why", where why is errno's: MD_E_NOT_FOUND, MD_E_MEMORY or MD_E_IO.
md_status md_fail_errno(md_error *err, const char *what, const char *path);

// Reads a whole regular file into a malloc'd, NUL-terminated buffer (*out owned by the caller). Refuses files larger
// than `max` bytes. MD_E_NOT_FOUND where there is none, MD_E_IO otherwise; the message names the path.
md_status md_file_read_all(const char *path, size_t max, char **out, size_t *out_size, md_error *err);

// Writes `n` bytes to a temporary file beside `path`, fsyncs, and renames it over `path`: whole or not at all.
md_status md_file_write_atomic(const char *path, const void *bytes, size_t n, md_error *err);
// The same, and its owner alone may read it.
md_status md_file_write_private(const char *path, const void *bytes, size_t n, md_error *err);

bool md_file_exists(const char *path);
// Something has this name, be it a folder, a pipe or a dangling link.
bool md_path_present(const char *path);
// Nothing has this name, as far as anybody can tell: what is there but no regular file, or in a folder that may not be
// searched, is for the reader to refuse with its reason, not to be taken as absent.
bool md_path_absent(const char *path);
bool md_dir_exists(const char *path);
// MD_OK where the path is a folder; MD_E_NOT_FOUND where nothing has this name, MD_E_IO with the reason where it is
// something else or can't be told.
md_status md_dir_check(const char *path, md_error *err);

// Makes the folder and what is missing above it (mkdir -p), each with `mode` less the umask. MD_E_IO, MD_E_USAGE (a
// path of over 4,096 bytes).
md_status md_dir_make(const char *path, unsigned mode, md_error *err);

// "dir/name" in a malloc'd string; NULL when out of memory.
char *md_path_join(const char *dir, const char *name);

// An open file that is read at offsets (pread): a file truncated after opening gives a short-read error, never SIGBUS.
typedef struct md_file {
    int fd;        // -1 when closed
    uint64_t size; // bytes at the time of opening
    char *path;    // owned, for messages
} md_file;

md_status md_file_open(md_file *file, const char *path, md_error *err);
void md_file_close(md_file *file);
// Reads exactly n bytes at `offset`, or fails with MD_E_IO (short file, I/O error), naming the path. Thread-safe.
md_status md_file_pread(const md_file *file, uint64_t offset, void *out, size_t n, md_error *err);

#endif
