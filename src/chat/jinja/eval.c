// Expressions.
#include <string.h>

#include "chat/jinja/lexer.h"
#include "chat/jinja/run.h"

static size_t chain_size(const md_jnode *node) {
    size_t n = 0;
    for (; node; node = node->next) n++;
    return n;
}

static md_status eval_items(md_jn_run *run, md_jscope *scope, const md_jnode *chain, const md_jv **items, size_t *n) {
    *n = chain_size(chain);
    md_jv *list = MD_JN_ALLOC(run, md_jv, *n);
    if (!list) return md_jn_oom(run);
    for (size_t i = 0; chain; chain = chain->next, i++) MD_TRY(md_jn_eval(run, scope, chain, &list[i]));
    *items = list;
    return MD_OK;
}

static md_status eval_args(md_jn_run *run, md_jscope *scope, const md_jnode *chain, md_jargs *args) {
    size_t n = chain_size(chain);
    *args = (md_jargs){.n = 0};
    if (n == 0) return MD_OK;
    md_jv *pos = MD_JN_ALLOC(run, md_jv, n);
    md_jkwarg *kw = MD_JN_ALLOC(run, md_jkwarg, n);
    if (!pos || !kw) return md_jn_oom(run);
    for (; chain; chain = chain->next) {
        if (chain->kind == MD_JN_KEYWORD) {
            kw[args->n_kw].name = chain->name;
            MD_TRY(md_jn_eval(run, scope, chain->a, &kw[args->n_kw++].value));
        } else {
            MD_TRY(md_jn_eval(run, scope, chain, &pos[args->n++]));
        }
    }
    args->pos = pos;
    args->kw = kw;
    return MD_OK;
}

static md_status eval_name(md_jn_run *run, md_jscope *scope, const md_jname *name, md_jv *out) {
    uint64_t walked = 0;
    for (; scope; scope = scope->parent) {
        for (const md_jbinding *b = scope->first; b; b = b->next, walked++) {
            if (b->name != name) continue;
            *out = b->value;
            return md_jn_charge(run, walked / 8);
        }
        walked++;
    }
    MD_TRY(md_jn_charge(run, walked / 8));
    const md_jn_func *func = md_jn_find_global(name->text, name->size);
    if (!func) return md_jv_undefined(run, out, "'%s' is undefined", name->text);
    *out = (md_jv){.kind = MD_JV_FUNCTION, .func = func};
    return MD_OK;
}

static md_status eval_getitem(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jv object, key, bounds[3];
    MD_TRY(md_jn_eval(run, scope, node->a, &object));
    if (node->b->kind != MD_JN_SLICE) {
        MD_TRY(md_jn_eval(run, scope, node->b, &key));
        run->line = node->line;
        return md_jn_getitem(run, &object, &key, out);
    }
    const md_jnode *bound = node->b->list;
    for (int i = 0; i < 3; i++, bound = bound->next) MD_TRY(md_jn_eval(run, scope, bound, &bounds[i]));
    run->line = node->line;
    return md_jn_slice(run, &object, bounds, out);
}

static md_status eval_call(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jv callee;
    md_jargs args;
    MD_TRY(md_jn_eval(run, scope, node->a, &callee));
    MD_TRY(eval_args(run, scope, node->list, &args));
    run->line = node->line;
    return md_jn_call(run, &callee, &args, out);
}

static md_status eval_filter(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    bool filter = node->kind == MD_JN_FILTER;
    md_jv self = run->block_input;
    md_jargs args;
    if (node->a) MD_TRY(md_jn_eval(run, scope, node->a, &self));
    MD_TRY(eval_args(run, scope, node->list, &args));
    run->line = node->line;
    if (!node->func)
        return md_jn_fail(run, MD_E_UNSUPPORTED, "no %s named '%s'", filter ? "filter" : "test", node->name->text);
    return md_jn_invoke(run, node->func, filter ? "filter" : "test", &self, &args, out);
}

static md_status eval_sign(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jv v;
    MD_TRY(md_jn_eval(run, scope, node->a, &v));
    if (v.kind == MD_JV_UNDEFINED) return md_jn_fail(run, MD_E_FORMAT, "%s", v.hint);
    if (!md_jv_is_number(&v))
        return md_jn_fail(run, MD_E_FORMAT, "bad operand type for unary %c: '%s'", node->kind == MD_JN_NEG ? '-' : '+',
                          md_jv_type_name(&v));
    if (v.kind == MD_JV_FLOAT) {
        *out = md_jv_float(node->kind == MD_JN_NEG ? -v.f : v.f, v.origin);
        return MD_OK;
    }
    const md_jv zero = md_jv_int(0, MD_JV_TRUSTED);
    return md_jn_binary(run, node->kind == MD_JN_NEG ? '-' : '+', &zero, &v, out);
}

static md_status eval_binary(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jv a, b;
    MD_TRY(md_jn_eval(run, scope, node->a, &a));
    MD_TRY(md_jn_eval(run, scope, node->b, &b));
    run->line = node->line;
    return md_jn_binary(run, node->op, &a, &b, out);
}

