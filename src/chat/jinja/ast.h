// The parsed template: one tree of nodes in the compiled template's arena, immutable once parsed.
#ifndef MD_CHAT_JINJA_AST_H
#define MD_CHAT_JINJA_AST_H

#include "chat/jinja/value.h"

// Names are interned: equal names are the same pointer within one template.
typedef struct md_jname {
    struct md_jname *next; // in its hash bucket
    size_t size;
    char text[];
} md_jname;

typedef enum md_jnode_kind {
    // expressions                a, b, c = operands; list = a chain of nodes linked by `next`
    MD_JN_CONST,   // value
    MD_JN_NAME,    // name
    MD_JN_GETATTR, // a.name
    MD_JN_GETITEM, // a[b]
    MD_JN_SLICE,   // a[list], three nodes (an OMITTED bound is a CONST none)
    MD_JN_CALL,    // a(list; a keyword argument has `name` set on a KEYWORD node)
    MD_JN_KEYWORD, // name = a
    MD_JN_FILTER,  // a | func(list); a is NULL at the head of a filter or set block
    MD_JN_TEST,    // a is func(list)
    MD_JN_NOT,
    MD_JN_NEG,
    MD_JN_POS,
    MD_JN_BINARY,    // a op b
    MD_JN_AND,       // a, b
    MD_JN_OR,        // a, b
    MD_JN_CONCAT,    // list joined by ~
    MD_JN_COMPARE,   // a, then list of COMPARAND
    MD_JN_COMPARAND, // op, a
    MD_JN_COND,      // a if b else c (c may be NULL)
    MD_JN_LIST,      // list
    MD_JN_TUPLE,     // list; as a target: names to bind
    MD_JN_DICT,      // list of PAIR
    MD_JN_PAIR,      // a: b
    // statements
    MD_JN_TEXT,        // value: text of the template
    MD_JN_PRINT,       // a
    MD_JN_FOR,         // for a in b if c: list, else body2
    MD_JN_IF,          // if a: list; body2 is the chain of elif and else branches (IF nodes; a is NULL for else)
    MD_JN_SET,         // a = b; a is NAME, TUPLE or GETATTR (of a namespace's name)
    MD_JN_SETBLOCK,    // a = captured list, through the filters b (may be NULL)
    MD_JN_FILTERBLOCK, // captured list through the filters b
    MD_JN_MACRO,       // name(params): list; params is a chain of NAME with the default in a
    MD_JN_CALLBLOCK,   // b is the call; list is the body of `caller`, params its parameters
    MD_JN_WITH,        // params is a chain of SET; list
    MD_JN_SCOPE,       // list in a scope of its own (generation)
    MD_JN_BREAK,
    MD_JN_CONTINUE
} md_jnode_kind;

// Operators of COMPARAND beyond < > and md_jop's == != >= <=.
enum { MD_JOP_IN = 300, MD_JOP_NOT_IN };

typedef struct md_jnode {
    uint8_t kind;   // md_jnode_kind
    uint16_t depth; // 1 + the deepest child's; bounded by the parser, so that recursion over the tree is
    int op;
    int line;
    const md_jname *name;
    const struct md_jn_func *func; // FILTER, TEST: NULL where no such filter is known (an error when it is reached)
    struct md_jnode *a, *b, *c, *list, *body2, *params, *next;
    md_jv value;
} md_jnode;

#endif
