// Broken weight files: each is refused before anything is allocated by its numbers, with a message of its own.
#include <fcntl.h>

#include "badfiles/bad_model.h"

static void refuses_files_too_small(void **state) {
    (void)state;
    const size_t sizes[] = {0, 3, 7, 8};
    for (size_t i = 0; i < 4; i++) {
        mm_write(bad.dir, "model.safetensors", "\2\0\0\0\0\0\0\0", sizes[i]);
        bad_expect(&bad, MD_E_FORMAT, "model.safetensors", "too small");
    }
    mm_write(bad.dir, "model.safetensors", "\0\0\0\0\0\0\0\0{}......", 16);
    bad_expect(&bad, MD_E_FORMAT, "model.safetensors", "header length is 0");
}

static void refuses_header_lengths_past_the_file(void **state) {
    (void)state;
    char file[64];
    memset(file, ' ', sizeof file);
    const uint64_t lengths[] = {UINT64_MAX, (uint64_t)1 << 63, sizeof file - 7, UINT64_MAX - 7, 100 * 1000 * 1000 + 1};
    for (size_t i = 0; i < 5; i++) {
        memcpy(file, &lengths[i], 8);
        mm_write(bad.dir, "model.safetensors", file, sizeof file);
        bad_expect(&bad, MD_E_FORMAT, "model.safetensors", "header length is ");
    }
}

static void refuses_a_header_of_101_megabytes(void **state) {
    (void)state;
    char *path = md_path_join(bad.dir, "model.safetensors");
    uint64_t length = 101 * 1000 * 1000;
    mm_write(bad.dir, "model.safetensors", (const char *)&length, 8);
    assert_int_equal(truncate(path, (off_t)length + 8), 0); // a sparse file that does have that many bytes
    bad_expect(&bad, MD_E_FORMAT, "header length is 101000000", "at most 100000000");
    free(path);
}

static void refuses_headers_that_are_not_a_json_object(void **state) {
    (void)state;
    bad_write_raw(&bad, "{\"a\xff\": 1}", 10, NULL, 0);
    bad_expect(&bad, MD_E_FORMAT, "model.safetensors", "not valid JSON");
    bad_write_raw(&bad, "[1, 2]", 6, NULL, 0);
    bad_expect(&bad, MD_E_FORMAT, "model.safetensors", "header is an array");
    bad_write_raw(&bad, "{\"a\": 1} x", 10, NULL, 0);
    bad_expect(&bad, MD_E_FORMAT, "model.safetensors", "not valid JSON");
    enum { DEEP = 100000 };
    char *deep = malloc(DEEP);
    memset(deep, '[', DEEP);
    bad_write_raw(&bad, deep, DEEP, NULL, 0);
    bad_expect(&bad, MD_E_FORMAT, "model.safetensors", "depth");
    free(deep);
}

// A file of one or two tensors, given as the header's text.
static void expect_header(const char *header, size_t data, const char *first, const char *second) {
    bad_write_raw(&bad, header, strlen(header), NULL, data);
    bad_expect(&bad, MD_E_FORMAT, first, second);
}

#define T(dtype, shape, offsets) "{\"dtype\": " dtype ", \"shape\": " shape ", \"data_offsets\": " offsets "}"

static void refuses_duplicate_names(void **state) {
    (void)state;
    expect_header("{\"a\": " T("\"F32\"", "[1]", "[0,4]") ", \"a\": " T("\"F32\"", "[1]", "[4,8]") "}", 8, "duplicate",
                  "\"a\"");
}

static void refuses_offsets_that_do_not_tile_the_data(void **state) {
    (void)state;
    const struct {
        const char *a, *b;
        size_t data;
        const char *message;
    } cases[] = {
        {"[0,4]", "[2,6]", 6, "overlaps"},
        {"[0,4]", "[0,4]", 4, "overlaps"},
        {"[0,4]", "[8,12]", 12, "a hole of 4 bytes"},
        {"[4,8]", "[8,12]", 12, "a hole of 4 bytes"},
        {"[0,4]", "[4,8]", 9, "1 bytes after the last tensor"},
        {"[0,4]", "[4,8]", 7, "the file has 7 bytes of data"},
        {"[0,4]", "[8,4]", 12, "end at 4, before they begin at 8"},
        {"[0,4]", "[4]", 8, "\"data_offsets\" is an array of 1"},
        {"[0,4]", "[4,8,12]", 12, "\"data_offsets\" is an array of 3"},
        {"[0,4]", "8", 8, "\"data_offsets\" is an integer"},
        {"[0,4]", "[-4,0]", 8, "negative -4"},
        {"[0,4]", "[4.0,8]", 8, "a number with a fraction"},
        {"[0,4]", "[1.5,5.5]", 8, "a number with a fraction"},
        {"[0,4]", "[4,1e30]", 8, "a number with a fraction"},
        {"[0,4]", "[4,\"8\"]", 8, "holds a string"},
        {"[0,4]", "[4,9223372036854775807]", 8, "the file has 8 bytes of data"},
        {"[0,4]", "[4,18446744073709551616]", 8, "too big integer"},
        {"[0,4]", "[4,12]", 12, "8 bytes of data, but its shape and dtype need 4"},
    };
    char header[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(header, sizeof header, "{\"a\": " T("\"F32\"", "[1]", "%s") ", \"b\": " T("\"F32\"", "[1]", "%s") "}",
                 cases[i].a, cases[i].b);
        expect_header(header, cases[i].data, "model.safetensors", cases[i].message);
    }
}

