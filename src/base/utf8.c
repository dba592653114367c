#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

md_utf8_kind md_utf8_scan(const char *bytes, size_t n, size_t *size) {
    const unsigned char *at = (const unsigned char *)bytes;
    *size = 1;
    unsigned char first = at[0];
    if (first < 0x80) return MD_UTF8_CHAR;
    size_t need;
    unsigned char low = 0x80, high = 0xbf; // what the second byte may be: no overlong form, no surrogate, <= U+10FFFF
    if (first >= 0xc2 && first <= 0xdf) {
        need = 2;
    } else if (first >= 0xe0 && first <= 0xef) {
        need = 3;
        if (first == 0xe0) low = 0xa0;
        if (first == 0xed) high = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
        need = 4;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f;
    } else {
        return MD_UTF8_INVALID;
    }
    for (size_t i = 1; i < need; i++) {
        *size = i;
        if (i == n) return MD_UTF8_INCOMPLETE;
        if (at[i] < low || at[i] > high) return MD_UTF8_INVALID;
        low = 0x80;
        high = 0xbf;
    }
    *size = need;
    return MD_UTF8_CHAR;
}

size_t md_utf8_valid_prefix(const char *bytes, size_t n) {
    size_t at = 0;
    while (at < n) {
        uint64_t word;
        if (n - at >= sizeof word) { // eight ASCII bytes at a time
            memcpy(&word, bytes + at, sizeof word);
            if (!(word & 0x8080808080808080u)) {
                at += sizeof word;
                continue;
            }
        }
        size_t size;
        if (md_utf8_scan(bytes + at, n - at, &size) != MD_UTF8_CHAR) return at;
        at += size;
    }
    return n;
}

md_status md_utf8_check(const char *what, const char *bytes, size_t n, md_status code, md_error *err) {
    size_t at = md_utf8_valid_prefix(bytes, n), size;
    if (at == n) return MD_OK;
    bool cut = md_utf8_scan(bytes + at, n - at, &size) == MD_UTF8_INCOMPLETE;
    return md_fail(err, code, "%s: found 0x%02X at byte offset %zu%s, expected UTF-8", what, (unsigned char)bytes[at],
                   at, cut ? ", where the text ends in the middle of a character" : "");
}
