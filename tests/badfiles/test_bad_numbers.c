// Weights at the end of what is a number. A NaN or an infinity in a file is refused, with its place, by every engine
// and by inspect. The greatest and the smallest numbers are computed with: every level gives the bits of the reference,
// and what overflows comes out as NaN.
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

static void write_spoiled(const bad_model *b, const char *tensor, size_t first, size_t count, uint32_t bits) {
    const json_t *entry = json_object_get(b->header, tensor);
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!entry) fail_msg("%s: the test's model has no such tensor", tensor);
    size_t size = strcmp(json_string_value(json_object_get(entry, "dtype")), "F32") == 0 ? 4 : 2;
    size_t from = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t all = ((size_t)json_integer_value(json_array_get(offsets, 1)) - from) / size;
    char *kept = malloc(size * all);
    memcpy(kept, b->data + from, size * all);
    for (size_t i = count ? first : 0; i < (count ? first + count : all); i++)
        memcpy(b->data + from + size * i, &bits, size); // little endian
    bad_restore_weights(b);
    memcpy(b->data + from, kept, size * all);
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
        // 0x7f7f, the greatest, overflows
        {"model.layers.0.self_attn.q_proj.scales", 3, 1, 0x7f7f, true},
        {"model.layers.0.self_attn.k_proj.scales", 5, 1, 0x7f7f, true},
        {"model.layers.0.self_attn.v_proj.biases", 9, 1, 0xff7f, true},
        {"model.layers.1.mlp.down_proj.scales", 2, 1, 0xff7f, true},
        {"model.layers.1.mlp.gate_proj.biases", 0, 0, 0x7f7f, true},
        {"model.layers.0.input_layernorm.weight", 7, 1, 0x7f7f, true},
        {"model.layers.0.post_attention_layernorm.weight", 0, 0, 0x0001, false}, // denormal: zero
        {"model.layers.1.self_attn.o_proj.scales", 0, 0, 0x0080, false},         // the least normal
        {"model.layers.0.mlp.up_proj.scales", 0, 0, 0x0000, false},              // zeros
        {"lm_head.scales", 0, 2, 0x7f7f, false},                                 // infinite logits
    };
    static const md_kv_format formats[] = {{4, 32}, {8, 64}};
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        write_spoiled(&bad, spoils[i].tensor, spoils[i].first, spoils[i].count, spoils[i].bits);
        check(&spoils[i], NULL);
        check(&spoils[i], formats);
    }
    bad_restore_weights(&bad);
}

// ---- what is refused ---------------------------------------------------------------------------------------------

static void expect_text(md_status status, const md_error *err, const char *tensor, const char *place, const char *who) {
    if (status == MD_OK) fail_msg("%s: %s was taken; expected \"%s\"", who, tensor, place);
    if (status != MD_E_FORMAT || err->code != status || !strstr(err->message, "/model.safetensors: ") ||
        !strstr(err->message, tensor) || !strstr(err->message, place) ||
        !strstr(err->message, ", expected a finite number"))
        fail_msg("%s: status %s, message: %s\nexpected \"%s\" and \"%s\"", who, md_status_name(status), err->message,
                 tensor, place);
}

// By the engines, and, where the tensor stands beside codes or is a norm, by inspect with the same words.
static void refused(const bad_model *b, const char *tensor, const char *place, bool inspected) {
    er_model model = er_open(b->dir);
    const md_engine_options options = {.threads = 2};
    md_engine *engine = NULL;
    md_error err = {0}, again = {0};
    expect_text(md_reference_open(model.plan, &options, &engine, &err), &err, tensor, place, "reference");
    expect_text(md_cpu_open(model.plan, true, &options, &engine, &again), &again, tensor, place, "resident");
    assert_string_equal(again.message, err.message);
    er_close(&model);
    char *json = NULL;
    if (!inspected) {
        assert_int_equal(md_inspect(b->dir, NULL, &json, &err), MD_OK);
        md_free(json);
        return;
    }
    expect_text(md_inspect(b->dir, NULL, &json, &again), &again, tensor, place, "inspect");
    assert_string_equal(again.message, err.message);
}

