// The weight files of one snapshot: which they are, all open, and one table of their tensors by name.
//
// With model.safetensors.index.json its weight_map says which files there are; without it, every model*.safetensors of
// the folder is one (the rule of mlx-lm's loader). A file name out of an index must stay inside the folder.
#ifndef MD_MODEL_SHARDS_H
#define MD_MODEL_SHARDS_H

#include <stdbool.h>

#include "model/safetensors.h"

enum { MD_MAX_SHARDS = 1000 };

typedef struct md_named_tensor {
    const md_st_tensor *tensor;
    const md_file *file;
    uint64_t offset; // of its first byte in the file
    bool used;       // set by the snapshot when it takes the tensor
} md_named_tensor;

typedef struct md_snapshot_files {
    md_arena arena; // names, tables; the snapshot puts its own strings here too
    md_file *file;  // [files]
    size_t files;
    md_named_tensor *tensor; // [tensors], by name
    size_t tensors;
} md_snapshot_files;

// Opens every weight file of `dir` and reads its header. On failure nothing stays open.
md_status md_files_open(md_snapshot_files *files, const char *dir, md_error *err);
void md_files_close(md_snapshot_files *files);

md_named_tensor *md_files_find(md_snapshot_files *files, const char *name); // NULL: none of that name

#endif
