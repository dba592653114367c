#include "text/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/byte_level.h"
#include "text/chars.h"
#include "text/unicode_form.h"
#include "text/utf8.h"

// A normalizer may make a text this many times larger (U+FDFA grows sixfold under NFKC; Prepend and Replace are short).
enum { MAX_GROWTH = 32, MAX_GROWTH_BYTES = 64 * 1024 };

void md_normalizer_free(md_normalizer *normalizer) {
    for (size_t i = 0; i < normalizer->n_steps; i++) {
        md_pattern_free(normalizer->steps[i].pattern);
        free(normalizer->steps[i].content);
    }
    free(normalizer->steps);
    *normalizer = (md_normalizer){0};
}

static md_status load_content(md_normalizer_step *step, const json_t *json, const char *key, const char *what,
                              md_error *err) {
    const json_t *content = json_object_get(json, key);
    if (!json_is_string(content))
        return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is %s, expected a string", what, key, md_json_type_name(content));
    step->content_size = json_string_length(content);
    step->content = malloc(step->content_size + 1);
    if (!step->content) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    memcpy(step->content, json_string_value(content), step->content_size + 1);
    return MD_OK;
}

static md_status load_step(md_normalizer_step *step, const json_t *json, const char *type, const char *what,
                           md_error *err) {
    static const struct {
        const char *type;
        md_normalizer_kind kind;
    } kinds[] = {{"NFC", MD_NORMALIZE_NFC},
                 {"NFD", MD_NORMALIZE_NFD},
                 {"NFKC", MD_NORMALIZE_NFKC},
                 {"NFKD", MD_NORMALIZE_NFKD},
                 {"Lowercase", MD_NORMALIZE_LOWERCASE},
                 {"Prepend", MD_NORMALIZE_PREPEND},
                 {"Replace", MD_NORMALIZE_REPLACE},
                 {"Strip", MD_NORMALIZE_STRIP},
                 {"ByteLevel", MD_NORMALIZE_BYTE_LEVEL}};
    size_t i = 0, n = sizeof kinds / sizeof kinds[0];
    while (i < n && strcmp(kinds[i].type, type) != 0) i++;
    if (i == n) return md_fail(err, MD_E_UNSUPPORTED, "%s: the type \"%.60s\" is not supported", what, type);
    step->kind = kinds[i].kind;
    if (step->kind == MD_NORMALIZE_PREPEND) return load_content(step, json, "prepend", what, err);
    if (step->kind == MD_NORMALIZE_REPLACE) {
        MD_TRY(md_pattern_from_json(json_object_get(json, "pattern"), what, &step->pattern, err));
        return load_content(step, json, "content", what, err);
    }
    if (step->kind == MD_NORMALIZE_STRIP) {
        MD_TRY(md_json_get_bool(json, "strip_left", &step->strip_left, what, err));
        MD_TRY(md_json_get_bool(json, "strip_right", &step->strip_right, what, err));
    }
    return MD_OK;
}

// Sequences may hold sequences; the depth is bounded by the JSON parser's.
static md_status load_steps(md_normalizer *normalizer, const json_t *json, const char *what, md_error *err) {
    if (!json_is_object(json))
        return md_fail(err, MD_E_FORMAT, "%s: found %s, expected an object", what, md_json_type_name(json));
    const char *type = "(none)";
    MD_TRY(md_json_get_string(json, "type", &type, what, err));
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(json, "normalizers");
        if (!json_is_array(list))
            return md_fail(err, MD_E_FORMAT, "%s: \"normalizers\" is %s, expected an array", what,
                           md_json_type_name(list));
        for (size_t i = 0; i < json_array_size(list); i++)
            MD_TRY(load_steps(normalizer, json_array_get(list, i), what, err));
        return MD_OK;
    }
    if (normalizer->n_steps == MD_NORMALIZER_MAX_STEPS)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: more than %d steps", what, MD_NORMALIZER_MAX_STEPS);
    return load_step(&normalizer->steps[normalizer->n_steps++], json, type, what, err);
}

