#include "chat/jinja/parse.h"

#include <stdio.h>
#include <string.h>

#include "chat/jinja/run.h"

// ---- names and nodes -------------------------------------------------------------------------------------

static size_t hash(const char *text, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h % MD_JNAME_BUCKETS;
}

const md_jname *md_jname_find(const md_jnames *names, const char *text, size_t n) {
    for (const md_jname *name = names->bucket[hash(text, n)]; name; name = name->next)
        if (name->size == n && memcmp(name->text, text, n) == 0) return name;
    return NULL;
}

md_status md_jparse_intern(md_jparser *p, const char *text, size_t n, const md_jname **out) {
    *out = md_jname_find(&p->tree->names, text, n);
    if (*out) return MD_OK;
    md_jname *name = md_arena_alloc(&p->tree->arena, sizeof *name + n + 1, 1);
    if (!name) return md_fail(p->err, MD_E_MEMORY, "%s: out of memory", p->tree->name);
    name->size = n;
    memcpy(name->text, text, n);
    md_jname **bucket = &p->tree->names.bucket[hash(text, n)];
    name->next = *bucket;
    *bucket = name;
    *out = name;
    return MD_OK;
}

md_status md_jparse_fail(md_jparser *p, int line, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return md_fail(p->err, MD_E_FORMAT, "%s, line %d: %s", p->tree->name, line, text);
}

md_status md_jparse_node(md_jparser *p, md_jnode_kind kind, int line, md_jnode **out) {
    *out = MD_ARENA_NEW(&p->tree->arena, md_jnode);
    if (!*out) return md_fail(p->err, MD_E_MEMORY, "%s: out of memory", p->tree->name);
    (*out)->kind = (uint8_t)kind;
    (*out)->line = line;
    return MD_OK;
}

static int chain_depth(const md_jnode *node) {
    int depth = 0;
    for (; node; node = node->next)
        if (node->depth > depth) depth = node->depth;
    return depth;
}

md_status md_jparse_finish(md_jparser *p, md_jnode *node) {
    const md_jnode *parts[] = {node->a, node->b, node->c, node->list, node->body2, node->params};
    int depth = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        // a, b and c are single nodes whose own `next` belongs to nobody yet, lists are chains: the same walk.
        int deep = chain_depth(parts[i]);
        if (deep > depth) depth = deep;
    }
    if (depth >= MD_JN_MAX_TREE_DEPTH) return md_jparse_fail(p, node->line, "expression nested too deeply");
    node->depth = (uint16_t)(depth + 1);
    return MD_OK;
}

// ---- tokens ----------------------------------------------------------------------------------------------

md_status md_jparse_advance(md_jparser *p) {
    if (p->has_ahead) {
        p->cur = p->ahead;
        p->has_ahead = false;
        return MD_OK;
    }
    return md_jlex_next(&p->lex, &p->cur, p->err);
}

md_status md_jparse_look(md_jparser *p, const md_jtok **out) {
    if (!p->has_ahead) MD_TRY(md_jlex_next(&p->lex, &p->ahead, p->err));
    p->has_ahead = true;
    *out = &p->ahead;
    return MD_OK;
}

md_status md_jparse_enter(md_jparser *p) {
    if (p->depth >= MD_JN_MAX_PARSE_DEPTH) return md_jparse_fail(p, p->cur.line, "expression nested too deeply");
    p->depth++;
    return MD_OK;
}

static bool token_is(const md_jtok *token, const char *text) {
    return token->kind == MD_JTOK_NAME && token->size == strlen(text) && memcmp(token->text, text, token->size) == 0;
}

bool md_jparse_is_name(const md_jparser *p, const char *text) { return token_is(&p->cur, text); }

md_status md_jparse_skip_op(md_jparser *p, int op, bool *skipped) {
    *skipped = md_jparse_is_op(p, op);
    return *skipped ? md_jparse_advance(p) : MD_OK;
}

md_status md_jparse_skip_name(md_jparser *p, const char *text, bool *skipped) {
    *skipped = md_jparse_is_name(p, text);
    return *skipped ? md_jparse_advance(p) : MD_OK;
}

