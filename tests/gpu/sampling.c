// Tokens that the kernel chooses against the host's sampler on the same logits: one sequence alone, and several
// together, each with its own prompt, rules and seed.
#include "gates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "megadecode.h"

enum { RULES = 8, QUICK_RULES = 3, MOST_TOKENS = 512 };

// Among them: candidates that don't suffice (hot; more than 64 of top_k), and greedy.
static const md_sampling rules[RULES] = {{.temperature = 1},
                                         {.temperature = 0.7, .top_p = 0.9},
                                         {.temperature = 1, .top_k = 20},
                                         {.temperature = 1.3, .min_p = 0.05},
                                         {.temperature = 0.8, .top_k = 50, .top_p = 0.95, .min_p = 0.01},
                                         {.temperature = 1.5, .top_k = 200, .top_p = 0.5},
                                         {.temperature = 0},
                                         {.temperature = 3, .top_k = 64}};

// For tools that slow the kernel down, and count the word that stops its producer early as a race: none of these ends a
// launch early, since 64 candidates suffice.
static const md_sampling quick_rules[QUICK_RULES] = {
    {.temperature = 0.2, .top_p = 0.5}, {.temperature = 1, .top_k = 20}, {.temperature = 0}};

static const md_sampling *used = rules;

typedef struct run {
    md_generation_params params;
    md_session *session;
    md_generation *generation;
    uint32_t tokens[MOST_TOKENS];
    uint32_t count, by_host; // of these, chosen by the host
    bool done;
} run;

static md_error err;
static void ok(md_status status) {
    if (status == MD_OK) return;
    printf("FAIL sampling: %s: %s\n", md_status_name(status), err.message);
    exit(1);
}

static md_model *open_model(const char *path, const char *engine, uint32_t groups) {
    md_model *model;
    ok(md_model_open(path, &(md_model_options){.engine = engine, .device = "cuda", .groups = groups}, &model, &err));
    return model;
}

static bool has_kv_config(md_model *model) {
    md_model_info info;
    md_model_get_info(model, &info);
    return info.kv_bytes_snapshot != 0;
}

static void begin(run *r, md_model *model, uint32_t which, uint32_t seed, uint32_t tokens) {
    const uint32_t prompt[] = {5 + which, 17 + seed, 29};
    memset(r, 0, sizeof *r);
    r->params = (md_generation_params){.sampling = used[which], .max_tokens = tokens, .ignore_eos = true};
    r->params.sampling.seed = seed * 1000003ull + which;
    md_session_options options = {.context = tokens + 4};
    if (which % 3 == 2) options.kv = "snapshot", options.kv_from_start = true; // some have a quantized cache
    if (options.kv && !has_kv_config(model)) options.kv = "8";
    ok(md_session_open(model, &options, &r->session, &err));
    ok(md_session_sync(r->session, prompt, 3, NULL, &err));
    ok(md_generation_open(r->session, &r->params, &r->generation, &err));
}

static void end(run *r) {
    md_generation_close(r->generation);
    md_session_close(r->session);
}

static bool on_piece(void *user, const md_piece *piece) {
    run *r = user;
    r->tokens[r->count++] = piece->next;
    r->done = piece->finish != MD_FINISH_NONE;
    return true;
}

static uint32_t choose(run *r) {
    md_piece piece;
    ok(md_generation_next(r->generation, &piece, &err));
    on_piece(r, &piece);
    r->by_host++;
    return piece.next;
}

// The host's sampler, step by step.
static void by_host(run *r) {
    for (;;) {
        uint32_t token = choose(r);
        if (r->done) return;
        ok(md_session_feed(r->session, &token, 1, &err));
    }
}

// Up to 8 together, as long as one runs.
static void by_kernel(md_model *model, run *runs, uint32_t n) {
    md_batch_turn turn[RULES];
    bool choosing[RULES];
    for (uint32_t i = 0; i < n; i++) choosing[i] = true;
    uint32_t next[RULES];
    for (;;) {
        uint32_t of[RULES], some = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (!runs[i].done && choosing[i]) next[i] = choose(&runs[i]);
            if (runs[i].done) continue;
            turn[some] = (md_batch_turn){
                .generation = runs[i].generation, .token = next[i], .on_piece = on_piece, .user = &runs[i]};
            of[some++] = i;
        }
        if (!some) return;
        ok(md_batch_generate(model, turn, some, 1000, &err));
        for (uint32_t k = 0; k < some; k++) next[of[k]] = turn[k].token, choosing[of[k]] = turn[k].choose;
    }
}

