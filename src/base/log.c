#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int log_level = -1; // -1: not read from the environment yet

// -1: none of the levels' names.
static int level_named(const char *text) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++)
        if (strcmp(text, names[i]) == 0) return i;
    return -1;
}

static int level_from_environment(void) {
    const char *text = getenv("MEGADECODE_LOG");
    int level = text ? level_named(text) : -1;
    return level < 0 ? MD_LOG_WARN : level;
}

md_status md_log_check(md_error *err) {
    const char *text = getenv("MEGADECODE_LOG");
    if (!text || !*text || level_named(text) >= 0) return MD_OK;
    return md_fail(err, MD_E_USAGE, "MEGADECODE_LOG: found \"%.60s\", expected error, warn, info or debug", text);
}

void md_log_set_level(md_log_level level) {
    // Relaxed: the level is a lone integer; no other data is published with it.
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

void md_log(md_log_level level, const char *fmt, ...) {
    // Relaxed: see md_log_set_level; two threads reading the environment at once store the same value.
    int current = atomic_load_explicit(&log_level, memory_order_relaxed);
    if (current < 0) {
        current = level_from_environment();
        atomic_store_explicit(&log_level, current, memory_order_relaxed);
    }
    if ((int)level > current) return;
    static const char *const tags[] = {"error: ", "warning: ", "", "debug: "};
    char line[1024];
    int used = snprintf(line, sizeof line, "megadecode: %s", tags[level]);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + used, sizeof line - (size_t)used - 1, fmt, ap);
    va_end(ap);
    strcat(line, "\n");
    fputs(line, stderr);
}
