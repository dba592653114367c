// Memory fails while an engine chooses tokens for several requests in one call: only the one whose piece had no room
// ends, the others' tokens are what they would have been. On a driver without a GPU (tests/fakes).
#include "md_test.h"

#include <stdlib.h>
#include <string.h>

#include "fakes/fake_cuda.h"
#include "faults/faults.h"
#include "megadecode.h"
#include "model_maker.h"

enum { SEQUENCES = 3, TOKENS = 40, CONTEXT = 64, PROMPT = 4 };

#ifdef MD_SANITIZED
// What the loader keeps of libraries opened at run time: passed over by LeakSanitizer, unless faults.c stands between.
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:_dl_map_object_deps"; }
#endif

typedef struct seat {
    md_session *session;
    md_generation *generation;
    uint32_t count, ids[TOKENS];
} seat;

static md_error err;
static md_model *model;

static void ok(md_status status) {
    if (status != MD_OK) fail_msg("%s: %s", md_status_name(status), err.message);
}

static bool on_piece(void *user, const md_piece *piece) {
    seat *s = user;
    s->ids[s->count++] = piece->next;
    return true;
}

static void begin(seat *s, md_batch_turn *turn, uint32_t i) {
    const uint32_t prompt[PROMPT] = {1, 2, 3, 4 + i};
    const md_generation_params params = {.max_tokens = TOKENS, .ignore_eos = true};
    md_piece piece;
    *s = (seat){0};
    ok(md_session_open(model, &(md_session_options){.context = CONTEXT}, &s->session, &err));
    ok(md_session_feed(s->session, prompt, 1 + i, &err)); // the fake's tokens are positions + 1
    ok(md_generation_open(s->session, &params, &s->generation, &err));
    ok(md_generation_next(s->generation, &piece, &err));
    on_piece(s, &piece);
    *turn = (md_batch_turn){.generation = s->generation, .token = piece.next, .on_piece = on_piece, .user = s};
}

static void end(seat *s) {
    md_generation_close(s->generation);
    md_session_close(s->session);
}

// Goes on with the turns that still run; how many ended with an error.
static uint32_t go_on(md_batch_turn *turns, const seat *seats) {
    md_batch_turn some[SEQUENCES];
    uint32_t n = 0, failed = 0;
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        failed += turns[i].error.code != MD_OK;
        if (turns[i].error.code == MD_OK && seats[i].count < TOKENS) some[n++] = turns[i];
    }
    if (n) ok(md_batch_generate(model, some, n, TOKENS, &err));
    for (uint32_t i = 0, k = 0; i < SEQUENCES; i++)
        if (turns[i].error.code == MD_OK && seats[i].count < TOKENS) turns[i] = some[k++];
    return failed;
}

static void one_ends_the_others_go_on(void **state) {
    (void)state;
    for (uint64_t call = 1;; call++) {
        seat seats[SEQUENCES];
        md_batch_turn turns[SEQUENCES];
        uint32_t failed = 0;
        for (uint32_t i = 0; i < SEQUENCES; i++) begin(&seats[i], &turns[i], i);
        fault_set(FAULT_MEMORY, call, call);
        md_status status = md_batch_generate(model, turns, SEQUENCES, TOKENS, &err);
        bool failure = fault_clear(FAULT_MEMORY) > 0;
        ok(status); // the failure is one turn's, not the call's
        for (int i = 0; i < SEQUENCES; i++) failed = go_on(turns, seats);
        assert_int_equal(failed, failure);
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            bool fell = turns[i].error.code != MD_OK;
            if (fell) assert_int_equal(turns[i].error.code, MD_E_MEMORY);
            if (fell)
                if (!strstr(turns[i].error.message, "memory")) fail_msg("%s", turns[i].error.message);
            if (!fell) assert_int_equal(seats[i].count, TOKENS);
            for (uint32_t k = 0; k < seats[i].count; k++) assert_int_equal(seats[i].ids[k], 1 + i + k);
            end(&seats[i]);
        }
        if (failure) continue;
        assert_true(call > 3); // something was made to fail
        break;
    }
}

static int setup(void **state) {
    char *cache = mm_temp_dir();
    *state = cache;
    setenv("XDG_CACHE_HOME", cache, 1); // the fake's code is no kernel
    fake.vocab = 4096;
    ok(md_model_open("models/fairytales", &(md_model_options){.device = "cuda"}, &model, &err));
    return 0;
}

static int teardown(void **state) {
    md_model_close(model);
    mm_remove(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_ends_the_others_go_on)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
