#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *md_status_name(md_status status) {
    switch (status) {
    case MD_OK: return "ok";
    case MD_E_USAGE: return "usage";
    case MD_E_IO: return "io";
    case MD_E_FORMAT: return "format";
    case MD_E_UNSUPPORTED: return "unsupported";
    case MD_E_MEMORY: return "memory";
    case MD_E_CONTEXT: return "context";
    case MD_E_TIMEOUT: return "timeout";
    case MD_E_CANCELLED: return "cancelled";
    case MD_E_DEVICE: return "device";
    case MD_E_NOT_FOUND: return "not_found";
    case MD_E_INTERNAL: return "internal";
    }
    return "unknown";
}

// Bytes of the UTF-8 character at `s`, 0 where there is none (the Unicode Standard, table 3-7). Ends at a NUL.
static size_t character_size(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    unsigned char least = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char most = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < least || s[1] > most) return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return n;
}

// Messages quote names out of files and requests: what was cut in the middle of a character or is no UTF-8 becomes a
// question mark, and so do control characters, which a terminal would obey.
static void clean(char *text) {
    unsigned char *to = (unsigned char *)text;
    for (const unsigned char *from = to; *from;) {
        size_t n = character_size(from);
        bool control = (*from < 0x20 && *from != '\n' && *from != '\t') || *from == 0x7f ||
                       (n == 2 && *from == 0xc2 && from[1] < 0xa0); // C1, too
        if (n == 0 || control) {
            *to++ = '?';
            do from++;
            while ((*from & 0xc0) == 0x80);
            continue;
        }
        while (n--) *to++ = *from++;
    }
    *to = 0;
}

md_status md_fail(md_error *err, md_status code, const char *fmt, ...) {
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->message, sizeof err->message, fmt, ap);
        va_end(ap);
        clean(err->message);
        err->code = code;
    }
    return code;
}

md_status md_fail_context(md_error *err, md_status code, const char *fmt, ...) {
    if (!err) return code;
    char context[sizeof err->message];
    char text[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    memcpy(text, err->message, sizeof text);
    size_t used = strlen(context);
    if (used > sizeof err->message / 2) used = sizeof err->message / 2;
    snprintf(err->message, sizeof err->message, "%.*s: %.*s", (int)used, context, (int)(sizeof err->message - used - 3),
             text);
    clean(err->message);
    return err->code == MD_OK ? code : err->code;
}
