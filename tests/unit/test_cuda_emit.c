// The emitter and its compiler, without a GPU: the source of three models compiles for every architecture family (where
// NVRTC is present), no register of the layers' code goes to memory, and the cache of machine code survives damage.
#include "md_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/compile.h"
#include "backend/cuda/dl.h"
#include "backend/cuda/emit.h"
#include "model_maker.h"

enum { PROMPTS = 64 };          // in place of a number of columns: the launches of prompts
enum { MAX_SPILL_BYTES = 256 }; // of one kernel, but for sm_90a: what the regions outside the loops may keep in memory

static bool have_nvrtc(void) {
    const md_nvrtc *nvrtc;
    md_error err;
    if (md_nvrtc_get(&nvrtc, &err) == MD_OK) return true;
    print_message("skipped: %s\n", err.message);
    return false;
}

static char *source_of(const char *model, const char *arch, uint32_t columns) {
    md_error err = {0};
    char *source;
    if (md_emit_cuda(model, arch, columns, &source, &err) != MD_OK) fail_msg("%s: %s", model, err.message);
    return source;
}

// The most bytes spilled by md_step, or by one of the launches of prompts, from the assembler's words.
static unsigned spilled(const char *log, bool prefill) {
    const char *name = prefill ? "Function properties for md_prefill_" : "Function properties for md_step", *at = log;
    unsigned most = 0, frame, stores, found = 0;
    for (; (at = strstr(at, name)) != NULL; found++) {
        const char *text = strstr(at++, " bytes stack frame");
        while (text && text[-1] >= '0' && text[-1] <= '9') text--;
        if (!text || sscanf(text, "%u bytes stack frame, %u bytes spill stores", &frame, &stores) != 2) return ~0u;
        if (stores > most) most = stores;
    }
    return found ? most : ~0u;
}

static void compile(const char *model, const char *arch, uint32_t columns, char *source) {
    md_error err = {0};
    md_cubin cubin;
    if (md_cuda_compile(source, arch, &cubin, &err) != MD_OK) fail_msg("%s, %s: %s", model, arch, err.message);
    assert_true(cubin.size > 1000);
    assert_non_null(cubin.log);
    bool prefill = columns == PROMPTS, none = strcmp(arch, "sm_90a") == 0 && !prefill;
    unsigned spills = spilled(cubin.log, prefill);
    print_message("%s, %s, %u columns: %zu bytes, %u bytes spilled\n", model, arch, columns, cubin.size, spills);
    assert_true(spills <= (none ? 0 : MAX_SPILL_BYTES));
    md_cubin_free(&cubin);
    md_free(source);
}
static void compiles(const char *model, const char *arch, uint32_t columns) {
    compile(model, arch, columns, source_of(model, arch, columns));
}

// What only measurements ask for: the account of a token's time, and launches that are repeated in a graph.
static void switch_on(char *source, const char *off) {
    char *at = strstr(source, off);
    if (!at) fail_msg("no \"%s\" in the source", off);
    at[strlen(off) - 2] = '1';
}
static void what_measurements_add(void **state) {
    (void)state;
    if (!have_nvrtc()) skip();
    char *source = source_of("models/fairytales", "sm_90a", 1);
    switch_on(source, "#define ACCOUNT 0u");
    switch_on(source, "#define GRAPH 0u");
    compile("models/fairytales", "sm_90a", 1, source);
}

// How wide a step the engine would make there.
static uint32_t widest(const char *model, const char *arch) {
    md_error err = {0};
    md_snapshot *snapshot;
    md_plan *plan;
    md_cuda_shape *shape;
    md_cuda_target target;
    assert_int_equal(md_cuda_target_named(arch, &target, &err), MD_OK);
    assert_int_equal(md_snapshot_open(model, &snapshot, &err), MD_OK);
    assert_int_equal(md_plan_build(snapshot, &plan, &err), MD_OK);
    assert_int_equal(md_cuda_shape_build(plan, &shape, &err), MD_OK);
    uint32_t columns = md_cuda_columns(shape, &target, false);
    md_cuda_shape_free(shape);
    md_plan_free(plan);
    md_snapshot_close(snapshot);
    return columns;
}

