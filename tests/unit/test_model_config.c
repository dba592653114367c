// config.json: the forms that are accepted and what each comes to. What is refused: tests/badfiles/test_bad_config.c.
#include <stdio.h>
#include <string.h>

#include "md_test.h"
#include "model/config.h"

#define SIZES                                                                                                          \
    "\"num_hidden_layers\": 2, \"hidden_size\": 128, \"intermediate_size\": 256, \"vocab_size\": 320, "                \
    "\"num_attention_heads\": 4, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-05"
#define LLAMA "{\"model_type\": \"llama\", " SIZES

static md_config parsed(const char *text) {
    md_config c;
    md_error err = {0};
    if (md_config_parse(text, strlen(text), "config.json", &c, &err) != MD_OK) fail_msg("%s\n%s", err.message, text);
    return c;
}

static void absent_keys_have_mlx_lms_defaults(void **state) {
    (void)state;
    md_config c = parsed(LLAMA "}");
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_dim, 32);
    assert_true(c.tied_head);
    assert_false(c.qkv_bias || c.o_bias || c.mlp_bias || c.quantized);
    assert_int_equal(c.rope.type, MD_ROPE_PLAIN);
    assert_true(c.rope.theta == 10000.0);
    assert_int_equal(c.eos_count, 0);
    assert_int_equal(c.bos, -1);
    assert_true(c.norm_eps == 1e-5f);
    md_config_free(&c);
    c = parsed(LLAMA ", \"head_dim\": null, \"num_key_value_heads\": null, \"tie_word_embeddings\": false, "
                     "\"eos_token_id\": null, \"rope_scaling\": null, \"sliding_window\": null, \"unknown\": [1]}");
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_dim, 32);
    assert_false(c.tied_head);
    md_config_free(&c);
}

static void heads_need_not_fill_the_hidden_size(void **state) {
    (void)state;
    md_config c = parsed(LLAMA ", \"head_dim\": 64, \"num_key_value_heads\": 1}");
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.kv_heads, 1);
    md_module q = md_config_layer_module(&c, 0), v = md_config_layer_module(&c, 2), o = md_config_layer_module(&c, 3),
              down = md_config_layer_module(&c, 6);
    assert_int_equal(q.rows, 256);
    assert_int_equal(v.rows, 64);
    assert_int_equal(o.rows, 128);
    assert_int_equal(o.cols, 256);
    assert_int_equal(down.rows, 128);
    assert_int_equal(down.cols, 256);
    md_config_free(&c);
}

static void families_differ_in_biases_windows_and_theta(void **state) {
    (void)state;
    md_config c = parsed(LLAMA ", \"attention_bias\": true, \"mlp_bias\": true}");
    assert_true(c.qkv_bias && c.o_bias && c.mlp_bias);
    md_config_free(&c);
    c = parsed("{\"model_type\": \"qwen2\", \"use_sliding_window\": false, \"sliding_window\": 128, " SIZES "}");
    assert_true(c.qkv_bias);
    assert_false(c.o_bias || c.mlp_bias);
    assert_true(c.rope.theta == 1e6);
    md_config_free(&c);
    c = parsed("{\"model_type\": \"mistral\", \"sliding_window\": 512, \"rope_theta\": 1000000, " SIZES "}");
    assert_true(c.rope.theta == 1e6);
    assert_false(c.qkv_bias);
    md_config_free(&c);
}

