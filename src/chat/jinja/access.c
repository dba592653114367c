// Attributes, items and slices.
#include <stdlib.h>
#include <string.h>

#include "chat/jinja/run.h"
#include "chat/jinja/u8.h"

static bool is_one_of(const char *const *names, const char *name, size_t n) {
    for (; *names; names++)
        if (strlen(*names) == n && memcmp(*names, name, n) == 0) return true;
    return false;
}

// Methods that Python has but a template must not call (they change the object) or this engine does not have.
static md_status no_method(md_jn_run *run, const md_jv *object, const char *name, size_t n, bool *found, md_jv *out) {
    static const char *const list_unsafe[] = {"append", "clear",   "extend", "insert", "pop",
                                              "remove", "reverse", "sort",   NULL};
    static const char *const dict_unsafe[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const str_absent[] = {"encode",      "expandtabs", "format_map", "isidentifier",
                                             "isprintable", "maketrans",  "translate",  NULL};
    *found = (object->kind == MD_JV_LIST && is_one_of(list_unsafe, name, n)) ||
             (object->kind == MD_JV_DICT && is_one_of(dict_unsafe, name, n));
    if (*found)
        return md_jv_undefined(run, out, "access to attribute '%.*s' of '%s' object is unsafe.", (int)n, name,
                               md_jv_type_name(object));
    if (object->kind == MD_JV_STRING && is_one_of(str_absent, name, n))
        return md_jn_fail(run, MD_E_UNSUPPORTED, "the string method '%.*s' is not supported", (int)n, name);
    return MD_OK;
}

static md_status loop_attribute(md_jn_run *run, const md_jloop *loop, const char *name, size_t n, bool *found,
                                md_jv *out) {
    const struct {
        const char *name;
        size_t value;
    } counts[] = {{"index", loop->index0 + 1},
                  {"index0", loop->index0},
                  {"revindex", loop->size - loop->index0},
                  {"revindex0", loop->size - loop->index0 - 1},
                  {"length", loop->size},
                  {"depth", 1},
                  {"depth0", 0}};
    *found = true;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (strlen(counts[i].name) != n || memcmp(counts[i].name, name, n) != 0) continue;
        *out = md_jv_int((int64_t)counts[i].value, MD_JV_TRUSTED);
        return MD_OK;
    }
    if (n == 5 && memcmp(name, "first", 5) == 0) {
        *out = md_jv_bool(loop->index0 == 0);
    } else if (n == 4 && memcmp(name, "last", 4) == 0) {
        *out = md_jv_bool(loop->index0 + 1 == loop->size);
    } else if (n == 8 && memcmp(name, "previtem", 8) == 0) {
        if (loop->index0 == 0) return md_jv_undefined(run, out, "there is no previous item");
        *out = loop->items[loop->index0 - 1];
    } else if (n == 8 && memcmp(name, "nextitem", 8) == 0) {
        if (loop->index0 + 1 == loop->size) return md_jv_undefined(run, out, "there is no next item");
        *out = loop->items[loop->index0 + 1];
    } else {
        *found = false;
    }
    return MD_OK;
}

// An attribute in Python's sense: a method, or a property of a loop.
static md_status attribute(md_jn_run *run, const md_jv *object, const char *name, size_t n, bool *found, md_jv *out) {
    *found = false;
    if (object->kind == MD_JV_LOOP) {
        MD_TRY(loop_attribute(run, object->loop, name, n, found, out));
        if (*found) return MD_OK;
    }
    const md_jn_func *func = md_jn_find_method((md_jv_kind)object->kind, name, n);
    if (!func) return no_method(run, object, name, n, found, out);
    md_jmethod *method = MD_JN_ALLOC(run, md_jmethod, 1);
    if (!method) return md_jn_oom(run);
    *method = (md_jmethod){.self = *object, .func = func};
    *out = (md_jv){.kind = MD_JV_METHOD, .method = method};
    *found = true;
    return MD_OK;
}

static md_status no_attribute(md_jn_run *run, const md_jv *object, const char *name, size_t n, md_jv *out) {
    const char *type = md_jv_type_name(object);
    if (object->kind == MD_JV_NONE) return md_jv_undefined(run, out, "'None' has no attribute '%.*s'", (int)n, name);
    return md_jv_undefined(run, out, "'%s object' has no attribute '%.*s'", type, (int)n, name);
}

