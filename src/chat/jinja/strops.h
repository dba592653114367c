// Operations on strings that both the str methods and the filters use. Strings in, strings out, provenance kept.
#ifndef MD_CHAT_JINJA_STROPS_H
#define MD_CHAT_JINJA_STROPS_H

#include "chat/jinja/run.h"

// Without the characters in `chars` (NULL: white space) at its ends.
md_status md_jstr_strip(md_jn_run *run, const md_jv *s, const md_jv *chars, bool left, bool right, md_jv *out);
// The first `count` (negative: all) occurrences replaced.
md_status md_jstr_replace(md_jn_run *run, const md_jv *s, const md_jv *from, const md_jv *to, int64_t count,
                          md_jv *out);
// Lines as str.splitlines() cuts them.
md_status md_jstr_lines(md_jn_run *run, const md_jv *s, bool keep_ends, md_jl *out);

typedef enum md_jcase {
    MD_JCASE_UPPER,
    MD_JCASE_LOWER,
    MD_JCASE_SWAP,
    MD_JCASE_CAPITALIZE,  // the first character, the others lower
    MD_JCASE_TITLE,       // str.title(): every letter after a non-letter
    MD_JCASE_TITLE_FILTER // Jinja's title: every character after white space or one of -({[<
} md_jcase;
md_status md_jstr_case(md_jn_run *run, const md_jv *s, md_jcase mode, md_jv *out);

typedef enum md_jpad { MD_JPAD_LEFT, MD_JPAD_RIGHT, MD_JPAD_BOTH } md_jpad; // where the padding goes
md_status md_jstr_pad(md_jn_run *run, const md_jv *s, int64_t width, uint32_t fill, md_jpad side, md_jv *out);

#endif
