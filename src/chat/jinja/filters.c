#include "chat/jinja/filters.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja/strops.h"
#include "chat/jinja/u8.h"

#define FILTER(name) static md_status name(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out)
#define ARG(i) (&args->pos[i])

static bool given(const md_jv *arg) { return arg->kind != MD_JV_MISSING && arg->kind != MD_JV_NONE; }

// ---- strings ---------------------------------------------------------------------------------------------

#define CASE_FILTER(name, mode)                                                                                        \
    FILTER(name) {                                                                                                     \
        md_jv s;                                                                                                       \
        (void)args;                                                                                                    \
        MD_TRY(md_jv_to_string(run, self, &s));                                                                        \
        return md_jstr_case(run, &s, mode, out);                                                                       \
    }
CASE_FILTER(f_upper, MD_JCASE_UPPER)
CASE_FILTER(f_lower, MD_JCASE_LOWER)
CASE_FILTER(f_capitalize, MD_JCASE_CAPITALIZE)
CASE_FILTER(f_title, MD_JCASE_TITLE_FILTER)

FILTER(f_string) {
    (void)args;
    return md_jv_to_string(run, self, out);
}

FILTER(f_trim) {
    md_jv s, chars;
    MD_TRY(md_jv_to_string(run, self, &s));
    if (!given(ARG(0))) return md_jstr_strip(run, &s, NULL, true, true, out);
    MD_TRY(md_jn_arg_string(run, ARG(0), "trim's characters", &chars));
    return md_jstr_strip(run, &s, &chars, true, true, out);
}

FILTER(f_replace) {
    md_jv s, from, to;
    int64_t count = -1;
    MD_TRY(md_jv_to_string(run, self, &s));
    MD_TRY(md_jv_to_string(run, ARG(0), &from));
    MD_TRY(md_jv_to_string(run, ARG(1), &to));
    if (given(ARG(2))) MD_TRY(md_jn_arg_int(run, ARG(2), "replace's count", &count));
    return md_jstr_replace(run, &s, &from, &to, count, out);
}

FILTER(f_center) {
    md_jv s;
    int64_t width = 80;
    MD_TRY(md_jv_to_string(run, self, &s));
    MD_TRY(md_jn_arg_int(run, ARG(0), "center's width", &width));
    return md_jstr_pad(run, &s, width, ' ', MD_JPAD_BOTH, out);
}

FILTER(f_format) {
    md_jv s;
    MD_TRY(md_jv_to_string(run, self, &s));
    return md_jn_format(run, &s, args, out);
}

static md_status indentation(md_jn_run *run, const md_jv *width, md_jv *out) {
    md_jb b;
    int64_t n = 4;
    if (width->kind == MD_JV_STRING) {
        *out = *width;
        return MD_OK;
    }
    MD_TRY(md_jn_arg_int(run, width, "indent's width", &n));
    if (n > MD_JN_MAX_PADDING)
        return md_jn_fail(run, MD_E_CONTEXT, "more than %d characters of indentation", MD_JN_MAX_PADDING);
    md_jb_init(&b, run);
    MD_TRY(md_jb_fill(&b, ' ', n < 0 ? 0 : (size_t)n, MD_JV_TRUSTED));
    return md_jb_finish(&b, out);
}

FILTER(f_indent) {
    md_jv s, indent;
    md_jl lines;
    bool first = false, blank = false;
    md_jb b;
    MD_TRY(md_jv_to_string(run, self, &s));
    MD_TRY(indentation(run, ARG(0), &indent));
    MD_TRY(md_jn_arg_bool(run, ARG(1), &first));
    MD_TRY(md_jn_arg_bool(run, ARG(2), &blank));
    md_jb_init(&b, run); // Jinja2 appends a line feed before it cuts, so that a last empty line is kept
    MD_TRY(md_jb_put_string(&b, &s));
    MD_TRY(md_jb_puts(&b, "\n", MD_JV_TRUSTED));
    MD_TRY(md_jb_finish(&b, &s));
    MD_TRY(md_jstr_lines(run, &s, false, &lines));
    md_jb_init(&b, run);
    if (first) MD_TRY(md_jb_put_string(&b, &indent));
    for (size_t i = 0; i < lines.size; i++) {
        if (i) MD_TRY(md_jb_puts(&b, "\n", MD_JV_TRUSTED));
        if (i && (blank || lines.items[i].str->size)) MD_TRY(md_jb_put_string(&b, &indent));
        MD_TRY(md_jb_put_string(&b, &lines.items[i]));
    }
    return md_jb_finish(&b, out);
}

