// Formatting: "%s is %d" % (a, b), "..." | format(...), and the plain fields of "{} {0} {name}".format(...).
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chat/jinja/run.h"
#include "chat/jinja/strops.h"
#include "chat/jinja/u8.h"

enum { MAX_PRECISION = 100 };

typedef struct spec {
    bool left, plus, space, zero, alternate;
    int64_t width, precision; // precision -1: none
    char type;
} spec;

// Digits at f->bytes[*pos] as a number.
static md_status take_number(md_jn_run *run, const md_jstr *f, size_t *pos, int64_t *out) {
    for (*out = 0; *pos < f->size && isdigit((unsigned char)f->bytes[*pos]); ++*pos) {
        *out = *out * 10 + (f->bytes[*pos] - '0');
        if (*out > MD_JN_MAX_PADDING)
            return md_jn_fail(run, MD_E_CONTEXT, "width or precision over %d", MD_JN_MAX_PADDING);
    }
    return MD_OK;
}

static md_status parse_spec(md_jn_run *run, const md_jstr *f, size_t *pos, spec *s) {
    *s = (spec){.precision = -1};
    for (; *pos < f->size; ++*pos) {
        char c = f->bytes[*pos];
        if (c == '-')
            s->left = true;
        else if (c == '+')
            s->plus = true;
        else if (c == ' ')
            s->space = true;
        else if (c == '0')
            s->zero = true;
        else if (c == '#')
            s->alternate = true;
        else
            break;
    }
    MD_TRY(take_number(run, f, pos, &s->width));
    if (*pos < f->size && f->bytes[*pos] == '.') {
        ++*pos;
        MD_TRY(take_number(run, f, pos, &s->precision));
    }
    if (*pos >= f->size) return md_jn_fail(run, MD_E_FORMAT, "incomplete format");
    s->type = f->bytes[(*pos)++];
    return MD_OK;
}

static md_status format_number(md_jn_run *run, const spec *s, const md_jv *arg, char text[512]) {
    if (!md_jv_is_number(arg))
        return md_jn_fail(run, MD_E_FORMAT, "%%%c format: a real number is required, not %s", s->type,
                          md_jv_type_name(arg));
    if (s->precision > MAX_PRECISION) return md_jn_fail(run, MD_E_CONTEXT, "a precision over %d digits", MAX_PRECISION);
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    double real = md_jv_as_float(arg);
    switch (s->type) {
    case 'e': snprintf(text, 512, s->plus ? "%+.*e" : s->space ? "% .*e" : "%.*e", precision, real); return MD_OK;
    case 'E': snprintf(text, 512, s->plus ? "%+.*E" : s->space ? "% .*E" : "%.*E", precision, real); return MD_OK;
    case 'g': snprintf(text, 512, s->plus ? "%+.*g" : s->space ? "% .*g" : "%.*g", precision, real); return MD_OK;
    case 'G': snprintf(text, 512, s->plus ? "%+.*G" : s->space ? "% .*G" : "%.*G", precision, real); return MD_OK;
    case 'f':
    case 'F': snprintf(text, 512, s->plus ? "%+.*f" : s->space ? "% .*f" : "%.*f", precision, real); return MD_OK;
    default: break;
    }
    int64_t whole;
    if (!md_jv_as_int(arg, &whole)) {
        if (s->type == 'x' || s->type == 'X' || s->type == 'o' || !(fabs(real) < 9e18))
            return md_jn_fail(run, MD_E_FORMAT, "%%%c format: an integer is required, not %s", s->type,
                              md_jv_type_name(arg));
        whole = (int64_t)real;
    }
    const char *sign = whole < 0 ? "-" : s->plus ? "+" : s->space ? " " : "";
    unsigned long long size = whole < 0 ? 0ull - (unsigned long long)whole : (unsigned long long)whole;
    precision = s->precision < 0 ? 1 : (int)s->precision;
    if (s->type == 'x')
        snprintf(text, 512, "%s%s%.*llx", sign, s->alternate ? "0x" : "", precision, size);
    else if (s->type == 'X')
        snprintf(text, 512, "%s%s%.*llX", sign, s->alternate ? "0X" : "", precision, size);
    else if (s->type == 'o')
        snprintf(text, 512, "%s%s%.*llo", sign, s->alternate ? "0o" : "", precision, size);
    else
        snprintf(text, 512, "%s%.*llu", sign, precision, size);
    return MD_OK;
}

