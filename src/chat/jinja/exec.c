// Statements and macros.
#include "chat/jinja/run.h"

static md_status assign(md_jn_run *run, md_jscope *scope, const md_jnode *target, const md_jv *value) {
    if (target->kind == MD_JN_NAME) return md_jn_bind(run, scope, target->name, value);
    if (target->kind == MD_JN_GETATTR) {
        md_jv space, key;
        MD_TRY(md_jn_eval(run, scope, target->a, &space));
        if (space.kind != MD_JV_NAMESPACE)
            return md_jn_fail(run, MD_E_FORMAT, "cannot assign attribute on non-namespace object");
        MD_TRY(md_jv_string_borrow(run, target->name->text, target->name->size, MD_JV_TRUSTED, &key));
        return md_jdict_set(run, space.dict, &key, value);
    }
    const md_jv *items;
    size_t n, wanted = 0;
    MD_TRY(md_jv_items(run, value, "unpacking", &items, &n));
    for (const md_jnode *name = target->list; name; name = name->next) wanted++;
    if (n != wanted)
        return md_jn_fail(run, MD_E_FORMAT, "%s values to unpack (expected %zu, got %zu)",
                          n < wanted ? "not enough" : "too many", wanted, n);
    for (const md_jnode *name = target->list; name; name = name->next) MD_TRY(assign(run, scope, name, items++));
    return MD_OK;
}

// The items for which the loop's condition holds; each is tried in a scope of its own.
static md_status filter_items(md_jn_run *run, md_jscope *scope, const md_jnode *node, const md_jv **items, size_t *n) {
    md_jv *kept = MD_JN_ALLOC(run, md_jv, *n);
    if (!kept) return md_jn_oom(run);
    size_t count = 0;
    for (size_t i = 0; i < *n; i++) {
        md_jv holds;
        md_jscope *inner = md_jn_scope_new(run, scope);
        if (!inner) return md_jn_oom(run);
        MD_TRY(assign(run, inner, node->a, &(*items)[i]));
        MD_TRY(md_jn_eval(run, inner, node->c, &holds));
        if (md_jv_truth(&holds)) kept[count++] = (*items)[i];
    }
    *items = kept;
    *n = count;
    return MD_OK;
}

static md_status exec_scoped(md_jn_run *run, md_jscope *scope, const md_jnode *body, md_jb *out) {
    md_jscope *inner = md_jn_scope_new(run, scope);
    return inner ? md_jn_exec(run, inner, body, out) : md_jn_oom(run);
}

static md_status exec_for(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jb *out) {
    md_jv iterable;
    const md_jv *items;
    size_t n;
    MD_TRY(md_jn_eval(run, scope, node->b, &iterable));
    MD_TRY(md_jv_items(run, &iterable, "for", &items, &n));
    if (node->c) MD_TRY(filter_items(run, scope, node, &items, &n));
    if (n == 0) return node->body2 ? exec_scoped(run, scope, node->body2, out) : MD_OK;
    md_jloop *loop = MD_JN_ALLOC(run, md_jloop, 1);
    if (!loop) return md_jn_oom(run);
    *loop = (md_jloop){.items = items, .size = n, .changed = {.kind = MD_JV_MISSING}};
    const md_jv self = {.kind = MD_JV_LOOP, .loop = loop};
    for (; loop->index0 < n; loop->index0++) {
        md_jscope *inner = md_jn_scope_new(run, scope);
        if (!inner) return md_jn_oom(run);
        run->line = node->line;
        MD_TRY(md_jn_charge(run, 1));
        MD_TRY(assign(run, inner, node->a, &items[loop->index0]));
        if (run->loop_name) MD_TRY(md_jn_bind(run, inner, run->loop_name, &self));
        MD_TRY(md_jn_exec(run, inner, node->list, out));
        bool stop = run->flow == MD_JN_BREAKING;
        run->flow = MD_JN_ONWARD;
        if (stop) break;
    }
    return MD_OK;
}

