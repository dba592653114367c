// Strings with provenance: making, sharing and searching them.
#define _GNU_SOURCE // memmem, which is linear in the sum of the lengths
#include <stdlib.h>
#include <string.h>

#include "chat/jinja/run.h"
#include "chat/jinja/u8.h"

md_status md_jv_string_borrow(md_jn_run *run, const char *bytes, size_t n, uint8_t origin, md_jv *out) {
    md_jstr *str = MD_JN_ALLOC(run, md_jstr, 1);
    if (!str) return md_jn_oom(run);
    *str = (md_jstr){.bytes = bytes, .size = n};
    *out = (md_jv){.kind = MD_JV_STRING, .origin = origin, .str = str};
    return MD_OK;
}

md_status md_jv_string(md_jn_run *run, const char *bytes, size_t n, uint8_t origin, md_jv *out) {
    char *copy = md_jn_alloc(run, n, 1);
    if (!copy) return md_jn_oom(run);
    if (n) memcpy(copy, bytes, n);
    return md_jv_string_borrow(run, copy, n, origin, out);
}

md_status md_jv_substring(md_jn_run *run, const md_jv *s, size_t offset, size_t n, md_jv *out) {
    if (offset == 0 && n == s->str->size) {
        *out = *s;
        return MD_OK;
    }
    md_jstr *str = MD_JN_ALLOC(run, md_jstr, 1);
    if (!str) return md_jn_oom(run);
    *str = (md_jstr){.bytes = s->str->bytes + offset, .size = n, .map = s->str->map ? s->str->map + offset : NULL};
    *out = (md_jv){.kind = MD_JV_STRING, .origin = s->origin, .str = str};
    return MD_OK;
}

bool md_jv_string_is(const md_jv *v, const char *text) {
    return v->kind == MD_JV_STRING && v->str->size == strlen(text) && memcmp(v->str->bytes, text, v->str->size) == 0;
}

size_t md_jstr_find(const md_jstr *s, const md_jstr *needle, size_t from) {
    if (from > s->size) return SIZE_MAX;
    if (needle->size == 0) return from;
    const char *found = memmem(s->bytes + from, s->size - from, needle->bytes, needle->size);
    return found ? (size_t)(found - s->bytes) : SIZE_MAX;
}

md_status md_jstr_rfind(md_jn_run *run, const md_jstr *s, const md_jstr *needle, size_t end, size_t *out) {
    *out = SIZE_MAX;
    size_t m = needle->size;
    if (m > end) return MD_OK;
    for (size_t i = end - m + 1; i-- > 0;) {
        if (m && s->bytes[i + m - 1] != needle->bytes[m - 1]) continue;
        MD_TRY(md_jn_charge(run, 1 + m / 64)); // a comparison may go through the whole needle, at every position
        if (m && memcmp(s->bytes + i, needle->bytes, m) != 0) continue;
        *out = i;
        return MD_OK;
    }
    return md_jn_charge_bytes(run, end);
}

// ---- building --------------------------------------------------------------------------------------------

void md_jb_init(md_jb *b, md_jn_run *run) { *b = (md_jb){.run = run}; }

static md_status grow(md_jb *b, size_t n) {
    if (n <= b->cap - b->size) return MD_OK;
    md_jn_run *run = b->run;
    size_t cap;
    if (__builtin_add_overflow(b->size, n, &cap)) cap = SIZE_MAX;
    if (cap < b->cap * 2) cap = b->cap * 2;
    if (cap < 64) cap = 64;
    char *bytes = md_jn_alloc(run, cap, 1);
    if (!bytes) return md_jn_oom(run);
    if (b->size) memcpy(bytes, b->bytes, b->size);
    b->bytes = bytes;
    if (b->map) {
        uint8_t *map = md_jn_alloc(run, cap, 1);
        if (!map) return md_jn_oom(run);
        memcpy(map, b->map, b->size);
        b->map = map;
    }
    b->cap = cap;
    return MD_OK;
}

static md_status make_map(md_jb *b) {
    if (b->map) return MD_OK;
    b->map = md_jn_alloc(b->run, b->cap, 1);
    if (!b->map) return md_jn_oom(b->run);
    memset(b->map, b->origin, b->size);
    return MD_OK;
}

// Room for n bytes of one origin, already counted in size; the caller writes them.
static md_status extend(md_jb *b, size_t n, uint8_t origin, char **at) {
    MD_TRY(md_jn_charge_bytes(b->run, n));
    MD_TRY(grow(b, n));
    if (b->size == 0)
        b->origin = origin;
    else if (!b->map && b->origin != origin)
        MD_TRY(make_map(b));
    if (b->map) memset(b->map + b->size, origin, n);
    *at = b->bytes + b->size;
    b->size += n;
    return MD_OK;
}

md_status md_jb_put(md_jb *b, const char *bytes, size_t n, uint8_t origin) {
    char *at;
    if (n == 0) return MD_OK;
    MD_TRY(extend(b, n, origin, &at));
    memcpy(at, bytes, n);
    return MD_OK;
}

md_status md_jb_puts(md_jb *b, const char *text, uint8_t origin) { return md_jb_put(b, text, strlen(text), origin); }

md_status md_jb_put_char(md_jb *b, uint32_t cp, uint8_t origin) {
    char bytes[4];
    return md_jb_put(b, bytes, md_utf8_encode(cp, bytes), origin);
}

md_status md_jb_fill(md_jb *b, char c, size_t n, uint8_t origin) {
    char *at;
    if (n == 0) return MD_OK;
    MD_TRY(extend(b, n, origin, &at));
    memset(at, c, n);
    return MD_OK;
}

md_status md_jb_put_part(md_jb *b, const md_jv *s, size_t offset, size_t n) {
    const md_jstr *str = s->str;
    if (!str->map) return md_jb_put(b, str->bytes + offset, n, s->origin);
    if (n == 0) return MD_OK;
    char *at;
    MD_TRY(extend(b, n, str->map[offset], &at));
    memcpy(at, str->bytes + offset, n);
    MD_TRY(make_map(b));
    memcpy(b->map + b->size - n, str->map + offset, n);
    return MD_OK;
}

md_status md_jb_put_string(md_jb *b, const md_jv *s) { return md_jb_put_part(b, s, 0, s->str->size); }

md_status md_jb_finish(md_jb *b, md_jv *out) {
    MD_TRY(md_jv_string_borrow(b->run, b->bytes ? b->bytes : "", b->size, b->map ? MD_JV_DATA : b->origin, out));
    ((md_jstr *)(uintptr_t)out->str)->map = b->map;
    return MD_OK;
}
