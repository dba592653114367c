// Weight files that are sound in themselves but not what config.json describes, and indexes that point astray.
#include "badfiles/bad_model.h"

// The header with one tensor's dtype and shape replaced; the bytes stay the same.
static void reshape(const char *name, const char *dtype, const char *shape) {
    json_t *header = json_deep_copy(bad.header), *entry = json_object_get(header, name);
    if (!entry) fail_msg("no tensor %s", name);
    json_object_set_new(entry, "dtype", json_string(dtype));
    json_object_set_new(entry, "shape", bad_parse(shape, strlen(shape)));
    bad_write_weights(&bad, header);
    json_decref(header);
}

static void refuses_tensors_of_another_shape_or_type(void **state) {
    (void)state;
    const struct {
        const char *name, *dtype, *shape, *message;
    } cases[] = {
        // up_proj: 256 rows of 128 inputs, 4 bits in groups of 64
        {"weight", "U32", "[128,32]", "has 128 rows, expected 256"},
        {"weight", "U32", "[512,8]", "has 512 rows, expected 256"},
        {"weight", "F32", "[256,16]", "has dtype F32, expected U32 (packed codes)"},
        {"weight", "I32", "[256,16]", "has dtype I32, expected U32, BF16, F16 or F32"},
        {"weight", "U32", "[4096]", "has shape [4096], expected 2 dimensions"},
        {"weight", "U32", "[256,4,4]", "has shape [256, 4, 4], expected 2 dimensions"},
        {"scales", "F16", "[256,2]", "expected the same"},
        {"scales", "BF16", "[512,1]", "expected the same"},
        {"scales", "F32", "[256,1]", "expected the same"},
        {"scales", "U8", "[256,4]", "has dtype U8"},
        {"biases", "BF16", "[128,4]", "expected the same"},
    };
    char name[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(name, sizeof name, "model.layers.0.mlp.up_proj.%s", cases[i].name);
        reshape(name, cases[i].dtype, cases[i].shape);
        md_status status =
            strstr(cases[i].dtype, "I32") || strstr(cases[i].dtype, "U8") ? MD_E_UNSUPPORTED : MD_E_FORMAT;
        bad_expect(&bad, status, name, cases[i].message);
    }
    reshape("model.norm.weight", "BF16", "[1,128]");
    bad_expect(&bad, MD_E_FORMAT, "model.norm.weight", "has shape [1, 128], expected 1 dimension");
    reshape("model.norm.weight", "F32", "[64]");
    bad_expect(&bad, MD_E_FORMAT, "model.norm.weight", "has 64 elements, expected 128");
    reshape("model.norm.weight", "U32", "[64]");
    bad_expect(&bad, MD_E_FORMAT, "model.norm.weight", "has dtype U32, expected BF16, F16 or F32");
    bad_restore_weights(&bad);
    bad_expect_good(&bad);
}

// Scales and biases that agree with each other, but have another number of groups than the codes need.
static void refuses_a_wrong_number_of_groups(void **state) {
    (void)state;
    json_t *header = json_deep_copy(bad.header);
    const char *names[] = {"model.layers.0.mlp.up_proj.scales", "model.layers.0.mlp.up_proj.biases"};
    for (size_t i = 0; i < 2; i++) {
        json_object_set_new(json_object_get(header, names[i]), "dtype", json_string("F32"));
        json_object_set_new(json_object_get(header, names[i]), "shape", json_pack("[ii]", 256, 1));
    }
    bad_write_weights(&bad, header);
    bad_expect(&bad, MD_E_FORMAT, "model.layers.0.mlp.up_proj", "its scales have 1 columns for 128 inputs");
    json_decref(header);
    bad_restore_weights(&bad);
}

