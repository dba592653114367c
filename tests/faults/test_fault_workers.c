// A worker that is stopped for a while: within the deadline nobody notices but by the clock; beyond it the step is void
// and said to be, and the session goes on with the same bits as if nothing had happened.
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "md_test.h"
#include "megadecode.h"

enum { PROMPT = 420, CONTEXT = 512, MAX_THREADS = 64, TRIES = 20000 };

static uint32_t prompt[PROMPT], vocab;
static float *right; // logits after the prompt

static void sleep_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

// ---- threads of the model, stopped by a signal whose handler sleeps ------------------------------------------------

static _Atomic long stop_ms;

static void stopped(int number) {
    (void)number;
    sleep_ms(atomic_load(&stop_ms));
}

static int list_threads(long out[MAX_THREADS]) {
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    int n = 0;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.' && n < MAX_THREADS) out[n++] = strtol(entry->d_name, NULL, 10);
    closedir(folder);
    return n;
}

typedef struct run {
    md_model *model;
    md_session *session;
    long worker[MAX_THREADS]; // threads that opening the model started
    int workers;
} run;

static run open_run(uint32_t threads, uint32_t deadline_ms) {
    long before[MAX_THREADS], after[MAX_THREADS];
    run r = {0};
    md_error err = {0};
    int had = list_threads(before);
    md_model_options options = {.device = "cpu", .threads = threads, .deadline_ms = deadline_ms};
    if (md_model_open("models/fairytales", &options, &r.model, &err) != MD_OK) fail_msg("%s", err.message);
    if (md_session_open(r.model, &(md_session_options){.context = CONTEXT}, &r.session, &err) != MD_OK)
        fail_msg("%s", err.message);
    int have = list_threads(after);
    for (int i = 0; i < have; i++) {
        bool old = false;
        for (int k = 0; k < had; k++) old |= before[k] == after[i];
        if (!old) r.worker[r.workers++] = after[i];
    }
    return r;
}

static void close_run(run *r) {
    md_session_close(r->session);
    md_model_close(r->model);
}

static void stop_thread(long thread, long ms) {
    atomic_store(&stop_ms, ms);
    syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
}

typedef struct blow {
    long thread, after_ms, ms;
    int times;
    atomic_bool done;
} blow;

static void *strike(void *user) {
    blow *b = user;
    for (int i = 0; i < b->times; i++) {
        sleep_ms(b->after_ms);
        stop_thread(b->thread, b->ms);
    }
    atomic_store(&b->done, true);
    return NULL;
}

// Feeds what is left of the prompt, again after each timeout. How many timeouts there were.
static int feed_all(md_session *session) {
    int timeouts = 0;
    for (int i = 0; md_session_position(session) < PROMPT; i++) {
        md_error err = {0};
        uint32_t at = md_session_position(session);
        md_status status = md_session_feed(session, prompt + at, PROMPT - at, &err);
        if (status == MD_OK) break;
        if (status != MD_E_TIMEOUT || !strstr(err.message, "worker") || i == TRIES)
            fail_msg("%s: %s", md_status_name(status), err.message);
        timeouts++;
    }
    return timeouts;
}

static void assert_right(const md_session *session) {
    assert_int_equal(md_session_position(session), PROMPT);
    assert_memory_equal(md_session_tokens(session), prompt, sizeof prompt);
    assert_non_null(md_session_logits(session));
    assert_memory_equal(md_session_logits(session), right, vocab * sizeof *right);
}

static bool long_run(void) {
    const char *all = getenv("MEGADECODE_EXHAUSTIVE");
    return all && *all;
}

// ---- tests -------------------------------------------------------------------------------------------------------

static void test_stop_within_deadline(void **state) {
    (void)state;
    run r = open_run(3, 20000);
    assert_int_equal(r.workers, 2);
    long victims[] = {r.worker[0], r.worker[1], syscall(SYS_gettid)};
    for (int i = 0; i < 3; i++) {
        md_error err = {0};
        blow b = {.thread = victims[i], .after_ms = 10, .ms = long_run() ? 5000 : 400, .times = 1};
        pthread_t striker;
        assert_int_equal(md_session_rewind(r.session, 0, &err), MD_OK);
        assert_int_equal(pthread_create(&striker, NULL, strike, &b), 0);
        assert_int_equal(feed_all(r.session), 0);
        pthread_join(striker, NULL);
        assert_right(r.session);
    }
    close_run(&r);
}

static void test_stop_beyond_deadline(void **state) {
    (void)state;
    run r = open_run(3, 100);
    for (int i = 0; i < 2; i++) {
        md_error err = {0};
        blow b = {.thread = r.worker[i], .after_ms = 10, .ms = long_run() ? 5000 : 600, .times = 1};
        pthread_t striker;
        assert_int_equal(md_session_rewind(r.session, 0, &err), MD_OK);
        assert_int_equal(pthread_create(&striker, NULL, strike, &b), 0);
        assert_true(feed_all(r.session) > 0);
        pthread_join(striker, NULL);
        assert_right(r.session);
    }
    close_run(&r);
}

