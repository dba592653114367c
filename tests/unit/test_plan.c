// The plan and the repack: stage order against the architecture, unpack(pack(w)) against the files' own bytes.
#include "pack_round_trip.h"

typedef struct fixture {
    md_snapshot *snapshot;
    md_plan *plan;
} fixture;

static int setup(void **state) {
    static fixture f;
    md_error err = {0};
    if (md_snapshot_open("models/fairytales", &f.snapshot, &err) != MD_OK ||
        md_plan_build(f.snapshot, &f.plan, &err) != MD_OK) {
        print_error("%s\n", err.message);
        return -1;
    }
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    md_plan_free(f->plan);
    md_snapshot_close(f->snapshot);
    return 0;
}

static void stages_follow_the_architecture(void **state) {
    const md_plan *plan = ((fixture *)*state)->plan;
    assert_int_equal(plan->stage_count, 6 * 7 + 2);
    assert_int_equal(plan->stage[0].kind, MD_STAGE_EMBED);
    assert_string_equal(md_stage_name(plan->stage[1].kind), "qkv");
    assert_string_equal(plan->stage[1].matrix[2]->path, "model.layers.0.self_attn.v_proj");
    assert_int_equal(plan->stage[43].kind, MD_STAGE_HEAD);
    assert_string_equal(plan->stage[42].matrix[0]->path, "model.layers.5.mlp.down_proj");
}

// By hand from CARD.md and config.json: 8.5 bits a weight at 8 bits, 4.5 at 4; one embedding row; norms in bf16.
static void bytes_per_token_are_those_of_the_files(void **state) {
    const fixture *f = *state;
    uint64_t weights = 0;
    for (uint32_t l = 0; l < 6; l++) {
        const md_layer *w = &f->snapshot->layer[l];
        const md_matrix *all[] = {&w->q, &w->k, &w->v, &w->o, &w->gate, &w->up, &w->down};
        for (int i = 0; i < 7; i++) weights += (uint64_t)all[i]->rows * all[i]->cols * (all[i]->bits * 2 + 1) / 16;
    }
    weights += 4096ull * 256 * 17 / 16 + 256 * 17 / 16 + 13 * 256 * 2;
    assert_int_equal(md_plan_bytes_per_token(f->plan), weights);
}

static void rope_tiles_hold_pairs_of_one_head(void **state) {
    (void)state;
    md_row_map map = {.rows = 2 * 64, .rope_dim = 64};
    assert_int_equal(md_row_map_tiles(&map), 8);
    assert_int_equal(md_row_map_row(&map, 5, 3), 64 + 8 + 3); // head 1, second tile
    assert_int_equal(md_row_map_row(&map, 5, 11), 64 + 8 + 3 + 32);
    map = (md_row_map){.rows = 12, .rope_dim = 12}; // half = 6: lanes 6, 7, 14, 15 are absent
    assert_int_equal(md_row_map_tiles(&map), 1);
    assert_int_equal(md_row_map_row(&map, 0, 6), MD_NO_ROW);
    assert_int_equal(md_row_map_row(&map, 0, 13), 11);
    map = (md_row_map){.rows = 20, .rope_dim = 0};
    assert_int_equal(md_row_map_tiles(&map), 2);
    assert_int_equal(md_row_map_row(&map, 1, 4), MD_NO_ROW);
}

static void check_rows_appear_once(const md_row_map *map) {
    uint8_t *seen = calloc(map->rows, 1);
    assert_non_null(seen);
    for (uint32_t t = 0; t < md_row_map_tiles(map); t++)
        for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++) {
            int32_t row = md_row_map_row(map, t, lane);
            if (row == MD_NO_ROW) continue;
            assert_in_range(row, 0, map->rows - 1);
            assert_int_equal(seen[row]++, 0);
        }
    for (uint32_t r = 0; r < map->rows; r++) assert_int_equal(seen[r], 1);
    free(seen);
}

static void every_row_lies_in_one_tile(void **state) {
    (void)state;
    static const md_row_map maps[] = {{256, 0}, {20, 0}, {1, 0}, {256, 64}, {2048, 128}, {160, 80}, {24, 12}, {8, 2}};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) check_rows_appear_once(&maps[i]);
}

static void unpack_gives_the_files_bytes_back(void **state) {
    const md_plan *plan = ((fixture *)*state)->plan;
    static const uint32_t workers[] = {1, 2, 3, 7, 128};
    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        check_round_trip(plan, workers[i]);
    }
}

// The output projection has 256 / 16 tiles, q, k and v 48: of 20 workers four have none of it, those that attend
// (worker b * 2 + h has block b of key/value head h), and of q, k and v nobody has less.
static void who_attends_is_spared(void **state) {
    enum { WORKERS = 20, IDLE = WORKERS - 16 };
    md_layout *layout;
    md_error err = {0};
    const md_plan *plan = ((fixture *)*state)->plan;
    if (md_layout_build(plan, &md_codec_lanes, WORKERS, &layout, &err) != MD_OK) fail_msg("%s", err.message);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const md_run *run = &layout->run[(size_t)s * WORKERS];
        for (uint32_t w = 0; w < WORKERS; w++) {
            if (plan->stage[s].kind == MD_STAGE_OUT) assert_int_equal(run[w].item_count, w < IDLE ? 0 : 1);
            for (uint32_t i = 0; plan->stage[s].kind == MD_STAGE_QKV && w >= IDLE && i < IDLE; i++)
                assert_true(run[i].bytes <= run[w].bytes);
        }
    }
    md_layout_free(layout);
}

static void zero_workers_are_refused(void **state) {
    md_layout *layout;
    md_error err = {0};
    const md_plan *plan = ((fixture *)*state)->plan;
    assert_int_equal(md_layout_build(plan, &md_codec_lanes, 0, &layout, &err), MD_E_USAGE);
    assert_non_null(strstr(err.message, "0 workers"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_follow_the_architecture),    cmocka_unit_test(bytes_per_token_are_those_of_the_files),
        cmocka_unit_test(rope_tiles_hold_pairs_of_one_head), cmocka_unit_test(every_row_lies_in_one_tile),
        cmocka_unit_test(unpack_gives_the_files_bytes_back), cmocka_unit_test(who_attends_is_spared),
        cmocka_unit_test(zero_workers_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
