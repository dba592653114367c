// The sampler against hand computations, and against a plain sampler (full sort, libm) written here.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "gen/rng.h"
#include "gen/sampler.h"
#include "gen/weight.h"
#include "md_test.h"

enum { CONTEXT = 1000 };

// The draw as a double in [0, 1): the sampler's is at most 2^-53 greater.
static double draw_unit(uint64_t seed, uint64_t draw) {
    return (double)(md_draw_u64(md_mix64(seed), draw) >> 11) * 0x1p-53;
}

// splitmix64 from seed 1234567, as published with the algorithm.
static void test_random_numbers(void **state) {
    (void)state;
    static const uint64_t expected[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                        UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                        UINT64_C(16408922859458223821)};
    for (uint64_t i = 0; i < 5; i++) assert_int_equal(md_draw_u64(1234567, i), expected[i]);
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = draw_unit(42, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.005); // 5 sigma
}

// Whole weights against libm's exp2, within 2^-27 of the value or one unit; the product's high half against a 128-bit
// one (by hand: (2^64 - 1)^2 = 2^128 - 2^65 + 1).
static void test_weights(void **state) {
    (void)state;
    assert_true(md_weight(0) == MD_WEIGHT_ONE);
    assert_true(md_weight(1) == MD_WEIGHT_ONE / 2 && md_weight(42) == 1 && md_weight(43) == 0);
    assert_true(md_weight(NAN) == 0 && md_weight(INFINITY) == 0 && md_weight(1e300) == 0);
    for (uint64_t i = 0; i < 20000; i++) {
        double x = draw_unit(1, i) * 43, right = exp2(42 - x), found = (double)md_weight(x);
        assert_true(fabs(found - right) <= right * 0x1p-27 + 1);
    }
    assert_true(md_least_weight(1) == MD_WEIGHT_ONE && md_least_weight(0.5) == MD_WEIGHT_ONE / 2);
    assert_true(md_mul_high(UINT64_MAX, UINT64_MAX) == UINT64_MAX - 1);
    assert_true(md_mul_high(UINT64_C(1) << 63, 6) == 3 && md_mul_high(UINT64_MAX, 1) == 0);
    assert_true(md_mul_high(UINT64_C(0x123456789abcdef0), UINT64_C(1) << 36) == 0x123456789);
}

static md_sampler *open_sampler(const md_sampling *params, uint32_t vocab) {
    md_error err = {0};
    md_sampler *sampler = NULL;
    if (md_sampler_open(params, vocab, CONTEXT, &sampler, &err) != MD_OK) fail_msg("%s", err.message);
    return sampler;
}

static uint32_t next(md_sampler *sampler, const float *logits) {
    md_error err = {0};
    uint32_t token = UINT32_MAX;
    if (md_sampler_next(sampler, logits, &token, &err) != MD_OK) fail_msg("%s", err.message);
    return token;
}

// Draws many tokens and compares how often each comes with `expected` probabilities (4.5 sigma).
static void check_distribution(const md_sampling *params, const float *logits, uint32_t vocab, const double *expected) {
    enum { DRAWS = 8000 };
    uint32_t count[16] = {0};
    md_sampler *sampler = open_sampler(params, vocab);
    for (int i = 0; i < DRAWS; i++) count[next(sampler, logits)]++;
    md_sampler_close(sampler);
    for (uint32_t i = 0; i < vocab; i++) {
        double sigma = sqrt(DRAWS * expected[i] * (1 - expected[i]));
        if (fabs(count[i] - DRAWS * expected[i]) > 4.5 * sigma)
            fail_msg("token %u: %u of %d draws, expected %.1f", i, count[i], DRAWS, DRAWS * expected[i]);
    }
}

// Logits 0, 1, 2, 3: probabilities e^i / (1 + e + e^2 + e^3).
static const float four[4] = {0, 1, 2, 3};

