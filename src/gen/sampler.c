#include "gen/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/rng.h"
#include "gen/weight.h"

// Tokens of one value: candidates are handled by value, from the greatest down.
typedef struct bucket {
    int32_t code;
    uint32_t count;  // tokens taken of it (the lowest ids)
    uint64_t weight; // of one token (gen/weight.h)
} bucket;

struct md_sampler {
    md_sampling params;
    uint32_t vocab;
    md_ranking ranking;
    uint64_t draws;   // random numbers used so far
    float *adjusted;  // [vocab] working copy; NULL when logits are used as they are
    bucket *buckets;  // [MD_RANKING_VALUES]; NULL when greedy
    uint32_t *seen;   // [vocab] times in prompt and answer, inside the window; NULL without penalties
    uint32_t *said;   // [vocab] times in the answer, inside the window
    uint32_t *window; // ring of the last `params.penalty_window` tokens, the answer's with ANSWER set; NULL: all count
    uint64_t history; // tokens remembered so far
};

enum { ANSWER = INT32_MIN }; // the top bit; ids stay below it (MD_MAX_VOCAB)

// ---- parameters ------------------------------------------------------------------------------------------------

static md_status check_range(const char *name, double value, double min, double max, md_error *err) {
    if (value >= min && value <= max) return MD_OK; // false for NaN
    return md_fail(err, MD_E_USAGE, "%s: found %g, expected %g to %g", name, value, min, max);
}

static md_status check_params(const md_sampling *p, uint32_t vocab, md_error *err) {
    MD_TRY(check_range("temperature", p->temperature, 0, 1e6, err));
    MD_TRY(check_range("top_p", p->top_p, 0, 1, err));
    MD_TRY(check_range("min_p", p->min_p, 0, 1, err));
    MD_TRY(check_range("repetition_penalty", p->repetition_penalty, 0, 1e6, err));
    MD_TRY(check_range("presence_penalty", p->presence_penalty, -1e6, 1e6, err));
    MD_TRY(check_range("frequency_penalty", p->frequency_penalty, -1e6, 1e6, err));
    for (size_t i = 0; i < p->bias_count; i++) {
        if (p->bias[i].token >= vocab)
            return md_fail(err, MD_E_USAGE, "logit_bias: token %" PRIu32 ", expected below the vocabulary of %" PRIu32,
                           p->bias[i].token, vocab);
        if (isnan(p->bias[i].bias) || p->bias[i].bias == INFINITY)
            return md_fail(err, MD_E_USAGE, "logit_bias of token %" PRIu32 ": found %g, expected a number or -infinity",
                           p->bias[i].token, (double)p->bias[i].bias);
    }
    return MD_OK;
}

