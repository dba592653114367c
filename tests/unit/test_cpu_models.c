// The CPU engines against the reference on small odd models: every bit width, group and scale type, unquantized
// matrices, tied heads, additive biases, head sizes, RoPE types; rows that end inside a tile, more workers than tiles.
#include "engine_runs.h"
#include "model_maker.h"

#include "backend/cpu/level.h"

enum { TOTAL = 40, PROMPT = 9 };

static void compare(const er_model *model, const md_kv_format *format, const char *name) {
    md_engine *reference = er_engine(model, ER_REFERENCE, 1);
    float *expected = er_run(model, reference, 3, TOTAL, PROMPT, 8, 1, format);
    reference->ops->close(reference);
    static const struct {
        er_kind kind;
        uint32_t threads, chunk, after;
    } runs[] = {{ER_RESIDENT, 2, 32, 1}, {ER_RESIDENT, 7, 1, 5}, {ER_OPS, 3, 8, 8}, {ER_RESIDENT, 1, 3, 2}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        md_engine *engine = er_engine(model, runs[i].kind, runs[i].threads);
        float *found = er_run(model, engine, 3, TOTAL, PROMPT, runs[i].chunk, runs[i].after, format);
        char what[160];
        snprintf(what, sizeof what, "%s, run %zu%s", name, i, format ? ", quantized cache" : "");
        er_same(model, found, expected, TOTAL, what);
        free(found);
        engine->ops->close(engine);
    }
    free(expected);
}

static void check_model(mm_shape shape, uint32_t kv_group, const char *name) {
    char *dir = mm_make(&shape, 11);
    er_model model = er_open(dir);
    compare(&model, NULL, name);
    if (kv_group) { // layers of 4 bits, 8 bits, and bf16
        md_kv_format format[MD_MAX_LAYERS] = {{0}};
        for (uint32_t l = 0; l < shape.layers; l++)
            if (l % 3 < 2) format[l] = (md_kv_format){.bits = l % 3 ? 8 : 4, .group = (uint8_t)kv_group};
        compare(&model, format, name);
    }
    er_close(&model);
    mm_remove(dir);
}

static void test_bits_and_groups(void **state) {
    (void)state;
    static const unsigned bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    for (size_t b = 0; b < 6; b++)
        for (size_t g = 0; g < 3; g++) {
            mm_shape shape = MM_SHAPE;
            shape.bits = bits[b];
            shape.group = groups[g];
            char name[48];
            snprintf(name, sizeof name, "%u bits in groups of %u", bits[b], groups[g]);
            check_model(shape, 0, name);
        }
}

static void test_types(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    shape.layers = 3;
    shape.extra = "\"_synth\": {\"scales\": \"F16\"}";
    check_model(shape, 64, "f16 scales");
    shape.extra = "\"_synth\": {\"scales\": \"F32\"}";
    shape.bits = 8;
    check_model(shape, 32, "f32 scales");
    shape.extra = NULL;
    shape.bits = 0;
    check_model(shape, 64, "bf16 matrices");
    shape.extra = "\"_synth\": {\"weights\": \"F16\"}";
    check_model(shape, 0, "f16 matrices");
    shape.extra = "\"_synth\": {\"weights\": \"F32\"}";
    check_model(shape, 0, "f32 matrices");
    shape.extra = "\"attention_bias\": true, \"mlp_bias\": true";
    shape.bits = 4;
    shape.quant = "\"lm_head\": false, \"model.layers.0.mlp.up_proj\": {\"bits\": 8, \"group_size\": 32}, "
                  "\"model.layers.1.self_attn.k_proj\": {\"bits\": 6, \"group_size\": 128}";
    check_model(shape, 64, "biases and mixed matrices");
}

static void test_shapes(void **state) {
    (void)state;
    static const unsigned head_dims[] = {64, 80, 96, 128};
    for (size_t i = 0; i < 4; i++) {
        mm_shape shape = MM_SHAPE;
        shape.head_dim = head_dims[i];
        shape.q_heads = i % 2 ? 3 : 12; // 12 query heads of one KV head: more than a block of columns
        shape.kv_heads = i % 2 ? 3 : 1;
        shape.hidden = 192;
        shape.ffn = 352; // ends inside a tile for groups of 32
        shape.group = 32;
        shape.vocab = 333;
        shape.tied = i % 2;
        shape.extra = i == 1 ? "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}"
                      : i == 2
                          ? "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                            "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}"
                          : NULL;
        if (head_dims[i] == 80) shape.q_heads = 4, shape.kv_heads = 2; // o_proj's columns: a multiple of the group
        char name[48];
        snprintf(name, sizeof name, "head_dim %u", head_dims[i]);
        check_model(shape, head_dims[i] % 32 ? 0 : 32, name);
    }
    mm_shape plain = MM_SHAPE; // nothing is a multiple of anything
    plain.bits = 0;
    plain.hidden = 100;
    plain.ffn = 150;
    plain.head_dim = 20;
    plain.q_heads = 5;
    plain.kv_heads = 5;
    plain.vocab = 37;
    check_model(plain, 0, "odd sizes");
}

static void test_levels(void **state) {
    (void)state;
    const md_kernels *level[MD_CPU_MAX_LEVELS];
    uint32_t n = md_cpu_levels(level);
    mm_shape shape = MM_SHAPE;
    shape.layers = 3;
    shape.quant =
        "\"model.layers.0.mlp.up_proj\": {\"bits\": 8, \"group_size\": 32}, \"model.layers.1.mlp.up_proj\": false";
    for (uint32_t i = 0; i < n; i++) {
        setenv("MEGADECODE_CPU", level[i]->name, 1);
        check_model(shape, 64, level[i]->name);
    }
    unsetenv("MEGADECODE_CPU");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits_and_groups), cmocka_unit_test(test_types),
                                       cmocka_unit_test(test_shapes), cmocka_unit_test(test_levels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
