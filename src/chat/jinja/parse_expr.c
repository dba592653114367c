// Expressions, loosest binding first: x if y else z; or; and; not; comparisons; + -; ~; * / // %; **; unary; postfix.
#include <string.h>

#include "chat/jinja/parse.h"
#include "chat/jinja/run.h"

static md_status parse_unary(md_jparser *p, bool with_filter, md_jnode **out);

// left op right, as a new node of `kind`.
static md_status join(md_jparser *p, md_jnode_kind kind, int op, int line, md_jnode *left, md_jnode *right,
                      md_jnode **out) {
    md_jnode *node;
    MD_TRY(md_jparse_node(p, kind, line, &node));
    node->op = op;
    node->a = left;
    node->b = right;
    MD_TRY(md_jparse_finish(p, node));
    *out = node;
    return MD_OK;
}

static md_status parse_pow(md_jparser *p, md_jnode **out) {
    int line = p->cur.line;
    bool yes;
    MD_TRY(parse_unary(p, true, out));
    for (;;) {
        MD_TRY(md_jparse_skip_op(p, MD_JOP_POW, &yes));
        if (!yes) return MD_OK;
        md_jnode *right;
        MD_TRY(parse_unary(p, true, &right));
        MD_TRY(join(p, MD_JN_BINARY, MD_JOP_POW, line, *out, right, out));
    }
}

static md_status parse_product(md_jparser *p, md_jnode **out) {
    int line = p->cur.line;
    MD_TRY(parse_pow(p, out));
    while (p->cur.kind == MD_JTOK_OP &&
           (p->cur.op == '*' || p->cur.op == '/' || p->cur.op == MD_JOP_FLOORDIV || p->cur.op == '%')) {
        int op = p->cur.op;
        md_jnode *right;
        MD_TRY(md_jparse_advance(p));
        MD_TRY(parse_pow(p, &right));
        MD_TRY(join(p, MD_JN_BINARY, op, line, *out, right, out));
    }
    return MD_OK;
}

static md_status parse_concat(md_jparser *p, md_jnode **out) {
    int line = p->cur.line;
    MD_TRY(parse_product(p, out));
    if (!md_jparse_is_op(p, '~')) return MD_OK;
    md_jnode *node;
    MD_TRY(md_jparse_node(p, MD_JN_CONCAT, line, &node));
    node->list = *out;
    for (md_jnode **last = &node->list->next; md_jparse_is_op(p, '~'); last = &(*last)->next) {
        MD_TRY(md_jparse_advance(p));
        MD_TRY(parse_product(p, last));
    }
    *out = node;
    return md_jparse_finish(p, node);
}

static md_status parse_sum(md_jparser *p, md_jnode **out) {
    int line = p->cur.line;
    MD_TRY(parse_concat(p, out));
    while (md_jparse_is_op(p, '+') || md_jparse_is_op(p, '-')) {
        int op = p->cur.op;
        md_jnode *right;
        MD_TRY(md_jparse_advance(p));
        MD_TRY(parse_concat(p, &right));
        MD_TRY(join(p, MD_JN_BINARY, op, line, *out, right, out));
    }
    return MD_OK;
}

// Takes a comparison operator; *op is 0 where there is none.
static md_status take_comparison(md_jparser *p, int *op) {
    bool yes;
    *op = 0;
    if (p->cur.kind == MD_JTOK_OP) {
        int found = p->cur.op;
        if (found == '<' || found == '>' || (found >= MD_JOP_EQ && found <= MD_JOP_LE)) *op = found;
        return *op ? md_jparse_advance(p) : MD_OK;
    }
    MD_TRY(md_jparse_skip_name(p, "in", &yes));
    if (yes) *op = MD_JOP_IN;
    if (!md_jparse_is_name(p, "not")) return MD_OK;
    const md_jtok *ahead;
    MD_TRY(md_jparse_look(p, &ahead));
    if (ahead->kind != MD_JTOK_NAME || ahead->size != 2 || memcmp(ahead->text, "in", 2) != 0) return MD_OK;
    *op = MD_JOP_NOT_IN;
    MD_TRY(md_jparse_advance(p));
    return md_jparse_advance(p);
}

