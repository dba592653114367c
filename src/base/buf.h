// A growable byte buffer with a mandatory maximum, always NUL-terminated, so that no input makes it grow unbounded.
#ifndef MD_BASE_BUF_H
#define MD_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct md_buf {
    char *data;  // owned; NULL until the first append; data[size] == 0 once allocated
    size_t size; // bytes used
    size_t cap;  // bytes allocated
    size_t max;  // appending past this many bytes fails
    bool failed; // sticky: an append failed (out of memory or over max); check once at the end
} md_buf;

void md_buf_init(md_buf *buf, size_t max);
void md_buf_free(md_buf *buf); // frees and leaves an empty buffer with the same max

// Each append returns MD_OK, MD_E_MEMORY, or MD_E_CONTEXT when `max` would be passed; a failed append changes nothing
// and sets buf->failed.
md_status md_buf_append(md_buf *buf, const void *bytes, size_t n);
md_status md_buf_puts(md_buf *buf, const char *text);
md_status md_buf_putc(md_buf *buf, char c);
md_status md_buf_printf(md_buf *buf, const char *fmt, ...) MD_PRINTF(2, 3);

void md_buf_clear(md_buf *buf); // size = 0, failed = false, memory kept
char *md_buf_take(md_buf *buf); // the caller owns the string (never NULL unless out of memory)
static inline const char *md_buf_str(const md_buf *buf) { return buf->data ? buf->data : ""; }

#endif
