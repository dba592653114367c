// Files that fail: every read and every write in turn, short reads, a full disk, a file that shrinks while it is read
// or afterwards, a process killed in the middle of a write.
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "faults/each.h"
#include "megadecode.h"
#include "model_maker.h"

static char *folder; // a small snapshot

static char *in(const char *dir, const char *name) {
    char *path = md_path_join(dir, name);
    assert_non_null(path);
    return path;
}

// ---- reading -----------------------------------------------------------------------------------------------------

static md_status load(const char *engine, uint64_t *digest, md_error *err) {
    static const uint32_t tokens[] = {3, 1, 4, 1, 5};
    md_model *model;
    md_session *session = NULL;
    MD_TRY(md_model_open(folder, &(md_model_options){.engine = engine, .device = "cpu", .threads = 1}, &model, err));
    md_status status = md_session_open(model, &(md_session_options){.context = 32}, &session, err);
    if (status == MD_OK) status = md_session_feed(session, tokens, 5, err);
    md_model_info info;
    md_model_get_info(model, &info);
    if (status == MD_OK) each_add(digest, md_session_logits(session), info.vocab * sizeof(float));
    md_session_close(session);
    md_model_close(model);
    return status;
}

static md_status load_resident(uint64_t *digest, md_error *err) { return load("resident", digest, err); }
static md_status load_reference(uint64_t *digest, md_error *err) { return load("reference", digest, err); }

static md_status load_tokenizer(uint64_t *digest, md_error *err) { return each_tokenizer(folder, digest, err); }
static md_status inspect(uint64_t *digest, md_error *err) { return each_inspect(folder, NULL, digest, err); }

static void test_reads_fail(void **state) {
    (void)state;
    each_fails("model, resident", load_resident, FAULT_READ, MD_E_IO);
    each_fails("model, reference", load_reference, FAULT_READ, MD_E_IO);
    each_fails("tokenizer", load_tokenizer, FAULT_READ, MD_E_IO);
    each_fails("inspect", inspect, FAULT_READ, MD_E_IO);
}

// Every read gives a single byte: the same result, a little later.
static void test_reads_are_short(void **state) {
    (void)state;
    const each_run runs[] = {load_resident, load_reference, load_tokenizer, inspect};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        uint64_t right = 0;
        md_error err = {0};
        must(runs[i](&right, &err), &err);
        each_one("short reads", runs[i], FAULT_SHORT, MD_E_IO, 1, UINT64_MAX, right);
        assert_true(atomic_load(&faults->failed[FAULT_SHORT]) > 100);
    }
}

// ---- a file that shrinks -----------------------------------------------------------------------------------------

static char *copy_of_folder(void) {
    static const char *const names[] = {"config.json", "model.safetensors"};
    char *copy = mm_temp_dir();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *from = in(folder, names[i]), *bytes;
        size_t n;
        md_error err = {0};
        must(md_file_read_all(from, 64 << 20, &bytes, &n, &err), &err);
        mm_write(copy, names[i], bytes, n);
        free(from);
        free(bytes);
    }
    return copy;
}

typedef struct cut {
    char *path;
    double at; // when loading has come this far
    off_t to;
} cut;

static bool cut_at(void *user, double fraction) {
    const cut *c = user;
    if (fraction >= c->at && truncate(c->path, c->to) != 0) fail_msg("cannot truncate %s", c->path);
    return true;
}

static void test_cut_while_loading(void **state) {
    (void)state;
    const char *const engines[] = {"resident", "ops", "reference"};
    for (int e = 0; e < 3; e++) {
        for (int i = 0; i < 4; i++) {
            char *copy = copy_of_folder();
            cut c = {.path = in(copy, "model.safetensors"), .at = 0.05 + 0.2 * i, .to = i % 2 ? 0 : 5000};
            md_model_options options = {
                .engine = engines[e], .device = "cpu", .threads = 2, .progress = cut_at, .progress_user = &c};
            md_model *model = NULL;
            md_error err = {0};
            md_status status = md_model_open(copy, &options, &model, &err);
            if (status != MD_E_IO || !strstr(err.message, "model.safetensors"))
                fail_msg("%s, cut at %g: %s \"%s\"", engines[e], c.at, md_status_name(status), err.message);
            free(c.path);
            mm_remove(copy);
        }
    }
}

// What is mapped is a SIGBUS when its file shrinks: nothing of the model's folder is.
static void assert_unmapped(const char *dir) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[1024];
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (strstr(line, dir)) fail_msg("mapped: %s", line);
    fclose(maps);
}