bool md_sampler_penalises(const md_sampling *p) {
    bool repetition = p->repetition_penalty != 0 && p->repetition_penalty != 1;
    return repetition || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

md_status md_sampler_open(const md_sampling *sampling, uint32_t vocab, uint32_t context, md_sampler **out,
                          md_error *err) {
    *out = NULL;
    MD_TRY(check_params(sampling, vocab, err));
    md_sampler *sampler = calloc(1, sizeof *sampler);
    if (!sampler) return md_fail(err, MD_E_MEMORY, "sampler: out of memory");
    sampler->params = *sampling;
    sampler->vocab = vocab;
    md_status status = md_ranking_init(&sampler->ranking, vocab, err);
    if (status != MD_OK) {
        free(sampler);
        return status;
    }
    bool penalties = md_sampler_penalises(sampling), failed = false;
    if (penalties || sampling->bias_count || sampling->adjust)
        failed |= !(sampler->adjusted = malloc(vocab * sizeof *sampler->adjusted));
    if (sampling->temperature > 0) failed |= !(sampler->buckets = malloc(MD_RANKING_VALUES * sizeof *sampler->buckets));
    if (penalties) {
        failed |= !(sampler->seen = calloc(vocab, sizeof *sampler->seen));
        failed |= !(sampler->said = calloc(vocab, sizeof *sampler->said));
        if (sampling->penalty_window >= context) sampler->params.penalty_window = 0;
        size_t window = sampler->params.penalty_window;
        if (window) failed |= !(sampler->window = malloc(window * sizeof *sampler->window));
    }
    if (failed) {
        md_sampler_close(sampler);
        return md_fail(err, MD_E_MEMORY, "sampler: out of memory for a vocabulary of %" PRIu32 " tokens", vocab);
    }
    *out = sampler;
    return MD_OK;
}

void md_sampler_close(md_sampler *sampler) {
    if (!sampler) return;
    md_ranking_free(&sampler->ranking);
    free(sampler->adjusted);
    free(sampler->buckets);
    free(sampler->seen);
    free(sampler->said);
    free(sampler->window);
    free(sampler);
}

// ---- history and adjustments -----------------------------------------------------------------------------------

static void remember(md_sampler *sampler, uint32_t token, bool answer) {
    if (!sampler->seen) return;
    if (sampler->window) {
        uint32_t *slot = &sampler->window[sampler->history % sampler->params.penalty_window];
        if (sampler->history >= sampler->params.penalty_window) {
            uint32_t oldest = *slot & ~(uint32_t)ANSWER;
            sampler->seen[oldest]--;
            if (*slot & (uint32_t)ANSWER) sampler->said[oldest]--;
        }
        *slot = token | (answer ? (uint32_t)ANSWER : 0);
    }
    sampler->history++;
    sampler->seen[token]++;
    if (answer) sampler->said[token]++;
}

void md_sampler_observe(md_sampler *sampler, const uint32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) remember(sampler, tokens[i], false);
}

// In fp32, one operation after the other, as MLX and llama.cpp apply them to fp32 or bf16 logits.
static void apply_penalties(const md_sampler *sampler, float *logits) {
    const md_sampling *p = &sampler->params;
    float repetition = p->repetition_penalty == 0 ? 1.0f : (float)p->repetition_penalty;
    float presence = (float)p->presence_penalty, frequency = (float)p->frequency_penalty;
    for (uint32_t i = 0; i < sampler->vocab; i++) {
        if (!sampler->seen[i]) continue;
        float value = logits[i];
        value = value > 0 ? value / repetition : value * repetition;
        if (sampler->said[i]) {
            value -= (float)sampler->said[i] * frequency;
            value -= presence;
        }
        logits[i] = value;
    }
}

static md_status adjust(md_sampler *sampler, const float **logits, md_error *err) {
    if (!sampler->adjusted) return MD_OK;
    const md_sampling *p = &sampler->params;
    float *copy = sampler->adjusted;
    memcpy(copy, *logits, sampler->vocab * sizeof *copy);
    if (p->adjust) MD_TRY(p->adjust(p->adjust_user, copy, sampler->vocab, err));
    for (size_t i = 0; i < p->bias_count; i++) copy[p->bias[i].token] += p->bias[i].bias;
    if (sampler->seen) apply_penalties(sampler, copy);
    *logits = copy;
    return MD_OK;
}

// ---- the choice ------------------------------------------------------------------------------------------------

// Fills sampler->buckets with the candidates that top-k leaves; returns how many buckets, and the sum of their weights.
static uint32_t take_top_k(md_sampler *sampler, uint64_t *total) {
    const md_ranking *ranking = &sampler->ranking;
    uint64_t left = sampler->params.top_k ? sampler->params.top_k : UINT64_MAX, sum = 0;
    double greatest = (double)md_ranking_value(ranking->top), per_unit = MD_LOG2_E / sampler->params.temperature;
    uint32_t n = 0;
    for (int32_t code = ranking->top; code >= 0 && left; code = md_ranking_below(ranking, code)) {
        uint64_t weight = MD_WEIGHT_ONE; // also when the greatest is +INFINITY
        if (code != ranking->top) weight = md_weight((greatest - (double)md_ranking_value(code)) * per_unit);
        if (weight == 0) break;
        uint32_t count = ranking->count[code] < left ? ranking->count[code] : (uint32_t)left;
        left -= count;
        sampler->buckets[n++] = (bucket){code, count, weight};
        sum += count * weight;
    }
    *total = sum;
    return n;
}

