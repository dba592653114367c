#include "text/byte_level.h"

#include <stdint.h>

#include "text/utf8.h"

static bool is_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint32_t md_byte_level_char(unsigned char byte) {
    if (is_itself(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xa0) return 0x121u + (byte - 0x7fu);
    return 0x143u; // 0xad
}

int md_byte_level_byte(uint32_t cp) {
    if (cp < 0x100) return is_itself(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7f);
    return cp == 0x143 ? 0xad : -1;
}

md_status md_byte_level_encode(const char *bytes, size_t n, md_buf *out) {
    char text[256];
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        used += md_utf8_encode(md_byte_level_char((unsigned char)bytes[i]), text + used);
        if (used > sizeof text - 4 || i + 1 == n) {
            MD_TRY(md_buf_append(out, text, used));
            used = 0;
        }
    }
    return MD_OK;
}

md_status md_byte_level_decode(const char *text, size_t n, md_buf *out) {
    size_t before = out->size, size;
    for (size_t at = 0; at < n; at += size) {
        int byte = md_byte_level_byte(md_utf8_decode(text + at, n - at, &size));
        if (byte < 0) {
            out->size = before;
            return md_buf_append(out, text, n);
        }
        MD_TRY(md_buf_putc(out, (char)byte));
    }
    return MD_OK;
}
