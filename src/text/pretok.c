// Running pre-tokenizers: every step turns the list of words into a longer one, and may rewrite their text.
#include "text/pretok.h"

#include <stdlib.h>
#include <string.h>

#include "text/byte_level.h"
#include "text/chars.h"
#include "text/utf8.h"

void md_pretok_scratch_free(md_pretok_scratch *scratch) {
    md_buf_free(&scratch->text);
    md_buf_free(&scratch->spare_text);
    free(scratch->words.items);
    free(scratch->spare_words.items);
    free(scratch->matches);
    md_match_scratch_free(&scratch->match);
    *scratch = (md_pretok_scratch){0};
}

static md_status add_word(md_words *words, md_word word, md_error *err) {
    if (word.size == 0) return MD_OK;
    if (words->n == words->cap) {
        size_t cap = words->cap + words->cap / 2 + 64;
        md_word *items = realloc(words->items, cap * sizeof *items);
        if (!items) return md_fail(err, MD_E_MEMORY, "out of memory for %zu words", cap);
        words->items = items;
        words->cap = cap;
    }
    words->items[words->n++] = word;
    return MD_OK;
}

static md_status add_match(md_pretok_scratch *scratch, size_t start, size_t end, bool match, md_error *err) {
    if (scratch->n_matches == scratch->matches_cap) {
        size_t cap = scratch->matches_cap + scratch->matches_cap / 2 + 64;
        md_split_match *matches = realloc(scratch->matches, cap * sizeof *matches);
        if (!matches) return md_fail(err, MD_E_MEMORY, "out of memory for %zu words", cap);
        scratch->matches = matches;
        scratch->matches_cap = cap;
    }
    scratch->matches[scratch->n_matches++] = (md_split_match){start, end, match};
    return MD_OK;
}

// ---- finding what to split by --------------------------------------------------------------------------------------

static md_status match_pattern(const md_pattern *pattern, const char *text, size_t n, md_pretok_scratch *scratch,
                               md_error *err) {
    md_match_iter iter;
    MD_TRY(md_match_begin(&iter, pattern, text, n, &scratch->match, err));
    size_t covered = 0, start, end;
    for (;;) {
        bool found;
        MD_TRY(md_match_next(&iter, &found, &start, &end, err));
        if (!found) break;
        if (covered != start) MD_TRY(add_match(scratch, covered, start, false, err));
        MD_TRY(add_match(scratch, start, end, true, err));
        covered = end;
    }
    return covered != n ? add_match(scratch, covered, n, false, err) : MD_OK;
}

// Every character that `is` accepts is a match by itself; what lies between is not.
static md_status match_characters(bool (*is)(uint32_t), const char *text, size_t n, md_pretok_scratch *scratch,
                                  md_error *err) {
    size_t covered = 0, size;
    for (size_t at = 0; at < n; at += size) {
        if (!is(md_utf8_decode(text + at, n - at, &size))) continue;
        if (covered != at) MD_TRY(add_match(scratch, covered, at, false, err));
        MD_TRY(add_match(scratch, at, at + size, true, err));
        covered = at + size;
    }
    return covered != n ? add_match(scratch, covered, n, false, err) : MD_OK;
}

// Runs of word characters and runs of others stay; white space is a match (and so removed): \w+|[^\w\s]+
static md_status match_between_words(const char *text, size_t n, md_pretok_scratch *scratch, md_error *err) {
    enum { NOTHING, SPACE, WORD, OTHER } now = NOTHING;
    size_t start = 0, size;
    for (size_t at = 0; at < n; at += size) {
        uint32_t cp = md_utf8_decode(text + at, n - at, &size);
        int kind = md_char_is_word(cp) ? WORD : md_char_is_space(cp) ? SPACE : OTHER;
        if (kind == (int)now) continue;
        if (now != NOTHING) MD_TRY(add_match(scratch, start, at, now == SPACE, err));
        now = kind == WORD ? WORD : kind == SPACE ? SPACE : OTHER;
        start = at;
    }
    return add_match(scratch, start, n, now == SPACE, err);
}

static md_status find_matches(const md_pretok_step *step, const char *text, size_t n, md_pretok_scratch *scratch,
                              md_error *err) {
    scratch->n_matches = 0;
    switch (step->kind) {
    case MD_PRETOK_DIGITS: return match_characters(md_char_is_numeric, text, n, scratch, err);
    case MD_PRETOK_PUNCTUATION: return match_characters(md_char_is_punctuation, text, n, scratch, err);
    case MD_PRETOK_WHITESPACE_SPLIT: return match_characters(md_char_is_space, text, n, scratch, err);
    case MD_PRETOK_WHITESPACE: return match_between_words(text, n, scratch, err);
    case MD_PRETOK_SPLIT:
    case MD_PRETOK_BYTE_LEVEL:
    case MD_PRETOK_METASPACE: break;
    }
    MD_TRY(match_pattern(step->pattern, text, n, scratch, err));
    for (size_t i = 0; step->invert && i < scratch->n_matches; i++)
        scratch->matches[i].match = !scratch->matches[i].match;
    return MD_OK;
}

// ---- what becomes of the matches -----------------------------------------------------------------------------------

// Does the match i join the one before it (or, read from the end, the one after it: `other` is that neighbour)?
static bool joins(md_split_behavior behavior, bool match, bool other) {
    if (behavior == MD_SPLIT_CONTIGUOUS) return match == other;
    return match && !other; // MERGED_WITH_...
}