static md_status parse_compare(md_jparser *p, md_jnode **out) {
    int line = p->cur.line, op;
    MD_TRY(parse_sum(p, out));
    MD_TRY(take_comparison(p, &op));
    if (!op) return MD_OK;
    md_jnode *node;
    MD_TRY(md_jparse_node(p, MD_JN_COMPARE, line, &node));
    node->a = *out;
    for (md_jnode **last = &node->list; op; last = &(*last)->next) {
        MD_TRY(md_jparse_node(p, MD_JN_COMPARAND, p->cur.line, last));
        (*last)->op = op;
        MD_TRY(parse_sum(p, &(*last)->a));
        MD_TRY(md_jparse_finish(p, *last));
        MD_TRY(take_comparison(p, &op));
    }
    *out = node;
    return md_jparse_finish(p, node);
}

static md_status parse_not(md_jparser *p, md_jnode **out) {
    if (!md_jparse_is_name(p, "not")) return parse_compare(p, out);
    md_jnode *node;
    MD_TRY(md_jparse_enter(p));
    MD_TRY(md_jparse_node(p, MD_JN_NOT, p->cur.line, &node));
    MD_TRY(md_jparse_advance(p));
    MD_TRY(parse_not(p, &node->a));
    md_jparse_leave(p);
    *out = node;
    return md_jparse_finish(p, node);
}

static md_status parse_logic(md_jparser *p, md_jnode_kind kind, md_jnode **out) {
    const char *word = kind == MD_JN_OR ? "or" : "and";
    int line = p->cur.line;
    MD_TRY(kind == MD_JN_OR ? parse_logic(p, MD_JN_AND, out) : parse_not(p, out));
    while (md_jparse_is_name(p, word)) {
        md_jnode *right;
        MD_TRY(md_jparse_advance(p));
        MD_TRY(kind == MD_JN_OR ? parse_logic(p, MD_JN_AND, &right) : parse_not(p, &right));
        MD_TRY(join(p, kind, 0, line, *out, right, out));
    }
    return MD_OK;
}

md_status md_jparse_expression(md_jparser *p, bool with_condition, md_jnode **out) {
    bool yes;
    MD_TRY(md_jparse_enter(p));
    MD_TRY(parse_logic(p, MD_JN_OR, out));
    while (with_condition && md_jparse_is_name(p, "if")) {
        md_jnode *node;
        MD_TRY(md_jparse_node(p, MD_JN_COND, p->cur.line, &node));
        MD_TRY(md_jparse_advance(p));
        node->a = *out;
        MD_TRY(parse_logic(p, MD_JN_OR, &node->b));
        MD_TRY(md_jparse_skip_name(p, "else", &yes));
        if (yes) MD_TRY(md_jparse_expression(p, true, &node->c));
        *out = node;
        MD_TRY(md_jparse_finish(p, node));
    }
    md_jparse_leave(p);
    return MD_OK;
}

// ---- primaries -------------------------------------------------------------------------------------------

static bool tuple_ends(const md_jparser *p, const char *end) {
    if (p->cur.kind == MD_JTOK_VAR_END || p->cur.kind == MD_JTOK_BLOCK_END || md_jparse_is_op(p, ')')) return true;
    return end && md_jparse_is_name(p, end);
}

static md_status parse_tuple_of(md_jparser *p, bool with_condition, const char *end, bool parens, md_jnode **out) {
    int line = p->cur.line;
    bool tuple = false;
    md_jnode *first = NULL, **last = &first;
    for (;;) {
        if (tuple_ends(p, end)) break;
        MD_TRY(md_jparse_expression(p, with_condition, last));
        last = &(*last)->next;
        if (!md_jparse_is_op(p, ',')) break;
        tuple = true;
        MD_TRY(md_jparse_advance(p));
    }
    if (!tuple && first) {
        *out = first;
        return MD_OK;
    }
    if (!tuple && !parens) return md_jparse_unexpected(p, "an expression");
    MD_TRY(md_jparse_node(p, MD_JN_TUPLE, line, out));
    (*out)->list = first;
    return md_jparse_finish(p, *out);
}

