// The reference operators against MLX's fixtures: at most one bf16 step away, but for sums that cancel; the share that
// is exact is printed.
#include "ops_fixtures.h"

#include <math.h>

#include "backend/reference/ops.h"
#include "base/fpmode.h"
#include "model/quant.h"
#include "model/rope.h"
#include "plan/plan.h"

static uint32_t param(const json_t *fixture, const char *key) { return (uint32_t)md_fixture_param(fixture, key); }

// Runs `check` on every fixture of an operator and reports the sum.
static md_fixture_score run_all(const char *op, void (*check)(const json_t *fixture, md_fixture_score *score)) {
    json_t *index = md_fixture_index();
    md_fixture_score score = {0};
    size_t i, fixtures = 0;
    json_t *fixture;
    uint64_t mode = md_fpmode_enter();
    json_array_foreach(index, i, fixture) {
        if (strcmp(json_string_value(json_object_get(fixture, "op")), op) != 0) continue;
        check(fixture, &score);
        fixtures++;
    }
    md_fpmode_leave(mode);
    json_decref(index);
    assert_true(fixtures > 0);
    print_message("%s: %zu fixtures, %zu values, %.2f%% exact, worst %u bf16 steps, %.2g of the largest; %zu beyond a "
                  "step, by %.2g of the largest at most\n",
                  op, fixtures, score.values, 100.0 * (double)score.exact / (double)score.values, score.worst,
                  score.relative, score.far, score.far_relative);
    return score;
}

// x times W, not transposed: what a quantized cache's values go through. One row of W is one position.
static void check_values(const json_t *fixture, md_fixture_score *score) {
    uint32_t bits = param(fixture, "bits"), group = param(fixture, "group_size");
    uint32_t positions = param(fixture, "K"), dim = param(fixture, "N");
    size_t n, size;
    float *x = md_fixture_floats(fixture, "x", &n), *y = md_fixture_floats(fixture, "y", &n);
    float *scales = md_fixture_floats(fixture, "scales", &n), *biases = md_fixture_floats(fixture, "biases", &n);
    uint8_t *packed = md_fixture_bytes(fixture, "packed", &size), *codes = malloc((size_t)positions * dim);
    float *values = malloc((size_t)positions * dim * sizeof *values), *found = malloc(dim * sizeof *found);
    md_codes_unpack(packed, bits, (size_t)positions * dim, codes);
    for (size_t i = 0; i < (size_t)positions * dim; i++) values[i] = codes[i];
    md_ref_quantized_kv kv = {.v_codes = values,
                              .v_scales = scales,
                              .v_biases = biases,
                              .stride = dim,
                              .group_stride = dim / group,
                              .group = group,
                              .bits = bits};
    memset(found, 0, dim * sizeof *found);
    for (uint32_t at = 0; at < positions; at += MD_ATTN_BLOCK) {
        uint32_t n_here = positions - at < MD_ATTN_BLOCK ? positions - at : MD_ATTN_BLOCK;
        float o[MD_MAX_HEAD_DIM], share = 0;
        for (uint32_t j = at; j < at + n_here; j++) share = fmaxf(share, x[j]);
        for (uint32_t g = 0; g < dim / group; g++) {
            md_ref_quantized_values(x + at, share, &kv, at, n_here, g, o);
            for (uint32_t d = 0; d < group; d++) found[g * group + d] += o[d];
        }
    }
    for (uint32_t d = 0; d < dim; d++) found[d] = md_bf16_round(found[d]);
    md_fixture_compare(score, found, y, dim);
    free(x), free(y), free(scales), free(biases), free(packed), free(codes), free(values), free(found);
}

static void check_matmul(const json_t *fixture, md_fixture_score *score) {
    if (json_is_false(json_object_get(json_object_get(fixture, "params"), "transpose"))) {
        check_values(fixture, score);
        return;
    }
    uint32_t bits = param(fixture, "bits"), group = param(fixture, "group_size");
    size_t nx, ny, ns, size;
    float *x = md_fixture_floats(fixture, "x", &nx), *y = md_fixture_floats(fixture, "y", &ny);
    float *scales = md_fixture_floats(fixture, "scales", &ns), *biases = md_fixture_floats(fixture, "biases", &ns);
    uint8_t *packed = md_fixture_bytes(fixture, "packed", &size);
    uint32_t k = param(fixture, "K"), rows = param(fixture, "N"), columns = param(fixture, "M");
    md_matrix desc = {.rows = rows, .cols = k, .bits = bits, .group = group};
    desc.weight.row_bytes = (uint64_t)k * bits / 8;
    md_ref_matrix matrix = {.desc = &desc, .weight = packed, .scales = scales, .biases = biases};
    float *scratch = malloc(3 * k * sizeof *scratch), *found = malloc(rows * sizeof *found);
    for (uint32_t c = 0; c < columns; c++) {
        md_ref_matmul(&matrix, x + (size_t)c * k, found, scratch);
        md_fixture_compare(score, found, y + (size_t)c * rows, rows);
    }
    free(x), free(y), free(scales), free(biases), free(packed), free(scratch), free(found);
}

