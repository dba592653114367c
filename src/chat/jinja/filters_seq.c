// Filters on sequences.
#include <string.h>

#include "chat/jinja/filters.h"
#include "chat/jinja/u8.h"

#define FILTER(name) static md_status name(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out)
#define ARG(i) (&args->pos[i])

static bool given(const md_jv *arg) { return arg->kind != MD_JV_MISSING && arg->kind != MD_JV_NONE; }

// ---- taking apart ----------------------------------------------------------------------------------------

FILTER(f_first) {
    (void)args;
    const md_jv *items;
    size_t n;
    if (self->kind == MD_JV_ITER && self->seq->pos < self->seq->size) { // takes just one
        *out = self->seq->items[self->seq->pos++];
        return MD_OK;
    }
    MD_TRY(md_jv_items(run, self, "first", &items, &n));
    if (n == 0) return md_jv_undefined(run, out, "No first item, sequence was empty.");
    *out = items[0];
    return MD_OK;
}

FILTER(f_last) {
    (void)args;
    const md_jv *items;
    size_t n;
    if (self->kind == MD_JV_ITER)
        return md_jn_fail(run, MD_E_FORMAT, "'%s' object is not reversible", md_jv_type_name(self));
    MD_TRY(md_jv_items(run, self, "last", &items, &n));
    if (n == 0) return md_jv_undefined(run, out, "No last item, sequence was empty.");
    *out = items[n - 1];
    return MD_OK;
}

FILTER(f_list) {
    (void)args;
    const md_jv *items;
    size_t n;
    MD_TRY(md_jv_items(run, self, "list", &items, &n));
    return md_jv_seq(run, MD_JV_LIST, items, n, self->origin, out);
}

FILTER(f_reverse) {
    (void)args;
    const md_jv *items;
    size_t n;
    if (self->kind == MD_JV_STRING) {
        const md_jv bounds[3] = {{.kind = MD_JV_NONE}, {.kind = MD_JV_NONE}, {.kind = MD_JV_INT, .i = -1}};
        return md_jn_slice(run, self, bounds, out);
    }
    MD_TRY(md_jv_items(run, self, "reverse", &items, &n));
    md_jv *turned = MD_JN_ALLOC(run, md_jv, n);
    if (!turned) return md_jn_oom(run);
    for (size_t i = 0; i < n; i++) turned[i] = items[n - 1 - i];
    MD_TRY(md_jn_charge(run, n / 4));
    return md_jv_seq(run, self->kind == MD_JV_ITER ? MD_JV_LIST : MD_JV_ITER, turned, n, self->origin, out);
}

FILTER(f_items) {
    md_jv method;
    if (self->kind == MD_JV_UNDEFINED) return md_jv_seq(run, MD_JV_ITER, NULL, 0, MD_JV_TRUSTED, out);
    if (self->kind != MD_JV_DICT) return md_jn_fail(run, MD_E_FORMAT, "Can only get item pairs from a mapping.");
    MD_TRY(md_jn_getattr(run, self, "items", 5, &method));
    MD_TRY(md_jn_call(run, &method, args, out));
    return md_jv_seq(run, MD_JV_ITER, out->seq->items, out->seq->size, self->origin, out);
}

