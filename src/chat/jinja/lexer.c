#include "chat/jinja/lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chat/jinja/u8.h"

md_status md_jlex_init(md_jlex *lex, md_arena *arena, const char *name, const char *source, size_t n, md_error *err) {
    *lex = (md_jlex){.arena = arena, .name = name, .line = 1};
    MD_TRY(md_utf8_check(name, source, n, MD_E_FORMAT, err));
    char *copy = md_arena_alloc(arena, n + 1, 1);
    if (!copy) return md_fail(err, MD_E_MEMORY, "%s: out of memory (%zu bytes)", name, n);
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r') {
            copy[size++] = '\n';
            if (i + 1 < n && source[i + 1] == '\n') i++;
        } else {
            copy[size++] = source[i];
        }
    }
    if (size && copy[size - 1] == '\n') size--;
    lex->src = copy;
    lex->size = size;
    return MD_OK;
}

static md_status lex_fail(const md_jlex *lex, md_error *err, const char *text) {
    return md_fail(err, MD_E_FORMAT, "%s, line %d: %s", lex->name, lex->line, text);
}

static void advance_to(md_jlex *lex, size_t pos) {
    for (; lex->pos < pos; lex->pos++) lex->line += lex->src[lex->pos] == '\n';
}

static bool at(const md_jlex *lex, size_t pos, const char *text) {
    size_t n = strlen(text);
    return lex->size - pos >= n && memcmp(lex->src + pos, text, n) == 0;
}

static size_t skip_space(const md_jlex *lex, size_t pos) {
    while (pos < lex->size) {
        size_t next = pos;
        if (!md_u8_is_space(md_u8_next(lex->src, lex->size, &next))) break;
        pos = next;
    }
    return pos;
}

// Start of the white space that ends at `end`, not before `begin`.
static size_t space_before(const md_jlex *lex, size_t begin, size_t end) {
    while (end > begin) {
        size_t prev = md_utf8_last(lex->src, end), next = prev;
        if (!md_u8_is_space(md_u8_next(lex->src, lex->size, &next))) break;
        end = prev;
    }
    return end;
}

// The end of a tag's closing mark at `pos` ("%}", "-%}" with the white space after it, "+%}"; with `trim` a plain one
// takes a line feed), or 0 where there is none.
static size_t close_end(const md_jlex *lex, size_t pos, const char *mark, bool plus, bool trim) {
    if (pos < lex->size && lex->src[pos] == '-' && at(lex, pos + 1, mark)) return skip_space(lex, pos + 3);
    if (plus && pos < lex->size && lex->src[pos] == '+' && at(lex, pos + 1, mark)) return pos + 3;
    if (!at(lex, pos, mark)) return 0;
    return pos + 2 + (trim && at(lex, pos + 2, "\n"));
}

// End of the data [begin, tag) after the white space control of the tag whose sign is at tag + 2.
static size_t data_end(const md_jlex *lex, size_t begin, size_t tag, bool variable) {
    char sign = tag + 2 < lex->size ? lex->src[tag + 2] : 0;
    if (sign == '-') return space_before(lex, begin, tag);
    if (sign == '+' || variable) return tag;
    size_t line = tag;
    while (line > begin && lex->src[line - 1] != '\n') line--;
    // Data that starts in the middle of a line is no indentation.
    if (line == begin && begin > 0 && lex->src[begin - 1] != '\n') return tag;
    return space_before(lex, line, tag) == line ? line : tag;
}

static size_t after_sign(const md_jlex *lex, size_t tag) {
    size_t pos = tag + 2;
    return pos + (pos < lex->size && (lex->src[pos] == '-' || lex->src[pos] == '+'));
}

// End of "{% raw %}" at `tag`, or 0.
static size_t raw_begin_end(const md_jlex *lex, size_t tag) {
    size_t pos = skip_space(lex, after_sign(lex, tag));
    if (!at(lex, pos, "raw")) return 0;
    return close_end(lex, skip_space(lex, pos + 3), "%}", false, false);
}

static md_status skip_comment(md_jlex *lex, size_t tag, md_error *err) {
    for (size_t pos = after_sign(lex, tag); pos < lex->size; pos++) {
        size_t end = close_end(lex, pos, "#}", true, true);
        if (end) {
            advance_to(lex, end);
            return MD_OK;
        }
    }
    advance_to(lex, tag);
    return lex_fail(lex, err, "missing end of comment tag");
}

