// Runs something once for each call that can fail in it. A run must give the expected result or say that it failed,
// and in both cases leave as much memory allocated as there was before.
#ifndef MD_TESTS_EACH_H
#define MD_TESTS_EACH_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults/faults.h"
#include "megadecode.h"
#include "must.h"

// Computes something and adds what came of it to *digest (each_add). Frees all it made, also after a failure.
typedef md_status (*each_run)(uint64_t *digest, md_error *err);

enum {
    EACH_ALL = 40,    // the first and the last calls all fail in turn
    EACH_SPREAD = 140 // and about this many spread over the rest; all, where $MEGADECODE_EXHAUSTIVE is set
};

static inline void each_add(uint64_t *digest, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) *digest = (*digest ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
}

// The call to fail after call k.
static inline uint64_t each_next(uint64_t k, uint64_t calls) {
    const char *all = getenv("MEGADECODE_EXHAUSTIVE");
    bool inner = k >= EACH_ALL && k + EACH_ALL < calls;
    if ((all && *all) || !inner) return k + 1;
    uint64_t next = k + calls / EACH_SPREAD + 1;
    return next < calls - EACH_ALL ? next : calls - EACH_ALL + 1;
}

static inline void each_one(const char *name, each_run run, fault_kind kind, md_status expected, uint64_t from,
                            uint64_t to, uint64_t right) {
    uint64_t digest = 0;
    md_error err = {0};
    int64_t live = atomic_load(&faults->live);
    fault_set(kind, from, to);
    md_status status = run(&digest, &err);
    fault_clear(kind);
#ifndef MD_SANITIZED // whose strdup comes from elsewhere; it looks for leaks at the end
    if (atomic_load(&faults->live) != live)
        fail_msg("%s, call %" PRIu64 "..%" PRIu64 " fails: %" PRId64 " blocks leaked (%s)", name, from, to,
                 atomic_load(&faults->live) - live, err.message);
#else
    (void)live;
#endif
    if (status == MD_OK ? digest != right : status != expected || !err.message[0] || err.code != status)
        fail_msg("%s, call %" PRIu64 "..%" PRIu64 " fails: %s \"%s\", expected %s or the same result", name, from, to,
                 md_status_name(status), err.message, md_status_name(expected));
}

// ---- what is done to both memory and files -----------------------------------------------------------------------

static inline md_status each_tokenizer(const char *dir, uint64_t *digest, md_error *err) {
    md_tokenizer *tokenizer;
    MD_TRY(md_tokenizer_open(dir, &tokenizer, err));
    size_t size = md_tokenizer_vocab_size(tokenizer);
    each_add(digest, &size, sizeof size);
    md_tokenizer_close(tokenizer);
    return MD_OK;
}

static inline md_status each_inspect(const char *dir, const md_inspect_options *options, uint64_t *digest,
                                     md_error *err) {
    char *json = NULL;
    MD_TRY(md_inspect(dir, options, &json, err));
    each_add(digest, json, strlen(json));
    md_free(json);
    return MD_OK;
}

// ---- the runner --------------------------------------------------------------------------------------------------

// Each call of `kind` in `run` fails once alone, and once with all that follow. expected: the status of a failure.
// Prints how many calls there were and how many were tried.
static inline void each_fails(const char *name, each_run run, fault_kind kind, md_status expected) {
    uint64_t right = 0, again = 0, tried = 0;
    md_error err = {0};
    if (run(&right, &err) != MD_OK) fail_msg("%s: %s", name, err.message); // also warms what the C library keeps
    fault_set(kind, 0, 0);
    if (run(&again, &err) != MD_OK || again != right) fail_msg("%s: a second run differs: %s", name, err.message);
    uint64_t calls = atomic_load(&faults->calls[kind]);
    for (uint64_t k = 1; k <= calls; k = each_next(k, calls), tried++) {
        each_one(name, run, kind, expected, k, k, right);
        each_one(name, run, kind, expected, k, UINT64_MAX, right);
    }
    each_one(name, run, kind, expected, 0, 0, right);
    printf("%-36s %8" PRIu64 " calls, %" PRIu64 " of them failed in turn\n", name, calls, tried);
}

#endif