static void rope_is_read_in_all_its_forms(void **state) {
    (void)state;
    const struct {
        const char *members;
        md_rope rope;
    } cases[] = {
        {"\"rope_theta\": 5e6", {MD_ROPE_PLAIN, 5e6, 1, 0, 0, 0}},
        {"\"rope_scaling\": {}", {MD_ROPE_PLAIN, 1e4, 1, 0, 0, 0}},
        {"\"rope_scaling\": {\"rope_type\": \"default\"}", {MD_ROPE_PLAIN, 1e4, 1, 0, 0, 0}},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}", {MD_ROPE_LINEAR, 1e4, 4, 0, 0, 0}},
        {"\"rope_theta\": 500000, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": "
         "1.0, "
         "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}",
         {MD_ROPE_LLAMA3, 5e5, 32, 1, 4, 8192}},
        {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}", {MD_ROPE_LLAMA3, 1e4, 8, 1, 4, 8192}},
        {"\"rope_parameters\": {\"rope_theta\": 300000.0, \"rope_type\": \"default\"}",
         {MD_ROPE_PLAIN, 3e5, 1, 0, 0, 0}},
        {"\"rope_parameters\": {\"rope_theta\": 1e5, \"rope_type\": \"linear\", \"factor\": 2.5}",
         {MD_ROPE_LINEAR, 1e5, 2.5, 0, 0, 0}},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"rope_type\": \"linear\", "
         "\"factor\": 2.0}",
         {MD_ROPE_LINEAR, 1e4, 2, 0, 0, 0}},
    };
    char text[1024];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, LLAMA ", %s}", cases[i].members);
        md_config c = parsed(text);
        const md_rope *want = &cases[i].rope;
        if (c.rope.type != want->type || c.rope.theta != want->theta || c.rope.factor != want->factor ||
            c.rope.low_freq_factor != want->low_freq_factor || c.rope.high_freq_factor != want->high_freq_factor ||
            c.rope.original_context != want->original_context)
            fail_msg("%s was read otherwise", cases[i].members);
        md_config_free(&c);
    }
}

static void check_module(const md_config *c, const char *module, bool scales, unsigned bits, unsigned group) {
    md_quant_format format;
    md_error err = {0};
    if (md_config_module(c, module, scales, &format, &err) != MD_OK) fail_msg("%s", err.message);
    if (format.bits != bits || format.group != group)
        fail_msg("%s: %u bits in groups of %u, expected %u in %u", module, format.bits, format.group, bits, group);
}

static void quantization_is_looked_up_by_exact_path(void **state) {
    (void)state;
    const char block[] =
        "{\"bits\": 4, \"group_size\": 64, \"mode\": \"affine\", \"a.b\": {\"bits\": 8, \"group_size\": 32}, "
        "\"a.c\": {\"bits\": 6}, \"a.d\": false, \"a.e\": true, \"a.f\": {\"mode\": \"affine\"}}";
    const char *keys[] = {"\"quantization\"", "\"quantization_config\"",
                          "\"quantization\": null, \"quantization_config\""};
    char text[1024];
    for (size_t i = 0; i < 3; i++) {
        snprintf(text, sizeof text, LLAMA ", %s: %s}", keys[i], block);
        md_config c = parsed(text);
        assert_true(c.quantized);
        check_module(&c, "a.b", true, 8, 32);
        check_module(&c, "a.c", true, 6, 64);
        check_module(&c, "a.d", true, 0, 0);
        check_module(&c, "a.e", true, 4, 64);
        check_module(&c, "a.f", true, 4, 64);
        check_module(&c, "a.b", false, 8, 32); // then its scales are missing, which the snapshot says
        check_module(&c, "model.a.b", true, 4, 64);
        check_module(&c, "b", true, 4, 64);
        check_module(&c, "b", false, 0, 0);
        md_config_free(&c);
    }
    md_config c = parsed(LLAMA ", \"quantization\": {\"bits\": 3}, \"quantization_config\": {\"bits\": 8}}");
    check_module(&c, "a", true, 3, 64); // quantization wins, and MLX's default group is 64
    md_config_free(&c);
}

