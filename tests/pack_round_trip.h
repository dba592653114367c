// unpack(pack(w)) against the files' own bytes, for a whole plan and a number of workers.
#ifndef MD_TEST_PACK_ROUND_TRIP_H
#define MD_TEST_PACK_ROUND_TRIP_H

#include "md_test.h"

#include <stdlib.h>
#include <string.h>

#include "plan/pack.h"

static void check_matrix(const md_layout *layout, uint32_t s, uint32_t m, const uint8_t *arena) {
    const md_matrix *matrix = layout->plan->stage[s].matrix[m];
    md_error err = {0};
    const md_tensor *tensor[3] = {&matrix->weight, &matrix->scales, &matrix->biases};
    uint8_t *found[3], *expected[3];
    int parts = matrix->bits ? 3 : 1;
    for (int i = 0; i < parts; i++) {
        size_t n = (size_t)tensor[i]->rows * tensor[i]->row_bytes;
        found[i] = malloc(n);
        expected[i] = malloc(n);
        assert_non_null(found[i]);
        assert_non_null(expected[i]);
        memset(found[i], 0xa5, n);
        assert_int_equal(md_tensor_read(tensor[i], 0, tensor[i]->rows, expected[i], &err), MD_OK);
    }
    md_unpack_matrix(layout, s, m, arena, found[0], found[1], found[2]);
    for (int i = 0; i < parts; i++) {
        size_t n = (size_t)tensor[i]->rows * tensor[i]->row_bytes;
        if (memcmp(found[i], expected[i], n) != 0) fail_msg("%s differs, %u workers", tensor[i]->name, layout->workers);
        free(found[i]);
        free(expected[i]);
    }
}

static void check_round_trip(const md_plan *plan, uint32_t workers) {
    md_error err = {0};
    md_layout *layout;
    assert_int_equal(md_layout_build(plan, &md_codec_lanes, workers, &layout, &err), MD_OK);
    uint8_t *arena = aligned_alloc(4096, layout->arena_bytes);
    assert_non_null(arena);
    memset(arena, 0x5a, layout->arena_bytes);
    for (uint32_t w = 0; w < layout->workers; w++) assert_int_equal(md_pack_worker(layout, w, arena, &err), MD_OK);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        for (uint32_t m = 0; m < plan->stage[s].matrix_count; m++) check_matrix(layout, s, m, arena);
    free(arena);
    md_layout_free(layout);
}

#endif