static md_status cut_rows(md_jn_run *run, const md_jv *self, const md_jargs *args, bool batch, md_jv *out) {
    const md_jv *items;
    size_t n, at = 0;
    int64_t count = 0;
    md_jl rows = {.run = run};
    MD_TRY(md_jn_arg_int(run, ARG(0), "the number of rows or columns", &count));
    MD_TRY(md_jv_items(run, self, "batch or slice", &items, &n));
    if (count < 1 || count > MD_JN_MAX_RANGE)
        return md_jn_fail(run, MD_E_CONTEXT, "%lld is no number of rows or columns", (long long)count);
    size_t size = (size_t)count, n_rows = batch ? (n + size - 1) / size : size;
    for (size_t r = 0; r < n_rows; r++) {
        size_t take = batch ? (n - at < size ? n - at : size) : n / size + (r < n % size);
        bool fill = given(ARG(1)) && (batch ? take < size : r >= n % size);
        size_t total = batch && fill ? size : take + fill;
        md_jv *row = MD_JN_ALLOC(run, md_jv, total), list;
        if (!row) return md_jn_oom(run);
        for (size_t i = 0; i < total; i++) row[i] = i < take ? items[at + i] : *ARG(1);
        at += take;
        MD_TRY(md_jn_charge(run, total / 4));
        MD_TRY(md_jv_seq(run, MD_JV_LIST, row, total, self->origin, &list));
        MD_TRY(md_jl_push(&rows, &list));
    }
    return md_jv_seq(run, MD_JV_ITER, rows.items, rows.size, self->origin, out);
}
FILTER(f_batch) { return cut_rows(run, self, args, true, out); }
FILTER(f_slice) { return cut_rows(run, self, args, false, out); }

// ---- folding ---------------------------------------------------------------------------------------------

FILTER(f_join) {
    const md_jv *items;
    size_t n;
    md_jv sep = {.kind = MD_JV_MISSING}, item;
    md_jb b;
    md_jb_init(&b, run);
    if (ARG(0)->kind != MD_JV_MISSING) MD_TRY(md_jv_to_string(run, ARG(0), &sep));
    MD_TRY(md_jv_items(run, self, "join", &items, &n));
    for (size_t i = 0; i < n; i++) {
        item = items[i];
        MD_TRY(md_jn_charge(run, 1));
        if (given(ARG(1))) MD_TRY(md_jn_getpath(run, &items[i], ARG(1), NULL, &item));
        if (i && sep.kind != MD_JV_MISSING) MD_TRY(md_jb_put_string(&b, &sep));
        MD_TRY(md_jv_str(&b, &item));
    }
    return md_jb_finish(&b, out);
}

FILTER(f_sum) {
    const md_jv *items;
    size_t n;
    md_jv total = ARG(1)->kind == MD_JV_MISSING ? md_jv_int(0, MD_JV_TRUSTED) : *ARG(1), item;
    if (total.kind == MD_JV_STRING) return md_jn_fail(run, MD_E_FORMAT, "sum() can't sum strings");
    MD_TRY(md_jv_items(run, self, "sum", &items, &n));
    for (size_t i = 0; i < n; i++) {
        item = items[i];
        MD_TRY(md_jn_charge(run, 1));
        if (given(ARG(0))) MD_TRY(md_jn_getpath(run, &items[i], ARG(0), NULL, &item));
        MD_TRY(md_jn_binary(run, '+', &total, &item, &total));
    }
    *out = total;
    return MD_OK;
}

// What an item is compared by: itself or its attribute, without case unless told otherwise.
static md_status key_of(md_jn_run *run, const md_jv *item, const md_jv *attribute, bool cased, md_jv *out) {
    *out = *item;
    if (given(attribute)) MD_TRY(md_jn_getpath(run, item, attribute, NULL, out));
    if (cased) return MD_OK;
    md_jv key = *out;
    return md_jn_ignore_case(run, &key, out);
}

static md_status extreme(md_jn_run *run, const md_jv *self, const md_jargs *args, int sign, md_jv *out) {
    const md_jv *items;
    size_t n;
    bool cased = false;
    md_jv best, key;
    int order;
    MD_TRY(md_jn_arg_bool(run, ARG(0), &cased));
    MD_TRY(md_jv_items(run, self, sign < 0 ? "min" : "max", &items, &n));
    if (n == 0) return md_jv_undefined(run, out, "No aggregated item, sequence was empty.");
    *out = items[0];
    MD_TRY(key_of(run, &items[0], ARG(1), cased, &best));
    for (size_t i = 1; i < n; i++) {
        MD_TRY(key_of(run, &items[i], ARG(1), cased, &key));
        MD_TRY(md_jv_order(run, &key, &best, sign < 0 ? "<" : ">", &order));
        if (order != sign) continue;
        *out = items[i];
        best = key;
    }
    return MD_OK;
}
FILTER(f_min) { return extreme(run, self, args, -1, out); }
FILTER(f_max) { return extreme(run, self, args, 1, out); }

