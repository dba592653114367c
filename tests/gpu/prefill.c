// Prompts in launches of their own: the bits of token by token, and their rate.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/engine.h"
#include "gates.h"

uint32_t caches_differ(md_engine *engine, md_kv *a, md_kv *b, uint32_t from, uint32_t length) {
    md_error err;
    md_cuda_engine *cuda = md_cuda_of(engine);
    const md_cuda_kv *of[2] = {(md_cuda_kv *)a, (md_cuda_kv *)b};
    const size_t row = engine->snapshot->head_dim * 2, part = (length - from) * row;
    uint8_t *copy[2] = {malloc(part), malloc(part)};
    uint32_t first = length;
    for (size_t at = from * row; at < of[0]->wide_bytes;
         at += of[0]->context * row) { // keys or values of a layer and head
        for (int i = 0; i < 2; i++)
            check(md_cuda_check(cuda->cu, cuda->cu->cuMemcpyDtoH(copy[i], of[i]->wide + at, part), "cache", &err), &err,
                  "cache");
        for (uint32_t position = from; position < first; position++)
            if (memcmp(copy[0] + (position - from) * row, copy[1] + (position - from) * row, row) != 0)
                first = position;
    }
    free(copy[0]);
    free(copy[1]);
    return first;
}

// A prompt from position `from` on, whole, behind tokens one by one; against all of it one by one in `single`.
static void compare(md_engine *engine, md_kv *single, const float *right, const uint32_t *tokens, uint32_t length,
                    uint32_t from) {
    float *logits = malloc(engine->snapshot->vocab * sizeof *logits);
    md_kv *kv = open_kv(engine, ((md_cuda_kv *)single)->context);
    if (from) feed(engine, kv, 0, tokens, from, 1, NULL);
    feed(engine, kv, from, tokens + from, length - from, MD_CUDA_PREFILL_COLUMNS, logits);
    uint32_t differ = caches_differ(engine, single, kv, 0, length);
    bool finite = true, same = memcmp(logits, right, engine->snapshot->vocab * sizeof *logits) == 0;
    for (uint32_t i = 0; i < engine->snapshot->vocab; i++) finite = finite && isfinite(logits[i]);
    char text[160];
    int n = snprintf(text, sizeof text, "prefill %u from %u = token by token: logits %s", length, from,
                     !finite ? "NOT FINITE"
                     : same  ? "same"
                             : "DIFFER");
    if (differ < length) snprintf(text + n, sizeof text - (size_t)n, ", CACHES DIFFER from position %u", differ);
    gate(finite && same && differ == length, text);
    engine->ops->kv_close(engine, kv);
    free(logits);
}

// Two sequences in one step, each with the logits it would have alone.
static void compare_two(md_engine *engine) {
    enum { A = 40, B = 30 };
    md_error err;
    uint32_t *tokens = some_tokens(A + B, 5);
    const size_t row = engine->snapshot->vocab * sizeof(float);
    float *alone = malloc(2 * row), *together = malloc(2 * row);
    md_kv *kv[4];
    md_column columns[A + B];
    for (int i = 0; i < 4; i++) kv[i] = open_kv(engine, 64);
    feed(engine, kv[0], 0, tokens, A, 1, alone);
    feed(engine, kv[1], 0, tokens + A, B, 1, alone + engine->snapshot->vocab);
    for (uint32_t c = 0; c < A + B; c++)
        columns[c] = (md_column){.kv = kv[c < A ? 2 : 3], .position = c < A ? c : c - A, .token = tokens[c]};
    columns[A - 1].logits = together, columns[A + B - 1].logits = together + engine->snapshot->vocab;
    check(engine->ops->step(engine, columns, A + B, &err), &err, "step");
    gate(memcmp(alone, together, 2 * row) == 0 && caches_differ(engine, kv[0], kv[2], 0, A) == A &&
             caches_differ(engine, kv[1], kv[3], 0, B) == B,
         "prefill of two sequences together = token by token");
    for (int i = 0; i < 4; i++) engine->ops->kv_close(engine, kv[i]);
    free(tokens);
    free(alone);
    free(together);
}

void gate_prefill(int n, char **lengths) {
    md_engine *engine = open_engine("resident", 0);
    float *right = malloc(engine->snapshot->vocab * sizeof *right);
    for (int i = 0; i < n; i++) {
        uint32_t length = (uint32_t)atoi(lengths[i]), *tokens = some_tokens(length, 11);
        md_kv *single = open_kv(engine, length + 3);
        feed(engine, single, 0, tokens, length, 1, right);
        compare(engine, single, right, tokens, length, 0);
        if (length > 100) compare(engine, single, right, tokens, length, 83);
        engine->ops->kv_close(engine, single);
        free(tokens);
    }
    if (n > 1) compare_two(engine);
    gate(md_cuda_of(engine)->prefill.ready, "prefill has launches of its own");
    engine->ops->close(engine);
}

void bench_prompts(uint32_t width, int n, char **lengths) {
    enum { REPEATS = 7 };
    md_engine *engine = open_engine("resident", 0);
    float *logits = malloc(engine->snapshot->vocab * sizeof *logits);
    for (int i = 0; i < n; i++) {
        uint32_t length = (uint32_t)atoi(lengths[i]), *tokens = some_tokens(length, 1);
        md_kv *kv = open_kv(engine, length);
        double times[REPEATS];
        feed(engine, kv, 0, tokens, length, width, logits);
        for (int r = 0; r < REPEATS; r++) {
            double start = now();
            feed(engine, kv, 0, tokens, length, width, logits);
            times[r] = now() - start;
            for (int k = r; k > 0 && times[k] < times[k - 1]; k--) { // sorted: the median is in the middle
                double t = times[k];
                times[k] = times[k - 1], times[k - 1] = t;
            }
        }
        printf("     bench prompt of %u, %u columns a step: %.3f ms, %.0f tok/s (best %.0f, worst %.0f)\n", length,
               width, times[REPEATS / 2] * 1e3, length / times[REPEATS / 2], length / times[0],
               length / times[REPEATS - 1]);
        fflush(stdout);
        engine->ops->kv_close(engine, kv);
        free(tokens);
    }
    free(logits);
    engine->ops->close(engine);
}
