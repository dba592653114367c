// src/model/synth.c: what it writes opens, is the same for the same seed, and has the promised statistics. The
// dequantization here is this file's own.
#include <math.h>
#include <sys/stat.h>

#include "base/bf16.h"
#include "base/json.h"
#include "model/quant.h"
#include "model/snapshot.h"
#include "model_maker.h"

static md_snapshot *opened(const char *dir) {
    md_snapshot *s;
    md_error err = {0};
    if (md_snapshot_open(dir, &s, &err) != MD_OK) fail_msg("%s", err.message);
    return s;
}

static float *dequantized(const md_matrix *m) {
    size_t n = (size_t)m->rows * m->cols, groups = m->group ? n / m->group : 0;
    float *w = malloc(n * sizeof *w);
    if (!m->bits) {
        assert_int_equal(md_tensor_read_f32(&m->weight, 0, m->rows, w, NULL), MD_OK);
        return w;
    }
    uint8_t *packed = malloc(n), *codes = malloc(n);
    float *scales = malloc(groups * sizeof *scales), *biases = malloc(groups * sizeof *biases);
    assert_int_equal(md_tensor_read(&m->weight, 0, m->rows, packed, NULL), MD_OK);
    assert_int_equal(md_tensor_read_f32(&m->scales, 0, m->rows, scales, NULL), MD_OK);
    assert_int_equal(md_tensor_read_f32(&m->biases, 0, m->rows, biases, NULL), MD_OK);
    md_codes_unpack(packed, m->bits, n, codes);
    for (size_t i = 0; i < n; i++) w[i] = scales[i / m->group] * (float)codes[i] + biases[i / m->group];
    free(packed);
    free(codes);
    free(scales);
    free(biases);
    return w;
}

static void check_spread(const md_matrix *m, double spread) {
    float *w = dequantized(m);
    size_t n = (size_t)m->rows * m->cols;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += w[i];
        squares += (double)w[i] * w[i];
    }
    double deviation = sqrt(squares / (double)n);
    if (fabs(deviation / spread - 1) > 0.05) fail_msg("%s: deviation %g, expected %g", m->path, deviation, spread);
    if (fabs(sum / (double)n) > 0.05 * spread) fail_msg("%s: mean %g", m->path, sum / (double)n);
    free(w);
}

static void check_model(const mm_shape *shape) {
    char *dir = mm_make(shape, 7);
    md_snapshot *s = opened(dir);
    double hidden = sqrt(1.0 / shape->hidden), residual = sqrt(1.0 / (2 * s->layers));
    check_spread(&s->embed, shape->tied ? 3 * hidden : 1);
    check_spread(&s->head, 3 * hidden);
    for (uint32_t i = 0; i < s->layers; i++) {
        check_spread(&s->layer[i].q, hidden);
        check_spread(&s->layer[i].v, hidden);
        check_spread(&s->layer[i].o, residual * sqrt(1.0 / (shape->q_heads * shape->head_dim)));
        check_spread(&s->layer[i].up, hidden);
        check_spread(&s->layer[i].down, residual * sqrt(1.0 / shape->ffn));
    }
    float norm[1024];
    assert_int_equal(md_tensor_read_f32(&s->final_norm, 0, 1, norm, NULL), MD_OK);
    for (uint32_t i = 0; i < s->hidden; i++) assert_true(norm[i] > 0.8f && norm[i] < 1.2f);
    md_snapshot_close(s);
    mm_remove(dir);
}

static void weights_have_the_promised_spread(void **state) {
    (void)state;
    static const char *const types[] = {"BF16", "F16", "F32"};
    const unsigned bits[] = {0, 2, 3, 4, 5, 6, 8};
    char extra[128];
    for (size_t b = 0; b < 7; b++)
        for (unsigned group = 32; group <= 128; group *= 2) {
            const char *type = types[(b + group / 32) % 3];
            snprintf(extra, sizeof extra, "\"_synth\": {\"scales\": \"%s\", \"weights\": \"%s\"}", type, type);
            mm_shape shape = MM_SHAPE;
            shape.bits = bits[b];
            shape.group = group;
            shape.extra = extra;
            shape.tied = b % 2;
            check_model(&shape);
        }
}

static void scales_come_in_both_signs(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    char *dir = mm_make(&shape, 7);
    md_snapshot *s = opened(dir);
    float scales[320 * 2];
    assert_int_equal(md_tensor_read_f32(&s->embed.scales, 0, 320, scales, NULL), MD_OK);
    int negative = 0;
    for (size_t i = 0; i < 640; i++) negative += scales[i] < 0;
    assert_in_range(negative, 256, 384); // 320 expected, 5 standard deviations are 63
    md_snapshot_close(s);
    mm_remove(dir);
}

