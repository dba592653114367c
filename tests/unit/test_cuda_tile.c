// The GPU tile codec: unpack is pack's exact inverse for every way of storing weights, and a tile read as the lanes of
// a warp read it (the operand layouts of mma.m16n8k32 and m16n8k16 in the PTX manual, with tile_mma.h's order of
// columns) gives the matrix.
#include "md_test.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "model/quant.h"
#include "model_maker.h"
#include "plan/tile_mma.h"

static float bf_at(const uint8_t *at) {
    uint16_t half;
    memcpy(&half, at, 2);
    return md_bf16_to_f32(half);
}

static float scale_at(const md_tile_shape *shape, const uint8_t *at, uint32_t index) {
    float wide;
    memcpy(&wide, at + 4 * index, 4);
    return shape->wide_scales ? wide : bf_at(at + 2 * index);
}

// Element e (0..7: register e / 2, half e % 2) of bf16 product j in lane `lane`, as the A operand holds it.
static float lane_value(const md_tile_shape *shape, const uint8_t *block, uint32_t lane, uint32_t j, uint32_t e) {
    float value = 0;
    for (uint32_t p = md_mma_planes(shape->cell); p-- > 0;)
        value += bf_at(block + p * 2048 + 512 * j + 16 * lane + 2 * e);
    return value;
}

// Element e (0..15: register e / 4, byte e % 4) of integer product j in lane `lane`, with its scale and bias.
static float lane_weight(const md_tile_shape *shape, const uint8_t *block, uint32_t lane, uint32_t j, uint32_t e) {
    uint32_t code = shape->cell == MD_CELL_Q8 ? block[512 * j + 16 * lane + e] : block[16 * lane + e] >> 4 * j & 15;
    uint32_t set = shape->group == 32 ? j : 0, upper = e / 4 % 2;
    const uint8_t *scales = block + md_mma_code_bytes(shape) + set * (shape->wide_scales ? 128 : 64);
    uint32_t at = lane / 4 * 4 + upper;
    return fmaf(scale_at(shape, scales, at), (float)code, scale_at(shape, scales, at + 2));
}

// The file's weight W[row][column], dequantized.
static float file_weight(const md_matrix *m, uint32_t row, uint32_t column) {
    md_error err;
    float values[1024];
    if (!m->bits) {
        assert_int_equal(md_tensor_read_f32(&m->weight, row, 1, values, &err), MD_OK);
        return values[column];
    }
    uint8_t packed[2048], codes[1024];
    float scales[64], biases[64];
    assert_int_equal(md_tensor_read(&m->weight, row, 1, packed, &err), MD_OK);
    assert_int_equal(md_tensor_read_f32(&m->scales, row, 1, scales, &err), MD_OK);
    assert_int_equal(md_tensor_read_f32(&m->biases, row, 1, biases, &err), MD_OK);
    md_codes_unpack(packed, m->bits, m->cols, codes);
    return fmaf(scales[column / m->group], codes[column], biases[column / m->group]);
}

static void check_operands(const md_layout *layout, uint32_t s, uint32_t item, const uint8_t *tile_bytes) {
    uint32_t m, tile;
    uint64_t bytes;
    md_layout_item(layout, s, item, &m, &tile, &bytes);
    const md_stage_layout *stage = &layout->stage[s];
    const md_tile_shape *shape = &stage->shape[m];
    const md_matrix *matrix = layout->plan->stage[s].matrix[m];
    bool codes = shape->cell <= MD_CELL_Q8;
    uint32_t products = codes ? 2 : 4, elements = codes ? 16 : 8, a_register = codes ? 4 : 2;
    for (uint32_t block = 0; block < shape->chunks; block++)
        for (uint32_t lane = 0; lane < 32; lane++)
            for (uint32_t j = 0; j < products; j++)
                for (uint32_t e = 0; e < elements; e++) {
                    uint32_t reg = e / a_register, k = e % a_register, g = lane / 4, t = lane % 4;
                    uint32_t first = codes ? 32 * j + 8 * t : 32 * (j / 2) + 8 * t + 4 * (j % 2);
                    uint32_t column = 64 * block + first + a_register * (reg / 2) + k;
                    int32_t row = md_row_map_row(&stage->map[m], tile, g + 8 * (reg % 2));
                    const uint8_t *at = tile_bytes + block * shape->chunk_bytes;
                    float found = codes ? lane_weight(shape, at, lane, j, e) : lane_value(shape, at, lane, j, e);
                    if (row == MD_NO_ROW || column >= matrix->cols)
                        assert_true(found == 0);
                    else if ((row + column) % 7 == 0) // a sample: reading rows again and again is slow
                        assert_true(found == file_weight(matrix, (uint32_t)row, column));
                }
}

