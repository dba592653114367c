// Stop strings cut in every way: the stop text never comes out, nothing else is lost, nothing is held back for longer
// than it must be.
#include <stdlib.h>
#include <string.h>

#include "gen/rng.h"
#include "gen/stop.h"
#include "md_test.h"

static md_stop *open_stop(const char *const *strings, size_t count) {
    md_error err = {0};
    md_stop *stop = NULL;
    if (md_stop_open(strings, count, &stop, &err) != MD_OK) fail_msg("%s", err.message);
    return stop;
}

// Puts the pieces, then the end; returns all text that came out (owned by the caller) and which stop matched.
static char *run(const char *const *strings, size_t count, const char *const *pieces, size_t n, int *matched) {
    md_error err = {0};
    md_buf out;
    md_buf_init(&out, 1 << 20);
    md_stop *stop = open_stop(strings, count);
    *matched = -1;
    for (size_t i = 0; i < n && *matched < 0; i++)
        assert_int_equal(md_stop_put(stop, pieces[i], strlen(pieces[i]), &out, matched, &err), MD_OK);
    if (*matched < 0) assert_int_equal(md_stop_flush(stop, &out, &err), MD_OK);
    md_stop_close(stop);
    return md_buf_take(&out);
}

#define STRINGS(...)                                                                                                   \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)

static void check(const char *const *strings, size_t count, const char *const *pieces, size_t n, const char *expected,
                  int expected_match) {
    int matched;
    char *text = run(strings, count, pieces, n, &matched);
    assert_string_equal(text, expected);
    assert_int_equal(matched, expected_match);
    free(text);
}

// The reported faults: stop strings split over tokens while streaming.
static void test_split_over_tokens(void **state) {
    (void)state;
    check(STRINGS("DEFGHIJ"), STRINGS("ABC", "DE", "FG", "HIJ", "KLM"), "ABC", 0);
    check(STRINGS("DEFGHIJ"), STRINGS("AB", "CDEFGHIJKLM"), "ABC", 0);
    check(STRINGS("beta gamma"), STRINGS("alpha", " beta", " gam", "ma", " delta"), "alpha ", 0);
    check(STRINGS("DEFGHIJ"), STRINGS("ABC", "DEFG", "HIX"), "ABCDEFGHIX", -1);
    check(STRINGS("beta gamma"), STRINGS("alpha beta gam"), "alpha beta gam", -1);
}

static void test_overlaps(void **state) {
    (void)state;
    check(STRINGS("aab"), STRINGS("a", "a", "a", "b", "c"), "a", 0);
    check(STRINGS("abab"), STRINGS("aba", "abab"), "aba", 0);
    check(STRINGS("abcd", "bc"), STRINGS("abce"), "a", 1);    // the one that ends first
    check(STRINGS("yz", "xyz"), STRINGS("wx", "yz"), "w", 1); // of two that end together the longest
    check(STRINGS("\n\n", "\nUser:"), STRINGS("hi\n", "User:"), "hi", 1);
    check(STRINGS("stop"), STRINGS("stop"), "", 0);
    check(STRINGS("\xc3\xa9t"), STRINGS("\xc3\xa9", "\xc3\xa9t\xc3\xa9"), "\xc3\xa9", 0);
}

// What leaves at once: all but the longest end of the text that begins a stop string.
static void test_holds_back_no_more_than_needed(void **state) {
    (void)state;
    md_error err = {0};
    md_buf out;
    int matched;
    md_buf_init(&out, 1000);
    md_stop *stop = open_stop(STRINGS("</end>", "<stop"));
    const struct {
        const char *piece, *so_far;
    } steps[] = {{"hello <", "hello "}, {"s", "hello "}, {"t", "hello "}, {"x", "hello <stx"}, {"<<", "hello <stx<"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(md_stop_put(stop, steps[i].piece, strlen(steps[i].piece), &out, &matched, &err), MD_OK);
        assert_int_equal(matched, -1);
        assert_string_equal(md_buf_str(&out), steps[i].so_far);
    }
    md_stop_close(stop);
    md_buf_free(&out);
}

// Where the first stop string ends (and, of those, the longest), by trying everything; -1: none.
static int plain_search(const char *text, const char *const *strings, size_t count, size_t *start) {
    for (size_t end = 1; end <= strlen(text); end++) {
        int found = -1;
        for (size_t s = 0; s < count; s++) {
            size_t n = strlen(strings[s]);
            if (n <= end && memcmp(text + end - n, strings[s], n) == 0 && (found < 0 || n > strlen(strings[found])))
                found = (int)s;
        }
        if (found < 0) continue;
        *start = end - strlen(strings[found]);
        return found;
    }
    return -1;
}

static void test_random_cuts(void **state) {
    (void)state;
    uint64_t random = 0;
    for (int n = 0; n < 4000; n++) {
        char text[41], stops[3][6], piece[16][41], expected[41];
        const char *strings[3], *pieces[16];
        size_t size = 1 + md_draw_u64(5, random++) % 40, count = 1 + md_draw_u64(5, random++) % 3, cuts = 0, start = 0;
        for (size_t i = 0; i < size; i++) text[i] = "ab"[md_draw_u64(5, random++) % 2];
        text[size] = 0;
        for (size_t s = 0; s < count; s++) {
            size_t length = 1 + md_draw_u64(5, random++) % 5;
            for (size_t i = 0; i < length; i++) stops[s][i] = "ab"[md_draw_u64(5, random++) % 2];
            stops[s][length] = 0;
            strings[s] = stops[s];
        }
        for (size_t at = 0; at < size; cuts++) {
            size_t take = cuts == 15 ? size - at : 1 + md_draw_u64(5, random++) % (size - at);
            memcpy(piece[cuts], text + at, take);
            piece[cuts][take] = 0;
            pieces[cuts] = piece[cuts];
            at += take;
        }
        int match = plain_search(text, strings, count, &start);
        memcpy(expected, text, sizeof text);
        if (match >= 0) expected[start] = 0;
        int matched;
        char *found = run(strings, count, pieces, cuts, &matched);
        assert_string_equal(found, expected);
        // Equal strings may be given twice: then either index is right.
        if (matched != match) assert_string_equal(strings[matched], strings[match]);
        free(found);
    }
}

static void test_refused(void **state) {
    (void)state;
    md_error err = {0};
    md_stop *stop = NULL;
    char longest[MD_STOP_SIZE_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[MD_STOP_SIZE_MAX + 1] = 0;
    const char *too_long = longest, *many[MD_STOP_MAX + 1];
    for (size_t i = 0; i <= MD_STOP_MAX; i++) many[i] = "x";
    assert_int_equal(md_stop_open(STRINGS("a", ""), &stop, &err), MD_E_USAGE);
    assert_non_null(strstr(err.message, "stop[1]"));
    assert_int_equal(md_stop_open(&too_long, 1, &stop, &err), MD_E_USAGE);
    assert_int_equal(md_stop_open(many, MD_STOP_MAX + 1, &stop, &err), MD_E_USAGE);
    assert_null(stop);
    longest[MD_STOP_SIZE_MAX] = 0; // the longest that is allowed
    assert_int_equal(md_stop_open(&too_long, 1, &stop, &err), MD_OK);
    md_stop_close(stop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_over_tokens),
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_holds_back_no_more_than_needed),
        cmocka_unit_test(test_random_cuts),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
