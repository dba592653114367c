// Tile codec "mma" (see tile_mma.h).
#include "plan/tile_mma.h"

#include <math.h>

#include "base/checked.h"
#include "model/quant.h"
#include "plan/tile_parts.h"

enum { HALF_ROWS = MD_TILE_ROWS / 2, QUADS = MD_MMA_BLOCK / 4, MAX_PLANES = 3 };

uint32_t md_mma_planes(md_cell cell) {
    switch (cell) {
    case MD_CELL_Q8:
    case MD_CELL_F16: return 2;
    case MD_CELL_F32: return 3;
    default: return 1;
    }
}

static bool is_quantized(md_cell cell) { return cell == MD_CELL_Q4 || cell == MD_CELL_Q8; }

uint32_t md_mma_code_bytes(const md_tile_shape *shape) {
    return md_mma_planes(shape->cell) * (is_quantized(shape->cell) ? MD_MMA_PLANE : MD_MMA_PLANE16);
}

uint32_t md_mma_scale_sets(const md_tile_shape *shape) {
    if (!is_quantized(shape->cell)) return 0;
    return shape->group == 32 ? 2 : 1;
}

static uint32_t set_bytes(const md_tile_shape *shape) { return 2 * MD_TILE_ROWS * md_tile_scale_size(shape); }

static void mma_shape(const md_matrix *matrix, md_tile_shape *out) {
    *out = (md_tile_shape){.cell = md_tile_cell(matrix), .cols = matrix->cols, .group = matrix->group};
    out->wide_scales = matrix->bits && matrix->scales.dtype != MD_DTYPE_BF16;
    out->chunks = (uint32_t)md_ceil_div(matrix->cols, MD_MMA_BLOCK);
    out->chunk_bytes = md_mma_code_bytes(out) + md_mma_scale_sets(out) * set_bytes(out);
    out->tile_bytes = out->chunks * out->chunk_bytes;
}

// Where the four codes of columns 4*quad .. 4*quad + 3 of a row lie in a block: bytes of a plane; where two planes
// share their bytes (4 bits), columns of the block's second half are the high nibbles.
static uint32_t quad_offset(uint32_t quad, uint32_t row) {
    uint32_t t = quad % 8 / 2, word = quad % 2 * 2 + row / HALF_ROWS;
    return 16 * (4 * (row % HALF_ROWS) + t) + 4 * word;
}

static void or_u32(uint8_t *at, uint32_t bits) {
    uint32_t value = md_tile_u32(at) | bits;
    memcpy(at, &value, sizeof value);
}

static void pack_codes(const md_tile_shape *shape, uint32_t bits, uint32_t n, const uint8_t *packed, uint32_t row,
                       uint8_t *block) {
    uint8_t codes[MD_MMA_BLOCK] = {0};
    md_codes_unpack(packed, bits, n, codes);
    for (uint32_t quad = 0; quad < QUADS; quad++) {
        uint32_t four = md_tile_u32(codes + 4 * quad), at = quad_offset(quad, row), second = quad / (QUADS / 2);
        if (shape->cell == MD_CELL_Q4)
            or_u32(block + at, four << 4 * second);
        else
            or_u32(block + MD_MMA_PLANE * second + at, four);
    }
}

static void unpack_codes(const md_tile_shape *shape, uint32_t bits, uint32_t n, const uint8_t *block, uint32_t row,
                         uint8_t *packed) {
    uint8_t codes[MD_MMA_BLOCK];
    for (uint32_t quad = 0; quad < QUADS; quad++) {
        uint32_t at = quad_offset(quad, row), second = quad / (QUADS / 2), four;
        if (shape->cell == MD_CELL_Q4)
            four = md_tile_u32(block + at) >> 4 * second & 0x0f0f0f0fu;
        else
            four = md_tile_u32(block + MD_MMA_PLANE * second + at);
        memcpy(codes + 4 * quad, &four, 4);
    }
    md_codes_pack(codes, bits, n, packed);
}

// Where the scale of group `group` of a row lies in a tile; its bias lies two scales further.
static size_t scale_offset(const md_tile_shape *shape, uint32_t group, uint32_t row) {
    uint32_t column = group * shape->group;
    uint32_t set = column % MD_MMA_BLOCK / shape->group;
    return (size_t)(column / MD_MMA_BLOCK) * shape->chunk_bytes + md_mma_code_bytes(shape) + set * set_bytes(shape) +
           (row % HALF_ROWS * 4 + row / HALF_ROWS) * md_tile_scale_size(shape);
}

static void pack_scales(const md_tile_shape *shape, const md_tile_rows *rows, uint32_t lane, uint8_t *tile) {
    const md_matrix *matrix = rows->matrix;
    uint32_t repeat = shape->group > MD_MMA_BLOCK ? shape->group / MD_MMA_BLOCK : 1;
    for (uint32_t index = 0; index < shape->cols / shape->group; index++) {
        uint8_t *at = tile + scale_offset(shape, index, lane);
        for (uint32_t r = 0; r < repeat; r++, at += shape->chunk_bytes) {
            md_tile_scale_put(shape, &matrix->scales, rows->scales[lane], index, at);
            md_tile_scale_put(shape, &matrix->biases, rows->biases[lane], index, at + 2 * md_tile_scale_size(shape));
        }
    }
}

