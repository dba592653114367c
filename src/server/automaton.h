// The automaton of a grammar: a state is a set of the grammar's threads, made when it is first reached, so that the
// next time a byte costs one look-up. Used by one thread at a time.
#ifndef MD_SERVER_AUTOMATON_H
#define MD_SERVER_AUTOMATON_H

#include <stdbool.h>
#include <stdint.h>

#include "server/grammar.h"

typedef struct md_automaton md_automaton;

enum { MD_AUTOMATON_DEAD = 0 }; // the state that no sentence passes through

// Takes the grammar (also on failure).
md_status md_automaton_new(md_grammar *grammar, md_automaton **out, md_error *err);
void md_automaton_free(md_automaton *automaton); // NULL is fine

uint32_t md_automaton_start(const md_automaton *automaton);
// The state after one more byte. MD_E_UNSUPPORTED when the grammar needs more states than are allowed.
md_status md_automaton_next(md_automaton *automaton, uint32_t state, uint8_t byte, uint32_t *next, md_error *err);
// Allows as much work as one token's choice may take; beyond it md_automaton_next gives MD_E_UNSUPPORTED.
void md_automaton_refresh(md_automaton *automaton);
bool md_automaton_accepts(const md_automaton *automaton, uint32_t state); // a sentence may end here

// When many states have been made, forgets all but `state`; *state is its new number. True when it did.
md_status md_automaton_trim(md_automaton *automaton, uint32_t *state, bool *trimmed, md_error *err);

#endif
