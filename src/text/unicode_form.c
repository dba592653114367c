#include "text/unicode_form.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/utf8.h"

enum { MAX_DECOMPOSED = 32 }; // the longest decomposition of one character is 18 (U+FDFA)

// Hugging Face's normalizers know an older Unicode than utf8proc: these characters they take for starters without a
// decomposition. Found by normalizing every code point, and every mark after another one, with both.
// clang-format off
static const struct {
    uint32_t first, last;
} newer[] = {
    {0x7fd, 0x7fd}, {0x898, 0x89f}, {0x8ca, 0x8d3}, {0x9fe, 0x9fe}, {0xc3c, 0xc3c}, {0xd3b, 0xd3c}, {0xeba, 0xeba},
    {0x1715, 0x1715}, {0x1abf, 0x1ace}, {0x1df6, 0x1dfa}, {0x32ff, 0x32ff}, {0xa7f2, 0xa7f4}, {0xa82c, 0xa82c},
    {0xab69, 0xab69}, {0x10781, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27},
    {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070},
    {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11938, 0x11938},
    {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47},
    {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42},
    {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
    {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};
// clang-format on

static bool is_newer(uint32_t cp) {
    size_t low = 0, high = sizeof newer / sizeof newer[0];
    while (cp >= newer[0].first && low < high) {
        size_t middle = low + (high - low) / 2;
        if (cp > newer[middle].last) {
            low = middle + 1;
        } else if (cp < newer[middle].first) {
            high = middle;
        } else {
            return true;
        }
    }
    return false;
}

typedef struct code_points {
    utf8proc_int32_t *data; // owned
    size_t size, cap;
} code_points;

static md_status reserve(code_points *cps, size_t extra, md_error *err) {
    if (cps->cap - cps->size >= extra) return MD_OK;
    size_t cap = cps->cap + cps->cap / 2 + extra;
    // Composing may be done in place; utf8proc asks for one element to spare.
    utf8proc_int32_t *data = realloc(cps->data, (cap + 1) * sizeof *data);
    if (!data) return md_fail(err, MD_E_MEMORY, "out of memory for normalizing %zu characters", cap);
    cps->data = data;
    cps->cap = cap;
    return MD_OK;
}

static unsigned combining_class(utf8proc_int32_t cp) {
    return cp < 0x300 ? 0 : (unsigned)utf8proc_get_property(cp)->combining_class;
}

// Stable sort of a run of combining marks by their class. utf8proc would do it itself, but in quadratic time: a
// megabyte of marks would take hours. Short runs, which are all there are in any language, by insertion; long ones by
// counting.
static md_status sort_marks(utf8proc_int32_t *marks, size_t n, md_error *err) {
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t mark = marks[i];
            size_t at = i;
            for (; at > 0 && combining_class(marks[at - 1]) > combining_class(mark); at--) marks[at] = marks[at - 1];
            marks[at] = mark;
        }
        return MD_OK;
    }
    size_t start[256] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++) start[combining_class(marks[i]) & 255]++;
    for (size_t i = 0; i < 256; i++) {
        size_t count = start[i];
        start[i] = sum;
        sum += count;
    }
    utf8proc_int32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return md_fail(err, MD_E_MEMORY, "out of memory for sorting %zu combining marks", n);
    for (size_t i = 0; i < n; i++) sorted[start[combining_class(marks[i]) & 255]++] = marks[i];
    memcpy(marks, sorted, n * sizeof *sorted);
    free(sorted);
    return MD_OK;
}

static md_status decompose(const char *text, size_t n, utf8proc_option_t options, code_points *cps, md_error *err) {
    size_t size, marks = 0; // start of the run of marks at the end
    for (size_t at = 0; at < n; at += size) {
        utf8proc_int32_t cp = (utf8proc_int32_t)md_utf8_decode(text + at, n - at, &size);
        MD_TRY(reserve(cps, MAX_DECOMPOSED, err));
        int boundary = 0;
        utf8proc_ssize_t got = utf8proc_decompose_char(cp, cps->data + cps->size, MAX_DECOMPOSED, options, &boundary);
        if (got < 0 || got > MAX_DECOMPOSED)
            return md_fail(err, MD_E_INTERNAL, "utf8proc cannot decompose U+%04X", (unsigned)cp);
        for (size_t end = cps->size + (size_t)got; cps->size < end; cps->size++) {
            if (combining_class(cps->data[cps->size]) != 0) continue;
            MD_TRY(sort_marks(cps->data + marks, cps->size - marks, err));
            marks = cps->size + 1;
        }
    }
    return sort_marks(cps->data + marks, cps->size - marks, err);
}

// The normal form of a text without newer characters.
static md_status form_of(const char *text, size_t n, bool compatible, bool composed, code_points *cps, md_buf *out,
                         md_error *err) {
    size_t ascii = 0;
    while (ascii < n && !((unsigned char)text[ascii] & 0x80)) ascii++;
    if (ascii == n) return md_buf_append(out, text, n); // ASCII is in every normal form
    utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
    if (compatible) options = (utf8proc_option_t)(options | UTF8PROC_COMPAT);
    cps->size = 0;
    MD_TRY(decompose(text, n, options, cps, err));
    if (composed) {
        utf8proc_ssize_t left = utf8proc_normalize_utf32(cps->data, (utf8proc_ssize_t)cps->size,
                                                         (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
        if (left < 0) return md_fail(err, MD_E_INTERNAL, "utf8proc cannot compose %zu characters", cps->size);
        cps->size = (size_t)left;
    }
    for (size_t i = 0; i < cps->size; i++) {
        char bytes[4];
        MD_TRY(md_buf_append(out, bytes, md_utf8_encode((uint32_t)cps->data[i], bytes)));
    }
    return MD_OK;
}

md_status md_unicode_form(const char *text, size_t n, bool compatible, bool composed, md_buf *out, md_error *err) {
    code_points cps = {0};
    md_status status = MD_OK;
    size_t done = 0, size;
    for (size_t at = 0; at < n && status == MD_OK; at += size) {
        if (!is_newer(md_utf8_decode(text + at, n - at, &size))) continue;
        status = form_of(text + done, at - done, compatible, composed, &cps, out, err);
        if (status == MD_OK) status = md_buf_append(out, text + at, size);
        done = at + size;
    }
    if (status == MD_OK) status = form_of(text + done, n - done, compatible, composed, &cps, out, err);
    free(cps.data);
    if (out->failed) return md_fail(err, status, "the normal form of %zu bytes of text is too large", n);
    return status;
}
