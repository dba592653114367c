// The parts of JSON's own grammar that every schema is made of. Each md_json_* function appends code that reads the
// part and goes on behind itself.
#ifndef MD_SERVER_SCHEMA_JSON_H
#define MD_SERVER_SCHEMA_JSON_H

#include "server/charset.h"

typedef struct md_json_parts {
    md_text_form form;                                                 // of the strings; not MD_TEXT_RAW
    uint32_t space, character, string, number, integer, value, object; // subroutines
    uint32_t raw_character;                                            // one of MD_TEXT_RAW; with MD_TEXT_JSON_LT only
} md_json_parts;

// Appends the subroutines.
md_status md_json_parts_emit(md_grammar *grammar, md_text_form form, md_json_parts *parts, md_error *err);

md_status md_json_call(md_grammar *grammar, uint32_t subroutine, md_error *err);

// A string of min to max characters (code points); max MD_GRAMMAR_UNBOUNDED: any number.
md_status md_json_string(md_grammar *grammar, const md_json_parts *parts, uint32_t min, uint32_t max, md_error *err);
// min to max characters, each read by the subroutine `character`.
md_status md_json_characters(md_grammar *grammar, uint32_t character, uint32_t min, uint32_t max, md_error *err);
// An array of min to max items that subroutine `item` reads.
md_status md_json_array(md_grammar *grammar, const md_json_parts *parts, uint32_t item, uint32_t min, uint32_t max,
                        md_error *err);
// An object of any number of members, each read by subroutine `member`.
md_status md_json_map(md_grammar *grammar, const md_json_parts *parts, uint32_t member, md_error *err);

#endif
