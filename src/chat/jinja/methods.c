// Methods of strings, dicts, lists, tuples and loops.
#include <string.h>

#include "chat/jinja/strops.h"
#include "chat/jinja/u8.h"

#define METHOD(name) static md_status name(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out)
#define ARG(i) (&args->pos[i])

static bool given(const md_jv *arg) { return arg->kind != MD_JV_MISSING && arg->kind != MD_JV_NONE; }

static md_status need_strings(md_jn_run *run, const md_jargs *args, size_t n) {
    md_jv ignored;
    for (size_t i = 0; i < n; i++) MD_TRY(md_jn_arg_string(run, ARG(i), "the argument", &ignored));
    return MD_OK;
}

// ---- str: strip, split, join, replace --------------------------------------------------------------------

static md_status strip(md_jn_run *run, const md_jv *self, const md_jargs *args, bool left, bool right, md_jv *out) {
    if (!given(ARG(0))) return md_jstr_strip(run, self, NULL, left, right, out);
    MD_TRY(need_strings(run, args, 1));
    return md_jstr_strip(run, self, ARG(0), left, right, out);
}
METHOD(s_strip) { return strip(run, self, args, true, true, out); }
METHOD(s_lstrip) { return strip(run, self, args, true, false, out); }
METHOD(s_rstrip) { return strip(run, self, args, false, true, out); }

static md_status split_space(md_jn_run *run, const md_jv *self, int64_t max, md_jl *parts) {
    const char *bytes = self->str->bytes;
    size_t n = self->str->size, pos = 0;
    MD_TRY(md_jn_charge_bytes(run, n));
    for (;; max--) {
        size_t next = pos;
        while (next < n && md_u8_is_space(md_u8_next(bytes, n, &next))) pos = next;
        if (pos == n) return MD_OK;
        size_t begin = pos;
        if (max == 0) return md_jl_push_part(parts, self, begin, n - begin);
        for (next = pos; next < n; pos = next)
            if (md_u8_is_space(md_u8_next(bytes, n, &next))) break;
        MD_TRY(md_jl_push_part(parts, self, begin, pos - begin));
    }
}

METHOD(s_split) {
    int64_t max = -1;
    md_jl parts = {.run = run};
    MD_TRY(md_jn_arg_int(run, ARG(1), "maxsplit", &max));
    if (!given(ARG(0))) {
        MD_TRY(split_space(run, self, max, &parts));
        return md_jv_seq(run, MD_JV_LIST, parts.items, parts.size, self->origin, out);
    }
    MD_TRY(need_strings(run, args, 1));
    const md_jstr *sep = ARG(0)->str;
    if (sep->size == 0) return md_jn_fail(run, MD_E_FORMAT, "empty separator");
    MD_TRY(md_jn_charge_bytes(run, self->str->size));
    size_t begin = 0;
    for (; max != 0; max--) {
        size_t found = md_jstr_find(self->str, sep, begin);
        if (found == SIZE_MAX) break;
        MD_TRY(md_jl_push_part(&parts, self, begin, found - begin));
        begin = found + sep->size;
    }
    MD_TRY(md_jl_push_part(&parts, self, begin, self->str->size - begin));
    return md_jv_seq(run, MD_JV_LIST, parts.items, parts.size, self->origin, out);
}

METHOD(s_rsplit) {
    int64_t max = -1;
    md_jl parts = {.run = run};
    MD_TRY(md_jn_arg_int(run, ARG(1), "maxsplit", &max));
    if (max < 0) return s_split(run, self, args, out);
    if (!given(ARG(0))) return md_jn_fail(run, MD_E_UNSUPPORTED, "rsplit by white space with a limit is not supported");
    MD_TRY(need_strings(run, args, 1));
    const md_jstr *sep = ARG(0)->str;
    if (sep->size == 0) return md_jn_fail(run, MD_E_FORMAT, "empty separator");
    size_t end = self->str->size;
    for (; max > 0; max--) {
        size_t found;
        MD_TRY(md_jstr_rfind(run, self->str, sep, end, &found));
        if (found == SIZE_MAX) break;
        MD_TRY(md_jl_push_part(&parts, self, found + sep->size, end - found - sep->size));
        end = found;
    }
    MD_TRY(md_jl_push_part(&parts, self, 0, end));
    for (size_t i = 0; i < parts.size / 2; i++) {
        md_jv swap = parts.items[i];
        parts.items[i] = parts.items[parts.size - 1 - i];
        parts.items[parts.size - 1 - i] = swap;
    }
    return md_jv_seq(run, MD_JV_LIST, parts.items, parts.size, self->origin, out);
}

