// The shipped model, opened once for a file of tests: cmocka_run_group_tests(tests, shipped_open, shipped_close).
#ifndef MD_TESTS_SHIPPED_H
#define MD_TESTS_SHIPPED_H

#include "megadecode.h"
#include "must.h"

static const char model_dir[] = "models/fairytales";
static md_model *model;
static uint32_t vocab;

static inline int shipped_open_with(const md_model_options *options) {
    md_model_info info;
    OK(md_model_open(model_dir, options, &model, &err));
    md_model_get_info(model, &info);
    vocab = info.vocab;
    return 0;
}

static inline int shipped_open(void **state) {
    (void)state;
    return shipped_open_with(NULL);
}

static inline int shipped_close(void **state) {
    (void)state;
    md_model_close(model);
    return 0;
}

#endif