static md_status eval_concat(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jb b;
    md_jb_init(&b, run);
    for (const md_jnode *part = node->list; part; part = part->next) {
        md_jv v;
        MD_TRY(md_jn_eval(run, scope, part, &v));
        run->line = node->line;
        MD_TRY(md_jv_str(&b, &v));
    }
    return md_jb_finish(&b, out);
}

static md_status compare(md_jn_run *run, int op, const md_jv *a, const md_jv *b, bool *out) {
    int order = 0;
    switch (op) {
    case MD_JOP_EQ: return md_jv_equal(run, a, b, out);
    case MD_JOP_NE:
        MD_TRY(md_jv_equal(run, a, b, out));
        *out = !*out;
        return MD_OK;
    case MD_JOP_IN: return md_jv_contains(run, b, a, out);
    case MD_JOP_NOT_IN:
        MD_TRY(md_jv_contains(run, b, a, out));
        *out = !*out;
        return MD_OK;
    case '<':
    case MD_JOP_LE:
        MD_TRY(md_jv_order(run, a, b, op == '<' ? "<" : "<=", &order));
        *out = op == '<' ? order < 0 : order <= 0;
        return MD_OK;
    default:
        MD_TRY(md_jv_order(run, a, b, op == '>' ? ">" : ">=", &order));
        *out = op == '>' ? order > 0 : order >= 0;
        return MD_OK;
    }
}

static md_status eval_compare(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jv left, right;
    bool holds = true;
    MD_TRY(md_jn_eval(run, scope, node->a, &left));
    for (const md_jnode *part = node->list; part && holds; part = part->next) {
        MD_TRY(md_jn_eval(run, scope, part->a, &right));
        run->line = node->line;
        MD_TRY(compare(run, part->op, &left, &right, &holds));
        left = right;
    }
    *out = md_jv_bool(holds);
    return MD_OK;
}

// and, or: the operand that decides, as Python gives it.
static md_status eval_logic(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    MD_TRY(md_jn_eval(run, scope, node->a, out));
    if (md_jv_truth(out) == (node->kind == MD_JN_OR)) return MD_OK;
    return md_jn_eval(run, scope, node->b, out);
}

static md_status eval_cond(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jv test;
    MD_TRY(md_jn_eval(run, scope, node->b, &test));
    if (md_jv_truth(&test)) return md_jn_eval(run, scope, node->a, out);
    if (node->c) return md_jn_eval(run, scope, node->c, out);
    return md_jv_undefined(run, out,
                           "the inline if-expression on line %d evaluated to false and no else section was defined.",
                           node->line);
}

static md_status eval_dict(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jv dict;
    MD_TRY(md_jv_dict(run, MD_JV_DICT, chain_size(node->list), MD_JV_TRUSTED, &dict));
    for (const md_jnode *pair = node->list; pair; pair = pair->next) {
        md_jv key, value;
        MD_TRY(md_jn_eval(run, scope, pair->a, &key));
        MD_TRY(md_jn_eval(run, scope, pair->b, &value));
        MD_TRY(md_jdict_set(run, dict.dict, &key, &value));
    }
    *out = dict;
    return MD_OK;
}

static md_status eval_node(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jv v;
    const md_jv *items;
    size_t n;
    switch (node->kind) {
    case MD_JN_CONST: *out = node->value; return MD_OK;
    case MD_JN_NAME: return eval_name(run, scope, node->name, out);
    case MD_JN_GETATTR:
        MD_TRY(md_jn_eval(run, scope, node->a, &v));
        run->line = node->line;
        return md_jn_getattr(run, &v, node->name->text, node->name->size, out);
    case MD_JN_GETITEM: return eval_getitem(run, scope, node, out);
    case MD_JN_CALL: return eval_call(run, scope, node, out);
    case MD_JN_FILTER:
    case MD_JN_TEST: return eval_filter(run, scope, node, out);
    case MD_JN_NOT:
        MD_TRY(md_jn_eval(run, scope, node->a, &v));
        *out = md_jv_bool(!md_jv_truth(&v));
        return MD_OK;
    case MD_JN_NEG:
    case MD_JN_POS: return eval_sign(run, scope, node, out);
    case MD_JN_BINARY: return eval_binary(run, scope, node, out);
    case MD_JN_AND:
    case MD_JN_OR: return eval_logic(run, scope, node, out);
    case MD_JN_CONCAT: return eval_concat(run, scope, node, out);
    case MD_JN_COMPARE: return eval_compare(run, scope, node, out);
    case MD_JN_COND: return eval_cond(run, scope, node, out);
    case MD_JN_LIST:
    case MD_JN_TUPLE:
        MD_TRY(eval_items(run, scope, node->list, &items, &n));
        return md_jv_seq(run, node->kind == MD_JN_LIST ? MD_JV_LIST : MD_JV_TUPLE, items, n, MD_JV_TRUSTED, out);
    case MD_JN_DICT: return eval_dict(run, scope, node, out);
    default: return md_jn_fail(run, MD_E_FORMAT, "a slice stands alone or in a tuple");
    }
}

md_status md_jn_eval(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    run->line = node->line;
    MD_TRY(md_jn_charge(run, 1));
    MD_TRY(md_jn_enter(run));
    MD_TRY(eval_node(run, scope, node, out));
    md_jn_leave(run);
    return MD_OK;
}
