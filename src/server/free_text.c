#include "server/free_text.h"

#include "server/charset.h"
#include "server/choice.h"

// State k has read k characters of the mark.
md_status md_free_text_emit(md_grammar *grammar, const char *mark, uint32_t *end, md_error *err) {
    uint32_t states[MD_MARK_MAX];
    for (size_t k = 0; mark[k]; k++) {
        uint32_t split;
        md_choice choice = MD_CHOICE;
        md_charset other = {.count = 0};
        states[k] = grammar->size;
        if (end) {
            MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 2, grammar->size + 1, NULL, err));
            MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, *end, 0, end, err)); // linked through the jumps' `a`
        }
        MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &split, err));
        MD_TRY(md_choice_begin(grammar, &choice, k > 0, err));
        md_charset_add(&other, (unsigned char)mark[k], (unsigned char)mark[k]);
        md_charset_negate(&other);
        MD_TRY(md_charset_emit(grammar, &other, MD_TEXT_RAW, err)); // none of them is "<"
        MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, states[0], 0, NULL, err));
        if (k > 0) {
            MD_TRY(md_choice_begin(grammar, &choice, false, err));
            MD_TRY(md_grammar_emit_bytes(grammar, "<", 1, err));
            MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, states[1], 0, NULL, err));
        }
        grammar->code[split].b = grammar->size;
        MD_TRY(md_grammar_emit_bytes(grammar, mark + k, 1, err));
    }
    return MD_OK;
}

void md_free_text_end(md_grammar *grammar, uint32_t end) {
    for (uint32_t next; end != UINT32_MAX; end = next) {
        next = grammar->code[end].a;
        grammar->code[end].a = grammar->size;
    }
}