md_status md_jparse_tuple(md_jparser *p, bool with_condition, const char *end, md_jnode **out) {
    return parse_tuple_of(p, with_condition, end, false, out);
}

// [a, b] or {k: v}; the opening brace is the current token.
static md_status parse_collection(md_jparser *p, md_jnode **out) {
    bool dict = p->cur.op == '{';
    int close = dict ? '}' : ']';
    MD_TRY(md_jparse_node(p, dict ? MD_JN_DICT : MD_JN_LIST, p->cur.line, out));
    MD_TRY(md_jparse_advance(p));
    for (md_jnode **last = &(*out)->list; !md_jparse_is_op(p, close); last = &(*last)->next) {
        if ((*out)->list) MD_TRY(md_jparse_expect_op(p, ','));
        if (md_jparse_is_op(p, close)) break;
        if (!dict) {
            MD_TRY(md_jparse_expression(p, true, last));
            continue;
        }
        MD_TRY(md_jparse_node(p, MD_JN_PAIR, p->cur.line, last));
        MD_TRY(md_jparse_expression(p, true, &(*last)->a));
        MD_TRY(md_jparse_expect_op(p, ':'));
        MD_TRY(md_jparse_expression(p, true, &(*last)->b));
        MD_TRY(md_jparse_finish(p, *last));
    }
    MD_TRY(md_jparse_advance(p));
    return md_jparse_finish(p, *out);
}

// Adjacent strings are one.
static md_status parse_string(md_jparser *p, md_jnode **out) {
    MD_TRY(md_jparse_node(p, MD_JN_CONST, p->cur.line, out));
    md_jstr *text = MD_ARENA_NEW(&p->tree->arena, md_jstr);
    if (!text) return md_fail(p->err, MD_E_MEMORY, "%s: out of memory", p->tree->name);
    *text = (md_jstr){.bytes = p->cur.text, .size = p->cur.size};
    (*out)->value = (md_jv){.kind = MD_JV_STRING, .str = text};
    char *joined = NULL;
    for (size_t cap = 0;;) {
        MD_TRY(md_jparse_advance(p));
        if (p->cur.kind != MD_JTOK_STRING) break;
        size_t size = text->size + p->cur.size;
        if (size > cap) { // doubling: joining many pieces stays linear
            cap = 2 * size;
            joined = md_arena_alloc(&p->tree->arena, cap, 1);
            if (!joined) return md_fail(p->err, MD_E_MEMORY, "%s: out of memory", p->tree->name);
            memcpy(joined, text->bytes, text->size);
            text->bytes = joined;
        }
        if (joined) memcpy(joined + text->size, p->cur.text, p->cur.size);
        text->size = size;
    }
    return md_jparse_finish(p, *out);
}

static md_status parse_name(md_jparser *p, md_jnode **out) {
    static const struct {
        const char *text;
        md_jv value;
    } constants[] = {{"true", {.kind = MD_JV_BOOL, .b = true}},
                     {"True", {.kind = MD_JV_BOOL, .b = true}},
                     {"false", {.kind = MD_JV_BOOL, .b = false}},
                     {"False", {.kind = MD_JV_BOOL, .b = false}},
                     {"none", {.kind = MD_JV_NONE}},
                     {"None", {.kind = MD_JV_NONE}}};
    MD_TRY(md_jparse_node(p, MD_JN_NAME, p->cur.line, out));
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        if (!md_jparse_is_name(p, constants[i].text)) continue;
        (*out)->kind = MD_JN_CONST;
        (*out)->value = constants[i].value;
        MD_TRY(md_jparse_finish(p, *out));
        return md_jparse_advance(p);
    }
    MD_TRY(md_jparse_expect_name(p, &(*out)->name));
    return md_jparse_finish(p, *out);
}

