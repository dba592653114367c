#include "chat/jinja/u8.h"

#include <utf8proc.h>

static bool continuation(unsigned char c) { return (c & 0xc0u) == 0x80u; }

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