static md_status format_text(md_jn_run *run, const spec *s, const md_jv *arg, md_jv *out) {
    md_jb b;
    if (s->type == 'r') {
        md_jb_init(&b, run);
        MD_TRY(md_jv_repr(&b, arg));
        MD_TRY(md_jb_finish(&b, out));
    } else {
        MD_TRY(md_jv_to_string(run, arg, out));
    }
    if (s->precision < 0) return MD_OK;
    return md_jv_substring(run, out, 0, md_u8_offset(out->str->bytes, out->str->size, (size_t)s->precision), out);
}

static md_status format_one(md_jb *b, const spec *s, const md_jv *arg) {
    md_jn_run *run = b->run;
    md_jv text;
    bool number = memchr("diuxXoeEfFgG", s->type, 12) != NULL;
    if (number) {
        char digits[512];
        MD_TRY(format_number(run, s, arg, digits));
        MD_TRY(md_jv_string(run, digits, strlen(digits), arg->origin, &text));
    } else if (s->type == 's' || s->type == 'r') {
        MD_TRY(format_text(run, s, arg, &text));
    } else {
        return md_jn_fail(run, MD_E_UNSUPPORTED, "the format %%%c is not supported", s->type);
    }
    if (number && s->zero && !s->left) { // zeros go after the sign
        size_t sign = strchr("+- ", text.str->bytes[0]) != NULL;
        MD_TRY(md_jb_put_part(b, &text, 0, sign));
        MD_TRY(md_jv_substring(run, &text, sign, text.str->size - sign, &text));
        MD_TRY(md_jstr_pad(run, &text, s->width - (int64_t)sign, '0', MD_JPAD_LEFT, &text));
    }
    MD_TRY(md_jstr_pad(run, &text, s->width, ' ', s->left ? MD_JPAD_RIGHT : MD_JPAD_LEFT, &text));
    return md_jb_put_string(b, &text);
}

// The value of a named field: a keyword argument, or a member of a single mapping.
static md_status named(md_jn_run *run, const md_jargs *args, const char *name, size_t n, const md_jv **out) {
    *out = NULL;
    for (size_t k = 0; k < args->n_kw; k++)
        if (args->kw[k].name->size == n && memcmp(args->kw[k].name->text, name, n) == 0) *out = &args->kw[k].value;
    if (!*out && args->n == 1 && args->pos[0].kind == MD_JV_DICT)
        MD_TRY(md_jdict_get_text(run, args->pos[0].dict, name, n, out));
    if (*out) return MD_OK;
    return md_jn_fail(run, MD_E_FORMAT, "format: no value named '%.*s'", (int)(n > 60 ? 60 : n), name);
}

