// Pre-tokenizers: cutting a text into the words that BPE sees. Immutable once loaded.
#ifndef MD_TEXT_PRETOK_H
#define MD_TEXT_PRETOK_H

#include "base/buf.h"
#include "base/json.h"
#include "text/regex.h"

typedef enum md_pretok_kind {
    MD_PRETOK_SPLIT,            // by `pattern`
    MD_PRETOK_BYTE_LEVEL,       // by `pattern` (GPT-2's regex, or none), then bytes become characters
    MD_PRETOK_METASPACE,        // spaces become `replacement`, words start with one
    MD_PRETOK_DIGITS,           // by numeric characters
    MD_PRETOK_PUNCTUATION,      // by punctuation
    MD_PRETOK_WHITESPACE,       // words, and runs that are neither word nor space
    MD_PRETOK_WHITESPACE_SPLIT, // by white space
} md_pretok_kind;

// What becomes of the matches a text is split by.
typedef enum md_split_behavior {
    MD_SPLIT_REMOVED,
    MD_SPLIT_ISOLATED,
    MD_SPLIT_MERGED_WITH_PREVIOUS,
    MD_SPLIT_MERGED_WITH_NEXT,
    MD_SPLIT_CONTIGUOUS, // neighbouring matches are one word
} md_split_behavior;

typedef enum md_prepend_scheme { MD_PREPEND_ALWAYS, MD_PREPEND_FIRST, MD_PREPEND_NEVER } md_prepend_scheme;

typedef struct md_pretok_step {
    md_pretok_kind kind;
    md_split_behavior behavior;
    bool invert;               // SPLIT: what lies between the matches counts as the matches
    bool add_prefix_space;     // BYTE_LEVEL
    bool split;                // METASPACE: cut before every `replacement`
    md_prepend_scheme prepend; // METASPACE
    char replacement[4];       // METASPACE
    size_t replacement_size;   // bytes
    md_pattern *pattern;       // owned
} md_pretok_step;

enum { MD_PRETOK_MAX_STEPS = 64 };

// A Sequence is flattened. All zero leaves the text whole.
typedef struct md_pretok {
    md_pretok_step *steps; // owned
    size_t n_steps;
} md_pretok;

// `json` is "pre_tokenizer" of a tokenizer.json, may be NULL or null. Not modelled: MD_E_UNSUPPORTED by its type.
md_status md_pretok_load(md_pretok *pretok, const json_t *json, const char *what, md_error *err);
void md_pretok_free(md_pretok *pretok);

typedef struct md_word {
    size_t start, size; // bytes
    bool origin;        // starts where the text that is being encoded starts
} md_word;

typedef struct md_words {
    md_word *items; // owned
    size_t n, cap;
} md_words;

typedef struct md_split_match {
    size_t start, end;
    bool match;
} md_split_match;

// The state of splitting, and working memory; one thread at a time. All zero is its initial state.
typedef struct md_pretok_scratch {
    md_buf text;    // the words lie in it
    md_words words; // the result
    md_buf spare_text;
    md_words spare_words;
    md_split_match *matches;
    size_t n_matches, matches_cap;
    md_match_scratch match;
} md_pretok_scratch;
void md_pretok_scratch_free(md_pretok_scratch *scratch);

// Cuts VALID text[0..n) into scratch->words of scratch->text; no word is empty. `origin` says that the text is the
// start of what is being encoded.
md_status md_pretok_run(const md_pretok *pretok, const char *text, size_t n, bool origin, md_pretok_scratch *scratch,
                        md_error *err);

#endif
