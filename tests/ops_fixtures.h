// The operator fixtures made by MLX (tests/data/ops): each has named arrays and parameters, listed in index.json.
#ifndef MD_TEST_OPS_FIXTURES_H
#define MD_TEST_OPS_FIXTURES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "md_test.h"

#include "base/bf16.h"
#include "base/file.h"
#include "base/json.h"

static json_t *md_fixture_index(void) {
    json_t *index = NULL;
    md_error err = {0};
    if (md_json_read_file("tests/data/ops/index.json", 1 << 20, &index, &err) != MD_OK) fail_msg("%s", err.message);
    return index;
}

// The raw bytes of a fixture's array; *size in bytes. Caller frees.
static uint8_t *md_fixture_bytes(const json_t *fixture, const char *array, size_t *size) {
    const json_t *entry = json_object_get(json_object_get(fixture, "arrays"), array);
    char path[300], *data = NULL;
    md_error err = {0};
    snprintf(path, sizeof path, "tests/data/ops/%s", json_string_value(json_object_get(entry, "file")));
    if (md_file_read_all(path, 1 << 22, &data, size, &err) != MD_OK) fail_msg("%s", err.message);
    return (uint8_t *)data;
}

// A bf16 or f32 array as floats; *n values. Caller frees.
static float *md_fixture_floats(const json_t *fixture, const char *array, size_t *n) {
    const json_t *entry = json_object_get(json_object_get(fixture, "arrays"), array);
    int wide = strcmp(json_string_value(json_object_get(entry, "dtype")), "f32") == 0;
    size_t size;
    uint8_t *bytes = md_fixture_bytes(fixture, array, &size);
    *n = size / (wide ? 4 : 2);
    float *values = malloc(*n * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < *n; i++) {
        uint16_t half;
        if (wide)
            memcpy(&values[i], bytes + 4 * i, 4);
        else
            memcpy(&half, bytes + 2 * i, 2), values[i] = md_bf16_to_f32(half);
    }
    free(bytes);
    return values;
}

static double md_fixture_param(const json_t *fixture, const char *key) {
    return json_number_value(json_object_get(json_object_get(fixture, "params"), key));
}

// Distance in bf16 steps between two bf16 values: their order numbers' difference.
static uint32_t md_bf16_ulps(float a, float b) {
    int32_t x = md_bf16_from_f32(a), y = md_bf16_from_f32(b);
    x = x & 0x8000 ? -(x & 0x7fff) : x;
    y = y & 0x8000 ? -(y & 0x7fff) : y;
    return (uint32_t)(x > y ? x - y : y - x);
}

// Counts of a comparison: `exact` equal bits, `worst` distance in bf16 steps, `relative` the worst distance over the
// fixture's largest value (a value near zero, the rest of a cancellation, can be many steps away and still be close).
// `far` values are more than a step away, and at most `far_relative` of their fixture's largest value.
typedef struct md_fixture_score {
    size_t values, exact, far;
    uint32_t worst;
    double relative, far_relative;
} md_fixture_score;

static void md_fixture_compare(md_fixture_score *score, const float *found, const float *expected, size_t n) {
    double largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(expected[i]));
    for (size_t i = 0; i < n; i++) {
        double relative = fabs((double)found[i] - expected[i]) / largest;
        uint32_t distance = md_bf16_ulps(found[i], expected[i]);
        score->relative = fmax(score->relative, relative);
        if (distance > 1) score->far++, score->far_relative = fmax(score->far_relative, relative);
        score->values++;
        score->exact += distance == 0;
        if (distance > score->worst) score->worst = distance;
    }
}

#endif
