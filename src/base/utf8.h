// What bytes are a character of UTF-8. Pure, any input; src/text/utf8.h has the rest.
#ifndef MD_BASE_UTF8_H
#define MD_BASE_UTF8_H

#include <stddef.h>

#include "base/status.h"

typedef enum md_utf8_kind {
    MD_UTF8_CHAR,      // a whole character
    MD_UTF8_INVALID,   // bytes that can start no character, whatever follows
    MD_UTF8_INCOMPLETE // the text ends inside what may still become a character
} md_utf8_kind;

// Looks at the start of bytes[0..n), n > 0. *size = bytes of the character, or of the piece to replace by one U+FFFD
// (the "maximal subpart" of the Unicode standard, section 3.9: what Rust's and Python's lossy conversions replace).
md_utf8_kind md_utf8_scan(const char *bytes, size_t n, size_t *size);

// Bytes from the start that are whole valid characters: n when all of it is valid UTF-8.
size_t md_utf8_valid_prefix(const char *bytes, size_t n);

// Fails with `code` where bytes[0..n) are no UTF-8; the message says what they are (`what`), and which byte at which
// offset (from 0) is the first that is none.
md_status md_utf8_check(const char *what, const char *bytes, size_t n, md_status code, md_error *err);

#endif
