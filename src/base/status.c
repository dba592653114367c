#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

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

// Messages quote names out of files and requests: what was cut in the middle of a character or is no UTF-8 becomes a
// question mark, and so do control characters, which a terminal would obey.
static void clean(char *text) {
    char *to = text;
    for (const char *from = text, *end = text + strlen(text); from < end;) {
        const unsigned char *at = (const unsigned char *)from;
        size_t size;
        bool whole = md_utf8_scan(from, (size_t)(end - from), &size) == MD_UTF8_CHAR;
        bool control = (at[0] < 0x20 && at[0] != '\n' && at[0] != '\t') || at[0] == 0x7f ||
                       (at[0] == 0xc2 && at[1] < 0xa0); // C1, too
        if (whole && !control) {
            memmove(to, from, size);
            to += size, from += size;
            continue;
        }
        *to++ = '?'; // for what stands there and all that would go on with it
        do from++;
        while (((unsigned char)*from & 0xc0) == 0x80);
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
