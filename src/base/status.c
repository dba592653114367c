#include "base/status.h"

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

md_status md_fail(md_error *err, md_status code, const char *fmt, ...) {
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->message, sizeof err->message, fmt, ap);
        va_end(ap);
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
    return err->code == MD_OK ? code : err->code;
}