static md_status exec_if(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jb *out) {
    for (const md_jnode *branch = node; branch; branch = branch == node ? node->body2 : branch->next) {
        md_jv holds = md_jv_bool(true);
        if (branch->a) MD_TRY(md_jn_eval(run, scope, branch->a, &holds));
        if (md_jv_truth(&holds)) return md_jn_exec(run, scope, branch->list, out);
    }
    return MD_OK;
}

// The output of `body` as a string, through a block's filters.
static md_status capture(md_jn_run *run, md_jscope *scope, const md_jnode *body, const md_jnode *filters, md_jv *out) {
    md_jb b;
    md_jb_init(&b, run);
    MD_TRY(exec_scoped(run, scope, body, &b));
    MD_TRY(md_jb_finish(&b, out));
    run->block_input = *out; // the filters' head reads it before anything else is evaluated
    return filters ? md_jn_eval(run, scope, filters, out) : MD_OK;
}

static md_status new_macro(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out) {
    md_jmacro *macro = MD_JN_ALLOC(run, md_jmacro, 1);
    if (!macro) return md_jn_oom(run);
    *macro = (md_jmacro){.node = node, .scope = scope};
    *out = (md_jv){.kind = MD_JV_MACRO, .macro = macro};
    return MD_OK;
}

static md_status take_keyword(md_jn_run *run, const md_jargs *args, const md_jname *name, bool *used, md_jscope *scope,
                              bool *found) {
    *found = false;
    for (size_t k = 0; k < args->n_kw && !*found; k++) {
        if (args->kw[k].name != name || used[k]) continue;
        used[k] = *found = true;
        MD_TRY(md_jn_bind(run, scope, name, &args->kw[k].value));
    }
    return MD_OK;
}

static md_status bind_params(md_jn_run *run, const md_jmacro *macro, const md_jargs *args, md_jscope *scope) {
    const char *name = macro->node->name->text;
    bool *used = MD_JN_ALLOC(run, bool, args->n_kw), found;
    if (!used) return md_jn_oom(run);
    size_t i = 0;
    for (const md_jnode *param = macro->node->params; param; param = param->next, i++) {
        if (i < args->n) {
            MD_TRY(md_jn_bind(run, scope, param->name, &args->pos[i]));
            continue;
        }
        MD_TRY(take_keyword(run, args, param->name, used, scope, &found));
        if (found) continue;
        md_jv value;
        if (param->a)
            MD_TRY(md_jn_eval(run, scope, param->a, &value));
        else
            MD_TRY(md_jv_undefined(run, &value, "parameter '%s' was not provided", param->name->text));
        MD_TRY(md_jn_bind(run, scope, param->name, &value));
    }
    if (args->n > i) return md_jn_fail(run, MD_E_FORMAT, "macro '%s' takes not more than %zu argument(s)", name, i);
    MD_TRY(take_keyword(run, args, run->caller_name, used, scope, &found));
    for (size_t k = 0; k < args->n_kw; k++)
        if (!used[k])
            return md_jn_fail(run, MD_E_FORMAT, "macro '%s' takes no keyword argument '%s'", name,
                              args->kw[k].name->text);
    return MD_OK;
}

md_status md_jn_call_macro(md_jn_run *run, const md_jmacro *macro, const md_jargs *args, md_jv *out) {
    md_jb b;
    md_jscope *scope = md_jn_scope_new(run, macro->scope);
    if (!scope) return md_jn_oom(run);
    MD_TRY(bind_params(run, macro, args, scope));
    md_jb_init(&b, run);
    MD_TRY(md_jn_exec(run, scope, macro->node->list, &b));
    return md_jb_finish(&b, out);
}

