// Which JSON types a tool's parameter may have, as its schema says: what decides whether the text of an XML call's
// parameter is a string or JSON.
#ifndef MD_CHAT_PARAM_TYPES_H
#define MD_CHAT_PARAM_TYPES_H

#include <jansson.h>
#include <stddef.h>

enum {
    MD_PARAM_STRING = 1,
    MD_PARAM_NULL = 2,
    MD_PARAM_OTHER = 4 // numbers, booleans, arrays, objects
};

// Of the schema's "type", "const", "enum", "anyOf", "oneOf", "allOf" and "$ref" into `root`, as far as they say;
// 0: nothing is said. `schema` may be NULL.
unsigned md_param_types(const json_t *root, const json_t *schema);

// The schema of a function's parameter; NULL where nothing is declared.
const json_t *md_param_schema(const json_t *function, const char *name, size_t n);

#endif
