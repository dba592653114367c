// The sessions of the server: a small pool in which finished sessions keep their KV cache, so that a prompt that
// begins as an earlier one is computed from where they part. Used by the scheduler's thread alone.
#ifndef MD_SERVER_POOL_H
#define MD_SERVER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "server/server.h"

typedef struct md_pool_entry {
    md_session *session; // NULL: not opened yet
    bool busy;
    uint64_t used; // when it was given back last, counted in givings
} md_pool_entry;

typedef struct md_pool {
    md_model *model; // borrowed
    md_session_options options;
    md_pool_entry entries[MD_PARALLEL_MAX];
    uint32_t size; // most sessions
    uint64_t givings;
} md_pool;

void md_pool_init(md_pool *pool, md_model *model, const md_session_options *options, uint32_t size);
void md_pool_free(md_pool *pool); // closes all sessions

// A session prepared (md_session_prepare) for the prompt, with *reused tokens of it already there. The session with the
// longest common beginning is taken; where only a small part of it would be kept, or it is busy, that part is copied
// into another one instead, so that the other timeline stays. Call it only while fewer than `size` are busy.
// MD_E_MEMORY when no session can be opened; MD_E_CONTEXT when the prompt does not fit.
md_status md_pool_take(md_pool *pool, const uint32_t *prompt, size_t n, md_session **out, uint32_t *reused,
                       md_error *err);
// A session with nothing in it.
md_status md_pool_take_empty(md_pool *pool, md_session **out, md_error *err);
void md_pool_give(md_pool *pool, md_session *session);    // back, with what it computed
void md_pool_discard(md_pool *pool, md_session *session); // closed: its state is not to be trusted

#endif
