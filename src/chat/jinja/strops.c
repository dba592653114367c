#include "chat/jinja/strops.h"

#include <string.h>

#include "chat/jinja/u8.h"

static bool in_set(const md_jv *chars, uint32_t cp) {
    if (!chars) return md_u8_is_space(cp);
    for (size_t pos = 0; pos < chars->str->size;)
        if (md_u8_next(chars->str->bytes, chars->str->size, &pos) == cp) return true;
    return false;
}

md_status md_jstr_strip(md_jn_run *run, const md_jv *s, const md_jv *chars, bool left, bool right, md_jv *out) {
    const char *bytes = s->str->bytes;
    size_t begin = 0, end = s->str->size;
    uint64_t cost = 1 + (chars ? chars->str->size / 16 : 0); // of trying one character
    while (left && begin < end) {
        size_t next = begin;
        if (!in_set(chars, md_u8_next(bytes, end, &next))) break;
        begin = next;
        MD_TRY(md_jn_charge(run, cost));
    }
    while (right && end > begin) {
        size_t prev = md_utf8_last(bytes, end), next = prev;
        if (!in_set(chars, md_u8_next(bytes, end, &next))) break;
        end = prev;
        MD_TRY(md_jn_charge(run, cost));
    }
    return md_jv_substring(run, s, begin, end - begin, out);
}

// An empty `from` matches before every character and at the end.
static md_status insert_between(md_jb *b, const md_jv *s, const md_jv *to, int64_t count) {
    size_t pos = 0;
    for (;; count--) {
        if (count == 0) return md_jb_put_part(b, s, pos, s->str->size - pos);
        MD_TRY(md_jn_charge(b->run, 1));
        MD_TRY(md_jb_put_string(b, to));
        if (pos == s->str->size) return MD_OK;
        size_t begin = pos;
        md_u8_next(s->str->bytes, s->str->size, &pos);
        MD_TRY(md_jb_put_part(b, s, begin, pos - begin));
    }
}

md_status md_jstr_replace(md_jn_run *run, const md_jv *s, const md_jv *from, const md_jv *to, int64_t count,
                          md_jv *out) {
    md_jb b;
    md_jb_init(&b, run);
    MD_TRY(md_jn_charge_bytes(run, s->str->size));
    if (from->str->size == 0) {
        MD_TRY(insert_between(&b, s, to, count));
        return md_jb_finish(&b, out);
    }
    size_t pos = 0;
    for (; count != 0; count--) {
        size_t found = md_jstr_find(s->str, from->str, pos);
        if (found == SIZE_MAX) break;
        MD_TRY(md_jn_charge(run, 1));
        MD_TRY(md_jb_put_part(&b, s, pos, found - pos));
        MD_TRY(md_jb_put_string(&b, to));
        pos = found + from->str->size;
    }
    if (pos == 0) {
        *out = *s;
        return MD_OK;
    }
    MD_TRY(md_jb_put_part(&b, s, pos, s->str->size - pos));
    return md_jb_finish(&b, out);
}

static bool ends_line(uint32_t cp) {
    return (cp >= '\n' && cp <= '\r') || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

md_status md_jstr_lines(md_jn_run *run, const md_jv *s, bool keep_ends, md_jl *out) {
    const char *bytes = s->str->bytes;
    size_t n = s->str->size, begin = 0;
    *out = (md_jl){.run = run};
    MD_TRY(md_jn_charge_bytes(run, n));
    for (size_t pos = 0; pos < n;) {
        size_t end = pos;
        uint32_t cp = md_u8_next(bytes, n, &pos);
        if (!ends_line(cp)) continue;
        if (cp == '\r' && pos < n && bytes[pos] == '\n') pos++;
        MD_TRY(md_jl_push_part(out, s, begin, (keep_ends ? pos : end) - begin));
        begin = pos;
    }
    return begin < n ? md_jl_push_part(out, s, begin, n - begin) : MD_OK;
}

static bool starts_title(uint32_t cp) {
    return md_u8_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

md_status md_jstr_case(md_jn_run *run, const md_jv *s, md_jcase mode, md_jv *out) {
    md_jb b;
    md_jb_init(&b, run);
    bool first = true;
    MD_TRY(md_jn_charge(run, s->str->size / 8));
    for (size_t pos = 0; pos < s->str->size;) {
        uint32_t cp = md_u8_next(s->str->bytes, s->str->size, &pos);
        bool upper = mode == MD_JCASE_UPPER || (mode == MD_JCASE_SWAP && md_u8_is_lower(cp)) ||
                     (mode == MD_JCASE_TITLE_FILTER && first);
        bool title = (mode == MD_JCASE_CAPITALIZE || mode == MD_JCASE_TITLE) && first;
        if (mode == MD_JCASE_TITLE)
            first = !md_u8_is_cased(cp);
        else
            first = mode == MD_JCASE_TITLE_FILTER && starts_title(cp);
        // The one character of common text whose capital form is two letters.
        if (cp == 0xdf && (upper || title))
            MD_TRY(md_jb_puts(&b, upper ? "SS" : "Ss", s->origin));
        else
            MD_TRY(md_jb_put_char(&b, upper ? md_u8_upper(cp) : title ? md_u8_title(cp) : md_u8_lower(cp), s->origin));
    }
    return md_jb_finish(&b, out);
}

md_status md_jstr_pad(md_jn_run *run, const md_jv *s, int64_t width, uint32_t fill, md_jpad side, md_jv *out) {
    int64_t size = (int64_t)md_u8_count(s->str->bytes, s->str->size), pad = width - size;
    if (pad <= 0) {
        *out = *s;
        return MD_OK;
    }
    if (pad > MD_JN_MAX_PADDING)
        return md_jn_fail(run, MD_E_CONTEXT, "more than %d characters of padding", MD_JN_MAX_PADDING);
    int64_t left = side == MD_JPAD_LEFT ? pad : side == MD_JPAD_RIGHT ? 0 : pad / 2 + (pad & width & 1);
    md_jb b;
    md_jb_init(&b, run);
    for (int64_t i = 0; i < left; i++) MD_TRY(md_jb_put_char(&b, fill, MD_JV_TRUSTED));
    MD_TRY(md_jb_put_string(&b, s));
    for (int64_t i = left; i < pad; i++) MD_TRY(md_jb_put_char(&b, fill, MD_JV_TRUSTED));
    MD_TRY(md_jn_charge(run, (uint64_t)pad / 8));
    return md_jb_finish(&b, out);
}
