// How an engine chooses a token (md_choice), read literally.
#ifndef PLAIN_CHOICE_H
#define PLAIN_CHOICE_H

#include <math.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "gen/rng.h"
#include "gen/weight.h"

// A plain sampler by md_choice: tokens sorted by rank, cut, drawn. logits are bf16 values.
static const float *ranked;
static int by_rank(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (ranked[x] != ranked[y]) return ranked[x] > ranked[y] ? -1 : 1;
    return x < y ? -1 : 1;
}
static uint32_t choose_plainly(const md_choice *choice, const float *logits, uint32_t vocab, uint64_t draw) {
    uint32_t *ids = malloc(vocab * sizeof *ids), n = vocab, chosen = 0;
    for (uint32_t i = 0; i < vocab; i++) ids[i] = i;
    ranked = logits;
    qsort(ids, vocab, sizeof *ids, by_rank);
    if (!choice->sampled) n = 1;
    if (choice->top_k && choice->top_k < n) n = choice->top_k;
#define WEIGHT(i) md_weight(((double)logits[ids[0]] - (double)logits[ids[i]]) * choice->per_unit)
    uint64_t total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) total += WEIGHT(i);
    if (choice->top_p > 0 && choice->top_p < 1) {
        uint64_t goal = (uint64_t)ceil(choice->top_p * (double)total);
        uint32_t kept = 0;
        while (sum < goal) sum += WEIGHT(kept++);
        n = kept, total = sum;
    }
    for (; n > 1 && WEIGHT(n - 1) < choice->least_weight; n--) total -= WEIGHT(n - 1);
    uint64_t goal = md_mul_high(md_draw_u64(choice->seed, draw), total);
    for (sum = WEIGHT(0); sum <= goal; sum += WEIGHT(chosen)) chosen++;
    chosen = ids[chosen];
    free(ids);
    return chosen;
}

#endif
