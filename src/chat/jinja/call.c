// Binding arguments to parameters, calling, and the global functions.
#include <string.h>
#include <time.h>

#include "chat/jinja/run.h"

const md_jn_func *md_jn_find_in(const md_jn_func *table, size_t size, const char *name, size_t n) {
    for (size_t i = 0; i < size; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0) return &table[i];
    return NULL;
}

static md_status wrong_args(md_jn_run *run, const md_jn_func *func, const char *what, const char *fault,
                            const char *name) {
    return md_jn_fail(run, MD_E_FORMAT, "%s '%s' %s%s", what, func->name, fault, name);
}

md_status md_jn_invoke(md_jn_run *run, const md_jn_func *func, const char *what, const md_jv *self,
                       const md_jargs *args, md_jv *out) {
    MD_TRY(md_jn_charge(run, 1));
    if (func->variadic) return func->fn(run, self, args, out);
    md_jv bound[MD_JN_MAX_PARAMS] = {{.kind = MD_JV_MISSING}};
    size_t n = 0;
    while (n < MD_JN_MAX_PARAMS && func->params[n]) n++;
    if (args->n > n) return wrong_args(run, func, what, "has too many arguments", "");
    for (size_t i = 0; i < args->n; i++) bound[i] = args->pos[i];
    for (size_t k = 0; k < args->n_kw; k++) {
        size_t i = 0;
        while (i < n && strcmp(func->params[i], args->kw[k].name->text) != 0) i++;
        if (i == n) return wrong_args(run, func, what, "has no argument ", args->kw[k].name->text);
        if (bound[i].kind != MD_JV_MISSING) return wrong_args(run, func, what, "got two values for ", func->params[i]);
        bound[i] = args->kw[k].value;
    }
    for (size_t i = 0; i < func->required; i++)
        if (bound[i].kind == MD_JV_MISSING) return wrong_args(run, func, what, "lacks the argument ", func->params[i]);
    const md_jargs exact = {.pos = bound, .n = n};
    return func->fn(run, self, &exact, out);
}

md_status md_jn_call(md_jn_run *run, const md_jv *callee, const md_jargs *args, md_jv *out) {
    switch (callee->kind) {
    case MD_JV_METHOD: return md_jn_invoke(run, callee->method->func, "method", &callee->method->self, args, out);
    case MD_JV_FUNCTION: return md_jn_invoke(run, callee->func, "function", NULL, args, out);
    case MD_JV_MACRO: return md_jn_call_macro(run, callee->macro, args, out);
    case MD_JV_UNDEFINED: return md_jn_fail(run, MD_E_FORMAT, "%s", callee->hint);
    default: return md_jn_fail(run, MD_E_FORMAT, "'%s' object is not callable", md_jv_type_name(callee));
    }
}

md_status md_jn_arg_int(md_jn_run *run, const md_jv *arg, const char *what, int64_t *out) {
    int64_t value;
    if (arg->kind == MD_JV_MISSING) return MD_OK;
    if (!md_jv_as_int(arg, &value))
        return md_jn_fail(run, MD_E_FORMAT, "%s must be an integer, not %s", what, md_jv_type_name(arg));
    *out = value;
    return MD_OK;
}

md_status md_jn_arg_bool(md_jn_run *run, const md_jv *arg, bool *out) {
    (void)run;
    if (arg->kind != MD_JV_MISSING) *out = md_jv_truth(arg);
    return MD_OK;
}

md_status md_jn_arg_string(md_jn_run *run, const md_jv *arg, const char *what, md_jv *out) {
    if (arg->kind == MD_JV_MISSING) return MD_OK;
    if (arg->kind != MD_JV_STRING)
        return md_jn_fail(run, MD_E_FORMAT, "%s must be a string, not %s", what, md_jv_type_name(arg));
    *out = *arg;
    return MD_OK;
}

// ---- global functions ------------------------------------------------------------------------------------

