// Small random snapshots for tests: any shape, bits, groups, types, biases, RoPE.
//
//   mm_shape shape = MM_SHAPE;                  // a small valid model; change what the test is about
//   shape.bits = 3;
//   shape.quant = "\"lm_head\": false, \"model.layers.0.mlp.up_proj\": {\"bits\": 8, \"group_size\": 32}";
//   shape.extra = "\"attention_bias\": true, \"_synth\": {\"scales\": \"F16\", \"weights\": \"F32\"}";
//   char *dir = mm_make(&shape, 1);             // fails the test with the message when it cannot
//   ... md_snapshot_open(dir, ...) ...
//   mm_remove(dir);
//
// What "_synth" and the weights are: src/model/synth.h. Everything is written by md_synth_write.
#ifndef MD_TESTS_MODEL_MAKER_H
#define MD_TESTS_MODEL_MAKER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "md_test.h"
#include "model/synth.h"

typedef struct mm_shape {
    unsigned layers, hidden, ffn, vocab, q_heads, kv_heads, head_dim, context;
    unsigned bits, group; // defaults of the quantization block; bits 0: no block (bf16 matrices)
    bool tied;
    const char *quant; // more members of the quantization block, as JSON; NULL: none
    const char *extra; // more members of config.json, as JSON; NULL: none
    const char *kv;    // the whole of kv_config.json; NULL: none
} mm_shape;

#define MM_SHAPE                                                                                                       \
    ((mm_shape){.layers = 2,                                                                                           \
                .hidden = 128,                                                                                         \
                .ffn = 256,                                                                                            \
                .vocab = 320,                                                                                          \
                .q_heads = 4,                                                                                          \
                .kv_heads = 2,                                                                                         \
                .head_dim = 64,                                                                                        \
                .context = 512,                                                                                        \
                .bits = 4,                                                                                             \
                .group = 64})

// A new folder under TMPDIR (or /tmp); to be given to mm_remove.
static inline char *mm_temp_dir(void) {
    const char *tmp = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/megadecode-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(path)) fail_msg("cannot create %s", path);
    return strdup(path);
}

// Removes a folder of files (no folders within) and frees its path.
static inline void mm_remove(char *dir) {
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (entry->d_name[0] != '.') unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder) closedir(folder);
    rmdir(dir);
    free(dir);
}

// Files and folders in a folder but for those whose name begins with a dot.
static inline int mm_count(const char *dir) {
    DIR *entries = opendir(dir);
    const struct dirent *entry;
    int count = 0;
    while ((entry = readdir(entries))) count += entry->d_name[0] != '.';
    closedir(entries);
    return count;
}

// Without the fsync that md_file_write_atomic does: tests write thousands of files.
static inline void mm_write(const char *dir, const char *name, const char *text, size_t n) {
    char *path = md_path_join(dir, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(text, 1, n, file) != n || fclose(file) != 0) fail_msg("cannot write %s", path);
    free(path);
}

// The text of config.json for a shape; to be freed.
static inline char *mm_config(const mm_shape *s) {
    char *text = malloc(16384);
    int n = snprintf(text, 16384,
                     "{\"model_type\": \"llama\", \"num_hidden_layers\": %u, \"hidden_size\": %u, "
                     "\"intermediate_size\": %u, \"vocab_size\": %u, \"num_attention_heads\": %u, "
                     "\"num_key_value_heads\": %u, \"head_dim\": %u, \"max_position_embeddings\": %u, "
                     "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"tie_word_embeddings\": %s, "
                     "\"bos_token_id\": 0, \"eos_token_id\": 1",
                     s->layers, s->hidden, s->ffn, s->vocab, s->q_heads, s->kv_heads, s->head_dim, s->context,
                     s->tied ? "true" : "false");
    if (s->bits)
        n += snprintf(text + n, (size_t)(16384 - n), ", \"quantization\": {\"bits\": %u, \"group_size\": %u%s%s}",
                      s->bits, s->group, s->quant ? ", " : "", s->quant ? s->quant : "");
    n += snprintf(text + n, (size_t)(16384 - n), "%s%s}", s->extra ? ", " : "", s->extra ? s->extra : "");
    if (n >= 16384) fail_msg("the config is too long");
    return text;
}

// Writes a snapshot of that shape and returns its folder.
static inline char *mm_make(const mm_shape *shape, uint64_t seed) {
    char *dir = mm_temp_dir(), *out = mm_temp_dir(), *config = mm_config(shape);
    mm_write(dir, "config.json", config, strlen(config));
    if (shape->kv) mm_write(dir, "kv_config.json", shape->kv, strlen(shape->kv));
    char *path = md_path_join(dir, "config.json");
    md_error err = {0};
    if (md_synth_write(path, out, &(md_synth_options){.seed = seed}, &err) != MD_OK) fail_msg("%s", err.message);
    free(config);
    free(path);
    mm_remove(dir);
    return out;
}

#endif
