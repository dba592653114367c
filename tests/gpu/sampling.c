// Tokens that the kernel chooses against the host's sampler on the same logits: one sequence alone, and several
// together, each with its own prompt, rules and seed.
#include "gates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "megadecode.h"

enum { RULES = 8, MOST_TOKENS = 512 };

// Among them: candidates that don't suffice (hot; more than 64 of top_k), and greedy.
static const md_sampling rules[RULES] = {{.temperature = 1},
                                         {.temperature = 0.7, .top_p = 0.9},
                                         {.temperature = 1, .top_k = 20},
                                         {.temperature = 1.3, .min_p = 0.05},
                                         {.temperature = 0.8, .top_k = 50, .top_p = 0.95, .min_p = 0.01},
                                         {.temperature = 1.5, .top_k = 200, .top_p = 0.5},
                                         {.temperature = 0},
                                         {.temperature = 3, .top_k = 64}};

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

static void begin(run *r, md_model *model, uint32_t which, uint32_t seed, uint32_t tokens) {
    const uint32_t prompt[] = {5 + which, 17 + seed, 29};
    memset(r, 0, sizeof *r);
    r->params = (md_generation_params){.sampling = rules[which], .max_tokens = tokens, .ignore_eos = true};
    r->params.sampling.seed = seed * 1000003ull + which;
    ok(md_session_open(model, &(md_session_options){.context = tokens + 4}, &r->session, &err));
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

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool same(const run *a, const run *b) {
    return a->count == b->count && memcmp(a->tokens, b->tokens, a->count * sizeof *a->tokens) == 0;
}

void gate_sampling(const char *path, uint32_t tokens, uint32_t groups) {
    static run right[RULES], found[RULES];
    char text[300];
    if (tokens > MOST_TOKENS) tokens = MOST_TOKENS;
    md_model *ops = open_model(path, "ops", 0), *resident = open_model(path, "resident", groups);
    md_model_info info;
    md_model_get_info(resident, &info);
    for (uint32_t seed = 1; seed <= 2; seed++) {
        for (uint32_t i = 0; i < RULES; i++) begin(&right[i], ops, i, seed, tokens), by_host(&right[i]);
        for (uint32_t i = 0; i < RULES; i++) {
            begin(&found[i], resident, i, seed, tokens);
            double start = now();
            by_kernel(resident, &found[i], 1);
            snprintf(
                text, sizeof text,
                "sampling: rule %u, seed %u, G=%u: %u tokens as the host's, %u of them left to it, %.3f ms a token", i,
                seed, info.workers, found[i].count, found[i].by_host, (now() - start) * 1e3 / tokens);
            gate(same(&right[i], &found[i]), text);
            end(&found[i]);
        }
        for (uint32_t n = 3; n <= RULES; n += 5) {
            if (n > info.max_columns) continue;
            for (uint32_t i = 0; i < n; i++) begin(&found[i], resident, i, seed, tokens - 3 * i);
            double start = now();
            by_kernel(resident, found, n);
            double took = now() - start;
            bool all = true;
            uint32_t total = 0, host = 0;
            for (uint32_t i = 0; i < n; i++) {
                right[i].count = tokens - 3 * i; // a shorter answer is the same one, cut
                all = all && same(&right[i], &found[i]);
                total += found[i].count, host += found[i].by_host;
                end(&found[i]);
            }
            snprintf(text, sizeof text,
                     "sampling: %u sequences together as alone: %u tokens, %u left to the host, %.0f tok/s", n, total,
                     host, total / took);
            gate(all, text);
            for (uint32_t i = 0; i < n; i++) right[i].count = tokens;
        }
        for (uint32_t i = 0; i < RULES; i++) end(&right[i]);
    }
    md_model_close(ops);
    md_model_close(resident);
}
