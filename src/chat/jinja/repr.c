// Python's str() and repr() of values.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja/run.h"
#include "chat/jinja/u8.h"

// Digits and exponent of the shortest decimal that reads back as `value` (finite, not zero): d.ddd * 10^exponent.
static int shortest_digits(double value, char digits[20], int *exponent) {
    char text[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (precision == 16 || strtod(text, NULL) == value) break;
    }
    int n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p; // whatever the locale's decimal point is
    *exponent = (int)strtol(p + 1, NULL, 10);
    while (n > 1 && digits[n - 1] == '0') n--;
    return n;
}

size_t md_jv_format_float(double value, char out[40]) {
    if (isnan(value)) return (size_t)snprintf(out, 40, "nan");
    const char *sign = signbit(value) ? "-" : "";
    if (isinf(value)) return (size_t)snprintf(out, 40, "%sinf", sign);
    if (value == 0.0) return (size_t)snprintf(out, 40, "%s0.0", sign);
    char digits[20];
    int exponent, n = shortest_digits(fabs(value), digits, &exponent);
    char *p = out;
    if (*sign) *p++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *p++ = digits[0];
        if (n > 1) {
            *p++ = '.';
            memcpy(p, digits + 1, (size_t)n - 1);
            p += n - 1;
        }
        p += snprintf(p, 8, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return (size_t)(p - out);
    }
    for (int i = exponent < 0 ? exponent : 0; i < n || i <= exponent + 1; i++) {
        if (i == exponent + 1) *p++ = '.';
        *p++ = i >= 0 && i < n ? digits[i] : '0';
    }
    return (size_t)(p - out);
}

static md_status put_escaped(md_jb *b, uint32_t cp, uint8_t origin) {
    char text[12];
    if (cp == '\n' || cp == '\r' || cp == '\t') {
        snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    } else if (cp < 0x100) {
        snprintf(text, sizeof text, "\\x%02" PRIx32, cp);
    } else {
        snprintf(text, sizeof text, cp < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32, cp);
    }
    return md_jb_puts(b, text, origin);
}

static md_status repr_string(md_jb *b, const md_jv *v) {
    const char *bytes = v->str->bytes;
    size_t n = v->str->size;
    char quote = n && memchr(bytes, '\'', n) && !memchr(bytes, '"', n) ? '"' : '\'';
    MD_TRY(md_jb_put(b, &quote, 1, v->origin));
    for (size_t pos = 0, run = 0; pos <= n;) {
        // Plain characters are copied as one run.
        size_t begin = pos;
        bool end = pos == n;
        uint32_t cp = end ? 0 : md_u8_next(bytes, n, &pos);
        bool plain = !end && cp != '\\' && cp != (uint32_t)quote && md_u8_is_printable(cp);
        if (plain) continue;
        MD_TRY(md_jb_put(b, bytes + run, begin - run, v->origin));
        run = pos;
        if (end) break;
        if (cp == '\\' || cp == (uint32_t)quote) {
            const char escaped[2] = {'\\', (char)cp};
            MD_TRY(md_jb_put(b, escaped, 2, v->origin));
        } else {
            MD_TRY(put_escaped(b, cp, v->origin));
        }
    }
    return md_jb_put(b, &quote, 1, v->origin);
}

static md_status put_value(md_jb *b, const md_jv *v, bool repr, int depth);

static md_status repr_seq(md_jb *b, const md_jv *v, const char *open, const char *close, int depth) {
    MD_TRY(md_jb_puts(b, open, v->origin));
    for (size_t i = 0; i < v->seq->size; i++) {
        if (i) MD_TRY(md_jb_puts(b, ", ", v->origin));
        MD_TRY(put_value(b, &v->seq->items[i], true, depth + 1));
    }
    if (v->kind == MD_JV_TUPLE && v->seq->size == 1) MD_TRY(md_jb_puts(b, ",", v->origin));
    return md_jb_puts(b, close, v->origin);
}

static md_status repr_dict(md_jb *b, const md_jv *v, int depth) {
    MD_TRY(md_jb_puts(b, "{", v->origin));
    for (size_t i = 0; i < v->dict->size; i++) {
        if (i) MD_TRY(md_jb_puts(b, ", ", v->origin));
        MD_TRY(put_value(b, &v->dict->items[i].key, true, depth + 1));
        MD_TRY(md_jb_puts(b, ": ", v->origin));
        MD_TRY(put_value(b, &v->dict->items[i].value, true, depth + 1));
    }
    return md_jb_puts(b, "}", v->origin);
}

static md_status repr_view(md_jb *b, const md_jv *v, int depth) {
    MD_TRY(md_jb_puts(b, v->seq->view, v->origin));
    return repr_seq(b, v, "([", "])", depth);
}

static md_status put_number(md_jb *b, const md_jv *v) {
    char text[64];
    if (v->kind == MD_JV_FLOAT) return md_jb_put(b, text, md_jv_format_float(v->f, text), v->origin);
    snprintf(text, sizeof text, "%" PRId64, v->i);
    return md_jb_puts(b, text, v->origin);
}

static md_status put_range(md_jb *b, const md_jv *v) {
    char text[100];
    const md_jrange *r = v->range;
    if (r->step == 1)
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", r->start, r->stop);
    else
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", r->start, r->stop, r->step);
    return md_jb_puts(b, text, v->origin);
}

static md_status put_value(md_jb *b, const md_jv *v, bool repr, int depth) {
    md_jn_run *run = b->run;
    MD_TRY(md_jn_charge(run, 1));
    if (depth > MD_JN_MAX_NESTING)
        return md_jn_fail(run, MD_E_CONTEXT, "values nested deeper than %d levels", MD_JN_MAX_NESTING);
    switch (v->kind) {
    case MD_JV_UNDEFINED: return repr ? md_jb_puts(b, "Undefined", v->origin) : MD_OK;
    case MD_JV_NONE: return md_jb_puts(b, "None", v->origin);
    case MD_JV_BOOL: return md_jb_puts(b, v->b ? "True" : "False", v->origin);
    case MD_JV_INT:
    case MD_JV_FLOAT: return put_number(b, v);
    case MD_JV_STRING: return repr ? repr_string(b, v) : md_jb_put_string(b, v);
    case MD_JV_LIST: return repr_seq(b, v, "[", "]", depth);
    case MD_JV_TUPLE: return repr_seq(b, v, "(", ")", depth);
    case MD_JV_VIEW: return repr_view(b, v, depth);
    case MD_JV_DICT: return repr_dict(b, v, depth);
    case MD_JV_RANGE: return put_range(b, v);
    case MD_JV_NAMESPACE: // as Jinja2 writes it
        MD_TRY(md_jb_puts(b, "<Namespace ", v->origin));
        MD_TRY(repr_dict(b, v, depth));
        return md_jb_puts(b, ">", v->origin);
    default: // Python would print an address
        return md_jn_fail(run, MD_E_FORMAT, "a %s cannot be printed", md_jv_type_name(v));
    }
}

md_status md_jv_str(md_jb *b, const md_jv *v) { return put_value(b, v, false, 0); }
md_status md_jv_repr(md_jb *b, const md_jv *v) { return put_value(b, v, true, 0); }

md_status md_jv_to_string(md_jn_run *run, const md_jv *v, md_jv *out) {
    if (v->kind == MD_JV_STRING) {
        *out = *v;
        return MD_OK;
    }
    md_jb b;
    md_jb_init(&b, run);
    MD_TRY(md_jv_str(&b, v));
    return md_jb_finish(&b, out);
}