static md_status parse_primary(md_jparser *p, md_jnode **out) {
    switch (p->cur.kind) {
    case MD_JTOK_NAME: return parse_name(p, out);
    case MD_JTOK_STRING: return parse_string(p, out);
    case MD_JTOK_INT:
    case MD_JTOK_FLOAT:
        MD_TRY(md_jparse_node(p, MD_JN_CONST, p->cur.line, out));
        (*out)->value =
            p->cur.kind == MD_JTOK_INT ? md_jv_int(p->cur.i, MD_JV_TRUSTED) : md_jv_float(p->cur.f, MD_JV_TRUSTED);
        MD_TRY(md_jparse_finish(p, *out));
        return md_jparse_advance(p);
    case MD_JTOK_OP:
        if (p->cur.op == '[' || p->cur.op == '{') {
            MD_TRY(md_jparse_enter(p));
            MD_TRY(parse_collection(p, out));
            md_jparse_leave(p);
            return MD_OK;
        }
        if (p->cur.op == '(') {
            MD_TRY(md_jparse_advance(p));
            MD_TRY(parse_tuple_of(p, true, NULL, true, out));
            return md_jparse_expect_op(p, ')');
        }
        return md_jparse_unexpected(p, "an expression");
    default: return md_jparse_unexpected(p, "an expression");
    }
}

// (args) of a call, filter or test; the "(" is the current token.
static md_status parse_args(md_jparser *p, md_jnode **out) {
    bool keywords = false;
    md_jnode **last = out;
    MD_TRY(md_jparse_advance(p));
    while (!md_jparse_is_op(p, ')')) {
        if (*out) MD_TRY(md_jparse_expect_op(p, ','));
        if (md_jparse_is_op(p, ')')) break;
        if (md_jparse_is_op(p, '*') || md_jparse_is_op(p, MD_JOP_POW))
            return md_fail(p->err, MD_E_UNSUPPORTED, "%s, line %d: * and ** arguments are not supported", p->tree->name,
                           p->cur.line);
        const md_jtok *ahead;
        MD_TRY(md_jparse_look(p, &ahead));
        if (p->cur.kind == MD_JTOK_NAME && ahead->kind == MD_JTOK_OP && ahead->op == '=') {
            keywords = true;
            MD_TRY(md_jparse_node(p, MD_JN_KEYWORD, p->cur.line, last));
            MD_TRY(md_jparse_expect_name(p, &(*last)->name));
            MD_TRY(md_jparse_advance(p));
            MD_TRY(md_jparse_expression(p, true, &(*last)->a));
            MD_TRY(md_jparse_finish(p, *last));
        } else if (keywords) {
            return md_jparse_fail(p, p->cur.line, "positional argument follows keyword argument");
        } else {
            MD_TRY(md_jparse_expression(p, true, last));
        }
        last = &(*last)->next;
    }
    return md_jparse_advance(p);
}

// One subscript: an expression or start:stop:step.
static md_status parse_subscript(md_jparser *p, md_jnode **out) {
    int line = p->cur.line;
    md_jnode *first = NULL;
    if (!md_jparse_is_op(p, ':')) {
        MD_TRY(md_jparse_expression(p, true, &first));
        if (!md_jparse_is_op(p, ':')) {
            *out = first;
            return MD_OK;
        }
    }
    MD_TRY(md_jparse_node(p, MD_JN_SLICE, line, out));
    md_jnode **last = &(*out)->list;
    for (int i = 0; i < 3; i++, last = &(*last)->next) {
        if (i == 0 && first) {
            *last = first;
        } else if (md_jparse_is_op(p, ':') || md_jparse_is_op(p, ']') || md_jparse_is_op(p, ',')) {
            MD_TRY(md_jparse_node(p, MD_JN_CONST, line, last));
            (*last)->value = md_jv_none();
        } else {
            MD_TRY(md_jparse_expression(p, true, last));
        }
        bool colon;
        if (i < 2) MD_TRY(md_jparse_skip_op(p, ':', &colon));
    }
    return md_jparse_finish(p, *out);
}

