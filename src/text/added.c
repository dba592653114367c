#include "text/added.h"

#include <stdlib.h>
#include <string.h>

#include "text/chars.h"
#include "text/utf8.h"

void md_added_free(md_added *added) {
    for (size_t i = 0; i < added->n; i++) {
        free(added->tokens[i].content);
        free(added->tokens[i].normal);
    }
    free(added->tokens);
    *added = (md_added){0};
}

static bool is_blank(const char *text, size_t n) {
    size_t size;
    for (size_t at = 0; at < n; at += size)
        if (!md_char_is_space(md_utf8_decode(text + at, n - at, &size))) return false;
    return true;
}

md_status md_added_load(md_added *added, const json_t *json, int64_t id, const char *what, md_error *err) {
    const json_t *content = json_object_get(json, "content");
    if (!json_is_string(content))
        return md_fail(err, MD_E_FORMAT, "%s: \"content\" is %s, expected a string", what, md_json_type_name(content));
    const char *text = json_string_value(content);
    size_t n = json_string_length(content);
    if (n == 0) return MD_OK; // as Hugging Face: it could match nowhere
    if (n > MD_ADDED_MAX_BYTES)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: the token \"%.40s...\" has %zu bytes, at most %d are supported",
                       what, text, n, MD_ADDED_MAX_BYTES);
    if (added->n == MD_ADDED_MAX_TOKENS)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: more than %d added tokens", what, MD_ADDED_MAX_TOKENS);
    md_added_token token = {.size = n, .id = (uint32_t)id, .blank = is_blank(text, n)};
    MD_TRY(md_json_get_bool(json, "special", &token.special, what, err));
    MD_TRY(md_json_get_bool(json, "single_word", &token.single_word, what, err));
    MD_TRY(md_json_get_bool(json, "lstrip", &token.lstrip, what, err));
    MD_TRY(md_json_get_bool(json, "rstrip", &token.rstrip, what, err));
    token.normalized = !token.special;
    MD_TRY(md_json_get_bool(json, "normalized", &token.normalized, what, err));
    if (added->n == added->cap) {
        size_t cap = added->cap * 2 + 16;
        md_added_token *tokens = realloc(added->tokens, cap * sizeof *tokens);
        if (!tokens) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
        added->tokens = tokens;
        added->cap = cap;
    }
    token.content = malloc(n + 1);
    if (!token.content) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    memcpy(token.content, text, n + 1);
    added->tokens[added->n++] = token;
    return MD_OK;
}

// ---- the trie ------------------------------------------------------------------------------------------------------

void md_trie_init(md_trie *trie) {
    *trie = (md_trie){0};
    for (size_t i = 0; i < 256; i++) trie->root[i] = MD_TRIE_NONE;
}

void md_trie_free(md_trie *trie) {
    free(trie->nodes);
    md_trie_init(trie);
}

static uint32_t child_of(const md_trie *trie, uint32_t node, unsigned char byte) {
    uint32_t child = node == MD_TRIE_NONE ? trie->root[byte] : trie->nodes[node].child;
    while (child != MD_TRIE_NONE && trie->nodes[child].byte != byte) child = trie->nodes[child].sibling;
    return child;
}

md_status md_trie_add(md_trie *trie, const char *text, size_t n, uint32_t token, const char *what, md_error *err) {
    if (trie->cap - trie->n < n) {
        size_t cap = trie->cap * 2 + n;
        md_trie_node *nodes = cap < MD_TRIE_NONE ? realloc(trie->nodes, cap * sizeof *nodes) : NULL;
        if (!nodes) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
        trie->nodes = nodes;
        trie->cap = cap;
    }
    uint32_t node = MD_TRIE_NONE; // the root
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)text[i];
        uint32_t child = child_of(trie, node, byte);
        if (child == MD_TRIE_NONE) {
            child = (uint32_t)trie->n++;
            uint32_t *first = node == MD_TRIE_NONE ? &trie->root[byte] : &trie->nodes[node].child;
            trie->nodes[child] = (md_trie_node){MD_TRIE_NONE, MD_TRIE_NONE, *first, byte};
            *first = child;
        }
        node = child;
    }
    trie->nodes[node].token = token;
    return MD_OK;
}

// ---- matching ------------------------------------------------------------------------------------------------------

// Bytes from `at` on that a control token may take: up to the end of the range `at` is in, or none. `at` never falls
// from call to call.
static size_t allowed_bytes(md_added_iter *iter, size_t at) {
    while (iter->range < iter->n_ranges && iter->ranges[iter->range].end <= at) iter->range++;
    if (iter->range == iter->n_ranges || iter->ranges[iter->range].start > at) return 0;
    return iter->ranges[iter->range].end - at;
}

// The longest token at `at` and the bytes it takes, or NULL.
static const md_added_token *longest(md_added_iter *iter, size_t at, size_t *size) {
    uint32_t node = child_of(iter->trie, MD_TRIE_NONE, (unsigned char)iter->text[at]);
    if (node == MD_TRIE_NONE) return NULL;
    size_t allowed = iter->guarded ? allowed_bytes(iter, at) : iter->n - at;
    const md_added_token *found = NULL;
    for (size_t end = at + 1; node != MD_TRIE_NONE; end++) {
        uint32_t index = iter->trie->nodes[node].token;
        if (index != MD_TRIE_NONE && (end - at <= allowed || iter->added->tokens[index].blank)) {
            found = &iter->added->tokens[index];
            *size = end - at;
        }
        node = end < iter->n ? child_of(iter->trie, node, (unsigned char)iter->text[end]) : MD_TRIE_NONE;
    }
    return found;
}

static bool touches_word(const md_added_iter *iter, size_t start, size_t end) {
    size_t size;
    if (start > 0) {
        size_t before = md_utf8_last(iter->text, start);
        if (md_char_is_word(md_utf8_decode(iter->text + before, start - before, &size))) return true;
    }
    return end < iter->n && md_char_is_word(md_utf8_decode(iter->text + end, iter->n - end, &size));
}

static size_t strip_before(const md_added_iter *iter, size_t start) {
    size_t size;
    while (start > iter->covered) {
        size_t before = md_utf8_last(iter->text, start);
        if (!md_char_is_space(md_utf8_decode(iter->text + before, start - before, &size))) break;
        start = before;
    }
    return start;
}

static size_t strip_after(const md_added_iter *iter, size_t end) {
    size_t size;
    while (end < iter->n && md_char_is_space(md_utf8_decode(iter->text + end, iter->n - end, &size))) end += size;
    return end;
}

bool md_added_next(md_added_iter *iter, const md_added_token **token, size_t *start, size_t *end) {
    while (iter->at < iter->n) {
        size_t size;
        const md_added_token *found = longest(iter, iter->at, &size);
        if (!found) {
            iter->at++;
            continue;
        }
        size_t from = iter->at, to = from + size;
        iter->at = to; // a match that is refused is not looked into again, as in Hugging Face's find_matches
        if (found->single_word && touches_word(iter, from, to)) continue;
        *token = found;
        *start = found->lstrip ? strip_before(iter, from) : from;
        *end = found->rstrip ? strip_after(iter, to) : to;
        iter->covered = *end;
        return true;
    }
    return false;
}