static char *file_of(const char *dir, const char *name, size_t *size) {
    char *path = md_path_join(dir, name), *bytes;
    md_error err = {0};
    if (md_file_read_all(path, 1 << 24, &bytes, size, &err) != MD_OK) fail_msg("%s", err.message);
    free(path);
    return bytes;
}

static void the_seed_decides_every_byte(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    char *dir[3] = {mm_make(&shape, 1), mm_make(&shape, 1), mm_make(&shape, 2)}, *bytes[3];
    size_t size[3];
    for (int i = 0; i < 3; i++) bytes[i] = file_of(dir[i], "model.safetensors", &size[i]);
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    assert_int_equal(size[0], size[2]);
    assert_memory_not_equal(bytes[0], bytes[2], size[0]);
    for (int i = 0; i < 3; i++) {
        free(bytes[i]);
        mm_remove(dir[i]);
    }
}

// Overrides, false, additive biases, shards: all open, and the same names hold the same weights as in one file.
static void shards_hold_the_same_weights(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    shape.quant = "\"lm_head\": false, \"model.layers.1.mlp.up_proj\": {\"bits\": 8, \"group_size\": 32}";
    shape.extra = "\"attention_bias\": true, \"mlp_bias\": true";
    char *one = mm_make(&shape, 3);
    shape.extra = "\"attention_bias\": true, \"mlp_bias\": true, \"_synth\": {\"shard_bytes\": 40000}";
    char *many = mm_make(&shape, 3), *path = md_path_join(many, "model.safetensors");
    assert_false(md_file_exists(path));
    md_snapshot *a = opened(one), *b = opened(many);
    assert_int_equal(a->head.bits, 0);
    assert_int_equal(a->layer[1].up.bits, 8);
    assert_int_equal(a->layer[1].up.group, 32);
    assert_int_equal(a->layer[0].up.bits, 4);
    assert_true(a->layer[1].o.has_bias && a->layer[1].down.has_bias && b->layer[1].q.has_bias);
    assert_ptr_not_equal(b->embed.weight.file, b->layer[1].up.weight.file);
    float *x = dequantized(&a->layer[1].up), *y = dequantized(&b->layer[1].up);
    assert_memory_equal(x, y, sizeof *x * 256 * 128);
    free(x);
    free(y);
    md_snapshot_close(a);
    md_snapshot_close(b);
    free(path);
    mm_remove(one);
    mm_remove(many);
}

static void writes_what_stands_beside_the_weights(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    shape.kv = "[{\"layer_idx\": 1, \"bits\": 4, \"group_size\": 32}]";
    shape.extra = "\"_note\": \"mine\", \"_synth\": {}";
    char *dir = mm_make(&shape, 1);
    md_snapshot *s = opened(dir);
    assert_int_equal(s->eos_count, 1);
    assert_int_equal(s->kv[0].bits, 0);
    assert_int_equal(s->kv[1].bits, 4);
    assert_int_equal(s->kv[1].group, 32);
    md_snapshot_close(s);
    size_t n;
    char *config = file_of(dir, "config.json", &n);
    assert_null(strstr(config, "_synth"));
    assert_null(strstr(config, "mine"));
    free(config);
    char *text = file_of(dir, "tokenizer.json", &n);
    json_t *tokenizer;
    assert_int_equal(md_json_parse(text, n, false, "tokenizer.json", &tokenizer, NULL), MD_OK);
    const json_t *vocab = json_object_get(json_object_get(tokenizer, "model"), "vocab");
    assert_int_equal(json_object_size(vocab), 320);
    bool seen[320] = {false};
    const char *token;
    json_t *id;
    json_object_foreach((json_t *)vocab, token, id) {
        assert_in_range(json_integer_value(id), 0, 319);
        assert_false(seen[json_integer_value(id)]);
        seen[json_integer_value(id)] = true;
    }
    assert_int_equal(json_integer_value(json_object_get(vocab, "<s>")), 0);
    assert_int_equal(json_integer_value(json_object_get(vocab, "</s>")), 1);
    assert_int_equal(json_integer_value(json_object_get(vocab, "\xc4\xa0")),
                     34); // byte 32 is U+0120; 2 ids are special
    assert_int_equal(json_integer_value(json_object_get(vocab, "\xc4\xa0"
                                                               "300")),
                     300);
    json_decref(tokenizer);
    free(text);
    mm_remove(dir);
}

