// Decoders: what tokenizer.json asks to be done to tokens to get text. Immutable once loaded.
//
// The chain of decoders is compiled to three stages, which is what lets text be decoded as the ids come: steps on each
// token by itself; how tokens become bytes and are joined; what is stripped from the start of the joined text.
#ifndef MD_TEXT_DECODER_H
#define MD_TEXT_DECODER_H

#include "base/buf.h"
#include "base/json.h"
#include "text/regex.h"

typedef enum md_decode_step_kind {
    MD_DECODE_REPLACE,  // every match of `pattern` by `content`
    MD_DECODE_STRIP,    // up to `start` and `stop` of `character` off the ends
    MD_DECODE_METASPACE // `character` becomes a space; with `drop_first` it vanishes from the first token
} md_decode_step_kind;

typedef struct md_decode_step {
    md_decode_step_kind kind;
    md_pattern *pattern; // owned
    char *content;       // owned
    size_t content_size; // bytes
    uint32_t character;
    size_t start, stop; // characters
    bool drop_first;
} md_decode_step;

typedef enum md_decode_bytes {
    MD_DECODE_PLAIN,        // a token's text is what it is
    MD_DECODE_BYTE_LEVEL,   // characters of the byte-level alphabet become bytes
    MD_DECODE_BYTE_FALLBACK // the tokens <0xNN> become bytes
} md_decode_bytes;

enum { MD_DECODER_MAX_STEPS = 16 };

typedef struct md_decoder {
    md_decode_step steps[MD_DECODER_MAX_STEPS];
    size_t n_steps;
    md_decode_bytes bytes;
    bool drop_first; // one of the steps has drop_first
    bool spaced;     // no decoder at all: Hugging Face then joins tokens with a space
    uint32_t strip;  // up to `strip_start` of this character off the start of the text
    size_t strip_start;
} md_decoder;

// `json` is "decoder" of a tokenizer.json, may be NULL or null. What is not modelled: MD_E_UNSUPPORTED by its type.
md_status md_decoder_load(md_decoder *decoder, const json_t *json, const char *what, md_error *err);
void md_decoder_free(md_decoder *decoder);

// Appends what a token stands for: bytes that may be no UTF-8 by themselves when bytes is not PLAIN. *is_byte: the
// token is <0xNN> and became one byte. `first`: it is the first token of the text. `spare` is working memory.
md_status md_decoder_token(const md_decoder *decoder, const char *token, size_t n, bool first,
                           md_match_scratch *scratch, md_buf *spare, md_buf *out, bool *is_byte, md_error *err);

#endif