// A tensor under another name: the one it was is missing; and one that nobody knows is refused, except what mlx-lm
// drops.
static void names_missing_and_unknown_tensors(void **state) {
    (void)state;
    char *index = md_path_join(bad.dir, "model.safetensors.index.json");
    unlink(index); // it would be found wrong first
    free(index);
    const char *missing[] = {"model.embed_tokens.biases",
                             "model.layers.0.self_attn.q_proj.weight",
                             "model.layers.0.mlp.down_proj.biases",
                             "model.layers.0.input_layernorm.weight",
                             "model.norm.weight",
                             "lm_head.weight"};
    for (size_t i = 0; i < 6; i++) {
        json_t *header = json_deep_copy(bad.header);
        json_object_set(header, "something.else", json_object_get(header, missing[i]));
        json_object_del(header, missing[i]);
        bad_write_weights(&bad, header);
        char expected[128];
        snprintf(expected, sizeof expected, "tensor %s is missing from the weight files", missing[i]);
        bad_expect(&bad, MD_E_FORMAT, bad.dir, expected);
        json_decref(header);
    }
    const struct {
        const char *name;
        bool known;
    } extra[] = {{"model.layers.0.self_attn.rotary_emb.inv_freq", true},
                 {"model.layers.0.self_attn.q_norm.weight", false},
                 {"model.layers.0.self_attn.q_proj.bias", false},
                 {"lm_head.bias", false}};
    for (size_t i = 0; i < 4; i++) {
        json_t *header = json_deep_copy(bad.header);
        json_object_set_new(header, extra[i].name,
                            json_pack("{s:s,s:[i],s:[I,I]}", "dtype", "F32", "shape", 1, "data_offsets",
                                      (json_int_t)bad.data_size, (json_int_t)bad.data_size + 4));
        char *text = json_dumps(header, 0), *data = calloc(1, bad.data_size + 4);
        memcpy(data, bad.data, bad.data_size);
        bad_write_raw(&bad, text, strlen(text), data, bad.data_size + 4);
        if (extra[i].known)
            bad_expect_good(&bad);
        else
            bad_expect(&bad, MD_E_UNSUPPORTED, extra[i].name, "is not part of the model that config.json describes");
        free(text);
        free(data);
        json_decref(header);
    }
    bad_restore_weights(&bad);
}

static void refuses_indexes_that_point_astray(void **state) {
    (void)state;
    const struct {
        const char *map;
        md_status status;
        const char *first, *second;
    } cases[] = {
        {"{\"model.norm.weight\": \"../../etc/passwd\"}", MD_E_FORMAT, "model.norm.weight", "\"../../etc/passwd\""},
        {"{\"model.norm.weight\": \"/etc/passwd\"}", MD_E_FORMAT, "model.norm.weight", "\"/etc/passwd\""},
        {"{\"model.norm.weight\": \"..\\\\a.safetensors\"}", MD_E_FORMAT, "model.norm.weight", "in the same folder"},
        {"{\"model.norm.weight\": \".safetensors\"}", MD_E_FORMAT, "model.norm.weight", "in the same folder"},
        {"{\"model.norm.weight\": \"config.json\"}", MD_E_FORMAT, "model.norm.weight", "\"config.json\""},
        {"{\"model.norm.weight\": \"\"}", MD_E_FORMAT, "model.norm.weight", "in the same folder"},
        {"{\"model.norm.weight\": 5}", MD_E_FORMAT, "model.norm.weight", "maps to an integer"},
        {"{\"model.norm.weight\": \"model-00002-of-00002.safetensors\"}", MD_E_NOT_FOUND,
         "model-00002-of-00002.safetensors", "cannot open"},
        {"{\"no.such.tensor\": \"model.safetensors\"}", MD_E_FORMAT,
         "puts tensor no.such.tensor into model.safetensors", "which does not hold it"},
        {"{}", MD_E_FORMAT, "\"weight_map\" is empty", ""},
        {"[]", MD_E_FORMAT, "\"weight_map\" is an array", ""},
        {"null", MD_E_FORMAT, "\"weight_map\" is null", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"weight_map\": %s}", cases[i].map);
        bad_write_text(&bad, "model.safetensors.index.json", text);
        bad_expect(&bad, cases[i].status, cases[i].first, cases[i].second);
    }
    bad_write_text(&bad, "model.safetensors.index.json", "[]");
    bad_expect(&bad, MD_E_FORMAT, "model.safetensors.index.json", "\"weight_map\" is nothing");
    json_t *many = json_object();
    for (int i = 0; i < 1001; i++) {
        char tensor[16], file[32];
        snprintf(tensor, sizeof tensor, "t%d", i);
        snprintf(file, sizeof file, "m%d.safetensors", i);
        json_object_set_new(many, tensor, json_string(file));
    }
    json_t *root = json_pack("{s:o}", "weight_map", many);
    bad_write_json(&bad, "model.safetensors.index.json", root);
    json_decref(root);
    bad_expect(&bad, MD_E_FORMAT, "model.safetensors.index.json", "more than 1000 weight files");
    bad_write_text(&bad, "model.safetensors.index.json",
                   "{\"weight_map\": {\"model.norm.weight\": \"model.safetensors\"}}");
    bad_expect_good(&bad); // an index need not list everything
}

