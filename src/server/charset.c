#include "server/charset.h"

#include <stdio.h>
#include <string.h>

#include "server/choice.h"

enum { LAST = 0x10ffff, SURROGATES = 0xd800, SURROGATES_END = 0xdfff };

// ---- sets ------------------------------------------------------------------------------------------------------

static bool add(md_charset *set, uint32_t low, uint32_t high) {
    if (low > high) return true;
    uint32_t i = 0;
    while (i < set->count && set->high[i] + 1 < low) i++; // those that lie before it
    uint32_t end = i;
    for (; end < set->count && set->low[end] <= high + 1; end++) { // those it touches become one with it
        if (set->low[end] < low) low = set->low[end];
        if (set->high[end] > high) high = set->high[end];
    }
    if (end == i && set->count == MD_CHARSET_RANGES) return false;
    size_t behind = (set->count - end) * sizeof *set->low;
    memmove(set->low + i + 1, set->low + end, behind);
    memmove(set->high + i + 1, set->high + end, behind);
    set->low[i] = low;
    set->high[i] = high;
    set->count = set->count + 1 - (end - i);
    return true;
}

bool md_charset_add(md_charset *set, uint32_t low, uint32_t high) {
    if (high > LAST) high = LAST;
    if (high < SURROGATES || low > SURROGATES_END) return add(set, low, high);
    return add(set, low, SURROGATES - 1) && add(set, SURROGATES_END + 1, high);
}

bool md_charset_add_all(md_charset *set, const md_charset *other) {
    for (uint32_t i = 0; i < other->count; i++)
        if (!add(set, other->low[i], other->high[i])) return false;
    return true;
}

bool md_charset_negate(md_charset *set) {
    md_charset out = {.count = 0};
    uint32_t next = 0; // the first that is not decided yet
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->low[i] > next && !md_charset_add(&out, next, set->low[i] - 1)) return false;
        next = set->high[i] + 1;
    }
    if (next <= LAST && !md_charset_add(&out, next, LAST)) return false;
    *set = out;
    return true;
}

bool md_charset_equal(const md_charset *a, const md_charset *b) {
    size_t bytes = a->count * sizeof *a->low;
    return a->count == b->count && memcmp(a->low, b->low, bytes) == 0 && memcmp(a->high, b->high, bytes) == 0;
}

// ---- how a character is written --------------------------------------------------------------------------------

static uint32_t encode(uint32_t c, uint8_t out[4]) {
    if (c < 0x80) return out[0] = (uint8_t)c, 1;
    uint32_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (uint32_t i = n; i-- > 1; c >>= 6) out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(heads[n] | c);
    return n;
}

// One alternative: the UTF-8 of low to high, each byte of which lies in a range of its own.
static md_status emit_bytes(md_grammar *grammar, md_choice *choice, uint32_t low, uint32_t high, md_error *err) {
    uint8_t a[4], b[4];
    uint32_t n = encode(low, a);
    encode(high, b);
    MD_TRY(md_choice_begin(grammar, choice, true, err));
    for (uint32_t i = 0; i < n; i++) MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_RANGE, a[i], b[i], NULL, err));
    return md_choice_join(grammar, choice, err);
}

// Cuts a range until, of each part, the last bytes run through all of their values wherever the ones before differ.
static md_status emit_utf8(md_grammar *grammar, md_choice *choice, uint32_t low, uint32_t high, md_error *err) {
    static const uint32_t last_of_length[] = {0x7f, 0x7ff, 0xffff, LAST};
    while (low <= high) {
        uint32_t end = high, n = 0;
        while (low > last_of_length[n]) n++;
        if (end > last_of_length[n]) end = last_of_length[n];
        for (uint32_t bits = 6; bits <= 6 * n; bits += 6) {
            uint32_t mask = (1u << bits) - 1;
            if ((low & ~mask) == (end & ~mask)) continue;
            if (low & mask)
                end = low | mask;
            else if ((end & mask) != mask)
                end = (end & ~mask) - 1;
        }
        MD_TRY(emit_bytes(grammar, choice, low, end, err));
        low = end + 1;
    }
    return MD_OK;
}

// The ways other than itself that a character may be written in: *n of them.
static void find_escapes(uint32_t c, md_text_form form, char out[2][8], uint32_t *n) {
    static const char from[] = "\"\\/\b\f\n\r\t", to[] = "\"\\/bfnrt";
    *n = 0;
    if (form == MD_TEXT_RAW) return;
    const char *found = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (found)
        snprintf(out[(*n)++], 8, "\\%c", to[found - from]);
    else if (c < 0x20 || (c == '<' && form == MD_TEXT_JSON_LT))
        snprintf(out[(*n)++], 8, "\\u%04x", c);
}

// May it stand as it is?
static bool is_plain(uint32_t c, md_text_form form) {
    switch (form) {
    case MD_TEXT_RAW: return c != '<' && (c >= 0x20 || c == '\n' || c == '\t');
    case MD_TEXT_JSON_LT:
        if (c == '<') return false;
        break;
    case MD_TEXT_JSON: break;
    }
    return c >= 0x20 && c != '"' && c != '\\';
}

// Of the part of a range that may need escapes, below U+0080: one character at a time. *low: where it ends.
static md_status emit_ascii(md_grammar *grammar, md_choice *choice, uint32_t *low, uint32_t high, md_text_form form,
                            md_error *err) {
    while (*low <= high && *low < 0x80) {
        uint32_t c = *low, n, end;
        char escapes[2][8];
        find_escapes(c, form, escapes, &n);
        for (uint32_t i = 0; i < n; i++) {
            MD_TRY(md_choice_begin(grammar, choice, true, err));
            MD_TRY(md_grammar_emit_bytes(grammar, escapes[i], strlen(escapes[i]), err));
            MD_TRY(md_choice_join(grammar, choice, err));
        }
        *low = c + 1;
        if (!is_plain(c, form)) continue;
        for (end = c; end < high && end < 0x7f && is_plain(end + 1, form); end++) { // a run that needs no escapes
            find_escapes(end + 1, form, escapes, &n);
            if (n) break;
        }
        MD_TRY(emit_bytes(grammar, choice, c, end, err));
        *low = end + 1;
    }
    return MD_OK;
}

md_status md_charset_emit(md_grammar *grammar, const md_charset *set, md_text_form form, md_error *err) {
    md_choice choice = MD_CHOICE;
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t low = set->low[i];
        MD_TRY(emit_ascii(grammar, &choice, &low, set->high[i], form, err));
        MD_TRY(emit_utf8(grammar, &choice, low, set->high[i], err));
    }
    MD_TRY(md_choice_begin(grammar, &choice, false, err));
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_RANGE, 1, 0, NULL, err)); // no byte: the end of the alternatives
    md_choice_end(grammar, &choice);
    return MD_OK;
}

md_status md_text_emit(md_grammar *grammar, const char *text, size_t n, md_text_form form, md_error *err) {
    for (size_t i = 0; i < n; i++) {
        uint32_t c = (unsigned char)text[i], count;
        char escapes[2][8];
        find_escapes(c, form, escapes, &count);
        if (c >= 0x80 || is_plain(c, form))
            MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_RANGE, c, c, NULL, err));
        else
            MD_TRY(md_grammar_emit_bytes(grammar, escapes[0], strlen(escapes[0]), err));
    }
    return MD_OK;
}
