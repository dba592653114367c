#include "cli/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/membench.h"
#include "base/status.h"
#include "cli/term.h"

enum { WARM_TOKENS = 3, CEILING_PASSES = 2 };
static const uint64_t CEILING_BYTES = (uint64_t)768 << 20;

typedef struct side_state {
    md_model *model;
    md_session *session;
    double *decode, *prefill; // [repeats]
} side_state;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t n) {
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Fixed tokens, spread over the vocabulary so that embedding rows come from memory.
static void fill_tokens(uint32_t *tokens, uint32_t n, uint32_t vocab) {
    for (uint32_t i = 0; i < n; i++) tokens[i] = (uint32_t)((uint64_t)i * 7919 % vocab);
}

static md_status open_side(const md_bench_options *options, uint32_t index, side_state *side, md_error *err) {
    md_model_options model_options = {.engine = options->engine[index],
                                      .device = options->device,
                                      .threads = options->threads,
                                      .groups = options->groups,
                                      .deadline_ms = options->deadline_ms};
    MD_TRY(md_model_open(options->model, &model_options, &side->model, err));
    md_model_info info;
    md_model_get_info(side->model, &info);
    uint64_t widest = options->prompt > options->decode + WARM_TOKENS ? options->prompt : options->decode + WARM_TOKENS;
    uint64_t need = options->depth + widest;
    if (need > info.context)
        return md_fail(err, MD_E_USAGE, "%s: depth %u and %llu tokens do not fit its context of %u", options->model,
                       options->depth, (unsigned long long)widest, info.context);
    md_session_options session_options = {.context = (uint32_t)need, .kv = options->kv, .kv_from_start = true};
    MD_TRY(md_session_open(side->model, &session_options, &side->session, err));
    MD_TRY(md_session_quantize(side->session, err));
    side->decode = calloc(options->repeats, sizeof *side->decode);
    side->prefill = calloc(options->repeats, sizeof *side->prefill);
    return side->decode && side->prefill ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory");
}

static void close_side(side_state *side) {
    md_session_close(side->session);
    md_model_close(side->model);
    free(side->decode);
    free(side->prefill);
}

static md_status to_depth(side_state *side, uint32_t depth, md_error *err) {
    uint32_t at = md_session_position(side->session);
    if (at > depth) return md_session_rewind(side->session, depth, err);
    return at < depth ? md_session_skip(side->session, depth - at, err) : MD_OK;
}

// Tokens a second of `n` tokens fed one by one (as decoding does) or all at once (as prefill does).
static md_status measure(side_state *side, uint32_t depth, const uint32_t *tokens, uint32_t n, bool one_by_one,
                         double *tps, md_error *err) {
    MD_TRY(to_depth(side, depth, err));
    if (one_by_one) MD_TRY(md_session_feed(side->session, tokens, WARM_TOKENS, err));
    double begin = md_clock_seconds();
    if (one_by_one)
        for (uint32_t i = 0; i < n && !md_interrupted(); i++)
            MD_TRY(md_session_feed(side->session, tokens + i, 1, err));
    else
        MD_TRY(md_session_feed(side->session, tokens, n, err));
    if (md_interrupted()) return md_fail(err, MD_E_CANCELLED, "interrupted");
    *tps = n / (md_clock_seconds() - begin);
    return MD_OK;
}

static md_status run_repeat(const md_bench_options *options, side_state *sides, uint32_t repeat, const uint32_t *tokens,
                            md_error *err) {
    for (uint32_t i = 0; i < options->sides; i++) {
        side_state *side = &sides[repeat % 2 ? options->sides - 1 - i : i]; // AB BA AB ...
        if (options->prompt)
            MD_TRY(measure(side, options->depth, tokens, options->prompt, false, &side->prefill[repeat], err));
        if (options->decode)
            MD_TRY(measure(side, options->depth, tokens, options->decode, true, &side->decode[repeat], err));
    }
    return MD_OK;
}

static void keep_text(char *to, size_t size, const char **text) {
    snprintf(to, size, "%s", *text);
    *text = to;
}

static void keep_info(const md_model *model, md_bench_side *side) {
    md_model_get_info(model, &side->info);
    keep_text(side->name, sizeof side->name, &side->info.name);
    keep_text(side->engine, sizeof side->engine, &side->info.engine);
    keep_text(side->backend, sizeof side->backend, &side->info.backend);
    side->info.dir = NULL;
}

static void summarize(const md_bench_options *options, side_state *sides, const double *ceilings, double *scratch,
                      md_bench_result *out) {
    uint32_t n = options->repeats;
    side_state *last = &sides[options->sides - 1];
    md_model_info info;
    md_model_get_info(last->model, &info);
    double position = (double)md_session_kv_bytes(last->session) / md_session_context(last->session);
    double bytes = (double)info.bytes_per_token + position * (options->depth + options->decode / 2.0);
    if (options->sides == 2 && options->decode) {
        for (uint32_t r = 0; r < n; r++) scratch[r] = sides[1].decode[r] / sides[0].decode[r];
        out->ratio = median(scratch, n);
        out->ratio_min = scratch[0];
        out->ratio_max = scratch[n - 1];
    }
    if (options->decode && ceilings) {
        for (uint32_t r = 0; r < n; r++) scratch[r] = last->decode[r] * bytes / ceilings[r];
        out->ceiling_fraction = median(scratch, n);
        memcpy(scratch, ceilings, n * sizeof *scratch);
        out->ceiling_gbps = median(scratch, n) / 1e9;
    }
    for (uint32_t i = 0; i < options->sides; i++) {
        keep_info(sides[i].model, &out->side[i]);
        if (options->decode) out->side[i].decode_tps = median(sides[i].decode, n);
        if (options->prompt) out->side[i].prefill_tps = median(sides[i].prefill, n);
    }
    out->read_gbps = out->side[options->sides - 1].decode_tps * bytes / 1e9;
}

static md_status run_all(const md_bench_options *options, side_state *sides, uint32_t *tokens, double *ceilings,
                         double *scratch, md_bench_result *out, md_error *err) {
    md_model_info info = {0};
    for (uint32_t i = 0; i < options->sides; i++) MD_TRY(open_side(options, i, &sides[i], err));
    md_model_get_info(sides[0].model, &info);
    fill_tokens(tokens, options->prompt + options->decode + WARM_TOKENS, info.vocab);
    bool cpu = strcmp(info.backend, "cpu") == 0;
    for (uint32_t r = 0; r < options->repeats; r++) {
        if (cpu) MD_TRY(md_membench_read(info.workers, CEILING_BYTES, CEILING_PASSES, &ceilings[r], err));
        MD_TRY(run_repeat(options, sides, r, tokens, err));
    }
    summarize(options, sides, cpu ? ceilings : NULL, scratch, out);
    return MD_OK;
}

md_status md_bench_run(const md_bench_options *options, md_bench_result *out, md_error *err) {
    *out = (md_bench_result){0};
    if (options->repeats < 1 || options->repeats > MD_BENCH_REPEATS_MAX)
        return md_fail(err, MD_E_USAGE, "%u repeats, expected 1 to %d", options->repeats, MD_BENCH_REPEATS_MAX);
    side_state sides[MD_BENCH_SIDES_MAX] = {0};
    uint32_t *tokens = calloc((size_t)options->prompt + options->decode + WARM_TOKENS, sizeof *tokens);
    double *ceilings = calloc(options->repeats, sizeof *ceilings), *scratch = calloc(options->repeats, sizeof *scratch);
    md_status status = tokens && ceilings && scratch ? run_all(options, sides, tokens, ceilings, scratch, out, err)
                                                     : md_fail(err, MD_E_MEMORY, "out of memory for a benchmark");
    for (uint32_t i = 0; i < options->sides; i++) close_side(&sides[i]);
    free(tokens);
    free(ceilings);
    free(scratch);
    return status;
}