md_status md_jparse_unexpected(md_jparser *p, const char *expected) {
    static const char *const names[] = {"the end of the template",
                                        "text",
                                        "'{{'",
                                        "'}}'",
                                        "'{%'",
                                        "'%}'",
                                        "a name",
                                        "a string",
                                        "a number",
                                        "a number"};
    const md_jtok *t = &p->cur;
    if (t->kind == MD_JTOK_NAME)
        return md_jparse_fail(p, t->line, "found '%.*s', expected %s", (int)(t->size > 60 ? 60 : t->size), t->text,
                              expected);
    if (t->kind != MD_JTOK_OP) return md_jparse_fail(p, t->line, "found %s, expected %s", names[t->kind], expected);
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    char one[2] = {(char)t->op, 0};
    return md_jparse_fail(p, t->line, "found '%s', expected %s", t->op >= 256 ? two[t->op - 256] : one, expected);
}

md_status md_jparse_expect_op(md_jparser *p, int op) {
    char expected[4] = {'\'', (char)op, '\'', 0};
    return md_jparse_is_op(p, op) ? md_jparse_advance(p) : md_jparse_unexpected(p, expected);
}

md_status md_jparse_expect_name(md_jparser *p, const md_jname **name) {
    if (p->cur.kind != MD_JTOK_NAME) return md_jparse_unexpected(p, "a name");
    MD_TRY(md_jparse_intern(p, p->cur.text, p->cur.size, name));
    return md_jparse_advance(p);
}

static md_status expect_kind(md_jparser *p, md_jtok_kind kind, const char *expected) {
    return p->cur.kind == kind ? md_jparse_advance(p) : md_jparse_unexpected(p, expected);
}

// ---- statements ------------------------------------------------------------------------------------------

static md_status parse_statement(md_jparser *p, md_jnode **out);

static bool name_in(const md_jparser *p, const char *const *words) {
    for (; words && *words; words++)
        if (md_jparse_is_name(p, *words)) return true;
    return false;
}

// Text, prints and statements up to one of the words `ends` (then the current token; the tag is not closed yet) or,
// with `ends` NULL, to the end of the template.
static md_status parse_nodes(md_jparser *p, const char *const *ends, md_jnode **out) {
    md_jnode **last = out;
    *out = NULL;
    for (;;) {
        md_jnode *node = NULL;
        int line = p->cur.line;
        if (p->cur.kind == MD_JTOK_DATA) {
            MD_TRY(md_jparse_node(p, MD_JN_TEXT, line, &node));
            md_jstr *text = MD_ARENA_NEW(&p->tree->arena, md_jstr);
            if (!text) return md_fail(p->err, MD_E_MEMORY, "%s: out of memory", p->tree->name);
            *text = (md_jstr){.bytes = p->cur.text, .size = p->cur.size};
            node->value = (md_jv){.kind = MD_JV_STRING, .str = text};
            MD_TRY(md_jparse_advance(p));
        } else if (p->cur.kind == MD_JTOK_VAR_BEGIN) {
            MD_TRY(md_jparse_advance(p));
            MD_TRY(md_jparse_node(p, MD_JN_PRINT, line, &node));
            MD_TRY(md_jparse_tuple(p, true, NULL, &node->a));
            MD_TRY(expect_kind(p, MD_JTOK_VAR_END, "'}}'"));
        } else if (p->cur.kind == MD_JTOK_BLOCK_BEGIN) {
            MD_TRY(md_jparse_advance(p));
            if (name_in(p, ends)) return MD_OK;
            MD_TRY(parse_statement(p, &node));
            MD_TRY(expect_kind(p, MD_JTOK_BLOCK_END, "'%}'"));
        } else {
            if (!ends) return MD_OK;
            return md_jparse_fail(p, line, "unexpected end of template, expected '%s'", ends[0]);
        }
        MD_TRY(md_jparse_finish(p, node));
        *last = node;
        last = &node->next;
    }
}

// The body of a statement: the end of its opening tag, then nodes up to one of `ends`.
static md_status parse_body(md_jparser *p, const char *const *ends, md_jnode **out) {
    bool colon;
    MD_TRY(md_jparse_skip_op(p, ':', &colon));
    MD_TRY(expect_kind(p, MD_JTOK_BLOCK_END, "'%}'"));
    MD_TRY(md_jparse_enter(p));
    MD_TRY(parse_nodes(p, ends, out));
    md_jparse_leave(p);
    return MD_OK;
}

// The same with one end word, which is taken.
static md_status parse_body_to(md_jparser *p, const char *end, md_jnode **out) {
    const char *const ends[] = {end, NULL};
    MD_TRY(parse_body(p, ends, out));
    return md_jparse_advance(p);
}