METHOD(s_splitlines) {
    bool keep = false;
    md_jl lines;
    MD_TRY(md_jn_arg_bool(run, ARG(0), &keep));
    MD_TRY(md_jstr_lines(run, self, keep, &lines));
    return md_jv_seq(run, MD_JV_LIST, lines.items, lines.size, self->origin, out);
}

static md_status partition(md_jn_run *run, const md_jv *self, const md_jargs *args, bool last, md_jv *out) {
    MD_TRY(need_strings(run, args, 1));
    const md_jstr *sep = ARG(0)->str;
    if (sep->size == 0) return md_jn_fail(run, MD_E_FORMAT, "empty separator");
    size_t n = self->str->size, found;
    if (last)
        MD_TRY(md_jstr_rfind(run, self->str, sep, n, &found));
    else
        found = md_jstr_find(self->str, sep, 0);
    MD_TRY(md_jn_charge_bytes(run, n));
    md_jl parts = {.run = run};
    bool none = found == SIZE_MAX;
    size_t head = none ? (last ? 0 : n) : found, tail = none ? head : found + sep->size;
    MD_TRY(md_jl_push_part(&parts, self, 0, head));
    MD_TRY(md_jl_push_part(&parts, self, head, tail - head));
    MD_TRY(md_jl_push_part(&parts, self, tail, n - tail));
    return md_jv_seq(run, MD_JV_TUPLE, parts.items, parts.size, self->origin, out);
}
METHOD(s_partition) { return partition(run, self, args, false, out); }
METHOD(s_rpartition) { return partition(run, self, args, true, out); }

METHOD(s_join) {
    const md_jv *items;
    size_t n;
    md_jb b;
    md_jb_init(&b, run);
    MD_TRY(md_jv_items(run, ARG(0), "join()", &items, &n));
    for (size_t i = 0; i < n; i++) {
        if (items[i].kind != MD_JV_STRING)
            return md_jn_fail(run, MD_E_FORMAT, "sequence item %zu: expected str instance, %s found", i,
                              md_jv_type_name(&items[i]));
        if (i) MD_TRY(md_jb_put_string(&b, self));
        MD_TRY(md_jb_put_string(&b, &items[i]));
        MD_TRY(md_jn_charge(run, 1));
    }
    return md_jb_finish(&b, out);
}

METHOD(s_replace) {
    int64_t count = -1;
    MD_TRY(need_strings(run, args, 2));
    MD_TRY(md_jn_arg_int(run, ARG(2), "count", &count));
    return md_jstr_replace(run, self, ARG(0), ARG(1), count, out);
}

// ---- str: searching --------------------------------------------------------------------------------------

static bool has_affix(const md_jstr *s, const md_jstr *affix, bool end) {
    if (affix->size > s->size) return false;
    return affix->size == 0 || memcmp(s->bytes + (end ? s->size - affix->size : 0), affix->bytes, affix->size) == 0;
}

static md_status affix(md_jn_run *run, const md_jv *self, const md_jv *arg, bool end, md_jv *out) {
    const md_jv *options = arg;
    size_t n = 1;
    bool holds = false;
    if (arg->kind == MD_JV_TUPLE) MD_TRY(md_jv_items(run, arg, "prefixes", &options, &n));
    for (size_t i = 0; i < n && !holds; i++) {
        if (options[i].kind != MD_JV_STRING)
            return md_jn_fail(run, MD_E_FORMAT, "%s first arg must be str or a tuple of str, not %s",
                              end ? "endswith" : "startswith", md_jv_type_name(&options[i]));
        holds = has_affix(self->str, options[i].str, end);
        MD_TRY(md_jn_charge(run, 1 + options[i].str->size / 64));
    }
    *out = md_jv_bool(holds);
    return MD_OK;
}
METHOD(s_startswith) { return affix(run, self, ARG(0), false, out); }
METHOD(s_endswith) { return affix(run, self, ARG(0), true, out); }

METHOD(s_removeprefix) {
    MD_TRY(need_strings(run, args, 1));
    size_t n = has_affix(self->str, ARG(0)->str, false) ? ARG(0)->str->size : 0;
    return md_jv_substring(run, self, n, self->str->size - n, out);
}
METHOD(s_removesuffix) {
    MD_TRY(need_strings(run, args, 1));
    size_t n = has_affix(self->str, ARG(0)->str, true) ? ARG(0)->str->size : 0;
    return md_jv_substring(run, self, 0, self->str->size - n, out);
}

