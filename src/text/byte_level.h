// The alphabet of byte-level models (GPT-2's): every byte has a printable character, so that any text can be written
// with 256 tokens. Printable Latin-1 bytes are themselves, the other 68 are U+0100 to U+0143 in order.
#ifndef MD_TEXT_BYTE_LEVEL_H
#define MD_TEXT_BYTE_LEVEL_H

#include "base/buf.h"

uint32_t md_byte_level_char(unsigned char byte);

// The byte that a character stands for, or -1.
int md_byte_level_byte(uint32_t cp);

// Appends the characters of bytes[0..n).
md_status md_byte_level_encode(const char *bytes, size_t n, md_buf *out);

// Appends the bytes of VALID text[0..n) when all its characters are in the alphabet, else the text as it is: that is
// how Hugging Face's ByteLevel decoder reads a token.
md_status md_byte_level_decode(const char *text, size_t n, md_buf *out);

#endif