static void eos_is_a_number_or_a_list(void **state) {
    (void)state;
    md_config c = parsed(LLAMA ", \"eos_token_id\": 7, \"bos_token_id\": 3}");
    assert_int_equal(c.eos_count, 1);
    assert_int_equal(c.eos[0], 7);
    assert_int_equal(c.bos, 3);
    md_config_free(&c);
    c = parsed(LLAMA ", \"eos_token_id\": [1, 319, 1, 0]}");
    assert_int_equal(c.eos_count, 3);
    assert_int_equal(c.eos[0], 1);
    assert_int_equal(c.eos[1], 319);
    assert_int_equal(c.eos[2], 0);
    md_config_free(&c);
}

// Bytes of all matrices but the embedding (what a token reads), and how many of them have 8 bits.
static uint64_t streamed_bytes(const md_config *c, unsigned *eight) {
    uint64_t bytes = 0;
    char path[64];
    *eight = 0;
    for (uint32_t layer = 0; layer <= c->layers; layer++)
        for (uint32_t i = 0; i < (layer < c->layers ? MD_LAYER_MATRICES : 1); i++) {
            md_module m = {"lm_head", c->vocab, c->hidden, "", "", false};
            md_quant_format format;
            if (layer < c->layers) m = md_config_layer_module(c, i);
            snprintf(path, sizeof path, layer < c->layers ? "model.layers.%u.%s" : "lm_head", layer, m.name);
            assert_int_equal(md_config_module(c, path, true, &format, NULL), MD_OK);
            uint64_t n = (uint64_t)m.rows * m.cols;
            bytes += n * format.bits / 8 + 4 * n / format.group;
            *eight += format.bits == 8;
        }
    return bytes;
}

// MiniCPM5-1B's table: 67 of 169 linears in 8 bits, 481,296,384 bytes of layers and 213,073,920 of head a token.
static void the_table_of_a_published_model_is_read(void **state) {
    (void)state;
    md_config c;
    md_error err = {0};
    md_status status = md_config_read("../shared/models/minicpm5-1b/config.json", &c, &err);
    if (status == MD_E_NOT_FOUND) {
        print_message("skipped: %s\n", err.message);
        skip();
    }
    if (status != MD_OK) fail_msg("%s", err.message);
    unsigned eight;
    assert_int_equal(streamed_bytes(&c, &eight), 481296384 + 213073920);
    assert_int_equal(eight, 67);
    assert_int_equal(c.eos_count, 2);
    assert_int_equal(c.eos[1], 130073);
    md_config_free(&c);
}

static void the_configs_for_synthetic_models_are_read(void **state) {
    (void)state;
    const struct {
        const char *path;
        uint32_t layers, q_rows, kv_rows;
        md_rope_type rope;
    } cases[] = {
        {"tools/configs/llama-3.2-1b.json", 16, 2048, 512, MD_ROPE_LLAMA3},
        {"tools/configs/llama-3.2-3b.json", 28, 3072, 1024, MD_ROPE_LLAMA3},
        {"tools/configs/smollm2-360m.json", 32, 960, 320, MD_ROPE_PLAIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        md_config c;
        md_error err = {0};
        if (md_config_read(cases[i].path, &c, &err) != MD_OK) fail_msg("%s", err.message);
        assert_int_equal(c.layers, cases[i].layers);
        assert_int_equal(md_config_layer_module(&c, 0).rows, cases[i].q_rows);
        assert_int_equal(md_config_layer_module(&c, 1).rows, cases[i].kv_rows);
        assert_int_equal(c.rope.type, cases[i].rope);
        assert_true(c.tied_head && c.quantized);
        md_config_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_have_mlx_lms_defaults),
        cmocka_unit_test(heads_need_not_fill_the_hidden_size),
        cmocka_unit_test(families_differ_in_biases_windows_and_theta),
        cmocka_unit_test(rope_is_read_in_all_its_forms),
        cmocka_unit_test(quantization_is_looked_up_by_exact_path),
        cmocka_unit_test(eos_is_a_number_or_a_list),
        cmocka_unit_test(the_table_of_a_published_model_is_read),
        cmocka_unit_test(the_configs_for_synthetic_models_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
