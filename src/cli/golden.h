// Golden files (logits of MLX itself, teacher-forced) and the score of an engine against them.
#ifndef MD_CLI_GOLDEN_H
#define MD_CLI_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// A golden: row i of the logits is what MLX gives after feeding decode_ids[i].
typedef struct md_golden {
    uint32_t *prefill, *decode; // owned
    size_t prefill_count, steps;
    uint32_t vocab;
    bool kv_quantized; // made with the snapshot's kv_config.json
    uint16_t *logits;  // bf16 [steps][vocab]; owned
} md_golden;

// Reads NAME.json and the logits file it names (beside it). MD_E_FORMAT names file and key.
md_status md_golden_read(const char *path, md_golden *out, md_error *err);
void md_golden_free(md_golden *golden);

// The score of one teacher-forced run. A flip (another argmax) is legal where MLX's own logits for its choice and for
// ours lie within 2 bf16 steps. KL is KL(MLX || ours) in nats, in double, over tokens of probability above 1e-12.
typedef struct md_score {
    size_t steps, agree, legal_flips, nan; // nan: rows that hold a NaN
    double kl_sum, kl_max, max_abs_diff;
    uint64_t digest; // XXH64 of all rows as bf16, in order
    struct XXH64_state_s *hash;
} md_score;

md_status md_score_begin(md_score *score, md_error *err);
void md_score_row(md_score *score, const uint16_t *expected, const float *found, uint32_t vocab);
void md_score_end(md_score *score); // fills digest

// KL(expected || found) in nats; rows of `vocab` logits without NaN.
double md_kl_divergence(const uint16_t *expected, const float *found, uint32_t vocab);

#endif