// x as integers of 16 bits moves a product by some 2^-18 of the row's largest: where a sum all but cancels, that can be
// more than a step.
static void products_are_mlx(void **state) {
    (void)state;
    md_fixture_score score = run_all("quantized_matmul", check_matmul);
    assert_true(score.exact * 1000 >= score.values * 995);
    assert_true(score.relative <= 0x1p-8); // one bf16 step at the largest value
    assert_true(score.far * 1000 <= score.values);
    assert_true(score.far_relative <= 0x1p-16);
}

static void check_rmsnorm(const json_t *fixture, md_fixture_score *score) {
    size_t n;
    float *x = md_fixture_floats(fixture, "x", &n), *w = md_fixture_floats(fixture, "weight", &n);
    float *y = md_fixture_floats(fixture, "y", &n), *found = malloc(n * sizeof *found);
    md_ref_rmsnorm(x, w, (uint32_t)n, (float)md_fixture_param(fixture, "eps"), found);
    md_fixture_compare(score, found, y, n);
    free(x), free(w), free(y), free(found);
}

static void rmsnorm_is_mlx(void **state) {
    (void)state;
    assert_in_range(run_all("rms_norm", check_rmsnorm).worst, 0, 1);
}

static void check_rope(const json_t *fixture, md_fixture_score *score) {
    const char *name = json_string_value(json_object_get(fixture, "name"));
    md_rope rope = {.theta = md_fixture_param(fixture, "theta")};
    json_t *params = json_object_get(fixture, "params");
    if (strstr(name, "linear")) {
        rope.type = MD_ROPE_LINEAR;
        rope.factor = 4;
    } else if (strstr(name, "llama3")) {
        const json_t *scaling = json_object_get(params, "rope_scaling");
        if (!scaling) scaling = params;
        rope.type = MD_ROPE_LLAMA3;
        rope.factor = json_number_value(json_object_get(scaling, "factor"));
        rope.low_freq_factor = json_number_value(json_object_get(scaling, "low_freq_factor"));
        rope.high_freq_factor = json_number_value(json_object_get(scaling, "high_freq_factor"));
        rope.original_context = json_number_value(json_object_get(scaling, "original_max_position_embeddings"));
    }
    uint32_t dim = param(fixture, "dims"), position = param(fixture, "position");
    float inv_freq[MD_MAX_HEAD_DIM / 2], scale;
    md_rope_frequencies(&rope, dim, inv_freq, &scale);
    size_t n;
    float *x = md_fixture_floats(fixture, "x", &n), *y = md_fixture_floats(fixture, "y", &n);
    md_ref_rope(x, (uint32_t)n / dim, dim, position, inv_freq, scale);
    md_fixture_compare(score, x, y, n);
    free(x), free(y);
}

// MLX's fp32 frequencies (exp2 of an fp32 product) differ from ours in the last bits of the angle, which at position
// 4,095 can move a value near zero by more than a step.
static void rope_is_mlx(void **state) {
    (void)state;
    md_fixture_score score = run_all("rope", check_rope);
    assert_true(score.exact * 100 >= score.values * 99);
    assert_true(score.relative <= 0x1p-7); // one bf16 step at the largest value
}

static void check_swiglu(const json_t *fixture, md_fixture_score *score) {
    size_t n;
    float *g = md_fixture_floats(fixture, "gate", &n), *u = md_fixture_floats(fixture, "up", &n);
    float *y = md_fixture_floats(fixture, "y", &n), *found = malloc(n * sizeof *found);
    md_ref_swiglu(g, u, (uint32_t)n, found);
    md_fixture_compare(score, found, y, n);
    free(g), free(u), free(y), free(found);
}

static void swiglu_is_mlx(void **state) {
    (void)state;
    assert_int_equal(run_all("silu_mul", check_swiglu).worst, 0);
}

static void check_attention(const json_t *fixture, md_fixture_score *score) {
    size_t nq, nk, ny;
    float *q = md_fixture_floats(fixture, "q", &nq), *k = md_fixture_floats(fixture, "k", &nk);
    float *v = md_fixture_floats(fixture, "v", &nk), *y = md_fixture_floats(fixture, "y", &ny);
    uint32_t heads = param(fixture, "n_heads"), kv_heads = param(fixture, "n_kv_heads");
    uint32_t dim = strstr(json_string_value(json_object_get(fixture, "name")), "d128") ? 128 : 64;
    uint32_t length = (uint32_t)nk / kv_heads / dim, queries = (uint32_t)nq / heads / dim;
    float *out = malloc(dim * sizeof *out), *scratch = malloc(length * sizeof *scratch);
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t t = 0; t < queries; t++) { // causal where there are several queries
            size_t at = ((size_t)h * queries + t) * dim, kv = (size_t)(h / (heads / kv_heads)) * length * dim;
            md_ref_attention(q + at, k + kv, v + kv, dim, length - queries + t + 1, dim, out, scratch);
            md_fixture_compare(score, out, y + at, dim);
        }
    free(q), free(k), free(v), free(y), free(out), free(scratch);
}

static void attention_is_mlx(void **state) {
    (void)state;
    md_fixture_score score = run_all("sdpa", check_attention);
    assert_true(score.exact * 1000 >= score.values * 999);
    assert_true(score.relative <= 0x1p-7); // one bf16 step at the largest value
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_mlx), cmocka_unit_test(rmsnorm_is_mlx),   cmocka_unit_test(rope_is_mlx),
        cmocka_unit_test(swiglu_is_mlx),    cmocka_unit_test(attention_is_mlx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
