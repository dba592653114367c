// Sessions on the shipped model: however a timeline is cut, batched, reused or copied, it has the same bits.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "session/model.h"
#include "shipped.h"

// Some 40 tokens of a story, from the goldens' prompt on.
static const uint32_t story[] = {0,   629, 515, 262, 457, 15,  413,  300, 262,  428,  621, 643, 581, 17,
                                 409, 750, 276, 438, 341, 329, 1092, 272, 823,  415,  396, 402, 611, 17,
                                 772, 402, 15,  353, 635, 262, 492,  15,  1750, 2467, 332, 353};
enum { STORY = sizeof story / sizeof *story };

static md_session *new_session(uint32_t context, const char *kv, bool from_start) {
    md_session *session = NULL;
    md_session_options options = {.context = context, .kv = kv, .kv_from_start = from_start};
    OK(md_session_open(model, &options, &session, &err));
    return session;
}

static float *copy_logits(const md_session *session) {
    const float *logits = md_session_logits(session);
    assert_non_null(logits);
    float *copy = malloc(vocab * sizeof *copy);
    return memcpy(copy, logits, vocab * sizeof *copy);
}

static void assert_logits(const md_session *session, const float *expected) {
    assert_non_null(md_session_logits(session));
    assert_memory_equal(md_session_logits(session), expected, vocab * sizeof *expected);
}

// Logits after the first n tokens of `tokens`, computed one by one in a new session.
static float *alone(const uint32_t *tokens, size_t n) {
    md_session *session = new_session(128, NULL, false);
    for (size_t i = 0; i < n; i++) OK(md_session_feed(session, &tokens[i], 1, &err));
    float *logits = copy_logits(session);
    md_session_close(session);
    return logits;
}

// ---- cutting, batching -----------------------------------------------------------------------------------------

static void test_chunks(void **state) {
    (void)state;
    float *expected = alone(story, STORY);
    const size_t cuts[] = {2, 3, 7, 8, STORY};
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        md_session *session = new_session(128, NULL, false);
        for (size_t at = 0; at < STORY; at += cuts[c])
            OK(md_session_feed(session, story + at, STORY - at < cuts[c] ? STORY - at : cuts[c], &err));
        assert_int_equal(md_session_position(session), STORY);
        assert_memory_equal(md_session_tokens(session), story, sizeof story);
        assert_logits(session, expected);
        md_session_close(session);
    }
    free(expected);
}

typedef struct rows {
    uint32_t first, count;
    float *data;
} rows;

static bool keep_row(void *user, uint32_t position, const float *logits) {
    rows *r = user;
    assert_int_equal(position, r->first + r->count);
    memcpy(r->data + (size_t)r->count++ * vocab, logits, vocab * sizeof *logits);
    return r->count < 11;
}

static void test_feed_each(void **state) {
    (void)state;
    rows r = {.data = malloc((size_t)STORY * vocab * sizeof(float))};
    md_session *session = new_session(128, NULL, false);
    FAILS(MD_E_CANCELLED, md_session_feed_each(session, story, STORY, keep_row, &r, &err));
    assert_int_equal(r.count, 11);
    for (uint32_t i = 0; i < r.count; i += 5) {
        float *expected = alone(story, i + 1);
        assert_memory_equal(r.data + (size_t)i * vocab, expected, vocab * sizeof *expected);
        free(expected);
    }
    md_session_close(session);
    free(r.data);
}