md_status md_normalizer_load(md_normalizer *normalizer, const json_t *json, const char *what, md_error *err) {
    *normalizer = (md_normalizer){0};
    if (!json || json_is_null(json)) return MD_OK;
    normalizer->steps = calloc(MD_NORMALIZER_MAX_STEPS, sizeof *normalizer->steps);
    if (!normalizer->steps) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    return load_steps(normalizer, json, what, err);
}

// Lower case of the letters that Unicode 16 and 17 added, which utf8proc does not know.
static uint32_t lower_of(uint32_t cp) {
    static const struct {
        uint32_t first, last;
        int32_t shift;
    } late[] = {{0x1c89, 0x1c89, 1},      {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
                {0xa7cc, 0xa7cc, 1},      {0xa7ce, 0xa7ce, 1},
                {0xa7d2, 0xa7d2, 1},      {0xa7d4, 0xa7d4, 1},
                {0xa7da, 0xa7da, 1},      {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
                {0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b}};
    uint32_t lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    for (size_t i = 0; lower == cp && i < sizeof late / sizeof late[0]; i++)
        if (cp >= late[i].first && cp <= late[i].last) lower = cp + (uint32_t)late[i].shift;
    return lower;
}

static md_status lowercase(const md_buf *text, md_buf *out) {
    size_t size;
    for (size_t at = 0; at < text->size; at += size) {
        uint32_t cp = md_utf8_decode(text->data + at, text->size - at, &size);
        char bytes[4];
        if (cp == 0x130) { // the one character whose lower case is two: i and a combining dot
            MD_TRY(md_buf_puts(out, "i\xcc\x87"));
        } else {
            MD_TRY(md_buf_append(out, bytes, md_utf8_encode(lower_of(cp), bytes)));
        }
    }
    return MD_OK;
}

static md_status strip(const md_normalizer_step *step, const md_buf *text, md_buf *out) {
    size_t start = 0, end = text->size, size;
    while (step->strip_left && start < end && md_char_is_space(md_utf8_decode(text->data + start, end - start, &size)))
        start += size;
    while (step->strip_right && end > start) {
        size_t last = md_utf8_last(text->data, end);
        if (!md_char_is_space(md_utf8_decode(text->data + last, end - last, &size))) break;
        end = last;
    }
    return md_buf_append(out, text->data + start, end - start);
}

static md_status apply(const md_normalizer_step *step, const md_buf *text, md_buf *out, md_match_scratch *scratch,
                       md_error *err) {
    switch (step->kind) {
    case MD_NORMALIZE_NFC: return md_unicode_form(text->data, text->size, false, true, out, err);
    case MD_NORMALIZE_NFD: return md_unicode_form(text->data, text->size, false, false, out, err);
    case MD_NORMALIZE_NFKC: return md_unicode_form(text->data, text->size, true, true, out, err);
    case MD_NORMALIZE_NFKD: return md_unicode_form(text->data, text->size, true, false, out, err);
    case MD_NORMALIZE_LOWERCASE: return lowercase(text, out);
    case MD_NORMALIZE_PREPEND:
        MD_TRY(md_buf_append(out, step->content, step->content_size));
        return md_buf_append(out, text->data, text->size);
    case MD_NORMALIZE_REPLACE:
        return md_match_replace(step->pattern, text, step->content, step->content_size, scratch, out, err);
    case MD_NORMALIZE_STRIP: return strip(step, text, out);
    case MD_NORMALIZE_BYTE_LEVEL: return md_byte_level_encode(text->data, text->size, out);
    }
    return md_fail(err, MD_E_INTERNAL, "unknown normalizer");
}

md_status md_normalize(const md_normalizer *normalizer, md_buf *text, md_buf *spare, md_match_scratch *scratch,
                       md_error *err) {
    text->max = spare->max = text->size * MAX_GROWTH + MAX_GROWTH_BYTES;
    for (size_t i = 0; i < normalizer->n_steps && text->size > 0; i++) {
        md_buf_clear(spare);
        md_status status = apply(&normalizer->steps[i], text, spare, scratch, err);
        if (status != MD_OK) {
            if (spare->failed) return md_fail(err, status, "the normalized text is too large or memory is out");
            return status;
        }
        md_buf swap = *text;
        *text = *spare;
        *spare = swap;
    }
    return MD_OK;
}
