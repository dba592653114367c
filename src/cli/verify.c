#include "cli/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "cli/term.h"

static md_status interrupted(md_error *err) {
    return md_interrupted() ? md_fail(err, MD_E_CANCELLED, "interrupted") : MD_OK;
}

static uint32_t prompt_step(const md_session *session) {
    md_model_info info;
    md_model_get_info(md_session_model(session), &info);
    return info.prompt_columns;
}

// md_session_feed, and md_session_sync, that Ctrl-C can stop between two of the engine's steps.
static md_status feed(md_session *session, const uint32_t *tokens, size_t n, md_error *err) {
    const size_t step = prompt_step(session);
    for (size_t at = 0; at < n; at += step) {
        MD_TRY(interrupted(err));
        MD_TRY(md_session_feed(session, tokens + at, n - at < step ? n - at : step, err));
    }
    return MD_OK;
}
static md_status sync_prompt(md_session *session, const uint32_t *tokens, size_t n, md_error *err) {
    uint32_t left = 0;
    MD_TRY(md_session_prepare(session, tokens, n, NULL, err));
    do {
        MD_TRY(interrupted(err));
        MD_TRY(md_session_advance(session, prompt_step(session), &left, err));
    } while (left);
    return MD_OK;
}

static md_status run_golden(md_model *model, const md_golden *golden, const char *kv, md_score *score, md_error *err) {
    md_session_options options = {.context = (uint32_t)(golden->prefill_count + golden->steps), .kv = kv};
    md_session *session;
    MD_TRY(md_session_open(model, &options, &session, err));
    md_status status = md_score_begin(score, err);
    if (status == MD_OK) status = feed(session, golden->prefill, golden->prefill_count, err);
    if (status == MD_OK) status = md_session_quantize(session, err);
    for (size_t i = 0; i < golden->steps && status == MD_OK; i++) {
        status = feed(session, &golden->decode[i], 1, err);
        if (status == MD_OK)
            md_score_row(score, golden->logits + i * golden->vocab, md_session_logits(session), golden->vocab);
    }
    if (score->hash) md_score_end(score);
    md_session_close(session);
    return status;
}

md_status md_verify_against_golden(md_model *model, const md_golden *golden, const char *kv, md_verify_golden *out,
                                   md_error *err) {
    *out = (md_verify_golden){.deterministic = true};
    md_model_info info;
    md_model_get_info(model, &info);
    if (info.vocab != golden->vocab)
        return md_fail(err, MD_E_FORMAT, "the golden has %u logits a step, %s has a vocabulary of %u", golden->vocab,
                       info.name, info.vocab);
    for (int run = 0; run < MD_VERIFY_RUNS; run++) {
        md_score score;
        MD_TRY(run_golden(model, golden, kv, &score, err));
        if (run == 0)
            out->score = score;
        else
            out->deterministic &= score.digest == out->score.digest;
    }
    const md_score *score = &out->score;
    double most_kl = kv && strcmp(kv, "none") != 0 ? MD_VERIFY_KL_QUANTIZED : MD_VERIFY_KL_BF16;
    out->pass = out->deterministic && score->nan == 0 &&
                (double)(score->agree + score->legal_flips) >= MD_VERIFY_SHARE * (double)score->steps &&
                score->kl_sum / (double)score->steps <= most_kl;
    return MD_OK;
}

static uint32_t argmax(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t v = 1; v < n; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

static void compare_rows(const float *found, const float *expected, uint32_t vocab, uint16_t *scratch,
                         md_verify_pair *out, double *kl_sum) {
    if (out->bit_identical && memcmp(found, expected, vocab * sizeof *found) != 0) {
        uint32_t at = 0;
        while (md_f32_bits(found[at]) == md_f32_bits(expected[at])) at++;
        out->bit_identical = false;
        out->first_step = out->steps;
        out->first_token = at;
        out->found = found[at];
        out->expected = expected[at];
    }
    for (uint32_t v = 0; v < vocab; v++) {
        scratch[v] = md_bf16_from_f32(expected[v]);
        out->nan |= isnan(found[v]) || isnan(expected[v]);
        out->max_abs_diff = fmax(out->max_abs_diff, fabs((double)found[v] - expected[v]));
    }
    double kl = out->nan ? 0 : md_kl_divergence(scratch, found, vocab);
    *kl_sum += kl;
    out->kl_max = fmax(out->kl_max, kl);
    out->agree += argmax(found, vocab) == argmax(expected, vocab);
    out->steps++;
}

static md_status compare_timelines(md_session *own, md_session *other, const uint32_t *prompt, size_t n, uint32_t steps,
                                   uint32_t vocab, uint16_t *scratch, md_verify_pair *out, md_error *err) {
    double kl_sum = 0;
    MD_TRY(sync_prompt(own, prompt, n, err));
    MD_TRY(sync_prompt(other, prompt, n, err));
    for (uint32_t i = 0; i < steps; i++) {
        const float *found = md_session_logits(own);
        compare_rows(found, md_session_logits(other), vocab, scratch, out, &kl_sum);
        uint32_t next = argmax(found, vocab);
        if (i + 1 == steps) break;
        if (md_interrupted()) return md_fail(err, MD_E_CANCELLED, "interrupted after %u of %u steps", i + 1, steps);
        MD_TRY(md_session_feed(own, &next, 1, err));
        MD_TRY(md_session_feed(other, &next, 1, err));
    }
    out->kl_mean = kl_sum / steps;
    return MD_OK;
}

md_status md_verify_against_engine(md_model *model, md_model *other, const uint32_t *prompt, size_t n, uint32_t steps,
                                   const char *kv, md_verify_pair *out, md_error *err) {
    *out = (md_verify_pair){.bit_identical = true};
    md_model_info info;
    md_model_get_info(model, &info);
    if (n + steps > info.context)
        return md_fail(err, MD_E_USAGE, "%zu prompt tokens and %u steps do not fit the context of %u", n, steps,
                       info.context);
    md_session_options options = {.context = (uint32_t)(n + steps), .kv = kv};
    md_session *own = NULL, *theirs = NULL;
    uint16_t *scratch = malloc(info.vocab * sizeof *scratch);
    md_status status = scratch ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory");
    if (status == MD_OK) status = md_session_open(model, &options, &own, err);
    if (status == MD_OK) status = md_session_open(other, &options, &theirs, err);
    if (status == MD_OK) status = compare_timelines(own, theirs, prompt, n, steps, info.vocab, scratch, out, err);
    md_session_close(own);
    md_session_close(theirs);
    free(scratch);
    return status;
}
