// Values as JSON text, as Python's json.dumps writes them (transformers' tojson).
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja/run.h"
#include "chat/jinja/u8.h"

typedef struct writer {
    md_jb *b;
    const md_jv_json_options *options;
} writer;

static md_status put_json(writer *w, const md_jv *v, int depth);

static md_status put_json_char(md_jb *b, uint32_t cp, uint8_t origin) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    char text[16];
    const char *found = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (found)
        snprintf(text, sizeof text, "\\%c", to[found - from]);
    else if (cp < 0x10000)
        snprintf(text, sizeof text, "\\u%04" PRIx32, cp);
    else
        snprintf(text, sizeof text, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + ((cp - 0x10000) >> 10),
                 0xdc00 + ((cp - 0x10000) & 0x3ff));
    return md_jb_puts(b, text, origin);
}

static md_status put_json_string(writer *w, const md_jv *v) {
    const char *bytes = v->str->bytes;
    size_t n = v->str->size, plain = 0;
    MD_TRY(md_jb_puts(w->b, "\"", v->origin));
    for (size_t pos = 0; pos < n;) {
        size_t begin = pos;
        uint32_t cp = md_u8_next(bytes, n, &pos);
        if (cp >= 0x20 && cp != '"' && cp != '\\' && (cp < 0x7f || !w->options->ensure_ascii)) continue;
        MD_TRY(md_jb_put(w->b, bytes + plain, begin - plain, v->origin));
        MD_TRY(put_json_char(w->b, cp, v->origin));
        plain = pos;
    }
    MD_TRY(md_jb_put(w->b, bytes + plain, n - plain, v->origin));
    return md_jb_puts(w->b, "\"", v->origin);
}

static md_status put_json_number(writer *w, const md_jv *v) {
    if (v->kind == MD_JV_FLOAT && !isfinite(v->f))
        return md_jb_puts(w->b, isnan(v->f) ? "NaN" : v->f < 0 ? "-Infinity" : "Infinity", v->origin);
    return md_jv_str(w->b, v);
}

static md_status new_line(writer *w, int depth, uint8_t origin) {
    if (!w->options->pretty) return MD_OK;
    MD_TRY(md_jb_puts(w->b, "\n", origin));
    for (int i = 0; i < depth; i++) MD_TRY(md_jb_put(w->b, w->options->indent, w->options->indent_size, origin));
    return MD_OK;
}

static md_status separator(writer *w, bool first, int depth, uint8_t origin) {
    if (!first) MD_TRY(md_jb_put(w->b, w->options->item_sep, w->options->item_sep_size, origin));
    return new_line(w, depth, origin);
}

static md_status put_array(writer *w, const md_jv *v, int depth) {
    if (v->seq->size == 0) return md_jb_puts(w->b, "[]", v->origin);
    MD_TRY(md_jb_puts(w->b, "[", v->origin));
    for (size_t i = 0; i < v->seq->size; i++) {
        MD_TRY(separator(w, i == 0, depth + 1, v->origin));
        MD_TRY(put_json(w, &v->seq->items[i], depth + 1));
    }
    MD_TRY(new_line(w, depth, v->origin));
    return md_jb_puts(w->b, "]", v->origin);
}

// A key: a string, or a scalar in quotes.
static md_status put_key(writer *w, const md_jv *key, int depth) {
    if (key->kind == MD_JV_STRING) return put_json_string(w, key);
    if (key->kind == MD_JV_UNDEFINED || key->kind > MD_JV_FLOAT)
        return md_jn_fail(w->b->run, MD_E_FORMAT, "keys must be str, int, float, bool or None, not %s",
                          md_jv_type_name(key));
    MD_TRY(md_jb_puts(w->b, "\"", key->origin));
    MD_TRY(put_json(w, key, depth));
    return md_jb_puts(w->b, "\"", key->origin);
}

static md_status order_keys(md_jn_run *run, const md_jdict *dict, md_jpair **out) {
    md_jpair *sorted = MD_JN_ALLOC(run, md_jpair, dict->size);
    if (!sorted) return md_jn_oom(run);
    for (size_t i = 0; i < dict->size; i++) { // insertion sort, charged: these are a schema's few keys
        size_t at = i;
        for (int order; at > 0; at--) {
            MD_TRY(md_jv_order(run, &dict->items[i].key, &sorted[at - 1].key, "<", &order));
            if (order >= 0) break;
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = dict->items[i];
    }
    *out = sorted;
    return MD_OK;
}

static md_status put_object(writer *w, const md_jv *v, int depth) {
    md_jpair *items = v->dict->items;
    if (v->dict->size == 0) return md_jb_puts(w->b, "{}", v->origin);
    if (w->options->sort_keys) MD_TRY(order_keys(w->b->run, v->dict, &items));
    MD_TRY(md_jb_puts(w->b, "{", v->origin));
    for (size_t i = 0; i < v->dict->size; i++) {
        MD_TRY(separator(w, i == 0, depth + 1, v->origin));
        MD_TRY(put_key(w, &items[i].key, depth));
        MD_TRY(md_jb_put(w->b, w->options->key_sep, w->options->key_sep_size, v->origin));
        MD_TRY(put_json(w, &items[i].value, depth + 1));
    }
    MD_TRY(new_line(w, depth, v->origin));
    return md_jb_puts(w->b, "}", v->origin);
}

static md_status put_json(writer *w, const md_jv *v, int depth) {
    md_jn_run *run = w->b->run;
    MD_TRY(md_jn_charge(run, 1));
    if (depth > MD_JN_MAX_NESTING)
        return md_jn_fail(run, MD_E_CONTEXT, "values nested deeper than %d levels", MD_JN_MAX_NESTING);
    switch (v->kind) {
    case MD_JV_NONE: return md_jb_puts(w->b, "null", v->origin);
    case MD_JV_BOOL: return md_jb_puts(w->b, v->b ? "true" : "false", v->origin);
    case MD_JV_INT:
    case MD_JV_FLOAT: return put_json_number(w, v);
    case MD_JV_STRING: return put_json_string(w, v);
    case MD_JV_LIST:
    case MD_JV_TUPLE: return put_array(w, v, depth);
    case MD_JV_DICT: return put_object(w, v, depth);
    default: return md_jn_fail(run, MD_E_FORMAT, "Object of type %s is not JSON serializable", md_jv_type_name(v));
    }
}

md_status md_jv_to_json(md_jb *b, const md_jv *v, const md_jv_json_options *options) {
    writer w = {b, options};
    return put_json(&w, v, 0);
}
