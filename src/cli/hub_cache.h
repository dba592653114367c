// The local side of a pull: the folders of the hub cache (base/hubdir.h has the layout), its locks, links and refs, and
// the file that holds the user's token. Everything that appears under snapshots/ and refs/ appears whole (rename).
// One thread at a time for each cache; other processes are kept off a blob by its lock.
#ifndef MD_CLI_HUB_CACHE_H
#define MD_CLI_HUB_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { MD_HUB_PATH_MAX = 4096, MD_HUB_NAME_MAX = 255 };

typedef struct md_hub_cache {
    char *dir;   // $CACHE/models--ORG--NAME; owned
    char *locks; // $CACHE/.locks/models--ORG--NAME; owned
} md_hub_cache;

// Makes the folders where they are missing. `repo` is a checked repo id.
md_status md_hub_cache_open(md_hub_cache *cache, const char *repo, md_error *err);
void md_hub_cache_remove(const md_hub_cache *cache, const char *etag); // a blob
// Removes the folders that hold nothing: as if the cache had not been opened, where it was new.
void md_hub_cache_discard(const md_hub_cache *cache);
void md_hub_cache_close(md_hub_cache *cache);

// A path in the repository's folder, malloc'd: blobs/ETAG, blobs/ETAG.incomplete, snapshots/COMMIT.
md_status md_hub_cache_path(const md_hub_cache *cache, char **out, md_error *err, const char *fmt, ...) MD_PRINTF(4, 5);

// Takes the lock that huggingface_hub takes too for this blob. *fd >= 0: held, to be closed; -1: another process has
// it.
md_status md_hub_cache_lock(const md_hub_cache *cache, const char *etag, int *fd, md_error *err);

// snapshots/COMMIT/NAME -> ../../blobs/ETAG; replaces what is there.
md_status md_hub_cache_link(const md_hub_cache *cache, const char *commit, const char *name, const char *etag,
                            md_error *err);

// refs/REVISION := COMMIT; nothing where the revision is the commit itself. Revisions may hold '/' between plain names.
md_status md_hub_cache_ref(const md_hub_cache *cache, const char *revision, const char *commit, md_error *err);

uint64_t md_hub_cache_free_bytes(const md_hub_cache *cache); // UINT64_MAX where the system does not say

// HF_TOKEN, else the text of HF_TOKEN_PATH or of $HF_HOME/token: malloc'd; NULL where there is none. A token that could
// not stand in a header line is MD_E_FORMAT.
md_status md_hub_token(char **token, md_error *err);

#endif