// Without an index every model*.safetensors counts, and a tensor may be in one of them only.
static void refuses_a_tensor_in_two_files(void **state) {
    (void)state;
    char *index = md_path_join(bad.dir, "model.safetensors.index.json"),
         *weights = md_path_join(bad.dir, "model.safetensors"), *other = md_path_join(bad.dir, "model-2.safetensors");
    unlink(index);
    bad_expect_good(&bad);
    assert_int_equal(link(weights, other), 0);
    bad_expect(&bad, MD_E_FORMAT, "is also in", "model-2.safetensors");
    unlink(other);
    unlink(weights);
    bad_expect(&bad, MD_E_NOT_FOUND, bad.dir, "no weight files");
    assert_int_equal(mkdir(weights, 0700), 0);
    bad_expect(&bad, MD_E_IO, "model.safetensors", "not a regular file");
    assert_int_equal(rmdir(weights), 0);
    assert_int_equal(mkfifo(weights, 0600), 0);
    bad_expect(&bad, MD_E_IO, "model.safetensors", "not a regular file");
    free(index);
    free(weights);
    free(other);
}

static void refuses_a_shard_cut_by_one_page(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    shape.extra = "\"_synth\": {\"shard_bytes\": 40000}";
    bad_model b = {.dir = mm_make(&shape, 1)};
    bad_expect_good(&b);
    DIR *folder = opendir(b.dir);
    const struct dirent *entry;
    size_t shards = 0;
    while ((entry = readdir(folder))) {
        if (strncmp(entry->d_name, "model-", 6) != 0) continue;
        char *path = md_path_join(b.dir, entry->d_name);
        size_t size;
        char *bytes = bad_read(&b, entry->d_name, &size);
        if (size < 8192) { // the cut is to be in the data
            free(bytes);
            free(path);
            continue;
        }
        assert_int_equal(truncate(path, (off_t)size - 4096), 0);
        bad_expect(&b, MD_E_FORMAT, entry->d_name, "was it truncated?");
        FILE *file = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        fclose(file);
        free(bytes);
        free(path);
        shards++;
    }
    closedir(folder);
    assert_true(shards > 3);
    bad_expect_good(&b);
    mm_remove(b.dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_tensors_of_another_shape_or_type),
        cmocka_unit_test(refuses_a_wrong_number_of_groups),
        cmocka_unit_test(names_missing_and_unknown_tensors),
        cmocka_unit_test(refuses_indexes_that_point_astray),
        cmocka_unit_test(refuses_a_tensor_in_two_files),
        cmocka_unit_test(refuses_a_shard_cut_by_one_page),
    };
    return cmocka_run_group_tests(tests, bad_setup_one_layer, bad_teardown);
}