static md_status g_range(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)self;
    int64_t start = 0, stop = 0, step = 1;
    bool one = args->pos[1].kind == MD_JV_MISSING;
    uint8_t origin = MD_JV_TRUSTED;
    for (size_t i = 0; i < 3; i++)
        if (args->pos[i].kind != MD_JV_MISSING) origin |= args->pos[i].origin;
    MD_TRY(md_jn_arg_int(run, &args->pos[0], "range()'s argument", one ? &stop : &start));
    MD_TRY(md_jn_arg_int(run, &args->pos[1], "range()'s argument", &stop));
    MD_TRY(md_jn_arg_int(run, &args->pos[2], "range()'s argument", &step));
    if (step == 0) return md_jn_fail(run, MD_E_FORMAT, "range() arg 3 must not be zero");
    uint64_t size = 0; // in unsigned arithmetic, so that no pair of bounds overflows
    if (step > 0 && start < stop) size = ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1;
    if (step < 0 && start > stop) size = ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1;
    if (size > MD_JN_MAX_RANGE)
        return md_jn_fail(run, MD_E_CONTEXT, "range too big: more than %d items", MD_JN_MAX_RANGE);
    md_jrange *range = MD_JN_ALLOC(run, md_jrange, 1);
    if (!range) return md_jn_oom(run);
    *range = (md_jrange){.start = start, .stop = stop, .step = step, .size = (size_t)size};
    *out = (md_jv){.kind = MD_JV_RANGE, .origin = origin, .range = range};
    return MD_OK;
}

// namespace(...) and dict(...): a mapping or pairs, then keyword arguments.
static md_status make_dict(md_jn_run *run, md_jv_kind kind, const md_jargs *args, md_jv *out) {
    if (args->n > 1) return md_jn_fail(run, MD_E_FORMAT, "dict() takes at most 1 positional argument");
    MD_TRY(md_jv_dict(run, kind, args->n_kw, MD_JV_TRUSTED, out));
    if (args->n == 1 && args->pos[0].kind == MD_JV_DICT) {
        const md_jdict *from = args->pos[0].dict;
        out->origin = args->pos[0].origin;
        for (size_t i = 0; i < from->size; i++)
            MD_TRY(md_jdict_set(run, out->dict, &from->items[i].key, &from->items[i].value));
    } else if (args->n == 1) {
        const md_jv *items, *pair;
        size_t n, two;
        MD_TRY(md_jv_items(run, &args->pos[0], "dict()", &items, &n));
        for (size_t i = 0; i < n; i++) {
            MD_TRY(md_jv_items(run, &items[i], "dict()", &pair, &two));
            if (two != 2) return md_jn_fail(run, MD_E_FORMAT, "dict() needs pairs, found %zu items", two);
            MD_TRY(md_jdict_set(run, out->dict, &pair[0], &pair[1]));
        }
    }
    for (size_t k = 0; k < args->n_kw; k++) {
        md_jv key;
        MD_TRY(md_jv_string_borrow(run, args->kw[k].name->text, args->kw[k].name->size, MD_JV_TRUSTED, &key));
        MD_TRY(md_jdict_set(run, out->dict, &key, &args->kw[k].value));
    }
    return MD_OK;
}

static md_status g_namespace(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)self;
    return make_dict(run, MD_JV_NAMESPACE, args, out);
}

static md_status g_dict(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)self;
    return make_dict(run, MD_JV_DICT, args, out);
}

// The template refuses the conversation: its message is for the client, and no fault of the template.
static md_status g_raise(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)self;
    MD_TRY(md_jv_to_string(run, &args->pos[0], out));
    return md_jn_fail(run, MD_E_USAGE, "%.*s", (int)(out->str->size > 300 ? 300 : out->str->size), out->str->bytes);
}

static md_status g_strftime(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)self;
    char format[256], text[1024];
    struct tm tm;
    time_t now = (time_t)run->now;
    md_jv spec = {.kind = MD_JV_MISSING};
    MD_TRY(md_jn_arg_string(run, &args->pos[0], "strftime_now()'s format", &spec));
    if (spec.str->size >= sizeof format - 1)
        return md_jn_fail(run, MD_E_CONTEXT, "strftime_now()'s format is longer than %zu bytes", sizeof format - 2);
    if (!gmtime_r(&now, &tm)) return md_jn_fail(run, MD_E_FORMAT, "strftime_now(): time out of range");
    memcpy(format, spec.str->bytes, spec.str->size);
    memcpy(format + spec.str->size, "x", 2); // so that an empty result can be told from one that does not fit
    size_t n = strftime(text, sizeof text, format, &tm);
    if (n == 0) return md_jn_fail(run, MD_E_CONTEXT, "strftime_now()'s result is too long");
    return md_jv_string(run, text, n - 1, spec.origin, out);
}

const md_jn_func *md_jn_find_global(const char *name, size_t n) {
    static const md_jn_func table[] = {
        {"range", g_range, {"start", "stop", "step"}, 1, false},
        {"namespace", g_namespace, {NULL}, 0, true},
        {"dict", g_dict, {NULL}, 0, true},
        {"raise_exception", g_raise, {"message"}, 1, false},
        {"strftime_now", g_strftime, {"format"}, 1, false},
    };
    return md_jn_find_in(table, sizeof table / sizeof table[0], name, n);
}
