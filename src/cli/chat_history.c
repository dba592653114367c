#include "cli/chat_history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

static History *new_entries(void) {
    HistEvent event;
    History *entries = history_init();
    if (!entries) return NULL;
    history(entries, &event, H_SETSIZE, MD_HISTORY_ENTRIES);
    history(entries, &event, H_SETUNIQUE, 1); // nothing twice in a row
    return entries;
}

// ---- the file --------------------------------------------------------------------------------------------------

// malloc'd; NULL: none is to be kept, or there is no home for it.
static char *file_path(void) {
    const char *file = getenv("MEGADECODE_HISTORY"), *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (file) return *file ? strdup(file) : NULL;
    // By the rule of XDG_STATE_HOME a relative path counts as none.
    if (state && *state == '/') return md_path_join(state, "megadecode/history");
    return home && *home == '/' ? md_path_join(home, ".local/state/megadecode/history") : NULL;
}

// False: there is something that is no history, which must not be replaced.
static bool load(History *entries, const char *path) {
    HistEvent event;
    struct stat st;
    if (stat(path, &st) != 0) return errno == ENOENT || errno == ENOTDIR;
    if (st.st_size == 0 && S_ISREG(st.st_mode)) return true;
    return S_ISREG(st.st_mode) && st.st_size <= MD_HISTORY_FILE_MAX && history(entries, &event, H_LOAD, path) >= 0;
}

// Whole or not at all: a temporary file of its owner's, renamed over `path`.
static bool store(History *entries, const char *path) {
    HistEvent event;
    size_t n = strlen(path) + sizeof ".XXXXXX";
    char *temporary = malloc(n);
    if (!temporary) return false;
    snprintf(temporary, n, "%s.XXXXXX", path);
    int fd = mkstemp(temporary); // mode 0600
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file && fd >= 0) close(fd);
    bool written = file && history(entries, &event, H_SAVE_FP, file) >= 0 && !ferror(file);
    if (file && fclose(file) != 0) written = false;
    if (written) written = rename(temporary, path) == 0;
    if (fd >= 0 && !written) unlink(temporary);
    free(temporary);
    return written;
}

// The folder that the file lies in.
static bool make_folder(const char *path) {
    char *folder = strdup(path), *slash = folder ? strrchr(folder, '/') : NULL;
    bool made = folder != NULL;
    if (slash && slash != folder) {
        *slash = 0;
        made = md_dir_make(folder, 0700, NULL) == MD_OK;
    }
    free(folder);
    return made;
}

// ---- entries ---------------------------------------------------------------------------------------------------

md_status md_chat_history_open(md_chat_history *h, bool keep, md_error *err) {
    *h = (md_chat_history){.entries = new_entries(), .typed = new_entries(), .path = keep ? file_path() : NULL};
    if (!h->entries || !h->typed) return md_fail(err, MD_E_MEMORY, "out of memory for the history of lines");
    if (!h->path || load(h->entries, h->path)) return MD_OK;
    md_log(MD_LOG_WARN, "%s: can't be read as a history of lines; nothing is added to it", h->path);
    free(h->path);
    h->path = NULL;
    return MD_OK;
}

void md_chat_history_add(md_chat_history *h, const char *line) {
    HistEvent event;
    history(h->entries, &event, H_ENTER, line);
    if (h->path && strlen(line) <= MD_HISTORY_LINE_MAX) history(h->typed, &event, H_ENTER, line);
}

// The file as it is now, which another chat may have written meanwhile, and this chat's lines behind it.
static bool merge(const md_chat_history *h) {
    HistEvent event;
    History *all = new_entries();
    bool whole = all && make_folder(h->path) && load(all, h->path);
    if (whole)
        for (int got = history(h->typed, &event, H_LAST); got >= 0; got = history(h->typed, &event, H_PREV)) {
            HistEvent entered;
            history(all, &entered, H_ENTER, event.str);
        }
    whole = whole && store(all, h->path);
    if (all) history_end(all);
    return whole;
}

void md_chat_history_close(md_chat_history *h) {
    HistEvent event;
    if (h->path && h->typed && history(h->typed, &event, H_FIRST) >= 0 && !merge(h))
        md_log(MD_LOG_WARN, "%s: the lines that were typed can't be kept: %s", h->path, strerror(errno));
    if (h->entries) history_end(h->entries);
    if (h->typed) history_end(h->typed);
    free(h->path);
    *h = (md_chat_history){0};
}
