// Broken or unmodelled config.json, generation_config.json and kv_config.json.
#include "badfiles/bad_model.h"

typedef struct bad_value {
    const char *key, *value; // value NULL: the key is removed
    const char *message;     // besides config.json and the key
} bad_value;

static void expect_each(const bad_value *cases, size_t n, md_status status) {
    for (size_t i = 0; i < n; i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "config.json: \"%s\"", cases[i].key);
        bad_set(&bad, cases[i].key, cases[i].value);
        bad_expect(&bad, status, quoted, cases[i].message);
    }
    bad_restore_config(&bad);
    bad_expect_good(&bad);
}
#define EXPECT_EACH(cases, status) expect_each(cases, sizeof cases / sizeof *cases, status)

static void refuses_impossible_hyperparameters(void **state) {
    (void)state;
    const bad_value cases[] = {
        {"num_attention_heads", "0", "is 0, expected 1 to"},
        {"num_attention_heads", "-1", "is -1, expected 1 to"},
        {"num_attention_heads", NULL, "is missing"},
        {"num_key_value_heads", "0", "is 0"},
        {"num_key_value_heads", "3", "does not divide the 4 attention heads"},
        {"num_key_value_heads", "2.5", "a number with a fraction"},
        {"head_dim", "63", "expected an even number"},
        {"head_dim", "0", "is 0, expected 1 to"},
        {"head_dim", "\"64\"", "is a string, expected an integer"},
        {"num_hidden_layers", "2147483648", "is 2147483648, expected 1 to 1024"},
        {"num_hidden_layers", "0", "is 0"},
        {"hidden_size", "100000000000", "is 100000000000"},
        {"hidden_size", "null", "is missing"},
        {"intermediate_size", "[256]", "is an array"},
        {"vocab_size", "-5", "is -5"},
        {"max_position_embeddings", "0", "is 0"},
        {"rope_theta", "\"10000\"", "is a string, expected a number"},
        {"rope_theta", "0", "is 0, expected 1 to"},
        {"rope_theta", "-1e4", "is -10000"},
        {"rms_norm_eps", NULL, "is missing"},
        {"rms_norm_eps", "0.0", "is 0"},
        {"rms_norm_eps", "true", "is true"},
        {"tie_word_embeddings", "\"false\"", "is a string, expected true or false"},
        {"attention_bias", "0", "is an integer"},
        {"eos_token_id", "320", "is 320, outside the vocabulary of 320"},
        {"eos_token_id", "[1, 2, -1]", "is -1, outside the vocabulary"},
        {"eos_token_id", "[1, \"2\"]", "holds a string"},
        {"eos_token_id", "\"</s>\"", "holds a string"},
        {"eos_token_id", "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", "more than 16"},
        {"bos_token_id", "320", "is 320, expected 0 to 319"},
        {"model_type", NULL, "is missing"},
        {"model_type", "7", "is an integer"},
    };
    EXPECT_EACH(cases, MD_E_FORMAT);
}

static void refuses_a_head_dim_that_cannot_be(void **state) {
    (void)state;
    json_t *config = json_deep_copy(bad.config);
    json_object_del(config, "head_dim");
    json_object_set_new(config, "num_attention_heads", json_integer(6));
    bad_write_json(&bad, "config.json", config);
    bad_expect(&bad, MD_E_FORMAT, "\"head_dim\" is missing", "\"hidden_size\" 128 over 6 heads");
    json_object_set_new(config, "head_dim", json_integer(1024));
    json_object_set_new(config, "num_attention_heads", json_integer(128));
    bad_write_json(&bad, "config.json", config);
    bad_expect(&bad, MD_E_FORMAT, "\"num_attention_heads\" 128 times \"head_dim\" 1024", "is more than 65536");
    json_decref(config);
}

