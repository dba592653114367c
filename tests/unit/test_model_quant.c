// src/model/quant.c against fixtures made by MLX (tests/data/ops), and packing against a bit-by-bit definition.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/file.h"
#include "md_test.h"
#include "model/quant.h"

static const uint32_t all_bits[] = {2, 3, 4, 5, 6, 8};
static const uint32_t all_groups[] = {32, 64, 128};

static void *fixture(const char *name, const char *part, size_t expected) {
    char path[256];
    snprintf(path, sizeof path, "tests/data/ops/%s.%s.bin", name, part);
    char *bytes;
    size_t size;
    md_error err = {0};
    if (md_file_read_all(path, 1 << 20, &bytes, &size, &err) != MD_OK) fail_msg("%s", err.message);
    assert_int_equal(size, expected);
    return bytes;
}

// One fixture of rows x cols: codes, scales and biases exact; dequantized values exact in fp32 and in bf16.
static void check_fixture(const char *name, uint32_t bits, uint32_t group, size_t n) {
    float *input = fixture(name, "input", n * 4);
    uint8_t *packed = fixture(name, "packed", n * bits / 8);
    uint16_t *scales = fixture(name, "scales", n / group * 2), *biases = fixture(name, "biases", n / group * 2);
    float *wide = fixture(name, "dequantized_f32", n * 4);
    uint16_t *narrow = fixture(name, "dequantized", n * 2);

    uint8_t *codes = malloc(n), *our_packed = malloc(n), *their_codes = malloc(n);
    uint16_t *our_scales = malloc(n / group * 2), *our_biases = malloc(n / group * 2);
    md_affine_quantize(input, n, bits, group, codes, our_scales, our_biases);
    assert_memory_equal(our_scales, scales, n / group * 2);
    assert_memory_equal(our_biases, biases, n / group * 2);
    md_codes_pack(codes, bits, n, our_packed);
    assert_memory_equal(our_packed, packed, n * bits / 8);
    md_codes_unpack(packed, bits, n, their_codes);
    assert_memory_equal(their_codes, codes, n);
    for (size_t i = 0; i < n; i++) {
        float scale = md_bf16_to_f32(scales[i / group]), bias = md_bf16_to_f32(biases[i / group]);
        float product = scale * (float)codes[i]; // its own statement: no fused multiply-add
        assert_int_equal(md_f32_bits(product + bias), md_f32_bits(wide[i]));
        assert_int_equal(md_bf16_from_f32(md_bf16_round(product) + bias), narrow[i]);
    }
    void *owned[] = {input, packed,     scales,      biases,     wide,      narrow,
                     codes, our_packed, their_codes, our_scales, our_biases};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}

static void quantizes_as_mlx_does(void **state) {
    (void)state;
    char name[64];
    for (size_t b = 0; b < 6; b++)
        for (size_t g = 0; g < 3; g++) {
            snprintf(name, sizeof name, "quantize_b%u_g%u", all_bits[b], all_groups[g]);
            check_fixture(name, all_bits[b], all_groups[g], 8 * 256);
        }
}

static void quantizes_edge_rows_as_mlx_does(void **state) {
    (void)state;
    char name[64];
    for (uint32_t bits = 4; bits <= 8; bits += 4)
        for (size_t g = 0; g < 3; g++) {
            snprintf(name, sizeof name, "quantize_edge_b%u_g%u", bits, all_groups[g]);
            check_fixture(name, bits, all_groups[g], 6 * 128);
        }
}

// Code i of `bits` bits occupies bits [i*bits, (i+1)*bits) of the little-endian bit stream.
static uint8_t code_by_definition(const uint8_t *packed, uint32_t bits, size_t i) {
    unsigned code = 0;
    for (uint32_t b = 0; b < bits; b++) {
        size_t at = i * bits + b;
        code |= (unsigned)(packed[at / 8] >> (at % 8) & 1) << b;
    }
    return (uint8_t)code;
}

static void packs_as_the_bit_stream_says(void **state) {
    (void)state;
    enum { N = 264 };
    uint8_t stream[N], codes[N], back[N];
    uint32_t seed = 1;
    for (size_t i = 0; i < N; i++) stream[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    for (size_t b = 0; b < 6; b++) {
        uint32_t bits = all_bits[b];
        for (size_t n = 0; n <= N; n++) {
            if (n * bits % 8 != 0) continue;
            memset(codes, 0xee, sizeof codes);
            memset(back, 0xee, sizeof back);
            md_codes_unpack(stream, bits, n, codes);
            for (size_t i = 0; i < n; i++) assert_int_equal(codes[i], code_by_definition(stream, bits, i));
            md_codes_pack(codes, bits, n, back);
            assert_memory_equal(back, stream, n * bits / 8);
            if (n < N) assert_int_equal(codes[n], 0xee); // nothing is written past the end
            if (n * bits / 8 < N) assert_int_equal(back[n * bits / 8], 0xee);
        }
    }
}

// Codes stay in range, and no value of the group comes out as a number.
static void a_group_that_is_not_finite_stays_so(void **state) {
    (void)state;
    float values[32] = {0};
    uint8_t codes[32];
    uint16_t scale, bias;
    const float bad[] = {1.0f / 0.0f, -1.0f / 0.0f, 0.0f / 0.0f};
    for (size_t i = 0; i < 3; i++)
        for (size_t at = 0; at < 32; at++) {
            memset(values, 0, sizeof values);
            values[at] = bad[i];
            md_affine_quantize(values, 32, 4, 32, codes, &scale, &bias);
            for (size_t j = 0; j < 32; j++) assert_true(codes[j] <= 15);
            assert_true(isnan(md_bf16_to_f32(scale)));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantizes_as_mlx_does),
        cmocka_unit_test(quantizes_edge_rows_as_mlx_does),
        cmocka_unit_test(packs_as_the_bit_stream_says),
        cmocka_unit_test(a_group_that_is_not_finite_stays_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