// {% call(params) macro(args) %}body{% endcall %}: the call with the body as its keyword argument `caller`.
static md_status exec_call_block(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jb *out) {
    md_jv callee, caller, result;
    const md_jnode *call = node->b;
    size_t n = 0, n_pos = 0, n_kw = 0;
    MD_TRY(md_jn_eval(run, scope, call->a, &callee));
    for (const md_jnode *arg = call->list; arg; arg = arg->next) n++;
    md_jv *pos = MD_JN_ALLOC(run, md_jv, n);
    md_jkwarg *kw = MD_JN_ALLOC(run, md_jkwarg, n + 1);
    if (!pos || !kw) return md_jn_oom(run);
    for (const md_jnode *arg = call->list; arg; arg = arg->next) {
        bool keyword = arg->kind == MD_JN_KEYWORD;
        if (keyword) kw[n_kw].name = arg->name;
        MD_TRY(md_jn_eval(run, scope, keyword ? arg->a : arg, keyword ? &kw[n_kw++].value : &pos[n_pos++]));
    }
    MD_TRY(new_macro(run, scope, node, &caller));
    kw[n_kw++] = (md_jkwarg){node->name, caller};
    const md_jargs args = {.pos = pos, .n = n_pos, .kw = kw, .n_kw = n_kw};
    MD_TRY(md_jn_call(run, &callee, &args, &result));
    return md_jv_str(out, &result);
}

static md_status exec_with(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jb *out) {
    md_jscope *inner = md_jn_scope_new(run, scope);
    if (!inner) return md_jn_oom(run);
    for (const md_jnode *set = node->params; set; set = set->next) {
        md_jv value;
        MD_TRY(md_jn_eval(run, scope, set->b, &value)); // the values see the scope outside
        MD_TRY(assign(run, inner, set->a, &value));
    }
    return md_jn_exec(run, inner, node->list, out);
}

static md_status exec_node(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jb *out) {
    md_jv value;
    switch (node->kind) {
    case MD_JN_TEXT: return md_jb_put_string(out, &node->value);
    case MD_JN_PRINT:
        MD_TRY(md_jn_eval(run, scope, node->a, &value));
        run->line = node->line;
        return md_jv_str(out, &value);
    case MD_JN_FOR: return exec_for(run, scope, node, out);
    case MD_JN_IF: return exec_if(run, scope, node, out);
    case MD_JN_SET: MD_TRY(md_jn_eval(run, scope, node->b, &value)); return assign(run, scope, node->a, &value);
    case MD_JN_SETBLOCK:
        MD_TRY(capture(run, scope, node->list, node->b, &value));
        return assign(run, scope, node->a, &value);
    case MD_JN_FILTERBLOCK: MD_TRY(capture(run, scope, node->list, node->b, &value)); return md_jv_str(out, &value);
    case MD_JN_MACRO: MD_TRY(new_macro(run, scope, node, &value)); return md_jn_bind(run, scope, node->name, &value);
    case MD_JN_CALLBLOCK: return exec_call_block(run, scope, node, out);
    case MD_JN_WITH: return exec_with(run, scope, node, out);
    case MD_JN_SCOPE: return exec_scoped(run, scope, node->list, out);
    case MD_JN_BREAK: run->flow = MD_JN_BREAKING; return MD_OK;
    default: run->flow = MD_JN_CONTINUING; return MD_OK;
    }
}

md_status md_jn_exec(md_jn_run *run, md_jscope *scope, const md_jnode *body, md_jb *out) {
    MD_TRY(md_jn_enter(run));
    for (const md_jnode *node = body; node && run->flow == MD_JN_ONWARD; node = node->next) {
        run->line = node->line;
        MD_TRY(md_jn_charge(run, 1));
        MD_TRY(exec_node(run, scope, node, out));
        if (out->size > run->limits.output_bytes)
            return md_jn_fail(run, MD_E_CONTEXT, "the template writes more than %zu bytes", run->limits.output_bytes);
    }
    md_jn_leave(run);
    return MD_OK;
}
