// The streaming detokenizer's borders: when text comes out, and what becomes of bytes that never make a character.
#include "md_test.h"

#include "text/detok.h"
#include "tokenizer_fixture.h"

// Pieces with byte fallback, as SentencePiece models have them; the decoder is Llama 2's.
static const char PIECES[] =
    "{\"added_tokens\":[{\"id\":9,\"content\":\"<end>\",\"special\":true}],"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},"
    "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<0xE2>\":0,\"<0x82>\":1,\"<0xAC>\":2,\"<0xFF>\":3,"
    "\"\xe2\x96\x81the\":4,\"x\":5,\"<0x0A>\":6},\"merges\":[]}}";

// Puts one id and expects exactly this text from it.
static void put(md_detok *detok, uint32_t id, const char *want) {
    md_buf out;
    md_error err;
    md_buf_init(&out, 100);
    assert_int_equal(md_detok_put(detok, id, &out, &err), MD_OK);
    assert_string_equal(md_buf_str(&out), want);
    md_buf_free(&out);
}

static void flush(md_detok *detok, const char *want) {
    md_buf out;
    md_error err;
    md_buf_init(&out, 100);
    assert_int_equal(md_detok_flush(detok, &out, &err), MD_OK);
    assert_string_equal(md_buf_str(&out), want);
    md_buf_free(&out);
}

static void decodes(const md_tokenizer *t, const uint32_t *ids, size_t n, const char *want) {
    md_buf out;
    md_error err;
    md_buf_init(&out, 100);
    assert_int_equal(md_tokenizer_decode(t, ids, n, false, &out, &err), MD_OK);
    assert_string_equal(md_buf_str(&out), want);
    md_buf_free(&out);
}

#define FFFD "\xef\xbf\xbd"

static void a_character_comes_out_whole(void **state) {
    (void)state;
    md_tokenizer *t = fairytales_tokenizer();
    md_detok detok;
    md_detok_init(&detok, t, true, false);
    put(&detok, 0, ""); // <s>
    put(&detok, 1495, "the");
    put(&detok, 224, " ");
    put(&detok, 176, ""); // F0
    put(&detok, 257, ""); // 9F
    put(&detok, 250, ""); // 98
    put(&detok, 226, "\xf0\x9f\x98\x80");
    put(&detok, 176, "");
    put(&detok, 257, "");
    put(&detok, 4095 + 10, ""); // no token
    put(&detok, 681, FFFD " king");
    put(&detok, 176, "");
    flush(&detok, FFFD);
    flush(&detok, "");
    decodes(t, IDS(176, 257, 681, 176), FFFD " king" FFFD);
    md_tokenizer_close(t);
}

static void special_tokens_show_when_asked(void **state) {
    (void)state;
    md_tokenizer *t = fairytales_tokenizer();
    md_detok detok;
    md_detok_init(&detok, t, false, false);
    put(&detok, 2, "<|im_start|>");
    md_tokenizer_close(t);
}

static void leading_space_goes_only_at_the_start_of_a_text(void **state) {
    (void)state;
    md_tokenizer *t = must_open(PIECES, NULL);
    md_detok detok;
    md_detok_init(&detok, t, true, false);
    put(&detok, 9, "");
    put(&detok, 4, "the");
    put(&detok, 4, " the");
    md_detok_init(&detok, t, true, true); // goes on after a prompt
    put(&detok, 4, " the");
    md_tokenizer_close(t);
}

static void runs_of_byte_tokens(void **state) {
    (void)state;
    md_tokenizer *t = must_open(PIECES, NULL);
    md_detok detok;
    md_detok_init(&detok, t, false, false);
    put(&detok, 0, "");
    put(&detok, 1, "");
    put(&detok, 2, "\xe2\x82\xac");
    put(&detok, 6, "\n");
    put(&detok, 0, "");
    put(&detok, 1, "");
    put(&detok, 5, FFFD FFFD "x"); // one for each byte, as ByteFallback has it
    put(&detok, 3, FFFD);
    flush(&detok, "");
    // In one go, a bad byte makes its whole run bad; one by one, what was right has been emitted.
    decodes(t, IDS(0, 1, 2, 3), FFFD FFFD FFFD FFFD);
    put(&detok, 0, "");
    put(&detok, 1, "");
    put(&detok, 2, "\xe2\x82\xac");
    put(&detok, 3, FFFD);
    decodes(t, IDS(0, 9, 1), FFFD "<end>" FFFD);
    md_tokenizer_close(t);
}

static void a_full_buffer_is_an_error(void **state) {
    (void)state;
    md_tokenizer *t = fairytales_tokenizer();
    md_detok detok;
    md_buf out;
    md_error err;
    md_detok_init(&detok, t, false, false);
    md_buf_init(&out, 4);
    assert_int_equal(md_detok_put(&detok, 681, &out, &err), MD_E_CONTEXT); // " king"
    md_buf_free(&out);
    md_tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_comes_out_whole),
        cmocka_unit_test(special_tokens_show_when_asked),
        cmocka_unit_test(leading_space_goes_only_at_the_start_of_a_text),
        cmocka_unit_test(runs_of_byte_tokens),
        cmocka_unit_test(a_full_buffer_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
