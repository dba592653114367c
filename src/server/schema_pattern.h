// Regular expressions of a schema ("pattern", and those that stand for a "format"): the part of ECMA-262's syntax that
// describes a regular language, as a grammar. A pattern may match anywhere in a string unless it is anchored, as JSON
// Schema has it. \d, \w and \s are ECMA's. What is no regular language or needs Unicode's tables (look-around, back
// references, \b, \p{...}) is refused by name.
#ifndef MD_SERVER_SCHEMA_PATTERN_H
#define MD_SERVER_SCHEMA_PATTERN_H

#include "server/charset.h"

typedef struct md_schema_pattern md_schema_pattern;

// MD_E_USAGE: a syntax error; MD_E_UNSUPPORTED: what is not modelled; messages begin with `path`. *out is owned.
md_status md_schema_pattern_parse(const char *text, size_t n, const char *path, md_schema_pattern **out, md_error *err);
void md_schema_pattern_free(md_schema_pattern *pattern); // NULL is fine

// Narrows it to strings of min to max characters (max MD_GRAMMAR_UNBOUNDED: any number). Possible where the pattern
// keeps the bounds anyway, or has one part that repeats a character while all else has a fixed length.
// MD_E_UNSUPPORTED otherwise, MD_E_USAGE when no string would be left.
md_status md_schema_pattern_bound(md_schema_pattern *pattern, uint32_t min, uint32_t max, const char *path,
                                  md_error *err);

// Appends code that reads a string that matches, and goes on behind itself.
md_status md_schema_pattern_emit(const md_schema_pattern *pattern, md_grammar *grammar, md_text_form form,
                                 md_error *err);

#endif
