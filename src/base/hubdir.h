// Where the Hugging Face hub cache keeps a repository on this machine, and which names may be put into its paths.
//
// Layout (huggingface_hub), shared with the Python programs that use it:
//   $CACHE/models--ORG--NAME/refs/REVISION              a commit's id, as text
//   $CACHE/models--ORG--NAME/blobs/ETAG                 a file's bytes
//   $CACHE/models--ORG--NAME/snapshots/COMMIT/FILE      a link to ../../blobs/ETAG
//   $CACHE/.locks/models--ORG--NAME/ETAG.lock           held (flock) while that blob is downloaded
// where $CACHE is HF_HUB_CACHE, or HF_HOME/hub, or XDG_CACHE_HOME/huggingface/hub, or ~/.cache/huggingface/hub.
// Thread-safe as long as nobody changes the environment.
#ifndef MD_BASE_HUBDIR_H
#define MD_BASE_HUBDIR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

// A name of n bytes out of the outside world that is safe as one part of a path: letters, digits and "-_." only, not
// hidden, so neither "." nor "..".
bool md_hub_plain_name(const char *name, size_t n);
bool md_hub_is_repo_id(const char *text); // "org/name", both plain names

// Appends $CACHE, and "models--ORG--NAME" of a repo id. Check buf->failed.
void md_hub_append_cache(md_buf *path);
void md_hub_append_folder(md_buf *path, const char *repo);
// Appends the folder that holds the hub's token file and, by default, the cache: HF_HOME or its default.
void md_hub_append_home(md_buf *path);

// The environment variable's value; NULL where it is missing or empty.
const char *md_env(const char *name);

#endif
