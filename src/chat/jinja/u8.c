#include "chat/jinja/u8.h"

#include <utf8proc.h>

static bool continuation(unsigned char c) { return (c & 0xc0u) == 0x80u; }

// Length of the valid character at p (1 to 4 bytes), 0 where there is none.
static size_t char_size(const unsigned char *p, size_t n) {
    if (p[0] < 0x80) return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) return n >= 2 && continuation(p[1]) ? 2 : 0;
    if (p[0] >= 0xe0 && p[0] <= 0xef) {
        if (n < 3 || !continuation(p[1]) || !continuation(p[2])) return 0;
        if (p[0] == 0xe0 && p[1] < 0xa0) return 0; // overlong
        if (p[0] == 0xed && p[1] > 0x9f) return 0; // surrogate
        return 3;
    }
    if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        if (n < 4 || !continuation(p[1]) || !continuation(p[2]) || !continuation(p[3])) return 0;
        if (p[0] == 0xf0 && p[1] < 0x90) return 0;
        if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
        return 4;
    }
    return 0;
}

bool md_u8_valid(const char *bytes, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t size = char_size((const unsigned char *)bytes + i, n - i);
        if (size == 0) return false;
        i += size;
    }
    return true;
}

uint32_t md_u8_next(const char *bytes, size_t n, size_t *pos) {
    const unsigned char *p = (const unsigned char *)bytes + *pos;
    size_t size = char_size(p, n - *pos);
    *pos += size ? size : 1;
    switch (size) {
    case 2: return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    case 3: return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    case 4: return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    default: return p[0];
    }
}

size_t md_u8_prev(const char *bytes, size_t pos) {
    do pos--;
    while (pos > 0 && continuation((unsigned char)bytes[pos]));
    return pos;
}

size_t md_u8_count(const char *bytes, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += !continuation((unsigned char)bytes[i]);
    return count;
}

size_t md_u8_offset(const char *bytes, size_t n, size_t index) {
    size_t pos = 0;
    for (; pos < n; pos++) {
        if (continuation((unsigned char)bytes[pos])) continue;
        if (index-- == 0) return pos;
    }
    return n;
}

size_t md_u8_put(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0u | cp >> 6);
        out[1] = (char)(0x80u | (cp & 0x3fu));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0u | cp >> 12);
        out[1] = (char)(0x80u | (cp >> 6 & 0x3fu));
        out[2] = (char)(0x80u | (cp & 0x3fu));
        return 3;
    }
    out[0] = (char)(0xf0u | cp >> 18);
    out[1] = (char)(0x80u | (cp >> 12 & 0x3fu));
    out[2] = (char)(0x80u | (cp >> 6 & 0x3fu));
    out[3] = (char)(0x80u | (cp & 0x3fu));
    return 4;
}

bool md_u8_is_space(uint32_t cp) {
    if (cp < 0x80) return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool md_u8_is_printable(uint32_t cp) {
    if (cp < 0x80) return cp >= 0x20 && cp < 0x7f;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

bool md_u8_is_alpha(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
    }
}

bool md_u8_is_digit(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND;
}

bool md_u8_is_lower(uint32_t cp) { return utf8proc_islower((utf8proc_int32_t)cp) != 0; }
bool md_u8_is_upper(uint32_t cp) { return utf8proc_isupper((utf8proc_int32_t)cp) != 0; }

bool md_u8_is_cased(uint32_t cp) {
    return md_u8_is_lower(cp) || md_u8_is_upper(cp) || utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LT;
}

uint32_t md_u8_lower(uint32_t cp) { return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp); }
uint32_t md_u8_upper(uint32_t cp) { return (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp); }
uint32_t md_u8_title(uint32_t cp) { return (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp); }
