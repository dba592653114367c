// What both tile codecs do alike: which cell a matrix gets, and its scales and biases in and out of a tile.
#ifndef MD_PLAN_TILE_PARTS_H
#define MD_PLAN_TILE_PARTS_H

#include <string.h>

#include "base/bf16.h"
#include "plan/pack.h"

static inline md_cell md_tile_cell(const md_matrix *matrix) {
    if (matrix->bits) return matrix->bits <= 4 ? MD_CELL_Q4 : MD_CELL_Q8;
    switch (matrix->weight.dtype) {
    case MD_DTYPE_BF16: return MD_CELL_BF16;
    case MD_DTYPE_F16: return MD_CELL_F16;
    default: return MD_CELL_F32;
    }
}

static inline uint32_t md_tile_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint32_t md_tile_scale_size(const md_tile_shape *shape) { return shape->wide_scales ? 4 : 2; }

// Element `index` of a row of scales or biases, as the snapshot stores it, to `at` in the tile.
static inline void md_tile_scale_put(const md_tile_shape *shape, const md_tensor *tensor, const uint8_t *row,
                                     uint32_t index, uint8_t *at) {
    uint16_t half;
    float value;
    if (!shape->wide_scales) {
        memcpy(at, row + 2u * index, 2);
    } else if (tensor->dtype == MD_DTYPE_F32) {
        memcpy(at, row + 4u * index, 4);
    } else {
        memcpy(&half, row + 2u * index, sizeof half);
        value = md_f16_to_f32(half);
        memcpy(at, &value, 4);
    }
}

// The inverse.
static inline void md_tile_scale_take(const md_tile_shape *shape, const md_tensor *tensor, const uint8_t *at,
                                      uint32_t index, uint8_t *row) {
    if (!shape->wide_scales) {
        memcpy(row + 2u * index, at, 2);
    } else if (tensor->dtype == MD_DTYPE_F32) {
        memcpy(row + 4u * index, at, 4);
    } else {
        uint16_t half = md_f16_from_f32(md_f32_from_bits(md_tile_u32(at)));
        memcpy(row + 2u * index, &half, 2);
    }
}

#endif
