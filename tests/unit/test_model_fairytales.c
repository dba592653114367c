// Opens the shipped model and compares every tensor's bytes with those an independent reader found
// (tests/data/fairytales_tensors.json, made by tools/hash_tensors.py from the file alone).
#include <stdlib.h>

#include "base/bf16.h"
#include "base/json.h"
#include "md_test.h"
#include "model/snapshot.h"

static md_snapshot *opened(void) {
    md_snapshot *s;
    md_error err = {0};
    if (md_snapshot_open("models/fairytales", &s, &err) != MD_OK) fail_msg("%s", err.message);
    return s;
}

static void reads_the_hyperparameters(void **state) {
    (void)state;
    md_snapshot *s = opened();
    assert_int_equal(s->layers, 6);
    assert_int_equal(s->hidden, 256);
    assert_int_equal(s->ffn, 768);
    assert_int_equal(s->vocab, 4096);
    assert_int_equal(s->q_heads, 8);
    assert_int_equal(s->kv_heads, 2);
    assert_int_equal(s->head_dim, 64);
    assert_int_equal(s->context, 4096);
    assert_true(s->norm_eps == 1e-6f);
    assert_int_equal(s->rope.type, MD_ROPE_PLAIN);
    assert_true(s->rope.theta == 5e6);
    assert_false(s->tied_head);
    assert_int_equal(s->bos, 0);
    assert_int_equal(s->eos_count, 2); // config.json says 1, generation_config.json [1, 3]
    assert_int_equal(s->eos[0], 1);
    assert_int_equal(s->eos[1], 3);
    assert_true(s->sampling.do_sample && s->sampling.has_temperature && s->sampling.has_top_p);
    assert_false(s->sampling.has_top_k || s->sampling.has_min_p || s->sampling.has_repetition_penalty);
    assert_true(s->sampling.temperature == 0.7 && s->sampling.top_p == 0.9);
    const uint8_t kv[] = {8, 8, 4, 4, 4, 8};
    assert_non_null(s->kv);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(s->kv[i].bits, kv[i]);
        assert_int_equal(s->kv[i].group, 64);
    }
    assert_int_equal(s->embed.bits, 8);
    assert_int_equal(s->layer[1].gate.bits, 4);
    assert_int_equal(s->layer[1].down.bits, 8);
    assert_int_equal(s->layer[1].down.group, 64);
    assert_int_equal(s->layer[0].q.rows, 512);
    assert_int_equal(s->layer[0].o.cols, 512);
    // 4096 rows of 64 words, 4 scales and 4 biases of 2 bytes
    assert_int_equal(md_matrix_bytes(&s->head), 4096 * (64 * 4 + 4 * 2 + 4 * 2));
    md_snapshot_close(s);
}

// CRC-32 as zlib computes it.
static uint32_t crc32_of(const uint8_t *bytes, size_t n) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1u));
    }
    return ~crc;
}

static void check_tensor(const json_t *expected, const md_tensor *tensor, size_t *count) {
    const json_t *entry = json_object_get(expected, tensor->name);
    if (!entry) fail_msg("%s is not in the list", tensor->name);
    assert_string_equal(md_dtype_name(tensor->dtype), json_string_value(json_object_get(entry, "dtype")));
    const json_t *shape = json_object_get(entry, "shape");
    size_t rank = json_array_size(shape);
    assert_int_equal(tensor->cols, json_integer_value(json_array_get(shape, rank - 1)));
    assert_int_equal(tensor->rows, rank == 2 ? json_integer_value(json_array_get(shape, 0)) : 1);
    size_t bytes = (size_t)(tensor->rows * tensor->row_bytes);
    uint8_t *data = malloc(bytes);
    uint32_t split = tensor->rows / 3; // read in two parts, to check the row offsets
    assert_int_equal(md_tensor_read(tensor, 0, split, data, NULL), MD_OK);
    assert_int_equal(md_tensor_read(tensor, split, tensor->rows - split, data + split * tensor->row_bytes, NULL),
                     MD_OK);
    assert_int_equal(crc32_of(data, bytes), json_integer_value(json_object_get(entry, "crc32")));
    free(data);
    ++*count;
}

static void check_matrix(const json_t *expected, const md_matrix *m, size_t *count) {
    check_tensor(expected, &m->weight, count);
    check_tensor(expected, &m->scales, count);
    check_tensor(expected, &m->biases, count);
}

static void reads_the_bytes_of_every_tensor(void **state) {
    (void)state;
    json_t *expected;
    md_error err = {0};
    if (md_json_read_file("tests/data/fairytales_tensors.json", 1 << 20, &expected, &err) != MD_OK)
        fail_msg("%s", err.message);
    md_snapshot *s = opened();
    size_t count = 0;
    check_matrix(expected, &s->embed, &count);
    check_matrix(expected, &s->head, &count);
    check_tensor(expected, &s->final_norm, &count);
    for (uint32_t i = 0; i < s->layers; i++) {
        const md_layer *l = &s->layer[i];
        const md_matrix *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < 7; j++) check_matrix(expected, all[j], &count);
        check_tensor(expected, &l->attn_norm, &count);
        check_tensor(expected, &l->ffn_norm, &count);
    }
    assert_int_equal(count, json_object_size(expected));
    md_snapshot_close(s);
    json_decref(expected);
}

static void widens_exactly_and_stays_inside(void **state) {
    (void)state;
    md_snapshot *s = opened();
    const md_tensor *scales = &s->layer[2].down.scales;
    uint16_t half[12 * 5];
    float wide[12 * 5];
    assert_int_equal(md_tensor_read(scales, 7, 5, half, NULL), MD_OK);
    assert_int_equal(md_tensor_read_f32(scales, 7, 5, wide, NULL), MD_OK);
    for (size_t i = 0; i < 12 * 5; i++) assert_int_equal(md_f32_bits(wide[i]), (uint32_t)half[i] << 16);
    md_error err = {0};
    assert_int_equal(md_tensor_read(scales, 250, 7, half, &err), MD_E_USAGE);
    assert_int_equal(md_tensor_read(scales, UINT32_MAX, 2, half, &err), MD_E_USAGE);
    assert_int_equal(md_tensor_read_f32(&s->embed.weight, 0, 1, wide, &err), MD_E_USAGE);
    md_snapshot_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_hyperparameters),
        cmocka_unit_test(reads_the_bytes_of_every_tensor),
        cmocka_unit_test(widens_exactly_and_stays_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
