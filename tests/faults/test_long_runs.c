// Long runs: a session that is used again and again, sessions and models opened and closed. Memory and file descriptors
// stay what they were, to the block, and answers keep their bits. Seconds here; with $MEGADECODE_LONG set as long as
// docs/RELIABILITY.md says (tools/check-long).
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults/faults.h"
#include "model_maker.h"
#include "shipped.h"

enum { CONTEXT = 1024, TURN = 96 };

static uint64_t length(uint64_t here, uint64_t full) {
    const char *all = getenv("MEGADECODE_LONG");
    return all && *all ? full : here;
}

// ---- what the process holds --------------------------------------------------------------------------------------

typedef struct holding {
    long rss_kib;
    int fds;
    int64_t blocks;
} holding;

static holding look(void) {
    holding h = {.blocks = atomic_load(&faults->live)};
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2) fail_msg("no /proc/self/statm");
    fclose(file);
    h.rss_kib = resident * (sysconf(_SC_PAGESIZE) / 1024);
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) h.fds++;
    closedir(folder);
    return h;
}

// Called after each of `total` rounds: remembers what is held after 1 %, half and all of them.
typedef struct watch {
    const char *name;
    uint64_t total, done;
    holding first, half, last;
} watch;

static void round_done(watch *w) {
    w->done++;
    if (w->done == (w->total + 99) / 100) w->first = look();
    if (w->done == (w->total + 1) / 2) w->half = look();
    if (w->done == w->total) w->last = look();
}

static void assert_flat(const watch *w) {
    printf("%-34s %7llu rounds: RSS %ld, %ld, %ld KiB at 1, 50, 100 %%; %d, %d, %d fds; %lld more blocks\n", w->name,
           (unsigned long long)w->total, w->first.rss_kib, w->half.rss_kib, w->last.rss_kib, w->first.fds, w->half.fds,
           w->last.fds, (long long)(w->last.blocks - w->half.blocks));
    assert_int_equal(w->last.fds, w->half.fds);
#ifndef MD_SANITIZED // where blocks are not all counted, and freed memory is kept for a while
    assert_true(w->last.blocks == w->half.blocks);
    if (w->last.rss_kib > w->half.rss_kib + 1024) fail_msg("%s: memory grew", w->name);
#endif
}

// ---- one session -------------------------------------------------------------------------------------------------

// Tokens of a conversation without end, the same for every run.
static uint32_t said(uint64_t i) {
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)((z ^ z >> 29) % vocab);
}

// The conversation's tokens [from, to) in a new session: the same logits?
static void compare_with_new(const md_session *session, uint64_t from, const char *kv) {
    md_error err = {0};
    md_session *fresh;
    uint32_t n = md_session_position(session);
    md_session_options options = {.context = CONTEXT, .kv = kv, .kv_from_start = true};
    must(md_session_open(model, &options, &fresh, &err), &err);
    for (uint32_t i = 0; i < n; i++) assert_int_equal(md_session_tokens(session)[i], said(from + i));
    must(md_session_feed(fresh, md_session_tokens(session), n, &err), &err);
    assert_memory_equal(md_session_logits(session), md_session_logits(fresh), vocab * sizeof(float));
    md_session_close(fresh);
}

// A chat that goes on and on: turns of some tokens fed one by one; where the context is full its older half is
// forgotten, which computes the newer half again.
static void talk(const char *name, const char *kv, uint64_t tokens) {
    md_error err = {0};
    md_session *session;
    md_session_options options = {.context = CONTEXT, .kv = kv, .kv_from_start = true};
    uint32_t *window = malloc(CONTEXT * sizeof *window);
    must(md_session_open(model, &options, &session, &err), &err);
    uint64_t from = 0, computed = 0, next_look = tokens / 8;
    watch w = {.name = name, .total = tokens / TURN};
    while (w.done < w.total) {
        uint32_t have = md_session_position(session);
        if (have + TURN > CONTEXT) {
            from += have / 2;
            have -= have / 2;
            for (uint32_t i = 0; i < have; i++) window[i] = said(from + i);
            must(md_session_sync(session, window, have, NULL, &err), &err);
        }
        for (uint32_t i = 0; i < TURN; i++) {
            uint32_t token = said(from + have + i);
            must(md_session_feed(session, &token, 1, &err), &err);
        }
        computed += TURN;
        if (computed >= next_look) {
            compare_with_new(session, from, kv);
            next_look += tokens / 8;
        }
        round_done(&w);
    }
    md_session_close(session);
    free(window);
    assert_flat(&w);
}