static void test_distributions(void **state) {
    (void)state;
    check_distribution(&(md_sampling){.temperature = 1, .seed = 1}, four, 4,
                       (double[]){0.032058603, 0.087144319, 0.236882818, 0.643914260});
    // Temperature 2: e^(i/2).
    check_distribution(&(md_sampling){.temperature = 2, .seed = 2}, four, 4,
                       (double[]){0.101535, 0.167402, 0.275998, 0.455065});
    // The two likeliest: 1/(1+e) and e/(1+e).
    check_distribution(&(md_sampling){.temperature = 1, .top_k = 2, .seed = 3}, four, 4,
                       (double[]){0, 0, 0.268941421, 0.731058579});
    // 0.6439 alone reaches 0.64 but not 0.65; 0.6439 + 0.2369 reaches 0.88 but not 0.89.
    check_distribution(&(md_sampling){.temperature = 1, .top_p = 0.64, .seed = 4}, four, 4, (double[]){0, 0, 0, 1});
    check_distribution(&(md_sampling){.temperature = 1, .top_p = 0.65, .seed = 5}, four, 4,
                       (double[]){0, 0, 0.268941421, 0.731058579});
    check_distribution(&(md_sampling){.temperature = 1, .top_p = 0.89, .seed = 6}, four, 4,
                       (double[]){0, 0.090030573, 0.244728471, 0.665240956});
    // Temperature comes first: at 2, 0.455 + 0.276 reaches 0.73, and 0.167 more is needed for 0.74.
    check_distribution(&(md_sampling){.temperature = 2, .top_p = 0.74, .seed = 7}, four, 4,
                       (double[]){0, 0.186324, 0.307196, 0.506480});
    // e^-1 = 0.368 and e^-2 = 0.135 times the greatest.
    check_distribution(&(md_sampling){.temperature = 1, .min_p = 0.2, .seed = 8}, four, 4,
                       (double[]){0, 0, 0.268941421, 0.731058579});
    // top_p over what top_k left: 0.731 alone reaches 0.7 there.
    check_distribution(&(md_sampling){.temperature = 1, .top_k = 2, .top_p = 0.7, .seed = 9}, four, 4,
                       (double[]){0, 0, 0, 1});
}

// 0 (and 1 for top_p and the repetition penalty) means off, never greedy.
static void test_off_values(void **state) {
    (void)state;
    const double all[] = {0.032058603, 0.087144319, 0.236882818, 0.643914260};
    check_distribution(&(md_sampling){.temperature = 1, .top_k = 0, .min_p = 0.01, .seed = 1}, four, 4, all);
    check_distribution(&(md_sampling){.temperature = 1, .top_p = 1, .seed = 2}, four, 4, all);
    check_distribution(&(md_sampling){.temperature = 1, .top_p = 0, .seed = 3}, four, 4, all);
    check_distribution(&(md_sampling){.temperature = 1, .top_k = 100, .seed = 4}, four, 4, all);
    check_distribution(&(md_sampling){.temperature = 1, .repetition_penalty = 1, .seed = 5}, four, 4, all);
}

static void test_equal_logits(void **state) {
    (void)state;
    float logits[10];
    for (int i = 0; i < 10; i++) logits[i] = -3;
    md_sampler *greedy = open_sampler(&(md_sampling){0}, 10);
    assert_int_equal(next(greedy, logits), 0);
    logits[4] = logits[7] = 1.5f;
    assert_int_equal(next(greedy, logits), 4);
    md_sampler_close(greedy);
    for (int i = 0; i < 10; i++) logits[i] = -3;
    const double third[10] = {1 / 3., 1 / 3., 1 / 3.};
    check_distribution(&(md_sampling){.temperature = 1, .top_k = 3, .seed = 1}, logits, 10, third);
    check_distribution(&(md_sampling){.temperature = 1, .top_p = 0.25, .seed = 2}, logits, 10, third); // ceil(2.5)
    check_distribution(&(md_sampling){.temperature = 1, .min_p = 1, .top_k = 3, .seed = 3}, logits, 10, third);
}

static void test_greedy_by_limits(void **state) {
    (void)state;
    const md_sampling greedy[] = {{.temperature = 0, .top_p = 0.9},
                                  {.temperature = 1, .top_k = 1},
                                  {.temperature = 1, .top_p = 1e-9},
                                  {.temperature = 1, .min_p = 1},
                                  {.temperature = 1e-9}};
    for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i++) {
        md_sampler *sampler = open_sampler(&greedy[i], 4);
        for (int n = 0; n < 50; n++) assert_int_equal(next(sampler, four), 3);
        md_sampler_close(sampler);
    }
}

