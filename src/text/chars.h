// Properties of code points, as Hugging Face's tokenizers sees them (Unicode 16).
#ifndef MD_TEXT_CHARS_H
#define MD_TEXT_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool md_char_is_space(uint32_t cp);       // the White_Space property; U+180E is not in it
bool md_char_is_numeric(uint32_t cp);     // Nd, Nl, No
bool md_char_is_punctuation(uint32_t cp); // ASCII punctuation (with its symbols), and P*
bool md_char_is_word(uint32_t cp);        // \w: letters, marks, decimal and letter numbers, connectors, joiners

// White_Space written as the inside of a PCRE2 character class, and its complement.
#define MD_CHARS_SPACE_CLASS                                                                                           \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define MD_CHARS_NOT_SPACE_CLASS                                                                                       \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"                \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

// Characters that Unicode 15, 15.1 and 16 assigned, with their general category: Debian 12's PCRE2 knows Unicode 14 and
// its utf8proc Unicode 15, Hugging Face's regex engine Unicode 16. Found by asking both for the category of every code
// point.
typedef struct md_late_range {
    uint32_t first, last;
    char category[3]; // "Lo"
} md_late_range;
extern const md_late_range md_late_ranges[];
extern const size_t md_n_late_ranges;

// For a late character, an older one of the same category and the same size in UTF-8 (and Han for Han); else `cp`.
uint32_t md_char_stand_in(uint32_t cp);

#endif
