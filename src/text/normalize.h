// Normalizers: what tokenizer.json asks to be done to a text before it is split. Immutable once loaded.
#ifndef MD_TEXT_NORMALIZE_H
#define MD_TEXT_NORMALIZE_H

#include "base/buf.h"
#include "base/json.h"
#include "text/regex.h"

typedef enum md_normalizer_kind {
    MD_NORMALIZE_NFC,
    MD_NORMALIZE_NFD,
    MD_NORMALIZE_NFKC,
    MD_NORMALIZE_NFKD,
    MD_NORMALIZE_LOWERCASE,
    MD_NORMALIZE_PREPEND,   // `content` in front of a text that is not empty
    MD_NORMALIZE_REPLACE,   // every match of `pattern` by `content`
    MD_NORMALIZE_STRIP,     // white space off the ends
    MD_NORMALIZE_BYTE_LEVEL // every byte by its character (text/byte_level.h)
} md_normalizer_kind;

typedef struct md_normalizer_step {
    md_normalizer_kind kind;
    md_pattern *pattern;          // owned; REPLACE
    char *content;                // owned; PREPEND, REPLACE
    size_t content_size;          // bytes
    bool strip_left, strip_right; // STRIP
} md_normalizer_step;

enum { MD_NORMALIZER_MAX_STEPS = 64 };

// A Sequence is flattened. All zero does nothing.
typedef struct md_normalizer {
    md_normalizer_step *steps; // owned
    size_t n_steps;
} md_normalizer;

// `json` is "normalizer" of a tokenizer.json, may be NULL or null. What is not modelled: MD_E_UNSUPPORTED by its type.
md_status md_normalizer_load(md_normalizer *normalizer, const json_t *json, const char *what, md_error *err);
void md_normalizer_free(md_normalizer *normalizer);

// Replaces *text, valid UTF-8, by its normal form; `spare` is working memory. Linear in the text, whatever it holds.
// text->max is set to what any honest normalizer can need; MD_E_CONTEXT past that.
md_status md_normalize(const md_normalizer *normalizer, md_buf *text, md_buf *spare, md_match_scratch *scratch,
                       md_error *err);

#endif