// ---- sorting ---------------------------------------------------------------------------------------------

typedef struct keyed {
    md_jv key, item;
} keyed;

// A stable merge sort from `from` into `to` and back; both hold n entries, the result is in `from`.
static md_status sort_keyed(md_jn_run *run, keyed *from, keyed *to, size_t n, int sign) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            size_t middle = begin + width < n ? begin + width : n, end = middle + width < n ? middle + width : n;
            for (size_t i = begin, j = middle, k = begin; k < end; k++) {
                int order = 0;
                if (i < middle && j < end) MD_TRY(md_jv_order(run, &from[j].key, &from[i].key, "<", &order));
                bool right = i == middle || (j < end && order * sign < 0);
                to[k] = right ? from[j++] : from[i++];
            }
        }
        memcpy(from, to, n * sizeof *from);
    }
    return MD_OK;
}

static md_status sort_items(md_jn_run *run, keyed *entries, size_t n, bool reverse, uint8_t origin, md_jv *out) {
    keyed *spare = MD_JN_ALLOC(run, keyed, n);
    md_jv *items = MD_JN_ALLOC(run, md_jv, n);
    if (!spare || !items) return md_jn_oom(run);
    MD_TRY(sort_keyed(run, entries, spare, n, reverse ? -1 : 1));
    for (size_t i = 0; i < n; i++) items[i] = entries[i].item;
    return md_jv_seq(run, MD_JV_LIST, items, n, origin, out);
}

// The key of sort: a list of one value for each of the comma-separated attributes.
static md_status sort_key(md_jn_run *run, const md_jv *item, const md_jv *attribute, bool cased, md_jv *out) {
    const md_jstr *s = attribute->kind == MD_JV_STRING ? attribute->str : NULL;
    if (!s || !memchr(s->bytes, ',', s->size)) return key_of(run, item, attribute, cased, out);
    md_jl keys = {.run = run};
    for (size_t begin = 0; begin <= s->size;) {
        const char *comma = begin < s->size ? memchr(s->bytes + begin, ',', s->size - begin) : NULL;
        size_t n = (comma ? (size_t)(comma - s->bytes) : s->size) - begin;
        md_jv part, key;
        MD_TRY(md_jv_substring(run, attribute, begin, n, &part));
        MD_TRY(key_of(run, item, &part, cased, &key));
        MD_TRY(md_jl_push(&keys, &key));
        begin += n + 1;
    }
    return md_jv_seq(run, MD_JV_LIST, keys.items, keys.size, MD_JV_TRUSTED, out);
}

FILTER(f_sort) {
    const md_jv *items;
    size_t n;
    bool reverse = false, cased = false;
    MD_TRY(md_jn_arg_bool(run, ARG(0), &reverse));
    MD_TRY(md_jn_arg_bool(run, ARG(1), &cased));
    MD_TRY(md_jv_items(run, self, "sort", &items, &n));
    keyed *entries = MD_JN_ALLOC(run, keyed, n);
    if (!entries) return md_jn_oom(run);
    for (size_t i = 0; i < n; i++) {
        entries[i].item = items[i];
        MD_TRY(sort_key(run, &items[i], ARG(2), cased, &entries[i].key));
    }
    return sort_items(run, entries, n, reverse, self->origin, out);
}

