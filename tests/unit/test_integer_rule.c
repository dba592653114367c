// The rule of rows of codes (docs/MODEL.md): vectors as integers against hand computations, and products against sums
// in double, within the bound that follows from half a unit and fp32.
#include <math.h>

#include "backend/reference/ops.h"
#include "base/bf16.h"
#include "base/fpmode.h"
#include "md_test.h"

static uint32_t seed = 1;
static double uniform(void) { // [-1, 1)
    seed = seed * 1664525u + 1013904223u;
    return seed / 2147483648.0 - 1;
}
static float half(double v) { return md_bf16_round((float)v); }

// A block whose first value is `first` and its second `second`: their integers and the unit.
static void expect(float first, float second, float n0, float n1, float unit) {
    float x[64] = {first, second}, n[64], got;
    uint64_t mode = md_fpmode_enter();
    md_ref_integers(x, 64, n, &got);
    md_fpmode_leave(mode);
    if (n[0] != n0 || n[1] != n1 || (got != unit && (got == got || unit == unit)))
        fail_msg("%a and %a: %g and %g times %a, expected %g and %g times %a", first, second, n[0], n[1], got, n0, n1,
                 unit);
}

static void integers_by_hand(void **state) {
    (void)state;
    expect(1.0f, -0.5f, 16384, -8192, 0x1p-14f);       // 1 * 1.0078125 < 2: e = 1
    expect(1.984375f, 1.0f, 32512, 16384, 0x1p-14f);   // 254/128 * 129/128 = 1.99988 < 2: still
    expect(-1.9921875f, 1.0f, -16320, 8192, 0x1p-13f); // 255/128 * 129/128 = 2.00775: e = 2
    expect(9984.0f, 0.75f, 19968, 2, 0x1p-1f);         // 9984 < 2^14: units of a half; 1.5 goes to 2
    expect(9984.0f, 0.25f, 19968, 0, 0x1p-1f);         // a half goes to 0
    expect(9984.0f, -0.75f, 19968, -2, 0x1p-1f);       // and so on the other side
    expect(0.0f, -0.0f, 0, 0, 0x1p-125f);              // e = -110
    expect(0x1p-126f, 0x1.8p-125f, 0, 2, 0x1p-125f);   // ties: 0.5 to 0, 1.5 to 2
    expect(0x1p-127f, 0x1p-130f, 0, 0, 0x1p-125f);     // denormals are zero
    expect(0x1.fap127f, 0, 32384, 0, 0x1p113f);        // 253/128 * 129/128 * 2^127 < 2^128
    expect(0x1.fep127f, 0, 0x1.fep13f, 0, NAN);        // 255/128: not any more
    expect(INFINITY, 1, 0, 0, NAN);
    expect(1, NAN, 0, 0, NAN);
}

// A row of K codes of 8 bits against x: |the rule - the sum in double| over what half a unit and fp32 allow.
static double excess(const float *x, uint32_t k, uint32_t group) {
    enum { MAX_K = 512 };
    float q[MAX_K], scales[MAX_K / 32], biases[MAX_K / 32], n[MAX_K], unit[MAX_K / 64], sums[MAX_K / 32];
    double exact = 0, allowed = 0, sizes = 0;
    for (uint32_t g = 0; g < k / group; g++) scales[g] = half(uniform() / 64), biases[g] = half(-127 * scales[g]);
    for (uint32_t i = 0; i < k; i++) q[i] = (float)((int)(128 + 127.99 * uniform()) & 255);
    for (uint32_t i = 0; i < k; i++) {
        double w = (double)scales[i / group] * q[i] + biases[i / group], greatest = 0;
        for (uint32_t j = i / 64 * 64; j < k && j < i / 64 * 64 + 64; j++)
            greatest = fmax(greatest, fabs((double)x[j]));
        int e;
        frexp(greatest * 129 / 128, &e);
        exact += w * x[i];
        allowed += fabs(w) * ldexp(0.5, e - 15);
        sizes += (fabs((double)scales[i / group]) * q[i] + fabs((double)biases[i / group])) * fabs((double)x[i]);
    }
    allowed += sizes * 0x1p-24 * (3.0 * k / group + 3); // three roundings a group, each of at most the whole
    uint64_t mode = md_fpmode_enter();
    md_ref_integers(x, k, n, unit);
    md_ref_group_sums(n, unit, k, group, sums);
    float found = md_ref_quantized_sum(q, scales, biases, n, unit, sums, k, group);
    md_fpmode_leave(mode);
    return fabs(found - exact) / allowed;
}

static void products_are_within_half_a_unit(void **state) {
    (void)state;
    static const uint32_t groups[] = {32, 64, 128};
    static const double outliers[] = {0, 3, 100, 1e4, -1e4, 1e8};
    double worst = 0;
    for (uint32_t round = 0; round < 600; round++)
        for (size_t g = 0; g < 3; g++)
            for (size_t o = 0; o < sizeof outliers / sizeof *outliers; o++) {
                float x[512];
                uint32_t k = groups[g] * (1 + round % (512 / groups[g]));
                for (uint32_t i = 0; i < k; i++) x[i] = half(uniform());
                if (outliers[o] != 0)
                    for (uint32_t i = 0; i < k; i += 64) x[i + (round + i / 64) % 32] = half(outliers[o]);
                worst = fmax(worst, excess(x, k, groups[g]));
            }
    print_message("worst difference from a sum in double: %.3f of what is allowed\n", worst);
    assert_true(worst <= 1);
    assert_true(worst > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(integers_by_hand),
                                       cmocka_unit_test(products_are_within_half_a_unit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
