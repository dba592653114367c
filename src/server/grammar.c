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
                           "response_format or tools: the schema is too large to constrain an answer with");
        uint32_t cap = grammar->cap ? 2 * grammar->cap : 256;
        md_grammar_instruction *code = realloc(grammar->code, cap * sizeof *code);
        if (!code) return md_fail(err, MD_E_MEMORY, "out of memory");
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

static uint32_t height_of(const md_grammar *grammar, const uint32_t *heights, uint32_t at) {
    md_grammar_instruction code = grammar->code[at];
    uint32_t next = at + 1 < grammar->size ? heights[at + 1] : MD_GRAMMAR_UNBOUNDED, other;
    switch (code.op) {
    case MD_GRAMMAR_RANGE: return code.a > code.b ? MD_GRAMMAR_UNBOUNDED : next;
    case MD_GRAMMAR_JUMP: return heights[code.a];
    case MD_GRAMMAR_SPLIT: return heights[code.a] < heights[code.b] ? heights[code.a] : heights[code.b];
    case MD_GRAMMAR_CALL:
        other = heights[code.a];
        if (other == MD_GRAMMAR_UNBOUNDED || next == MD_GRAMMAR_UNBOUNDED) return MD_GRAMMAR_UNBOUNDED;
        return other + 1 > next ? other + 1 : next;
    case MD_GRAMMAR_ZERO: return next == MD_GRAMMAR_UNBOUNDED ? next : next + 1;
    case MD_GRAMMAR_COUNT: return next;
    case MD_GRAMMAR_END: return next == MD_GRAMMAR_UNBOUNDED || next == 0 ? next : next - 1;
    case MD_GRAMMAR_RETURN:
    case MD_GRAMMAR_MATCH: break;
    }
    return 0;
}

md_status md_grammar_heights(const md_grammar *grammar, uint32_t **out, md_error *err) {
    uint32_t *heights = *out = malloc((grammar->size + 1) * sizeof *heights);
    if (!heights) return md_fail(err, MD_E_MEMORY, "out of memory");
    for (uint32_t i = 0; i < grammar->size; i++) heights[i] = MD_GRAMMAR_UNBOUNDED;
    // They only sink; from the end to the beginning, as most of a routine's needs come from what follows.
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = grammar->size; i-- > 0;) {
            uint32_t height = height_of(grammar, heights, i);
            if (height >= heights[i]) continue;
            heights[i] = height;
            changed = true;
        }
    }
    return MD_OK;
}
