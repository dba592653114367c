// Tile codec "mma": what the CUDA kernels read. 16 rows of weights are the A operand of the tensor cores' products, so
// a tile is stored in the order in which the lanes of a warp hold that operand: 16-byte loads, no shuffles.
//
// A tile is cut into blocks of 64 columns (zeros past the end). Lane (g, t), g = lane / 4, t = lane % 4, holds the rows
// g and g + 8, and of a block's 64 columns the runs 8 t .. 8 t + 7 and 32 + 8 t .. 32 + 8 t + 7. The columns of B are
// permuted alike.
//
// Quantized weights are multiplied as integers by two mma.m16n8k32 a block, the first over columns 0..31, the second
// over 32..63. The four registers of A of either (c = 8 t, or 32 + 8 t), four codes each, one a byte:
//     r0 = (row g: c .. c+3)  r1 = (row g+8: c .. c+3)  r2 = (row g: c+4 .. c+7)  r3 = (row g+8: c+4 .. c+7)
// Other weights are multiplied as bf16 by four mma.m16n8k16 a block; the registers of the j-th (j = 0..3), two weights
// each, with c = 32 * (j / 2) + 8 * t + 4 * (j % 2):
//     r0 = (row g: c, c+1)  r1 = (row g+8: c, c+1)  r2 = (row g: c+2, c+3)  r3 = (row g+8: c+2, c+3)
//
// A block is first its planes, then its scales:
//   Q4    1 plane of 512 bytes: the lane's registers at 16 * lane, of the first product in the low nibbles of the
//   bytes,
//         of the second in the high ones
//   Q8    2 planes of 512 bytes, one a product: the lane's registers at 16 * lane
//   BF16  1 plane of 2,048 bytes: lane's registers of product j at 512 * j + 16 * lane
//   F16   2 such planes, F32 3:   their sum is the weight exactly (8 significant bits a plane)
//   scales (Q4 and Q8): one set for each group in the block (two for groups of 32, one a product; a group of 128
//   repeats its set in both blocks): for g = 0..7 {scale of row g, of row g + 8, bias of row g, of row g + 8}, bf16 or
//   f32.
#ifndef MD_PLAN_TILE_MMA_H
#define MD_PLAN_TILE_MMA_H

#include "plan/pack.h"

enum { MD_MMA_BLOCK = 64, MD_MMA_PLANE = 512, MD_MMA_PLANE16 = 2048 };

// In its shapes `chunks` counts blocks of 64 columns and `group` is the quantization group (0 when not quantized).
extern const md_tile_codec md_codec_mma;

uint32_t md_mma_planes(md_cell cell);
// Bytes of a block before its scales, and of its scales.
uint32_t md_mma_code_bytes(const md_tile_shape *shape);
uint32_t md_mma_scale_sets(const md_tile_shape *shape);

#endif