md_status md_jn_format(md_jn_run *run, const md_jv *format, const md_jargs *args, md_jv *out) {
    const md_jstr *f = format->str;
    size_t next = 0;
    bool mapping = args->n_kw > 0 || (args->n == 1 && args->pos[0].kind == MD_JV_DICT), by_name = false;
    md_jb b;
    md_jb_init(&b, run);
    for (size_t pos = 0; pos < f->size;) {
        const char *mark = memchr(f->bytes + pos, '%', f->size - pos);
        size_t end = mark ? (size_t)(mark - f->bytes) : f->size;
        MD_TRY(md_jb_put_part(&b, format, pos, end - pos));
        if (!mark) break;
        pos = end + 1;
        const md_jv *arg = NULL;
        spec s;
        if (pos < f->size && f->bytes[pos] == '(') {
            const char *close = memchr(f->bytes + pos, ')', f->size - pos);
            if (!close) return md_jn_fail(run, MD_E_FORMAT, "incomplete format key");
            size_t key = pos + 1;
            pos = (size_t)(close - f->bytes) + 1;
            MD_TRY(named(run, args, f->bytes + key, pos - 1 - key, &arg));
            by_name = true;
        }
        MD_TRY(parse_spec(run, f, &pos, &s));
        MD_TRY(md_jn_charge(run, 1));
        if (s.type == '%') {
            MD_TRY(md_jb_put_part(&b, format, pos - 1, 1));
            continue;
        }
        if (!arg && next >= args->n) return md_jn_fail(run, MD_E_FORMAT, "not enough arguments for format string");
        MD_TRY(format_one(&b, &s, arg ? arg : &args->pos[next++]));
    }
    if (next < args->n && !by_name && !mapping)
        return md_jn_fail(run, MD_E_FORMAT, "not all arguments converted during string formatting");
    return md_jb_finish(&b, out);
}

// One replacement field at f->bytes[pos] (after its "{"), of n bytes.
static md_status brace_field(md_jb *b, const char *field, size_t n, const md_jargs *args, size_t *next) {
    md_jn_run *run = b->run;
    bool repr = n >= 2 && field[n - 2] == '!' && field[n - 1] == 'r';
    if (n >= 2 && field[n - 2] == '!' && (repr || field[n - 1] == 's')) n -= 2;
    const md_jv *arg;
    size_t index = 0, digits = 0;
    for (; digits < n && digits < 6 && isdigit((unsigned char)field[digits]); digits++)
        index = index * 10 + (size_t)(field[digits] - '0');
    if (memchr(field, ':', n) || memchr(field, '.', n) || memchr(field, '[', n) || memchr(field, '!', n))
        return md_jn_fail(run, MD_E_UNSUPPORTED, "format(): only plain fields are supported, found {%.*s}",
                          (int)(n > 60 ? 60 : n), field);
    if (digits == n) {
        if (n == 0) index = (*next)++;
        if (index >= args->n) return md_jn_fail(run, MD_E_FORMAT, "format(): no argument %zu", index);
        arg = &args->pos[index];
    } else {
        const md_jargs keywords = {.kw = args->kw, .n_kw = args->n_kw};
        MD_TRY(named(run, &keywords, field, n, &arg));
    }
    return repr ? md_jv_repr(b, arg) : md_jv_str(b, arg);
}

md_status md_jn_format_braces(md_jn_run *run, const md_jv *format, const md_jargs *args, md_jv *out) {
    const md_jstr *f = format->str;
    size_t next = 0;
    md_jb b;
    md_jb_init(&b, run);
    for (size_t pos = 0; pos < f->size;) {
        char c = f->bytes[pos];
        MD_TRY(md_jn_charge(run, 1));
        if (c != '{' && c != '}') {
            size_t begin = pos;
            while (pos < f->size && f->bytes[pos] != '{' && f->bytes[pos] != '}') pos++;
            MD_TRY(md_jb_put_part(&b, format, begin, pos - begin));
        } else if (pos + 1 < f->size && f->bytes[pos + 1] == c) {
            MD_TRY(md_jb_put_part(&b, format, pos, 1));
            pos += 2;
        } else {
            const char *close = c == '{' ? memchr(f->bytes + pos, '}', f->size - pos) : NULL;
            if (!close) return md_jn_fail(run, MD_E_FORMAT, "format(): single '%c' in format string", c);
            size_t end = (size_t)(close - f->bytes);
            MD_TRY(brace_field(&b, f->bytes + pos + 1, end - pos - 1, args, &next));
            pos = end + 1;
        }
    }
    return md_jb_finish(&b, out);
}
