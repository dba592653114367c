// A small valid snapshot that a test spoils in one way and then expects to be refused with a message that names the
// fault.
#ifndef MD_TESTS_BAD_MODEL_H
#define MD_TESTS_BAD_MODEL_H

#include <sys/stat.h>

#include "base/json.h"
#include "model/snapshot.h"
#include "model_maker.h"

typedef struct bad_model {
    char *dir;      // of the snapshot
    json_t *config; // as written at first
    json_t *header; // of model.safetensors
    char *data;     // of model.safetensors
    size_t data_size;
} bad_model;

static inline char *bad_read(const bad_model *b, const char *name, size_t *size) {
    char *path = md_path_join(b->dir, name), *bytes;
    md_error err = {0};
    if (md_file_read_all(path, 1 << 26, &bytes, size, &err) != MD_OK) fail_msg("%s", err.message);
    free(path);
    return bytes;
}

static inline json_t *bad_parse(const char *text, size_t n) {
    json_error_t at;
    json_t *root = json_loadb(text, n, JSON_DECODE_ANY, &at);
    if (!root) fail_msg("the test's own JSON: %s: %.*s", at.text, (int)n, text);
    return root;
}

static inline bad_model bad_make(const mm_shape *shape) {
    bad_model b = {.dir = mm_make(shape, 1)};
    size_t n;
    char *text = bad_read(&b, "config.json", &n);
    b.config = bad_parse(text, n);
    free(text);
    text = bad_read(&b, "model.safetensors", &n);
    uint64_t header;
    memcpy(&header, text, 8);
    b.header = bad_parse(text + 8, header);
    b.data_size = n - 8 - header;
    b.data = malloc(b.data_size);
    memcpy(b.data, text + 8 + header, b.data_size);
    free(text);
    return b;
}

static inline void bad_free(bad_model *b) {
    json_decref(b->config);
    json_decref(b->header);
    free(b->data);
    mm_remove(b->dir);
}

// ---- the snapshot of a file of tests: cmocka_run_group_tests(tests, bad_setup, bad_teardown) ---------------------

static bad_model bad;

static inline int bad_setup(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    bad = bad_make(&shape);
    return 0;
}

static inline int bad_setup_one_layer(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    shape.layers = 1;
    bad = bad_make(&shape);
    return 0;
}

static inline int bad_teardown(void **state) {
    (void)state;
    bad_free(&bad);
    return 0;
}

// ---- spoiling it -------------------------------------------------------------------------------------------------

static inline void bad_write_json(const bad_model *b, const char *name, const json_t *root) {
    char *text = json_dumps(root, JSON_ENCODE_ANY);
    mm_write(b->dir, name, text, strlen(text));
    free(text);
}

static inline void bad_write_text(const bad_model *b, const char *name, const char *text) {
    mm_write(b->dir, name, text, strlen(text));
}

// model.safetensors from a header's text and `n` bytes of data (of `data`, or zeros).
static inline void bad_write_raw(const bad_model *b, const char *header, size_t header_size, const char *data,
                                 size_t n) {
    char *bytes = calloc(1, 8 + header_size + n);
    uint64_t size = header_size;
    memcpy(bytes, &size, 8);
    memcpy(bytes + 8, header, header_size);
    if (data && n) memcpy(bytes + 8 + header_size, data, n);
    mm_write(b->dir, "model.safetensors", bytes, 8 + header_size + n);
    free(bytes);
}

static inline void bad_write_weights(const bad_model *b, const json_t *header) {
    char *text = json_dumps(header, 0);
    bad_write_raw(b, text, strlen(text), b->data, b->data_size);
    free(text);
}

// config.json with one top-level member set to `value` (JSON text), or removed (NULL).
static inline void bad_set(const bad_model *b, const char *key, const char *value) {
    json_t *config = json_deep_copy(b->config);
    if (value)
        json_object_set_new(config, key, bad_parse(value, strlen(value)));
    else
        json_object_del(config, key);
    bad_write_json(b, "config.json", config);
    json_decref(config);
}

static inline void bad_restore_config(const bad_model *b) { bad_write_json(b, "config.json", b->config); }
static inline void bad_restore_weights(const bad_model *b) { bad_write_weights(b, b->header); }

// The snapshot must be refused with `status` and a message that holds both texts.
static inline void bad_expect(const bad_model *b, md_status status, const char *first, const char *second) {
    md_snapshot *s = NULL;
    md_error err = {0};
    md_status got = md_snapshot_open(b->dir, &s, &err);
    if (got == MD_OK) fail_msg("it was opened; expected a message with \"%s\" and \"%s\"", first, second);
    assert_null(s);
    if (got != status || err.code != got || !strstr(err.message, first) || !strstr(err.message, second))
        fail_msg("status %s, message: %s\nexpected status %s, \"%s\" and \"%s\"", md_status_name(got), err.message,
                 md_status_name(status), first, second);
}

static inline void bad_expect_good(const bad_model *b) {
    md_snapshot *s;
    md_error err = {0};
    if (md_snapshot_open(b->dir, &s, &err) != MD_OK) fail_msg("%s", err.message);
    md_snapshot_close(s);
}

#endif
