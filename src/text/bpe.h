// Byte pair encoding: one word of text to token ids. The model is immutable once it is loaded.
#ifndef MD_TEXT_BPE_H
#define MD_TEXT_BPE_H

#include "base/json.h"
#include "text/ids.h"
#include "text/vocab.h"

typedef struct md_bpe_merge {
    uint32_t left, right; // ids of the pair; left MD_VOCAB_NONE: an empty slot
    uint32_t rank;        // lower merges first
    uint32_t id;          // what the pair becomes
} md_bpe_merge;

enum { MD_BPE_DIRECT_CHARS = 0x200 }; // covers ASCII and the alphabet of byte-level models

typedef struct md_bpe {
    const md_vocab *vocab;                // borrowed
    md_bpe_merge *merges;                 // owned hash table by pair
    size_t mask;                          // slots - 1
    bool ignore_merges;                   // a word that is a token is that token, whatever its merges give
    bool byte_fallback;                   // a character without a token becomes the tokens <0xNN> of its bytes
    bool fuse_unk;                        // neighbouring unknown characters become one unknown token
    uint32_t unk;                         // MD_VOCAB_NONE: unknown characters are dropped
    uint32_t byte_ids[256];               // ids of <0xNN>, or MD_VOCAB_NONE
    uint32_t direct[MD_BPE_DIRECT_CHARS]; // ids of the first characters, or MD_VOCAB_NONE
} md_bpe;

// Reads "model" of a tokenizer.json; its vocabulary has been read into `vocab` already, which must outlive the model.
md_status md_bpe_load(md_bpe *bpe, const md_vocab *vocab, const json_t *model, const char *what, md_error *err);
void md_bpe_free(md_bpe *bpe);

// Working memory, used by one thread at a time. All zero is its initial state.
typedef struct md_bpe_scratch {
    struct md_bpe_symbol *symbols;
    size_t symbols_cap;
    struct md_bpe_candidate *heap;
    size_t heap_size, heap_cap;
} md_bpe_scratch;
void md_bpe_scratch_free(md_bpe_scratch *scratch);

// Appends the ids of the word, VALID UTF-8 of at most 2^31 bytes; O(n log n) for n characters. `control` may be NULL;
// else control[id] marks tokens that must not come out of plain text: a word is never taken whole as one, and no merge
// ends in one.
md_status md_bpe_encode(const md_bpe *bpe, const char *word, size_t n, const bool *control, md_bpe_scratch *scratch,
                        md_ids *out, md_error *err);

#endif
