// The bytes of shared memory that the host counts (src/backend/cuda/shared.c) against the compiler's own sum: with
// exactly as many bytes kernels/sizes.cuh compiles, with one less its assertion stops it. Skipped where NVRTC is
// missing.
#include "md_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/compile.h"
#include "backend/cuda/dl.h"
#include "backend/cuda/emit.h"
#include "model_maker.h"

static md_error err;

static bool have_nvrtc(void) {
    const md_nvrtc *nvrtc;
    if (md_nvrtc_get(&nvrtc, &err) == MD_OK) return true;
    print_message("skipped: %s\n", err.message);
    return false;
}

typedef struct opened {
    md_snapshot *snapshot;
    md_plan *plan;
    md_cuda_shape *shape;
} opened;

static opened open_shape(const char *dir) {
    opened o;
    if (md_snapshot_open(dir, &o.snapshot, &err) != MD_OK || md_plan_build(o.snapshot, &o.plan, &err) != MD_OK ||
        md_cuda_shape_build(o.plan, &o.shape, &err) != MD_OK)
        fail_msg("%s", err.message);
    return o;
}

static void close_shape(opened *o) {
    md_cuda_shape_free(o->shape);
    md_plan_free(o->plan);
    md_snapshot_close(o->snapshot);
}

static md_cuda_target target_of(const char *arch) {
    md_cuda_target target;
    if (md_cuda_target_named(arch, &target, &err) != MD_OK) fail_msg("%s", err.message);
    return target;
}

// The source with another value in the place of a literal's; frees what it is given.
static char *with_literal(char *source, const char *name, uint32_t value) {
    char define[48];
    const int n = snprintf(define, sizeof define, "#define %s ", name);
    char *at = strstr(source, define), *text = malloc(strlen(source) + 32);
    assert_non_null(at);
    const char *rest = at + strcspn(at, "\n");
    sprintf(text, "%.*s%uu%s", (int)(at + n - source), source, value, rest);
    free(source);
    return text;
}

// Literals and sizes of the source that is made for a target with `made_for` bytes, as if it had `bytes`: whether NVRTC
// takes them.
static bool compiles(const opened *o, md_cuda_target target, const md_cuda_emit_options *options, uint32_t made_for,
                     uint32_t bytes) {
    md_buf buf;
    md_cubin cubin;
    target.shared_bytes = made_for;
    md_buf_init(&buf, 8 << 20);
    if (md_cuda_emit(o->shape, &target, options, &buf, &err) != MD_OK) fail_msg("%s", err.message);
    char *source = md_buf_take(&buf), *end = strstr(source, "// ==== sizes.cuh ====");
    assert_non_null(end);
    end = strstr(end + 8, "// ==== ");
    assert_non_null(end);
    *end = 0;
    source = with_literal(source, "SHARED_BYTES", bytes);
    source = with_literal(source, "SEGMENT_BYTES", md_cuda_segment_bytes(bytes));
    const md_status status = md_cuda_compile(source, target.arch, &cubin, &err);
    if (status == MD_OK)
        md_cubin_free(&cubin);
    else if (!strstr(err.message, "the work area does not fit shared memory") &&
             !strstr(err.message, "no room for the ring"))
        fail_msg("%s", err.message);
    free(source);
    return status == MD_OK;
}

static md_status emit_status(const opened *o, md_cuda_target target, const md_cuda_emit_options *options,
                             uint32_t bytes) {
    md_buf buf;
    target.shared_bytes = bytes;
    md_buf_init(&buf, 8 << 20);
    const md_status status = md_cuda_emit(o->shape, &target, options, &buf, &err);
    md_buf_free(&buf);
    return status;
}

// To the byte. What segments and partial sums take goes by the target's bytes, in two steps: where `need` lies on the
// other one the sum is another, and nothing is compared.
static uint32_t check_sum(const opened *o, const char *arch, md_cuda_emit_options options) {
    const md_cuda_target target = target_of(arch);
    const uint32_t need = (uint32_t)md_cuda_shared_need(o->shape, &target, &options), step = 163840;
    if ((need >= step) != (target.shared_bytes >= step) || (need - 1 >= step) != (need >= step)) return 0;
    if (!compiles(o, target, &options, need, need))
        fail_msg("%s, %u columns: %u bytes are too few", arch, options.columns, need);
    if (compiles(o, target, &options, need, need - 1))
        fail_msg("%s, %u columns: %u bytes are more than it needs", arch, options.columns, need);
    assert_int_equal(emit_status(o, target, &options, need - 1), MD_E_UNSUPPORTED);
    return 1;
}

static void check_model(const char *dir, uint32_t least) {
    static const char *const archs[] = {"sm_80", "sm_89", "sm_90a", "sm_120"};
    opened o = open_shape(dir);
    uint32_t compared = 0;
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        for (uint32_t columns = 1; columns <= 8; columns *= 2)
            compared += check_sum(&o, archs[a], (md_cuda_emit_options){.columns = columns});
        compared += check_sum(&o, archs[a], (md_cuda_emit_options){.columns = 1, .account = true});
        compared += check_sum(&o, archs[a], (md_cuda_emit_options){.prefill = true});
    }
    print_message("%s: %u sums compared\n", dir, compared);
    assert_true(compared >= least);
    close_shape(&o);
}