md_status md_jn_getattr(md_jn_run *run, const md_jv *object, const char *name, size_t n, md_jv *out) {
    bool found;
    if (object->kind == MD_JV_UNDEFINED) return md_jn_fail(run, MD_E_FORMAT, "%s", object->hint);
    MD_TRY(attribute(run, object, name, n, &found, out));
    if (found) return MD_OK;
    if (object->kind == MD_JV_DICT || object->kind == MD_JV_NAMESPACE) {
        const md_jv *value;
        MD_TRY(md_jdict_get_text(run, object->dict, name, n, &value));
        if (value) {
            *out = *value;
            return MD_OK;
        }
    }
    return no_attribute(run, object, name, n, out);
}

static md_status index_item(md_jn_run *run, const md_jv *object, int64_t index, md_jv *out) {
    size_t n;
    if (object->kind < MD_JV_STRING || object->kind > MD_JV_RANGE || object->kind == MD_JV_VIEW ||
        object->kind == MD_JV_ITER || !md_jv_length(object, &n))
        return md_jv_undefined(run, out, "%s object has no element %lld", md_jv_type_name(object), (long long)index);
    int64_t at = index < 0 ? index + (int64_t)n : index;
    if (at < 0 || (uint64_t)at >= n)
        return md_jv_undefined(run, out, "%s object has no element %lld", md_jv_type_name(object), (long long)index);
    if (object->kind == MD_JV_RANGE) {
        *out = md_jv_int(object->range->start + at * object->range->step, object->origin);
    } else if (object->kind != MD_JV_STRING) {
        *out = object->seq->items[at];
    } else {
        const md_jstr *s = object->str;
        MD_TRY(md_jn_charge_bytes(run, s->size));
        size_t begin = md_u8_offset(s->bytes, s->size, (size_t)at), end = begin;
        md_u8_next(s->bytes, s->size, &end);
        return md_jv_substring(run, object, begin, end - begin, out);
    }
    return MD_OK;
}

md_status md_jn_getitem(md_jn_run *run, const md_jv *object, const md_jv *key, md_jv *out) {
    int64_t index;
    if (object->kind == MD_JV_UNDEFINED) return md_jn_fail(run, MD_E_FORMAT, "%s", object->hint);
    if ((object->kind == MD_JV_DICT || object->kind == MD_JV_NAMESPACE) && key->kind <= MD_JV_STRING) {
        const md_jv *value;
        MD_TRY(md_jdict_get(run, object->dict, key, &value));
        if (value) {
            *out = *value;
            return MD_OK;
        }
    } else if (md_jv_as_int(key, &index)) {
        return index_item(run, object, index, out);
    }
    if (key->kind == MD_JV_STRING) {
        bool found;
        MD_TRY(attribute(run, object, key->str->bytes, key->str->size, &found, out));
        if (found) return MD_OK;
        return no_attribute(run, object, key->str->bytes, key->str->size > 100 ? 100 : key->str->size, out);
    }
    return md_jv_undefined(run, out, "%s object has no such element", md_jv_type_name(object));
}

static md_status item_or(md_jn_run *run, const md_jv *object, const md_jv *key, const md_jv *fallback, md_jv *out) {
    MD_TRY(md_jn_getitem(run, object, key, out));
    if (out->kind == MD_JV_UNDEFINED && fallback) *out = *fallback;
    return MD_OK;
}

md_status md_jn_getpath(md_jn_run *run, const md_jv *object, const md_jv *path, const md_jv *fallback, md_jv *out) {
    if (path->kind != MD_JV_STRING) return item_or(run, object, path, fallback, out);
    md_jv at = *object;
    const md_jstr *s = path->str;
    for (size_t begin = 0; begin <= s->size;) {
        const char *dot = begin < s->size ? memchr(s->bytes + begin, '.', s->size - begin) : NULL;
        size_t n = dot ? (size_t)(dot - s->bytes) - begin : s->size - begin;
        int64_t index = 0;
        bool number = n > 0 && n < 10;
        for (size_t i = 0; i < n && number; i++) {
            number = s->bytes[begin + i] >= '0' && s->bytes[begin + i] <= '9';
            index = index * 10 + (s->bytes[begin + i] - '0');
        }
        md_jv key = md_jv_int(index, path->origin), next;
        if (!number) MD_TRY(md_jv_substring(run, path, begin, n, &key));
        MD_TRY(item_or(run, &at, &key, fallback, &next));
        MD_TRY(md_jn_charge(run, 1));
        at = next;
        begin += n + 1;
    }
    *out = at;
    return MD_OK;
}

