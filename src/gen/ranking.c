#include "gen/ranking.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mathx.h"

md_status md_ranking_init(md_ranking *ranking, uint32_t vocab, md_error *err) {
    ranking->vocab = vocab;
    ranking->top = -1;
    ranking->code = calloc(vocab, sizeof *ranking->code);
    ranking->count = calloc(MD_RANKING_VALUES, sizeof *ranking->count);
    if (ranking->code && ranking->count) return MD_OK;
    md_ranking_free(ranking);
    return md_fail(err, MD_E_MEMORY, "sampler: out of memory for a vocabulary of %u tokens", vocab);
}

void md_ranking_free(md_ranking *ranking) {
    free(ranking->code);
    free(ranking->count);
    ranking->code = NULL;
    ranking->count = NULL;
}

void md_ranking_fill(md_ranking *ranking, const float *logits) {
    memset(ranking->count, 0, MD_RANKING_VALUES * sizeof *ranking->count);
    uint16_t top = 0;
    for (uint32_t i = 0; i < ranking->vocab; i++) {
        ranking->code[i] = md_ranking_code(logits[i]);
        top = ranking->code[i] > top ? ranking->code[i] : top;
    }
    for (uint32_t i = 0; i < ranking->vocab; i++) ranking->count[ranking->code[i]]++;
    ranking->top = top;
}

uint32_t md_ranking_best(const float *logits, uint32_t vocab) {
    uint32_t best = 0;
    uint16_t top = md_ranking_code(logits[0]);
    for (uint32_t i = 1; i < vocab; i++) {
        uint16_t code = md_ranking_code(logits[i]);
        if (code <= top) continue;
        top = code;
        best = i;
    }
    return best;
}

float md_ranking_value(int32_t code) {
    uint16_t half = (uint16_t)(code & 0x8000 ? code & 0x7fff : ~code);
    return md_bf16_to_f32(half);
}

int32_t md_ranking_below(const md_ranking *ranking, int32_t code) {
    do code--;
    while (code >= 0 && ranking->count[code] == 0);
    return code;
}

uint32_t md_ranking_token(const md_ranking *ranking, int32_t code, uint32_t nth) {
    uint32_t i = 0;
    for (;; i++)
        if (ranking->code[i] == code && nth-- == 0) return i;
}

uint32_t md_ranking_first(const md_ranking *ranking, uint32_t n, uint32_t *tokens) {
    if (n > ranking->vocab) n = ranking->vocab;
    if (n == 0) return 0;
    // The last code that is wanted, and how many of its tokens; all tokens above it are.
    int32_t last = ranking->top;
    uint32_t above = 0;
    while (above + ranking->count[last] < n) {
        above += ranking->count[last];
        last = md_ranking_below(ranking, last);
    }
    uint32_t taken = 0, of_last = n - above;
    for (uint32_t i = 0; i < ranking->vocab && taken < n; i++) {
        if (ranking->code[i] < last || (ranking->code[i] == last && of_last == 0)) continue;
        if (ranking->code[i] == last) of_last--;
        // Insertion from the end keeps the order; n is small (MD_TOP_LOGPROBS_MAX).
        uint32_t at = taken++;
        while (at > 0 && ranking->code[tokens[at - 1]] < ranking->code[i]) {
            tokens[at] = tokens[at - 1];
            at--;
        }
        tokens[at] = i;
    }
    return taken;
}

double md_ranking_logsumexp(const md_ranking *ranking) {
    double greatest = (double)md_ranking_value(ranking->top), sum = 0;
    if (isinf(greatest)) return greatest;
    for (int32_t code = ranking->top; code >= 0; code = md_ranking_below(ranking, code)) {
        double below = (double)md_ranking_value(code) - greatest;
        if (below < -MD_NEGLIGIBLE) break;
        sum += (double)ranking->count[code] * md_exp(below);
    }
    return greatest + md_ln(sum);
}

double md_ranking_logprobs(const md_ranking *ranking, uint32_t token, uint32_t n, md_logprob *top) {
    double norm = md_ranking_logsumexp(ranking);
    uint32_t ids[MD_TOP_LOGPROBS_MAX];
    uint32_t found = md_ranking_first(ranking, n < MD_TOP_LOGPROBS_MAX ? n : MD_TOP_LOGPROBS_MAX, ids);
    for (uint32_t i = 0; i < found; i++)
        top[i] = (md_logprob){ids[i], (double)md_ranking_value(ranking->code[ids[i]]) - norm};
    return (double)md_ranking_value(ranking->code[token]) - norm;
}

md_status md_logprobs(const float *logits, uint32_t vocab, uint32_t token, uint32_t top_count, md_logprob *top,
                      double *logprob, md_error *err) {
    if (token >= vocab)
        return md_fail(err, MD_E_USAGE, "logprobs: token %" PRIu32 ", expected below the vocabulary of %" PRIu32, token,
                       vocab);
    if (top_count > MD_TOP_LOGPROBS_MAX || top_count > vocab)
        return md_fail(err, MD_E_USAGE, "top_logprobs: found %" PRIu32 ", expected at most %d and the vocabulary",
                       top_count, MD_TOP_LOGPROBS_MAX);
    md_ranking ranking;
    MD_TRY(md_ranking_init(&ranking, vocab, err));
    md_ranking_fill(&ranking, logits);
    *logprob = md_ranking_logprobs(&ranking, token, top_count, top);
    md_ranking_free(&ranking);
    return MD_OK;
}
