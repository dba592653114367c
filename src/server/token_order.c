#include "server/token_order.h"

#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *x, const void *y) {
    const md_ordered_token *a = x, *b = y;
    uint32_t n = a->size < b->size ? a->size : b->size;
    int order = memcmp(a->bytes, b->bytes, n);
    if (order) return order;
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static void count_shared(md_token_order *order) {
    for (uint32_t i = 1; i < order->count; i++) {
        const md_ordered_token *before = &order->tokens[i - 1];
        md_ordered_token *token = &order->tokens[i];
        while (token->shared < before->size && token->shared < token->size &&
               before->bytes[token->shared] == token->bytes[token->shared])
            token->shared++;
    }
}

static bool is_one_of(const uint32_t *marks, uint32_t count, uint32_t id) {
    for (uint32_t i = 0; i < count; i++)
        if (marks[i] == id) return true;
    return false;
}

md_status md_token_order_init(md_token_order *order, const md_tokenizer *tokenizer, uint32_t ids, const uint32_t *marks,
                              uint32_t mark_count, md_error *err) {
    *order = (md_token_order){.ids = ids, .tokenizer = tokenizer};
    size_t known = md_tokenizer_vocab_size(tokenizer), bytes = 0;
    if (known > ids) known = ids;
    order->tokens = malloc((known + 1) * sizeof *order->tokens);
    if (!order->tokens) return md_fail(err, MD_E_MEMORY, "vocabulary: out of memory for %zu tokens", known);
    for (uint32_t id = 0; id < known; id++) {
        size_t size;
        const char *text = md_tokenizer_token_bytes(tokenizer, id, &size);
        if (!text || !size) continue;
        if (md_tokenizer_is_special(tokenizer, id) && !is_one_of(marks, mark_count, id)) continue;
        order->tokens[order->count++] = (md_ordered_token){.bytes = text, .size = (uint32_t)size, .id = id};
        if (size > order->longest) order->longest = (uint32_t)size;
        bytes += size;
    }
    qsort(order->tokens, order->count, sizeof *order->tokens, by_bytes);
    order->text = malloc(bytes + 1);
    if (!order->text) return md_fail(err, MD_E_MEMORY, "vocabulary: out of memory for %zu bytes", bytes);
    char *at = order->text;
    for (uint32_t i = 0; i < order->count; i++) {
        md_ordered_token *token = &order->tokens[i];
        memcpy(at, token->bytes, token->size);
        token->bytes = at;
        at += token->size;
    }
    count_shared(order);
    return MD_OK;
}

void md_token_order_free(md_token_order *order) {
    free(order->tokens);
    free(order->text);
    *order = (md_token_order){0};
}