static md_status find(md_jn_run *run, const md_jv *self, const md_jargs *args, bool last, bool must, md_jv *out) {
    MD_TRY(need_strings(run, args, 1));
    MD_TRY(md_jn_charge_bytes(run, self->str->size));
    size_t found;
    if (last)
        MD_TRY(md_jstr_rfind(run, self->str, ARG(0)->str, self->str->size, &found));
    else
        found = md_jstr_find(self->str, ARG(0)->str, 0);
    if (found == SIZE_MAX && must) return md_jn_fail(run, MD_E_FORMAT, "substring not found");
    int64_t index = found == SIZE_MAX ? -1 : (int64_t)md_u8_count(self->str->bytes, found);
    *out = md_jv_int(index, self->origin | ARG(0)->origin);
    return MD_OK;
}
METHOD(s_find) { return find(run, self, args, false, false, out); }
METHOD(s_rfind) { return find(run, self, args, true, false, out); }
METHOD(s_index) { return find(run, self, args, false, true, out); }
METHOD(s_rindex) { return find(run, self, args, true, true, out); }

METHOD(s_count) {
    MD_TRY(need_strings(run, args, 1));
    const md_jstr *needle = ARG(0)->str;
    MD_TRY(md_jn_charge_bytes(run, self->str->size));
    int64_t count = needle->size ? 0 : (int64_t)md_u8_count(self->str->bytes, self->str->size) + 1;
    size_t pos = 0;
    while (needle->size && (pos = md_jstr_find(self->str, needle, pos)) != SIZE_MAX) {
        pos += needle->size;
        count++;
        MD_TRY(md_jn_charge(run, 1));
    }
    *out = md_jv_int(count, self->origin | ARG(0)->origin);
    return MD_OK;
}

// ---- str: letters ----------------------------------------------------------------------------------------

#define CASE_METHOD(name, mode)                                                                                        \
    METHOD(name) {                                                                                                     \
        (void)args;                                                                                                    \
        return md_jstr_case(run, self, mode, out);                                                                     \
    }
CASE_METHOD(s_upper, MD_JCASE_UPPER)
CASE_METHOD(s_lower, MD_JCASE_LOWER)
CASE_METHOD(s_swapcase, MD_JCASE_SWAP)
CASE_METHOD(s_capitalize, MD_JCASE_CAPITALIZE)
CASE_METHOD(s_title, MD_JCASE_TITLE)

static bool is_alnum(uint32_t cp) { return md_u8_is_alpha(cp) || md_u8_is_digit(cp); }
static bool is_ascii(uint32_t cp) { return cp < 0x80; }

static md_status all_are(md_jn_run *run, const md_jv *self, bool (*is)(uint32_t), bool empty, md_jv *out) {
    bool holds = self->str->size ? true : empty;
    for (size_t pos = 0; pos < self->str->size && holds;)
        holds = is(md_u8_next(self->str->bytes, self->str->size, &pos));
    *out = md_jv_bool(holds);
    return md_jn_charge(run, self->str->size / 16);
}
// At least one cased character, and none of the other case.
static md_status all_cased(md_jn_run *run, const md_jv *self, bool (*is)(uint32_t), md_jv *out) {
    bool some = false, all = true;
    for (size_t pos = 0; pos < self->str->size && all;) {
        uint32_t cp = md_u8_next(self->str->bytes, self->str->size, &pos);
        if (!md_u8_is_cased(cp)) continue;
        some = true;
        all = is(cp);
    }
    *out = md_jv_bool(some && all);
    return md_jn_charge(run, self->str->size / 16);
}

#define IS_METHOD(name, call)                                                                                          \
    METHOD(name) {                                                                                                     \
        (void)args;                                                                                                    \
        return call;                                                                                                   \
    }
IS_METHOD(s_isalpha, all_are(run, self, md_u8_is_alpha, false, out))
IS_METHOD(s_isdigit, all_are(run, self, md_u8_is_digit, false, out))
IS_METHOD(s_isalnum, all_are(run, self, is_alnum, false, out))
IS_METHOD(s_isspace, all_are(run, self, md_u8_is_space, false, out))
IS_METHOD(s_isascii, all_are(run, self, is_ascii, true, out))
IS_METHOD(s_islower, all_cased(run, self, md_u8_is_lower, out))
IS_METHOD(s_isupper, all_cased(run, self, md_u8_is_upper, out))

// ---- str: padding and formatting -------------------------------------------------------------------------

