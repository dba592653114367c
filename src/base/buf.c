#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void md_buf_init(md_buf *buf, size_t max) { *buf = (md_buf){.max = max}; }

void md_buf_free(md_buf *buf) {
    size_t max = buf->max;
    free(buf->data);
    md_buf_init(buf, max);
}

static md_status reserve(md_buf *buf, size_t extra) {
    if (extra > buf->max || buf->size > buf->max - extra) {
        buf->failed = true;
        return MD_E_CONTEXT;
    }
    size_t need = buf->size + extra + 1;
    if (need <= buf->cap) return MD_OK;
    size_t cap = buf->cap ? buf->cap : 64;
    while (cap < need) cap += cap / 2 + 64;
    char *data = realloc(buf->data, cap);
    if (!data) {
        buf->failed = true;
        return MD_E_MEMORY;
    }
    buf->data = data;
    buf->cap = cap;
    return MD_OK;
}

md_status md_buf_append(md_buf *buf, const void *bytes, size_t n) {
    MD_TRY(reserve(buf, n));
    if (n) memcpy(buf->data + buf->size, bytes, n);
    buf->size += n;
    buf->data[buf->size] = 0;
    return MD_OK;
}

md_status md_buf_puts(md_buf *buf, const char *text) { return md_buf_append(buf, text, strlen(text)); }
md_status md_buf_putc(md_buf *buf, char c) { return md_buf_append(buf, &c, 1); }

md_status md_buf_printf(md_buf *buf, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        buf->failed = true;
        return MD_E_INTERNAL;
    }
    MD_TRY(reserve(buf, (size_t)n));
    va_start(ap, fmt);
    vsnprintf(buf->data + buf->size, (size_t)n + 1, fmt, ap);
    va_end(ap);
    buf->size += (size_t)n;
    return MD_OK;
}

void md_buf_clear(md_buf *buf) {
    buf->size = 0;
    buf->failed = false;
    if (buf->data) buf->data[0] = 0;
}

char *md_buf_take(md_buf *buf) {
    if (!buf->data && reserve(buf, 0) == MD_OK) buf->data[0] = 0;
    char *data = buf->data;
    size_t max = buf->max;
    md_buf_init(buf, max);
    return data;
}
