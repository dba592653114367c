#include "text/unicode_form.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/utf8.h"

enum { MAX_DECOMPOSED = 32 }; // the longest decomposition of one character is 18 (U+FDFA)

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

md_status md_unicode_form(const char *text, size_t n, bool compatible, bool composed, md_buf *out, md_error *err) {
    size_t ascii = 0;
    while (ascii < n && !((unsigned char)text[ascii] & 0x80)) ascii++;
    if (ascii == n) return md_buf_append(out, text, n); // ASCII is in every normal form
    code_points cps = {0};
    md_status status;
    utf8proc_option_t options = (utf8proc_option_t)(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
    if (compatible) options = (utf8proc_option_t)(options | UTF8PROC_COMPAT);
    MD_TRY_GOTO(reserve(&cps, n / 2, err));
    MD_TRY_GOTO(decompose(text, n, options, &cps, err));
    if (composed) {
        utf8proc_ssize_t left = utf8proc_normalize_utf32(cps.data, (utf8proc_ssize_t)cps.size,
                                                         (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
        if (left < 0) {
            status = md_fail(err, MD_E_INTERNAL, "utf8proc cannot compose %zu characters", cps.size);
            goto fail;
        }
        cps.size = (size_t)left;
    }
    for (size_t i = 0; i < cps.size; i++) {
        char bytes[4];
        status = md_buf_append(out, bytes, md_utf8_encode((uint32_t)cps.data[i], bytes));
        if (status != MD_OK) {
            md_fail(err, status, "the normal form of %zu bytes of text is too large", n);
            goto fail;
        }
    }
    status = MD_OK;
fail:
    free(cps.data);
    return status;
}
