// A fuzz target is one file tests/fuzz/fuzz_NAME.c that defines this function. It is built twice over: with replay.c as
// a test that feeds it every file of tests/fuzz/corpus/NAME, and, with -DMEGADECODE_FUZZ=ON and clang, with libFuzzer.
#ifndef MD_TESTS_FUZZ_H
#define MD_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