// Prompt 0 1, answer 2 2. Repetition 2 over both: 4 -> 2, -1 -> -2, 3 -> 1.5, 1.75 stays.
static void test_penalties(void **state) {
    (void)state;
    const float logits[4] = {4, -1, 3, 1.75f}, third[4] = {0, 0, 9, 1.75f};
    const uint32_t prompt[] = {0, 1};
    md_sampler *s = open_sampler(&(md_sampling){.repetition_penalty = 2}, 4);
    assert_int_equal(next(s, logits), 0);
    md_sampler_close(s);

    s = open_sampler(&(md_sampling){.repetition_penalty = 2.5}, 4);
    md_sampler_observe(s, prompt, 2);
    assert_int_equal(next(s, logits), 2); // 1.6, -2.5, 3, 1.75
    assert_int_equal(next(s, logits), 3); // 1.6, -2.5, 1.2, 1.75
    md_sampler_close(s);

    // Presence counts the answer only: the prompt's token 0 stays at 4.
    s = open_sampler(&(md_sampling){.presence_penalty = 2}, 4);
    md_sampler_observe(s, prompt, 2);
    assert_int_equal(next(s, logits), 0); // 4
    assert_int_equal(next(s, logits), 2); // 2, -1, 3
    assert_int_equal(next(s, logits), 0); // 2, -1, 1, 1.75
    assert_int_equal(next(s, logits), 0); // presence is subtracted once
    md_sampler_close(s);

    // Frequency: 9, 7, 5, 3, 1 for token 2, then 1.75 wins.
    s = open_sampler(&(md_sampling){.frequency_penalty = 2}, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(next(s, third), 2);
    assert_int_equal(next(s, third), 3);
    md_sampler_close(s);

    // A window of 1 sees the last token only.
    s = open_sampler(&(md_sampling){.presence_penalty = 2, .penalty_window = 1}, 4);
    assert_int_equal(next(s, logits), 0); // 4
    assert_int_equal(next(s, logits), 2); // 2, -1, 3
    assert_int_equal(next(s, logits), 0); // 0 has left the window
    md_sampler_close(s);
}

static md_status only_one(void *user, float *logits, uint32_t vocab, md_error *err) {
    (void)err;
    for (uint32_t i = 0; i < vocab; i++)
        if (i != *(uint32_t *)user) logits[i] = -INFINITY;
    return MD_OK;
}

static void test_bias_and_constraint(void **state) {
    (void)state;
    const md_logit_bias bias[] = {{3, -INFINITY}, {0, 1.5f}};
    md_sampler *s = open_sampler(&(md_sampling){.bias = bias, .bias_count = 2}, 4);
    assert_int_equal(next(s, four), 2); // 1.5, 1, 2, -inf
    md_sampler_close(s);
    check_distribution(&(md_sampling){.temperature = 1, .bias = bias, .bias_count = 1, .seed = 1}, four, 4,
                       (double[]){0.090030573, 0.244728471, 0.665240956, 0});
    uint32_t one = 1;
    s = open_sampler(&(md_sampling){.temperature = 1, .adjust = only_one, .adjust_user = &one}, 4);
    for (int i = 0; i < 20; i++) assert_int_equal(next(s, four), 1);
    md_sampler_close(s);
    // Everything forbidden: an error, not a token.
    md_error err = {0};
    uint32_t token, none = 99;
    s = open_sampler(&(md_sampling){.adjust = only_one, .adjust_user = &none}, 4);
    assert_int_equal(md_sampler_next(s, four, &token, &err), MD_E_USAGE);
    md_sampler_close(s);
}

static void test_not_a_number(void **state) {
    (void)state;
    const float logits[4] = {NAN, 1, -INFINITY, NAN};
    md_sampler *s = open_sampler(&(md_sampling){.temperature = 1, .seed = 5}, 4);
    for (int i = 0; i < 50; i++) assert_int_equal(next(s, logits), 1);
    md_sampler_close(s);
    // A model that gives no number at all is at fault, not the caller.
    const float none[4] = {NAN, -INFINITY, -INFINITY, NAN};
    for (int temperature = 0; temperature < 2; temperature++) {
        md_error err = {0};
        uint32_t token;
        s = open_sampler(&(md_sampling){.temperature = temperature}, 4);
        assert_int_equal(md_sampler_next(s, none, &token, &err), MD_E_FORMAT);
        assert_non_null(strstr(err.message, "logits"));
        md_sampler_close(s);
    }
}

static void test_refused_parameters(void **state) {
    (void)state;
    const md_logit_bias beyond = {4, 1}, infinite = {1, INFINITY};
    const struct {
        md_sampling params;
        const char *name;
    } cases[] = {
        {{.temperature = -1}, "temperature"},
        {{.temperature = NAN}, "temperature"},
        {{.temperature = INFINITY}, "temperature"},
        {{.top_p = 1.5}, "top_p"},
        {{.top_p = -0.1}, "top_p"},
        {{.min_p = 2}, "min_p"},
        {{.repetition_penalty = -1}, "repetition_penalty"},
        {{.presence_penalty = NAN}, "presence_penalty"},
        {{.frequency_penalty = INFINITY}, "frequency_penalty"},
        {{.bias = &beyond, .bias_count = 1}, "logit_bias"},
        {{.bias = &infinite, .bias_count = 1}, "logit_bias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        md_error err = {0};
        md_sampler *sampler = NULL;
        assert_int_equal(md_sampler_open(&cases[i].params, 4, CONTEXT, &sampler, &err), MD_E_USAGE);
        assert_null(sampler);
        if (!strstr(err.message, cases[i].name)) fail_msg("%s: %s", cases[i].name, err.message);
    }
}

static void test_logprobs(void **state) {
    (void)state;
    md_logprob top[8];
    md_sampler *s = open_sampler(&(md_sampling){0}, 4);
    double norm = log(exp(0) + exp(1) + exp(2) + exp(3));
    for (uint32_t i = 0; i < 4; i++) assert_true(fabs(md_sampler_logprobs(s, four, i, 0, NULL) - (i - norm)) < 1e-13);
    md_sampler_logprobs(s, four, 0, 3, top);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(top[i].token, 3 - i);
        assert_true(fabs(top[i].logprob - (3.0 - i - norm)) < 1e-13);
    }
    const float ties[4] = {1, 7, 7, 1};
    md_sampler_logprobs(s, ties, 0, 3, top);
    assert_int_equal(top[0].token, 1);
    assert_int_equal(top[1].token, 2);
    assert_int_equal(top[2].token, 0);
    md_sampler_close(s);
    double logprob = 0;
    md_error err;
    assert_int_equal(md_logprobs(four, 4, 1, 2, top, &logprob, &err), MD_OK);
    assert_true(fabs(logprob - (1 - norm)) < 1e-13 && fabs(top[0].logprob - (3 - norm)) < 1e-13);
    assert_true(top[0].token == 3 && top[1].token == 2);
    assert_int_equal(md_logprobs(four, 4, 4, 0, NULL, &logprob, &err), MD_E_USAGE);
    assert_int_equal(md_logprobs(four, 4, 0, 5, top, &logprob, &err), MD_E_USAGE);
}

// ---- against a plain sampler -----------------------------------------------------------------------------------

typedef struct candidate {
    uint32_t id;
    float value;
    long double weight;
} candidate;

static int by_rank(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

// The definition in megadecode.h, read literally: sort, cut, cut, cut, draw. *margin: how near the draw and the cuts
// came to deciding otherwise; the caller skips cases that rounding may decide.
static uint32_t plain_sample(const float *logits, uint32_t vocab, const md_sampling *p, double u, double *margin) {
    candidate *c = malloc(vocab * sizeof *c);
    for (uint32_t i = 0; i < vocab; i++) c[i] = (candidate){i, md_bf16_round(logits[i]), 0};
    qsort(c, vocab, sizeof *c, by_rank);
    uint32_t n = p->top_k && p->top_k < vocab ? p->top_k : vocab;
    long double total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        c[i].weight = expl(((long double)c[i].value - (long double)c[0].value) / (long double)p->temperature);
        total += c[i].weight;
    }
    *margin = 1;
    if (p->top_p > 0 && p->top_p < 1) {
        uint32_t kept = 0;
        while (kept < n && sum < (long double)p->top_p * total) sum += c[kept++].weight;
        double over = (double)((sum - (long double)p->top_p * total) / total);
        *margin = fmin(over, (double)(c[kept - 1].weight / total) - over);
        n = kept;
    }
    while (p->min_p > 0 && n > 1 && c[n - 1].weight < (long double)p->min_p) n--;
    for (uint32_t i = 0; i < vocab && p->min_p > 0; i++) *margin = fmin(*margin, fabs((double)c[i].weight - p->min_p));
    total = 0;
    for (uint32_t i = 0; i < n; i++) total += c[i].weight;
    long double goal = (long double)u * total, running = 0;
    uint32_t chosen = 0;
    for (; chosen + 1 < n && running + c[chosen].weight <= goal; chosen++) running += c[chosen].weight;
    double before = (double)((goal - running) / total), after = (double)((running + c[chosen].weight - goal) / total);
    *margin = fmin(*margin, fmin(chosen ? before : 1, chosen + 1 < n ? after : 1));
    uint32_t id = c[chosen].id;
    free(c);
    return id;
}

static void test_against_plain_sampler(void **state) {
    (void)state;
    enum { VOCAB = 20011, CASES = 60 };
    const uint32_t top_k[] = {0, 1, 5, 40, 5000};
    const double top_p[] = {0, 0.3, 0.9, 0.999}, min_p[] = {0, 0.05, 0.5}, temperature[] = {0.3, 0.7, 1, 1.7};
    float *logits = malloc(VOCAB * sizeof *logits);
    uint64_t random = 99;
    int compared = 0;
    for (int n = 0; n < CASES; n++) {
        for (uint32_t i = 0; i < VOCAB; i++) { // sums of uniforms: bell-shaped, most at -3..3, a few high
            double sum = 0;
            for (int k = 0; k < 4; k++) sum += draw_unit(7, random++);
            logits[i] = (float)((sum - 2) * 6 + (i % 997 == 0 ? 6 : 0));
        }
        md_sampling p = {.temperature = temperature[n % 4],
                         .top_k = top_k[n % 5],
                         .top_p = top_p[n / 4 % 4],
                         .min_p = min_p[n / 3 % 3],
                         .seed = (uint64_t)n * 31};
        double margin;
        uint32_t expected = plain_sample(logits, VOCAB, &p, draw_unit(p.seed, 0), &margin);
        md_sampler *s = open_sampler(&p, VOCAB);
        uint32_t found = next(s, logits);
        md_sampler_close(s);
        if (margin < 1e-7) continue; // weights are whole numbers
        compared++;
        if (found != expected) fail_msg("case %d: token %u, expected %u (margin %g)", n, found, expected, margin);
    }
    assert_true(compared > CASES * 9 / 10);
    free(logits);
}

static void test_seed_repeats(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 5; seed++) {
        md_sampler *a = open_sampler(&(md_sampling){.temperature = 1, .seed = seed}, 4);
        md_sampler *b = open_sampler(&(md_sampling){.temperature = 1, .seed = seed}, 4);
        for (int i = 0; i < 100; i++) assert_int_equal(next(a, four), next(b, four));
        md_sampler_close(a);
        md_sampler_close(b);
    }
    // Frozen: these tokens must come on every platform. From the definition: u_i = splitmix64(mix(2026), i) / 2^64
    // against the running sums 0.6439, 0.8808, 0.9679 of tokens 3, 2, 1, 0.
    md_sampler *s = open_sampler(&(md_sampling){.temperature = 1, .seed = 2026}, 4);
    for (uint64_t i = 0; i < 200; i++) {
        double u = draw_unit(2026, i);
        uint32_t expected = u < 0.643914260 ? 3 : u < 0.880797078 ? 2 : u < 0.967941397 ? 1 : 0;
        assert_int_equal(next(s, four), expected);
    }
    md_sampler_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_numbers), cmocka_unit_test(test_weights),
        cmocka_unit_test(test_distributions),  cmocka_unit_test(test_off_values),
        cmocka_unit_test(test_equal_logits),   cmocka_unit_test(test_greedy_by_limits),
        cmocka_unit_test(test_penalties),      cmocka_unit_test(test_bias_and_constraint),
        cmocka_unit_test(test_not_a_number),   cmocka_unit_test(test_refused_parameters),
        cmocka_unit_test(test_logprobs),       cmocka_unit_test(test_against_plain_sampler),
        cmocka_unit_test(test_seed_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
