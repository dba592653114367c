// The vocabulary in the order of its tokens' bytes, so that a constraint walks common beginnings once. Immutable.
#ifndef MD_SERVER_TOKEN_ORDER_H
#define MD_SERVER_TOKEN_ORDER_H

#include <stdint.h>

#include "base/status.h"

typedef struct md_ordered_token {
    const char *bytes; // in md_token_order.text
    uint32_t size;
    uint32_t shared; // bytes it has in common with the token before it in the order
    uint32_t id;
} md_ordered_token;

typedef struct md_token_order {
    char *text;               // owned: all bytes in the order, so that a walk reads memory from one end to the other
    md_ordered_token *tokens; // [count] all tokens that stand for text; owned
    uint32_t count;
    uint32_t longest;              // bytes
    uint32_t ids;                  // the model's vocabulary size
    const md_tokenizer *tokenizer; // borrowed
} md_token_order;

// `ids`: the model's vocabulary; a token beyond it can't be chosen. Of control tokens only the `marks` stand for text.
// MD_E_MEMORY.
md_status md_token_order_init(md_token_order *order, const md_tokenizer *tokenizer, uint32_t ids, const uint32_t *marks,
                              uint32_t mark_count, md_error *err);
void md_token_order_free(md_token_order *order);

#endif
