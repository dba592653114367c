// From what a user calls a model to its folder: a path, or a repo id in the local Hugging Face hub cache
// (its layout: base/hubdir.h).
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hubdir.h"
#include "model/snapshot.h"

enum { MAX_PATH_BYTES = 4096, MAX_REF_BYTES = 256 };

// The only revision under `snapshots`, for a cache without refs/main; several are the user's to choose from.
static md_status only_revision(const char *snapshots, const char *repo, char *name, size_t cap, md_error *err) {
    name[0] = 0;
    DIR *folder = opendir(snapshots);
    if (!folder && errno != ENOENT) return md_fail_errno(err, "cannot list the folder", snapshots);
    if (!folder)
        return md_fail(err, MD_E_NOT_FOUND,
                       "%s: in the hub cache, but %s is missing; 'megadecode pull %s' downloads it", repo, snapshots,
                       repo);
    size_t count = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        size_t n = strlen(entry->d_name);
        if (!md_hub_plain_name(entry->d_name, n) || n >= cap) continue;
        memcpy(name, entry->d_name, n + 1);
        count++;
    }
    closedir(folder);
    if (count == 0)
        return md_fail(err, MD_E_NOT_FOUND, "%s: %s holds no revision; 'megadecode pull %s' downloads one", repo,
                       snapshots, repo);
    if (count > 1)
        return md_fail(err, MD_E_NOT_FOUND,
                       "%s: %zu revisions and no refs/main to choose by; give one of the folders in %s", repo, count,
                       snapshots);
    return MD_OK;
}

// The revision that refs/main names.
static md_status main_revision(const char *ref, char *name, size_t cap, md_error *err) {
    char *text;
    size_t n;
    MD_TRY(md_file_read_all(ref, MAX_REF_BYTES, &text, &n, err));
    while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
    md_status status = MD_OK;
    if (md_hub_plain_name(text, n) && n < cap) {
        memcpy(name, text, n);
        name[n] = 0;
    } else {
        status = md_fail(err, MD_E_FORMAT, "%s: does not hold the name of a revision", ref);
    }
    free(text);
    return status;
}

static md_status hub_dir(const char *repo, char **dir, md_error *err) {
    md_status status = MD_OK;
    char revision[MAX_REF_BYTES];
    md_buf root, path;
    md_buf_init(&root, MAX_PATH_BYTES);
    md_buf_init(&path, MAX_PATH_BYTES);
    md_hub_append_cache(&root);
    md_buf_putc(&root, '/');
    md_hub_append_folder(&root, repo);
    md_buf_printf(&path, "%s/refs/main", md_buf_str(&root));
    if (root.failed || path.failed) {
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory, or a cache path over %d bytes", repo, MAX_PATH_BYTES);
        goto fail;
    }
    status = md_dir_check(md_buf_str(&root), err);
    if (status == MD_E_NOT_FOUND)
        status =
            md_fail(err, MD_E_NOT_FOUND,
                    "%s: no such folder, and not in the hub cache (%s is missing); 'megadecode pull %s' downloads it",
                    repo, md_buf_str(&root), repo);
    if (status != MD_OK) goto fail;
    if (!md_path_absent(md_buf_str(&path))) {
        MD_TRY_GOTO(main_revision(md_buf_str(&path), revision, sizeof revision, err));
    } else {
        md_buf_clear(&path);
        md_buf_printf(&path, "%s/snapshots", md_buf_str(&root));
        MD_TRY_GOTO(only_revision(md_buf_str(&path), repo, revision, sizeof revision, err));
    }
    md_buf_clear(&path);
    md_buf_printf(&path, "%s/snapshots/%s", md_buf_str(&root), revision);
    if (!path.failed) status = md_dir_check(md_buf_str(&path), err);
    if (status == MD_E_NOT_FOUND)
        status = md_fail(err, MD_E_NOT_FOUND,
                         "%s: refs/main names revision %s, but %s is missing; 'megadecode pull %s' downloads it", repo,
                         revision, md_buf_str(&path), repo);
    if (status != MD_OK) goto fail;
    *dir = path.failed ? NULL : md_buf_take(&path);
    if (!*dir) status = md_fail(err, MD_E_MEMORY, "%s: out of memory", repo);
fail:
    md_buf_free(&root);
    md_buf_free(&path);
    return status;
}

md_status md_model_dir(const char *model, char **dir, md_error *err) {
    *dir = NULL;
    md_status status = md_dir_check(model, err);
    if (status == MD_OK) {
        *dir = strdup(model);
        return *dir ? MD_OK : md_fail(err, MD_E_MEMORY, "%s: out of memory", model);
    }
    if (md_file_exists(model))
        return md_fail(err, MD_E_USAGE, "%s: is a file; expected the folder of an MLX snapshot or a repo id", model);
    if (status != MD_E_NOT_FOUND) return status;
    if (!md_hub_is_repo_id(model))
        return md_fail(err, MD_E_NOT_FOUND, "%s: no such folder (and not a repo id like org/name)", model);
    return hub_dir(model, dir, err);
}
