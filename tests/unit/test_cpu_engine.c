// The CPU engines against the reference on the shipped model: same bits for both engines, every level, thread counts 1
// to 8, prompts cut in any way, and columns of several sequences.
#include "engine_runs.h"

#include "backend/cpu/level.h"

enum { TOTAL = 150, SEED = 7 }; // crosses the border of an attention block

static er_model model;
static float *expected, *expected_quantized;
static md_kv_format *format;

static int setup(void **state) {
    (void)state;
    model = er_open("models/fairytales");
    md_engine *reference = er_engine(&model, ER_REFERENCE, 1);
    expected = er_run(&model, reference, SEED, TOTAL, TOTAL, 8, 8, NULL);
    format = model.snapshot->kv;
    assert_non_null(format);
    expected_quantized = er_run(&model, reference, SEED, TOTAL, 20, 8, 8, format);
    reference->ops->close(reference);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    free(expected);
    free(expected_quantized);
    er_close(&model);
    return 0;
}

static void check(er_kind kind, uint32_t threads, uint32_t chunk) {
    char what[96];
    snprintf(what, sizeof what, "%s, %u threads, chunks of %u", kind == ER_OPS ? "ops" : "resident", threads, chunk);
    md_engine *engine = er_engine(&model, kind, threads);
    float *found = er_run(&model, engine, SEED, TOTAL, TOTAL, chunk, chunk, NULL);
    er_same(&model, found, expected, TOTAL, what);
    free(found);
    strcat(what, ", quantized cache");
    found = er_run(&model, engine, SEED, TOTAL, 20, chunk, chunk, format);
    er_same(&model, found, expected_quantized, TOTAL, what);
    free(found);
    engine->ops->close(engine);
}

static void test_threads(void **state) {
    (void)state;
    for (uint32_t threads = 1; threads <= 8; threads++) {
        check(ER_RESIDENT, threads, threads % 2 ? 1 : 32);
        check(ER_OPS, threads, threads % 2 ? 8 : 3);
    }
}

static void test_chunks(void **state) {
    (void)state;
    static const uint32_t chunks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 64};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) check(ER_RESIDENT, 2, chunks[i]);
}

static void test_levels(void **state) {
    (void)state;
    const md_kernels *level[MD_CPU_MAX_LEVELS];
    uint32_t n = md_cpu_levels(level);
    for (uint32_t i = 0; i < n; i++) {
        print_message("level %s\n", level[i]->name);
        setenv("MEGADECODE_CPU", level[i]->name, 1);
        check(ER_RESIDENT, 2, 1);
        check(ER_RESIDENT, 1, 13);
        check(ER_OPS, 2, 8);
    }
    unsetenv("MEGADECODE_CPU");
}

static void test_level_names(void **state) {
    (void)state;
    md_engine *engine;
    md_error err = {0};
    setenv("MEGADECODE_CPU", "sse9", 1);
    assert_int_equal(md_cpu_open(model.plan, true, &(md_engine_options){.threads = 1}, &engine, &err), MD_E_USAGE);
    assert_string_equal(err.message, "MEGADECODE_CPU: found \"sse9\", expected scalar, avx2, avx512, avx512vnni, "
                                     "avx512bf16 or neon");
#if defined(__x86_64__)
    setenv("MEGADECODE_CPU", "neon", 1);
#else
    setenv("MEGADECODE_CPU", "avx2", 1);
#endif
    assert_int_equal(md_cpu_open(model.plan, true, &(md_engine_options){.threads = 1}, &engine, &err),
                     MD_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "MEGADECODE_CPU: found \""));
    unsetenv("MEGADECODE_CPU");
}

// Several sequences at different positions, of bf16 and quantized caches, in one step: each gets the bits it has alone.
static void test_batch(void **state) {
    (void)state;
    enum { SEQUENCES = 8, LENGTH = 12 };
    md_engine *engine = er_engine(&model, ER_RESIDENT, 3);
    float *alone[SEQUENCES], *found[SEQUENCES];
    md_kv *kv[SEQUENCES];
    size_t vocab = model.snapshot->vocab;
    md_error err = {0};
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        uint32_t start = i * 19; // the last ones cross a block's border
        alone[i] = er_run(&model, engine, i, start + LENGTH, start, 32, 1, i % 2 ? format : NULL);
        found[i] = calloc((start + LENGTH) * vocab, sizeof(float));
        kv[i] = er_kv(engine, 256);
        er_feed(&model, engine, kv[i], i, 0, start, 5, found[i]);
        if (i % 2) assert_int_equal(engine->ops->kv_quantize(engine, kv[i], format, start, &err), MD_OK);
    }
    for (uint32_t step = 0; step < LENGTH; step++) {
        md_column columns[SEQUENCES];
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            uint32_t position = i * 19 + step;
            columns[i] = (md_column){kv[i], position, er_token(&model, i, position), found[i] + position * vocab};
        }
        er_step(engine, columns, SEQUENCES);
    }
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        char what[48];
        snprintf(what, sizeof what, "sequence %u in a batch", i);
        er_same(&model, found[i], alone[i], i * 19 + LENGTH, what);
        free(alone[i]);
        free(found[i]);
        engine->ops->kv_close(engine, kv[i]);
    }
    engine->ops->close(engine);
}

