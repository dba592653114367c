// Runs of an engine for tests: a fixed stream of tokens, logits of every step, compared bit for bit.
#ifndef MD_TESTS_ENGINE_RUNS_H
#define MD_TESTS_ENGINE_RUNS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "md_test.h"

#include "backend/backend.h"

typedef struct er_model {
    md_snapshot *snapshot;
    md_plan *plan;
} er_model;

static inline er_model er_open(const char *dir) {
    er_model model = {0};
    md_error err = {0};
    if (md_snapshot_open(dir, &model.snapshot, &err) != MD_OK) fail_msg("%s", err.message);
    if (md_plan_build(model.snapshot, &model.plan, &err) != MD_OK) fail_msg("%s", err.message);
    return model;
}

static inline void er_close(er_model *model) {
    md_plan_free(model->plan);
    md_snapshot_close(model->snapshot);
}

typedef enum er_kind { ER_REFERENCE, ER_OPS, ER_RESIDENT } er_kind;

static inline md_engine *er_engine(const er_model *model, er_kind kind, uint32_t threads) {
    md_engine *engine = NULL;
    md_error err = {0};
    md_engine_options options = {.threads = threads};
    md_status status = kind == ER_REFERENCE ? md_reference_open(model->plan, &options, &engine, &err)
                                            : md_cpu_open(model->plan, kind == ER_RESIDENT, &options, &engine, &err);
    if (status != MD_OK) fail_msg("%s", err.message);
    return engine;
}

static inline uint32_t er_token(const er_model *model, uint32_t seed, uint32_t i) {
    uint32_t x = (seed + 1) * 2654435761u ^ (i + 1) * 2246822519u;
    x ^= x >> 15;
    x *= 2654435761u;
    return (x >> 8) % model->snapshot->vocab;
}

static inline void er_step(md_engine *engine, const md_column *columns, uint32_t count) {
    md_error err = {0};
    if (engine->ops->step(engine, columns, count, &err) != MD_OK) fail_msg("%s", err.message);
}

static inline md_kv *er_kv(md_engine *engine, uint32_t context) {
    md_kv *kv = NULL;
    md_error err = {0};
    if (engine->ops->kv_open(engine, context, &kv, &err) != MD_OK) fail_msg("%s", err.message);
    return kv;
}

// Feeds tokens [from, from + count) of stream `seed` in steps of at most `chunk` columns; the logits of every position
// go to logits[position][vocab].
static inline void er_feed(const er_model *model, md_engine *engine, md_kv *kv, uint32_t seed, uint32_t from,
                           uint32_t count, uint32_t chunk, float *logits) {
    md_column columns[256];
    for (uint32_t at = 0; at < count; at += chunk) {
        uint32_t n = count - at < chunk ? count - at : chunk;
        for (uint32_t c = 0; c < n; c++) {
            uint32_t position = from + at + c;
            columns[c] = (md_column){.kv = kv,
                                     .position = position,
                                     .token = er_token(model, seed, position),
                                     .logits = logits ? logits + (size_t)position * model->snapshot->vocab : NULL};
        }
        er_step(engine, columns, n);
    }
}

// All logits of `total` positions: the first `prompt` in steps of `chunk`, then (format not NULL) the cache quantized,
// then the rest in steps of `after`. malloc'd.
static inline float *er_run(const er_model *model, md_engine *engine, uint32_t seed, uint32_t total, uint32_t prompt,
                            uint32_t chunk, uint32_t after, const md_kv_format *format) {
    float *logits = calloc((size_t)total * model->snapshot->vocab, sizeof *logits);
    assert_non_null(logits);
    md_kv *kv = er_kv(engine, total);
    er_feed(model, engine, kv, seed, 0, prompt, chunk, logits);
    md_error err = {0};
    if (format && engine->ops->kv_quantize(engine, kv, format, prompt, &err) != MD_OK) fail_msg("%s", err.message);
    er_feed(model, engine, kv, seed, prompt, total - prompt, after, logits);
    engine->ops->kv_close(engine, kv);
    return logits;
}

// Equal bits, or a failure that says where (NaN in the expected logits fails too: it would hide everything).
static inline void er_same(const er_model *model, const float *found, const float *expected, uint32_t positions,
                           const char *what) {
    for (size_t i = 0; i < (size_t)positions * model->snapshot->vocab; i++) {
        if (expected[i] != expected[i]) fail_msg("%s: the reference has NaN at logit %zu", what, i);
        if (memcmp(&found[i], &expected[i], sizeof *found) == 0) continue;
        fail_msg("%s: position %zu, logit %zu: %.9g (%a), expected %.9g (%a)", what, i / model->snapshot->vocab,
                 i % model->snapshot->vocab, found[i], found[i], expected[i], expected[i]);
    }
}

#endif
