#include "model/shards.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { MAX_INDEX_BYTES = 64 * 1024 * 1024 };
static const char index_name[] = "model.safetensors.index.json";
static const char suffix[] = ".safetensors";

static bool has_suffix(const char *name) {
    size_t n = strlen(name), s = strlen(suffix);
    return n > s && strcmp(name + n - s, suffix) == 0;
}

// ---- the list of file names --------------------------------------------------------------------------------------

typedef struct name_list {
    char *name[MD_MAX_SHARDS]; // owned
    size_t count;
} name_list;

static void name_list_free(name_list *list) {
    for (size_t i = 0; i < list->count; i++) free(list->name[i]);
    free(list);
}

static md_status name_list_add(name_list *list, const char *name, const char *where, md_error *err) {
    // Indexes keep the tensors of a file together, so the newest name is the likely one.
    for (size_t i = list->count; i-- > 0;)
        if (strcmp(list->name[i], name) == 0) return MD_OK;
    if (list->count == MD_MAX_SHARDS)
        return md_fail(err, MD_E_FORMAT, "%s: more than %d weight files", where, MD_MAX_SHARDS);
    char *copy = strdup(name);
    if (!copy) return md_fail(err, MD_E_MEMORY, "%s: out of memory", where);
    list->name[list->count++] = copy;
    return MD_OK;
}