// Cuts the word at `base` by scratch->matches into *out.
static md_status cut(md_split_behavior behavior, md_word base, md_pretok_scratch *scratch, md_words *out,
                     md_error *err) {
    const md_split_match *matches = scratch->matches;
    size_t n = scratch->n_matches;
    for (size_t i = 0; i < n;) {
        size_t last = i; // matches i to last are one word
        bool removed = behavior == MD_SPLIT_REMOVED && matches[i].match;
        if (behavior == MD_SPLIT_CONTIGUOUS || behavior == MD_SPLIT_MERGED_WITH_PREVIOUS) {
            while (last + 1 < n && joins(behavior, matches[last + 1].match, matches[last].match)) last++;
        } else if (behavior == MD_SPLIT_MERGED_WITH_NEXT) {
            while (last + 1 < n && joins(behavior, matches[last].match, matches[last + 1].match)) last++;
        }
        size_t start = matches[i].start, size = matches[last].end - start;
        if (!removed) MD_TRY(add_word(out, (md_word){base.start + start, size, base.origin && start == 0}, err));
        i = last + 1;
    }
    return MD_OK;
}

static md_status split_all(const md_pretok_step *step, md_pretok_scratch *scratch, md_error *err) {
    md_words *out = &scratch->spare_words;
    out->n = 0;
    for (size_t i = 0; i < scratch->words.n; i++) {
        md_word word = scratch->words.items[i];
        MD_TRY(find_matches(step, scratch->text.data + word.start, word.size, scratch, err));
        MD_TRY(cut(step->behavior, word, scratch, out, err));
    }
    md_words swap = scratch->words;
    scratch->words = *out;
    *out = swap;
    return MD_OK;
}

// ---- rewriting ---------------------------------------------------------------------------------------------------

// Each rewriter appends the new text of one word.
typedef md_status (*rewriter)(const md_pretok_step *step, const char *text, md_word word, md_buf *out);

static bool starts_with(const char *text, size_t n, const char *start, size_t size) {
    return n >= size && memcmp(text, start, size) == 0;
}

static md_status prefix_space(const md_pretok_step *step, const char *text, md_word word, md_buf *out) {
    (void)step;
    if (text[0] != ' ') MD_TRY(md_buf_putc(out, ' '));
    return md_buf_append(out, text, word.size);
}

static md_status to_byte_level(const md_pretok_step *step, const char *text, md_word word, md_buf *out) {
    (void)step;
    return md_byte_level_encode(text, word.size, out);
}

static md_status to_metaspace(const md_pretok_step *step, const char *text, md_word word, md_buf *out) {
    bool has_one = text[0] == ' ' || starts_with(text, word.size, step->replacement, step->replacement_size);
    if (!has_one && (step->prepend == MD_PREPEND_ALWAYS || (step->prepend == MD_PREPEND_FIRST && word.origin)))
        MD_TRY(md_buf_append(out, step->replacement, step->replacement_size));
    for (size_t at = 0; at < word.size;) {
        const char *space = memchr(text + at, ' ', word.size - at);
        size_t end = space ? (size_t)(space - text) : word.size;
        MD_TRY(md_buf_append(out, text + at, end - at));
        if (space) MD_TRY(md_buf_append(out, step->replacement, step->replacement_size));
        at = end + (space != NULL);
    }
    return MD_OK;
}

static md_status rewrite_all(const md_pretok_step *step, rewriter rewrite, md_pretok_scratch *scratch, md_error *err) {
    md_buf *out = &scratch->spare_text;
    md_buf_clear(out);
    out->max = scratch->text.size * 8; // each word at most doubles or has a prefix; each space has at most four bytes
    for (size_t i = 0; i < scratch->words.n; i++) {
        md_word *word = &scratch->words.items[i];
        size_t start = out->size;
        md_status status = rewrite(step, scratch->text.data + word->start, *word, out);
        if (status != MD_OK)
            return md_fail(err, status, "out of memory for splitting %zu bytes of text", scratch->text.size);
        word->start = start;
        word->size = out->size - start;
    }
    md_buf swap = scratch->text;
    scratch->text = *out;
    *out = swap;
    return MD_OK;
}

md_status md_pretok_run(const md_pretok *pretok, const char *text, size_t n, bool origin, md_pretok_scratch *scratch,
                        md_error *err) {
    scratch->words.n = 0;
    md_buf_clear(&scratch->text);
    scratch->text.max = n;
    if (md_buf_append(&scratch->text, text, n) != MD_OK)
        return md_fail(err, MD_E_MEMORY, "out of memory for %zu bytes of text", n);
    MD_TRY(add_word(&scratch->words, (md_word){0, n, origin}, err));
    for (size_t i = 0; i < pretok->n_steps; i++) {
        md_pretok_step step = pretok->steps[i];
        if (step.kind == MD_PRETOK_METASPACE) {
            MD_TRY(rewrite_all(&step, to_metaspace, scratch, err));
            step.behavior = MD_SPLIT_MERGED_WITH_NEXT;
            if (step.split) MD_TRY(split_all(&step, scratch, err));
        } else if (step.kind == MD_PRETOK_BYTE_LEVEL) {
            if (step.add_prefix_space) MD_TRY(rewrite_all(&step, prefix_space, scratch, err));
            if (step.pattern) MD_TRY(split_all(&step, scratch, err));
            MD_TRY(rewrite_all(&step, to_byte_level, scratch, err));
        } else {
            MD_TRY(split_all(&step, scratch, err));
        }
    }
    return MD_OK;
}