static void data_token(md_jlex *lex, md_jtok *out, size_t begin, size_t end) {
    *out = (md_jtok){.kind = MD_JTOK_DATA, .line = lex->line, .text = lex->src + begin, .size = end - begin};
}

static md_jtok begin_token(md_jlex *lex) {
    lex->begin_pending = false;
    return (md_jtok){.kind = lex->state == MD_JLEX_VAR ? MD_JTOK_VAR_BEGIN : MD_JTOK_BLOCK_BEGIN,
                     .line = lex->begin_line};
}

static size_t find_tag(const md_jlex *lex, size_t pos) {
    for (; pos + 1 < lex->size; pos++) {
        const char *brace = memchr(lex->src + pos, '{', lex->size - pos - 1);
        if (!brace) break;
        pos = (size_t)(brace - lex->src);
        if (brace[1] == '%' || brace[1] == '{' || brace[1] == '#') return pos;
    }
    return lex->size;
}

static md_status next_root(md_jlex *lex, md_jtok *out, md_error *err) {
    while (lex->pos < lex->size) {
        size_t begin = lex->pos, tag = find_tag(lex, begin);
        if (tag == lex->size) {
            data_token(lex, out, begin, tag);
            advance_to(lex, tag);
            return MD_OK;
        }
        char kind = lex->src[tag + 1];
        size_t end = data_end(lex, begin, tag, kind == '{');
        bool has_data = end > begin;
        if (has_data) data_token(lex, out, begin, end);
        advance_to(lex, tag);
        size_t raw = kind == '%' ? raw_begin_end(lex, tag) : 0;
        lex->begin_line = lex->line;
        if (kind == '#') {
            MD_TRY(skip_comment(lex, tag, err));
        } else if (raw) {
            lex->state = MD_JLEX_RAW;
            advance_to(lex, raw);
        } else {
            lex->state = kind == '{' ? MD_JLEX_VAR : MD_JLEX_BLOCK;
            advance_to(lex, after_sign(lex, tag));
            lex->begin_pending = true;
        }
        if (has_data) return MD_OK;
        if (lex->state != MD_JLEX_ROOT) return md_jlex_next(lex, out, err); // at most once more: RAW or a BEGIN
    }
    *out = (md_jtok){.kind = MD_JTOK_EOF, .line = lex->line};
    return MD_OK;
}