// Sessions of several lengths step together; one joins late with two columns at once.
static void test_batch(void **state) {
    (void)state;
    md_session *a = new_session(64, NULL, false), *b = new_session(64, NULL, false), *c = new_session(64, NULL, false);
    OK(md_session_feed(a, story, 4, &err));
    OK(md_session_feed(b, story + 1, 9, &err));
    for (uint32_t i = 0; i < 6; i++) {
        md_batch_column columns[4] = {{a, story[4 + i], true}, {b, story[10 + i], i == 5}};
        uint32_t n = 2;
        if (i >= 3) {
            columns[n++] = (md_batch_column){c, story[20 + 2 * (i - 3)], false};
            columns[n++] = (md_batch_column){c, story[20 + 2 * (i - 3) + 1], true};
        }
        OK(md_batch_step(model, columns, n, &err));
        if (i < 5) assert_null(md_session_logits(b));
    }
    float *of_a = alone(story, 10), *of_b = alone(story + 1, 15), *of_c = alone(story + 20, 6);
    assert_logits(a, of_a);
    assert_logits(b, of_b);
    assert_logits(c, of_c);
    md_batch_column apart[3] = {{a, 1, false}, {b, 1, false}, {a, 1, false}}, beyond = {a, vocab, true};
    FAILS(MD_E_USAGE, md_batch_step(model, apart, 3, &err));
    FAILS(MD_E_USAGE, md_batch_step(model, &beyond, 1, &err));
    FAILS(MD_E_USAGE, md_batch_step(model, apart, 0, &err));
    assert_int_equal(md_session_position(a), 10);
    md_session_close(a);
    md_session_close(b);
    md_session_close(c);
    free(of_a);
    free(of_b);
    free(of_c);
}

// ---- prompts and reuse -----------------------------------------------------------------------------------------

static void test_sync_reuses_prefixes(void **state) {
    (void)state;
    uint32_t reused = 99, other[STORY];
    memcpy(other, story, sizeof other);
    other[20] = 77;
    float *expected = alone(story, STORY), *of_other = alone(other, STORY), *of_short = alone(story, 12);
    md_session *s = new_session(128, NULL, false);
    OK(md_session_sync(s, story, STORY, &reused, &err));
    assert_int_equal(reused, 0);
    assert_logits(s, expected);
    OK(md_session_sync(s, story, STORY, &reused, &err)); // the same again: the last token is computed again
    assert_int_equal(reused, STORY - 1);
    assert_logits(s, expected);
    OK(md_session_sync(s, other, STORY, &reused, &err));
    assert_int_equal(reused, 20);
    assert_logits(s, of_other);
    OK(md_session_sync(s, story, 12, &reused, &err)); // shorter
    assert_int_equal(reused, 11);
    assert_int_equal(md_session_position(s), 12);
    assert_logits(s, of_short);
    OK(md_session_sync(s, story, STORY, &reused, &err)); // a growing chat
    assert_int_equal(reused, 12);
    assert_logits(s, expected);
    md_session_close(s);
    free(expected);
    free(of_other);
    free(of_short);
}

static void test_advance_in_parts(void **state) {
    (void)state;
    uint32_t left = STORY, reused;
    float *expected = alone(story, STORY);
    md_session *s = new_session(128, NULL, false);
    OK(md_session_prepare(s, story, STORY, &reused, &err));
    for (uint32_t done = 0; left;) {
        assert_null(md_session_logits(s));
        OK(md_session_advance(s, 7, &left, &err));
        done = done + 7 < STORY ? done + 7 : STORY;
        assert_int_equal(left, STORY - done);
        assert_int_equal(md_session_position(s), done);
    }
    assert_logits(s, expected);
    md_session_close(s);
    free(expected);
}

static void test_rewind_and_copy(void **state) {
    (void)state;
    float *expected = alone(story, STORY), *of_20 = alone(story, 20);
    md_session *s = new_session(128, NULL, false), *t = new_session(64, NULL, false);
    OK(md_session_feed(s, story, STORY, &err));
    OK(md_session_feed(t, story + 5, 3, &err));
    OK(md_session_copy(t, s, STORY, &err));
    assert_logits(t, expected);
    OK(md_session_copy(t, s, 19, &err));
    assert_null(md_session_logits(t));
    OK(md_session_feed(t, story + 19, 1, &err));
    assert_logits(t, of_20);
    OK(md_session_rewind(s, 19, &err));
    assert_null(md_session_logits(s));
    OK(md_session_feed(s, story + 19, 1, &err));
    assert_logits(s, of_20);
    FAILS(MD_E_USAGE, md_session_rewind(s, 21, &err));
    FAILS(MD_E_CONTEXT, md_session_copy(t, s, 21, &err));
    md_session_close(s);
    md_session_close(t);
    free(expected);
    free(of_20);
}

