#include "gen/stop.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

typedef struct pattern {
    char *text; // owned
    uint16_t size;
    uint16_t matched; // longest prefix of `text` that the text so far ends with
    uint16_t *border; // [size] of each prefix: the longest proper prefix of it that is also its end
} pattern;

struct md_stop {
    size_t count;
    pattern *patterns; // [count]
    bool done;         // a stop string was completed
    md_buf held;       // text that is not decided; at most the longest pattern, and the piece being taken
};

static md_status pattern_init(pattern *p, const char *text, size_t index, md_error *err) {
    size_t size = strlen(text);
    if (size == 0) return md_fail(err, MD_E_USAGE, "stop[%zu]: found an empty string", index);
    if (size > MD_STOP_SIZE_MAX)
        return md_fail(err, MD_E_USAGE, "stop[%zu]: found %zu bytes, expected at most %d", index, size,
                       MD_STOP_SIZE_MAX);
    char what[32];
    snprintf(what, sizeof what, "stop[%zu]", index);
    MD_TRY(md_utf8_check(what, text, size, MD_E_USAGE, err)); // text comes in whole characters: it would never match
    p->text = malloc(size + 1);
    p->border = calloc(size, sizeof *p->border);
    if (!p->text || !p->border) return md_fail(err, MD_E_MEMORY, "stop[%zu]: out of memory", index);
    memcpy(p->text, text, size + 1);
    p->size = (uint16_t)size;
    for (uint16_t i = 1, border = 0; i < p->size; i++) {
        while (border && text[i] != text[border]) border = p->border[border - 1];
        if (text[i] == text[border]) border++;
        p->border[i] = border;
    }
    return MD_OK;
}

md_status md_stop_open(const char *const *strings, size_t count, md_stop **out, md_error *err) {
    *out = NULL;
    if (count > MD_STOP_MAX)
        return md_fail(err, MD_E_USAGE, "stop: found %zu strings, expected at most %d", count, MD_STOP_MAX);
    md_stop *stop = calloc(1, sizeof *stop);
    if (!stop) return md_fail(err, MD_E_MEMORY, "stop: out of memory");
    stop->count = count;
    stop->patterns = calloc(count ? count : 1, sizeof *stop->patterns);
    md_buf_init(&stop->held, SIZE_MAX / 2);
    md_status status = stop->patterns ? MD_OK : md_fail(err, MD_E_MEMORY, "stop: out of memory");
    for (size_t i = 0; i < count && status == MD_OK; i++) status = pattern_init(&stop->patterns[i], strings[i], i, err);
    if (status != MD_OK) {
        md_stop_close(stop);
        return status;
    }
    *out = stop;
    return MD_OK;
}

void md_stop_close(md_stop *stop) {
    if (!stop) return;
    for (size_t i = 0; stop->patterns && i < stop->count; i++) {
        free(stop->patterns[i].text);
        free(stop->patterns[i].border);
    }
    free(stop->patterns);
    md_buf_free(&stop->held);
    free(stop);
}

// Moves every pattern on by one byte. Returns the index of the longest one completed, or -1.
static int advance(md_stop *stop, char byte) {
    int found = -1;
    for (size_t i = 0; i < stop->count; i++) {
        pattern *p = &stop->patterns[i];
        while (p->matched && p->text[p->matched] != byte) p->matched = p->border[p->matched - 1];
        if (p->text[p->matched] == byte) p->matched++;
        if (p->matched == p->size && (found < 0 || p->size > stop->patterns[found].size)) found = (int)i;
    }
    return found;
}

// Appends the first `n` bytes held to *out and keeps the rest.
static md_status release(md_stop *stop, size_t n, md_buf *out, md_error *err) {
    if (n == 0) return MD_OK;
    md_status status = md_buf_append(out, stop->held.data, n);
    if (status != MD_OK) return md_fail(err, status, "generated text: no room for %zu more bytes", n);
    memmove(stop->held.data, stop->held.data + n, stop->held.size - n + 1); // with the NUL
    stop->held.size -= n;
    return MD_OK;
}

md_status md_stop_put(md_stop *stop, const char *text, size_t n, md_buf *out, int *matched, md_error *err) {
    *matched = -1;
    if (stop->done || n == 0) return MD_OK;
    size_t before = stop->held.size;
    if (md_buf_append(&stop->held, text, n) != MD_OK)
        return md_fail(err, MD_E_MEMORY, "generated text: out of memory for %zu bytes", n);
    for (size_t i = 0; i < n && *matched < 0; i++) {
        *matched = advance(stop, text[i]);
        if (*matched < 0) continue;
        stop->done = true;
        size_t end = before + i + 1;
        MD_TRY(release(stop, end - stop->patterns[*matched].size, out, err));
        md_buf_clear(&stop->held);
        return MD_OK;
    }
    size_t open = 0; // bytes that may begin a stop string
    for (size_t i = 0; i < stop->count; i++)
        if (stop->patterns[i].matched > open) open = stop->patterns[i].matched;
    return release(stop, stop->held.size - open, out, err);
}

md_status md_stop_flush(md_stop *stop, md_buf *out, md_error *err) { return release(stop, stop->held.size, out, err); }