static md_status parse_for(md_jparser *p, md_jnode *node) {
    static const char *const ends[] = {"endfor", "else", NULL};
    bool yes;
    node->kind = MD_JN_FOR;
    MD_TRY(md_jparse_target(p, false, "in", &node->a));
    MD_TRY(md_jparse_skip_name(p, "in", &yes));
    if (!yes) return md_jparse_unexpected(p, "'in'");
    MD_TRY(md_jparse_tuple(p, false, "recursive", &node->b));
    MD_TRY(md_jparse_skip_name(p, "if", &yes));
    if (yes) MD_TRY(md_jparse_expression(p, true, &node->c));
    if (md_jparse_is_name(p, "recursive"))
        return md_fail(p->err, MD_E_UNSUPPORTED, "%s, line %d: recursive loops are not supported", p->tree->name,
                       p->cur.line);
    p->loops++;
    MD_TRY(parse_body(p, ends, &node->list));
    p->loops--;
    MD_TRY(md_jparse_skip_name(p, "else", &yes));
    return yes ? parse_body_to(p, "endfor", &node->body2) : md_jparse_advance(p);
}

static md_status parse_if(md_jparser *p, md_jnode *node) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    md_jnode *branch = node, **last = &node->body2;
    node->kind = MD_JN_IF;
    for (;;) {
        bool yes;
        MD_TRY(md_jparse_tuple(p, false, NULL, &branch->a));
        MD_TRY(parse_body(p, ends, &branch->list));
        if (branch != node) MD_TRY(md_jparse_finish(p, branch));
        MD_TRY(md_jparse_skip_name(p, "endif", &yes));
        if (yes) return MD_OK;
        int line = p->cur.line;
        bool otherwise = md_jparse_is_name(p, "else");
        MD_TRY(md_jparse_advance(p));
        MD_TRY(md_jparse_node(p, MD_JN_IF, line, &branch));
        *last = branch;
        last = &branch->next;
        if (!otherwise) continue;
        MD_TRY(parse_body_to(p, "endif", &branch->list));
        return md_jparse_finish(p, branch);
    }
}

static md_status parse_set(md_jparser *p, md_jnode *node) {
    bool assign;
    MD_TRY(md_jparse_target(p, true, NULL, &node->a));
    MD_TRY(md_jparse_skip_op(p, '=', &assign));
    if (assign) {
        node->kind = MD_JN_SET;
        return md_jparse_tuple(p, true, NULL, &node->b);
    }
    node->kind = MD_JN_SETBLOCK;
    MD_TRY(md_jparse_filters(p, NULL, false, &node->b));
    return parse_body_to(p, "endset", &node->list);
}

// (name, name = default, ...) into a chain of NAME nodes.
static md_status parse_signature(md_jparser *p, md_jnode **out) {
    bool yes = false, defaults = false;
    MD_TRY(md_jparse_expect_op(p, '('));
    for (bool first = true; !md_jparse_is_op(p, ')'); first = false) {
        if (!first) MD_TRY(md_jparse_expect_op(p, ','));
        MD_TRY(md_jparse_node(p, MD_JN_NAME, p->cur.line, out));
        MD_TRY(md_jparse_expect_name(p, &(*out)->name));
        MD_TRY(md_jparse_skip_op(p, '=', &yes));
        if (yes)
            MD_TRY(md_jparse_expression(p, true, &(*out)->a));
        else if (defaults)
            return md_jparse_fail(p, p->cur.line, "non-default argument follows default argument");
        defaults |= yes;
        MD_TRY(md_jparse_finish(p, *out));
        out = &(*out)->next;
    }
    return md_jparse_advance(p);
}

static md_status parse_macro(md_jparser *p, md_jnode *node) {
    node->kind = MD_JN_MACRO;
    MD_TRY(md_jparse_expect_name(p, &node->name));
    MD_TRY(parse_signature(p, &node->params));
    int loops = p->loops;
    p->loops = 0; // a macro's body is no part of the loop around it
    MD_TRY(parse_body_to(p, "endmacro", &node->list));
    p->loops = loops;
    return MD_OK;
}

static md_status parse_call_block(md_jparser *p, md_jnode *node) {
    node->kind = MD_JN_CALLBLOCK;
    MD_TRY(md_jparse_intern(p, "caller", 6, &node->name));
    if (md_jparse_is_op(p, '(')) MD_TRY(parse_signature(p, &node->params));
    MD_TRY(md_jparse_expression(p, true, &node->b));
    if (node->b->kind != MD_JN_CALL) return md_jparse_fail(p, node->line, "expected call");
    return parse_body_to(p, "endcall", &node->list);
}

