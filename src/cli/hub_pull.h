// Pulls a model: lists a repository's files, picks those that this program reads, downloads them into the hub cache and
// links them into a snapshot, which appears only once it is complete. One pull at a time in a process.
#ifndef MD_CLI_HUB_PULL_H
#define MD_CLI_HUB_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/hub_download.h"

typedef struct md_hub_request {
    const char *repo;        // "org/name"
    const char *revision;    // branch, tag or commit; NULL: "main"
    unsigned parallel;       // transfers at once; 0: the default
    bool (*cancelled)(void); // may be NULL
    // Asked once it is known what is missing, before any weights come: that many files and bytes. False: the cache is
    // left as it was (MD_E_CANCELLED). May be NULL.
    bool (*confirm)(void *user, size_t files, uint64_t bytes);
    void (*progress)(void *user, const md_hub_progress *now); // may be NULL
    void *user;
} md_hub_request;

typedef struct md_hub_snapshot {
    char commit[41];
    char *dir; // the folder with the files; owned
    md_hub_file *files;
    size_t count;
    uint64_t bytes, received; // of all files; over the network
    double seconds;
} md_hub_snapshot;

// Fills *out (for md_hub_snapshot_free) with what is on the disk afterwards. Errors as md_hub_download's, and
// MD_E_USAGE for a name or revision that cannot be one, MD_E_UNSUPPORTED for a repository without safetensors weights.
md_status md_hub_pull(const md_hub_request *request, md_hub_snapshot *out, md_error *err);
bool md_hub_offline(void); // HF_HUB_OFFLINE is set: md_hub_pull refuses
void md_hub_snapshot_free(md_hub_snapshot *snapshot);

#endif
