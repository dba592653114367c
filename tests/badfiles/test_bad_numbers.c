// Weights that are no numbers: NaN, infinities, the greatest and the smallest bf16 in a valid file. Every engine and
// level computes with them, gives the bits of the reference, and a NaN or an infinity that is used comes out as NaN.
#include "bad_model.h"
#include "engine_runs.h"

#include "backend/cpu/level.h"

enum { TOTAL = 140, PROMPT = 131 }; // crosses the border of an attention block

typedef struct spoil {
    const char *tensor;
    size_t first, count; // bf16 elements to overwrite; count 0: all of them
    uint16_t bits;
    bool nan; // the last position's logits have a NaN
} spoil;

static void write_spoiled(const spoil *s) {
    const json_t *entry = json_object_get(bad.header, s->tensor);
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!entry || strcmp(json_string_value(json_object_get(entry, "dtype")), "BF16") != 0)
        fail_msg("%s: the test's model has no such bf16 tensor", s->tensor);
    size_t from = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t count = ((size_t)json_integer_value(json_array_get(offsets, 1)) - from) / 2;
    char *kept = malloc(2 * count);
    memcpy(kept, bad.data + from, 2 * count);
    for (size_t i = s->count ? s->first : 0; i < (s->count ? s->first + s->count : count); i++)
        memcpy(bad.data + from + 2 * i, &s->bits, 2);
    bad_restore_weights(&bad);
    memcpy(bad.data + from, kept, 2 * count);
    free(kept);
}

// Equal bits, or NaN in both.
static void same(const float *found, const float *expected, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++) {
        bool both_nan = found[i] != found[i] && expected[i] != expected[i];
        if (!both_nan && memcmp(&found[i], &expected[i], sizeof *found) != 0)
            fail_msg("%s: position %zu, logit %zu: %a, expected %a", what, i / MM_SHAPE.vocab, i % MM_SHAPE.vocab,
                     found[i], expected[i]);
    }
}

static bool any_nan(const float *values, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (values[i] != values[i]) return true;
    return false;
}

static void check(const spoil *s, const md_kv_format *format) {
    const md_kernels *level[MD_CPU_MAX_LEVELS];
    uint32_t levels = md_cpu_levels(level);
    size_t vocab = MM_SHAPE.vocab;
    er_model model = er_open(bad.dir);
    md_engine *engine = er_engine(&model, ER_REFERENCE, 1);
    float *expected = er_run(&model, engine, 3, TOTAL, PROMPT, 8, 1, format);
    engine->ops->close(engine);
    if (any_nan(expected + (TOTAL - 1) * vocab, vocab) != s->nan)
        fail_msg("%s, 0x%04x%s: NaN expected: %d", s->tensor, s->bits, format ? ", quantized cache" : "", s->nan);
    for (uint32_t i = 0; i < levels; i++) {
        char what[160];
        snprintf(what, sizeof what, "%s, 0x%04x, %s%s", s->tensor, s->bits, level[i]->name,
                 format ? ", quantized cache" : "");
        setenv("MEGADECODE_CPU", level[i]->name, 1);
        engine = er_engine(&model, ER_RESIDENT, 2);
        float *found = er_run(&model, engine, 3, TOTAL, PROMPT, 8, 1, format);
        same(found, expected, TOTAL * vocab, what);
        free(found);
        engine->ops->close(engine);
    }
    unsetenv("MEGADECODE_CPU");
    free(expected);
    er_close(&model);
}

static void test_numbers(void **state) {
    (void)state;
    static const spoil spoils[] = {
        {"model.layers.0.self_attn.q_proj.scales", 3, 1, 0x7fc0, true}, // NaN
        {"model.layers.0.self_attn.k_proj.scales", 5, 1, 0x7f80, true}, // infinity
        {"model.layers.0.self_attn.v_proj.biases", 9, 1, 0xffc1, true}, // NaN, in one value of a group
        {"model.layers.1.mlp.down_proj.scales", 2, 1, 0xff80, true},
        {"model.layers.1.mlp.gate_proj.biases", 0, 0, 0x7f7f, true}, // the greatest: overflows
        {"model.layers.0.input_layernorm.weight", 7, 1, 0x7fc0, true},
        {"model.layers.0.post_attention_layernorm.weight", 0, 0, 0x0001, false}, // denormal: zero
        {"model.layers.1.self_attn.o_proj.scales", 0, 0, 0x0080, false},         // the least normal
        {"lm_head.scales", 0, 2, 0x7fc0, true},
    };
    static const md_kv_format formats[] = {{4, 32}, {8, 64}};
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        write_spoiled(&spoils[i]);
        check(&spoils[i], NULL);
        check(&spoils[i], formats);
    }
    bad_restore_weights(&bad);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, bad_setup, bad_teardown);
}