static md_status next_raw(md_jlex *lex, md_jtok *out, md_error *err) {
    size_t begin = lex->pos;
    for (size_t tag = begin; (tag = find_tag(lex, tag)) < lex->size; tag++) {
        if (lex->src[tag + 1] != '%') continue;
        size_t pos = skip_space(lex, after_sign(lex, tag));
        if (!at(lex, pos, "endraw")) continue;
        size_t close = close_end(lex, skip_space(lex, pos + 6), "%}", true, true);
        if (!close) continue;
        data_token(lex, out, begin, data_end(lex, begin, tag, false));
        advance_to(lex, close);
        lex->state = MD_JLEX_ROOT;
        return MD_OK;
    }
    return lex_fail(lex, err, "missing end of raw directive");
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name_char(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }

// End of digits with single underscores between them, starting at a digit; `pos` where there is none.
static size_t digits_end(const md_jlex *lex, size_t pos) {
    while (pos < lex->size) {
        if (is_digit(lex->src[pos]))
            pos++;
        else if (lex->src[pos] == '_' && pos + 1 < lex->size && is_digit(lex->src[pos + 1]) && pos > 0 &&
                 is_digit(lex->src[pos - 1]))
            pos++;
        else
            break;
    }
    return pos;
}

// End of a float's text at `pos`, or 0: digits with a fraction, an exponent, or both.
static size_t float_end(const md_jlex *lex, size_t pos) {
    if (pos > 0 && lex->src[pos - 1] == '.') return 0;
    size_t end = digits_end(lex, pos);
    bool real = false;
    if (end + 1 < lex->size && lex->src[end] == '.' && is_digit(lex->src[end + 1])) {
        end = digits_end(lex, end + 1);
        real = true;
    }
    if (end + 1 < lex->size && (lex->src[end] == 'e' || lex->src[end] == 'E')) {
        size_t exp = end + 1 + (lex->src[end + 1] == '-' || lex->src[end + 1] == '+');
        if (exp < lex->size && is_digit(lex->src[exp])) {
            end = digits_end(lex, exp);
            real = true;
        }
    }
    return real ? end : 0;
}

static bool is_digit_of(char c, int base) {
    if (base == 2) return c == '0' || c == '1';
    if (base == 8) return c >= '0' && c <= '7';
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static size_t int_end(const md_jlex *lex, size_t pos, int *base) {
    *base = 10;
    if (lex->src[pos] != '0') return digits_end(lex, pos);
    char mark = pos + 1 < lex->size ? lex->src[pos + 1] : 0;
    int prefixed = mark == 'b' || mark == 'B'   ? 2
                   : mark == 'o' || mark == 'O' ? 8
                   : mark == 'x' || mark == 'X' ? 16
                                                : 0;
    if (prefixed) {
        size_t end = pos + 2;
        while (end < lex->size &&
               (is_digit_of(lex->src[end], prefixed) ||
                (lex->src[end] == '_' && end + 1 < lex->size && is_digit_of(lex->src[end + 1], prefixed))))
            end++;
        if (end > pos + 2) {
            *base = prefixed;
            return end;
        }
    }
    size_t end = pos + 1; // zeros only: "07" is two numbers
    while (end < lex->size && (lex->src[end] == '0' || (lex->src[end] == '_' && at(lex, end + 1, "0")))) end++;
    return end;
}

static md_status number_token(md_jlex *lex, md_jtok *out, md_error *err) {
    char text[64];
    int base = 10;
    size_t end = float_end(lex, lex->pos), n = 0;
    bool real = end != 0;
    if (!real) end = int_end(lex, lex->pos, &base);
    for (size_t i = lex->pos + (base != 10 ? 2 : 0); i < end; i++) {
        if (lex->src[i] == '_') continue;
        if (n + 1 == sizeof text) return lex_fail(lex, err, "number with too many digits");
        text[n++] = lex->src[i];
    }
    text[n] = 0;
    errno = 0;
    *out = (md_jtok){.kind = real ? MD_JTOK_FLOAT : MD_JTOK_INT, .line = lex->line};
    if (real)
        out->f = strtod(text, NULL);
    else
        out->i = strtoll(text, NULL, base);
    if (!real && errno == ERANGE) return lex_fail(lex, err, "integer does not fit 64 bits");
    advance_to(lex, end);
    return MD_OK;
}

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// Reads `count` hex digits at src[*pos] as a character; false where they are missing or no Unicode scalar value.
static bool hex_char(const char *src, size_t end, size_t *pos, int count, uint32_t *cp) {
    *cp = 0;
    for (int i = 0; i < count; i++, ++*pos) {
        if (*pos >= end || hex_value(src[*pos]) < 0) return false;
        *cp = *cp << 4 | (uint32_t)hex_value(src[*pos]);
    }
    return *cp <= 0x10ffff && !(*cp >= 0xd800 && *cp <= 0xdfff);
}

// One escape after a backslash at src[*pos], as Python's unicode-escape codec reads it. An unknown one keeps the
// backslash. Returns the bytes written (at most 4 plus the backslash), or SIZE_MAX for a malformed escape.
static size_t unescape(const char *src, size_t end, size_t *pos, char *out) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = src[(*pos)++];
    const char *found = memchr(from, c, sizeof from - 1);
    if (found) {
        out[0] = to[found - from];
        return 1;
    }
    if (c == '\n') return 0;
    uint32_t cp = 0;
    if (c == 'x' || c == 'u' || c == 'U')
        return hex_char(src, end, pos, c == 'x' ? 2 : c == 'u' ? 4 : 8, &cp) ? md_utf8_encode(cp, out) : SIZE_MAX;
    if (c == 'N') return SIZE_MAX;
    if (c >= '0' && c <= '7') {
        cp = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *pos < end && src[*pos] >= '0' && src[*pos] <= '7'; i++, ++*pos)
            cp = cp * 8 + (uint32_t)(src[*pos] - '0');
        return md_utf8_encode(cp, out);
    }
    out[0] = '\\'; // the character itself follows as ordinary text
    --*pos;
    return 1;
}

