// Tile codec "lanes" (see pack.h): lanes are rows, so that a kernel needs no horizontal sums.
#include "base/checked.h"
#include "model/quant.h"
#include "plan/tile_parts.h"

enum { UNQUANTIZED_CHUNK = 64, MAX_GROUP = 128 };

static uint32_t unquantized_size(md_cell cell) { return cell == MD_CELL_F32 ? 4 : 2; }

static void lanes_shape(const md_matrix *matrix, md_tile_shape *out) {
    *out = (md_tile_shape){.cell = md_tile_cell(matrix), .cols = matrix->cols};
    if (matrix->bits) {
        out->wide_scales = matrix->scales.dtype != MD_DTYPE_BF16;
        out->group = matrix->group;
        uint32_t scale_bytes = 2u * MD_TILE_ROWS * md_tile_scale_size(out);
        out->chunk_bytes = scale_bytes + MD_TILE_ROWS * out->group / (out->cell == MD_CELL_Q4 ? 2 : 1);
    } else {
        out->group = UNQUANTIZED_CHUNK;
        out->chunk_bytes = MD_TILE_ROWS * out->group * unquantized_size(out->cell);
    }
    out->chunks = (uint32_t)md_ceil_div(out->cols, out->group);
    out->tile_bytes = out->chunks * out->chunk_bytes;
}

// Nibbles 0..7 to the order 0,4,1,5,2,6,3,7, so that byte b holds columns b and b + 4 of eight; and back. Exchanges of
// neighbouring bit fields.
static uint32_t nibbles_split(uint32_t v) {
    uint32_t t = (v ^ (v >> 8)) & 0x0000ff00u;
    v ^= t ^ (t << 8); // of bytes: 0 2 1 3
    t = (v ^ (v >> 4)) & 0x00f000f0u;
    v ^= t ^ (t << 4);
    return v;
}

static uint32_t nibbles_join(uint32_t v) {
    uint32_t t = (v ^ (v >> 4)) & 0x00f000f0u;
    v ^= t ^ (t << 4);
    t = (v ^ (v >> 8)) & 0x0000ff00u;
    return v ^ t ^ (t << 8);
}

// One lane's scales (or biases) into every chunk, at byte `at` of the chunk, and back.
static void pack_scales(const md_tile_shape *shape, const md_tensor *tensor, const uint8_t *row, uint32_t lane,
                        uint8_t *at) {
    at += md_tile_scale_size(shape) * lane;
    for (uint32_t c = 0; c < shape->chunks; c++, at += shape->chunk_bytes) md_tile_scale_put(shape, tensor, row, c, at);
}

static void unpack_scales(const md_tile_shape *shape, const md_tensor *tensor, const uint8_t *at, uint32_t lane,
                          uint8_t *row) {
    at += md_tile_scale_size(shape) * lane;
    for (uint32_t c = 0; c < shape->chunks; c++, at += shape->chunk_bytes)
        md_tile_scale_take(shape, tensor, at, c, row);
}

// One lane's codes of a chunk, as stored by MLX, to the 4-bit cells.
static void pack_q4(const md_tile_shape *shape, uint32_t bits, const uint8_t *row, uint32_t lane, uint8_t *codes) {
    uint8_t cells[MAX_GROUP / 2], bytes[MAX_GROUP];
    const uint8_t *words = row;
    if (bits != 4) { // widen 2- and 3-bit codes to nibbles
        md_codes_unpack(row, bits, shape->group, bytes);
        md_codes_pack(bytes, 4, shape->group, cells);
        words = cells;
    }
    for (uint32_t v = 0; v < shape->group / 8; v++) {
        uint32_t word = nibbles_split(md_tile_u32(words + 4 * v));
        memcpy(codes + 64 * v + 4 * lane, &word, 4);
    }
}

static void unpack_q4(const md_tile_shape *shape, uint32_t bits, const uint8_t *codes, uint32_t lane, uint8_t *row) {
    uint8_t cells[MAX_GROUP / 2], bytes[MAX_GROUP];
    uint8_t *words = bits == 4 ? row : cells;
    for (uint32_t v = 0; v < shape->group / 8; v++) {
        uint32_t word = nibbles_join(md_tile_u32(codes + 64 * v + 4 * lane));
        memcpy(words + 4 * v, &word, 4);
    }
    if (bits != 4) {
        md_codes_unpack(cells, 4, shape->group, bytes);
        md_codes_pack(bytes, bits, shape->group, row);
    }
}

