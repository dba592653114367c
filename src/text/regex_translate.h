// Oniguruma's regular expressions (what Hugging Face's tokenizers compiles) rewritten for PCRE2.
//
// The two dialects share most of their syntax. What means something else in PCRE2 is rewritten: \s and \S (PCRE2 counts
// U+180E), \w, \W and \b (PCRE2's words have no marks), \h (a hexadecimal digit), \v, \uHHHH, {,n}, the inline flag m
// (dot matches newline), scripts (PCRE2 means script extensions). What has no simple equal, as nested classes and class
// intersections, is refused by name.
#ifndef MD_TEXT_REGEX_TRANSLATE_H
#define MD_TEXT_REGEX_TRANSLATE_H

#include "base/buf.h"

// Appends the rewritten pattern to *out. `what` names the pattern in messages. MD_E_UNSUPPORTED, MD_E_FORMAT.
md_status md_regex_translate(const char *pattern, size_t n, const char *what, md_buf *out, md_error *err);

#endif
