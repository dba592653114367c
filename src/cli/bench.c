#include "cli/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/membench.h"
#include "base/status.h"
#include "cli/shared.h"
#include "cli/term.h"

enum { WARM_TOKENS = 3, CEILING_PASSES = 2 };
static const uint64_t CEILING_BYTES = (uint64_t)768 << 20;

typedef struct side_state {
    md_model *model;
    md_session *session;
    md_model_info info;
    double position_bytes; // of the KV cache
} side_state;

// What was measured of one side at one depth, and memory to work with.
typedef struct series {
    double *decode, *prefill; // [repeats] tokens a second
} series;

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

static md_status open_side(const md_bench_options *options, uint32_t index, bool account, side_state *side,
                           md_error *err) {
    md_model_options model_options = {.engine = options->engine[index],
                                      .account = account,
                                      .device = options->device,
                                      .threads = options->threads,
                                      .groups = options->groups,
                                      .deadline_ms = options->deadline_ms};
    MD_TRY(md_model_open(options->model, &model_options, &side->model, err));
    md_model_get_info(side->model, &side->info);
    if (index == 0) md_warn_threads(side->model);
    uint64_t widest = options->prompt > options->decode + WARM_TOKENS ? options->prompt : options->decode + WARM_TOKENS;
    uint64_t need = options->depth + widest;
    if (need > side->info.context)
        return md_fail(err, MD_E_USAGE, "%s: depth %u and %llu tokens do not fit its context of %u", options->model,
                       options->depth, (unsigned long long)widest, side->info.context);
    md_session_options session_options = {.context = (uint32_t)need, .kv = options->kv, .kv_from_start = true};
    MD_TRY(md_session_open(side->model, &session_options, &side->session, err));
    MD_TRY(md_session_quantize(side->session, err));
    side->position_bytes = (double)md_session_kv_bytes(side->session) / md_session_context(side->session);
    return MD_OK;
}

static void close_side(side_state *side) {
    md_session_close(side->session);
    md_model_close(side->model);
}

static md_status to_depth(side_state *side, uint32_t depth, md_error *err) {
    uint32_t at = md_session_position(side->session);
    if (at > depth) return md_session_rewind(side->session, depth, err);
    return at < depth ? md_session_skip(side->session, depth - at, err) : MD_OK;
}

static bool note_end(void *user, const md_piece *piece) {
    *(bool *)user = piece->finish != MD_FINISH_NONE;
    return !md_interrupted();
}

// n tokens as `run` makes them: greedily, by the engine itself where it can.
static md_status generate(side_state *side, uint32_t n, md_error *err) {
    const md_generation_params params = {.max_tokens = n + 1, .ignore_eos = true}; // the last is not computed
    md_generation *generation;
    md_piece piece;
    bool end = false;
    md_status status;
    MD_TRY(md_generation_open(side->session, &params, &generation, err));
    md_batch_turn turn = {.generation = generation, .on_piece = note_end, .user = &end, .choose = true};
    while (!end && !md_interrupted()) {
        if (turn.choose) {
            MD_TRY_GOTO(md_generation_next(generation, &piece, err));
            turn.token = piece.next;
            if (!note_end(&end, &piece) || end) break;
        }
        MD_TRY_GOTO(md_batch_generate(side->model, &turn, 1, UINT32_MAX, err));
        if (turn.error.code != MD_OK) MD_TRY_GOTO(md_fail(err, turn.error.code, "%s", turn.error.message));
    }
    status = md_interrupted() ? md_fail(err, MD_E_CANCELLED, "interrupted") : MD_OK;
fail:
    md_generation_close(generation);
    return status;
}

// A GPU chooses tokens itself, many a call; that is how it decodes.
static bool on_gpu(const side_state *side) { return strcmp(side->info.backend, "cpu") != 0; }

// Tokens a second of `n` tokens fed one by one (as decoding does) or all at once (as prefill does).
static md_status measure(side_state *side, uint32_t depth, const uint32_t *tokens, uint32_t n, bool one_by_one,
                         double *tps, md_error *err) {
    MD_TRY(to_depth(side, depth, err));
    if (one_by_one) MD_TRY(md_session_feed(side->session, tokens, WARM_TOKENS, err));
    double begin = md_clock_seconds();
    if (one_by_one && on_gpu(side))
        MD_TRY(generate(side, n, err));
    else if (one_by_one)
        for (uint32_t i = 0; i < n && !md_interrupted(); i++)
            MD_TRY(md_session_feed(side->session, tokens + i, 1, err));
    else
        MD_TRY(md_session_feed(side->session, tokens, n, err));
    if (md_interrupted()) return md_fail(err, MD_E_CANCELLED, "interrupted");
    *tps = n / (md_clock_seconds() - begin);
    return MD_OK;
}

