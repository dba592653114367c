// One blob on its way: the file blobs/ETAG.incomplete with the hash of what it holds so far.
// One thread at a time; other processes are kept off by the blob's lock, which is held from begin to end.
#ifndef MD_CLI_HUB_BLOB_H
#define MD_CLI_HUB_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/hub_cache.h"
#include "cli/hub_hash.h"

typedef struct md_hub_blob {
    const char *name, *etag; // of the file, for messages, and of the blob; borrowed
    uint64_t size;           // bytes it must have
    uint64_t have;           // bytes written and hashed
    md_hub_hash hash;
    int fd, lock; // -1: closed
    char *path, *partial;
} md_hub_blob;

// Locks the blob and opens what an earlier download has left of it, which is read and hashed. *complete: the blob is
// there already. Another process that holds the lock is MD_E_IO.
md_status md_hub_blob_begin(md_hub_blob *blob, const md_hub_cache *cache, const char *name, const char *etag,
                            uint64_t size, bool *complete, md_error *err);
md_status md_hub_blob_restart(md_hub_blob *blob, md_error *err); // forgets what is there
// Appends n bytes; more than `size` in all is MD_E_FORMAT, a full disk MD_E_IO.
md_status md_hub_blob_add(md_hub_blob *blob, const void *bytes, size_t n, md_error *err);
// With all bytes there: checks the hash, syncs, gives the blob its name. MD_E_FORMAT on another hash: the bytes are
// thrown away then.
md_status md_hub_blob_finish(md_hub_blob *blob, md_error *err);
void md_hub_blob_close(md_hub_blob *blob); // keeps the bytes

#endif