static void refuses_text_that_is_not_a_json_object(void **state) {
    (void)state;
    const struct {
        const char *text, *message;
    } cases[] = {
        {"", "not valid JSON"},
        {"{\"rope_theta\": NaN}", "not valid JSON"},
        {"{\"rope_theta\": 1e999}", "not valid JSON"},
        {"{\"model_type\": \"llama\", \"model_type\": \"llama\"}", "duplicate"},
        {"[]", "is an array, expected an object"},
        {"\"llama\"", "is a string, expected an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bad_write_text(&bad, "config.json", cases[i].text);
        bad_expect(&bad, MD_E_FORMAT, "config.json", cases[i].message);
    }
}

static void refuses_what_is_not_modelled_by_name(void **state) {
    (void)state;
    const bad_value cases[] = {
        {"model_type", "\"gemma3\"", "\"gemma3\", which is not modelled"},
        {"model_type", "\"qwen3\"", "\"qwen3\""},
        {"hidden_act", "\"gelu\"", "\"gelu\", which is not modelled"},
        {"architectures", "[\"GemmaForCausalLM\"]", "\"GemmaForCausalLM\", which is not modelled"},
        {"num_local_experts", "8", "\"num_local_experts\" is set"},
        {"logit_scale", "2.0", "\"logit_scale\" is set"},
        {"sliding_window", "256", "is 256 with a context of 512: sliding-window attention is not modelled"},
        {"layer_types", "[\"full_attention\", \"sliding_attention\"]", "of layer 1 is \"sliding_attention\""},
        {"partial_rotary_factor", "0.5", "is 0.5: partial rotary is not modelled"},
        {"rope_traditional", "true", "is true, which is not modelled"},
        {"use_qk_norm", "true", "is true, which is not modelled"},
        {"final_logit_softcapping", "30.0", "is set, which is not modelled"},
        {"rope_scaling", "{\"type\": \"yarn\", \"factor\": 4}", "the RoPE type is \"yarn\""},
        {"rope_scaling", "{\"rope_type\": \"longrope\"}", "the RoPE type is \"longrope\""},
        {"rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\"}}",
         "each layer type (\"full_attention\")"},
        {"quantization", "{\"bits\": 4, \"group_size\": 32, \"mode\": \"mxfp4\"}", "\"mode\" is \"mxfp4\""},
        {"quantization", "{\"bits\": 4, \"group_size\": 16, \"mode\": \"nvfp4\"}", "\"mode\" is \"nvfp4\""},
        {"quantization", "{\"bits\": 8, \"group_size\": 32, \"mode\": \"mxfp8\"}", "\"mode\" is \"mxfp8\""},
    };
    EXPECT_EACH(cases, MD_E_UNSUPPORTED);
}

static void refuses_other_quantizers_by_name(void **state) {
    (void)state;
    const char *methods[] = {"awq", "gptq", "bitnet", "mxfp4", "compressed-tensors", "fp8"};
    for (size_t i = 0; i < 6; i++) {
        json_t *config = json_deep_copy(bad.config);
        json_object_del(config, "quantization");
        json_object_set_new(config, "quantization_config",
                            json_pack("{s:s,s:i}", "quant_method", methods[i], "bits", 4));
        bad_write_json(&bad, "config.json", config);
        bad_expect(&bad, MD_E_UNSUPPORTED, "\"quantization_config\": \"quant_method\" is", methods[i]);
        json_decref(config);
    }
    bad_restore_config(&bad);
}

static void refuses_broken_rope_scaling(void **state) {
    (void)state;
    const bad_value cases[] = {
        {"rope_scaling", "[]", "is an array, expected an object"},
        {"rope_scaling", "{\"type\": \"linear\"}", "\"factor\" is missing"},
        {"rope_scaling", "{\"type\": \"linear\", \"factor\": 0}", "\"factor\" is 0"},
        {"rope_scaling", "{\"type\": \"linear\", \"factor\": \"4\"}", "\"factor\" is a string"},
        {"rope_scaling", "{\"rope_type\": \"llama3\"}", "\"factor\" is missing"},
        {"rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4}",
         "\"high_freq_factor\" is 4, expected more than \"low_freq_factor\" 4"},
        {"rope_scaling", "{\"rope_type\": 3}", "\"rope_type\" is an integer"},
    };
    EXPECT_EACH(cases, MD_E_FORMAT);
    json_t *config = json_deep_copy(bad.config);
    json_object_set_new(config, "rope_scaling", json_pack("{s:s,s:f}", "type", "linear", "factor", 2.0));
    json_object_set_new(config, "rope_parameters", json_pack("{s:s,s:f}", "rope_type", "linear", "factor", 4.0));
    bad_write_json(&bad, "config.json", config);
    bad_expect(&bad, MD_E_FORMAT, "\"rope_scaling\" and \"rope_parameters\"", "contradict");
    json_decref(config);
}

static void refuses_broken_quantization(void **state) {
    (void)state;
    const bad_value cases[] = {
        {"quantization", "[]", "is an array, expected an object"},
        {"quantization", "{\"bits\": 0, \"group_size\": 64}", "\"bits\" is 0, expected 2, 3, 4, 5, 6 or 8"},
        {"quantization", "{\"bits\": 7, \"group_size\": 64}", "\"bits\" is 7"},
        {"quantization", "{\"bits\": 16, \"group_size\": 64}", "\"bits\" is 16"},
        {"quantization", "{\"bits\": \"4\", \"group_size\": 64}", "\"bits\" is a string"},
        {"quantization", "{\"bits\": 4.0, \"group_size\": 64}", "\"bits\" is a number with a fraction"},
        {"quantization", "{\"bits\": 4, \"group_size\": 0}", "\"group_size\" is 0, expected 32, 64 or 128"},
        {"quantization", "{\"bits\": 4, \"group_size\": 63}", "\"group_size\" is 63"},
        {"quantization", "{\"bits\": 4, \"group_size\": -64}", "\"group_size\" is -64"},
        {"quantization", "{\"bits\": 4, \"group_size\": 64, \"mode\": 4}", "\"mode\" is an integer"},
    };
    EXPECT_EACH(cases, MD_E_FORMAT);
    const struct {
        const char *value, *message;
    } overrides[] = {
        {"{\"bits\": 9}", "\"bits\" is 9"},
        {"{\"group_size\": 63}", "\"group_size\" is 63"},
        {"4", "is an integer, expected an object, true or false"},
        {"{\"bits\": 8}",
         "config.json gives it 8 bits, but its weight has 16 words a row for 128 inputs, which is 4 bits"},
        {"{\"group_size\": 32}", "config.json gives it groups of 32, but its scales have 2 columns for 128 inputs"},
        {"false", "says that model.layers.1.mlp.up_proj is not quantized"},
    };
    char block[256];
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++) {
        snprintf(block, sizeof block, "{\"bits\": 4, \"group_size\": 64, \"model.layers.1.mlp.up_proj\": %s}",
                 overrides[i].value);
        bad_set(&bad, "quantization", block);
        bad_expect(&bad, MD_E_FORMAT, "model.layers.1.mlp.up_proj", overrides[i].message);
    }
    bad_set(&bad, "quantization", NULL);
    bad_expect(&bad, MD_E_FORMAT, "tensor model.embed_tokens.scales exists", "no \"quantization\"");
    bad_set(&bad, "quantization", "{\"bits\": 6, \"group_size\": 64}");
    bad_expect(&bad, MD_E_FORMAT, "model.embed_tokens", "the default; no override names this path");
    bad_restore_config(&bad);
}

