// Logits ranked without sorting: every logit is one of 65,536 bf16 values, so counting how many tokens have each value
// orders a vocabulary of any size in one pass. What the sampler and the log-probabilities are made from.
//
// Order: greater logits first, lower ids first among equals. NaN ranks as -INFINITY, -0 as 0.
// Thread rule: one thread at a time.
#ifndef MD_GEN_RANKING_H
#define MD_GEN_RANKING_H

#include <stdint.h>

#include "base/bf16.h"
#include "base/status.h"

enum { MD_RANKING_VALUES = 1 << 16 };

typedef struct md_ranking {
    uint32_t vocab;
    uint16_t *code;  // [vocab] each token's value as an order-preserving code: greater value, greater code
    uint32_t *count; // [MD_RANKING_VALUES] tokens that have a value, by code
    int32_t top;     // greatest code that occurs
} md_ranking;

md_status md_ranking_init(md_ranking *ranking, uint32_t vocab, md_error *err);
void md_ranking_free(md_ranking *ranking);

// Ranks `logits` [vocab], each rounded to bf16.
void md_ranking_fill(md_ranking *ranking, const float *logits);

// Branch-free: a compiler can do several at once.
static inline uint16_t md_ranking_code(float value) {
    uint32_t bits = md_f32_bits(value), size = bits & 0x7fffffffu;
    uint32_t half = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16; // to nearest, ties to even
    half = size > 0x7f800000u ? 0xff80u : half;                   // NaN -> -INFINITY
    half = half == 0x8000u ? 0 : half;                            // -0 -> 0
    return (uint16_t)(half ^ (half & 0x8000u ? 0xffffu : 0x8000u));
}

// The first token in rank order, without ranking the others.
uint32_t md_ranking_best(const float *logits, uint32_t vocab);

float md_ranking_value(int32_t code);
// The next code below `code` that occurs; -1: none.
int32_t md_ranking_below(const md_ranking *ranking, int32_t code);

// The token with `code` that has exactly `nth` such tokens with lower ids; nth < count[code].
uint32_t md_ranking_token(const md_ranking *ranking, int32_t code, uint32_t nth);

// Writes the ids of the first min(n, vocab) tokens in rank order to `tokens` and returns how many.
uint32_t md_ranking_first(const md_ranking *ranking, uint32_t n, uint32_t *tokens);

// log(sum of exp(logit)) over all tokens, in double, summed from the greatest value down; values more than
// MD_NEGLIGIBLE below the greatest add nothing. -INFINITY when every logit is.
double md_ranking_logsumexp(const md_ranking *ranking);

// Log-probabilities under the ranked logits: the token's own, and the `n` likeliest (at most MD_TOP_LOGPROBS_MAX and
// vocab) in top[n].
double md_ranking_logprobs(const md_ranking *ranking, uint32_t token, uint32_t n, md_logprob *top);

// A weight of exp(-MD_NEGLIGIBLE) or less of the greatest counts as none: below the resolution of a double's sum.
#define MD_NEGLIGIBLE 44.0

#endif