FILTER(f_truncate) {
    md_jv s, end = {.kind = MD_JV_MISSING};
    int64_t length = 255, leeway = 5;
    bool kill = false;
    md_jb b;
    MD_TRY(md_jv_to_string(run, self, &s));
    MD_TRY(md_jv_string_borrow(run, "...", 3, MD_JV_TRUSTED, &end));
    MD_TRY(md_jn_arg_int(run, ARG(0), "truncate's length", &length));
    MD_TRY(md_jn_arg_bool(run, ARG(1), &kill));
    MD_TRY(md_jn_arg_string(run, ARG(2), "truncate's end", &end));
    if (given(ARG(3))) MD_TRY(md_jn_arg_int(run, ARG(3), "truncate's leeway", &leeway));
    int64_t size = (int64_t)md_u8_count(s.str->bytes, s.str->size);
    int64_t tail = (int64_t)md_u8_count(end.str->bytes, end.str->size);
    if (length < tail || leeway < 0)
        return md_jn_fail(run, MD_E_FORMAT, "truncate: expected length >= %lld and leeway >= 0", (long long)tail);
    if (size <= length || size - length <= leeway) {
        *out = s;
        return MD_OK;
    }
    size_t cut = md_u8_offset(s.str->bytes, s.str->size, (size_t)(length - tail)), space = cut;
    while (!kill && space > 0 && s.str->bytes[space - 1] != ' ') space--;
    md_jb_init(&b, run);
    MD_TRY(md_jb_put_part(&b, &s, 0, !kill && space > 0 ? space - 1 : cut));
    MD_TRY(md_jb_put_string(&b, &end));
    return md_jb_finish(&b, out);
}

FILTER(f_escape) {
    static const struct {
        char c;
        const char *text;
    } table[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    md_jv s;
    md_jb b;
    (void)args;
    MD_TRY(md_jv_to_string(run, self, &s));
    md_jb_init(&b, run);
    size_t plain = 0;
    MD_TRY(md_jn_charge(run, s.str->size / 16));
    for (size_t i = 0; i < s.str->size; i++) {
        for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
            if (s.str->bytes[i] != table[k].c) continue;
            MD_TRY(md_jb_put_part(&b, &s, plain, i - plain));
            MD_TRY(md_jb_puts(&b, table[k].text, s.origin));
            plain = i + 1;
        }
    }
    MD_TRY(md_jb_put_part(&b, &s, plain, s.str->size - plain));
    return md_jb_finish(&b, out);
}

FILTER(f_wordcount) {
    md_jv s;
    int64_t words = 0;
    bool inside = false;
    (void)args;
    MD_TRY(md_jv_to_string(run, self, &s));
    MD_TRY(md_jn_charge(run, s.str->size / 16));
    for (size_t pos = 0; pos < s.str->size;) {
        uint32_t cp = md_u8_next(s.str->bytes, s.str->size, &pos);
        bool word = cp == '_' || md_u8_is_alpha(cp) || md_u8_is_digit(cp);
        words += word && !inside;
        inside = word;
    }
    *out = md_jv_int(words, s.origin);
    return MD_OK;
}

// ---- JSON ------------------------------------------------------------------------------------------------

static md_status json_indent(md_jn_run *run, const md_jv *arg, md_jv_json_options *options) {
    md_jv indent;
    if (!given(arg)) return MD_OK;
    MD_TRY(indentation(run, arg, &indent));
    options->pretty = true;
    options->indent = indent.str->bytes;
    options->indent_size = indent.str->size;
    options->item_sep_size = 1; // "," alone: the line ends after it
    return MD_OK;
}

