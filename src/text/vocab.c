#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void md_vocab_free(md_vocab *vocab) {
    free(vocab->pool);
    free(vocab->offset);
    free(vocab->size);
    free(vocab->slots);
    *vocab = (md_vocab){0};
}

static uint32_t hash_of(const char *text, size_t n) { return (uint32_t)XXH3_64bits(text, n); }

static md_status out_of_memory(const char *what, size_t n, md_error *err) {
    return md_fail(err, MD_E_MEMORY, "%s: out of memory for a vocabulary of %zu tokens", what, n);
}

static md_status grow_slots(md_vocab *vocab, size_t tokens, const char *what, md_error *err) {
    size_t n_slots = 64;
    while (n_slots < tokens * 2) n_slots *= 2;
    if (vocab->slots && n_slots <= vocab->mask + 1) return MD_OK;
    md_vocab_slot *slots = malloc(n_slots * sizeof *slots);
    if (!slots) return out_of_memory(what, tokens, err);
    for (size_t i = 0; i < n_slots; i++) slots[i] = (md_vocab_slot){.id = MD_VOCAB_NONE};
    for (size_t i = 0; vocab->slots && i <= vocab->mask; i++) {
        if (vocab->slots[i].id == MD_VOCAB_NONE) continue;
        size_t at = vocab->slots[i].hash & (n_slots - 1);
        while (slots[at].id != MD_VOCAB_NONE) at = (at + 1) & (n_slots - 1);
        slots[at] = vocab->slots[i];
    }
    free(vocab->slots);
    vocab->slots = slots;
    vocab->mask = n_slots - 1;
    return MD_OK;
}

static md_status grow_ids(md_vocab *vocab, size_t n_ids, const char *what, md_error *err) {
    if (n_ids <= vocab->ids_cap) return MD_OK;
    size_t cap = vocab->ids_cap + vocab->ids_cap / 2 > n_ids ? vocab->ids_cap + vocab->ids_cap / 2 : n_ids;
    size_t *offset = realloc(vocab->offset, cap * sizeof *offset);
    if (offset) vocab->offset = offset;
    uint32_t *size = realloc(vocab->size, cap * sizeof *size);
    if (size) vocab->size = size;
    if (!offset || !size) return out_of_memory(what, cap, err);
    vocab->ids_cap = cap;
    return MD_OK;
}

static md_status grow_pool(md_vocab *vocab, size_t bytes, const char *what, md_error *err) {
    if (bytes <= vocab->pool_cap) return MD_OK;
    size_t cap = vocab->pool_cap + vocab->pool_cap / 2 > bytes ? vocab->pool_cap + vocab->pool_cap / 2 : bytes;
    char *pool = realloc(vocab->pool, cap);
    if (!pool) return out_of_memory(what, vocab->n_tokens, err);
    vocab->pool = pool;
    vocab->pool_cap = cap;
    return MD_OK;
}

md_status md_vocab_reserve(md_vocab *vocab, size_t tokens, size_t bytes, const char *what, md_error *err) {
    MD_TRY(grow_slots(vocab, tokens, what, err));
    MD_TRY(grow_ids(vocab, tokens, what, err));
    return grow_pool(vocab, bytes + tokens, what, err);
}

// The slot of the text, or the empty one where it belongs.
static size_t slot_of(const md_vocab *vocab, const char *text, size_t n, uint32_t hash) {
    size_t at = hash & vocab->mask;
    for (;; at = (at + 1) & vocab->mask) {
        const md_vocab_slot *slot = &vocab->slots[at];
        if (slot->id == MD_VOCAB_NONE) return at;
        if (slot->hash == hash && vocab->size[slot->id] == n &&
            memcmp(vocab->pool + vocab->offset[slot->id], text, n) == 0)
            return at;
    }
}

md_status md_vocab_add(md_vocab *vocab, const char *text, size_t n, int64_t id, const char *what, md_error *err) {
    if (id < 0 || id > MD_VOCAB_MAX_ID)
        return md_fail(err, MD_E_FORMAT, "%s: token \"%.40s\" has id %lld, expected 0 to %d", what, text, (long long)id,
                       MD_VOCAB_MAX_ID);
    if (n > UINT32_MAX / 2) return md_fail(err, MD_E_FORMAT, "%s: a token of %zu bytes", what, n);
    size_t taken_size;
    const char *taken = md_vocab_text(vocab, (uint32_t)id, &taken_size);
    if (taken)
        return md_fail(err, MD_E_FORMAT, "%s: tokens \"%.40s\" and \"%.40s\" have the same id %lld", what, taken, text,
                       (long long)id);
    MD_TRY(grow_slots(vocab, vocab->n_tokens + 1, what, err));
    uint32_t hash = hash_of(text, n);
    size_t slot = slot_of(vocab, text, n, hash);
    if (vocab->slots[slot].id != MD_VOCAB_NONE)
        return md_fail(err, MD_E_FORMAT, "%s: token \"%.40s\" has the ids %u and %lld", what, text,
                       vocab->slots[slot].id, (long long)id);
    MD_TRY(grow_ids(vocab, (size_t)id + 1, what, err));
    MD_TRY(grow_pool(vocab, vocab->pool_size + n + 1, what, err));
    for (; vocab->n_ids <= (size_t)id; vocab->n_ids++) vocab->offset[vocab->n_ids] = SIZE_MAX;
    vocab->offset[id] = vocab->pool_size;
    vocab->size[id] = (uint32_t)n;
    if (n) memcpy(vocab->pool + vocab->pool_size, text, n);
    vocab->pool[vocab->pool_size + n] = 0;
    vocab->pool_size += n + 1;
    vocab->slots[slot] = (md_vocab_slot){hash, (uint32_t)id};
    vocab->n_tokens++;
    return MD_OK;
}

uint32_t md_vocab_find(const md_vocab *vocab, const char *text, size_t n) {
    if (!vocab->slots) return MD_VOCAB_NONE;
    return vocab->slots[slot_of(vocab, text, n, hash_of(text, n))].id;
}

const char *md_vocab_text(const md_vocab *vocab, uint32_t id, size_t *n) {
    if (id >= vocab->n_ids || vocab->offset[id] == SIZE_MAX) return NULL;
    if (n) *n = vocab->size[id];
    return vocab->pool + vocab->offset[id];
}
