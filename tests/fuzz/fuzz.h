// A fuzz target is one file tests/fuzz/fuzz_NAME.c that defines this function. It is built twice over: with replay.c as
// a test that feeds it every file of tests/fuzz/corpus/NAME, and, with -DMEGADECODE_FUZZ=ON and clang, with libFuzzer
// (tools/make-fuzz).
#ifndef MD_TESTS_FUZZ_H
#define MD_TESTS_FUZZ_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// A promise that no input may break.
static inline void require(int condition) {
    if (!condition) abort();
}

// An input of several parts is cut at its NULs. The part at *at, of *n bytes; *at goes on behind its NUL.
static inline const char *next_part(const char **at, const char *end, size_t *n) {
    const char *part = *at, *nul = part < end ? memchr(part, 0, (size_t)(end - part)) : NULL;
    *n = (size_t)((nul ? nul : end) - part);
    *at = nul ? nul + 1 : end;
    return part;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