// Each size is contradicted by the first tensor that has it.
static void refuses_sizes_that_the_tensors_contradict(void **state) {
    (void)state;
    const struct {
        const char *key, *value, *first, *second;
    } cases[] = {
        {"vocab_size", "321", "model.embed_tokens.weight has 320 rows, expected 321", "vocab_size"},
        {"hidden_size", "256", "model.embed_tokens.weight has 128 inputs, expected 256", "hidden_size"},
        {"intermediate_size", "512", "mlp.gate_proj.weight has 256 rows, expected 512", "intermediate_size"},
        {"num_attention_heads", "8", "q_proj.weight has 256 rows, expected 512", "num_attention_heads * head_dim"},
        {"num_key_value_heads", "4", "k_proj.weight has 128 rows, expected 256", "num_key_value_heads * head_dim"},
        {"head_dim", "32", "q_proj.weight has 256 rows, expected 128", "head_dim"},
        {"num_hidden_layers", "3", "tensor model.layers.2.self_attn.q_proj.weight is missing", ""},
        {"attention_bias", "true", "tensor model.layers.0.self_attn.q_proj.bias is missing", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bad_set(&bad, cases[i].key, cases[i].value);
        bad_expect(&bad, MD_E_FORMAT, cases[i].first, cases[i].second);
    }
    bad_set(&bad, "num_hidden_layers", "1");
    bad_expect(&bad, MD_E_UNSUPPORTED, "tensor model.layers.1.", "is not part of the model");
    bad_restore_config(&bad);
}

static void refuses_broken_generation_config(void **state) {
    (void)state;
    const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"eos_token_id\": 5000}", "\"eos_token_id\" is 5000, outside the vocabulary of 320"},
        {"{\"temperature\": \"hot\"}", "\"temperature\" is a string"},
        {"{\"temperature\": -1}", "\"temperature\" is -1"},
        {"{\"top_p\": 1.5}", "\"top_p\" is 1.5"},
        {"{\"top_k\": -1}", "\"top_k\" is -1"},
        {"{\"repetition_penalty\": 0}", "\"repetition_penalty\" is 0"},
        {"{\"do_sample\": 1}", "\"do_sample\" is an integer"},
        {"[]", "is an array"},
        {"{", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bad_write_text(&bad, "generation_config.json", cases[i].text);
        bad_expect(&bad, MD_E_FORMAT, "generation_config.json", cases[i].message);
    }
    bad_write_text(&bad, "generation_config.json", "{\"temperature\": null, \"top_k\": null}");
    bad_expect_good(&bad);
}