// Keeps the fewest candidates whose weights reach top_p of the total.
static uint32_t keep_top_p(md_sampler *sampler, uint32_t n, uint64_t *total) {
    double top_p = sampler->params.top_p;
    if (top_p <= 0 || top_p >= 1) return n;
    uint64_t goal = (uint64_t)ceil(top_p * (double)*total), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        bucket *b = &sampler->buckets[i];
        if (sum + b->count * b->weight < goal) {
            sum += b->count * b->weight;
            continue;
        }
        b->count = (uint32_t)((goal - sum + b->weight - 1) / b->weight); // 1 or more: sum < goal
        *total = sum + b->count * b->weight;
        return i + 1;
    }
    return n; // the goal as a double was rounded beyond the total: all are needed
}

static uint32_t keep_min_p(md_sampler *sampler, uint32_t n, uint64_t *total) {
    if (sampler->params.min_p <= 0) return n;
    uint64_t least = md_least_weight(sampler->params.min_p), sum = 0;
    uint32_t kept = 0;
    for (; kept < n && sampler->buckets[kept].weight >= least; kept++)
        sum += sampler->buckets[kept].count * sampler->buckets[kept].weight;
    *total = sum; // the greatest weighs most and min_p <= 1: at least one bucket is kept
    return kept;
}

// The candidate at which the running sum of weights, in rank order, passes a random part of the total.
static uint32_t draw(md_sampler *sampler, uint32_t n, uint64_t total) {
    uint64_t random = md_draw_u64(md_mix64(sampler->params.seed), sampler->draws++);
    uint64_t goal = md_mul_high(random, total), sum = 0;
    const bucket *b = sampler->buckets;
    for (; b + 1 < sampler->buckets + n && sum + b->count * b->weight <= goal; b++) sum += b->count * b->weight;
    return md_ranking_token(&sampler->ranking, b->code, (uint32_t)((goal - sum) / b->weight));
}

// Tells a model whose step gave nothing usable from a bias or a constraint that forbids every token.
static md_status nothing_to_choose(const float *given, uint32_t vocab, md_error *err) {
    float best = given[md_ranking_best(given, vocab)];
    if (isnan(best) || best == -INFINITY)
        return md_fail(err, MD_E_FORMAT,
                       "sampler: the model's logits hold no number: each is NaN or -infinity (damaged weights?)");
    return md_fail(err, MD_E_USAGE, "sampler: no token may be chosen: the bias or the constraint forbids all");
}

md_status md_sampler_next(md_sampler *sampler, const float *logits, uint32_t *token, md_error *err) {
    const float *given = logits;
    MD_TRY(adjust(sampler, &logits, err));
    if (sampler->params.temperature > 0) {
        uint64_t total = 0;
        md_ranking_fill(&sampler->ranking, logits);
        uint32_t n = take_top_k(sampler, &total);
        n = keep_top_p(sampler, n, &total);
        n = keep_min_p(sampler, n, &total);
        *token = draw(sampler, n, total);
    } else {
        *token = md_ranking_best(logits, sampler->vocab);
    }
    if (isnan(logits[*token]) || logits[*token] == -INFINITY) return nothing_to_choose(given, sampler->vocab, err);
    remember(sampler, *token, true);
    return MD_OK;
}

uint64_t md_sampler_draws(const md_sampler *sampler) { return sampler->draws; }

void md_sampler_take(md_sampler *sampler, uint32_t token) {
    if (sampler->params.temperature > 0) sampler->draws++;
    remember(sampler, token, true);
}

double md_sampler_logprobs(md_sampler *sampler, const float *logits, uint32_t token, uint32_t n, md_logprob *top) {
    md_ranking_fill(&sampler->ranking, logits);
    return md_ranking_logprobs(&sampler->ranking, token, n, top);
}
