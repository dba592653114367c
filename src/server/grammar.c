#include "server/grammar.h"

#include <stdlib.h>

enum { CODE_MAX = 1 << 18 };

void md_grammar_free(md_grammar *grammar) {
    free(grammar->code);
    *grammar = (md_grammar){0};
}

md_status md_grammar_emit(md_grammar *grammar, md_grammar_op op, uint32_t a, uint32_t b, uint32_t *at, md_error *err) {
    if (grammar->size == grammar->cap) {
        if (grammar->cap == CODE_MAX)
            return md_fail(err, MD_E_UNSUPPORTED,
                           "response_format: the schema is too large to constrain an answer with");
        uint32_t cap = grammar->cap ? 2 * grammar->cap : 256;
        md_grammar_instruction *code = realloc(grammar->code, cap * sizeof *code);
        if (!code) return md_fail(err, MD_E_MEMORY, "response_format: out of memory");
        grammar->code = code;
        grammar->cap = cap;
    }
    if (at) *at = grammar->size;
    grammar->code[grammar->size++] = (md_grammar_instruction){op, a, b};
    return MD_OK;
}

md_status md_grammar_emit_bytes(md_grammar *grammar, const char *bytes, size_t n, md_error *err) {
    for (size_t i = 0; i < n; i++) {
        uint32_t byte = (unsigned char)bytes[i];
        MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_RANGE, byte, byte, NULL, err));
    }
    return MD_OK;
}
