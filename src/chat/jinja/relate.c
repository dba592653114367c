// Equality, order and containment, as Python defines them for these types.
#include <string.h>

#include "chat/jinja/run.h"

static md_status equal_at(md_jn_run *run, const md_jv *a, const md_jv *b, int depth, bool *out);

static md_status equal_seq(md_jn_run *run, const md_jseq *a, const md_jseq *b, int depth, bool *out) {
    *out = a->size == b->size;
    for (size_t i = 0; *out && i < a->size; i++) MD_TRY(equal_at(run, &a->items[i], &b->items[i], depth + 1, out));
    return MD_OK;
}

static md_status equal_dict(md_jn_run *run, const md_jdict *a, const md_jdict *b, int depth, bool *out) {
    *out = a->size == b->size;
    for (size_t i = 0; *out && i < a->size; i++) {
        const md_jv *other;
        MD_TRY(md_jdict_get(run, b, &a->items[i].key, &other));
        *out = other != NULL;
        if (other) MD_TRY(equal_at(run, &a->items[i].value, other, depth + 1, out));
    }
    return MD_OK;
}

static bool equal_numbers(const md_jv *a, const md_jv *b) {
    int64_t x, y;
    if (md_jv_as_int(a, &x) && md_jv_as_int(b, &y)) return x == y;
    return md_jv_as_float(a) == md_jv_as_float(b);
}

static md_status equal_at(md_jn_run *run, const md_jv *a, const md_jv *b, int depth, bool *out) {
    MD_TRY(md_jn_charge(run, 1));
    if (depth > MD_JN_MAX_NESTING)
        return md_jn_fail(run, MD_E_CONTEXT, "values nested deeper than %d levels", MD_JN_MAX_NESTING);
    *out = false;
    if (md_jv_is_number(a) && md_jv_is_number(b)) {
        *out = equal_numbers(a, b);
        return MD_OK;
    }
    if (a->kind != b->kind) return MD_OK;
    switch (a->kind) {
    case MD_JV_UNDEFINED:
    case MD_JV_NONE: *out = true; return MD_OK;
    case MD_JV_STRING:
        *out = a->str->size == b->str->size && memcmp(a->str->bytes, b->str->bytes, a->str->size) == 0;
        return md_jn_charge_bytes(run, a->str->size);
    case MD_JV_LIST:
    case MD_JV_TUPLE: return equal_seq(run, a->seq, b->seq, depth, out);
    case MD_JV_DICT: return equal_dict(run, a->dict, b->dict, depth, out);
    case MD_JV_RANGE:
        *out = a->range->size == b->range->size &&
               (a->range->size == 0 ||
                (a->range->start == b->range->start && (a->range->size == 1 || a->range->step == b->range->step)));
        return MD_OK;
    default: *out = a->seq == b->seq; return MD_OK; // the same object
    }
}

md_status md_jv_equal(md_jn_run *run, const md_jv *a, const md_jv *b, bool *out) { return equal_at(run, a, b, 0, out); }

static int order_sizes(size_t a, size_t b) { return (a > b) - (a < b); }

static md_status order_at(md_jn_run *run, const md_jv *a, const md_jv *b, const char *op, int depth, int *out) {
    MD_TRY(md_jn_charge(run, 1));
    if (depth > MD_JN_MAX_NESTING)
        return md_jn_fail(run, MD_E_CONTEXT, "values nested deeper than %d levels", MD_JN_MAX_NESTING);
    const md_jv *undefined = a->kind == MD_JV_UNDEFINED ? a : b;
    if (undefined->kind == MD_JV_UNDEFINED) return md_jn_fail(run, MD_E_FORMAT, "%s", undefined->hint);
    if (md_jv_is_number(a) && md_jv_is_number(b)) {
        int64_t x, y;
        if (md_jv_as_int(a, &x) && md_jv_as_int(b, &y)) {
            *out = (x > y) - (x < y);
        } else {
            double p = md_jv_as_float(a), q = md_jv_as_float(b);
            *out = (p > q) - (p < q);
        }
        return MD_OK;
    }
    if (a->kind == MD_JV_STRING && b->kind == MD_JV_STRING) { // UTF-8 sorts like its characters
        size_t n = a->str->size < b->str->size ? a->str->size : b->str->size;
        int sign = n ? memcmp(a->str->bytes, b->str->bytes, n) : 0;
        *out = sign ? (sign > 0) - (sign < 0) : order_sizes(a->str->size, b->str->size);
        return md_jn_charge_bytes(run, n);
    }
    if (a->kind == b->kind && (a->kind == MD_JV_LIST || a->kind == MD_JV_TUPLE)) {
        for (size_t i = 0; i < a->seq->size && i < b->seq->size; i++) {
            bool same;
            MD_TRY(equal_at(run, &a->seq->items[i], &b->seq->items[i], depth + 1, &same));
            if (!same) return order_at(run, &a->seq->items[i], &b->seq->items[i], op, depth + 1, out);
        }
        *out = order_sizes(a->seq->size, b->seq->size);
        return MD_OK;
    }
    return md_jn_fail(run, MD_E_FORMAT, "'%s' not supported between instances of '%s' and '%s'", op, md_jv_type_name(a),
                      md_jv_type_name(b));
}

md_status md_jv_order(md_jn_run *run, const md_jv *a, const md_jv *b, const char *op, int *out) {
    return order_at(run, a, b, op, 0, out);
}

md_status md_jv_contains(md_jn_run *run, const md_jv *container, const md_jv *item, bool *out) {
    *out = false;
    if (container->kind == MD_JV_STRING) {
        if (item->kind != MD_JV_STRING)
            return md_jn_fail(run, MD_E_FORMAT, "'in <string>' requires string as left operand, not %s",
                              md_jv_type_name(item));
        *out = md_jstr_find(container->str, item->str, 0) != SIZE_MAX;
        return md_jn_charge_bytes(run, container->str->size);
    }
    if (container->kind == MD_JV_DICT) {
        const md_jv *found;
        MD_TRY(md_jdict_get(run, container->dict, item, &found));
        *out = found != NULL;
        return MD_OK;
    }
    if (container->kind == MD_JV_ITER) { // uses up the items to the one it finds
        for (md_jseq *seq = container->seq; !*out && seq->pos < seq->size; seq->pos++)
            MD_TRY(md_jv_equal(run, &seq->items[seq->pos], item, out));
        return MD_OK;
    }
    const md_jv *items;
    size_t n;
    MD_TRY(md_jv_items(run, container, "in", &items, &n));
    for (size_t i = 0; i < n && !*out; i++) MD_TRY(md_jv_equal(run, &items[i], item, out));
    return MD_OK;
}
