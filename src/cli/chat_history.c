#ifndef _GNU_SOURCE
#define _GNU_SOURCE // memfd_create
#endif
#include "cli/chat_history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

enum { LOCK_TRIES = 250, LOCK_MS = 20 }; // five seconds

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

// libedit writes to files alone: one in memory, whose bytes then replace those of `path`.
static md_status store(History *entries, const char *path, md_error *err) {
    HistEvent event;
    struct stat st;
    int fd = memfd_create("history", MFD_CLOEXEC);
    FILE *memory = fd < 0 ? NULL : fdopen(fd, "w+");
    if (!memory && fd >= 0) close(fd);
    bool whole =
        memory && history(entries, &event, H_SAVE_FP, memory) >= 0 && fflush(memory) == 0 && fstat(fd, &st) == 0;
    char *text = whole ? malloc((size_t)st.st_size + 1) : NULL;
    whole = text && pread(fd, text, (size_t)st.st_size, 0) == st.st_size;
    md_status status =
        whole ? md_file_write_private(path, text, (size_t)st.st_size, err) : md_fail(err, MD_E_MEMORY, "out of memory");
    if (memory) fclose(memory);
    free(text);
    return status;
}

// The folder that the file lies in, made where it is missing; malloc'd.
static md_status make_folder(const char *path, char **out, md_error *err) {
    const char *slash = strrchr(path, '/');
    *out = !slash ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
    return *out ? md_dir_make(*out, 0700, err) : md_fail(err, MD_E_MEMORY, "out of memory");
}

// One chat at a time reads the file, adds its lines and replaces it. The lock is the folder's, since the file is
// another one each time, and goes with the descriptor that is returned (-1: there is none). A chat that is stopped
// while it has the lock holds nobody up for good: after a while the lines are added without it.
static int lock_folder(const char *folder) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR) break; // a file system without locks
        nanosleep(&(struct timespec){.tv_nsec = LOCK_MS * 1000000L}, NULL);
    }
    return fd;
}

// ---- entries ---------------------------------------------------------------------------------------------------

md_status md_chat_history_open(md_chat_history *h, bool keep, md_error *err) {
    *h = (md_chat_history){.entries = new_entries(), .typed = new_entries(), .path = keep ? file_path() : NULL};
    if (!h->entries || !h->typed) return md_fail(err, MD_E_MEMORY, "out of memory for the history of lines");
    if (!h->path || load(h->entries, h->path)) return MD_OK;
    const char *why = access(h->path, R_OK) == 0 ? NULL : strerror(errno);
    md_log(MD_LOG_WARN, "%s: can't be read as a history of lines%s%s; nothing is added to it", h->path, why ? ": " : "",
           why ? why : "");
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
static md_status merge_locked(const md_chat_history *h, History *all, md_error *err) {
    HistEvent event;
    if (!load(all, h->path)) return md_fail(err, MD_E_FORMAT, "it is no history of lines any more");
    for (int got = history(h->typed, &event, H_LAST); got >= 0; got = history(h->typed, &event, H_PREV)) {
        HistEvent entered;
        history(all, &entered, H_ENTER, event.str);
    }
    return store(all, h->path, err);
}

static md_status merge(const md_chat_history *h, md_error *err) {
    char *folder = NULL;
    History *all = new_entries();
    md_status status = all ? make_folder(h->path, &folder, err) : md_fail(err, MD_E_MEMORY, "out of memory");
    if (status == MD_OK) {
        int lock = lock_folder(folder);
        status = merge_locked(h, all, err);
        if (lock >= 0) close(lock);
    }
    free(folder);
    if (all) history_end(all);
    return status;
}

void md_chat_history_close(md_chat_history *h) {
    HistEvent event;
    md_error err;
    if (h->path && h->typed && history(h->typed, &event, H_FIRST) >= 0 && merge(h, &err) != MD_OK)
        md_log(MD_LOG_WARN, "%s: the lines that were typed can't be kept: %s", h->path, err.message);
    if (h->entries) history_end(h->entries);
    if (h->typed) history_end(h->typed);
    free(h->path);
    *h = (md_chat_history){0};
}
