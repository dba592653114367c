// Template source -> tokens, as Jinja2's lexer cuts it with trim_blocks and lstrip_blocks on.
//
// White space control happens here: "-" strips all white space on its side, "+" keeps it, a block or comment tag takes
// the line feed after it (trim_blocks) and the blanks before it on its line (lstrip_blocks). Line ends are made "\n"
// and one at the very end of the source is dropped, as Jinja2 does. Thread rule: a lexer is used by one thread.
#ifndef MD_CHAT_JINJA_LEXER_H
#define MD_CHAT_JINJA_LEXER_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef enum md_jtok_kind {
    MD_JTOK_EOF,
    MD_JTOK_DATA,        // text between tags
    MD_JTOK_VAR_BEGIN,   // {{
    MD_JTOK_VAR_END,     // }}
    MD_JTOK_BLOCK_BEGIN, // {%
    MD_JTOK_BLOCK_END,   // %}
    MD_JTOK_NAME,
    MD_JTOK_STRING, // text = unescaped
    MD_JTOK_INT,
    MD_JTOK_FLOAT,
    MD_JTOK_OP // op = its character, or one of md_jop
} md_jtok_kind;

// Operators of two characters; those of one are their own ASCII code.
typedef enum md_jop { MD_JOP_FLOORDIV = 256, MD_JOP_POW, MD_JOP_EQ, MD_JOP_NE, MD_JOP_GE, MD_JOP_LE } md_jop;

typedef struct md_jtok {
    md_jtok_kind kind;
    int op;
    int line;         // from 1
    const char *text; // NAME, STRING, DATA: borrowed from the lexer's arena
    size_t size;
    int64_t i;
    double f;
} md_jtok;

enum { MD_JLEX_MAX_BRACES = 128 };

typedef struct md_jlex {
    md_arena *arena; // borrowed; holds the normalized source and unescaped strings
    const char *name;
    const char *src;
    size_t size, pos;
    int line;
    enum { MD_JLEX_ROOT, MD_JLEX_BLOCK, MD_JLEX_VAR, MD_JLEX_RAW } state;
    bool begin_pending; // the tag's BEGIN token comes next, its data has been returned
    int begin_line;
    size_t braces; // open (, [ and { inside the tag
    char open[MD_JLEX_MAX_BRACES];
} md_jlex;

// `name` is used in messages and must live as long as the lexer. MD_E_FORMAT when the source is not UTF-8.
md_status md_jlex_init(md_jlex *lex, md_arena *arena, const char *name, const char *source, size_t n, md_error *err);
md_status md_jlex_next(md_jlex *lex, md_jtok *out, md_error *err);

#endif
