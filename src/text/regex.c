#define _GNU_SOURCE // memmem
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "text/chars.h"
#include "text/regex_translate.h"
#include "text/utf8.h"

enum {
    MAX_REGEX_BYTES = 16 * 1024,
    // Steps one match may take: enough for any sane pattern (a few for each byte that is left), and little enough that
    // "(a+)+$" fails within milliseconds.
    MATCH_STEPS = 1000 * 1000,
    MATCH_STEPS_PER_BYTE = 32,
    MATCH_HEAP_KIB = 64 * 1024,
    JIT_STACK_MAX = 8 * 1024 * 1024
};

struct md_pattern {
    pcre2_code *code; // NULL: a literal
    char *literal;
    size_t literal_size;
};

md_status md_pattern_literal(const char *text, size_t n, const char *what, md_pattern **out, md_error *err) {
    *out = NULL;
    if (n == 0) return md_fail(err, MD_E_UNSUPPORTED, "%s: the pattern is empty", what);
    md_pattern *pattern = calloc(1, sizeof *pattern);
    if (pattern) pattern->literal = malloc(n);
    if (!pattern || !pattern->literal) {
        md_pattern_free(pattern);
        return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    }
    memcpy(pattern->literal, text, n);
    pattern->literal_size = n;
    *out = pattern;
    return MD_OK;
}

static md_status compile(md_pattern *pattern, const md_buf *regex, const char *what, md_error *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF); // Oniguruma's: "." does not match \n alone, and ^ $ are at lines
    pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    int code;
    PCRE2_SIZE at;
    pattern->code =
        pcre2_compile((PCRE2_SPTR)md_buf_str(regex), regex->size,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!pattern->code && code == PCRE2_ERROR_HEAP_FAILED) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    if (!pattern->code) {
        PCRE2_UCHAR text[128];
        pcre2_get_error_message(code, text, sizeof text);
        return md_fail(err, MD_E_FORMAT, "%s: the regex cannot be compiled: %s (at byte %zu of \"%.80s\")", what,
                       (const char *)text, (size_t)at, md_buf_str(regex));
    }
    // Where there is no JIT (or no memory that may be executed), the interpreter gives the same matches.
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return MD_OK;
}

md_status md_pattern_regex(const char *regex, size_t n, const char *what, md_pattern **out, md_error *err) {
    *out = NULL;
    if (n > MAX_REGEX_BYTES)
        return md_fail(err, MD_E_FORMAT, "%s: a regex of %zu bytes, at most %d expected", what, n, MAX_REGEX_BYTES);
    md_buf translated;
    md_buf_init(&translated, 32 * MAX_REGEX_BYTES);
    md_pattern *pattern = NULL;
    md_status status;
    MD_TRY_GOTO(md_regex_translate(regex, n, what, &translated, err));
    pattern = calloc(1, sizeof *pattern);
    if (!pattern) {
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
        goto fail;
    }
    MD_TRY_GOTO(compile(pattern, &translated, what, err));
    md_buf_free(&translated);
    *out = pattern;
    return MD_OK;
fail:
    md_pattern_free(pattern);
    md_buf_free(&translated);
    return status;
}

md_status md_pattern_from_json(const json_t *json, const char *what, md_pattern **out, md_error *err) {
    *out = NULL;
    const json_t *literal = json_object_get(json, "String"), *regex = json_object_get(json, "Regex");
    if (json_is_string(literal))
        return md_pattern_literal(json_string_value(literal), json_string_length(literal), what, out, err);
    if (json_is_string(regex))
        return md_pattern_regex(json_string_value(regex), json_string_length(regex), what, out, err);
    return md_fail(err, MD_E_FORMAT, "%s: \"pattern\" is %s, expected {\"String\": ...} or {\"Regex\": ...}", what,
                   md_json_type_name(json));
}

void md_pattern_free(md_pattern *pattern) {
    if (!pattern) return;
    pcre2_code_free(pattern->code);
    free(pattern->literal);
    free(pattern);
}

void md_match_scratch_free(md_match_scratch *scratch) {
    pcre2_match_data_free(scratch->match_data);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->jit_stack);
    md_buf_free(&scratch->shadow);
    *scratch = (md_match_scratch){0};
}