FILTER(f_dictsort) {
    bool cased = false, reverse = false;
    md_jv by = {.kind = MD_JV_MISSING};
    MD_TRY(md_jn_arg_bool(run, ARG(0), &cased));
    MD_TRY(md_jn_arg_string(run, ARG(1), "dictsort's by", &by));
    MD_TRY(md_jn_arg_bool(run, ARG(2), &reverse));
    bool value = by.kind != MD_JV_MISSING && md_jv_string_is(&by, "value");
    if (by.kind != MD_JV_MISSING && !value && !md_jv_string_is(&by, "key"))
        return md_jn_fail(run, MD_E_FORMAT, "You can only sort by either \"key\" or \"value\"");
    if (self->kind != MD_JV_DICT)
        return md_jn_fail(run, MD_E_FORMAT, "dictsort needs a mapping, not %s", md_jv_type_name(self));
    const md_jargs none = {.n = 0};
    md_jv pairs;
    MD_TRY(f_items(run, self, &none, &pairs));
    size_t n = pairs.seq->size;
    keyed *entries = MD_JN_ALLOC(run, keyed, n);
    if (!entries) return md_jn_oom(run);
    const md_jv whole = {.kind = MD_JV_MISSING};
    for (size_t i = 0; i < n; i++) {
        entries[i].item = pairs.seq->items[i];
        MD_TRY(key_of(run, &entries[i].item.seq->items[value], &whole, cased, &entries[i].key));
    }
    return sort_items(run, entries, n, reverse, self->origin, out);
}

FILTER(f_unique) {
    const md_jv *items;
    size_t n;
    bool cased = false;
    md_jv seen; // a dict, so that what cannot be a key is refused as Python refuses it
    md_jl kept = {.run = run};
    MD_TRY(md_jn_arg_bool(run, ARG(0), &cased));
    MD_TRY(md_jv_items(run, self, "unique", &items, &n));
    MD_TRY(md_jv_dict(run, MD_JV_DICT, n, MD_JV_TRUSTED, &seen));
    for (size_t i = 0; i < n; i++) {
        const md_jv *found, none = md_jv_none();
        md_jv key;
        MD_TRY(key_of(run, &items[i], ARG(1), cased, &key));
        MD_TRY(md_jdict_get(run, seen.dict, &key, &found));
        if (found) continue;
        MD_TRY(md_jdict_set(run, seen.dict, &key, &none));
        MD_TRY(md_jl_push(&kept, &items[i]));
    }
    return md_jv_seq(run, MD_JV_ITER, kept.items, kept.size, self->origin, out);
}

// ---- map, select, reject ---------------------------------------------------------------------------------

static const md_jv *keyword(const md_jargs *args, const char *name) {
    for (size_t k = 0; k < args->n_kw; k++)
        if (strcmp(args->kw[k].name->text, name) == 0) return &args->kw[k].value;
    return NULL;
}

FILTER(f_map) {
    const md_jv *items, *attribute = args->n ? NULL : keyword(args, "attribute"), *fallback = keyword(args, "default");
    size_t n;
    const md_jn_func *filter = NULL;
    md_jargs rest = {.kw = args->kw, .n_kw = args->n_kw};
    if (!attribute) {
        if (args->n == 0) return md_jn_fail(run, MD_E_FORMAT, "map requires a filter argument");
        if (args->pos[0].kind == MD_JV_STRING)
            filter = md_jn_find_filter(args->pos[0].str->bytes, args->pos[0].str->size);
        if (!filter) return md_jn_fail(run, MD_E_UNSUPPORTED, "map: no such filter");
        rest.pos = args->pos + 1;
        rest.n = args->n - 1;
    }
    MD_TRY(md_jv_items(run, self, "map", &items, &n));
    md_jv *mapped = MD_JN_ALLOC(run, md_jv, n);
    if (!mapped) return md_jn_oom(run);
    MD_TRY(md_jn_enter(run)); // map('map', ...) nests
    for (size_t i = 0; i < n; i++) {
        MD_TRY(md_jn_charge(run, 1));
        if (filter)
            MD_TRY(md_jn_invoke(run, filter, "filter", &items[i], &rest, &mapped[i]));
        else
            MD_TRY(md_jn_getpath(run, &items[i], attribute, fallback, &mapped[i]));
        if (attribute && fallback && mapped[i].kind == MD_JV_UNDEFINED) mapped[i] = *fallback;
    }
    md_jn_leave(run);
    return md_jv_seq(run, MD_JV_ITER, mapped, n, self->origin, out);
}

