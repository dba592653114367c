// Patterns that split or replace text: a literal string, or a regular expression in Oniguruma's dialect run by PCRE2.
#ifndef MD_TEXT_REGEX_H
#define MD_TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

typedef struct md_pattern md_pattern; // immutable: any number of threads may match with it

// Both own copies of what they are given. `what` names the pattern in messages.
md_status md_pattern_literal(const char *text, size_t n, const char *what, md_pattern **out, md_error *err);
md_status md_pattern_regex(const char *regex, size_t n, const char *what, md_pattern **out, md_error *err);
// {"String": "..."} or {"Regex": "..."}
md_status md_pattern_from_json(const json_t *json, const char *what, md_pattern **out, md_error *err);
void md_pattern_free(md_pattern *pattern); // NULL is fine

// The working memory of matching; one thread at a time. All zero is its initial state.
typedef struct md_match_scratch {
    void *match_data, *context, *jit_stack; // PCRE2's
    md_buf shadow;                          // see md_match_begin
} md_match_scratch;
void md_match_scratch_free(md_match_scratch *scratch);

// The matches of a pattern in VALID UTF-8 text, from left to right, as Oniguruma's find_iter gives them: without
// overlaps, and no empty match right after another match.
typedef struct md_match_iter {
    const md_pattern *pattern;
    md_match_scratch *scratch;
    const char *text; // borrowed
    size_t n;
    size_t at;
    bool any;        // there has been a match,
    size_t last_end; // which ended here
} md_match_iter;

// Where the text has characters that are newer than PCRE2's Unicode, matching runs on a copy in which each is replaced
// by an older one of the same category and size; positions are the same.
md_status md_match_begin(md_match_iter *iter, const md_pattern *pattern, const char *text, size_t n,
                         md_match_scratch *scratch, md_error *err);

// *found = false at the end. MD_E_CONTEXT when the regex needs more steps than it is allowed.
md_status md_match_next(md_match_iter *iter, bool *found, size_t *start, size_t *end, md_error *err);

// Appends `text` to `out` with every match replaced by the `size` bytes of `content`.
md_status md_match_replace(const md_pattern *pattern, const md_buf *text, const char *content, size_t size,
                           md_match_scratch *scratch, md_buf *out, md_error *err);

#endif