// Many small stops under a deadline that is far too short for them.
static void test_tiny_deadline(void **state) {
    (void)state;
    run r = open_run(2, 1);
    blow b = {.thread = r.worker[0], .after_ms = 7, .ms = 5, .times = long_run() ? 1000 : 60};
    pthread_t striker;
    assert_int_equal(pthread_create(&striker, NULL, strike, &b), 0);
    int timeouts = 0, rounds = 0;
    do { // the stops come by the clock: there is always a step for them to hit
        md_error err = {0};
        assert_int_equal(md_session_rewind(r.session, 0, &err), MD_OK);
        timeouts += feed_all(r.session);
        assert_right(r.session);
        rounds++;
    } while (!atomic_load(&b.done));
    pthread_join(striker, NULL);
    printf("a deadline of 1 ms: %d steps timed out in %d prompts\n", timeouts, rounds);
    assert_true(timeouts > 0);
    close_run(&r);
}

// An answer that failed half way is the same when it is asked for again; a batch that failed has moved nobody.
static bool add_text(void *user, const md_piece *piece) {
    strncat(user, piece->text, 4000 - strlen(user));
    return true;
}

static int answer_until_whole(md_session *session, char text[4096]) {
    md_generation_params params = {.max_tokens = 60, .ignore_eos = true, .sampling = {.temperature = 0.8, .seed = 3}};
    for (int failures = 0;; failures++) {
        md_error err = {0};
        text[0] = 0;
        md_status status = md_generate(session, prompt, 40, &params, add_text, text, NULL, &err);
        if (status == MD_OK) return failures;
        if (status != MD_E_TIMEOUT || failures == TRIES) fail_msg("%s: %s", md_status_name(status), err.message);
    }
}

static void test_answer_again(void **state) {
    (void)state;
    static char expected[4096], found[4096];
    run calm = open_run(2, 0), r = open_run(2, 30);
    answer_until_whole(calm.session, expected);
    blow b = {.thread = r.worker[0], .after_ms = 5, .ms = 100, .times = 2};
    pthread_t striker;
    assert_int_equal(pthread_create(&striker, NULL, strike, &b), 0);
    answer_until_whole(r.session, found);
    pthread_join(striker, NULL);
    assert_string_equal(found, expected);

    md_session *other = NULL;
    md_error err = {0};
    assert_int_equal(md_session_open(r.model, &(md_session_options){.context = CONTEXT}, &other, &err), MD_OK);
    md_status status;
    do {
        uint32_t at[2] = {md_session_position(r.session), md_session_position(other)};
        md_batch_column columns[] = {{r.session, 5, true}, {other, 6, true}};
        stop_thread(r.worker[0], 150);
        status = md_batch_step(r.model, columns, 2, &err);
        bool moved = status == MD_OK;
        assert_true(status == MD_OK || status == MD_E_TIMEOUT);
        assert_int_equal(md_session_position(r.session), at[0] + moved);
        assert_int_equal(md_session_position(other), at[1] + moved);
    } while (status == MD_OK && md_session_position(other) < 50);
    assert_int_equal(status, MD_E_TIMEOUT);
    sleep_ms(200);
    md_session_close(other);
    close_run(&calm);
    close_run(&r);
}

// Closing does not wait for ever for a worker, and takes nothing from under it.
static void test_close_while_stopped(void **state) {
    (void)state;
    run r = open_run(3, 50);
    blow b = {.thread = r.worker[1], .after_ms = 10, .ms = 700, .times = 1};
    pthread_t striker;
    md_error err = {0};
    assert_int_equal(pthread_create(&striker, NULL, strike, &b), 0);
    while (md_session_feed(r.session, prompt, 40, &err) == MD_OK)
        assert_int_equal(md_session_rewind(r.session, 0, &err), MD_OK);
    assert_int_equal(err.code, MD_E_TIMEOUT);
    close_run(&r);
    pthread_join(striker, NULL);
    sleep_ms(900); // the worker comes back to its step meanwhile
}

static void *nothing(void *user) { return user; }

static int prepare(void **state) {
    (void)state;
    pthread_t first; // ThreadSanitizer starts a thread of its own beside the first
    assert_int_equal(pthread_create(&first, NULL, nothing, NULL), 0);
    pthread_join(first, NULL);
    struct sigaction action = {.sa_handler = stopped, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = (i * 2654435761u >> 8) % 4000;
    run r = open_run(1, 0);
    md_model_info info;
    md_model_get_info(r.model, &info);
    vocab = info.vocab;
    for (uint32_t i = 0; i < PROMPT; i++) prompt[i] %= vocab;
    feed_all(r.session);
    right = malloc(vocab * sizeof *right);
    memcpy(right, md_session_logits(r.session), vocab * sizeof *right);
    close_run(&r);
    return 0;
}

static int finish(void **state) {
    (void)state;
    free(right);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stop_within_deadline),
                                       cmocka_unit_test(test_stop_beyond_deadline),
                                       cmocka_unit_test(test_tiny_deadline), cmocka_unit_test(test_answer_again),
                                       cmocka_unit_test(test_close_while_stopped)};
    return cmocka_run_group_tests(tests, prepare, finish);
}
