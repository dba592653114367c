#include "chat/jinja/value.h"

#include <stdio.h>
#include <string.h>

#include "chat/jinja/run.h"
#include "chat/jinja/u8.h"

const char *md_jv_type_name(const md_jv *v) {
    switch (v->kind) {
    case MD_JV_MISSING: return "missing";
    case MD_JV_UNDEFINED: return "Undefined";
    case MD_JV_NONE: return "NoneType";
    case MD_JV_BOOL: return "bool";
    case MD_JV_INT: return "int";
    case MD_JV_FLOAT: return "float";
    case MD_JV_STRING: return "str";
    case MD_JV_LIST: return "list";
    case MD_JV_TUPLE: return "tuple";
    case MD_JV_VIEW: return v->seq->view;
    case MD_JV_ITER: return "generator";
    case MD_JV_RANGE: return "range";
    case MD_JV_DICT: return "dict";
    case MD_JV_NAMESPACE: return "Namespace";
    case MD_JV_LOOP: return "LoopContext";
    case MD_JV_MACRO: return "Macro";
    case MD_JV_METHOD: return "method";
    default: return "function";
    }
}

bool md_jv_truth(const md_jv *v) {
    switch (v->kind) {
    case MD_JV_MISSING:
    case MD_JV_UNDEFINED:
    case MD_JV_NONE: return false;
    case MD_JV_BOOL: return v->b;
    case MD_JV_INT: return v->i != 0;
    case MD_JV_FLOAT: return v->f != 0.0;
    case MD_JV_STRING: return v->str->size != 0;
    case MD_JV_LIST:
    case MD_JV_TUPLE:
    case MD_JV_VIEW: return v->seq->size != 0;
    case MD_JV_RANGE: return v->range->size != 0;
    case MD_JV_DICT: return v->dict->size != 0;
    default: return true;
    }
}

md_status md_jv_undefined(md_jn_run *run, md_jv *out, const char *fmt, ...) {
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    char *hint = md_jn_alloc(run, size + 1, 1);
    if (!hint) return md_jn_oom(run);
    memcpy(hint, text, size);
    *out = (md_jv){.kind = MD_JV_UNDEFINED, .hint = hint};
    return MD_OK;
}

md_status md_jv_seq(md_jn_run *run, md_jv_kind kind, const md_jv *items, size_t n, uint8_t origin, md_jv *out) {
    md_jseq *seq = MD_JN_ALLOC(run, md_jseq, 1);
    if (!seq) return md_jn_oom(run);
    static const md_jv nothing = {.kind = MD_JV_MISSING}; // so that an empty sequence has an address to count from
    *seq = (md_jseq){.items = items ? items : &nothing, .size = n};
    *out = (md_jv){.kind = (uint8_t)kind, .origin = origin, .seq = seq};
    return MD_OK;
}

md_status md_jv_dict(md_jn_run *run, md_jv_kind kind, size_t cap, uint8_t origin, md_jv *out) {
    md_jdict *dict = MD_JN_ALLOC(run, md_jdict, 1);
    if (!dict) return md_jn_oom(run);
    dict->cap = cap ? cap : 4;
    dict->items = MD_JN_ALLOC(run, md_jpair, dict->cap);
    if (!dict->items) return md_jn_oom(run);
    *out = (md_jv){.kind = (uint8_t)kind, .origin = origin, .dict = dict};
    return MD_OK;
}

md_status md_jl_push(md_jl *list, const md_jv *v) {
    if (list->size == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 8;
        md_jv *items = MD_JN_ALLOC(list->run, md_jv, cap);
        if (!items) return md_jn_oom(list->run);
        if (list->size) memcpy(items, list->items, list->size * sizeof *items);
        list->items = items;
        list->cap = cap;
    }
    list->items[list->size++] = *v;
    return md_jn_charge(list->run, 1);
}

