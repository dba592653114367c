// A set of Unicode characters, and the ways they are written in an answer.
#ifndef MD_SERVER_CHARSET_H
#define MD_SERVER_CHARSET_H

#include "server/grammar.h"

enum { MD_CHARSET_RANGES = 64 };

// Ranges in order, apart from each other. Surrogates are no characters and in no set.
typedef struct md_charset {
    uint32_t low[MD_CHARSET_RANGES], high[MD_CHARSET_RANGES];
    uint32_t count;
} md_charset;

// How text is written in the place where it stands.
typedef enum md_text_form {
    MD_TEXT_JSON,    // inside a JSON string: quote, backslash and controls as escapes
    MD_TEXT_JSON_LT, // the same, and "<" as an escape too: for JSON inside of a call's XML
    MD_TEXT_RAW      // as it is, without "<" and controls other than tab and line break: a parameter of a call's XML
} md_text_form;

// False when the set would have too many ranges.
bool md_charset_add(md_charset *set, uint32_t low, uint32_t high);
bool md_charset_add_all(md_charset *set, const md_charset *other);
bool md_charset_negate(md_charset *set);
bool md_charset_equal(const md_charset *a, const md_charset *b);

// Appends code that reads one character of the set and goes on behind itself. A form that can't write any of them, and
// an empty set, give code that reads nothing.
md_status md_charset_emit(md_grammar *grammar, const md_charset *set, md_text_form form, md_error *err);

// Appends code that reads exactly this text, inside a JSON string: form is not MD_TEXT_RAW.
md_status md_text_emit(md_grammar *grammar, const char *text, size_t n, md_text_form form, md_error *err);

#endif