static void the_shipped_model(void **state) {
    (void)state;
    if (!have_nvrtc()) skip();
    static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) compiles("models/fairytales", archs[i], 1);
    compiles("models/fairytales", "sm_90a", 8);
    compiles("models/fairytales", "sm_80", PROMPTS);
}

// Odd in everything: groups of 32 in a row that ends inside a block, 3 bits, f16 scales, biases, a head of its own
// type.
static void an_odd_model(void **state) {
    (void)state;
    if (!have_nvrtc()) skip();
    mm_shape shape = MM_SHAPE;
    shape.hidden = 96, shape.ffn = 160, shape.head_dim = 48, shape.vocab = 333, shape.bits = 3, shape.group = 32;
    shape.quant = "\"lm_head\": false";
    shape.extra =
        "\"attention_bias\": true, \"mlp_bias\": true, \"_synth\": {\"scales\": \"F16\", \"weights\": \"F16\"}";
    char *dir = mm_make(&shape, 1);
    compiles(dir, "sm_90a", 1);
    compiles(dir, "sm_90a", 8);
    compiles(dir, "sm_90a", PROMPTS);
    mm_remove(dir);
}

static void a_full_size_model(void **state) {
    (void)state;
    if (!have_nvrtc()) skip();
    mm_shape shape = MM_SHAPE; // MiniCPM5-1B's widths; two layers and a small vocabulary change no code
    shape.hidden = 1536, shape.ffn = 4608, shape.q_heads = 16, shape.head_dim = 128, shape.vocab = 4096;
    shape.quant = "\"model.layers.0.mlp.up_proj\": {\"bits\": 8, \"group_size\": 64}";
    char *dir = mm_make(&shape, 1);
    static const char *const archs[] = {"sm_80", "sm_89", "sm_90a", "sm_120"}; // little shared memory: narrower steps
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) compiles(dir, archs[i], widest(dir, archs[i]));
    compiles(dir, "sm_90a", 1);
    compiles(dir, "sm_90a", PROMPTS);
    compiles(dir, "sm_120", PROMPTS);
    mm_remove(dir);
}

// A warp's blocks of the down projection take 30 KB, of the 99 KB that a CTA has there: they are read in pieces.
static void a_model_of_long_rows(void **state) {
    (void)state;
    if (!have_nvrtc()) skip();
    mm_shape shape = MM_SHAPE;
    shape.hidden = 64, shape.ffn = 14336, shape.bits = 8;
    char *dir = mm_make(&shape, 1);
    compiles(dir, "sm_120", widest(dir, "sm_120"));
    mm_remove(dir);
}

static void source_names_the_model(void **state) {
    (void)state;
    char *source = source_of("models/fairytales", "sm_90a", 1);
    assert_non_null(strstr(source, "#define HIDDEN 256u"));
    assert_non_null(strstr(source, "#define LAYERS 6u"));
    assert_non_null(strstr(source, "#define STAGES 44u"));
    assert_non_null(strstr(source, "#define HAS_RING 1u"));
    md_free(source);
    source = source_of("models/fairytales", "sm_89", 1);
    assert_non_null(strstr(source, "#define HAS_RING 0u"));
    md_free(source);
}

// The names that the variable takes are those that the emitter asks for, each of them.
static void every_tunable_has_its_name(void **state) {
    (void)state;
    md_error err = {0};
    char *text, tune[64];
    size_t size, asked = 0, known = 0;
    assert_int_equal(md_cuda_tune_check("?", &err), MD_E_USAGE);
    for (const char *at = strstr(err.message, " of "); at && *at; at++) known += *at == ' ';
    assert_int_equal(md_file_read_all("src/backend/cuda/emit.c", 1 << 20, &text, &size, &err), MD_OK);
    for (const char *at = text; (at = strstr(at, "tuned(")) != NULL; at++) {
        const char *quote = at + strcspn(at, "\");"), *end = quote + 1 + strcspn(quote + 1, "\"");
        if (*quote != '"') continue;
        snprintf(tune, sizeof tune, "%.*s=1", (int)(end - quote - 1), quote + 1);
        if (md_cuda_tune_check(tune, &err) != MD_OK) fail_msg("%s", err.message);
        asked++;
    }
    assert_true(asked > 20);
    assert_int_equal(known - 1, asked); // one space stands before "of"
    free(text);
}

