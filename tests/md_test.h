// cmocka with the headers it needs before it, in the order it needs them.
#ifndef MD_TEST_H
#define MD_TEST_H

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#endif
