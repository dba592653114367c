#include "server/vocab.h"

#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *x, const void *y) {
    const md_vocab_token *a = x, *b = y;
    uint32_t n = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->bytes, b->bytes, n);
    if (order) return order;
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

md_status md_vocab_init(md_vocab *vocab, const md_tokenizer *tokenizer, uint32_t ids, md_error *err) {
    *vocab = (md_vocab){.ids = ids, .tokenizer = tokenizer};
    size_t known = md_tokenizer_vocab_size(tokenizer);
    if (known > ids) known = ids;
    vocab->tokens = malloc((known + 1) * sizeof *vocab->tokens);
    if (!vocab->tokens) return md_fail(err, MD_E_MEMORY, "vocabulary: out of memory for %zu tokens", known);
    for (uint32_t id = 0; id < known; id++) {
        size_t size;
        const char *bytes = md_tokenizer_token_bytes(tokenizer, id, &size);
        if (!bytes || !size || md_tokenizer_is_special(tokenizer, id)) continue;
        vocab->tokens[vocab->count++] = (md_vocab_token){.bytes = bytes, .size = (uint32_t)size, .id = id};
        if (size > vocab->longest) vocab->longest = (uint32_t)size;
    }
    qsort(vocab->tokens, vocab->count, sizeof *vocab->tokens, by_bytes);
    for (uint32_t i = 1; i < vocab->count; i++) {
        const md_vocab_token *before = &vocab->tokens[i - 1];
        md_vocab_token *token = &vocab->tokens[i];
        while (token->shared < before->size && token->shared < token->size &&
               before->bytes[token->shared] == token->bytes[token->shared])
            token->shared++;
    }
    return MD_OK;
}

void md_vocab_free(md_vocab *vocab) {
    free(vocab->tokens);
    *vocab = (md_vocab){0};
}
