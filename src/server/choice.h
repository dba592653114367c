// Alternatives in a grammar:
//     md_choice choice = MD_CHOICE;
//     for each one: md_choice_begin(grammar, &choice, another follows); <its code>; md_choice_join(grammar, &choice);
//     md_choice_end(grammar, &choice);
#ifndef MD_SERVER_CHOICE_H
#define MD_SERVER_CHOICE_H

#include "server/grammar.h"

typedef struct md_choice {
    uint32_t split; // the open split whose second way is not known yet; UINT32_MAX: none
    uint32_t joins; // chain of jumps to the end, linked through their `a`; UINT32_MAX: none
} md_choice;
#define MD_CHOICE                                                                                                      \
    { UINT32_MAX, UINT32_MAX }

md_status md_choice_begin(md_grammar *grammar, md_choice *choice, bool more, md_error *err);
md_status md_choice_join(md_grammar *grammar, md_choice *choice, md_error *err);
void md_choice_end(md_grammar *grammar, md_choice *choice);

#endif