// ---- medians ---------------------------------------------------------------------------------------------------

// Everything a measurement fills, freed as one.
typedef struct measured {
    uint32_t *tokens;              // [prompt + decode + WARM_TOKENS]
    double *ceilings, *scratch;    // [repeats] bytes a second
    series at[MD_BENCH_SWEEP_MAX]; // [count]
    uint32_t count;
} measured;

static void free_measured(measured *m) {
    free(m->tokens);
    free(m->ceilings);
    free(m->scratch);
    for (uint32_t i = 0; i < m->count; i++) {
        free(m->at[i].decode);
        free(m->at[i].prefill);
    }
}

static md_status alloc_measured(const md_bench_options *options, uint32_t count, measured *m, md_error *err) {
    size_t n = options->repeats;
    bool whole = true;
    *m = (measured){.count = count};
    m->tokens = calloc((size_t)options->prompt + options->decode + WARM_TOKENS, sizeof *m->tokens);
    m->ceilings = calloc(n, sizeof *m->ceilings);
    m->scratch = calloc(n, sizeof *m->scratch);
    for (uint32_t i = 0; i < count; i++) {
        m->at[i] = (series){calloc(n, sizeof(double)), calloc(n, sizeof(double))};
        whole &= m->at[i].decode && m->at[i].prefill;
    }
    return whole && m->tokens && m->ceilings && m->scratch ? MD_OK
                                                           : md_fail(err, MD_E_MEMORY, "out of memory for a benchmark");
}

static double median_of(const double *values, uint32_t n, double *scratch) {
    memcpy(scratch, values, n * sizeof *scratch);
    return median(scratch, n);
}

static void rate_of(const md_bench_options *options, const side_state *side, uint32_t depth, const measured *m,
                    const series *at, md_bench_rate *out) {
    uint32_t n = options->repeats;
    double bytes = (double)side->info.bytes_per_token + side->position_bytes * (depth + options->decode / 2.0);
    *out = (md_bench_rate){.workers = side->info.workers, .depth = depth};
    if (options->prompt) out->prefill_tps = median_of(at->prefill, n, m->scratch);
    if (!options->decode) return;
    out->decode_tps = median_of(at->decode, n, m->scratch);
    out->read_gbps = out->decode_tps * bytes / 1e9;
    if (!m->ceilings[0]) return;
    for (uint32_t r = 0; r < n; r++) m->scratch[r] = at->decode[r] * bytes / m->ceilings[r];
    out->ceiling_fraction = median(m->scratch, n);
    out->ceiling_gbps = median_of(m->ceilings, n, m->scratch) / 1e9;
}

static void ratio_of(uint32_t n, const measured *m, md_bench_result *out) {
    for (uint32_t r = 0; r < n; r++) m->scratch[r] = m->at[1].decode[r] / m->at[0].decode[r];
    out->ratio = median(m->scratch, n);
    out->ratio_min = m->scratch[0];
    out->ratio_max = m->scratch[n - 1];
}

static void keep_text(char *to, size_t size, const char **text) {
    snprintf(to, size, "%s", *text);
    *text = to;
}

static void keep_info(const md_model_info *info, md_bench_side *side) {
    side->info = *info;
    keep_text(side->name, sizeof side->name, &side->info.name);
    keep_text(side->engine, sizeof side->engine, &side->info.engine);
    keep_text(side->backend, sizeof side->backend, &side->info.backend);
    side->info.dir = NULL;
}

// ---- runs ------------------------------------------------------------------------------------------------------

static md_status measure_ceiling(const side_state *side, double *out, md_error *err) {
    if (on_gpu(side)) return MD_OK;
    return md_membench_read(side->info.workers, CEILING_BYTES, CEILING_PASSES, out, err);
}

static md_status check_repeats(const md_bench_options *options, md_error *err) {
    if (options->repeats >= 1 && options->repeats <= MD_BENCH_REPEATS_MAX) return MD_OK;
    return md_fail(err, MD_E_USAGE, "%u repeats, expected 1 to %d", options->repeats, MD_BENCH_REPEATS_MAX);
}

static md_status run_repeat(const md_bench_options *options, side_state *sides, uint32_t repeat, measured *m,
                            md_error *err) {
    MD_TRY(measure_ceiling(&sides[0], &m->ceilings[repeat], err));
    for (uint32_t i = 0; i < options->sides; i++) {
        uint32_t index = repeat % 2 ? options->sides - 1 - i : i; // AB BA AB ...
        side_state *side = &sides[index];
        series *at = &m->at[index];
        if (options->prompt)
            MD_TRY(measure(side, options->depth, m->tokens, options->prompt, false, &at->prefill[repeat], err));
        if (options->decode)
            MD_TRY(measure(side, options->depth, m->tokens, options->decode, true, &at->decode[repeat], err));
    }
    return MD_OK;
}