static void pack_q8(const md_tile_shape *shape, uint32_t bits, const uint8_t *row, uint32_t lane, uint8_t *codes) {
    uint8_t bytes[MAX_GROUP];
    if (bits != 8) {
        md_codes_unpack(row, bits, shape->group, bytes);
        row = bytes;
    }
    for (uint32_t q = 0; q < shape->group / 4; q++) memcpy(codes + 64 * q + 4 * lane, row + 4 * q, 4);
}

static void unpack_q8(const md_tile_shape *shape, uint32_t bits, const uint8_t *codes, uint32_t lane, uint8_t *row) {
    uint8_t bytes[MAX_GROUP];
    uint8_t *to = bits == 8 ? row : bytes;
    for (uint32_t q = 0; q < shape->group / 4; q++) memcpy(to + 4 * q, codes + 64 * q + 4 * lane, 4);
    if (bits != 8) md_codes_pack(bytes, bits, shape->group, row);
}

static void pack_quantized_lane(const md_tile_shape *shape, const md_tile_rows *rows, uint32_t lane, uint8_t *tile) {
    const md_matrix *matrix = rows->matrix;
    uint32_t scale_bytes = MD_TILE_ROWS * md_tile_scale_size(shape);
    pack_scales(shape, &matrix->scales, rows->scales[lane], lane, tile);
    pack_scales(shape, &matrix->biases, rows->biases[lane], lane, tile + scale_bytes);
    uint32_t chunk_row_bytes = shape->group * matrix->bits / 8;
    for (uint32_t c = 0; c < shape->chunks; c++) {
        uint8_t *codes = tile + (size_t)c * shape->chunk_bytes + 2 * scale_bytes;
        const uint8_t *row = rows->weight[lane] + (size_t)c * chunk_row_bytes;
        if (shape->cell == MD_CELL_Q4)
            pack_q4(shape, matrix->bits, row, lane, codes);
        else
            pack_q8(shape, matrix->bits, row, lane, codes);
    }
}

static void unpack_quantized_lane(const md_tile_shape *shape, const uint8_t *tile, const md_tile_rows_out *rows,
                                  uint32_t lane) {
    const md_matrix *matrix = rows->matrix;
    uint32_t scale_bytes = MD_TILE_ROWS * md_tile_scale_size(shape);
    unpack_scales(shape, &matrix->scales, tile, lane, rows->scales[lane]);
    unpack_scales(shape, &matrix->biases, tile + scale_bytes, lane, rows->biases[lane]);
    uint32_t chunk_row_bytes = shape->group * matrix->bits / 8;
    for (uint32_t c = 0; c < shape->chunks; c++) {
        const uint8_t *codes = tile + (size_t)c * shape->chunk_bytes + 2 * scale_bytes;
        uint8_t *row = rows->weight[lane] + (size_t)c * chunk_row_bytes;
        if (shape->cell == MD_CELL_Q4)
            unpack_q4(shape, matrix->bits, codes, lane, row);
        else
            unpack_q8(shape, matrix->bits, codes, lane, row);
    }
}

static void lanes_pack(const md_tile_shape *shape, const md_tile_rows *rows, uint8_t *tile) {
    for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++)
        if (!rows->weight[lane]) {
            memset(tile, 0, shape->tile_bytes); // absent lanes hold zeros
            break;
        }
    uint32_t size = unquantized_size(shape->cell);
    if (!rows->matrix->bits && shape->cols % shape->group) memset(tile, 0, shape->tile_bytes);
    for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++) {
        if (!rows->weight[lane]) continue;
        if (rows->matrix->bits) {
            pack_quantized_lane(shape, rows, lane, tile);
        } else {
            for (uint32_t k = 0; k < shape->cols; k++)
                memcpy(tile + ((size_t)(k / 2) * MD_TILE_ROWS * 2 + 2 * lane + k % 2) * size,
                       rows->weight[lane] + (size_t)k * size, size);
        }
    }
}

static void lanes_unpack(const md_tile_shape *shape, const uint8_t *tile, const md_tile_rows_out *rows) {
    uint32_t size = unquantized_size(shape->cell);
    for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++) {
        if (!rows->weight[lane]) continue;
        if (rows->matrix->bits) {
            unpack_quantized_lane(shape, tile, rows, lane);
        } else {
            for (uint32_t k = 0; k < shape->cols; k++)
                memcpy(rows->weight[lane] + (size_t)k * size,
                       tile + ((size_t)(k / 2) * MD_TILE_ROWS * 2 + 2 * lane + k % 2) * size, size);
        }
    }
}

const md_tile_codec md_codec_lanes = {
    .name = "lanes", .shape = lanes_shape, .pack = lanes_pack, .unpack = lanes_unpack};
