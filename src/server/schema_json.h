// The parts of JSON's own grammar that every schema is made of. Each md_json_* function appends code that reads the
// part and goes on behind itself.
#ifndef MD_SERVER_SCHEMA_JSON_H
#define MD_SERVER_SCHEMA_JSON_H

#include "server/grammar.h"

typedef struct md_json_parts {
    uint32_t space, character, string, number, integer, value, object; // subroutines
} md_json_parts;

// Appends the subroutines.
md_status md_json_parts_emit(md_grammar *grammar, md_json_parts *parts, md_error *err);

md_status md_json_call(md_grammar *grammar, uint32_t subroutine, md_error *err);

// A string of min to max characters (code points); max MD_GRAMMAR_UNBOUNDED: any number.
md_status md_json_string(md_grammar *grammar, const md_json_parts *parts, uint32_t min, uint32_t max, md_error *err);
// An array of min to max items that subroutine `item` reads.
md_status md_json_array(md_grammar *grammar, const md_json_parts *parts, uint32_t item, uint32_t min, uint32_t max,
                        md_error *err);
// An object of any number of members, each read by subroutine `member`.
md_status md_json_map(md_grammar *grammar, const md_json_parts *parts, uint32_t member, md_error *err);

// Alternatives:
//     md_json_choice choice = MD_JSON_CHOICE;
//     for each one: md_json_alternative(grammar, &choice, another follows); <its code>; md_json_join(grammar, &choice);
//     md_json_choice_end(grammar, &choice);
typedef struct md_json_choice {
    uint32_t split; // the open split whose second way is not known yet; UINT32_MAX: none
    uint32_t joins; // chain of jumps to the end, linked through their `a`; UINT32_MAX: none
} md_json_choice;
#define MD_JSON_CHOICE                                                                                                 \
    { UINT32_MAX, UINT32_MAX }
md_status md_json_alternative(md_grammar *grammar, md_json_choice *choice, bool more, md_error *err);
md_status md_json_join(md_grammar *grammar, md_json_choice *choice, md_error *err);
void md_json_choice_end(md_grammar *grammar, md_json_choice *choice);

#endif
