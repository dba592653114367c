// The repack of a full-size model: a synthetic snapshot of MiniCPM5-1B's shapes (0.9 GB in a temporary folder), every
// matrix byte for byte, for several numbers of workers.
#include "pack_round_trip.h"

#include <unistd.h>

#include "model_maker.h"

static void unpack_gives_the_files_bytes_back(void **state) {
    (void)state;
    char root[] = "/tmp/megadecode-full-XXXXXX", dir[64];
    assert_non_null(mkdtemp(root));
    snprintf(dir, sizeof dir, "%s/model", root);
    md_error err = {0};
    md_synth_options options = {.seed = 1};
    if (md_synth_write("tools/configs/minicpm5-1b.json", dir, &options, &err) != MD_OK) fail_msg("%s", err.message);
    md_snapshot *snapshot;
    md_plan *plan;
    assert_int_equal(md_snapshot_open(dir, &snapshot, &err), MD_OK);
    assert_int_equal(md_plan_build(snapshot, &plan, &err), MD_OK);
    // 0.694 GB a token, as published for this model's mix of bits.
    assert_in_range(md_plan_bytes_per_token(plan), 690000000, 698000000);
    static const uint32_t workers[] = {1, 2, 3, 7, 128};
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) check_round_trip(plan, workers[i]);
    md_plan_free(plan);
    md_snapshot_close(snapshot);
    mm_remove(strdup(dir)); // frees its argument
    rmdir(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(unpack_gives_the_files_bytes_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