// ---- slices ----------------------------------------------------------------------------------------------

// Python's slice.indices(): which of `n` items, from *start in steps; *count of them.
static md_status slice_indices(md_jn_run *run, const md_jv bounds[3], size_t n, int64_t *start, int64_t *step,
                               size_t *count) {
    int64_t size = (int64_t)n, bound[2];
    *step = 1;
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != MD_JV_NONE && bounds[i].kind != MD_JV_BOOL && bounds[i].kind != MD_JV_INT)
            return md_jn_fail(run, MD_E_FORMAT, "slice indices must be integers or None");
    if (bounds[2].kind != MD_JV_NONE) md_jv_as_int(&bounds[2], step);
    if (*step == 0) return md_jn_fail(run, MD_E_FORMAT, "slice step cannot be zero");
    if (*step < -INT64_MAX) *step = -INT64_MAX;
    int64_t low = *step > 0 ? 0 : -1, high = *step > 0 ? size : size - 1;
    for (int i = 0; i < 2; i++) {
        if (bounds[i].kind == MD_JV_NONE) {
            bound[i] = (*step > 0) == (i == 0) ? low : high;
            continue;
        }
        md_jv_as_int(&bounds[i], &bound[i]);
        if (bound[i] < 0) bound[i] += size;
        if (bound[i] < low) bound[i] = low;
        if (bound[i] > high) bound[i] = high;
    }
    *start = bound[0];
    *count = 0;
    if (*step > 0 && bound[0] < bound[1]) *count = (size_t)((bound[1] - bound[0] - 1) / *step + 1);
    if (*step < 0 && bound[0] > bound[1]) *count = (size_t)((bound[0] - bound[1] - 1) / -*step + 1);
    return MD_OK;
}

static md_status slice_string(md_jn_run *run, const md_jv *object, int64_t start, int64_t step, size_t count,
                              md_jv *out) {
    const md_jstr *s = object->str;
    MD_TRY(md_jn_charge_bytes(run, s->size));
    if (step == 1) {
        size_t begin = md_u8_offset(s->bytes, s->size, (size_t)start);
        size_t size = md_u8_offset(s->bytes + begin, s->size - begin, count);
        return md_jv_substring(run, object, begin, size, out);
    }
    const md_jv *chars;
    size_t n;
    md_jb b;
    MD_TRY(md_jv_items(run, object, "slice", &chars, &n));
    md_jb_init(&b, run);
    for (size_t i = 0; i < count; i++) MD_TRY(md_jb_put_string(&b, &chars[start + (int64_t)i * step]));
    MD_TRY(md_jn_charge(run, count / 4));
    return md_jb_finish(&b, out);
}

md_status md_jn_slice(md_jn_run *run, const md_jv *object, const md_jv bounds[3], md_jv *out) {
    int64_t start = 0, step = 1;
    size_t n = 0, count = 0;
    if (object->kind == MD_JV_UNDEFINED) return md_jn_fail(run, MD_E_FORMAT, "%s", object->hint);
    bool list = object->kind == MD_JV_LIST || object->kind == MD_JV_TUPLE || object->kind == MD_JV_RANGE;
    if (!list && object->kind != MD_JV_STRING)
        return md_jv_undefined(run, out, "%s object has no such element", md_jv_type_name(object));
    md_jv_length(object, &n);
    MD_TRY(slice_indices(run, bounds, n, &start, &step, &count));
    if (!list) return slice_string(run, object, start, step, count, out);
    const md_jv *items;
    MD_TRY(md_jv_items(run, object, "slice", &items, &n));
    md_jv_kind kind = object->kind == MD_JV_TUPLE ? MD_JV_TUPLE : MD_JV_LIST;
    if (step == 1) return md_jv_seq(run, kind, items + start, count, object->origin, out); // shared: immutable
    MD_TRY(md_jn_charge(run, count / 4));
    md_jv *picked = MD_JN_ALLOC(run, md_jv, count);
    if (!picked) return md_jn_oom(run);
    for (size_t i = 0; i < count; i++) picked[i] = items[start + (int64_t)i * step];
    return md_jv_seq(run, kind, picked, count, object->origin, out);
}
