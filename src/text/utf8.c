#include "text/utf8.h"

uint32_t md_utf8_decode(const char *text, size_t n, size_t *size) {
    const unsigned char *at = (const unsigned char *)text;
    uint32_t first = at[0];
    if (first < 0x80 || n < 2) {
        *size = 1;
        return first;
    }
    if (first < 0xe0 || n < 3) {
        *size = 2;
        return (first & 0x1fu) << 6 | (at[1] & 0x3fu);
    }
    if (first < 0xf0 || n < 4) {
        *size = 3;
        return (first & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    }
    *size = 4;
    return (first & 0x07u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}

size_t md_utf8_last(const char *text, size_t n) {
    size_t at = n - 1;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return at;
}

size_t md_utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

bool md_utf8_single(const char *text, size_t n, uint32_t *cp) {
    size_t size;
    if (n == 0 || md_utf8_scan(text, n, &size) != MD_UTF8_CHAR || size != n) return false;
    *cp = md_utf8_decode(text, n, &size);
    return true;
}
