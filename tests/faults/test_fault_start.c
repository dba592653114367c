// An engine that can't be started as it was asked for.
#include <string.h>

#include "faults/faults.h"
#include "md_test.h"
#include "megadecode.h"

// Two of the seven threads can be made: the message has both numbers and the system's reason, and nothing stays.
static void test_too_few_threads(void **state) {
    (void)state;
    md_model *model = NULL;
    md_error err = {0};
    fault_set(FAULT_THREAD, 3, 3);
    const md_status status =
        md_model_open("models/fairytales", &(md_model_options){.device = "cpu", .threads = 8}, &model, &err);
    assert_int_equal(fault_clear(FAULT_THREAD), 1);
    assert_int_equal(status, MD_E_IO);
    assert_null(model);
    assert_string_equal(err.message,
                        "8 workers asked for, 2 threads made besides the caller's: Resource temporarily unavailable");
    assert_int_equal(
        md_model_open("models/fairytales", &(md_model_options){.device = "cpu", .threads = 8}, &model, &err), MD_OK);
    md_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_too_few_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
