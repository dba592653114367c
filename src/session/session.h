// One sequence's timeline: its tokens, its KV cache and the logits after its last token. Used by one thread at a time.
#ifndef MD_SESSION_SESSION_H
#define MD_SESSION_SESSION_H

#include "session/model.h"

struct md_session {
    md_model *model; // held
    md_kv *kv;       // owned, of the model's engine
    uint32_t context;
    uint32_t position; // tokens computed
    uint32_t *tokens;  // [context]; owned
    float *logits;     // [vocab]; owned
    bool has_logits;   // logits belong to the token at position - 1

    // A quantized cache: its entries [0, quantized_at) were computed while it was bf16, the others appended quantized.
    md_kv_format *format; // [layers]; owned; NULL: the cache stays bf16
    bool from_start;
    bool quantized;
    uint32_t quantized_at;

    // The prompt of md_session_prepare that md_session_advance still computes: prompt[position .. prompt_size).
    uint32_t *prompt; // [context]; owned
    uint32_t prompt_size;
};

// Checks that n more tokens fit and that each is in the vocabulary; names the caller's array `what`.
md_status md_session_check(const md_session *session, const uint32_t *tokens, size_t n, md_error *err);

#endif
