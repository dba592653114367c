// Small tokenizers for tests.
#ifndef MD_TESTS_TOKENIZER_FIXTURE_H
#define MD_TESTS_TOKENIZER_FIXTURE_H

#include "md_test.h"

#include <string.h>

#include "text/tokenizer.h"

static inline md_status open_text(const char *json, const char *config, md_tokenizer **out, md_error *err) {
    const md_tokenizer_source source = {
        .json = json, .json_size = strlen(json), .config = config, .config_size = config ? strlen(config) : 0};
    return md_tokenizer_open_memory(&source, out, err);
}

static inline md_tokenizer *must_open(const char *json, const char *config) {
    md_tokenizer *t;
    md_error err;
    if (open_text(json, config, &t, &err) != MD_OK) fail_msg("%s", err.message);
    return t;
}

static inline md_tokenizer *fairytales_tokenizer(void) {
    md_tokenizer *t;
    md_error err;
    if (md_tokenizer_open("models/fairytales", &t, &err) != MD_OK) fail_msg("%s", err.message);
    return t;
}

static inline void expect_ids(const md_ids *got, const uint32_t *want, size_t n) {
    assert_int_equal(got->size, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(got->data[i], want[i]);
}

// Encodes without what the post-processor adds.
static inline void expect_encoding(const md_tokenizer *t, const char *text, size_t n, bool parse, const uint32_t *want,
                                   size_t n_want) {
    md_ids got;
    md_error err;
    md_ids_init(&got, 1 << 24);
    const md_encode_options options = {.add_special = false, .parse_special = parse};
    if (md_tokenizer_encode(t, text, n, &options, &got, &err) != MD_OK) fail_msg("%s", err.message);
    expect_ids(&got, want, n_want);
    md_ids_free(&got);
}

#define IDS(...) (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)

#endif
