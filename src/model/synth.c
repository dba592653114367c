#include "model/synth.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "model/config.h"

enum { MAX_JSON_BYTES = 16 * 1024 * 1024, MAX_NEIGHBOUR_BYTES = 128 * 1024 * 1024 };

// ---- config.json -------------------------------------------------------------------------------------------------

// Sets the bits of a quantization block and of each of its overrides; `false` stays false.
static void override_bits(json_t *block, uint32_t bits) {
    json_object_set_new(block, "bits", json_integer(bits));
    const char *module;
    json_t *rule;
    json_object_foreach(block, module, rule) if (json_is_object(rule))
        json_object_set_new(rule, "bits", json_integer(bits));
}

static void edit_config(json_t *root, uint32_t bits) {
    if (!bits) return;
    json_t *block = json_object_get(root, "quantization"), *mirror = json_object_get(root, "quantization_config");
    if (json_is_object(block)) override_bits(block, bits);
    if (json_is_object(mirror)) override_bits(mirror, bits);
    if (!json_is_object(block) && !json_is_object(mirror))
        json_object_set_new(root, "quantization",
                            json_pack("{s:i,s:i,s:s}", "group_size", 64, "bits", (int)bits, "mode", "affine"));
}

static md_status write_text(const char *dir, const char *name, const char *text, md_error *err) {
    char *path = md_path_join(dir, name);
    md_status status = path ? md_file_write_atomic(path, text, strlen(text), err)
                            : md_fail(err, MD_E_MEMORY, "%s: out of memory for %s", dir, name);
    free(path);
    return status;
}

// The config with the override applied, parsed under the given path's name.
static md_status load_config(const char *path, uint32_t bits, md_config *config, md_error *err) {
    json_t *root;
    MD_TRY(md_json_read_file(path, MAX_JSON_BYTES, &root, err));
    edit_config(root, bits);
    char *text = json_dumps(root, JSON_ENCODE_ANY);
    json_decref(root);
    if (!text) return md_fail(err, MD_E_MEMORY, "%s: out of memory", path);
    md_status status = md_config_parse(text, strlen(text), path, config, err);
    free(text);
    return status;
}

static md_status write_config(const md_config *config, const md_synth_options *options, const char *dir,
                              md_error *err) {
    json_t *root = json_copy(config->root);
    json_object_del(root, "_synth");
    json_object_set_new(root, "_note",
                        json_sprintf("random weights of this shape, seed %llu; not a trained model",
                                     (unsigned long long)options->seed));
    char *text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    if (!text) return md_fail(err, MD_E_MEMORY, "%s: out of memory", dir);
    md_status status = write_text(dir, "config.json", text, err);
    free(text);
    return status;
}

// ---- its neighbours ----------------------------------------------------------------------------------------------

// The path of `name` beside the config, malloc'd.
static md_status neighbour_path(const char *config_path, const char *name, char **out, md_error *err) {
    const char *slash = strrchr(config_path, '/');
    char *folder = slash ? strndup(config_path, (size_t)(slash - config_path) + 1) : strdup(".");
    *out = folder ? md_path_join(folder, name) : NULL;
    free(folder);
    return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "%s: out of memory", config_path);
}

// Copies `name` from beside the config; where there is none, writes `otherwise` (NULL: nothing). *copied may be NULL. A
// folder or a dangling link of that name is a broken file, not an absent one.
static md_status copy_neighbour(const char *config_path, const char *name, const char *otherwise, const char *dir,
                                bool *copied, md_error *err) {
    char *from = NULL, *text = NULL;
    MD_TRY(neighbour_path(config_path, name, &from, err));
    md_status status = MD_OK;
    bool present = !md_path_absent(from);
    if (present) status = md_file_read_all(from, MAX_NEIGHBOUR_BYTES, &text, NULL, err);
    if (status == MD_OK && (text || otherwise)) status = write_text(dir, name, text ? text : otherwise, err);
    if (copied) *copied = present;
    free(from);
    free(text);
    return status;
}

// The tokenizer that stands beside the config, or one that is made up. What is in it is its reader's to check, but that
// it is JSON at all.
static md_status write_tokenizer(const md_config *config, const char *config_path, const char *dir, md_error *err) {
    bool copied = false;
    MD_TRY(copy_neighbour(config_path, "tokenizer.json", NULL, dir, &copied, err));
    if (!copied) return md_synth_tokenizer(config, dir, err);
    char *path = NULL;
    json_t *root = NULL;
    MD_TRY(neighbour_path(config_path, "tokenizer.json", &path, err));
    md_status status = md_json_read_file(path, MAX_NEIGHBOUR_BYTES, &root, err);
    json_decref(root);
    free(path);
    MD_TRY(status);
    MD_TRY(copy_neighbour(config_path, "tokenizer_config.json", NULL, dir, NULL, err));
    return copy_neighbour(config_path, "chat_template.jinja", NULL, dir, NULL, err);
}