// ---- limits ----------------------------------------------------------------------------------------------------

static void test_context_limit(void **state) {
    (void)state;
    md_session *s = new_session(10, NULL, false);
    md_error said = {0};
    assert_int_equal(md_session_feed(s, story, 11, &said), MD_E_CONTEXT);
    assert_non_null(strstr(said.message, "11"));
    assert_non_null(strstr(said.message, "10"));
    assert_int_equal(md_session_position(s), 0);
    assert_int_equal(md_session_sync(s, story, 11, NULL, &said), MD_E_CONTEXT);
    OK(md_session_feed(s, story, 10, &err));
    FAILS(MD_E_CONTEXT, md_session_feed(s, story, 1, &err));
    FAILS(MD_E_CONTEXT, md_session_skip(s, 1, &err));
    FAILS(MD_E_CONTEXT, md_batch_step(model, &(md_batch_column){s, 1, true}, 1, &err));
    float *expected = alone(story, 10);
    assert_logits(s, expected);
    free(expected);
    md_session_close(s);
    md_session *none = NULL;
    FAILS(MD_E_USAGE, md_session_open(model, &(md_session_options){.context = 4097}, &none, &err));
    assert_null(none);
}

static void test_bad_arguments(void **state) {
    (void)state;
    md_session *s = new_session(32, NULL, false), *none = NULL;
    const uint32_t beyond[] = {1, vocab};
    FAILS(MD_E_USAGE, md_session_feed(s, beyond, 2, &err));
    FAILS(MD_E_USAGE, md_session_sync(s, beyond, 2, NULL, &err));
    FAILS(MD_E_USAGE, md_session_sync(s, story, 0, NULL, &err));
    FAILS(MD_E_NOT_FOUND, md_session_open(model, &(md_session_options){.kv = "no/such/file"}, &none, &err));
    OK(md_session_skip(s, 5, &err));
    assert_int_equal(md_session_position(s), 5);
    assert_null(md_session_logits(s));
    md_session_close(s);
    md_model *bad = NULL;
    FAILS(MD_E_USAGE, md_model_open(model_dir, &(md_model_options){.engine = "warp"}, &bad, &err));
    FAILS(MD_E_USAGE, md_model_open(model_dir, &(md_model_options){.device = "cuda:x"}, &bad, &err));
    FAILS(MD_E_USAGE, md_model_open(model_dir, &(md_model_options){.device = "tpu"}, &bad, &err));
    FAILS(MD_E_USAGE,
          md_model_open(model_dir, &(md_model_options){.engine = "reference", .device = "cuda"}, &bad, &err));
    FAILS(MD_E_NOT_FOUND, md_model_open("no/such/model", NULL, &bad, &err));
    assert_null(bad);
}

// A closed model lives on under its sessions.
static void test_model_outlives_its_handle(void **state) {
    (void)state;
    md_model *own = NULL;
    md_session *s = NULL;
    OK(md_model_open(model_dir, &(md_model_options){.engine = "reference", .device = "cpu"}, &own, &err));
    OK(md_session_open(own, NULL, &s, &err));
    md_model_close(own);
    OK(md_session_feed(s, story, 3, &err));
    assert_int_equal(md_session_context(s), 4096);
    md_session_close(s);
}

// ---- quantized caches ------------------------------------------------------------------------------------------

// mlx-lm's order by hand: all but the last token in bf16, quantize, the last token.
static float *quantized_by_hand(const uint32_t *tokens, size_t n, const char *kv) {
    md_session *s = new_session(128, kv, false);
    OK(md_session_feed(s, tokens, n - 1, &err));
    OK(md_session_quantize(s, &err));
    OK(md_session_feed(s, tokens + n - 1, 1, &err));
    float *logits = copy_logits(s);
    md_session_close(s);
    return logits;
}

