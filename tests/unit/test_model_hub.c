// src/model/hub.c: a model's folder from a path or from a hub cache laid out by hand, as huggingface_hub lays it out.
#define _GNU_SOURCE
#include <ftw.h>
#include <sys/stat.h>

#include "model/snapshot.h"
#include "model_maker.h"

static char *cache; // holds hub/models--org--name/...

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int make(void **state) {
    (void)state;
    cache = mm_temp_dir();
    const char *variables[] = {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"};
    for (size_t i = 0; i < 3; i++) unsetenv(variables[i]);
    return 0;
}

static int unmake(void **state) {
    (void)state;
    nftw(cache, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(cache);
    return 0;
}

// Makes every folder of cache/`path`.
static void make_dirs(const char *path) {
    char full[1024];
    size_t n = (size_t)snprintf(full, sizeof full, "%s/%s", cache, path);
    for (size_t i = strlen(cache) + 1; i <= n; i++) {
        if (full[i] != '/' && full[i] != 0) continue;
        char kept = full[i];
        full[i] = 0;
        mkdir(full, 0755);
        full[i] = kept;
    }
}

static void write_ref(const char *repo, const char *text) {
    char dir[512], full[1024];
    snprintf(dir, sizeof dir, "hub/%s/refs", repo);
    make_dirs(dir);
    snprintf(full, sizeof full, "%s/%s", cache, dir);
    mm_write(full, "main", text, strlen(text));
}

static void expect_dir(const char *model, const char *suffix) {
    char *dir;
    md_error err = {0};
    if (md_model_dir(model, &dir, &err) != MD_OK) fail_msg("%s", err.message);
    size_t n = strlen(dir), s = strlen(suffix);
    if (n < s || strcmp(dir + n - s, suffix) != 0) fail_msg("%s, expected ...%s", dir, suffix);
    free(dir);
}

static void expect_error(const char *model, md_status status, const char *first, const char *second) {
    char *dir;
    md_error err = {0};
    assert_int_equal(md_model_dir(model, &dir, &err), status);
    assert_null(dir);
    if (!strstr(err.message, first) || !strstr(err.message, second)) fail_msg("%s", err.message);
}

static void a_folder_is_itself(void **state) {
    (void)state;
    expect_dir("models/fairytales", "models/fairytales");
    expect_error("models/fairytales/config.json", MD_E_USAGE, "is a file", "folder of an MLX snapshot");
}

static void refs_main_chooses_the_revision(void **state) {
    (void)state;
    setenv("HF_HOME", cache, 1);
    make_dirs("hub/models--org--two/snapshots/1111aaaa");
    make_dirs("hub/models--org--two/snapshots/2222bbbb");
    expect_error("org/two", MD_E_NOT_FOUND, "2 revisions and no refs/main", "models--org--two/snapshots");
    write_ref("models--org--two", "2222bbbb\n");
    expect_dir("org/two", "/hub/models--org--two/snapshots/2222bbbb");
    write_ref("models--org--two", "3333cccc");
    expect_error("org/two", MD_E_NOT_FOUND, "refs/main names revision 3333cccc", "is missing");
    const char *hostile[] = {"../../../etc", "/etc", "", "..", "a b", ".hidden"};
    for (size_t i = 0; i < 6; i++) {
        write_ref("models--org--two", hostile[i]);
        expect_error("org/two", MD_E_FORMAT, "refs/main", "does not hold the name of a revision");
    }
    make_dirs("hub/models--org--only/snapshots/1111aaaa");
    expect_dir("org/only", "/hub/models--org--only/snapshots/1111aaaa");
    make_dirs("hub/models--org--none/snapshots");
    expect_error("org/none", MD_E_NOT_FOUND, "holds no revision", "megadecode pull org/none");
    make_dirs("hub/models--org--bare");
    expect_error("org/bare", MD_E_NOT_FOUND, "snapshots is missing", "megadecode pull org/bare");
    unsetenv("HF_HOME");
}

static void the_cache_is_found_by_each_variable(void **state) {
    (void)state;
    make_dirs("hub/models--org--one/snapshots/1");
    make_dirs("huggingface/hub/models--org--one/snapshots/2");
    make_dirs(".cache/huggingface/hub/models--org--one/snapshots/3");
    make_dirs("direct/models--org--one/snapshots/4");
    char direct[600];
    snprintf(direct, sizeof direct, "%s/direct", cache);
    setenv("HOME", cache, 1);
    expect_dir("org/one", "/.cache/huggingface/hub/models--org--one/snapshots/3");
    setenv("XDG_CACHE_HOME", cache, 1);
    expect_dir("org/one", "/huggingface/hub/models--org--one/snapshots/2");
    setenv("HF_HOME", cache, 1);
    expect_dir("org/one", "/hub/models--org--one/snapshots/1");
    setenv("HF_HUB_CACHE", direct, 1);
    expect_dir("org/one", "/direct/models--org--one/snapshots/4");
    setenv("HF_HUB_CACHE", "", 1); // empty counts as absent
    expect_dir("org/one", "/hub/models--org--one/snapshots/1");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
}

static void says_where_it_looked(void **state) {
    (void)state;
    setenv("HF_HOME", cache, 1);
    expect_error("org/absent", MD_E_NOT_FOUND, "no such folder, and not in the hub cache", "hub/models--org--absent");
    expect_error("/no/such/folder", MD_E_NOT_FOUND, "/no/such/folder: no such folder", "org/name");
    const char *not_ids[] = {"", "name", "a/b/c", "../x", "a/..", "org/", "/name", "org/na me"};
    for (size_t i = 0; i < 8; i++) expect_error(not_ids[i], MD_E_NOT_FOUND, "no such folder", "not a repo id");
    unsetenv("HF_HOME");
}

static void a_repo_id_opens_as_a_snapshot(void **state) {
    (void)state;
    char link_path[600];
    char *target = realpath("models/fairytales", NULL);
    make_dirs("hub/models--org--fairytales/snapshots");
    snprintf(link_path, sizeof link_path, "%s/hub/models--org--fairytales/snapshots/abc", cache);
    assert_int_equal(symlink(target, link_path), 0);
    setenv("HF_HOME", cache, 1);
    md_snapshot *s;
    md_error err = {0};
    if (md_snapshot_open("org/fairytales", &s, &err) != MD_OK) fail_msg("%s", err.message);
    assert_int_equal(s->layers, 6);
    md_snapshot_close(s);
    unsetenv("HF_HOME");
    free(target);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_itself),
        cmocka_unit_test(refs_main_chooses_the_revision),
        cmocka_unit_test(the_cache_is_found_by_each_variable),
        cmocka_unit_test(says_where_it_looked),
        cmocka_unit_test(a_repo_id_opens_as_a_snapshot),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
