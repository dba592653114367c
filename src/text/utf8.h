// UTF-8: the one place where bytes become code points. Pure functions, any input.
#ifndef MD_TEXT_UTF8_H
#define MD_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"

#define MD_UTF8_REPLACEMENT "\xef\xbf\xbd" // U+FFFD

// The character at the start of VALID text[0..n), n > 0; *size = its bytes.
uint32_t md_utf8_decode(const char *text, size_t n, size_t *size);

// The start of the last character of VALID text[0..n), n > 0.
size_t md_utf8_last(const char *text, size_t n);

// Writes the character (a Unicode scalar value) and returns its bytes, 1 to 4.
size_t md_utf8_encode(uint32_t cp, char out[4]);

// True when text[0..n) is exactly one valid character; *cp is that character.
bool md_utf8_single(const char *text, size_t n, uint32_t *cp);

#endif
