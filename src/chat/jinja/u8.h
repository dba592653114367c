// Characters of valid UTF-8, and the Unicode facts Python's str methods need. All strings of the template engine are
// valid UTF-8: source and JSON are checked where they enter, and every operation cuts between characters.
#ifndef MD_CHAT_JINJA_U8_H
#define MD_CHAT_JINJA_U8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/utf8.h"

// The character at bytes[*pos], *pos < n; moves *pos past it.
static inline uint32_t md_u8_next(const char *bytes, size_t n, size_t *pos) {
    size_t size;
    uint32_t cp = md_utf8_decode(bytes + *pos, n - *pos, &size);
    *pos += size;
    return cp;
}
size_t md_u8_count(const char *bytes, size_t n);                // characters
size_t md_u8_offset(const char *bytes, size_t n, size_t index); // byte offset of character `index`; n past the end

bool md_u8_is_space(uint32_t cp);     // str.isspace of one character; also \s of Python's re
bool md_u8_is_printable(uint32_t cp); // str.isprintable
bool md_u8_is_alpha(uint32_t cp);
bool md_u8_is_digit(uint32_t cp); // decimal digits
bool md_u8_is_lower(uint32_t cp);
bool md_u8_is_upper(uint32_t cp);
bool md_u8_is_cased(uint32_t cp);
uint32_t md_u8_lower(uint32_t cp);
uint32_t md_u8_upper(uint32_t cp); // simple mapping: one character for one
uint32_t md_u8_title(uint32_t cp);

#endif