static void test_quantized_sync(void **state) {
    (void)state;
    const char *const specs[] = {"snapshot", "8", "4", "models/fairytales/kv_config.json"};
    float *bf16 = alone(story, STORY);
    for (size_t i = 0; i < 4; i++) {
        uint32_t reused = 99;
        float *expected = quantized_by_hand(story, STORY, specs[i]), *shorter = quantized_by_hand(story, 12, specs[i]);
        assert_memory_not_equal(expected, bf16, vocab * sizeof *bf16);
        md_session *s = new_session(128, specs[i], false);
        OK(md_session_sync(s, story, STORY, &reused, &err));
        assert_int_equal(reused, 0);
        assert_logits(s, expected);
        OK(md_session_feed(s, story, 5, &err));
        OK(md_session_sync(s, story, STORY, &reused, &err)); // the same prompt: exact, so reused
        assert_int_equal(reused, STORY - 1);
        assert_logits(s, expected);
        OK(md_session_sync(s, story, 12, &reused, &err)); // would have been quantized elsewhere: computed afresh
        assert_int_equal(reused, 0);
        assert_logits(s, shorter);
        md_session_close(s);
        free(expected);
        free(shorter);
    }
    free(bf16);
}

static void test_quantized_from_start(void **state) {
    (void)state;
    uint32_t reused = 99;
    md_session *s = new_session(128, "8", true), *t = new_session(128, "8", true);
    OK(md_session_sync(s, story, 12, &reused, &err));
    OK(md_session_sync(s, story, STORY, &reused, &err));
    assert_int_equal(reused, 12);
    for (size_t i = 0; i < STORY; i++) OK(md_session_feed(t, &story[i], 1, &err));
    float *expected = copy_logits(t);
    assert_logits(s, expected);
    OK(md_session_rewind(s, 0, &err));
    OK(md_session_feed(s, story, STORY, &err)); // still quantized from the start
    assert_logits(s, expected);
    OK(md_session_copy(s, t, 20, &err));
    OK(md_session_feed(s, story + 20, STORY - 20, &err));
    assert_logits(s, expected);
    assert_true(md_session_kv_bytes(s) > 0);
    md_session *bf16 = new_session(128, "none", false);
    FAILS(MD_E_USAGE, md_session_copy(bf16, s, 3, &err));
    md_session_close(bf16);
    md_session_close(s);
    md_session_close(t);
    free(expected);
}

// ---- threads and failures --------------------------------------------------------------------------------------

// One thread's work: its own session, a greedy answer of `n` tokens to a prompt that starts at story[first].
typedef struct worker {
    uint32_t first, n;
    uint32_t ids[24];
    md_status status;
} worker;

static bool keep_ids(void *user, const md_piece *piece) {
    worker *w = user;
    for (size_t i = 0; i < piece->token_count && w->n < 24; i++) w->ids[w->n++] = piece->tokens[i].id;
    return true;
}

static void *work(void *user) {
    worker *w = user;
    md_session *session = NULL;
    md_generation_params params = {.max_tokens = 24, .ignore_eos = true};
    w->n = 0;
    w->status = md_session_open(model, &(md_session_options){.context = 64}, &session, NULL);
    if (w->status == MD_OK) w->status = md_generate(session, story + w->first, 6, &params, keep_ids, w, NULL, NULL);
    md_session_close(session);
    return NULL;
}

// Sessions of one model on several threads at once answer as they do alone.
static void test_threads(void **state) {
    (void)state;
    enum { WORKERS = 3 };
    worker alone_[WORKERS], together[WORKERS];
    pthread_t thread[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        alone_[i].first = together[i].first = i * 7;
        work(&alone_[i]);
        assert_int_equal(alone_[i].status, MD_OK);
    }
    for (uint32_t i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&thread[i], NULL, work, &together[i]), 0);
    for (uint32_t i = 0; i < WORKERS; i++) pthread_join(thread[i], NULL);
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(together[i].status, MD_OK);
        assert_memory_equal(together[i].ids, alone_[i].ids, sizeof alone_[i].ids);
    }
}

