// Encoding and decoding against Hugging Face's tokenizers: see README.md beside this file.
#include "md_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "text/detok.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

enum { MAX_IDS = 1 << 20, MAX_TEXT = 1 << 24 };

static json_t *read_json(const char *path) {
    char *text;
    size_t n;
    md_error err;
    json_t *json;
    if (md_file_read_all(path, MAX_TEXT, &text, &n, &err) != MD_OK) fail_msg("%s", err.message);
    if (md_json_parse(text, n, true, path, &json, &err) != MD_OK) fail_msg("%s", err.message);
    free(text);
    return json;
}

// The ids of a JSON array, with malloc.
static uint32_t *ids_of(const json_t *list, size_t *n) {
    *n = json_array_size(list);
    uint32_t *ids = malloc((*n + 1) * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++) ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static void check_ids(const md_tokenizer *t, const json_t *text, const json_t *want, bool special, const char *what) {
    md_error err;
    md_ids got;
    size_t n;
    uint32_t *ids = ids_of(want, &n);
    md_ids_init(&got, MAX_IDS);
    const md_encode_options options = {.add_special = special, .parse_special = true};
    const char *bytes = json_string_value(text);
    if (md_tokenizer_encode(t, bytes, json_string_length(text), &options, &got, &err) != MD_OK)
        fail_msg("%s: \"%s\": %s", what, bytes, err.message);
    bool same = got.size == n && (n == 0 || memcmp(got.data, ids, n * sizeof *ids) == 0);
    for (size_t i = 0; !same && i < got.size; i++)
        print_message("[%zu] got %u, expected %d\n", i, got.data[i], i < n ? (int)ids[i] : -1);
    if (!same) fail_msg("%s: the ids of \"%s\" differ", what, bytes);
    free(ids);
    md_ids_free(&got);
}

// Streamed pieces are whole characters and make up the same text. `runs` says that the ids may hold invalid runs of
// byte-fallback tokens, for which detok.h promises less.
static void check_stream(const md_tokenizer *t, const uint32_t *ids, size_t n, bool skip, bool runs, const md_buf *want,
                         const char *what) {
    md_error err;
    md_buf out;
    md_buf_init(&out, MAX_TEXT);
    md_detok detok;
    md_detok_init(&detok, t, skip, false);
    for (size_t i = 0; i < n; i++) {
        size_t before = out.size;
        assert_int_equal(md_detok_put(&detok, ids[i], &out, &err), MD_OK);
        size_t piece = out.size - before;
        if (piece && md_utf8_valid_prefix(out.data + before, piece) != piece) fail_msg("%s: half a character", what);
    }
    assert_int_equal(md_detok_flush(&detok, &out, &err), MD_OK);
    if (!runs && (out.size != want->size || memcmp(md_buf_str(&out), md_buf_str(want), out.size) != 0))
        fail_msg("%s: streamed \"%s\", decoded \"%s\"", what, md_buf_str(&out), md_buf_str(want));
    md_buf_free(&out);
}

static void check_text(const md_tokenizer *t, const json_t *list, const json_t *want, bool skip, bool runs,
                       const char *what) {
    md_error err;
    md_buf out;
    size_t n;
    uint32_t *ids = ids_of(list, &n);
    md_buf_init(&out, MAX_TEXT);
    if (md_tokenizer_decode(t, ids, n, skip, &out, &err) != MD_OK) fail_msg("%s: %s", what, err.message);
    if (out.size != json_string_length(want) || memcmp(md_buf_str(&out), json_string_value(want), out.size) != 0)
        fail_msg("%s: decoded \"%s\", expected \"%s\"", what, md_buf_str(&out), json_string_value(want));
    check_stream(t, ids, n, skip, runs, &out, what);
    md_buf_free(&out);
    free(ids);
}

static void check_all(const md_tokenizer *t, const json_t *golden, const char *what) {
    size_t i;
    json_t *one;
    assert_true(json_array_size(json_object_get(golden, "cases")) > 0);
    json_array_foreach(json_object_get(golden, "cases"), i, one) {
        const json_t *text = json_object_get(one, "text"), *ids = json_object_get(one, "ids");
        const json_t *special = json_object_get(one, "ids_with_special");
        check_ids(t, text, ids, false, what);
        check_ids(t, text, special, true, what);
        check_text(t, ids, json_object_get(one, "decoded"), false, false, what);
        check_text(t, special, json_object_get(one, "decoded_skip_special"), true, false, what);
    }
    json_array_foreach(json_object_get(golden, "decodes"), i, one) {
        const json_t *ids = json_object_get(one, "ids");
        check_text(t, ids, json_object_get(one, "decoded"), false, true, what);
        check_text(t, ids, json_object_get(one, "decoded_skip_special"), true, true, what);
    }
}

static void check_folder(const char *folder, const char *path) {
    if (!md_file_exists(path) || !md_dir_exists(folder)) {
        print_message("skipped: %s or %s is not here\n", folder, path);
        skip();
    }
    md_error err;
    md_tokenizer *t;
    if (md_tokenizer_open(folder, &t, &err) != MD_OK) fail_msg("%s", err.message);
    json_t *golden = read_json(path);
    check_all(t, golden, path);
    json_decref(golden);
    md_tokenizer_close(t);
}

static void fairytales(void **state) {
    (void)state;
    check_folder("models/fairytales", "tests/text/vec-fairytales.json");
}
static void fairytales_awkward_texts(void **state) {
    (void)state;
    check_folder("models/fairytales", "tests/text/probe-fairytales.json");
}
static void qwen3(void **state) {
    (void)state;
    check_folder("../shared/tokenizers/qwen3", "../shared/tokenizers/vec-qwen3.json");
}
static void mistral(void **state) {
    (void)state;
    check_folder("../shared/tokenizers/mistral-v0.1", "../shared/tokenizers/vec-mistral-v0.1.json");
}

// A base tokenizer with some members replaced, "model" merged into the base's.
static md_tokenizer *vary(const json_t *base, const json_t *set, const char *what) {
    json_t *json = json_deep_copy(base);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)set, key, value) {
        if (strcmp(key, "model") == 0) {
            json_object_update(json_object_get(json, key), value);
        } else {
            json_object_set(json, key, value);
        }
    }
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    md_error err;
    md_tokenizer *t;
    const md_tokenizer_source source = {.json = text, .json_size = strlen(text)};
    if (md_tokenizer_open_memory(&source, &t, &err) != MD_OK) fail_msg("%s: %s", what, err.message);
    free(text);
    return t;
}

static void parts_one_by_one(void **state) {
    (void)state;
    json_t *golden = read_json("tests/text/parts.json"), *part;
    size_t i;
    assert_int_equal(json_array_size(json_object_get(golden, "parts")), 53);
    json_array_foreach(json_object_get(golden, "parts"), i, part) {
        const char *what = json_string_value(json_object_get(part, "what"));
        const char *base = json_string_value(json_object_get(part, "base"));
        md_tokenizer *t =
            vary(json_object_get(json_object_get(golden, "bases"), base), json_object_get(part, "set"), what);
        check_all(t, part, what);
        md_tokenizer_close(t);
    }
    json_decref(golden);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fairytales), cmocka_unit_test(fairytales_awkward_texts), cmocka_unit_test(qwen3),
        cmocka_unit_test(mistral),    cmocka_unit_test(parts_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