// A copied cache goes on like the one it came from; its size says what is used.
static void copy_case(const md_kv_format *quantized) {
    enum { PREFIX = 140 };
    md_engine *engine = er_engine(&model, ER_RESIDENT, 2);
    md_error err = {0};
    size_t vocab = model.snapshot->vocab;
    float *first = calloc(TOTAL * vocab, sizeof(float)), *second = calloc(TOTAL * vocab, sizeof(float));
    md_kv *from = er_kv(engine, TOTAL), *to = er_kv(engine, 2 * TOTAL);
    er_feed(&model, engine, from, SEED, 0, PREFIX, 32, first);
    if (quantized) assert_int_equal(engine->ops->kv_quantize(engine, from, quantized, PREFIX, &err), MD_OK);
    assert_int_equal(engine->ops->kv_copy(engine, to, from, PREFIX, &err), MD_OK);
    assert_true(engine->ops->kv_bytes(engine, to) == engine->ops->kv_bytes(engine, from));
    er_feed(&model, engine, from, SEED, PREFIX, TOTAL - PREFIX, 1, first);
    er_feed(&model, engine, to, SEED, PREFIX, TOTAL - PREFIX, 3, second);
    er_same(&model, second + PREFIX * vocab, first + PREFIX * vocab, TOTAL - PREFIX, "a copied cache");
    md_kv *small = er_kv(engine, 10);
    assert_int_equal(engine->ops->kv_copy(engine, small, from, 11, &err), MD_E_CONTEXT);
    engine->ops->kv_close(engine, small);
    engine->ops->kv_close(engine, from);
    engine->ops->kv_close(engine, to);
    engine->ops->close(engine);
    free(first);
    free(second);
}

static void test_copy(void **state) {
    (void)state;
    copy_case(NULL);
    copy_case(format);
}

// A cache that is cut back within a block, and a copy of its first positions, go on as if the rest had never been
// there.
static void again_case(const md_kv_format *quantized, uint32_t cut) {
    enum { OTHER = SEED + 1 };
    md_engine *engine = er_engine(&model, ER_RESIDENT, 2);
    md_error err = {0};
    size_t vocab = model.snapshot->vocab;
    float *want = calloc(TOTAL * vocab, sizeof(float)), *found = calloc(TOTAL * vocab, sizeof(float));
    md_kv *fresh = er_kv(engine, TOTAL), *used = er_kv(engine, TOTAL), *copy = er_kv(engine, TOTAL);
    md_kv *const both[] = {fresh, used};
    for (int i = 0; i < 2; i++) {
        if (quantized) assert_int_equal(engine->ops->kv_quantize(engine, both[i], quantized, 0, &err), MD_OK);
        er_feed(&model, engine, both[i], SEED, 0, i ? TOTAL : cut, 16, NULL);
    }
    assert_int_equal(engine->ops->kv_copy(engine, copy, used, cut, &err), MD_OK);
    md_kv *const later[] = {used, copy};
    er_feed(&model, engine, fresh, OTHER, cut, TOTAL - cut, 3, want);
    for (int i = 0; i < 2; i++) {
        er_feed(&model, engine, later[i], OTHER, cut, TOTAL - cut, 1 + 4 * (uint32_t)i, found);
        er_same(&model, found + cut * vocab, want + cut * vocab, TOTAL - cut, i ? "a copied beginning" : "a cut cache");
    }
    engine->ops->kv_close(engine, fresh);
    engine->ops->kv_close(engine, used);
    engine->ops->kv_close(engine, copy);
    engine->ops->close(engine);
    free(want);
    free(found);
}

static void test_again(void **state) {
    (void)state;
    static const uint32_t cuts[] = {5, 126, 133}; // within 16 positions, within four of them, in the second block
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        again_case(NULL, cuts[i]);
        again_case(format, cuts[i]);
    }
}

static void test_bad_arguments(void **state) {
    (void)state;
    md_engine *engine = er_engine(&model, ER_RESIDENT, 2);
    md_error err = {0};
    md_kv *kv = er_kv(engine, 4), *none;
    md_column column = {.kv = kv, .position = 4};
    assert_int_equal(engine->ops->step(engine, &column, 1, &err), MD_E_CONTEXT);
    column = (md_column){.kv = kv, .token = model.snapshot->vocab};
    assert_int_equal(engine->ops->step(engine, &column, 1, &err), MD_E_USAGE);
    assert_int_equal(engine->ops->step(engine, &column, 0, &err), MD_E_USAGE);
    assert_int_equal(engine->ops->kv_open(engine, 0, &none, &err), MD_E_USAGE);
    md_kv_format bad[MD_MAX_LAYERS] = {{.bits = 3, .group = 64}};
    assert_int_equal(engine->ops->kv_quantize(engine, kv, bad, 0, &err), MD_E_USAGE);
    bad[0] = (md_kv_format){.bits = 4, .group = 128}; // does not divide head_dim 64
    assert_int_equal(engine->ops->kv_quantize(engine, kv, bad, 0, &err), MD_E_USAGE);
    bad[0] = (md_kv_format){.bits = 4, .group = 64};
    assert_int_equal(engine->ops->kv_quantize(engine, kv, bad, 0, &err), MD_OK);
    bad[0].bits = 8;
    assert_int_equal(engine->ops->kv_quantize(engine, kv, bad, 0, &err), MD_E_USAGE);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
    assert_int_equal(md_cpu_open(model.plan, true, &(md_engine_options){.threads = 100000}, &engine, &err), MD_E_USAGE);
}

static bool refuse(void *user, double fraction) {
    *(double *)user = fraction;
    return false;
}

static void test_cancel_loading(void **state) {
    (void)state;
    md_engine *engine;
    md_error err = {0};
    double seen = 0;
    md_engine_options options = {.threads = 2, .progress = refuse, .progress_user = &seen};
    assert_int_equal(md_cpu_open(model.plan, true, &options, &engine, &err), MD_E_CANCELLED);
    assert_true(seen > 0 && seen < 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads), cmocka_unit_test(test_chunks),        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_batch),   cmocka_unit_test(test_level_names),   cmocka_unit_test(test_copy),
        cmocka_unit_test(test_again),   cmocka_unit_test(test_bad_arguments), cmocka_unit_test(test_cancel_loading),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