md_status md_bench_run(const md_bench_options *options, md_bench_result *out, md_error *err) {
    *out = (md_bench_result){0};
    MD_TRY(check_repeats(options, err));
    side_state sides[MD_BENCH_SIDES_MAX] = {0};
    measured m;
    md_status status;
    MD_TRY_GOTO(alloc_measured(options, options->sides, &m, err));
    for (uint32_t i = 0; i < options->sides; i++) MD_TRY_GOTO(open_side(options, i, false, &sides[i], err));
    fill_tokens(m.tokens, options->prompt + options->decode + WARM_TOKENS, sides[0].info.vocab);
    for (uint32_t r = 0; r < options->repeats; r++) MD_TRY_GOTO(run_repeat(options, sides, r, &m, err));
    for (uint32_t i = 0; i < options->sides; i++) {
        keep_info(&sides[i].info, &out->side[i]);
        rate_of(options, &sides[i], options->depth, &m, &m.at[i], &out->side[i].rate);
    }
    if (options->sides == 2 && options->decode) ratio_of(options->repeats, &m, out);
fail:
    for (uint32_t i = 0; i < options->sides; i++) close_side(&sides[i]);
    free_measured(&m);
    return status;
}

// The last side alone, decoding.
static md_bench_options decode_options(const md_bench_options *options) {
    md_bench_options one = *options;
    one.prompt = 0;
    one.sides = 1;
    one.engine[0] = options->engine[options->sides - 1];
    return one;
}

md_status md_bench_by_depth(const md_bench_options *options, const uint32_t *depth, uint32_t count, md_bench_sweep *out,
                            md_error *err) {
    md_bench_options one = decode_options(options);
    *out = (md_bench_sweep){0};
    MD_TRY(check_repeats(options, err));
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || depth[i] > one.depth) one.depth = depth[i];
    side_state side = {0};
    measured m;
    md_status status;
    MD_TRY_GOTO(alloc_measured(&one, count, &m, err));
    MD_TRY_GOTO(open_side(&one, 0, false, &side, err));
    fill_tokens(m.tokens, one.decode + WARM_TOKENS, side.info.vocab);
    for (uint32_t r = 0; r < one.repeats; r++) {
        MD_TRY_GOTO(measure_ceiling(&side, &m.ceilings[r], err));
        for (uint32_t i = 0; i < count; i++)
            MD_TRY_GOTO(measure(&side, depth[i], m.tokens, one.decode, true, &m.at[i].decode[r], err));
    }
    for (uint32_t i = 0; i < count; i++) rate_of(&one, &side, depth[i], &m, &m.at[i], &out->rate[i]);
    out->count = count;
fail:
    close_side(&side);
    free_measured(&m);
    return status;
}

md_status md_bench_by_workers(const md_bench_options *options, uint32_t most, md_bench_sweep *out, md_error *err) {
    md_bench_options one = decode_options(options);
    *out = (md_bench_sweep){0};
    for (uint32_t groups = 1; out->count < MD_BENCH_SWEEP_MAX; groups = groups * 2 < most ? groups * 2 : most) {
        md_bench_result result;
        one.groups = groups, one.threads = 0; // on a CPU they are the same
        MD_TRY(md_bench_run(&one, &result, err));
        out->rate[out->count++] = result.side[0].rate;
        if (groups >= most) break;
    }
    return MD_OK;
}

md_status md_bench_by_stage(const md_bench_options *options, md_bench_stages *out, md_error *err) {
    md_bench_options one = decode_options(options);
    uint32_t tokens[WARM_TOKENS];
    side_state side = {0};
    md_account account;
    md_status status;
    *out = (md_bench_stages){0};
    MD_TRY(check_repeats(options, err));
    MD_TRY_GOTO(open_side(&one, 0, true, &side, err));
    fill_tokens(tokens, WARM_TOKENS, side.info.vocab);
    for (uint32_t r = 0; r < one.repeats; r++) {
        MD_TRY_GOTO(to_depth(&side, one.depth, err));
        MD_TRY_GOTO(md_session_feed(side.session, tokens, WARM_TOKENS, err));
        MD_TRY_GOTO(md_model_account(side.model, &account, err)); // from here on
        double begin = md_clock_seconds();
        MD_TRY_GOTO(generate(&side, one.decode, err));
        double ms = (md_clock_seconds() - begin) * 1e3 / one.decode;
        MD_TRY_GOTO(md_model_account(side.model, &account, err));
        if (r == 0 || ms < out->ms) *out = (md_bench_stages){account, ms};
    }
fail:
    close_side(&side);
    return status;
}
