// Tile codec "mma": what the CUDA kernels read. 16 rows of weights are the A operand of mma.m16n8k16 (bf16), so a tile
// is stored in the order in which the lanes of a warp hold that operand: one 16-byte load a lane, no shuffles.
//
// A tile is cut into blocks of 64 columns (zeros past the end). Lane (g, t), g = lane / 4, t = lane % 4, holds in its
// j-th product of a block (j = 0..3) the rows g and g + 8 and the columns c .. c+3 with
//     c = 32 * (j / 2) + 8 * t + 4 * (j % 2)
// as the four registers of A:  r0 = (row g: c, c+1)  r1 = (row g+8: c, c+1)  r2 = (row g: c+2, c+3)  r3 = (g+8: c+2,
// c+3). The columns of B are permuted alike, so that a lane's activations of a block are two runs of 16 bytes.
//
// A block is first its planes, then its scales:
//   Q4    1 plane of 512 bytes:   lane's u32 j at 16 * lane + 4 * j; nibble i = first element of register i, nibble
//                                 i + 4 = second
//   Q8    2 planes of 512 bytes:  high nibbles, then low nibbles, each as for Q4
//   BF16  1 plane of 2,048 bytes: lane's registers of product j at 512 * j + 16 * lane
//   F16   2 such planes, F32 3:   their sum is the weight exactly (8 significant bits a plane)
//   scales (Q4 and Q8): one set for each group in the block (two for groups of 32; a group of 128 repeats its set in
//   both blocks): for g = 0..7 {scale of row g, of row g + 8, bias of row g, of row g + 8}, bf16 or f32.
#ifndef MD_PLAN_TILE_MMA_H
#define MD_PLAN_TILE_MMA_H

#include "plan/pack.h"

enum { MD_MMA_BLOCK = 64, MD_MMA_PLANE4 = 512, MD_MMA_PLANE16 = 2048 };

// In its shapes `chunks` counts blocks of 64 columns and `group` is the quantization group (0 when not quantized).
extern const md_tile_codec md_codec_mma;

uint32_t md_mma_planes(md_cell cell);
// Bytes of a block before its scales, and of its scales.
uint32_t md_mma_code_bytes(const md_tile_shape *shape);
uint32_t md_mma_scale_sets(const md_tile_shape *shape);

#endif
