#include "base/hubdir.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *md_env(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool md_hub_plain_name(const char *name, size_t n) {
    if (n == 0 || name[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if (!name[i] || (!isalnum((unsigned char)name[i]) && !strchr("-_.", name[i]))) return false;
    return true;
}

bool md_hub_is_repo_id(const char *text) {
    const char *slash = strchr(text, '/');
    return slash && md_hub_plain_name(text, (size_t)(slash - text)) && md_hub_plain_name(slash + 1, strlen(slash + 1));
}

void md_hub_append_home(md_buf *path) {
    if (md_env("HF_HOME"))
        md_buf_puts(path, md_env("HF_HOME"));
    else if (md_env("XDG_CACHE_HOME"))
        md_buf_printf(path, "%s/huggingface", md_env("XDG_CACHE_HOME"));
    else
        md_buf_printf(path, "%s/.cache/huggingface", md_env("HOME") ? md_env("HOME") : "");
}

void md_hub_append_cache(md_buf *path) {
    if (md_env("HF_HUB_CACHE")) {
        md_buf_puts(path, md_env("HF_HUB_CACHE"));
        return;
    }
    md_hub_append_home(path);
    md_buf_puts(path, "/hub");
}

void md_hub_append_folder(md_buf *path, const char *repo) {
    const char *slash = strchr(repo, '/');
    md_buf_printf(path, "models--%.*s--%s", (int)(slash - repo), repo, slash + 1);
}
