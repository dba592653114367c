#include "server/pool.h"

#include <string.h>

// Copying fewer tokens than this is not worth it: they are computed in a step or two.
enum { COPY_MIN = 16 };

void md_pool_init(md_pool *pool, md_model *model, const md_session_options *options, uint32_t size) {
    memset(pool, 0, sizeof *pool);
    pool->model = model;
    pool->options = *options;
    pool->size = size;
}

void md_pool_free(md_pool *pool) {
    for (uint32_t i = 0; i < pool->size; i++) md_session_close(pool->entries[i].session);
    memset(pool, 0, sizeof *pool);
}

// The session that shares most with the prompt; NULL where none shares anything.
static md_pool_entry *find_source(md_pool *pool, const uint32_t *prompt, size_t n, uint32_t *shared) {
    md_pool_entry *best = NULL;
    *shared = 0;
    for (uint32_t i = 0; i < pool->size; i++) {
        md_pool_entry *entry = &pool->entries[i];
        if (!entry->session) continue;
        uint32_t reusable = md_session_reusable(entry->session, prompt, n);
        // Of equals, one that is free: it needs no copy.
        if (reusable > *shared || (best && reusable == *shared && best->busy && !entry->busy)) {
            best = entry;
            *shared = reusable;
        }
    }
    return best;
}

// A place for a new timeline: one never used, else the free one that was used longest ago, but not `keep` when there
// is another.
static md_pool_entry *find_place(md_pool *pool, const md_pool_entry *keep) {
    md_pool_entry *oldest = NULL, *kept = NULL;
    for (uint32_t i = 0; i < pool->size; i++) {
        md_pool_entry *entry = &pool->entries[i];
        if (entry->busy) continue;
        if (!entry->session) return entry;
        if (entry == keep)
            kept = entry;
        else if (!oldest || entry->used < oldest->used)
            oldest = entry;
    }
    return oldest ? oldest : kept;
}

// Opens the entry's session. Out of memory, another free session's place is taken instead.
static md_status open_entry(md_pool *pool, md_pool_entry **entry, md_error *err) {
    md_status status = md_session_open(pool->model, &pool->options, &(*entry)->session, err);
    if (status != MD_E_MEMORY) return status;
    for (uint32_t i = 0; i < pool->size; i++)
        if (pool->entries[i].session && !pool->entries[i].busy) {
            *entry = &pool->entries[i];
            return MD_OK;
        }
    return status;
}

static void discard(md_pool_entry *entry) {
    md_session_close(entry->session);
    memset(entry, 0, sizeof *entry);
}

md_status md_pool_take(md_pool *pool, const uint32_t *prompt, size_t n, md_session **out, uint32_t *reused,
                       md_error *err) {
    uint32_t shared;
    md_pool_entry *source = find_source(pool, prompt, n, &shared);
    md_pool_entry *entry = source;
    bool all_but_little = source && 2 * (uint64_t)shared >= md_session_position(source->session);
    if (!source || source->busy || !all_but_little) {
        entry = find_place(pool, source);
        if (!entry) return md_fail(err, MD_E_INTERNAL, "pool: every session is busy");
        if (!entry->session) MD_TRY(open_entry(pool, &entry, err));
        if (source && entry != source && shared >= COPY_MIN &&
            md_session_copy(entry->session, source->session, shared, NULL) != MD_OK) {
            discard(entry); // half a copy is no timeline
            MD_TRY(md_session_open(pool->model, &pool->options, &entry->session, err));
        }
    }
    md_status status = md_session_prepare(entry->session, prompt, n, reused, err);
    if (status != MD_OK) {
        if (status != MD_E_CONTEXT && status != MD_E_USAGE) discard(entry);
        return status;
    }
    entry->busy = true;
    *out = entry->session;
    return MD_OK;
}

md_status md_pool_take_empty(md_pool *pool, md_session **out, md_error *err) {
    md_pool_entry *entry = find_place(pool, NULL);
    if (!entry) return md_fail(err, MD_E_INTERNAL, "pool: every session is busy");
    if (!entry->session) MD_TRY(open_entry(pool, &entry, err));
    MD_TRY(md_session_rewind(entry->session, 0, err));
    entry->busy = true;
    *out = entry->session;
    return MD_OK;
}

static md_pool_entry *entry_of(md_pool *pool, const md_session *session) {
    for (uint32_t i = 0; i < pool->size; i++)
        if (pool->entries[i].session == session) return &pool->entries[i];
    return NULL;
}

void md_pool_give(md_pool *pool, md_session *session) {
    md_pool_entry *entry = entry_of(pool, session);
    entry->busy = false;
    entry->used = ++pool->givings;
}

void md_pool_discard(md_pool *pool, md_session *session) { discard(entry_of(pool, session)); }
