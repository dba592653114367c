// Downloads a list of files into the cache's blobs, several at once, on one thread.
//
// A blob grows as blobs/ETAG.incomplete and gets its name only once its size and its hash are right. What a cut, Ctrl-C
// or a killed process leaves is gone on with, by this program or by huggingface_hub, which uses the same name.
#ifndef MD_CLI_HUB_DOWNLOAD_H
#define MD_CLI_HUB_DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/hub_cache.h"
#include "cli/hub_hash.h"
#include "cli/hub_http.h"

typedef struct md_hub_file {
    char name[MD_HUB_NAME_MAX + 1]; // in the repository's top folder; a plain name
    char etag[MD_HUB_ETAG_MAX + 1]; // hash of the contents, and the blob's name
    uint64_t size;                  // bytes
    uint64_t resumed;               // bytes an earlier download had left
    uint64_t received;              // bytes that came over the network
    bool cached;                    // was complete before
} md_hub_file;

typedef struct md_hub_progress {
    uint64_t done, total; // bytes that are here, of all files
    uint64_t received;    // bytes that came over the network
    double seconds;       // since the download began
} md_hub_progress;

typedef struct md_hub_downloads {
    md_hub_http *http;
    const md_hub_cache *cache;
    const char *commit;                                       // the revision to read from
    unsigned parallel;                                        // transfers at once, 1 .. MD_HUB_PARALLEL_MAX
    void (*progress)(void *user, const md_hub_progress *now); // may be NULL
    void *user;
} md_hub_downloads;

enum { MD_HUB_PARALLEL_MAX = 16 };

// All files or an error; the first failure ends the others. MD_E_IO, MD_E_FORMAT (wrong size or hash), MD_E_NOT_FOUND,
// MD_E_CANCELLED, MD_E_MEMORY.
md_status md_hub_download(const md_hub_downloads *what, md_hub_file *files, size_t count, md_error *err);

#endif