static void test_one_session(void **state) {
    (void)state;
    talk("a session, bf16, turns of 96 tokens", NULL, length(2000, 100000));
    talk("a session, kv 8, turns of 96 tokens", "8", length(1500, 100000));
}

// ---- many --------------------------------------------------------------------------------------------------------

static void test_many_sessions(void **state) {
    (void)state;
    static const char *const kinds[] = {NULL, "8", "4"};
    md_error err = {0};
    watch w = {.name = "sessions opened and closed", .total = length(60, 1000)};
    while (w.done < w.total) {
        md_session *session[3];
        uint32_t tokens[20], token = said(w.done);
        for (uint32_t i = 0; i < 20; i++) tokens[i] = said(w.done + i);
        for (int i = 0; i < 3; i++) {
            md_session_options options = {
                .context = 256, .kv = kinds[(w.done + (uint64_t)i) % 3], .kv_from_start = i == 1};
            must(md_session_open(model, &options, &session[i], &err), &err);
            must(md_session_sync(session[i], tokens, 20, NULL, &err), &err);
        }
        md_batch_column columns[] = {{session[0], token, true}, {session[1], token, true}, {session[2], token, true}};
        must(md_batch_step(model, columns, 3, &err), &err);
        for (int i = 0; i < 3; i++) md_session_close(session[i]);
        round_done(&w);
    }
    assert_flat(&w);
}

static void test_many_answers(void **state) {
    (void)state;
    static const char *const stop[] = {"never to be seen"};
    md_error err = {0};
    md_session *session;
    must(md_session_open(model, &(md_session_options){.context = CONTEXT}, &session, &err), &err);
    watch w = {.name = "answers of 24 tokens", .total = length(60, 2000)};
    while (w.done < w.total) {
        uint32_t *ids = NULL;
        size_t n = 0;
        static const char text[] = "Once upon a time there was a fox. ";
        must(md_encode(md_model_tokenizer(model), text, sizeof text - 1, MD_ENCODE_ADD_SPECIAL, &ids, &n, &err), &err);
        md_generation_params params = {.max_tokens = 24, .ignore_eos = true, .stop = stop, .stop_count = 1};
        params.sampling = (md_sampling){.temperature = 0.9, .top_p = 0.9, .repetition_penalty = 1.1, .seed = w.done};
        params.top_logprobs = 3;
        must(md_generate(session, ids, n, &params, NULL, NULL, NULL, &err), &err);
        md_free(ids);
        round_done(&w);
    }
    md_session_close(session);
    assert_flat(&w);
}

static void test_many_models(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    char *folder = mm_make(&shape, 1);
    md_error err = {0};
    watch w = {.name = "models opened and closed", .total = length(40, 1000)};
    while (w.done < w.total) {
        const uint32_t tokens[] = {1, 2, 3};
        md_model *small;
        md_session *session;
        const char *engines[] = {"resident", "ops", "reference"};
        md_model_options options = {
            .device = "cpu", .engine = engines[w.done % 3], .threads = 1 + (uint32_t)(w.done % 4)};
        must(md_model_open(folder, &options, &small, &err), &err);
        must(md_session_open(small, NULL, &session, &err), &err);
        must(md_session_feed(session, tokens, 3, &err), &err);
        md_model_close(small); // the session keeps it
        md_session_close(session);
        round_done(&w);
    }
    mm_remove(folder);
    assert_flat(&w);
}

static int open_model(void **state) {
    (void)state;
    setvbuf(stdout, NULL, _IOLBF, 0);
    return shipped_open_with(&(md_model_options){.device = "cpu", .threads = 1});
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_session), cmocka_unit_test(test_many_sessions),
                                       cmocka_unit_test(test_many_answers), cmocka_unit_test(test_many_models)};
    return cmocka_run_group_tests(tests, open_model, shipped_close);
}
