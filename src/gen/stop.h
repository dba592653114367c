// Stop strings across token borders: text goes in by pieces of any size, and comes out but for what might be the start
// of a stop string, which is held back until that is decided. The stop string itself never comes out.
//
// The stop that ends first wins; of several that end at the same byte the longest. So the result depends on the text
// alone, not on how it is cut into pieces. Time is linear in the text for each stop string (Knuth, Morris, Pratt).
// Thread rule: one thread at a time.
#ifndef MD_GEN_STOP_H
#define MD_GEN_STOP_H

#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct md_stop md_stop;

// Copies the strings. MD_E_USAGE: more than MD_STOP_MAX, an empty one, one longer than MD_STOP_SIZE_MAX or no UTF-8.
md_status md_stop_open(const char *const *strings, size_t count, md_stop **out, md_error *err);
void md_stop_close(md_stop *stop); // NULL is fine

// Takes `n` bytes and appends to *out what is decided to be text. *matched: the index of the stop string that was
// completed (later text is dropped), else -1. MD_E_MEMORY, or MD_E_CONTEXT when *out is full.
md_status md_stop_put(md_stop *stop, const char *text, size_t n, md_buf *out, int *matched, md_error *err);

// The end of the text without a stop: what is held back comes out.
md_status md_stop_flush(md_stop *stop, md_buf *out, md_error *err);

#endif