static void check_made(mm_shape shape, uint32_t least) {
    char *dir = mm_make(&shape, 1);
    check_model(dir, least);
    mm_remove(dir);
}

static void every_sum_is_the_compilers(void **state) {
    (void)state;
    if (!have_nvrtc()) skip();
    check_model("models/fairytales", 12);
    mm_shape shape = MM_SHAPE; // MiniCPM5-1B's widths
    shape.hidden = 1536, shape.ffn = 4608, shape.q_heads = 16, shape.head_dim = 128;
    shape.quant = "\"model.layers.0.mlp.up_proj\": {\"bits\": 8, \"group_size\": 64}";
    check_made(shape, 6);
    shape = MM_SHAPE; // two sets of scales in fp32 a block, biases, a head of f16 weights, rows that end inside a block
    shape.hidden = 96, shape.ffn = 160, shape.head_dim = 48, shape.vocab = 333, shape.bits = 3, shape.group = 32;
    shape.quant = "\"lm_head\": false";
    shape.extra =
        "\"attention_bias\": true, \"mlp_bias\": true, \"_synth\": {\"scales\": \"F16\", \"weights\": \"F16\"}";
    check_made(shape, 12);
    shape = MM_SHAPE; // attention decides: many query heads a key, long heads
    shape.q_heads = 16, shape.kv_heads = 1, shape.head_dim = 256, shape.layers = 1;
    check_made(shape, 1);
    shape = MM_SHAPE; // a merge of many blocks; long rows of 8 bits
    shape.hidden = 64, shape.ffn = 14336, shape.bits = 8, shape.context = 262144, shape.layers = 1;
    check_made(shape, 6);
}

// For each width of the FFN what the emitter says at once is what the compiler says in the end.
static void a_wide_ffn_is_refused_as_the_compiler_would(void **state) {
    (void)state;
    if (!have_nvrtc()) skip();
    static const char *const archs[] = {"sm_86", "sm_90a", "sm_120"};
    uint32_t refused = 0, taken = 0;
    for (unsigned ffn = 8192; ffn <= 65536; ffn += 8192) {
        mm_shape shape = MM_SHAPE;
        shape.hidden = 64, shape.ffn = ffn, shape.layers = 1;
        shape.quant = "\"lm_head\": false"; // inputs as bf16 too
        char *dir = mm_make(&shape, 1), width[64];
        snprintf(width, sizeof width, "intermediate_size %u, ", ffn);
        opened o = open_shape(dir);
        for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
            const md_cuda_target target = target_of(archs[a]);
            const md_cuda_emit_options options = {.columns = 1};
            const bool fits = emit_status(&o, target, &options, target.shared_bytes) == MD_OK;
            if (!fits) {
                char limit[64];
                snprintf(limit, sizeof limit, "bytes of shared memory, %s has %u", archs[a], target.shared_bytes);
                if (err.code != MD_E_UNSUPPORTED || !strstr(err.message, width) || !strstr(err.message, limit))
                    fail_msg("%s", err.message);
            }
            const uint32_t roomy = fits ? target.shared_bytes : target.shared_bytes + (1u << 20);
            assert_int_equal(compiles(&o, target, &options, roomy, target.shared_bytes), fits);
            fits ? taken++ : refused++;
        }
        close_shape(&o);
        mm_remove(dir);
    }
    assert_true(refused > 2 && taken > 2);
}

// The widest step: the next one does not fit.
static void the_widest_step_fits_and_no_wider_does(void **state) {
    (void)state;
    static const char *const archs[] = {"sm_80", "sm_86", "sm_90a", "sm_120"};
    mm_shape shape = MM_SHAPE;
    shape.hidden = 1536, shape.ffn = 8192, shape.q_heads = 16, shape.head_dim = 128;
    char *dir = mm_make(&shape, 1);
    opened o = open_shape(dir);
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        const md_cuda_target target = target_of(archs[a]);
        const uint32_t columns = md_cuda_columns(o.shape, &target, false);
        print_message("%s: %u columns\n", archs[a], columns);
        const md_cuda_emit_options fits = {.columns = columns}, wider = {.columns = 2 * columns};
        assert_int_equal(emit_status(&o, target, &fits, target.shared_bytes), MD_OK);
        if (columns < MD_CUDA_COLUMNS)
            assert_int_equal(emit_status(&o, target, &wider, target.shared_bytes), MD_E_UNSUPPORTED);
    }
    close_shape(&o);
    mm_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_sum_is_the_compilers),
                                       cmocka_unit_test(a_wide_ffn_is_refused_as_the_compiler_would),
                                       cmocka_unit_test(the_widest_step_fits_and_no_wider_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
