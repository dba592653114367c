// A grammar over bytes: a small program that recognises a language, run by an automaton (server/automaton.h).
//
// A thread of the program is a place in it and a stack of return addresses and counters. RANGE reads a byte; all other
// instructions happen between bytes. The language is what reaches MATCH.
#ifndef MD_SERVER_GRAMMAR_H
#define MD_SERVER_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum md_grammar_op {
    MD_GRAMMAR_RANGE,  // reads a byte in [a, b]; nothing where a > b
    MD_GRAMMAR_JUMP,   // goes on at a
    MD_GRAMMAR_SPLIT,  // goes on at a and at b
    MD_GRAMMAR_CALL,   // pushes the next place and goes on at a
    MD_GRAMMAR_RETURN, // goes on at the popped place
    MD_GRAMMAR_ZERO,   // pushes a counter of 0
    MD_GRAMMAR_COUNT,  // adds 1 to the counter on top; the thread dies where it is a already; a = MD_GRAMMAR_UNBOUNDED:
                       // it never dies, and the counter stays at b, beyond which END tells no difference
    MD_GRAMMAR_END,    // pops the counter; the thread dies where it is below a
    MD_GRAMMAR_MATCH   // what was read is a whole sentence
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

// How much stack, beyond what there is, a thread at each place needs at least until its routine (or the sentence) has
// ended: heights[size], MD_GRAMMAR_UNBOUNDED where it never can. A thread that needs more than there is room for is as
// good as dead, so that a recursive grammar has no dead ends however deep a sentence goes. *out is owned.
md_status md_grammar_heights(const md_grammar *grammar, uint32_t **out, md_error *err);

#endif
