#include "server/choice.h"

md_status md_choice_begin(md_grammar *grammar, md_choice *choice, bool more, md_error *err) {
    if (choice->split != UINT32_MAX) grammar->code[choice->split].b = grammar->size;
    choice->split = UINT32_MAX;
    if (!more) return MD_OK;
    uint32_t at;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &at, err));
    choice->split = at;
    return MD_OK;
}

md_status md_choice_join(md_grammar *grammar, md_choice *choice, md_error *err) {
    uint32_t at;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, choice->joins, 0, &at, err));
    choice->joins = at;
    return MD_OK;
}

void md_choice_end(md_grammar *grammar, md_choice *choice) {
    for (uint32_t at = choice->joins; at != UINT32_MAX;) {
        uint32_t next = grammar->code[at].a;
        grammar->code[at].a = grammar->size;
        at = next;
    }
}
