// Added tokens: texts that are found before anything else is done to the input ("<|im_start|>"), special or not.
#ifndef MD_TEXT_ADDED_H
#define MD_TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

typedef struct md_added_token {
    char *content; // owned, valid UTF-8, not empty
    size_t size;   // bytes, at most MD_ADDED_MAX_BYTES
    char *normal;  // owned; the normal form where `normalized` and it is another text, else NULL
    size_t normal_size;
    uint32_t id;
    bool special;     // may be left out when decoding
    bool single_word; // only where no word character touches it
    bool lstrip;      // takes the white space before it along
    bool rstrip;      // takes the white space after it along
    bool normalized;  // is looked for in the normalized text, by its normalized form
    bool blank;       // white space alone: plain text, never a control token
} md_added_token;

// The longest token that is looked for; it bounds the time that matching takes at each byte.
enum { MD_ADDED_MAX_BYTES = 512, MD_ADDED_MAX_TOKENS = 1 << 18 };

typedef struct md_added {
    md_added_token *tokens; // owned
    size_t n, cap;
} md_added;

void md_added_free(md_added *added);

// Appends the token that an object of "added_tokens" (or of tokenizer_config.json's "added_tokens_decoder") describes.
md_status md_added_load(md_added *added, const json_t *json, int64_t id, const char *what, md_error *err);

// A trie over the contents of some of the tokens. Immutable once built.
typedef struct md_trie_node {
    uint32_t token;          // index of the token that ends here, or MD_TRIE_NONE
    uint32_t child, sibling; // node indices, or MD_TRIE_NONE
    unsigned char byte;      // on the edge to this node
} md_trie_node;
#define MD_TRIE_NONE UINT32_MAX

typedef struct md_trie {
    md_trie_node *nodes; // owned
    size_t n, cap;
    uint32_t root[256]; // the root's children by byte
} md_trie;

void md_trie_init(md_trie *trie);
void md_trie_free(md_trie *trie);
// Adds text[0..n), n > 0; the last of two equal texts counts.
md_status md_trie_add(md_trie *trie, const char *text, size_t n, uint32_t token, const char *what, md_error *err);

// A part of the text in which control tokens may be recognised.
typedef struct md_range {
    size_t start, end;
} md_range;

// Looks for tokens in text, from left to right, the longest at each place.
typedef struct md_added_iter {
    const md_added *added;
    const md_trie *trie;
    const char *text; // VALID UTF-8
    size_t n;
    size_t at;
    size_t covered;         // end of the last match, with what it stripped
    bool guarded;           // recognise only inside `ranges`, and blank tokens anywhere
    const md_range *ranges; // in order, apart; borrowed
    size_t n_ranges, range;
} md_added_iter;

// False at the end. The match replaces text[*start..*end), white space that it strips included.
bool md_added_next(md_added_iter *iter, const md_added_token **token, size_t *start, size_t *end);

#endif
