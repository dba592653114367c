// What the gates' files share.
#ifndef GATES_H
#define GATES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/backend.h"

void gate(bool ok, const char *text);                                // a line; counts failures
void check(md_status status, const md_error *err, const char *what); // what has to work: else the end
double now(void);
// A number of steps or tokens; with none a gate would test nothing, and pass.
static inline uint32_t count_of(const char *text) {
    const int n = atoi(text);
    if (n < 1) printf("found %s, expected a number of steps or tokens\n", text), exit(2);
    return (uint32_t)n;
}
md_engine *open_engine(const char *name, uint32_t groups); // "resident", "ops-graph", "cpu-ops", ...
md_kv *open_kv(md_engine *engine, uint32_t context);
bool collect(void *user, uint32_t token); // on_token: into the uint64_t digest *user
uint32_t *some_tokens(uint32_t n, uint32_t seed);
// Tokens at [position, position + n), in steps of up to `width` columns; logits of the last where wanted.
void feed(md_engine *engine, md_kv *kv, uint32_t position, const uint32_t *tokens, uint32_t n, uint32_t width,
          float *logits);
// The first position in [from, length) at which two bf16 caches of one context differ; `length`: none.
uint32_t caches_differ(md_engine *engine, md_kv *a, md_kv *b, uint32_t from, uint32_t length);

void gate_sampling(const char *path, uint32_t tokens, uint32_t groups); // 0 groups: all
void gate_graph(uint32_t steps);
void gate_host(void);
void gate_nan(void);
void gate_deep(uint32_t length, uint32_t from);
void gate_prefill(int n, char **lengths);
void bench_prompts(uint32_t width, int n, char **lengths);

#endif
