// Contexts as deep as models have them: what stands before the last tokens is made once, for both engines; the last
// ones are computed in every way there is.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/engine.h"
#include "gates.h"

enum {
    SINGLE = 24,                             // tokens at the end that one engine computes one by one
    TAIL = MD_CUDA_PREFILL_COLUMNS + SINGLE, // and those that both compute
    PIECE = (16 << 20) - 4352                // bytes: no layer's rows begin where another's do
};

// Rows of anything: finite, of either sign, 0.5 to 2, no two alike within a piece.
static void random_rows(md_engine *engine, md_kv *kv) {
    md_error err;
    md_cuda_engine *cuda = md_cuda_of(engine);
    const md_cuda_kv *memory = (const md_cuda_kv *)kv;
    uint16_t *piece = malloc(PIECE);
    uint32_t x = 1;
    for (size_t i = 0; i < PIECE / sizeof *piece; i++) {
        x = x * 1664525u + 1013904223u;
        piece[i] = (uint16_t)(0x3f00u | (x >> 16 & 0x80ffu));
    }
    for (uint64_t at = 0; at < memory->wide_bytes; at += PIECE) {
        const size_t bytes = memory->wide_bytes - at < PIECE ? memory->wide_bytes - at : PIECE;
        check(md_cuda_check(cuda->cu, cuda->cu->cuMemcpyHtoDAsync(memory->wide + at, piece, bytes, cuda->stream),
                            "filling a cache", &err),
              &err, "deep");
    }
    check(md_cuda_check(cuda->cu, cuda->cu->cuStreamSynchronize(cuda->stream), "filling a cache", &err), &err, "deep");
    free(piece);
}

typedef struct deep {
    md_engine *resident, *ops;
    md_kv *a, *b; // of each
    uint32_t *tokens, length;
    float *right, *found;
} deep;

// The last logits of both, as the rest of `what`.
static bool same_logits(const deep *d, const char *what, char *text, size_t size) {
    const uint32_t vocab = d->resident->snapshot->vocab;
    bool finite = true, same = memcmp(d->right, d->found, vocab * sizeof *d->right) == 0;
    for (uint32_t i = 0; i < vocab; i++) finite = finite && isfinite(d->right[i]);
    snprintf(text, size, "deep %u, %s: logits %s", d->length, what, !finite ? "NOT FINITE" : same ? "same" : "DIFFER");
    return finite && same;
}

// The last tokens: resident in chunks, against a prompt's launches and then ops, one by one.
static void compare_prompt(const deep *d) {
    const uint32_t body = d->length - TAIL, last = d->length - SINGLE;
    md_engine_info info;
    char text[200];
    d->resident->ops->info(d->resident, &info);
    feed(d->resident, d->a, body, d->tokens + body, TAIL, info.max_columns, d->right);
    feed(d->ops, d->b, body, d->tokens + body, MD_CUDA_PREFILL_COLUMNS, MD_CUDA_PREFILL_COLUMNS, NULL);
    feed(d->ops, d->b, last, d->tokens + last, SINGLE, 1, d->found);
    bool same = same_logits(d, "resident in chunks = a prompt's launches, then ops", text, sizeof text);
    const uint32_t differ = caches_differ(d->resident, d->a, d->b, body, d->length);
    if (differ < d->length)
        snprintf(text + strlen(text), sizeof text - strlen(text), ", CACHES DIFFER from position %u", differ);
    gate(same && differ == d->length, text);
    gate(md_cuda_of(d->ops)->prefill.ready, "deep: a prompt's launches were used");
}

// Tokens that the engines choose themselves, up to the context's end.
static void compare_burst(const deep *d) {
    md_error err;
    uint64_t digest[2] = {0, 0};
    uint32_t produced[2];
    char text[200];
    for (int i = 0; i < 2; i++) {
        md_engine *engine = i ? d->ops : d->resident;
        md_burst_column column = {.kv = i ? d->b : d->a,
                                  .position = d->length - SINGLE,
                                  .token = d->tokens[d->length - SINGLE],
                                  .on_token = collect,
                                  .user = &digest[i]};
        check(engine->ops->burst(engine, &(md_burst){&column, 1, SINGLE}, &err), &err, "burst");
        produced[i] = column.produced;
    }
    snprintf(text, sizeof text, "deep %u, a burst of %u tokens: resident %016llx, ops %016llx", d->length, produced[0],
             (unsigned long long)digest[0], (unsigned long long)digest[1]);
    gate(digest[0] == digest[1] && produced[0] == SINGLE && produced[1] == SINGLE, text);
}

// The same with caches quantized behind the body, as the snapshot says.
static void compare_quantized(const deep *d) {
    md_error err;
    const uint32_t body = d->length - SINGLE;
    md_engine_info info;
    char text[200];
    d->resident->ops->info(d->resident, &info);
    const md_kv_format *format = d->resident->snapshot->kv;
    check(d->resident->ops->kv_quantize(d->resident, d->a, format, body, &err), &err, "quantize");
    check(d->ops->ops->kv_quantize(d->ops, d->b, format, body, &err), &err, "quantize");
    feed(d->resident, d->a, body, d->tokens + body, SINGLE, info.max_columns, d->right);
    feed(d->ops, d->b, body, d->tokens + body, SINGLE, 1, d->found);
    gate(same_logits(d, "caches quantized, resident in chunks = ops", text, sizeof text), text);
}

void gate_deep(uint32_t length, uint32_t from) {
    md_error err;
    if (length < 2 * TAIL || from > length - TAIL) {
        gate(false, "deep: LENGTH of 1072 at least, FROM at most LENGTH - 536");
        return;
    }
    deep d = {.resident = open_engine("resident", 0), .ops = open_engine("ops", 0), .length = length};
    const size_t vocab = d.resident->snapshot->vocab;
    d.tokens = some_tokens(length, 11);
    d.right = malloc(vocab * sizeof *d.right), d.found = malloc(vocab * sizeof *d.found);
    d.a = open_kv(d.resident, length), d.b = open_kv(d.ops, length);
    double start = now();
    if (from) random_rows(d.resident, d.a);
    feed(d.resident, d.a, from, d.tokens + from, length - TAIL - from, MD_CUDA_PREFILL_COLUMNS, NULL);
    check(d.ops->ops->kv_copy(d.ops, d.b, d.a, length - TAIL, &err), &err, "copy");
    printf("     deep: %u rows of anything and a prompt's launches to %u in %.2f s\n", from, length - TAIL,
           now() - start);
    fflush(stdout);
    compare_prompt(&d);
    compare_burst(&d);
    if (d.resident->snapshot->kv) compare_quantized(&d);
    d.resident->ops->kv_close(d.resident, d.a);
    d.ops->ops->kv_close(d.ops, d.b);
    d.resident->ops->close(d.resident);
    d.ops->ops->close(d.ops);
    free(d.tokens);
    free(d.right);
    free(d.found);
}