md_status md_jl_push_part(md_jl *list, const md_jv *s, size_t offset, size_t n) {
    md_jv part;
    MD_TRY(md_jv_substring(list->run, s, offset, n, &part));
    return md_jl_push(list, &part);
}

static bool hashable(const md_jv *v) {
    if (v->kind == MD_JV_TUPLE) {
        // Tuples of tuples are not needed as keys, and would recurse.
        for (size_t i = 0; i < v->seq->size; i++)
            if (v->seq->items[i].kind > MD_JV_STRING) return false;
        return true;
    }
    return v->kind <= MD_JV_STRING;
}

static md_status find_key(md_jn_run *run, const md_jdict *dict, const md_jv *key, md_jpair **out) {
    *out = NULL;
    if (!hashable(key)) return md_jn_fail(run, MD_E_FORMAT, "unhashable type: '%s'", md_jv_type_name(key));
    for (size_t i = 0; i < dict->size; i++) {
        const md_jv *have = &dict->items[i].key;
        bool same = false;
        if (have->kind == MD_JV_STRING && key->kind == MD_JV_STRING) {
            same = have->str->size == key->str->size && memcmp(have->str->bytes, key->str->bytes, key->str->size) == 0;
        } else if (have->kind != MD_JV_STRING && key->kind != MD_JV_STRING) {
            MD_TRY(md_jv_equal(run, have, key, &same));
        }
        if (!same) continue;
        *out = &dict->items[i];
        return md_jn_charge(run, i / 8);
    }
    return md_jn_charge(run, dict->size / 8);
}

md_status md_jdict_get(md_jn_run *run, const md_jdict *dict, const md_jv *key, const md_jv **out) {
    md_jpair *pair;
    *out = NULL;
    MD_TRY(find_key(run, dict, key, &pair));
    if (pair) *out = &pair->value;
    return MD_OK;
}

md_status md_jdict_get_text(md_jn_run *run, const md_jdict *dict, const char *key, size_t n, const md_jv **out) {
    const md_jstr text = {.bytes = key, .size = n};
    const md_jv value = {.kind = MD_JV_STRING, .str = &text};
    return md_jdict_get(run, dict, &value, out);
}

md_status md_jdict_set(md_jn_run *run, md_jdict *dict, const md_jv *key, const md_jv *value) {
    md_jpair *pair;
    MD_TRY(find_key(run, dict, key, &pair));
    if (pair) {
        pair->value = *value;
        return MD_OK;
    }
    if (dict->size == dict->cap) {
        md_jpair *items = MD_JN_ALLOC(run, md_jpair, dict->cap * 2);
        if (!items) return md_jn_oom(run);
        memcpy(items, dict->items, dict->size * sizeof *items);
        dict->items = items;
        dict->cap *= 2;
    }
    dict->items[dict->size++] = (md_jpair){*key, *value};
    return MD_OK;
}

// ---- from JSON -------------------------------------------------------------------------------------------

static md_status from_array(md_jn_run *run, const json_t *json, uint8_t origin, int depth, md_jv *out) {
    size_t n = json_array_size(json);
    md_jv *items = MD_JN_ALLOC(run, md_jv, n);
    if (!items) return md_jn_oom(run);
    for (size_t i = 0; i < n; i++) MD_TRY(md_jv_from_json(run, json_array_get(json, i), origin, depth + 1, &items[i]));
    return md_jv_seq(run, MD_JV_LIST, items, n, origin, out);
}

static md_status from_object(md_jn_run *run, const json_t *json, uint8_t origin, int depth, md_jv *out) {
    size_t n = json_object_size(json);
    MD_TRY(md_jv_dict(run, MD_JV_DICT, n, origin, out));
    md_jdict *dict = out->dict;
    // jansson keeps the order of insertion, and its keys are unique: no lookups needed.
    for (void *it = json_object_iter((json_t *)(uintptr_t)json); it && dict->size < n;
         it = json_object_iter_next((json_t *)(uintptr_t)json, it)) {
        md_jpair *pair = &dict->items[dict->size++];
        const char *key = json_object_iter_key(it);
        MD_TRY(md_jv_string_borrow(run, key, strlen(key), origin, &pair->key));
        MD_TRY(md_jv_from_json(run, json_object_iter_value(it), origin, depth + 1, &pair->value));
    }
    return MD_OK;
}

