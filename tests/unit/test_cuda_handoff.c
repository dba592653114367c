// The check that no exchanged vector is overwritten while it may still be read: the plan passes, and plans whose stages
// would not wait for enough are refused, with the stages named.
#include "md_test.h"

#include <string.h>

#include "backend/cuda/shape.h"
#include "plan/plan.h"

static md_snapshot *snapshot;
static md_plan *plan;

static int open_plan(void **state) {
    (void)state;
    md_error err;
    if (md_snapshot_open("models/fairytales", &snapshot, &err) != MD_OK) return -1;
    return md_plan_build(snapshot, &plan, &err) == MD_OK ? 0 : -1;
}

static int close_plan(void **state) {
    (void)state;
    md_plan_free(plan);
    md_snapshot_close(snapshot);
    return 0;
}

enum { EMBED, QKV, SCORES, ATTN, MERGE, OUT, GATE_UP, DOWN, A_LAYER = 7 };

static void the_plan_passes(void **state) {
    (void)state;
    md_error err = {0};
    md_cuda_shape *shape;
    if (md_cuda_shape_build(plan, &shape, &err) != MD_OK) fail_msg("%s", err.message);
    md_cuda_shape_free(shape);
}

// Changes a stage's reads in every layer and expects the refusal to hold these words.
static void refused(uint32_t stage, uint32_t reads, const char *words) {
    md_error err = {0};
    uint32_t before = plan->stage[stage].reads;
    for (uint32_t s = stage; s + 1 < plan->stage_count; s += A_LAYER) plan->stage[s].reads = reads;
    assert_int_equal(md_cuda_check_handoffs(plan, &err), MD_E_INTERNAL);
    if (!strstr(err.message, words)) fail_msg("%s, expected %s", err.message, words);
    for (uint32_t s = stage; s + 1 < plan->stage_count; s += A_LAYER) plan->stage[s].reads = before;
}

static void short_waits_are_refused(void **state) {
    (void)state;
    const uint32_t x = 1u << MD_VEC_X;
    // A down projection that waits for nothing of gate and up overwrites what they read.
    refused(DOWN, x, "stage 7 (down) writes x while stage 6 (gate_up)");
    // An output projection that doesn't wait for the attention: qkv of its own layer may still read x.
    refused(OUT, x, "stage 5 (out) writes x while stage 1 (qkv)");
    // A layer whose qkv does not wait for the layer before, whose attention may still read the old q.
    refused(QKV, 0, "stage 8 (qkv) writes q while stage 2 (attn_scores)");
}

static void odd_layers_are_refused(void **state) {
    (void)state;
    md_error err = {0};
    md_stage *stage = &plan->stage[plan->stage_count - 3]; // gate_up of the last layer
    uint32_t before = stage->reads;
    stage->reads |= 1u << MD_VEC_ATTN;
    assert_int_equal(md_cuda_check_handoffs(plan, &err), MD_E_INTERNAL);
    assert_non_null(strstr(err.message, "not like that of the layer before"));
    stage->reads = before;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_passes),
        cmocka_unit_test(short_waits_are_refused),
        cmocka_unit_test(odd_layers_are_refused),
    };
    return cmocka_run_group_tests(tests, open_plan, close_plan);
}