static md_status pad(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jpad side, md_jv *out) {
    int64_t width = 0;
    uint32_t fill = ' ';
    MD_TRY(md_jn_arg_int(run, ARG(0), "width", &width));
    if (given(ARG(1))) {
        size_t pos = 0;
        if (ARG(1)->kind != MD_JV_STRING || md_u8_count(ARG(1)->str->bytes, ARG(1)->str->size) != 1)
            return md_jn_fail(run, MD_E_FORMAT, "the fill character must be exactly one character long");
        fill = md_u8_next(ARG(1)->str->bytes, ARG(1)->str->size, &pos);
    }
    return md_jstr_pad(run, self, width, fill, side, out);
}
METHOD(s_ljust) { return pad(run, self, args, MD_JPAD_RIGHT, out); }
METHOD(s_rjust) { return pad(run, self, args, MD_JPAD_LEFT, out); }
METHOD(s_center) { return pad(run, self, args, MD_JPAD_BOTH, out); }

METHOD(s_zfill) {
    int64_t width = 0;
    md_jv digits;
    md_jb b;
    MD_TRY(md_jn_arg_int(run, ARG(0), "width", &width));
    size_t sign = self->str->size && (self->str->bytes[0] == '-' || self->str->bytes[0] == '+');
    MD_TRY(md_jv_substring(run, self, sign, self->str->size - sign, &digits));
    MD_TRY(md_jstr_pad(run, &digits, width - (int64_t)sign, '0', MD_JPAD_LEFT, &digits));
    md_jb_init(&b, run);
    MD_TRY(md_jb_put_part(&b, self, 0, sign));
    MD_TRY(md_jb_put_string(&b, &digits));
    return md_jb_finish(&b, out);
}

// ---- dict, list, tuple, loop -----------------------------------------------------------------------------

METHOD(d_get) {
    const md_jv *value;
    MD_TRY(md_jdict_get(run, self->dict, ARG(0), &value));
    *out = value ? *value : ARG(1)->kind != MD_JV_MISSING ? *ARG(1) : md_jv_none();
    return MD_OK;
}

static md_status view(md_jn_run *run, const md_jv *self, const char *name, md_jv *out) {
    const md_jdict *dict = self->dict;
    md_jv *items = MD_JN_ALLOC(run, md_jv, dict->size);
    md_jv *pairs = name[5] == 'i' ? MD_JN_ALLOC(run, md_jv, dict->size * 2) : items; // "dict_items"
    if (!items || !pairs) return md_jn_oom(run);
    MD_TRY(md_jn_charge(run, dict->size / 4));
    for (size_t i = 0; i < dict->size; i++) {
        if (name[5] != 'i') {
            items[i] = name[5] == 'k' ? dict->items[i].key : dict->items[i].value;
            continue;
        }
        pairs[2 * i] = dict->items[i].key;
        pairs[2 * i + 1] = dict->items[i].value;
        MD_TRY(md_jv_seq(run, MD_JV_TUPLE, &pairs[2 * i], 2, self->origin, &items[i]));
    }
    MD_TRY(md_jv_seq(run, MD_JV_VIEW, items, dict->size, self->origin, out));
    out->seq->view = name;
    return MD_OK;
}
IS_METHOD(d_items, view(run, self, "dict_items", out))
IS_METHOD(d_keys, view(run, self, "dict_keys", out))
IS_METHOD(d_values, view(run, self, "dict_values", out))

METHOD(any_copy) { // values are immutable, so a copy is the same
    (void)run;
    (void)args;
    *out = *self;
    return MD_OK;
}

METHOD(l_index) {
    bool same = false;
    for (size_t i = 0; i < self->seq->size; i++) {
        MD_TRY(md_jv_equal(run, &self->seq->items[i], ARG(0), &same));
        if (!same) continue;
        *out = md_jv_int((int64_t)i, self->origin);
        return MD_OK;
    }
    return md_jn_fail(run, MD_E_FORMAT, "the value is not in the list");
}

METHOD(l_count) {
    int64_t count = 0;
    for (size_t i = 0; i < self->seq->size; i++) {
        bool same;
        MD_TRY(md_jv_equal(run, &self->seq->items[i], ARG(0), &same));
        count += same;
    }
    *out = md_jv_int(count, self->origin);
    return MD_OK;
}

METHOD(loop_cycle) {
    if (args->n == 0) return md_jn_fail(run, MD_E_FORMAT, "no items for cycling given");
    *out = args->pos[self->loop->index0 % args->n];
    return MD_OK;
}