FILTER(f_tojson) {
    md_jv_json_options options = {
        .item_sep = ", ", .item_sep_size = 2, .key_sep = ": ", .key_sep_size = 2, .indent = ""};
    md_jb b;
    MD_TRY(md_jn_arg_bool(run, ARG(0), &options.ensure_ascii));
    MD_TRY(json_indent(run, ARG(1), &options));
    MD_TRY(md_jn_arg_bool(run, ARG(3), &options.sort_keys));
    if (given(ARG(2))) {
        const md_jv *items;
        size_t n;
        MD_TRY(md_jv_items(run, ARG(2), "tojson's separators", &items, &n));
        if (n != 2 || items[0].kind != MD_JV_STRING || items[1].kind != MD_JV_STRING)
            return md_jn_fail(run, MD_E_FORMAT, "tojson's separators must be two strings");
        options.item_sep = items[0].str->bytes;
        options.item_sep_size = items[0].str->size;
        options.key_sep = items[1].str->bytes;
        options.key_sep_size = items[1].str->size;
    }
    md_jb_init(&b, run);
    MD_TRY(md_jv_to_json(&b, self, &options));
    return md_jb_finish(&b, out);
}

// ---- numbers ---------------------------------------------------------------------------------------------

// A number's text without the underscores and white space that Python allows; false where it cannot be one.
static bool number_text(const md_jv *s, char text[400]) {
    size_t n = 0, begin = 0, end = s->str->size;
    while (begin < end && md_u8_is_space((unsigned char)s->str->bytes[begin])) begin++;
    while (end > begin && md_u8_is_space((unsigned char)s->str->bytes[end - 1])) end--;
    for (size_t i = begin; i < end; i++) {
        char c = s->str->bytes[i];
        if (c == '_' && i > begin && i + 1 < end) continue;
        if (n + 1 == 400 || !strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", c) || !c)
            return false;
        text[n++] = c;
    }
    text[n] = 0;
    return n > 0;
}

static bool parse_real(const char *text, double *out) {
    char *end;
    if (strpbrk(text, "xXpP(")) return false; // strtod reads hexadecimal, Python does not
    *out = strtod(text, &end);
    return *end == 0;
}

FILTER(f_int) {
    int64_t base = 10;
    char text[400], *end;
    double real;
    *out = ARG(0)->kind == MD_JV_MISSING ? md_jv_int(0, MD_JV_TRUSTED) : *ARG(0);
    MD_TRY(md_jn_arg_int(run, ARG(1), "int's base", &base));
    if (base != 0 && (base < 2 || base > 36)) return MD_OK;
    if (md_jv_is_number(self) && self->kind != MD_JV_FLOAT) {
        *out = md_jv_int(self->kind == MD_JV_BOOL ? self->b : self->i, self->origin);
    } else if (self->kind == MD_JV_FLOAT) {
        if (fabs(self->f) < 9e18) *out = md_jv_int((int64_t)self->f, self->origin);
    } else if (self->kind == MD_JV_STRING && number_text(self, text)) {
        errno = 0;
        long long value = strtoll(text, &end, (int)base);
        if (*end == 0 && errno == 0)
            *out = md_jv_int(value, self->origin);
        else if (parse_real(text, &real) && fabs(real) < 9e18)
            *out = md_jv_int((int64_t)real, self->origin);
    }
    return MD_OK;
}

FILTER(f_float) {
    char text[400];
    double real;
    (void)run;
    *out = ARG(0)->kind == MD_JV_MISSING ? md_jv_float(0.0, MD_JV_TRUSTED) : *ARG(0);
    if (md_jv_is_number(self))
        *out = md_jv_float(md_jv_as_float(self), self->origin);
    else if (self->kind == MD_JV_STRING && number_text(self, text) && parse_real(text, &real))
        *out = md_jv_float(real, self->origin);
    return MD_OK;
}

FILTER(f_abs) {
    (void)args;
    int64_t whole;
    if (!md_jv_is_number(self))
        return md_jn_fail(run, MD_E_FORMAT, "bad operand type for abs(): '%s'", md_jv_type_name(self));
    if (md_jv_as_int(self, &whole)) {
        const md_jv zero = md_jv_int(0, MD_JV_TRUSTED), value = md_jv_int(whole, self->origin);
        return md_jn_binary(run, whole < 0 ? '-' : '+', &zero, &value, out);
    }
    *out = md_jv_float(fabs(self->f), self->origin);
    return MD_OK;
}

FILTER(f_round) {
    int64_t precision = 0, whole;
    md_jv method = {.kind = MD_JV_MISSING};
    char text[512];
    MD_TRY(md_jn_arg_int(run, ARG(0), "round's precision", &precision));
    MD_TRY(md_jn_arg_string(run, ARG(1), "round's method", &method));
    bool common = method.kind == MD_JV_MISSING || md_jv_string_is(&method, "common");
    bool up = !common && md_jv_string_is(&method, "ceil");
    if (!common && !up && !md_jv_string_is(&method, "floor"))
        return md_jn_fail(run, MD_E_FORMAT, "method must be common, ceil or floor");
    if (!md_jv_is_number(self))
        return md_jn_fail(run, MD_E_FORMAT, "type %s doesn't define __round__ method", md_jv_type_name(self));
    if (precision < 0 || precision > 100)
        return md_jn_fail(run, MD_E_UNSUPPORTED, "round to %lld digits is not supported", (long long)precision);
    if (common && md_jv_as_int(self, &whole)) {
        *out = md_jv_int(whole, self->origin);
        return MD_OK;
    }
    double value = md_jv_as_float(self), scale = pow(10.0, (double)precision);
    if (!common) {
        *out = md_jv_float((up ? ceil(value * scale) : floor(value * scale)) / scale, self->origin);
        return MD_OK;
    }
    snprintf(text, sizeof text, "%.*f", (int)precision, value); // correctly rounded, as Python's round is
    *out = md_jv_float(isfinite(value) ? strtod(text, NULL) : value, self->origin);
    return MD_OK;
}

// ---- others ----------------------------------------------------------------------------------------------

FILTER(f_default) {
    bool falsy = false;
    MD_TRY(md_jn_arg_bool(run, ARG(1), &falsy));
    if (self->kind != MD_JV_UNDEFINED && !(falsy && !md_jv_truth(self))) {
        *out = *self;
        return MD_OK;
    }
    if (ARG(0)->kind == MD_JV_MISSING) return md_jv_string_borrow(run, "", 0, MD_JV_TRUSTED, out);
    *out = *ARG(0);
    return MD_OK;
}

FILTER(f_length) {
    size_t n;
    (void)args;
    if (!md_jv_length(self, &n))
        return md_jn_fail(run, MD_E_FORMAT, "object of type '%s' has no len()", md_jv_type_name(self));
    *out = md_jv_int((int64_t)n, self->origin);
    return self->kind == MD_JV_STRING ? md_jn_charge_bytes(run, self->str->size) : MD_OK;
}

md_status md_jn_ignore_case(md_jn_run *run, const md_jv *v, md_jv *out) {
    if (v->kind == MD_JV_STRING) return md_jstr_case(run, v, MD_JCASE_LOWER, out);
    *out = *v;
    return MD_OK;
}

const md_jn_func *md_jn_find_filter(const char *name, size_t n) {
    static const md_jn_func table[] = {
        {"abs", f_abs, {NULL}, 0, false},
        {"capitalize", f_capitalize, {NULL}, 0, false},
        {"center", f_center, {"width"}, 0, false},
        {"count", f_length, {NULL}, 0, false},
        {"d", f_default, {"default_value", "boolean"}, 0, false},
        {"default", f_default, {"default_value", "boolean"}, 0, false},
        {"e", f_escape, {NULL}, 0, false},
        {"escape", f_escape, {NULL}, 0, false},
        {"float", f_float, {"default"}, 0, false},
        {"format", f_format, {NULL}, 0, true},
        {"indent", f_indent, {"width", "first", "blank"}, 0, false},
        {"int", f_int, {"default", "base"}, 0, false},
        {"length", f_length, {NULL}, 0, false},
        {"lower", f_lower, {NULL}, 0, false},
        {"replace", f_replace, {"old", "new", "count"}, 2, false},
        {"round", f_round, {"precision", "method"}, 0, false},
        {"safe", f_string, {NULL}, 0, false},
        {"string", f_string, {NULL}, 0, false},
        {"title", f_title, {NULL}, 0, false},
        {"tojson", f_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, false},
        {"trim", f_trim, {"chars"}, 0, false},
        {"truncate", f_truncate, {"length", "killwords", "end", "leeway"}, 0, false},
        {"upper", f_upper, {NULL}, 0, false},
        {"wordcount", f_wordcount, {NULL}, 0, false},
    };
    const md_jn_func *found = md_jn_find_in(table, sizeof table / sizeof table[0], name, n);
    return found ? found : md_jn_find_seq_filter(name, n);
}
