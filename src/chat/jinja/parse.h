// Tokens -> tree, with Jinja2's grammar. parse.c has the statements, parse_expr.c the expressions.
#ifndef MD_CHAT_JINJA_PARSE_H
#define MD_CHAT_JINJA_PARSE_H

#include "base/arena.h"
#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"

enum {
    MD_JN_MAX_PARSE_DEPTH = 200, // nested expressions (a pair of parentheses is two levels) and statements
    MD_JN_MAX_TREE_DEPTH = 200,  // of the tree ("a + b + c ..." grows to the left without nesting)
    MD_JNAME_BUCKETS = 512
};

typedef struct md_jnames {
    md_jname *bucket[MD_JNAME_BUCKETS];
} md_jnames;

// A parsed template; the arena owns everything.
typedef struct md_jtemplate {
    md_arena arena;
    const char *name; // in messages
    const char *source;
    size_t source_size;
    md_jnode *body;
    md_jnames names; // names that the host binds are looked up here
} md_jtemplate;

// Parses into `out`, which the caller frees with md_jtemplate_free whatever the result.
md_status md_jtemplate_parse(md_jtemplate *out, const char *name, const char *source, size_t n, md_error *err);
void md_jtemplate_free(md_jtemplate *tree);
// The interned name, or NULL where the template does not use it.
const md_jname *md_jname_find(const md_jnames *names, const char *text, size_t n);

// ---- between parse.c and parse_expr.c --------------------------------------------------------------------
typedef struct md_jparser {
    md_jtemplate *tree;
    md_jlex lex;
    md_jtok cur, ahead;
    bool has_ahead;
    int depth;
    int loops; // enclosing for statements
    md_error *err;
} md_jparser;

md_status md_jparse_fail(md_jparser *p, int line, const char *fmt, ...) MD_PRINTF(3, 4);
md_status md_jparse_advance(md_jparser *p);
md_status md_jparse_look(md_jparser *p, const md_jtok **out); // the token after the current one
md_status md_jparse_enter(md_jparser *p);
static inline void md_jparse_leave(md_jparser *p) { p->depth--; }
md_status md_jparse_node(md_jparser *p, md_jnode_kind kind, int line, md_jnode **out);
md_status md_jparse_finish(md_jparser *p, md_jnode *node); // sets its depth once its children are there
md_status md_jparse_intern(md_jparser *p, const char *text, size_t n, const md_jname **out);

static inline bool md_jparse_is_op(const md_jparser *p, int op) { return p->cur.kind == MD_JTOK_OP && p->cur.op == op; }
bool md_jparse_is_name(const md_jparser *p, const char *text);
md_status md_jparse_skip_op(md_jparser *p, int op, bool *skipped); // takes the operator where it is the current token
md_status md_jparse_skip_name(md_jparser *p, const char *text, bool *skipped);
md_status md_jparse_expect_op(md_jparser *p, int op);
md_status md_jparse_expect_name(md_jparser *p, const md_jname **name); // any name
md_status md_jparse_unexpected(md_jparser *p, const char *expected);

md_status md_jparse_expression(md_jparser *p, bool with_condition, md_jnode **out);
// One expression or, with commas, a tuple. `end` may name the word that ends it ("in").
md_status md_jparse_tuple(md_jparser *p, bool with_condition, const char *end, md_jnode **out);
md_status md_jparse_filters(md_jparser *p, md_jnode *input, bool inline_first, md_jnode **out);
md_status md_jparse_target(md_jparser *p, bool with_namespace, const char *end, md_jnode **out);

#endif