METHOD(loop_changed) {
    md_jv now;
    bool same = false;
    MD_TRY(md_jv_seq(run, MD_JV_TUPLE, args->pos, args->n, MD_JV_TRUSTED, &now));
    if (self->loop->changed.kind != MD_JV_MISSING) MD_TRY(md_jv_equal(run, &self->loop->changed, &now, &same));
    self->loop->changed = now;
    *out = md_jv_bool(!same);
    return MD_OK;
}

METHOD(s_format) { return md_jn_format_braces(run, self, args, out); }

const md_jn_func *md_jn_find_method(md_jv_kind kind, const char *name, size_t n) {
    static const md_jn_func str[] = {
        {"strip", s_strip, {"chars"}, 0, false},
        {"lstrip", s_lstrip, {"chars"}, 0, false},
        {"rstrip", s_rstrip, {"chars"}, 0, false},
        {"split", s_split, {"sep", "maxsplit"}, 0, false},
        {"rsplit", s_rsplit, {"sep", "maxsplit"}, 0, false},
        {"splitlines", s_splitlines, {"keepends"}, 0, false},
        {"partition", s_partition, {"sep"}, 1, false},
        {"rpartition", s_rpartition, {"sep"}, 1, false},
        {"join", s_join, {"iterable"}, 1, false},
        {"replace", s_replace, {"old", "new", "count"}, 2, false},
        {"startswith", s_startswith, {"prefix"}, 1, false},
        {"endswith", s_endswith, {"suffix"}, 1, false},
        {"removeprefix", s_removeprefix, {"prefix"}, 1, false},
        {"removesuffix", s_removesuffix, {"suffix"}, 1, false},
        {"find", s_find, {"sub"}, 1, false},
        {"rfind", s_rfind, {"sub"}, 1, false},
        {"index", s_index, {"sub"}, 1, false},
        {"rindex", s_rindex, {"sub"}, 1, false},
        {"count", s_count, {"sub"}, 1, false},
        {"upper", s_upper, {NULL}, 0, false},
        {"lower", s_lower, {NULL}, 0, false},
        {"casefold", s_lower, {NULL}, 0, false},
        {"swapcase", s_swapcase, {NULL}, 0, false},
        {"capitalize", s_capitalize, {NULL}, 0, false},
        {"title", s_title, {NULL}, 0, false},
        {"isalpha", s_isalpha, {NULL}, 0, false},
        {"isdigit", s_isdigit, {NULL}, 0, false},
        {"isdecimal", s_isdigit, {NULL}, 0, false},
        {"isnumeric", s_isdigit, {NULL}, 0, false},
        {"isalnum", s_isalnum, {NULL}, 0, false},
        {"isspace", s_isspace, {NULL}, 0, false},
        {"isascii", s_isascii, {NULL}, 0, false},
        {"islower", s_islower, {NULL}, 0, false},
        {"isupper", s_isupper, {NULL}, 0, false},
        {"ljust", s_ljust, {"width", "fillchar"}, 1, false},
        {"rjust", s_rjust, {"width", "fillchar"}, 1, false},
        {"center", s_center, {"width", "fillchar"}, 1, false},
        {"zfill", s_zfill, {"width"}, 1, false},
        {"format", s_format, {NULL}, 0, true},
    };
    static const md_jn_func dict[] = {
        {"get", d_get, {"key", "default"}, 1, false}, {"items", d_items, {NULL}, 0, false},
        {"keys", d_keys, {NULL}, 0, false},           {"values", d_values, {NULL}, 0, false},
        {"copy", any_copy, {NULL}, 0, false},
    };
    static const md_jn_func list[] = {
        {"index", l_index, {"value"}, 1, false},
        {"count", l_count, {"value"}, 1, false},
        {"copy", any_copy, {NULL}, 0, false},
    };
    static const md_jn_func loop[] = {{"cycle", loop_cycle, {NULL}, 0, true},
                                      {"changed", loop_changed, {NULL}, 0, true}};
    switch (kind) {
    case MD_JV_STRING: return md_jn_find_in(str, sizeof str / sizeof str[0], name, n);
    case MD_JV_DICT: return md_jn_find_in(dict, sizeof dict / sizeof dict[0], name, n);
    case MD_JV_LIST: return md_jn_find_in(list, 3, name, n);
    case MD_JV_TUPLE: return md_jn_find_in(list, 2, name, n);
    case MD_JV_LOOP: return md_jn_find_in(loop, 2, name, n);
    default: return NULL;
    }
}
