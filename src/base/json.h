// JSON in and out: a thin layer over jansson that fixes its options and words its errors as the project does.
//
// Reading always rejects duplicate keys, invalid UTF-8 and nesting deeper than jansson's own limit.
#ifndef MD_BASE_JSON_H
#define MD_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// Parses `n` bytes. `what` names the source in messages (a path, "request body"). With `allow_nul` strings may hold
// U+0000 (then use json_string_length). *out is a new reference.
md_status md_json_parse(const char *bytes, size_t n, bool allow_nul, const char *what, json_t **out, md_error *err);

// jansson leaves out or cuts what it cannot allocate, and seldom says so. This is the number of its allocations that
// have failed in this thread: whoever builds JSON compares it before and after, and takes the result only when it is
// the same.
uint64_t md_json_losses(void);

// json_loadb, but that it gives NULL and counts a loss where an allocation fails (json_loadb is not safe then).
json_t *md_json_load(const char *bytes, size_t n, size_t flags, json_error_t *error);

// Reads and parses a file of at most `max` bytes.
md_status md_json_read_file(const char *path, size_t max, json_t **out, md_error *err);

// Typed members of an object. A missing or null member leaves *out as it was (the default) and returns MD_OK; a member
// of another type or outside [min, max] is MD_E_FORMAT naming `what` and the key. A whole real (4096.0) is not an int.
md_status md_json_get_int(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
                          const char *what, md_error *err);
md_status md_json_get_number(const json_t *object, const char *key, double min, double max, double *out,
                             const char *what, md_error *err);
md_status md_json_get_bool(const json_t *object, const char *key, bool *out, const char *what, md_error *err);
// *out borrows from the object.
md_status md_json_get_string(const json_t *object, const char *key, const char **out, const char *what, md_error *err);

// Text as a JSON string; a path in it may be no UTF-8, and then shows '?' for its bytes above 127.
json_t *md_json_text(const char *text);

const char *md_json_type_name(const json_t *value); // "a string", "an object", "nothing", ...

#endif