static void refuses_broken_kv_config(void **state) {
    (void)state;
    const struct {
        const char *text, *message;
    } cases[] = {
        {"[{\"layer_idx\": 0, \"bits\": 4}, {\"layer_idx\": 0, \"bits\": 8}]",
         "entry 1: \"layer_idx\" 0 is given twice"},
        {"[{\"layer_idx\": 2, \"bits\": 4}]", "\"layer_idx\" is 2, expected 0 to 1"},
        {"[{\"layer_idx\": -1, \"bits\": 4}]", "\"layer_idx\" is -1"},
        {"[{\"bits\": 4}]", "\"layer_idx\" is missing"},
        {"[{\"layer_idx\": 1, \"bits\": 3}]", "\"bits\" of layer 1 is 3, expected 4 or 8"},
        {"[{\"layer_idx\": 1}]", "\"bits\" of layer 1 is missing, expected 4 or 8"},
        {"[{\"layer_idx\": 1, \"bits\": \"8\"}]", "\"bits\" is a string"},
        {"[{\"layer_idx\": 1, \"bits\": 8, \"group_size\": 48}]", "\"group_size\" of layer 1 is 48"},
        {"[{\"layer_idx\": 1, \"bits\": 8, \"group_size\": 128}]", "is 128, which does not divide head_dim 64"},
        {"[{\"layer_idx\": 1, \"bits\": 8, \"mode\": \"mxfp8\"}]", "\"mode\" of layer 1 is mxfp8, expected \"affine\""},
        {"[{\"layer_idx\": 1, \"bits\": 8, \"mode\": 8}]", "\"mode\" of layer 1 is an integer"},
        {"[5]", "entry 0 is an integer"},
        {"{}", "is an object, expected an array"},
        {"[", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bad_write_text(&bad, "kv_config.json", cases[i].text);
        bad_expect(&bad, MD_E_FORMAT, "kv_config.json", cases[i].message);
    }
    bad_write_text(&bad, "kv_config.json", "[{\"layer_idx\": 1, \"bits\": 8}]");
    bad_expect_good(&bad);
}

// Any one byte of config.json changed: opened or refused with a message, never anything else.
static void survives_every_flipped_byte(void **state) {
    (void)state;
    size_t n;
    char *text = bad_read(&bad, "config.json", &n);
    char *path = md_path_join(bad.dir, "config.json");
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            text[i] = (char)(text[i] ^ 1 << bit);
            FILE *file = fopen(path, "wb");
            assert_int_equal(fwrite(text, 1, n, file), n);
            assert_int_equal(fclose(file), 0);
            md_snapshot *s;
            md_error err = {0};
            if (md_snapshot_open(bad.dir, &s, &err) == MD_OK)
                md_snapshot_close(s);
            else
                assert_true(err.message[0] != 0);
            text[i] = (char)(text[i] ^ 1 << bit);
        }
    free(path);
    free(text);
    bad_restore_config(&bad);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_impossible_hyperparameters),
        cmocka_unit_test(refuses_a_head_dim_that_cannot_be),
        cmocka_unit_test(refuses_text_that_is_not_a_json_object),
        cmocka_unit_test(refuses_what_is_not_modelled_by_name),
        cmocka_unit_test(refuses_other_quantizers_by_name),
        cmocka_unit_test(refuses_broken_rope_scaling),
        cmocka_unit_test(refuses_broken_quantization),
        cmocka_unit_test(refuses_sizes_that_the_tensors_contradict),
        cmocka_unit_test(survives_every_flipped_byte),
        cmocka_unit_test(refuses_broken_generation_config),
        cmocka_unit_test(refuses_broken_kv_config),
    };
    return cmocka_run_group_tests(tests, bad_setup, bad_teardown);
}
