// The vocabulary: token text to id and back. Texts are stored in one pool, ids may have gaps.
#ifndef MD_TEXT_VOCAB_H
#define MD_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { MD_VOCAB_MAX_ID = (1 << 22) - 1 }; // the largest vocabularies known have 0.3 million tokens
#define MD_VOCAB_NONE UINT32_MAX          // no such id

typedef struct md_vocab_slot {
    uint32_t hash, id; // id MD_VOCAB_NONE: an empty slot
} md_vocab_slot;

typedef struct md_vocab {
    char *pool; // owned; every text is followed by a NUL
    size_t pool_size, pool_cap;
    size_t *offset;  // [n_ids] into the pool; SIZE_MAX: the id has no token
    uint32_t *size;  // [n_ids] bytes
    size_t n_ids;    // 1 + the highest id
    size_t ids_cap;  // allocated
    size_t n_tokens; // ids that have a token
    md_vocab_slot *slots;
    size_t mask; // slots - 1, a power of two less one
} md_vocab;

void md_vocab_free(md_vocab *vocab);

// Room for this many tokens and bytes; adding more is still fine.
md_status md_vocab_reserve(md_vocab *vocab, size_t tokens, size_t bytes, const char *what, md_error *err);

// MD_E_FORMAT when the id or the text is taken already, or the id is above MD_VOCAB_MAX_ID.
md_status md_vocab_add(md_vocab *vocab, const char *text, size_t n, int64_t id, const char *what, md_error *err);

uint32_t md_vocab_find(const md_vocab *vocab, const char *text, size_t n); // MD_VOCAB_NONE where there is none

// NULL where the id has no token. Borrowed, NUL-terminated.
const char *md_vocab_text(const md_vocab *vocab, uint32_t id, size_t *n);

#endif
