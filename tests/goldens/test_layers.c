// Hidden states after the embedding and after each layer against MLX's (tests/goldens/data/layers), five tokens of the
// greedy golden's prompt: where the first difference comes in, and that it stays at the size of bf16 roundings.
#include "md_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/reference/reference.h"
#include "base/file.h"

enum { TOKENS = 5, HIDDEN = 256, LAYERS = 6, STAGES_A_LAYER = 7 };
static const uint32_t prompt[TOKENS] = {0, 629, 515, 262, 457}; // "Once upon a time" (greedy.json)

typedef struct difference {
    uint32_t equal;
    double worst, rms; // relative to the rows' root mean square
} difference;

static difference compare(const float *found, const float *expected) {
    difference d = {0};
    double square = 0, error = 0;
    for (int i = 0; i < TOKENS * HIDDEN; i++) {
        double e = fabs((double)found[i] - expected[i]);
        d.equal += e == 0;
        d.worst = fmax(d.worst, e);
        error += e * e;
        square += (double)expected[i] * expected[i];
    }
    d.worst /= sqrt(square / (TOKENS * HIDDEN));
    d.rms = sqrt(error / square);
    return d;
}

static difference layer_difference(const char *name, uint32_t stages) {
    md_error err = {0};
    md_snapshot *snapshot;
    md_plan *plan;
    md_engine *engine;
    md_kv *kv;
    md_engine_options options = {0};
    assert_int_equal(md_snapshot_open("models/fairytales", &snapshot, &err), MD_OK);
    assert_int_equal(md_plan_build(snapshot, &plan, &err), MD_OK);
    assert_int_equal(md_reference_open(plan, &options, &engine, &err), MD_OK);
    uint32_t all = plan->stage_count;
    plan->stage_count = stages; // the plan up to the layer in question
    assert_int_equal(engine->ops->kv_open(engine, TOKENS, &kv, &err), MD_OK);
    float found[TOKENS * HIDDEN];
    for (uint32_t t = 0; t < TOKENS; t++) {
        md_column column = {.kv = kv, .position = t, .token = prompt[t]};
        assert_int_equal(engine->ops->step(engine, &column, 1, &err), MD_OK);
        for (int i = 0; i < HIDDEN; i++) found[t * HIDDEN + i] = md_reference_residual(engine)[i];
    }
    plan->stage_count = all;
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
    md_plan_free(plan);
    md_snapshot_close(snapshot);
    char path[100], *expected;
    size_t size;
    snprintf(path, sizeof path, "tests/goldens/data/layers/%s.f32", name);
    assert_int_equal(md_file_read_all(path, 1 << 20, &expected, &size, &err), MD_OK);
    assert_int_equal(size, sizeof found);
    difference d = compare(found, (const float *)(const void *)expected);
    free(expected);
    print_message("%s: %u of %d values equal, worst %.2e, rms %.2e of the rows' rms\n", name, d.equal, TOKENS * HIDDEN,
                  d.worst, d.rms);
    return d;
}

static void embedding_is_exact(void **state) {
    (void)state;
    assert_int_equal(layer_difference("embed", 1).equal, TOKENS * HIDDEN);
}

// MLX sums in another order, so single values round to the neighbouring bf16 (2^-8 relative); the residual carries
// these on, layer by layer. The root mean square stays within a few roundings at every depth.
static void layers_stay_within_roundings(void **state) {
    (void)state;
    for (uint32_t l = 0; l < LAYERS; l++) {
        char name[16];
        snprintf(name, sizeof name, "layer%u", l);
        assert_true(layer_difference(name, 1 + STAGES_A_LAYER * (l + 1)).rms < 0x1p-6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(embedding_is_exact),
                                       cmocka_unit_test(layers_stay_within_roundings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
