// A scheduler without a thread or a step: it answers a job at once, on the caller's thread, with tokens of a text that
// the target gives. Linked instead of src/server/scheduler.c, so that everything before and behind the model is real.
#ifndef MD_TESTS_FUZZ_FAKE_SCHEDULER_H
#define MD_TESTS_FUZZ_FAKE_SCHEDULER_H

#include <stddef.h>

#include "server/http.h"

// The shipped model behind a server of small bounds; made by the first call.
md_app *fake_app(void);

// What the "model" says from now on: any bytes, borrowed.
void fake_answer(const char *text, size_t n);

#endif