typedef struct no_number {
    const char *tensor;
    size_t at;
    uint32_t bits;
    const char *place;
} no_number;

static void test_refused(void **state) {
    (void)state;
    static const no_number no_numbers[] = {
        // rows of 128 columns have 2 groups of 64, rows of 256 have 4
        {"model.layers.0.self_attn.q_proj.scales", 3, 0x7fc0, "row 1, group 1: found NaN"},
        {"model.layers.0.self_attn.k_proj.scales", 5, 0x7f80, "row 2, group 1: found infinity"},
        {"model.layers.0.self_attn.v_proj.biases", 9, 0xffc1, "row 4, group 1: found NaN"},
        {"model.layers.1.mlp.down_proj.scales", 2, 0xff80, "row 0, group 2: found -infinity"},
        {"model.layers.1.mlp.down_proj.biases", 511, 0x7f81, "row 127, group 3: found NaN"},
        {"model.layers.0.input_layernorm.weight", 7, 0x7fff, "row 0, column 7: found NaN"},
        {"model.layers.1.post_attention_layernorm.weight", 0, 0x7f80, "row 0, column 0: found infinity"},
        {"model.norm.weight", 127, 0xffff, "row 0, column 127: found NaN"},
        {"model.embed_tokens.scales", 639, 0x7fc0, "row 319, group 1: found NaN"},
        {"model.embed_tokens.biases", 0, 0xff80, "row 0, group 0: found -infinity"},
        {"lm_head.scales", 1, 0x7fc0, "row 0, group 1: found NaN"},
    };
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++) {
        write_spoiled(&bad, no_numbers[i].tensor, no_numbers[i].at, 1, no_numbers[i].bits);
        refused(&bad, no_numbers[i].tensor, no_numbers[i].place, true);
    }
    bad_restore_weights(&bad);
}

// The same in the other types, and in weights that are not quantized; their greatest numbers are taken.
static void refused_types(const char *dtype, uint32_t nan, uint32_t infinity, uint32_t greatest) {
    char extra[160];
    mm_shape shape = MM_SHAPE;
    snprintf(extra, sizeof extra, "\"attention_bias\": true, \"_synth\": {\"scales\": \"%s\", \"weights\": \"%s\"}",
             dtype, dtype);
    shape.quant = "\"lm_head\": false", shape.extra = extra;
    bad_model b = bad_make(&shape);
    const no_number no_numbers[] = {
        {"model.layers.0.mlp.up_proj.scales", 511, nan, "row 255, group 1: found NaN"},
        {"model.layers.0.mlp.up_proj.biases", 2, infinity, "row 1, group 0: found infinity"},
        {"model.layers.1.self_attn.k_proj.bias", 5, nan, "row 0, column 5: found NaN"},
        {"lm_head.weight", 128 * 319 + 127, infinity, "row 319, column 127: found infinity"},
        {"lm_head.weight", 129, nan, "row 1, column 1: found NaN"},
    };
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++) {
        const char *tensor = no_numbers[i].tensor;
        write_spoiled(&b, tensor, no_numbers[i].at, 1, no_numbers[i].bits);
        refused(&b, tensor, no_numbers[i].place, strcmp(tensor, "lm_head.weight") != 0);
        write_spoiled(&b, tensor, no_numbers[i].at, 1, greatest);
        er_model model = er_open(b.dir);
        md_engine *engine = er_engine(&model, ER_RESIDENT, 2);
        engine->ops->close(engine);
        er_close(&model);
    }
    bad_free(&b);
}

static void test_refused_types(void **state) {
    (void)state;
    refused_types("BF16", 0x7f81, 0x7f80, 0x7f7f);
    refused_types("F16", 0x7c01, 0x7c00, 0x7bff);
    refused_types("F32", 0x7f800001, 0x7f800000, 0xff7fffff);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_refused_types)};
    return cmocka_run_group_tests(tests, bad_setup, bad_teardown);
}
