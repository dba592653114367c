// The streaming detokenizer: ids one at a time, text out in whole UTF-8 characters.
//
// Bytes of a character that is not complete yet are held back until it is, or until it is certain that it never will
// be; then U+FFFD is emitted. The pieces put together are what md_tokenizer_decode gives for all the ids, but for one
// case: Hugging Face's ByteFallback decoder replaces every byte of a run of byte tokens ("<0xE2>") when any part of the
// run is invalid; here the valid characters before the fault have been emitted already, and only the rest is replaced.
//
// Thread rule: one md_detok is used by one thread at a time. It owns no memory and needs no clean-up.
#ifndef MD_TEXT_DETOK_H
#define MD_TEXT_DETOK_H

#include "text/tokenizer.h"

typedef struct md_detok {
    const md_tokenizer *tokenizer; // borrowed
    bool skip_special;             // special tokens give nothing
    bool started;                  // a token has been put: rules for the first token no longer apply
    uint8_t held_size;             // bytes of an incomplete character in `held`
    unsigned char held[4];
    size_t strip_left; // characters the decoder may still strip from the start of the text
} md_detok;

// With `continues` the ids carry on a text (an answer after a prompt), so that what decoders do at the start of a text
// (taking off a leading space) is not done.
void md_detok_init(md_detok *detok, const md_tokenizer *tokenizer, bool skip_special, bool continues);

// Appends the text that `id` completes (perhaps none) to *out. MD_E_MEMORY or MD_E_CONTEXT when *out is full.
md_status md_detok_put(md_detok *detok, uint32_t id, md_buf *out, md_error *err);

// The end of the stream: an incomplete character becomes U+FFFD, as in decode. The detokenizer can then be used for a
// new text after md_detok_init.
md_status md_detok_flush(md_detok *detok, md_buf *out, md_error *err);

#endif
