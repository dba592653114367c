// A grammar over bytes: a small program that recognises a language, run by an automaton (server/automaton.h).
//
// A thread of the program is a place in it and a stack of return addresses and counters. RANGE reads a byte; all other
// instructions happen between bytes. The language is what reaches MATCH. Every loop reads at least one byte a round.
#ifndef MD_SERVER_GRAMMAR_H
#define MD_SERVER_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum md_grammar_op {
    MD_GRAMMAR_RANGE,  // reads a byte in [a, b]
    MD_GRAMMAR_JUMP,   // goes on at a
    MD_GRAMMAR_SPLIT,  // goes on at a and at b
    MD_GRAMMAR_CALL,   // pushes the next place and goes on at a
    MD_GRAMMAR_RETURN, // goes on at the popped place
    MD_GRAMMAR_ZERO,   // pushes a counter of 0
    MD_GRAMMAR_COUNT,  // adds 1 to the counter on top; the thread dies where it is a already; a = MD_GRAMMAR_UNBOUNDED:
                       // it never dies, and the counter stays at b, beyond which END tells no difference
    MD_GRAMMAR_END,    // pops the counter; the thread dies where it is below a
    MD_GRAMMAR_SHALLOW, // the thread dies where the stack is deeper than a
    MD_GRAMMAR_MATCH    // what was read is a whole sentence
} md_grammar_op;

typedef struct md_grammar_instruction {
    md_grammar_op op;
    uint32_t a, b;
} md_grammar_instruction;

enum { MD_GRAMMAR_UNBOUNDED = INT32_MAX };

typedef struct md_grammar {
    md_grammar_instruction *code; // [size]; owned
    uint32_t size, cap;
} md_grammar;

void md_grammar_free(md_grammar *grammar);

// Appends an instruction; *at (may be NULL) is its place. MD_E_UNSUPPORTED beyond a fixed size, MD_E_MEMORY.
md_status md_grammar_emit(md_grammar *grammar, md_grammar_op op, uint32_t a, uint32_t b, uint32_t *at, md_error *err);
md_status md_grammar_emit_bytes(md_grammar *grammar, const char *bytes, size_t n, md_error *err);

// The grammar of JSON texts that satisfy a schema; `schema` NULL: any JSON object. leading_space allows white space
// before it. A keyword that is not modelled is MD_E_UNSUPPORTED, one of a wrong form MD_E_USAGE; both name its place,
// beginning with `path`. What is modelled: docs/SERVER.md.
md_status md_schema_compile(const json_t *schema, bool leading_space, const char *path, md_grammar *out, md_error *err);

#endif