// A weight as up to three bf16 parts whose sum it is exactly: the leading 8 significant bits, then the next.
static void split_planes(float value, uint32_t planes, uint16_t part[MAX_PLANES]) {
    for (uint32_t p = 0; p < planes; p++) {
        part[p] = (uint16_t)(md_f32_bits(value) >> 16);
        value = isfinite(value) ? value - md_bf16_to_f32(part[p]) : 0.0f;
    }
}

static float join_planes(uint32_t planes, const uint16_t part[MAX_PLANES]) {
    float value = md_bf16_to_f32(part[planes - 1]);
    for (uint32_t p = planes - 1; p-- > 0;)
        value = value != 0 ? md_bf16_to_f32(part[p]) + value : md_bf16_to_f32(part[p]); // keeps the sign of zero
    return value;
}

static size_t element_offset(const md_tile_shape *shape, uint32_t column, uint32_t row) {
    uint32_t quad = column % MD_MMA_BLOCK / 4, j = quad / 8 * 2 + quad % 2, t = quad % 8 / 2;
    uint32_t reg = column % 4 / 2 * 2 + row / HALF_ROWS;
    return (size_t)(column / MD_MMA_BLOCK) * shape->chunk_bytes + 512 * j + 16 * (4 * (row % HALF_ROWS) + t) + 4 * reg +
           2 * (column % 2);
}

static void pack_element(const md_tile_shape *shape, const uint8_t *row, uint32_t column, uint8_t *at) {
    uint16_t part[MAX_PLANES];
    if (shape->cell == MD_CELL_BF16) {
        memcpy(at, row + 2u * column, 2);
        return;
    }
    uint16_t half;
    memcpy(&half, row + 2u * column, sizeof half);
    float value = shape->cell == MD_CELL_F32 ? md_f32_from_bits(md_tile_u32(row + 4u * column)) : md_f16_to_f32(half);
    uint32_t planes = md_mma_planes(shape->cell);
    split_planes(value, planes, part);
    for (uint32_t p = 0; p < planes; p++) memcpy(at + (size_t)p * MD_MMA_PLANE16, &part[p], 2);
}

static void unpack_element(const md_tile_shape *shape, const uint8_t *at, uint32_t column, uint8_t *row) {
    uint16_t part[MAX_PLANES];
    if (shape->cell == MD_CELL_BF16) {
        memcpy(row + 2u * column, at, 2);
        return;
    }
    uint32_t planes = md_mma_planes(shape->cell);
    for (uint32_t p = 0; p < planes; p++) memcpy(&part[p], at + (size_t)p * MD_MMA_PLANE16, 2);
    float value = join_planes(planes, part);
    uint16_t half = md_f16_from_f32(value);
    if (shape->cell == MD_CELL_F32)
        memcpy(row + 4u * column, &value, 4);
    else
        memcpy(row + 2u * column, &half, 2);
}

static uint32_t block_columns(const md_tile_shape *shape, uint32_t block) {
    uint32_t left = shape->cols - block * MD_MMA_BLOCK;
    return left < MD_MMA_BLOCK ? left : MD_MMA_BLOCK;
}

static void mma_pack(const md_tile_shape *shape, const md_tile_rows *rows, uint8_t *tile) {
    uint32_t bits = rows->matrix->bits;
    memset(tile, 0, shape->tile_bytes); // absent rows and columns are zeros; codes are or-ed in
    for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++) {
        const uint8_t *row = rows->weight[lane];
        if (!row) continue;
        if (!bits) {
            for (uint32_t k = 0; k < shape->cols; k++)
                pack_element(shape, row, k, tile + element_offset(shape, k, lane));
            continue;
        }
        for (uint32_t b = 0; b < shape->chunks; b++)
            pack_codes(shape, bits, block_columns(shape, b), row + (size_t)b * MD_MMA_BLOCK * bits / 8, lane,
                       tile + (size_t)b * shape->chunk_bytes);
        pack_scales(shape, rows, lane, tile);
    }
}

static void mma_unpack(const md_tile_shape *shape, const uint8_t *tile, const md_tile_rows_out *rows) {
    const md_matrix *matrix = rows->matrix;
    uint32_t bits = matrix->bits;
    for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++) {
        uint8_t *row = rows->weight[lane];
        if (!row) continue;
        if (!bits) {
            for (uint32_t k = 0; k < shape->cols; k++)
                unpack_element(shape, tile + element_offset(shape, k, lane), k, row);
            continue;
        }
        for (uint32_t b = 0; b < shape->chunks; b++)
            unpack_codes(shape, bits, block_columns(shape, b), tile + (size_t)b * shape->chunk_bytes, lane,
                         row + (size_t)b * MD_MMA_BLOCK * bits / 8);
        for (uint32_t index = 0; index < shape->cols / shape->group; index++) {
            const uint8_t *at = tile + scale_offset(shape, index, lane);
            md_tile_scale_take(shape, &matrix->scales, at, index, rows->scales[lane]);
            md_tile_scale_take(shape, &matrix->biases, at + 2 * md_tile_scale_size(shape), index, rows->biases[lane]);
        }
    }
}

const md_tile_codec md_codec_mma = {.name = "mma", .shape = mma_shape, .pack = mma_pack, .unpack = mma_unpack};