static void unknown_targets_are_refused(void **state) {
    (void)state;
    md_error err = {0};
    char *source;
    assert_int_equal(md_emit_cuda("models/fairytales", "sm_75", 1, &source, &err), MD_E_USAGE);
    assert_non_null(strstr(err.message, "sm_75"));
    assert_int_equal(md_emit_cuda("models/fairytales", NULL, 3, &source, &err), MD_E_USAGE);
    mm_shape shape = MM_SHAPE;
    shape.head_dim = 24, shape.group = 32;
    char *dir = mm_make(&shape, 1);
    assert_int_equal(md_emit_cuda(dir, NULL, 1, &source, &err), MD_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "head_dim"));
    mm_remove(dir);
}

static void a_spoiled_cache_is_rebuilt(void **state) {
    (void)state;
    if (!have_nvrtc()) skip();
    static const char source[] = "extern \"C\" __global__ void nothing() {}";
    char *base = mm_temp_dir(), command[1200], path[1024] = "";
    setenv("XDG_CACHE_HOME", base, 1);
    md_error err = {0};
    md_cubin first, second;
    assert_int_equal(md_cuda_compile_cached(source, "sm_90a", &first, &err), MD_OK);
    assert_int_equal(first.cached, 0);
    assert_int_equal(md_cuda_compile_cached(source, "sm_90a", &second, &err), MD_OK);
    assert_int_equal(second.cached, 1);
    assert_int_equal(second.size, first.size);
    assert_memory_equal(second.bytes, first.bytes, first.size);
    md_cubin_free(&second);
    snprintf(command, sizeof command, "ls %s/megadecode/cuda/*.cubin", base);
    FILE *list = popen(command, "r");
    assert_non_null(fgets(path, sizeof path, list));
    pclose(list);
    path[strcspn(path, "\n")] = 0;
    FILE *file = fopen(path, "r+b");
    fseek(file, 100, SEEK_SET);
    fputs("spoiled", file);
    fclose(file);
    assert_int_equal(md_cuda_compile_cached(source, "sm_90a", &second, &err), MD_OK);
    assert_int_equal(second.cached, 0);
    md_cubin_free(&second);
    assert_int_equal(md_cuda_compile_cached(source, "sm_90a", &second, &err), MD_OK);
    assert_int_equal(second.cached, 1);
    md_cubin_free(&second);
    md_cubin_free(&first);
    unlink(path);
    snprintf(path, sizeof path, "%s/megadecode/cuda", base);
    rmdir(path);
    snprintf(path, sizeof path, "%s/megadecode", base);
    rmdir(path);
    mm_remove(base);
}

static void compiler_errors_are_told(void **state) {
    (void)state;
    if (!have_nvrtc()) skip();
    md_error err = {0};
    md_cubin cubin;
    assert_int_equal(md_cuda_compile("int x = ;", "sm_90a", &cubin, &err), MD_E_INTERNAL);
    assert_non_null(strstr(err.message, "expected"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(source_names_the_model),      cmocka_unit_test(every_tunable_has_its_name),
        cmocka_unit_test(unknown_targets_are_refused), cmocka_unit_test(a_spoiled_cache_is_rebuilt),
        cmocka_unit_test(compiler_errors_are_told),    cmocka_unit_test(an_odd_model),
        cmocka_unit_test(a_full_size_model),           cmocka_unit_test(a_model_of_long_rows),
        cmocka_unit_test(what_measurements_add),       cmocka_unit_test(the_shipped_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
