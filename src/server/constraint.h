// Constrained decoding: only tokens that keep the answer a beginning of one of the grammar's sentences may be chosen,
// and an end-of-text token only after a whole sentence. Used by one thread at a time.
#ifndef MD_SERVER_CONSTRAINT_H
#define MD_SERVER_CONSTRAINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "server/grammar.h"
#include "server/token_order.h"

typedef struct md_constraint md_constraint;

// Takes the grammar (also on failure); borrows the vocabulary and the eos ids. `after`: the answer is free until this
// text has come ("</think>"); NULL: constrained from its first byte. Borrowed.
md_status md_constraint_new(md_grammar *grammar, const md_token_order *order, const uint32_t *eos, uint32_t eos_count,
                            const char *after, md_constraint **out, md_error *err);
void md_constraint_free(md_constraint *constraint); // NULL is fine

// md_sampling.adjust: user is the constraint. MD_E_UNSUPPORTED when its bounds are passed, MD_E_INTERNAL when the
// vocabulary has no token to go on with.
md_status md_constraint_adjust(void *user, float *logits, uint32_t vocab, md_error *err);
// Tells it the token that was chosen.
md_status md_constraint_accept(md_constraint *constraint, uint32_t token, md_error *err);

#endif
