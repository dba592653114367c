// Teacher-forced verification: an engine against MLX's goldens, and an engine against another one bit by bit.
#ifndef MD_CLI_VERIFY_H
#define MD_CLI_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/golden.h"
#include "megadecode.h"

enum { MD_VERIFY_RUNS = 3 };

// The gates (docs/MODEL.md): agreeing or legal steps at least 98%, no NaN, MD_VERIFY_RUNS runs with one digest, and the
// mean KL at most this.
#define MD_VERIFY_SHARE 0.98
#define MD_VERIFY_KL_BF16 5e-4
#define MD_VERIFY_KL_QUANTIZED 6e-3
#define MD_VERIFY_KL_REFERENCE 1e-3 // another backend against the reference, where bits may differ

typedef struct md_verify_golden {
    md_score score; // of the first run
    bool deterministic, pass;
} md_verify_golden;

// Feeds the golden's prefill, quantizes the cache where `kv` is not "none", then feeds its decode ids one by one; three
// times. MD_E_FORMAT when the golden is of another vocabulary.
md_status md_verify_against_golden(md_model *model, const md_golden *golden, const char *kv, md_verify_golden *out,
                                   md_error *err);

typedef struct md_verify_pair {
    uint32_t steps, agree;
    bool bit_identical;
    uint32_t first_step, first_token; // of the first logit that differs
    float expected, found;
    double kl_mean, kl_max, max_abs_diff;
    bool nan;
} md_verify_pair;

// `model` decodes greedily from the prompt; `other` is fed the same tokens; their logits are compared at every step,
// the prompt's last included.
md_status md_verify_against_engine(md_model *model, md_model *other, const uint32_t *prompt, size_t n, uint32_t steps,
                                   const char *kv, md_verify_pair *out, md_error *err);

#endif
