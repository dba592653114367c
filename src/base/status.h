// Status codes and error texts: how every fallible function reports what went wrong.
//
// A function that can fail returns md_status and takes `md_error *err` as its last parameter. `err` may be NULL
// when the caller does not want the text. On MD_OK the error is left untouched.
#ifndef MD_BASE_STATUS_H
#define MD_BASE_STATUS_H

#include <stdarg.h>

#include "megadecode.h" // md_status, md_error: the public types

#if defined(__GNUC__)
#define MD_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define MD_PRINTF(fmt, args)
#endif

// Records `code` and the formatted text in `err` (truncated to fit) and returns `code`, so that a failing function
// can end with `return md_fail(err, MD_E_FORMAT, "...")`. Say which file, tensor or field; what was found; what was
// expected.
md_status md_fail(md_error *err, md_status code, const char *fmt, ...) MD_PRINTF(3, 4);

// Puts a formatted context and ": " before the text already in `err` (which file, which layer). Returns err->code,
// or `code` when err is NULL.
md_status md_fail_context(md_error *err, md_status code, const char *fmt, ...) MD_PRINTF(3, 4);

// Evaluates `expr` (an md_status); returns it from the calling function unless it is MD_OK.
#define MD_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        md_status md_try_status_ = (expr);                                                                             \
        if (md_try_status_ != MD_OK) return md_try_status_;                                                            \
    } while (0)

// The same for functions with one `fail:` exit: stores the status in the local variable `status` and jumps there.
#define MD_TRY_GOTO(expr)                                                                                              \
    do {                                                                                                               \
        status = (expr);                                                                                               \
        if (status != MD_OK) goto fail;                                                                                \
    } while (0)

#endif
