// src/base: expected values by hand.
#include "md_test.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/bf16.h"
#include "base/buf.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/utf8.h"

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    assert_int_equal(md_bf16_from_f32(1.0f), 0x3f80);
    assert_int_equal(md_bf16_from_f32(md_f32_from_bits(0x3f808000u)), 0x3f80); // tie, stays even
    assert_int_equal(md_bf16_from_f32(md_f32_from_bits(0x3f818000u)), 0x3f82); // tie, goes up to even
    assert_int_equal(md_bf16_from_f32(md_f32_from_bits(0x3f808001u)), 0x3f81);
    assert_int_equal(md_bf16_from_f32(3.4e38f), 0x7f80); // overflows to infinity
    assert_true(isnan(md_bf16_to_f32(md_bf16_from_f32(NAN))));
}

static void f16_converts_exactly(void **state) {
    (void)state;
    assert_true(md_f16_to_f32(0x3c00) == 1.0f);
    assert_true(md_f16_to_f32(0x0001) == 0x1p-24f); // smallest subnormal
    assert_true(md_f16_to_f32(0x03ff) == 0x1.ff8p-15f);
    assert_true(md_f16_to_f32(0xfbff) == -65504.0f);
    assert_true(isinf(md_f16_to_f32(0x7c00)));
}

static void checked_arithmetic_reports_overflow(void **state) {
    (void)state;
    uint64_t out;
    assert_true(md_mul_overflow((uint64_t)1 << 42, ((uint64_t)1 << 42) + 1, &out));
    assert_false(md_mul_overflow(6, 7, &out));
    assert_int_equal(out, 42);
    assert_true(md_add_overflow(UINT64_MAX, 1, &out));
    assert_int_equal(md_round_up(65, 64), 128);
}

static void buffer_keeps_its_maximum(void **state) {
    (void)state;
    md_buf buf;
    md_buf_init(&buf, 5);
    assert_int_equal(md_buf_puts(&buf, "abc"), MD_OK);
    assert_int_equal(md_buf_puts(&buf, "def"), MD_E_CONTEXT);
    assert_true(buf.failed);
    assert_string_equal(md_buf_str(&buf), "abc");
    assert_int_equal(md_buf_printf(&buf, "%d", 12), MD_OK);
    assert_string_equal(md_buf_str(&buf), "abc12");
    md_buf_free(&buf);
}

static void arena_memory_is_zeroed_and_bounded(void **state) {
    (void)state;
    md_arena arena = {0};
    unsigned char *p = md_arena_alloc(&arena, 100000, 1);
    assert_non_null(p);
    assert_int_equal(p[0] | p[99999], 0);
    assert_null(md_arena_alloc(&arena, SIZE_MAX, 2));
    md_arena_free(&arena);
}

static void json_names_the_key(void **state) {
    (void)state;
    json_t *value;
    md_error err;
    const char *text = "{\"a\": 1, \"b\": \"x\", \"c\": 4096.0}";
    assert_int_equal(md_json_parse(text, strlen(text), false, "t", &value, &err), MD_OK);
    int64_t n = -1;
    assert_int_equal(md_json_get_int(value, "a", 0, 9, &n, "t", &err), MD_OK);
    assert_int_equal(n, 1);
    assert_int_equal(md_json_get_int(value, "b", 0, 9, &n, "t", &err), MD_E_FORMAT);
    assert_non_null(strstr(err.message, "\"b\" is a string"));
    assert_int_equal(md_json_get_int(value, "c", 0, 9, &n, "t", &err), MD_E_FORMAT);
    assert_int_equal(md_json_get_int(value, "absent", 0, 9, &n, "t", &err), MD_OK);
    assert_int_equal(n, 1);
    json_decref(value);
    assert_int_equal(md_json_parse("{\"a\":1,\"a\":2}", 13, false, "t", &value, &err), MD_E_FORMAT);
}

// Expected texts by hand. 0xe2 0x82 0xac is the euro sign; the messages are cut at 511 bytes.
static void messages_are_text(void **state) {
    (void)state;
    md_error err;
    md_fail(&err, MD_E_FORMAT, "\"%.2s\" \xc3\xa9", "\xe2\x82\xac");
    assert_string_equal(err.message, "\"?\" \xc3\xa9");
    md_fail(&err, MD_E_FORMAT, "a\x1b[31m\xff\xed\xa0\x80z\n\xc0\xaf\xf4\x8f\xbf\xbf\xf4\x90\x80\x80\x7f");
    assert_string_equal(err.message, "a?[31m??z\n?\xf4\x8f\xbf\xbf??");
    md_fail(&err, MD_E_FORMAT,
            "\xc2\x9b"
            "2J\xc2\xa0");
    assert_string_equal(err.message, "?2J\xc2\xa0");
    for (int before = 508; before <= 511; before++) {
        md_fail(&err, MD_E_FORMAT, "%*s\xe2\x82\xac", before, "");
        assert_int_equal(strlen(err.message), before < 511 ? before + (before == 508 ? 3 : 1) : 511);
        assert_int_equal(err.message[510], before == 508 ? '\xac' : before == 510 ? '?' : before == 509 ? 0 : ' ');
    }
    md_fail(&err, MD_E_FORMAT, "\xe2\x82\xac");
    md_fail_context(&err, MD_E_FORMAT, "%*s\xe2\x82\xac", 254, "");
    assert_string_equal(err.message + 254, "?: \xe2\x82\xac");
}

// Expected offsets by hand, from the Unicode standard's table 3-7 of well-formed sequences.
static void text_that_is_no_utf8_is_located(void **state) {
    (void)state;
    static const struct {
        const char *text, *says; // says NULL: it is UTF-8
    } cases[] = {
        {"", NULL},
        {"plain, caf\xc3\xa9, \xe2\x82\xac, \xf4\x8f\xbf\xbf", NULL},
        {"caf\xe9 noir", "it: found 0xE9 at byte offset 3, expected UTF-8"},
        {"eight by\x80", "it: found 0x80 at byte offset 8, expected UTF-8"},
        {"\xed\xa0\x80", "it: found 0xED at byte offset 0, expected UTF-8"},
        {"ab\xe2\x82",
         "it: found 0xE2 at byte offset 2, where the text ends in the middle of a character, expected UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        md_error err = {0};
        md_status status = md_utf8_check("it", cases[i].text, strlen(cases[i].text), MD_E_USAGE, &err);
        assert_int_equal(status, cases[i].says ? MD_E_USAGE : MD_OK);
        assert_string_equal(err.message, cases[i].says ? cases[i].says : "");
    }
    assert_int_equal(md_utf8_check("it", "a\0\xff", 3, MD_E_FORMAT, NULL), MD_E_FORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(f16_converts_exactly),
        cmocka_unit_test(checked_arithmetic_reports_overflow),
        cmocka_unit_test(buffer_keeps_its_maximum),
        cmocka_unit_test(arena_memory_is_zeroed_and_bounded),
        cmocka_unit_test(json_names_the_key),
        cmocka_unit_test(messages_are_text),
        cmocka_unit_test(text_that_is_no_utf8_is_located),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