static md_status parse_dot(md_jparser *p, md_jnode *node, int line, md_jnode **out) {
    md_jnode *key;
    if (p->cur.kind == MD_JTOK_NAME) {
        MD_TRY(md_jparse_node(p, MD_JN_GETATTR, line, out));
        (*out)->a = node;
        MD_TRY(md_jparse_expect_name(p, &(*out)->name));
        return md_jparse_finish(p, *out);
    }
    if (p->cur.kind != MD_JTOK_INT) return md_jparse_unexpected(p, "a name or number");
    MD_TRY(md_jparse_node(p, MD_JN_CONST, line, &key));
    key->value = md_jv_int(p->cur.i, MD_JV_TRUSTED);
    MD_TRY(md_jparse_finish(p, key));
    MD_TRY(md_jparse_advance(p));
    return join(p, MD_JN_GETITEM, 0, line, node, key, out);
}

static md_status parse_call(md_jparser *p, md_jnode **io) {
    md_jnode *call;
    MD_TRY(md_jparse_node(p, MD_JN_CALL, p->cur.line, &call));
    call->a = *io;
    MD_TRY(parse_args(p, &call->list));
    *io = call;
    return md_jparse_finish(p, call);
}

static md_status parse_postfix(md_jparser *p, md_jnode **io) {
    for (;;) {
        int line = p->cur.line;
        if (md_jparse_is_op(p, '.')) {
            MD_TRY(md_jparse_advance(p));
            MD_TRY(parse_dot(p, *io, line, io));
        } else if (md_jparse_is_op(p, '[')) {
            md_jnode *key;
            MD_TRY(md_jparse_advance(p));
            MD_TRY(parse_subscript(p, &key));
            MD_TRY(md_jparse_expect_op(p, ']'));
            MD_TRY(join(p, MD_JN_GETITEM, 0, line, *io, key, io));
        } else if (md_jparse_is_op(p, '(')) {
            MD_TRY(parse_call(p, io));
        } else {
            return MD_OK;
        }
    }
}

// is [not] name [args | one argument without parentheses]
static md_status parse_test(md_jparser *p, md_jnode **io) {
    md_jnode *test;
    bool negated;
    MD_TRY(md_jparse_node(p, MD_JN_TEST, p->cur.line, &test));
    MD_TRY(md_jparse_advance(p));
    MD_TRY(md_jparse_skip_name(p, "not", &negated));
    test->a = *io;
    MD_TRY(md_jparse_expect_name(p, &test->name));
    test->func = md_jn_find_test(test->name->text, test->name->size);
    bool word = p->cur.kind == MD_JTOK_NAME && !md_jparse_is_name(p, "else") && !md_jparse_is_name(p, "or") &&
                !md_jparse_is_name(p, "and");
    if (md_jparse_is_op(p, '(')) {
        MD_TRY(parse_args(p, &test->list));
    } else if (word || p->cur.kind == MD_JTOK_STRING || p->cur.kind == MD_JTOK_INT || p->cur.kind == MD_JTOK_FLOAT ||
               md_jparse_is_op(p, '[') || md_jparse_is_op(p, '{')) {
        if (md_jparse_is_name(p, "is")) return md_jparse_fail(p, p->cur.line, "tests with 'is' cannot be chained");
        MD_TRY(parse_primary(p, &test->list));
        MD_TRY(parse_postfix(p, &test->list));
    }
    MD_TRY(md_jparse_finish(p, test));
    *io = test;
    return negated ? join(p, MD_JN_NOT, 0, test->line, test, NULL, io) : MD_OK;
}