// select, reject: by a test (or by truth); the attr forms test an attribute, their first argument.
static md_status pick(md_jn_run *run, const md_jv *self, const md_jargs *args, bool attr, bool wanted, md_jv *out) {
    const md_jv *items;
    size_t n, off = attr ? 1 : 0;
    const md_jn_func *test = NULL;
    md_jl kept = {.run = run};
    if (args->n < off) return md_jn_fail(run, MD_E_FORMAT, "Missing parameter for attribute name");
    if (args->n > off) {
        const md_jv *name = &args->pos[off];
        if (name->kind == MD_JV_STRING) test = md_jn_find_test(name->str->bytes, name->str->size);
        if (!test) return md_jn_fail(run, MD_E_UNSUPPORTED, "select or reject: no such test");
    }
    const md_jargs rest = {.pos = test ? args->pos + off + 1 : NULL,
                           .n = test ? args->n - off - 1 : 0,
                           .kw = args->kw,
                           .n_kw = args->n_kw};
    MD_TRY(md_jv_items(run, self, "select or reject", &items, &n));
    for (size_t i = 0; i < n; i++) {
        md_jv value = items[i], result;
        MD_TRY(md_jn_charge(run, 1));
        if (attr) MD_TRY(md_jn_getpath(run, &items[i], &args->pos[0], NULL, &value));
        if (test)
            MD_TRY(md_jn_invoke(run, test, "test", &value, &rest, &result));
        else
            result = value;
        if (md_jv_truth(&result) == wanted) MD_TRY(md_jl_push(&kept, &items[i]));
    }
    return md_jv_seq(run, MD_JV_ITER, kept.items, kept.size, self->origin, out);
}
FILTER(f_select) { return pick(run, self, args, false, true, out); }
FILTER(f_reject) { return pick(run, self, args, false, false, out); }
FILTER(f_selectattr) { return pick(run, self, args, true, true, out); }
FILTER(f_rejectattr) { return pick(run, self, args, true, false, out); }

const md_jn_func *md_jn_find_seq_filter(const char *name, size_t n) {
    static const md_jn_func table[] = {
        {"batch", f_batch, {"linecount", "fill_with"}, 1, false},
        {"dictsort", f_dictsort, {"case_sensitive", "by", "reverse"}, 0, false},
        {"first", f_first, {NULL}, 0, false},
        {"items", f_items, {NULL}, 0, false},
        {"join", f_join, {"d", "attribute"}, 0, false},
        {"last", f_last, {NULL}, 0, false},
        {"list", f_list, {NULL}, 0, false},
        {"map", f_map, {NULL}, 0, true},
        {"max", f_max, {"case_sensitive", "attribute"}, 0, false},
        {"min", f_min, {"case_sensitive", "attribute"}, 0, false},
        {"reject", f_reject, {NULL}, 0, true},
        {"rejectattr", f_rejectattr, {NULL}, 0, true},
        {"reverse", f_reverse, {NULL}, 0, false},
        {"select", f_select, {NULL}, 0, true},
        {"selectattr", f_selectattr, {NULL}, 0, true},
        {"slice", f_slice, {"slices", "fill_with"}, 1, false},
        {"sort", f_sort, {"reverse", "case_sensitive", "attribute"}, 0, false},
        {"sum", f_sum, {"attribute", "start"}, 0, false},
        {"unique", f_unique, {"case_sensitive", "attribute"}, 0, false},
    };
    return md_jn_find_in(table, sizeof table / sizeof table[0], name, n);
}
