// Everything that threads may share, shared: one model and its tokenizer, sessions of their own, batches, caches that
// are opened, quantized, copied and closed meanwhile, models closed by one thread and kept by another's session. Each
// answer has the bits it has alone, on every CPU engine and with 1 to 8 workers. Meant for ThreadSanitizer.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "md_test.h"
#include "megadecode.h"
#include "model_maker.h"
#include "must.h"

enum { CALLERS = 3, TOKENS = 5, VOCAB = 320, CONTEXT = 160 };

static char *folder;
static uint64_t right[CALLERS]; // digests of what each caller computes

static void add(uint64_t *digest, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) *digest = (*digest ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
}

static md_model *open_model(const char *engine, uint32_t threads) {
    md_model *model;
    md_error err = {0};
    md_model_options options = {.device = "cpu", .engine = engine, .threads = threads};
    must(md_model_open(folder, &options, &model, &err), &err);
    return model;
}

static bool add_piece(void *user, const md_piece *piece) {
    add(user, piece->text, piece->size);
    add(user, &piece->next, sizeof piece->next);
    return true;
}

// cmocka's assertions may not be used here: false says that something failed.
typedef struct caller {
    md_model *model;
    md_session *hold;
    int number;
    uint64_t digest;
    md_error err;
} caller;

static md_status call(caller *c) {
    static const char *const kinds[] = {NULL, "8", "4"};
    md_error *err = &c->err;
    md_session *own = NULL, *copy = NULL;
    uint32_t *ids = NULL;
    size_t n = 0;
    char text[64];
    snprintf(text, sizeof text, "Once upon a time %d", c->number);
    md_session_options options = {.context = CONTEXT, .kv = kinds[c->number % 3], .kv_from_start = true};
    md_status status = md_encode(md_model_tokenizer(c->model), text, strlen(text), 0, &ids, &n, err);
    if (status == MD_OK) status = md_session_open(c->model, &options, &own, err);
    if (status == MD_OK) status = md_session_open(c->model, &options, &copy, err);
    if (status == MD_OK) status = md_session_sync(own, ids, n, NULL, err);
    if (status == MD_OK) status = md_session_copy(copy, own, (uint32_t)n, err);
    for (uint32_t i = 0; status == MD_OK && i < TOKENS; i++) {
        md_batch_column columns[] = {{own, (i * 7 + (uint32_t)c->number) % VOCAB, true}, {copy, i % VOCAB, true}};
        status = md_batch_step(c->model, columns, 2, err);
        if (status == MD_OK) add(&c->digest, md_session_logits(own), VOCAB * sizeof(float));
        if (status == MD_OK) add(&c->digest, md_session_logits(copy), VOCAB * sizeof(float));
    }
    md_generation_params params = {.max_tokens = TOKENS, .ignore_eos = true, .sampling = {.temperature = 1, .seed = 5}};
    if (status == MD_OK) status = md_generate(own, ids, n, &params, add_piece, &c->digest, NULL, err);
    md_session_close(copy);
    md_session_close(own);
    md_free(ids);
    return status;
}

static void *thread_main(void *user) {
    caller *c = user;
    c->err.code = call(c);
    md_session_close(c->hold); // the last one frees the model
    return NULL;
}

static void together(const char *engine, uint32_t workers) {
    md_model *model = open_model(engine, workers);
    caller callers[CALLERS];
    pthread_t threads[CALLERS];
    md_error err = {0};
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller){.model = model, .number = i};
        must(md_session_open(model, &(md_session_options){.context = 16}, &callers[i].hold, &err), &err);
    }
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &callers[i]), 0);
    md_model_close(model);
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < CALLERS; i++) {
        must(callers[i].err.code, &callers[i].err);
        if (!right[i]) right[i] = callers[i].digest;
        if (callers[i].digest != right[i]) fail_msg("%s, %u workers: caller %d has other bits", engine, workers, i);
    }
}

static void test_resident(void **state) {
    (void)state;
    for (uint32_t workers = 1; workers <= 8; workers++) together("resident", workers);
}

static void test_ops(void **state) {
    (void)state;
    for (uint32_t workers = 2; workers <= 8; workers += 3) together("ops", workers);
}

static void test_reference(void **state) {
    (void)state;
    together("reference", 1);
}

static int prepare(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    folder = mm_make(&shape, 1);
    return 0;
}

static int finish(void **state) {
    (void)state;
    mm_remove(folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_resident),
                                       cmocka_unit_test(test_ops)};
    return cmocka_run_group_tests(tests, prepare, finish);
}