static md_status names_from_map(const json_t *map, name_list *list, const char *path, md_error *err) {
    if (!json_is_object(map) || json_object_size(map) == 0)
        return md_fail(err, MD_E_FORMAT, "%s: \"weight_map\" is %s%s, expected an object of tensor: file", path,
                       json_is_object(map) ? "empty, " : "", md_json_type_name(map));
    const char *tensor;
    json_t *file;
    json_object_foreach((json_t *)map, tensor, file) {
        const char *name = json_string_value(file);
        if (!name)
            return md_fail(err, MD_E_FORMAT, "%s: \"weight_map\": tensor %s maps to %s, expected a file name", path,
                           tensor, md_json_type_name(file));
        if (strchr(name, '/') || strchr(name, '\\') || name[0] == '.' || !has_suffix(name))
            return md_fail(err, MD_E_FORMAT,
                           "%s: \"weight_map\": tensor %s maps to \"%.80s\", expected the name of a *.safetensors file "
                           "in the same folder",
                           path, tensor, name);
        MD_TRY(name_list_add(list, name, path, err));
    }
    return MD_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static md_status names_from_folder(const char *dir, name_list *list, md_error *err) {
    DIR *folder = opendir(dir);
    if (!folder) return md_fail_errno(err, "cannot list the folder", dir);
    md_status status = MD_OK;
    const struct dirent *entry;
    while (status == MD_OK && (entry = readdir(folder)))
        if (strncmp(entry->d_name, "model", 5) == 0 && has_suffix(entry->d_name))
            status = name_list_add(list, entry->d_name, dir, err);
    closedir(folder);
    MD_TRY(status);
    if (list->count == 0)
        return md_fail(err, MD_E_NOT_FOUND, "%s: no weight files: neither model*.safetensors nor %s", dir, index_name);
    qsort(list->name, list->count, sizeof *list->name, by_text);
    return MD_OK;
}

// ---- the table of tensors ----------------------------------------------------------------------------------------

static int by_name(const void *a, const void *b) {
    return strcmp(((const md_named_tensor *)a)->tensor->name, ((const md_named_tensor *)b)->tensor->name);
}

static md_status build_table(md_snapshot_files *files, const md_st_header *header, const char *dir, md_error *err) {
    for (size_t i = 0; i < files->files; i++) files->tensors += header[i].count;
    files->tensor = MD_ARENA_ARRAY(&files->arena, md_named_tensor, files->tensors);
    if (!files->tensor) return md_fail(err, MD_E_MEMORY, "%s: out of memory for the tensor table", dir);
    size_t at = 0;
    for (size_t i = 0; i < files->files; i++)
        for (size_t j = 0; j < header[i].count; j++)
            files->tensor[at++] = (md_named_tensor){.tensor = &header[i].tensor[j],
                                                    .file = &files->file[i],
                                                    .offset = header[i].data_offset + header[i].tensor[j].begin};
    qsort(files->tensor, files->tensors, sizeof *files->tensor, by_name);
    for (size_t i = 1; i < files->tensors; i++)
        if (by_name(&files->tensor[i - 1], &files->tensor[i]) == 0)
            return md_fail(err, MD_E_FORMAT, "%s: tensor %s is also in %s", files->tensor[i].file->path,
                           files->tensor[i].tensor->name, files->tensor[i - 1].file->path);
    return MD_OK;
}

md_named_tensor *md_files_find(md_snapshot_files *files, const char *name) {
    const md_st_tensor wanted = {.name = name};
    const md_named_tensor key = {.tensor = &wanted};
    return bsearch(&key, files->tensor, files->tensors, sizeof *files->tensor, by_name);
}

// Every tensor that the index lists must be where it says.
static md_status check_map(md_snapshot_files *files, const json_t *map, const char *path, md_error *err) {
    const char *name;
    json_t *file;
    json_object_foreach((json_t *)map, name, file) {
        const md_named_tensor *found = md_files_find(files, name);
        const char *slash = found ? strrchr(found->file->path, '/') : NULL;
        if (!found || strcmp(slash ? slash + 1 : found->file->path, json_string_value(file)) != 0)
            return md_fail(err, MD_E_FORMAT, "%s: \"weight_map\" puts tensor %s into %s, which does not hold it", path,
                           name, json_string_value(file));
    }
    return MD_OK;
}

static md_status open_listed(md_snapshot_files *files, const char *dir, const name_list *list, md_error *err) {
    md_st_header *header = MD_ARENA_ARRAY(&files->arena, md_st_header, list->count);
    files->file = MD_ARENA_ARRAY(&files->arena, md_file, list->count);
    if (!header || !files->file) return md_fail(err, MD_E_MEMORY, "%s: out of memory", dir);
    for (size_t i = 0; i < list->count; i++) {
        char *path = md_path_join(dir, list->name[i]);
        if (!path) return md_fail(err, MD_E_MEMORY, "%s: out of memory", dir);
        md_status status = md_file_open(&files->file[i], path, err);
        free(path);
        MD_TRY(status);
        files->files++;
        MD_TRY(md_st_read(&files->file[i], &files->arena, &header[i], err));
    }
    return build_table(files, header, dir, err);
}

md_status md_files_open(md_snapshot_files *files, const char *dir, md_error *err) {
    *files = (md_snapshot_files){0};
    md_status status = MD_OK;
    json_t *index = NULL;
    char *path = md_path_join(dir, index_name);
    name_list *list = calloc(1, sizeof *list);
    if (!path || !list) {
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory", dir);
        goto fail;
    }
    if (!md_path_absent(path)) {
        MD_TRY_GOTO(md_json_read_file(path, MAX_INDEX_BYTES, &index, err));
        const json_t *map = json_object_get(index, "weight_map");
        MD_TRY_GOTO(names_from_map(map, list, path, err));
        MD_TRY_GOTO(open_listed(files, dir, list, err));
        MD_TRY_GOTO(check_map(files, map, path, err));
    } else {
        MD_TRY_GOTO(names_from_folder(dir, list, err));
        MD_TRY_GOTO(open_listed(files, dir, list, err));
    }
fail:
    if (status != MD_OK) md_files_close(files);
    if (list) name_list_free(list);
    json_decref(index);
    free(path);
    return status;
}

void md_files_close(md_snapshot_files *files) {
    for (size_t i = 0; i < files->files; i++) md_file_close(&files->file[i]);
    md_arena_free(&files->arena);
    *files = (md_snapshot_files){0};
}
