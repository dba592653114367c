#include "text/regex_translate.h"

#include <string.h>

#include "text/chars.h"

// Oniguruma's \w, as the inside of a class: found by asking it about every code point.
#define WORD_CLASS                                                                                                     \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"              \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define HEX_CLASS "0-9A-Fa-f"

typedef struct translator {
    const char *pattern;
    size_t n, at;
    const char *what;
    md_buf *out;
    md_error *err;
} translator;

static md_status refuse(const translator *t, const char *construct) {
    return md_fail(t->err, MD_E_UNSUPPORTED, "%s: the regex uses %s at byte %zu, which is not supported", t->what,
                   construct, t->at);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
static char peek(const translator *t, size_t ahead) { return ahead < t->n - t->at ? t->pattern[t->at + ahead] : '\0'; }

static bool is_category(const char *name, size_t n) {
    static const char *const known[] = {"C",  "Cc", "Cf", "Cn", "Co", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
                                        "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf",
                                        "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i]) == n && memcmp(known[i], name, n) == 0) return true;
    return false;
}

// \p{Name}, \P{Name}, \p{^Name}, with t->at on the letter.
static md_status property(translator *t) {
    bool negated = peek(t, 0) == 'P';
    if (peek(t, 1) != '{') return refuse(t, "a property without braces");
    size_t start = t->at + 2;
    if (start < t->n && t->pattern[start] == '^') {
        negated = !negated;
        start++;
    }
    size_t end = start;
    while (end < t->n && t->pattern[end] != '}') {
        if (!is_letter(t->pattern[end]) && t->pattern[end] != '_') return refuse(t, "an unusual property name");
        end++;
    }
    if (end == t->n || end == start || end - start > 32) return refuse(t, "an unusual property name");
    bool category = is_category(t->pattern + start, end - start);
    md_buf_printf(t->out, "\\%c{%s%.*s}", negated ? 'P' : 'p', category ? "" : "sc:", (int)(end - start),
                  t->pattern + start);
    t->at = end + 1;
    return MD_OK;
}

// \xHH, \x{H...}, \uHHHH, with t->at on the letter.
static md_status code_point(translator *t) {
    size_t digits = t->at + 1, end;
    if (peek(t, 0) == 'x' && peek(t, 1) == '{') {
        digits++;
        for (end = digits; end < t->n && is_hex(t->pattern[end]); end++) {
        }
        if (end == digits || end - digits > 8 || end == t->n || t->pattern[end] != '}')
            return refuse(t, "a malformed \\x{}");
        md_buf_printf(t->out, "\\x{%.*s}", (int)(end - digits), t->pattern + digits);
        t->at = end + 1;
        return MD_OK;
    }
    size_t want = peek(t, 0) == 'u' ? 4 : 2;
    for (end = digits; end < t->n && end - digits < want && is_hex(t->pattern[end]); end++) {
    }
    if (end - digits != want) return refuse(t, "a code point with too few digits");
    if (want == 2 && t->pattern[digits] >= '8') return refuse(t, "a raw byte above \\x7f");
    md_buf_printf(t->out, "\\x{%.*s}", (int)want, t->pattern + digits);
    t->at = end;
    return MD_OK;
}

// A set of characters that is written as the inside of a class.
static md_status set(translator *t, bool in_class, bool negated, const char *inside, const char *complement) {
    if (!in_class) {
        md_buf_printf(t->out, "[%s%s]", negated ? "^" : "", inside);
    } else if (!negated) {
        md_buf_puts(t->out, inside);
    } else if (complement) {
        md_buf_puts(t->out, complement);
    } else {
        return refuse(t, "\\W or \\H inside a character class");
    }
    t->at++;
    return MD_OK;
}

// An escape, with t->at on the character after the backslash.
static md_status escape(translator *t, bool in_class) {
    if (t->at == t->n) return refuse(t, "a backslash at its end");
    char c = peek(t, 0);
    switch (c) {
    case 's': return set(t, in_class, false, MD_CHARS_SPACE_CLASS, NULL);
    case 'S': return set(t, in_class, true, MD_CHARS_SPACE_CLASS, MD_CHARS_NOT_SPACE_CLASS);
    case 'd': return set(t, in_class, false, "\\p{Nd}", NULL);
    case 'D': return set(t, in_class, true, "\\p{Nd}", "\\P{Nd}");
    case 'w': return set(t, in_class, false, WORD_CLASS, NULL);
    case 'W': return set(t, in_class, true, WORD_CLASS, NULL);
    case 'h': return set(t, in_class, false, HEX_CLASS, NULL);
    case 'H': return set(t, in_class, true, HEX_CLASS, NULL);
    case 'p':
    case 'P': return property(t);
    case 'x':
    case 'u': return code_point(t);
    default: break;
    }
    if (c == 'v') {
        md_buf_puts(t->out, "\\x0b");
    } else if (c == 'b' && in_class) {
        md_buf_puts(t->out, "\\x08");
    } else if (c == 'b' || (c == 'B' && !in_class)) {
        md_buf_puts(t->out, c == 'b' ? "(?:(?<=[" WORD_CLASS "])(?![" WORD_CLASS "])|(?<![" WORD_CLASS
                                       "])(?=[" WORD_CLASS "]))"
                                     : "(?:(?<=[" WORD_CLASS "])(?=[" WORD_CLASS "])|(?<![" WORD_CLASS
                                       "])(?![" WORD_CLASS "]))");
    } else if (strchr("nrtfae", c) || (!in_class && strchr("AzZR", c)) || (c > 0 && !is_letter(c) && !is_digit(c))) {
        md_buf_putc(t->out, '\\');
        md_buf_putc(t->out, c);
    } else {
        char name[] = {'\\', c, 0};
        return refuse(t, name);
    }
    t->at++;
    return MD_OK;
}

static md_status character_class(translator *t) {
    md_buf_putc(t->out, '[');
    t->at++;
    if (peek(t, 0) == '^') {
        md_buf_putc(t->out, '^');
        t->at++;
    }
    bool first = true;
    for (; t->at < t->n; first = false) {
        char c = peek(t, 0);
        if (c == ']' && !first) {
            md_buf_putc(t->out, ']');
            t->at++;
            return MD_OK;
        }
        if (c == '[') return refuse(t, "a class inside a class");
        if (c == '&' && peek(t, 1) == '&') return refuse(t, "an intersection of classes");
        if (c == '\\') {
            t->at++;
            MD_TRY(escape(t, true));
            continue;
        }
        if (c == ']') md_buf_putc(t->out, '\\');
        md_buf_putc(t->out, c);
        t->at++;
    }
    return md_fail(t->err, MD_E_FORMAT, "%s: the regex has a class without its ']'", t->what);
}

// "(?...": the kinds of group, and inline flags.
static md_status group(translator *t) {
    md_buf_puts(t->out, "(?");
    t->at += 2;
    char c = peek(t, 0);
    if (c == '#') return refuse(t, "a comment");
    if (c == ':' || c == '=' || c == '!' || c == '>' || c == '<') {
        md_buf_putc(t->out, c);
        t->at++;
        return MD_OK;
    }
    for (; t->at < t->n; t->at++) {
        c = peek(t, 0);
        if (c == 'i' || c == 'x' || c == '-') {
            md_buf_putc(t->out, c);
        } else if (c == 'm') {
            md_buf_putc(t->out, 's');
        } else if (c == ':' || c == ')') {
            md_buf_putc(t->out, c);
            t->at++;
            return MD_OK;
        } else {
            break;
        }
    }
    return refuse(t, "an unusual group");
}

// "{n}", "{n,}", "{,m}", "{n,m}"; any other brace is a literal.
static md_status braces(translator *t) {
    size_t low = t->at + 1, comma = low;
    while (comma < t->n && is_digit(t->pattern[comma])) comma++;
    bool has_comma = comma < t->n && t->pattern[comma] == ',';
    size_t high = comma + has_comma, end = high;
    while (end < t->n && is_digit(t->pattern[end])) end++;
    bool interval = end < t->n && t->pattern[end] == '}' && (comma > low || end > high);
    if (!interval) {
        md_buf_puts(t->out, "\\{");
        t->at++;
        return MD_OK;
    }
    md_buf_putc(t->out, '{');
    if (comma == low) md_buf_putc(t->out, '0');
    md_buf_append(t->out, t->pattern + low, end + 1 - low);
    t->at = end + 1;
    // Oniguruma reads {n}+ as a repeated interval and {n}? as an optional one, PCRE2 as possessive and lazy.
    if (peek(t, 0) == '+' || (peek(t, 0) == '?' && !has_comma)) return refuse(t, "a quantifier after an interval");
    return MD_OK;
}

md_status md_regex_translate(const char *pattern, size_t n, const char *what, md_buf *out, md_error *err) {
    translator t = {.pattern = pattern, .n = n, .what = what, .out = out, .err = err};
    while (t.at < n) {
        char c = pattern[t.at];
        if (c == '\\') {
            t.at++;
            MD_TRY(escape(&t, false));
        } else if (c == '[') {
            MD_TRY(character_class(&t));
        } else if (c == '(' && peek(&t, 1) == '?') {
            MD_TRY(group(&t));
        } else if (c == '(' && peek(&t, 1) == '*') {
            return refuse(&t, "\"(*\""); // a verb in PCRE2
        } else if (c == '{') {
            MD_TRY(braces(&t));
        } else {
            md_buf_putc(out, c);
            t.at++;
        }
    }
    if (out->failed && out->cap < out->max / 2) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    if (out->failed) return md_fail(err, MD_E_FORMAT, "%s: the regex is too long", what);
    return MD_OK;
}