static void refuses_shapes_that_lie(void **state) {
    (void)state;
    const struct {
        const char *dtype, *shape, *message;
    } cases[] = {
        {"\"F32\"", "[1000,1000]", "4 bytes of data, but its shape and dtype need 4000000"},
        {"\"F32\"", "[4398046511105,4398046511104]", "overflows 64 bits"},
        {"\"F32\"", "[9223372036854775807,2]", "overflows 64 bits"},
        {"\"F32\"", "[4611686018427387904]", "overflows 64 bits"},
        {"\"F32\"", "[0]", "dimension 0 of \"shape\" is an integer below 1"},
        {"\"F32\"", "[1,-1]", "dimension 1 of \"shape\" is an integer below 1"},
        {"\"F32\"", "[1.0]", "dimension 0 of \"shape\" is a number with a fraction"},
        {"\"F32\"", "[]", "0 dimensions"},
        {"\"F32\"", "4", "\"shape\" is an integer"},
        {"\"Q4_K\"", "[1]", "unknown dtype \"Q4_K\""},
        {"7", "[1]", "\"dtype\" is an integer"},
    };
    char header[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(header, sizeof header, "{\"a.weight\": " T("%s", "%s", "[0,4]") "}", cases[i].dtype, cases[i].shape);
        expect_header(header, 4, "tensor a.weight", cases[i].message);
    }
    char *thousand = malloc(4096);
    strcpy(thousand, "{\"a.weight\": {\"dtype\": \"F32\", \"data_offsets\": [0,4], \"shape\": [1");
    for (int i = 0; i < 999; i++) strcat(thousand, ",1");
    strcat(thousand, "]}}");
    expect_header(thousand, 4, "tensor a.weight", "1000 dimensions");
    free(thousand);
    expect_header("{\"a\": {\"shape\": [1], \"data_offsets\": [0,4]}}", 4, "tensor a", "\"dtype\" is nothing");
    expect_header("{\"a\": 5}", 4, "tensor a", "its entry is an integer");
    expect_header("{\"__metadata__\": []}", 0, "__metadata__", "an array");
}

// Any one byte of the header changed, and the file cut anywhere: opened or refused with a message, never anything else.
static void survives_every_flipped_byte_and_every_cut(void **state) {
    (void)state;
    bad_restore_weights(&bad);
    bad_expect_good(&bad);
    char *path = md_path_join(bad.dir, "model.safetensors");
    size_t size;
    char *bytes = bad_read(&bad, "model.safetensors", &size);
    uint64_t header;
    memcpy(&header, bytes, 8);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    for (size_t i = 0; i < 8 + header; i++) {
        char flipped = (char)(bytes[i] ^ (1 << i % 8));
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)i), 1);
        md_snapshot *s;
        md_error err = {0};
        if (md_snapshot_open(bad.dir, &s, &err) == MD_OK)
            md_snapshot_close(s);
        else
            assert_true(err.message[0] != 0);
        assert_int_equal(pwrite(fd, &bytes[i], 1, (off_t)i), 1);
    }
    bad_expect_good(&bad);
    for (size_t cut = size; cut > 0; cut -= cut > 8 + header + 4096 ? 4096 : 37 < cut ? 37 : cut) {
        assert_int_equal(ftruncate(fd, (off_t)cut - 1), 0);
        bad_expect(&bad, MD_E_FORMAT, "model.safetensors", "");
    }
    close(fd);
    free(bytes);
    free(path);
}

static void a_file_cut_after_opening_is_an_error(void **state) {
    (void)state;
    bad_restore_weights(&bad);
    md_snapshot *s;
    assert_int_equal(md_snapshot_open(bad.dir, &s, NULL), MD_OK);
    char *path = md_path_join(bad.dir, "model.safetensors");
    assert_int_equal(truncate(path, 4096), 0);
    free(path);
    const md_tensor *last = &s->head.weight;
    char *rows = malloc((size_t)(last->rows * last->row_bytes));
    md_error err = {0};
    assert_int_equal(md_tensor_read(last, 0, last->rows, rows, &err), MD_E_IO);
    assert_non_null(strstr(err.message, "model.safetensors: file ends at byte"));
    free(rows);
    md_snapshot_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_files_too_small),
        cmocka_unit_test(refuses_header_lengths_past_the_file),
        cmocka_unit_test(refuses_a_header_of_101_megabytes),
        cmocka_unit_test(refuses_headers_that_are_not_a_json_object),
        cmocka_unit_test(refuses_duplicate_names),
        cmocka_unit_test(refuses_offsets_that_do_not_tile_the_data),
        cmocka_unit_test(refuses_shapes_that_lie),
        cmocka_unit_test(survives_every_flipped_byte_and_every_cut),
        cmocka_unit_test(a_file_cut_after_opening_is_an_error),
    };
    return cmocka_run_group_tests(tests, bad_setup_one_layer, bad_teardown);
}
