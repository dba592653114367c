// Choosing the next token from logits: biases, penalties, temperature, top-k, top-p, min-p and one draw, as md_sampling
// in megadecode.h defines them. Deterministic: the same logits, history and seed give the same token on every platform
// (own random numbers, weights that are whole numbers).
//
// Thread rule: one thread at a time.
#ifndef MD_GEN_SAMPLER_H
#define MD_GEN_SAMPLER_H

#include <stdint.h>

#include "base/status.h"
#include "gen/ranking.h"

typedef struct md_sampler md_sampler;

// Checks every parameter (MD_E_USAGE names it). `context` bounds the history: a penalty window that reaches it is
// "all". The array sampling->bias is borrowed.
md_status md_sampler_open(const md_sampling *sampling, uint32_t vocab, uint32_t context, md_sampler **out,
                          md_error *err);
void md_sampler_close(md_sampler *sampler); // NULL is fine

bool md_sampler_penalises(const md_sampling *sampling); // a penalty is on

// Tells the penalties of the prompt's tokens (each < vocab).
void md_sampler_observe(md_sampler *sampler, const uint32_t *tokens, size_t n);

// Chooses from logits [vocab] and remembers the token as part of the answer. MD_E_USAGE when every token is forbidden,
// MD_E_FORMAT when the model gave no number above -infinity, or what `adjust` returned.
md_status md_sampler_next(md_sampler *sampler, const float *logits, uint32_t *token, md_error *err);

// For tokens that an engine chose itself by the same rules: how many random numbers were used so far, and the token
// that the next of them gave, to be remembered as md_sampler_next does.
uint64_t md_sampler_draws(const md_sampler *sampler);
void md_sampler_take(md_sampler *sampler, uint32_t token);

// Log-probabilities under unchanged logits: the token's own, and the `n` likeliest (n <= vocab) in top[n].
double md_sampler_logprobs(md_sampler *sampler, const float *logits, uint32_t token, uint32_t n, md_logprob *top);

#endif
