// The vocabulary in the order of its tokens' bytes, so that a constraint walks common beginnings once. Immutable.
#ifndef MD_SERVER_VOCAB_H
#define MD_SERVER_VOCAB_H

#include <stdint.h>

#include "base/status.h"

typedef struct md_vocab_token {
    const char *bytes; // borrowed from the tokenizer
    uint32_t size;
    uint32_t shared; // bytes it has in common with the token before it in the order
    uint32_t id;
} md_vocab_token;

typedef struct md_vocab {
    md_vocab_token *tokens; // [count] all tokens that stand for text; owned
    uint32_t count;
    uint32_t longest;              // bytes
    uint32_t ids;                  // the model's vocabulary size
    const md_tokenizer *tokenizer; // borrowed
} md_vocab;

// `ids`: the model's vocabulary; a token beyond it can't be chosen. MD_E_MEMORY.
md_status md_vocab_init(md_vocab *vocab, const md_tokenizer *tokenizer, uint32_t ids, md_error *err);
void md_vocab_free(md_vocab *vocab);

#endif
