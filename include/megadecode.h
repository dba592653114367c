// megadecode: Llama-family models in MLX's quantized format, the whole decode step in one resident kernel.
//
// The one public header. Every function that can fail returns md_status and takes `md_error *err` last (may be NULL).
// Strings are UTF-8. Nothing here calls exit() or prints.
#ifndef MEGADECODE_H
#define MEGADECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MD_API __attribute__((visibility("default")))
#else
#define MD_API
#endif

// ---------------------------------------------------------------- status ----------------------------------------

typedef enum md_status {
    MD_OK = 0,
    MD_E_USAGE,       // an argument the caller passed is wrong
    MD_E_IO,          // the operating system refused or failed
    MD_E_FORMAT,      // a file or message does not hold what its format says
    MD_E_UNSUPPORTED, // well-formed, but not something this program models; the message names it
    MD_E_MEMORY,      // out of memory; the message says how much was asked for
    MD_E_CONTEXT,     // a limit of the session (context length, budget) is reached
    MD_E_TIMEOUT,     // a bounded wait ran out; the message names worker, stage, expected and seen
    MD_E_CANCELLED,   // the caller asked to stop
    MD_E_DEVICE,      // a GPU, driver or library is missing or failed
    MD_E_NOT_FOUND,   // no such file, model or repository
    MD_E_INTERNAL     // a fault of the library itself
} md_status;

typedef struct md_error {
    md_status code;
    char message[512]; // NUL-terminated: which file, tensor or field; found; expected
} md_error;

MD_API const char *md_status_name(md_status status); // "ok", "usage", "format", ...
MD_API const char *md_version(void);                 // "0.1.0"

#ifdef __cplusplus
}
#endif

#endif