static const md_engine_ops *real_ops;
static int steps_left; // until a step fails

static md_status failing_step(md_engine *engine, const md_column *columns, uint32_t count, md_error *err) {
    if (steps_left-- == 0) return md_fail(err, MD_E_TIMEOUT, "worker 1 waits for stage 3: expected 7, seen 6");
    return real_ops->step(engine, columns, count, err);
}

// A step that fails leaves every session where it was, and usable.
static void test_failing_step(void **state) {
    (void)state;
    float *expected = alone(story, STORY), *of_9 = alone(story, 9);
    md_session *s = new_session(64, NULL, false), *t = new_session(64, NULL, false);
    md_engine_ops failing = *model->engine->ops;
    real_ops = model->engine->ops;
    failing.step = failing_step;
    model->engine->ops = &failing;
    steps_left = 1000;
    OK(md_session_feed(s, story, 10, &err));
    steps_left = 0;
    FAILS(MD_E_TIMEOUT, md_session_feed(s, story + 10, STORY - 10, &err));
    assert_int_equal(md_session_position(s), 10);
    assert_null(md_session_logits(s));
    steps_left = 1000;
    OK(md_session_feed(s, story + 10, STORY - 10, &err));
    assert_logits(s, expected);
    OK(md_session_feed(t, story, 8, &err));
    steps_left = 0;
    md_batch_column columns[2] = {{s, 1, true}, {t, story[8], true}};
    FAILS(MD_E_TIMEOUT, md_batch_step(model, columns, 2, &err));
    assert_int_equal(md_session_position(s), STORY);
    assert_int_equal(md_session_position(t), 8);
    steps_left = 1000;
    OK(md_batch_step(model, columns, 2, &err));
    assert_logits(t, of_9);
    model->engine->ops = real_ops;
    md_session_close(s);
    md_session_close(t);
    free(expected);
    free(of_9);
}

typedef struct progress_calls {
    uint32_t count, done, stop_at; // done: of the last call
} progress_calls;

static bool count_progress(void *user, uint32_t done, uint32_t total) {
    progress_calls *calls = user;
    assert_int_equal(total, STORY);
    assert_true(done > calls->done && done <= total);
    calls->count++, calls->done = done;
    return calls->count != calls->stop_at;
}

// The reference may take seconds for a token: a prompt can be given up behind each.
static void test_cancel_on_the_reference(void **state) {
    (void)state;
    md_model *slow;
    md_session *session;
    md_result result;
    OK(md_model_open("models/fairytales", &(md_model_options){.engine = "reference"}, &slow, &err));
    OK(md_session_open(slow, &(md_session_options){.context = 64}, &session, &err));
    progress_calls calls = {.stop_at = 3};
    md_generation_params params = {.max_tokens = 1, .progress = count_progress, .progress_user = &calls};
    OK(md_generate(session, story, STORY, &params, NULL, NULL, &result, &err));
    assert_int_equal(result.finish, MD_FINISH_CANCELLED);
    assert_int_equal(calls.done, 3);
    assert_int_equal(md_session_position(session), 3);
    calls = (progress_calls){0};
    OK(md_generate(session, story, STORY, &params, NULL, NULL, &result, &err));
    assert_int_equal(result.cached_tokens, 3);
    assert_int_equal(calls.count, STORY - 3);
    assert_int_equal(calls.done, STORY);
    md_session_close(session);
    md_model_close(slow);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_feed_each),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_sync_reuses_prefixes),
        cmocka_unit_test(test_advance_in_parts),
        cmocka_unit_test(test_rewind_and_copy),
        cmocka_unit_test(test_context_limit),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_model_outlives_its_handle),
        cmocka_unit_test(test_quantized_sync),
        cmocka_unit_test(test_quantized_from_start),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_failing_step),
        cmocka_unit_test(test_cancel_on_the_reference),
    };
    return cmocka_run_group_tests(tests, shipped_open, shipped_close);
}