// A loaded model reads one thing from its files: the rows of the embedding. Where they are gone a step says so, and the
// session goes on when they are back.
static void test_cut_after_loading(void **state) {
    (void)state;
    char *copy = copy_of_folder(), *path = in(copy, "model.safetensors"), *bytes;
    static const uint32_t tokens[] = {3, 1, 4, 1, 5};
    size_t n;
    md_model *model;
    md_session *session;
    md_error err = {0};
    md_model_info info;
    must(md_file_read_all(path, 64 << 20, &bytes, &n, &err), &err);
    must(md_model_open(copy, &(md_model_options){.device = "cpu", .threads = 2}, &model, &err), &err);
    must(md_session_open(model, &(md_session_options){.context = 32}, &session, &err), &err);
    md_model_get_info(model, &info);
    must(md_session_feed(session, tokens, 5, &err), &err);
    assert_unmapped(copy);
    float *right = malloc(info.vocab * sizeof *right);
    memcpy(right, md_session_logits(session), info.vocab * sizeof *right);
    must(md_session_rewind(session, 2, &err), &err);
    for (off_t size = 0; size < 6000; size += 500) {
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(md_session_feed(session, tokens + 2, 3, &err), MD_E_IO);
        assert_non_null(strstr(err.message, "model.safetensors"));
        assert_int_equal(md_session_position(session), 2);
        FILE *file = fopen(path, "r+b");
        assert_true(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
    }
    must(md_session_feed(session, tokens + 2, 3, &err), &err);
    assert_memory_equal(md_session_logits(session), right, info.vocab * sizeof *right);
    md_session_close(session);
    md_model_close(model);
    free(right);
    free(bytes);
    free(path);
    mm_remove(copy);
}

// ---- writing -----------------------------------------------------------------------------------------------------

enum { STATE = 300000 };
static char *home, *old_state, *new_state;

static bool holds(const char *path, const char *bytes) {
    char *found;
    size_t n;
    md_error err = {0};
    must(md_file_read_all(path, STATE, &found, &n, &err), &err);
    bool same = n == STATE && memcmp(found, bytes, STATE) == 0;
    free(found);
    return same;
}

static md_status replace_state(uint64_t *digest, md_error *err) {
    static char path[600];
    snprintf(path, sizeof path, "%s/state", home);
    uint64_t from = fault_pause(FAULT_MEMORY);
    mm_write(home, "state", old_state, STATE);
    fault_resume(FAULT_MEMORY, from);
    md_status status = md_file_write_atomic(path, new_state, STATE, err);
    fault_pause(FAULT_MEMORY);
    assert_true(holds(path, status == MD_OK ? new_state : old_state));
    assert_int_equal(mm_count(home), 1);
    each_add(digest, "done", 4);
    return status;
}

static void test_writes_fail(void **state) {
    (void)state;
    each_fails("replacing a file, disk full", replace_state, FAULT_WRITE, MD_E_IO);
    each_fails("replacing a file, no rename", replace_state, FAULT_RENAME, MD_E_IO);
    each_fails("replacing a file, no memory", replace_state, FAULT_MEMORY, MD_E_MEMORY);
}

// The file is the old one or the new one, whole, wherever the process dies.
static void test_killed_while_writing(void **state) {
    (void)state;
    char *path = in(home, "state");
    int killed = 0, news = 0;
    for (uint64_t k = 1;; k++) {
        mm_write(home, "state", old_state, STATE);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            fault_set(FAULT_KILL, k, k);
            _exit(md_file_write_atomic(path, new_state, STATE, NULL) == MD_OK ? 0 : 1);
        }
        int ended = 0;
        assert_int_equal(waitpid(child, &ended, 0), child);
        bool is_new = holds(path, new_state);
        assert_true(is_new || holds(path, old_state));
        news += is_new;
        if (!WIFSIGNALED(ended)) {
            assert_int_equal(WEXITSTATUS(ended), 0);
            assert_true(is_new);
            break;
        }
        killed++;
    }
    printf("killed in %d places, the new file was there after %d of the runs\n", killed, news);
    assert_true(killed >= 3);
    free(path);
}

// Writes a snapshot where files may have `limit` bytes, as on a disk that is full.
static void synth_in(rlim_t limit, bool fits) {
    char out[600];
    char *config = in(folder, "config.json"), *dir = mm_temp_dir();
    snprintf(out, sizeof out, "%s/out", dir);
    md_error err = {0};
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){limit, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    md_status status = md_synth_write(config, out, &(md_synth_options){.seed = 1}, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    if (status != (fits ? MD_OK : MD_E_IO))
        fail_msg("limit %llu: %s \"%s\"", (unsigned long long)limit, md_status_name(status), err.message);
    assert_int_equal(mm_count(dir), fits ? 1 : 0);
    if (fits) mm_remove(strdup(out));
    mm_remove(dir);
    free(config);
}

static void test_synth_on_a_full_disk(void **state) {
    (void)state;
    struct stat st;
    char *weights = in(folder, "model.safetensors");
    assert_int_equal(stat(weights, &st), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i <= 40; i++) synth_in((rlim_t)(st.st_size * i / 40), i == 40);
    synth_in((rlim_t)st.st_size - 1, false);
    signal(SIGXFSZ, SIG_DFL);
    free(weights);
}

static int prepare(void **state) {
    (void)state;
    setvbuf(stdout, NULL, _IOLBF, 0);
    mm_shape shape = MM_SHAPE;
    shape.extra = "\"attention_bias\": true";
    folder = mm_make(&shape, 1);
    home = mm_temp_dir();
    old_state = malloc(STATE);
    new_state = malloc(STATE);
    memset(old_state, 'o', STATE);
    memset(new_state, 'n', STATE);
    return 0;
}

static int finish(void **state) {
    (void)state;
    mm_remove(folder);
    mm_remove(home);
    free(old_state);
    free(new_state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_fail),          cmocka_unit_test(test_reads_are_short),
        cmocka_unit_test(test_cut_while_loading),   cmocka_unit_test(test_cut_after_loading),
        cmocka_unit_test(test_writes_fail),         cmocka_unit_test(test_killed_while_writing),
        cmocka_unit_test(test_synth_on_a_full_disk)};
    return cmocka_run_group_tests(tests, prepare, finish);
}