// Replaces the characters that PCRE2 does not know yet; leaves the iterator's text alone where there are none.
static md_status shadow_late_characters(md_match_iter *iter, md_error *err) {
    md_buf *shadow = &iter->scratch->shadow;
    bool copied = false;
    size_t size;
    for (size_t at = 0; at < iter->n; at += size) {
        size = 1;
        if ((unsigned char)iter->text[at] < 0xe0) continue; // late characters have three or four bytes
        uint32_t cp = md_utf8_decode(iter->text + at, iter->n - at, &size);
        uint32_t stand_in = md_char_stand_in(cp);
        if (stand_in == cp) continue;
        if (!copied) {
            md_buf_clear(shadow);
            shadow->max = iter->n;
            if (md_buf_append(shadow, iter->text, iter->n) != MD_OK)
                return md_fail(err, MD_E_MEMORY, "out of memory for %zu bytes of text", iter->n);
            copied = true;
        }
        md_utf8_encode(stand_in, shadow->data + at);
    }
    if (copied) iter->text = shadow->data;
    return MD_OK;
}

md_status md_match_begin(md_match_iter *iter, const md_pattern *pattern, const char *text, size_t n,
                         md_match_scratch *scratch, md_error *err) {
    *iter = (md_match_iter){.pattern = pattern, .scratch = scratch, .text = text, .n = n};
    if (!pattern->code) return MD_OK;
    if (!scratch->match_data) {
        scratch->match_data = pcre2_match_data_create(1, NULL);
        scratch->context = pcre2_match_context_create(NULL);
        scratch->jit_stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_MAX, NULL);
        if (!scratch->match_data || !scratch->context || !scratch->jit_stack)
            return md_fail(err, MD_E_MEMORY, "out of memory for matching a regex");
        pcre2_set_heap_limit(scratch->context, MATCH_HEAP_KIB);
        pcre2_jit_stack_assign(scratch->context, NULL, scratch->jit_stack);
    }
    return shadow_late_characters(iter, err);
}

static md_status regex_next(md_match_iter *iter, bool *found, size_t *start, size_t *end, md_error *err) {
    md_match_scratch *scratch = iter->scratch;
    while (iter->at <= iter->n) {
        size_t left = iter->n - iter->at;
        size_t steps = left < (UINT32_MAX - MATCH_STEPS) / MATCH_STEPS_PER_BYTE
                           ? MATCH_STEPS + left * MATCH_STEPS_PER_BYTE
                           : UINT32_MAX;
        pcre2_set_match_limit(scratch->context, (uint32_t)steps);
        int code = pcre2_match(iter->pattern->code, (PCRE2_SPTR)iter->text, iter->n, iter->at, PCRE2_NO_UTF_CHECK,
                               scratch->match_data, scratch->context);
        if (code == PCRE2_ERROR_NOMATCH) return MD_OK;
        if (code == PCRE2_ERROR_NOMEMORY) return md_fail(err, MD_E_MEMORY, "out of memory for matching a regex");
        if (code < 0) {
            PCRE2_UCHAR text[128];
            pcre2_get_error_message(code, text, sizeof text);
            return md_fail(err, MD_E_CONTEXT, "the tokenizer's regex gave up at byte %zu of %zu: %s", iter->at, iter->n,
                           (const char *)text);
        }
        const PCRE2_SIZE *match = pcre2_get_ovector_pointer(scratch->match_data);
        if (match[0] == match[1] && iter->any && match[1] == iter->last_end) {
            size_t size = 1;
            if (iter->at < iter->n) md_utf8_decode(iter->text + iter->at, left, &size);
            iter->at += size;
            continue;
        }
        *start = match[0];
        *end = match[1];
        *found = true;
        return MD_OK;
    }
    return MD_OK;
}

md_status md_match_next(md_match_iter *iter, bool *found, size_t *start, size_t *end, md_error *err) {
    *found = false;
    if (iter->pattern->code) {
        MD_TRY(regex_next(iter, found, start, end, err));
    } else {
        size_t size = iter->pattern->literal_size;
        const char *at = memmem(iter->text + iter->at, iter->n - iter->at, iter->pattern->literal, size);
        if (at) {
            *found = true;
            *start = (size_t)(at - iter->text);
            *end = *start + size;
        }
    }
    if (*found) {
        iter->any = true;
        iter->last_end = iter->at = *end;
    }
    return MD_OK;
}

md_status md_match_replace(const md_pattern *pattern, const md_buf *text, const char *content, size_t size,
                           md_match_scratch *scratch, md_buf *out, md_error *err) {
    md_match_iter iter;
    MD_TRY(md_match_begin(&iter, pattern, text->data, text->size, scratch, err));
    size_t copied = 0, start, end;
    for (;;) {
        bool found;
        MD_TRY(md_match_next(&iter, &found, &start, &end, err));
        if (!found) break;
        MD_TRY(md_buf_append(out, text->data + copied, start - copied));
        MD_TRY(md_buf_append(out, content, size));
        copied = end;
    }
    return md_buf_append(out, text->data + copied, text->size - copied);
}