static md_status string_token(md_jlex *lex, md_jtok *out, md_error *err) {
    char quote = lex->src[lex->pos];
    size_t begin = lex->pos + 1, end = begin;
    while (end < lex->size && lex->src[end] != quote) end += lex->src[end] == '\\' ? 2 : 1;
    if (end >= lex->size) return lex_fail(lex, err, "string without its closing quote");
    char *text = md_arena_alloc(lex->arena, end - begin + 1, 1);
    if (!text) return md_fail(err, MD_E_MEMORY, "%s: out of memory (%zu bytes)", lex->name, end - begin);
    size_t n = 0;
    for (size_t i = begin; i < end;) {
        if (lex->src[i] != '\\') {
            text[n++] = lex->src[i++];
            continue;
        }
        i++;
        size_t put = unescape(lex->src, end, &i, text + n); // never longer than the escape's own text
        if (put == SIZE_MAX) return lex_fail(lex, err, "malformed \\x, \\u, \\U or \\N escape in a string");
        n += put;
    }
    *out = (md_jtok){.kind = MD_JTOK_STRING, .line = lex->line, .text = text, .size = n};
    advance_to(lex, end + 1);
    return MD_OK;
}

static md_status brace(md_jlex *lex, int op, md_error *err) {
    if (op == '(' || op == '[' || op == '{') {
        if (lex->braces == MD_JLEX_MAX_BRACES) return lex_fail(lex, err, "expression nested too deeply");
        lex->open[lex->braces++] = op == '(' ? ')' : op == '[' ? ']' : '}';
    } else if (op == ')' || op == ']' || op == '}') {
        if (lex->braces == 0 || lex->open[--lex->braces] != op)
            return md_fail(err, MD_E_FORMAT, "%s, line %d: unexpected '%c'", lex->name, lex->line, op);
    }
    return MD_OK;
}

static md_status operator_token(md_jlex *lex, md_jtok *out, md_error *err) {
    static const struct {
        char text[3];
        int op;
    } two[] = {{"//", MD_JOP_FLOORDIV}, {"**", MD_JOP_POW}, {"==", MD_JOP_EQ},
               {"!=", MD_JOP_NE},       {">=", MD_JOP_GE},  {"<=", MD_JOP_LE}};
    *out = (md_jtok){.kind = MD_JTOK_OP, .line = lex->line};
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        if (!at(lex, lex->pos, two[i].text)) continue;
        out->op = two[i].op;
        advance_to(lex, lex->pos + 2);
        return MD_OK;
    }
    unsigned char c = (unsigned char)lex->src[lex->pos];
    if (!memchr("+-/*%~[](){}><=.:|,;", c, 20)) {
        size_t end = lex->pos;
        md_u8_next(lex->src, lex->size, &end);
        return md_fail(err, MD_E_FORMAT, "%s, line %d: unexpected character '%.*s'", lex->name, lex->line,
                       (int)(end - lex->pos), lex->src + lex->pos);
    }
    MD_TRY(brace(lex, c, err));
    out->op = c;
    advance_to(lex, lex->pos + 1);
    return MD_OK;
}

static md_status next_in_tag(md_jlex *lex, md_jtok *out, md_error *err) {
    bool variable = lex->state == MD_JLEX_VAR;
    if (lex->begin_pending) {
        *out = begin_token(lex);
        return MD_OK;
    }
    for (;;) {
        // A closing mark counts only outside of braces, and before the white space that could belong to "-%}".
        if (lex->braces == 0) {
            size_t end = close_end(lex, lex->pos, variable ? "}}" : "%}", !variable, !variable);
            if (end) {
                *out = (md_jtok){.kind = variable ? MD_JTOK_VAR_END : MD_JTOK_BLOCK_END, .line = lex->line};
                advance_to(lex, end);
                lex->state = MD_JLEX_ROOT;
                return MD_OK;
            }
        }
        size_t next = skip_space(lex, lex->pos);
        if (next == lex->pos) break;
        advance_to(lex, next);
    }
    if (lex->pos >= lex->size) {
        *out = (md_jtok){.kind = MD_JTOK_EOF, .line = lex->line};
        return MD_OK;
    }
    char c = lex->src[lex->pos];
    if (is_digit(c)) return number_token(lex, out, err);
    if (c == '\'' || c == '"') return string_token(lex, out, err);
    if (!is_name_char(c)) return operator_token(lex, out, err);
    size_t end = lex->pos;
    while (end < lex->size && is_name_char(lex->src[end])) end++;
    *out = (md_jtok){.kind = MD_JTOK_NAME, .line = lex->line, .text = lex->src + lex->pos, .size = end - lex->pos};
    lex->pos = end;
    return MD_OK;
}

md_status md_jlex_next(md_jlex *lex, md_jtok *out, md_error *err) {
    switch (lex->state) {
    case MD_JLEX_ROOT: return next_root(lex, out, err);
    case MD_JLEX_RAW: return next_raw(lex, out, err);
    default: return next_in_tag(lex, out, err);
    }
}
