// The environment variables of the CUDA engine, on a driver without a GPU (tests/fakes).
#include "md_test.h"

#include <stdlib.h>
#include <string.h>

#include "fakes/fake_cuda.h"
#include "megadecode.h"
#include "model_maker.h"

static md_error err;

// A variable's value that is none is refused, and the CPU does not take over in silence.
static void variables_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *name, *value, *says;
    } bad[] = {
        {"MEGADECODE_CUDA_POISON", "yes", "MEGADECODE_CUDA_POISON: found \"yes\", expected 0 or 1"},
        {"MEGADECODE_CUDA_INJECT", "2", "MEGADECODE_CUDA_INJECT: found \"2\", expected 0 or 1"},
        {"MEGADECODE_CUDA_GRAPH", "on", "MEGADECODE_CUDA_GRAPH: found \"on\", expected 0 or 1"},
        {"MEGADECODE_CUDA_TUNE", "WINDOW=3", "MEGADECODE_CUDA_TUNE: found \"WINDOW=3\", expected NAME=NUMBER,... of "},
        {"MEGADECODE_CUDA_TUNE", "UNROLL=3,unroll=4", "MEGADECODE_CUDA_TUNE: found \"unroll=4\", expected NAME=NUMBER"},
        {"MEGADECODE_CUDA_TUNE", "UNROLL", "found \"UNROLL\""},
        {"MEGADECODE_CUDA_TUNE", "UNROLL=", "found \"UNROLL=\""},
        {"MEGADECODE_CUDA_TUNE", "LOOKS SEGMENT_BYTES=5", "found \"LOOKS SEGMENT_BYTES=5\""},
        {"MEGADECODE_CUDA_TUNE", "UNROLL=3x", "found \"UNROLL=3x\""},
        {"MEGADECODE_CUDA_TUNE", "UNROLL=-3", "found \"UNROLL=-3\""},
        {"MEGADECODE_CUDA_TUNE", "UNROLL=4294967296", "found \"UNROLL=4294967296\""},
        {"MEGADECODE_CUDA_TUNE", "=3", "found \"=3\""},
        {"MEGADECODE_CUDA_TUNE", "UNROLL=3,,POLL_NS=0", "found \",POLL_NS=0\""},
        {"MEGADECODE_CUDA_TUNE", "UNROLL_ALL UNROLL=3", "found \"UNROLL_ALL UNROLL=3\""},
        {"MEGADECODE_GROUPS", "600", "groups: found 600, expected at most 512 on a GPU"},
        {"MEGADECODE_GROUPS", "0", "MEGADECODE_GROUPS: found \"0\", expected a whole number from 1 to 1024"},
    };
    md_model *model;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv(bad[i].name, bad[i].value, 1);
        assert_int_equal(md_model_open("models/fairytales", NULL, &model, &err), MD_E_USAGE);
        if (!strstr(err.message, bad[i].says)) fail_msg("%s\nexpected \"%s\"", err.message, bad[i].says);
        unsetenv(bad[i].name);
    }
    static const char *const good[][2] = {{"MEGADECODE_CUDA_POISON", "0"},
                                          {"MEGADECODE_CUDA_GRAPH", ""},
                                          {"MEGADECODE_CUDA_TUNE", ""},
                                          {"MEGADECODE_CUDA_TUNE", "UNROLL=3,WINDOW_HEAD=4,OCTETS=2"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        setenv(good[i][0], good[i][1], 1);
        if (md_model_open("models/fairytales", NULL, &model, &err) != MD_OK) fail_msg("%s", err.message);
        md_model_info info;
        md_model_get_info(model, &info);
        assert_string_equal(info.backend, "cuda");
        md_model_close(model);
        unsetenv(good[i][0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(variables_are_refused_by_name)};
    char *cache = mm_temp_dir();
    setenv("XDG_CACHE_HOME", cache, 1); // the fake's code is no kernel
    if (fake_compilations) return 1;    // and the fakes are what the engine opens
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mm_remove(cache);
    return failed;
}