static md_status parse_with(md_jparser *p, md_jnode *node) {
    md_jnode **last = &node->params;
    node->kind = MD_JN_WITH;
    while (p->cur.kind != MD_JTOK_BLOCK_END) {
        if (node->params) MD_TRY(md_jparse_expect_op(p, ','));
        MD_TRY(md_jparse_node(p, MD_JN_SET, p->cur.line, last));
        MD_TRY(md_jparse_node(p, MD_JN_NAME, p->cur.line, &(*last)->a));
        MD_TRY(md_jparse_expect_name(p, &(*last)->a->name));
        MD_TRY(md_jparse_expect_op(p, '='));
        MD_TRY(md_jparse_expression(p, true, &(*last)->b));
        MD_TRY(md_jparse_finish(p, *last));
        last = &(*last)->next;
    }
    return parse_body_to(p, "endwith", &node->list);
}

static md_status parse_filter_block(md_jparser *p, md_jnode *node) {
    node->kind = MD_JN_FILTERBLOCK;
    MD_TRY(md_jparse_filters(p, NULL, true, &node->b));
    return parse_body_to(p, "endfilter", &node->list);
}

static md_status parse_generation(md_jparser *p, md_jnode *node) {
    node->kind = MD_JN_SCOPE;
    return parse_body_to(p, "endgeneration", &node->list);
}

static md_status parse_print(md_jparser *p, md_jnode *node) {
    node->kind = MD_JN_PRINT;
    return md_jparse_expression(p, true, &node->a);
}

static md_status parse_loop_control(md_jparser *p, md_jnode *node) {
    if (p->loops == 0) return md_jparse_fail(p, node->line, "break or continue outside of a loop");
    return MD_OK;
}

static md_status parse_statement(md_jparser *p, md_jnode **out) {
    static const struct {
        const char *tag;
        md_status (*parse)(md_jparser *, md_jnode *);
        md_jnode_kind kind;
    } table[] = {{"if", parse_if, MD_JN_IF},
                 {"for", parse_for, MD_JN_FOR},
                 {"set", parse_set, MD_JN_SET},
                 {"macro", parse_macro, MD_JN_MACRO},
                 {"call", parse_call_block, MD_JN_CALLBLOCK},
                 {"with", parse_with, MD_JN_WITH},
                 {"filter", parse_filter_block, MD_JN_FILTERBLOCK},
                 {"generation", parse_generation, MD_JN_SCOPE},
                 {"print", parse_print, MD_JN_PRINT},
                 {"break", parse_loop_control, MD_JN_BREAK},
                 {"continue", parse_loop_control, MD_JN_CONTINUE}};
    static const char *const refused[] = {"include", "import", "from", "extends", "block", "autoescape", NULL};
    if (p->cur.kind != MD_JTOK_NAME) return md_jparse_unexpected(p, "a tag's name");
    md_jtok tag = p->cur;
    if (name_in(p, refused))
        return md_fail(p->err, MD_E_UNSUPPORTED, "%s, line %d: the tag '%.*s' is not supported", p->tree->name,
                       tag.line, (int)tag.size, tag.text);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!token_is(&tag, table[i].tag)) continue;
        MD_TRY(md_jparse_advance(p));
        MD_TRY(md_jparse_node(p, table[i].kind, tag.line, out));
        return table[i].parse(p, *out);
    }
    return md_jparse_fail(p, tag.line, "unknown tag '%.*s'", (int)(tag.size > 60 ? 60 : tag.size), tag.text);
}

md_status md_jtemplate_parse(md_jtemplate *out, const char *name, const char *source, size_t n, md_error *err) {
    *out = (md_jtemplate){.source = NULL};
    out->name = md_arena_strdup(&out->arena, name);
    if (!out->name) return md_fail(err, MD_E_MEMORY, "%s: out of memory", name);
    md_jparser parser = {.tree = out, .err = err};
    MD_TRY(md_jlex_init(&parser.lex, &out->arena, out->name, source, n, err));
    out->source = parser.lex.src;
    out->source_size = parser.lex.size;
    MD_TRY(md_jparse_advance(&parser));
    return parse_nodes(&parser, NULL, &out->body);
}

void md_jtemplate_free(md_jtemplate *tree) {
    md_arena_free(&tree->arena);
    *tree = (md_jtemplate){.source = NULL};
}