static md_status write_generation(const md_config *config, const char *config_path, const char *dir, md_error *err) {
    json_t *root = json_object(), *eos = json_array();
    for (uint32_t i = 0; i < config->eos_count; i++) json_array_append_new(eos, json_integer(config->eos[i]));
    if (config->bos >= 0) json_object_set_new(root, "bos_token_id", json_integer(config->bos));
    json_object_set_new(root, "eos_token_id", eos);
    char *text = json_dumps(root, 0);
    json_decref(root);
    if (!text) return md_fail(err, MD_E_MEMORY, "%s: out of memory", dir);
    md_status status = copy_neighbour(config_path, "generation_config.json", text, dir, NULL, err);
    free(text);
    return status;
}

// ---- the folder --------------------------------------------------------------------------------------------------

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

static bool is_empty_dir(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return false;
    const struct dirent *entry;
    do entry = readdir(folder);
    while (entry && is_dots(entry->d_name));
    closedir(folder);
    return !entry;
}

// Removes a flat folder of ours, without allocating: memory may be what failed.
static void remove_dir(const char *path, DIR *folder) {
    const struct dirent *entry;
    rewinddir(folder);
    while ((entry = readdir(folder)))
        if (!is_dots(entry->d_name)) unlinkat(dirfd(folder), entry->d_name, 0);
    rmdir(path);
}

static md_status write_all(const md_config *config, const char *config_path, const char *dir,
                           const md_synth_options *options, md_error *err) {
    MD_TRY(write_config(config, options, dir, err));
    MD_TRY(write_generation(config, config_path, dir, err));
    MD_TRY(copy_neighbour(config_path, "kv_config.json", NULL, dir, NULL, err));
    MD_TRY(write_tokenizer(config, config_path, dir, err));
    MD_TRY(md_synth_weights(config, dir, options, err));
    md_snapshot *check;
    MD_TRY(md_snapshot_open(dir, &check, err));
    md_snapshot_close(check);
    return MD_OK;
}

md_status md_synth_write(const char *config_path, const char *out_dir, const md_synth_options *options, md_error *err) {
    uint32_t bits = options->bits;
    if (bits > 8 || bits == 1 || bits == 7)
        return md_fail(err, MD_E_USAGE, "bits: %u asked for, expected 2, 3, 4, 5, 6 or 8", bits);
    struct stat st;
    if (lstat(out_dir, &st) == 0 && !is_empty_dir(out_dir))
        return md_fail(err, MD_E_USAGE, "%s: exists already; expected a new or an empty folder", out_dir);
    md_config config = {0};
    uint64_t losses = md_json_losses();
    DIR *folder = NULL;
    char *temp = NULL;
    md_status status;
    MD_TRY_GOTO(load_config(config_path, bits, &config, err));
    size_t n = strlen(out_dir);
    while (n > 1 && out_dir[n - 1] == '/') n--;
    temp = malloc(n + sizeof ".tmpXXXXXX");
    if (!temp) {
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory", out_dir);
        goto fail;
    }
    memcpy(temp, out_dir, n);
    strcpy(temp + n, ".tmpXXXXXX");
    if (!mkdtemp(temp)) {
        status = md_fail_errno(err, "cannot create", out_dir);
        goto fail;
    }
    folder = opendir(temp);
    if (!folder) {
        status = md_fail_errno(err, "cannot open", temp);
        rmdir(temp);
        goto fail;
    }
    status = write_all(&config, config_path, temp, options, err);
    if (md_json_losses() != losses) status = MD_E_MEMORY;
    if (status == MD_OK && (chmod(temp, 0755) != 0 || rename(temp, out_dir) != 0))
        status = md_fail(err, MD_E_IO, "%s: cannot rename %s to it: %s", out_dir, temp, strerror(errno));
    if (status != MD_OK) remove_dir(temp, folder);
fail:
    // Whatever else went wrong, JSON with parts missing was its cause.
    if (md_json_losses() != losses) status = md_fail(err, MD_E_MEMORY, "%s: out of memory for its JSON", out_dir);
    if (folder) closedir(folder);
    free(temp);
    md_config_free(&config);
    return status;
}