md_status md_jparse_filters(md_jparser *p, md_jnode *input, bool inline_first, md_jnode **out) {
    *out = input;
    for (; inline_first || md_jparse_is_op(p, '|'); inline_first = false) {
        if (!inline_first) MD_TRY(md_jparse_advance(p));
        md_jnode *filter;
        MD_TRY(md_jparse_node(p, MD_JN_FILTER, p->cur.line, &filter));
        filter->a = *out;
        MD_TRY(md_jparse_expect_name(p, &filter->name));
        filter->func = md_jn_find_filter(filter->name->text, filter->name->size);
        if (md_jparse_is_op(p, '(')) MD_TRY(parse_args(p, &filter->list));
        MD_TRY(md_jparse_finish(p, filter));
        *out = filter;
    }
    return MD_OK;
}

static md_status parse_unary(md_jparser *p, bool with_filter, md_jnode **out) {
    MD_TRY(md_jparse_enter(p));
    if (md_jparse_is_op(p, '-') || md_jparse_is_op(p, '+')) {
        md_jnode *node;
        MD_TRY(md_jparse_node(p, p->cur.op == '-' ? MD_JN_NEG : MD_JN_POS, p->cur.line, &node));
        MD_TRY(md_jparse_advance(p));
        MD_TRY(parse_unary(p, false, &node->a));
        MD_TRY(md_jparse_finish(p, node));
        *out = node;
    } else {
        MD_TRY(parse_primary(p, out));
    }
    MD_TRY(parse_postfix(p, out));
    while (with_filter) {
        if (md_jparse_is_op(p, '|'))
            MD_TRY(md_jparse_filters(p, *out, false, out));
        else if (md_jparse_is_name(p, "is"))
            MD_TRY(parse_test(p, out));
        else if (md_jparse_is_op(p, '('))
            MD_TRY(parse_call(p, out));
        else
            break;
    }
    md_jparse_leave(p);
    return MD_OK;
}

// ---- targets ---------------------------------------------------------------------------------------------

static md_status check_target(md_jparser *p, const md_jnode *node) {
    if (node->kind == MD_JN_NAME) return MD_OK;
    if (node->kind != MD_JN_TUPLE) return md_jparse_fail(p, node->line, "cannot assign to this expression");
    for (const md_jnode *item = node->list; item; item = item->next) MD_TRY(check_target(p, item));
    return MD_OK;
}

md_status md_jparse_target(md_jparser *p, bool with_namespace, const char *end, md_jnode **out) {
    int line = p->cur.line;
    if (with_namespace && p->cur.kind == MD_JTOK_NAME) {
        const md_jtok *ahead;
        MD_TRY(md_jparse_look(p, &ahead));
        if (ahead->kind == MD_JTOK_OP && ahead->op == '.') {
            MD_TRY(md_jparse_node(p, MD_JN_GETATTR, line, out));
            MD_TRY(md_jparse_node(p, MD_JN_NAME, line, &(*out)->a));
            MD_TRY(md_jparse_expect_name(p, &(*out)->a->name));
            MD_TRY(md_jparse_advance(p));
            MD_TRY(md_jparse_expect_name(p, &(*out)->name));
            MD_TRY(md_jparse_finish(p, (*out)->a));
            return md_jparse_finish(p, *out);
        }
    }
    // Primaries only ("for x in xs" must not be read as the comparison "x in xs").
    bool tuple = false;
    md_jnode *first = NULL;
    for (md_jnode **last = &first; !tuple_ends(p, end) && !(tuple && md_jparse_is_op(p, '=')); last = &(*last)->next) {
        MD_TRY(parse_primary(p, last));
        if (!md_jparse_is_op(p, ',')) break;
        tuple = true;
        MD_TRY(md_jparse_advance(p));
    }
    if (!first) return md_jparse_unexpected(p, "a name to assign to");
    *out = first;
    if (tuple) {
        MD_TRY(md_jparse_node(p, MD_JN_TUPLE, line, out));
        (*out)->list = first;
        MD_TRY(md_jparse_finish(p, *out));
    }
    return check_target(p, *out);
}