md_status md_jv_from_json(md_jn_run *run, const json_t *json, uint8_t origin, int depth, md_jv *out) {
    if (depth > MD_JN_MAX_NESTING)
        return md_jn_fail(run, MD_E_CONTEXT, "JSON nested deeper than %d levels", MD_JN_MAX_NESTING);
    *out = (md_jv){.kind = MD_JV_NONE, .origin = origin};
    switch (json_typeof(json)) {
    case JSON_OBJECT: return from_object(run, json, origin, depth, out);
    case JSON_ARRAY: return from_array(run, json, origin, depth, out);
    case JSON_STRING: return md_jv_string_borrow(run, json_string_value(json), json_string_length(json), origin, out);
    case JSON_INTEGER: *out = md_jv_int(json_integer_value(json), origin); break;
    case JSON_REAL: *out = md_jv_float(json_real_value(json), origin); break;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = md_jv_bool(json_is_true(json));
        out->origin = origin;
        break;
    case JSON_NULL: break;
    }
    return MD_OK;
}

// ---- walking ---------------------------------------------------------------------------------------------

bool md_jv_length(const md_jv *v, size_t *n) {
    *n = 0;
    switch (v->kind) {
    case MD_JV_UNDEFINED: return true;
    case MD_JV_STRING: *n = md_u8_count(v->str->bytes, v->str->size); return true;
    case MD_JV_LIST:
    case MD_JV_TUPLE:
    case MD_JV_VIEW: *n = v->seq->size; return true;
    case MD_JV_RANGE: *n = v->range->size; return true;
    case MD_JV_DICT: *n = v->dict->size; return true;
    case MD_JV_LOOP: *n = v->loop->size; return true;
    default: return false;
    }
}

static md_status characters(md_jn_run *run, const md_jv *s, md_jv *items) {
    for (size_t pos = 0, i = 0; pos < s->str->size; i++) {
        size_t begin = pos;
        md_u8_next(s->str->bytes, s->str->size, &pos);
        MD_TRY(md_jv_substring(run, s, begin, pos - begin, &items[i]));
    }
    return MD_OK;
}

md_status md_jv_items(md_jn_run *run, const md_jv *v, const char *what, const md_jv **items, size_t *n) {
    *items = NULL;
    *n = 0;
    if (v->kind == MD_JV_UNDEFINED) return MD_OK;
    if (md_jv_is_seq(v)) {
        *items = v->seq->items + v->seq->pos;
        *n = v->seq->size - v->seq->pos;
        if (v->kind == MD_JV_ITER) v->seq->pos = v->seq->size;
        return MD_OK;
    }
    if (v->kind != MD_JV_STRING && v->kind != MD_JV_RANGE && v->kind != MD_JV_DICT)
        return md_jn_fail(run, MD_E_FORMAT, "%s: '%s' object is not iterable", what, md_jv_type_name(v));
    size_t count;
    md_jv_length(v, &count);
    MD_TRY(md_jn_charge(run, count / 4));
    md_jv *list = MD_JN_ALLOC(run, md_jv, count);
    if (!list) return md_jn_oom(run);
    *items = list;
    *n = count;
    if (v->kind == MD_JV_STRING) return characters(run, v, list);
    for (size_t i = 0; i < count; i++) {
        if (v->kind == MD_JV_DICT)
            list[i] = v->dict->items[i].key;
        else
            list[i] = md_jv_int(v->range->start + (int64_t)i * v->range->step, v->origin);
    }
    return MD_OK;
}