static void check_inverse(const md_layout *layout, uint32_t s, uint32_t m, const uint8_t *arena) {
    const md_matrix *matrix = layout->plan->stage[s].matrix[m];
    const md_tensor *tensors[] = {&matrix->weight, &matrix->scales, &matrix->biases};
    uint8_t *found[3] = {NULL, NULL, NULL};
    size_t count = matrix->bits ? 3 : 1;
    for (size_t i = 0; i < count; i++) found[i] = malloc(matrix->rows * tensors[i]->row_bytes);
    md_unpack_matrix(layout, s, m, arena, found[0], found[1], found[2]);
    for (size_t i = 0; i < count; i++) {
        size_t n = matrix->rows * tensors[i]->row_bytes;
        uint8_t *expected = malloc(n);
        md_error err;
        assert_int_equal(md_tensor_read(tensors[i], 0, matrix->rows, expected, &err), MD_OK);
        assert_memory_equal(found[i], expected, n);
        free(expected);
        free(found[i]);
    }
}

static void check_model(const mm_shape *shape) {
    char *dir = mm_make(shape, 1);
    md_error err = {0};
    md_snapshot *snapshot;
    md_plan *plan;
    md_layout *layout;
    if (md_snapshot_open(dir, &snapshot, &err) != MD_OK) fail_msg("%s", err.message);
    assert_int_equal(md_plan_build(snapshot, &plan, &err), MD_OK);
    assert_int_equal(md_layout_build(plan, &md_codec_mma, 3, &layout, &err), MD_OK);
    uint8_t *arena = aligned_alloc(4096, layout->arena_bytes);
    assert_non_null(arena);
    memset(arena, 0x5a, layout->arena_bytes);
    for (uint32_t w = 0; w < layout->workers; w++) assert_int_equal(md_pack_worker(layout, w, arena, &err), MD_OK);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        for (uint32_t m = 0; m < plan->stage[s].matrix_count; m++) check_inverse(layout, s, m, arena);
        const md_run *run = &layout->run[(size_t)s * layout->workers + 1]; // the middle worker's first item
        if (run->item_count) check_operands(layout, s, run->first_item, arena + run->offset);
    }
    free(arena);
    md_layout_free(layout);
    md_plan_free(plan);
    md_snapshot_close(snapshot);
    mm_remove(dir);
}

static void every_width_and_group(void **state) {
    (void)state;
    static const unsigned bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    for (size_t b = 0; b < 6; b++)
        for (size_t g = 0; g < 3; g++) {
            mm_shape shape = MM_SHAPE;
            shape.layers = 1, shape.bits = bits[b], shape.group = groups[g];
            check_model(&shape);
        }
}

static void every_type(void **state) {
    (void)state;
    static const char *const types[] = {"BF16", "F16", "F32"};
    for (size_t i = 0; i < 3; i++)
        for (unsigned bits = 0; bits <= 4; bits += 4) {
            char extra[100];
            snprintf(extra, sizeof extra, "\"_synth\": {\"scales\": \"%s\", \"weights\": \"%s\"}", types[i], types[i]);
            mm_shape shape = MM_SHAPE;
            shape.layers = 1, shape.bits = bits, shape.extra = extra;
            check_model(&shape);
        }
}

static void columns_that_fill_no_block(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    shape.layers = 1, shape.hidden = 96, shape.ffn = 160, shape.head_dim = 48, shape.group = 32;
    check_model(&shape);
    shape.bits = 0;
    check_model(&shape);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_and_group),
        cmocka_unit_test(every_type),
        cmocka_unit_test(columns_that_fill_no_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
