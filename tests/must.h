// What must succeed, or the test fails with the library's own message.
#ifndef MD_TESTS_MUST_H
#define MD_TESTS_MUST_H

#include "md_test.h"

#include "base/status.h"

static inline void must(md_status status, const md_error *err) {
    if (status != MD_OK) fail_msg("%s: %s", md_status_name(status), err->message);
}

// A call that is given &err.
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        md_error err = {0};                                                                                            \
        must((call), &err);                                                                                            \
    } while (0)

// The same, for one that must fail with a status and a message.
#define FAILS(code_, call)                                                                                             \
    do {                                                                                                               \
        md_error err = {0};                                                                                            \
        assert_int_equal((call), (code_));                                                                             \
        assert_true(err.message[0] != 0);                                                                              \
    } while (0)

#endif