static bool same(const run *a, const run *b) {
    return a->count == b->count && memcmp(a->tokens, b->tokens, a->count * sizeof *a->tokens) == 0;
}

// Each alone.
static void alone(md_model *resident, const run *right, run *found, uint32_t n, uint32_t seed, uint32_t tokens) {
    char text[300];
    for (uint32_t i = 0; i < n; i++) {
        begin(&found[i], resident, i, seed, tokens);
        double start = now();
        by_kernel(resident, &found[i], 1);
        snprintf(text, sizeof text,
                 "sampling: rule %u, seed %u: %u tokens as the host's, %u left to it, %.3f ms a token", i, seed,
                 found[i].count, found[i].by_host, (now() - start) * 1e3 / tokens);
        gate(same(&right[i], &found[i]), text);
        end(&found[i]);
    }
}

// `n` at once, of different lengths.
static void together(md_model *model, run *right, run *found, uint32_t n, uint32_t seed, uint32_t tokens) {
    char text[300];
    for (uint32_t i = 0; i < n; i++) begin(&found[i], model, i, seed, tokens - i);
    double start = now();
    by_kernel(model, found, n);
    double took = now() - start;
    bool all = true;
    uint32_t total = 0, host = 0;
    for (uint32_t i = 0; i < n; i++) {
        right[i].count = tokens - i; // a shorter answer is the same one, cut
        all = all && same(&right[i], &found[i]);
        right[i].count = tokens;
        total += found[i].count, host += found[i].by_host;
        end(&found[i]);
    }
    md_model_info info;
    md_model_get_info(model, &info);
    snprintf(text, sizeof text,
             "sampling: %u sequences together as alone, %s: %u tokens, %u left to the host, %.0f tok/s", n, info.engine,
             total, host, total / took);
    gate(all, text);
}

static void bench_together(md_model *resident, run *runs, uint32_t n) {
    enum { TOKENS = 256, GREEDY = 6 };
    for (uint32_t i = 0; i < n; i++) begin(&runs[i], resident, GREEDY, i, TOKENS);
    double start = now();
    by_kernel(resident, runs, n);
    double took = now() - start;
    for (uint32_t i = 0; i < n; i++) end(&runs[i]);
    printf("     bench resident %u greedy sequences together: %.4f ms a step, %.0f tok/s\n", n, took * 1e3 / TOKENS,
           n * TOKENS / took);
}

void gate_sampling(const char *path, uint32_t tokens, uint32_t groups) {
    static run right[RULES], found[RULES];
    bool quick = tokens <= 8;
    if (quick) used = quick_rules;
    if (tokens > MOST_TOKENS) tokens = MOST_TOKENS;
    md_model *resident = open_model(path, "resident", groups), *ops = quick ? resident : open_model(path, "ops", 0);
    md_model_info info;
    md_model_get_info(resident, &info);
    uint32_t n = quick ? QUICK_RULES : RULES;
    for (uint32_t seed = 1; seed <= (quick ? 1 : 2); seed++) {
        for (uint32_t i = 0; i < n; i++) begin(&right[i], ops, i, seed, tokens), by_host(&right[i]);
        alone(resident, right, found, n, seed, tokens);
        if (info.max_columns >= 3) together(resident, right, found, 3, seed, tokens);
        if (info.max_columns >= n && n > 3) together(resident, right, found, n, seed, tokens);
        if (info.max_columns >= 3 && !quick) together(ops, right, found, 3, seed, tokens);
        for (uint32_t i = 0; i < n; i++) end(&right[i]);
    }
    if (!quick) bench_together(resident, found, info.max_columns < RULES ? info.max_columns : RULES);
    if (!quick) md_model_close(ops);
    md_model_close(resident);
}