static void an_override_of_bits_reaches_every_matrix(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    for (unsigned quantized = 0; quantized < 2; quantized++) {
        shape.bits = quantized ? 4 : 0;
        shape.quant = "\"model.layers.1.mlp.up_proj\": {\"bits\": 3, \"group_size\": 32}";
        char *dir = mm_temp_dir(), *out = mm_temp_dir(), *config = mm_config(&shape),
             *path = md_path_join(dir, "c.json");
        mm_write(dir, "c.json", config, strlen(config));
        assert_int_equal(md_synth_write(path, out, &(md_synth_options){.seed = 1, .bits = 8}, NULL), MD_OK);
        md_snapshot *s = opened(out);
        assert_int_equal(s->embed.bits, 8);
        assert_int_equal(s->layer[1].up.bits, 8);
        assert_int_equal(s->layer[1].up.group, quantized ? 32 : 64);
        md_snapshot_close(s);
        free(config);
        free(path);
        mm_remove(dir);
        mm_remove(out);
    }
}

static void leaves_nothing_behind_when_it_fails(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    shape.hidden = 96; // not a multiple of the group
    char *dir = mm_temp_dir(), *config = mm_config(&shape), *path = md_path_join(dir, "c.json"),
         *out = md_path_join(dir, "out");
    mm_write(dir, "c.json", config, strlen(config));
    md_error err = {0};
    assert_int_equal(md_synth_write(path, out, &(md_synth_options){.seed = 1}, &err), MD_E_FORMAT);
    assert_non_null(strstr(err.message, "model.embed_tokens"));
    assert_non_null(strstr(err.message, "groups of 64"));
    assert_false(md_dir_exists(out));
    assert_int_equal(md_synth_write(path, dir, &(md_synth_options){.seed = 1}, &err), MD_E_USAGE); // not empty
    assert_non_null(strstr(err.message, "exists already"));
    unlink(path);
    assert_int_equal(rmdir(dir), 0); // so the config was all there was
    free(config);
    free(path);
    free(out);
    free(dir);
}

static bool give_up(void *user, double fraction) {
    assert_true(fraction > 0 && fraction <= 1);
    return ++*(int *)user < 10;
}

static void gives_up_when_told_to(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    char *dir = mm_temp_dir(), *config = mm_config(&shape), *path = md_path_join(dir, "c.json"),
         *out = md_path_join(dir, "out");
    mm_write(dir, "c.json", config, strlen(config));
    int calls = 0;
    md_error err = {0};
    const md_synth_options options = {.seed = 1, .progress = give_up, .progress_user = &calls};
    assert_int_equal(md_synth_write(path, out, &options, &err), MD_E_CANCELLED);
    assert_int_equal(calls, 10);
    assert_int_equal(md_synth_write(path, out, &(md_synth_options){.bits = 7}, &err), MD_E_USAGE);
    assert_non_null(strstr(err.message, "bits: 7"));
    unlink(path);
    assert_int_equal(rmdir(dir), 0); // nothing but the config was left
    free(config);
    free(path);
    free(out);
    free(dir);
}

static void half_precision_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) // every value comes back
        if ((half & 0x7fff) <= 0x7c00) assert_int_equal(md_f16_from_f32(md_f16_to_f32((uint16_t)half)), half);
    for (uint32_t half = 0; half < 0x7bff; half++) { // and the middle of two neighbours goes to the even one
        float low = md_f16_to_f32((uint16_t)half), high = md_f16_to_f32((uint16_t)(half + 1)),
              middle = (low + high) / 2;
        assert_int_equal(md_f16_from_f32(middle), half % 2 ? half + 1 : half);
        assert_int_equal(md_f16_from_f32(nextafterf(middle, 1e9f)), half + 1);
        assert_int_equal(md_f16_from_f32(nextafterf(middle, -1e9f)), half);
    }
    assert_int_equal(md_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(md_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(md_f16_from_f32(-1e30f), 0xfc00);
    assert_int_equal(md_f16_from_f32(NAN) & 0x7e00, 0x7e00);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_have_the_promised_spread),
        cmocka_unit_test(scales_come_in_both_signs),
        cmocka_unit_test(the_seed_decides_every_byte),
        cmocka_unit_test(shards_hold_the_same_weights),
        cmocka_unit_test(writes_what_stands_beside_the_weights),
        cmocka_unit_test(an_override_of_bits_reaches_every_matrix),
        cmocka_unit_test(leaves_nothing_behind_when_it_fails),
        cmocka_unit_test(gives_up_when_told_to),
        cmocka_unit_test(half_precision_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
