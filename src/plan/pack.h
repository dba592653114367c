// The stream: every weight repacked into one arena in the order in which it will be read, one contiguous run of bytes a
// worker, cut into tiles of 16 rows with scales and biases beside the codes they belong to.
//
// Items: a stage's work is a list of items in a fixed order. An item is one tile of 16 rows, or, for gate_up, the pair
// (gate tile t, up tile t). qkv lists q's tiles, then k's, then v's. Each of G workers takes a contiguous range of
// items, chosen by bytes; which worker takes which range of a stage follows from what they took before. A tile's rows
// come from its row map: 16 consecutive rows, except q and k, whose tiles hold rows (d .. d+7) and (d + D/2 .. d + D/2
// + 7) of one head, so that RoPE's pairs meet in one tile. Rows past the end are absent (their lanes hold zeros).
#ifndef MD_PLAN_PACK_H
#define MD_PLAN_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

enum { MD_TILE_ROWS = 16, MD_NO_ROW = -1, MD_MAX_WORKERS = 1024 };

// How a tile stores codes and scales; derived from a matrix. Codes of 2-3 bits live in 4-bit cells, of 5-6 bits in
// 8-bit cells (same values). bf16 scales stay bf16; f16 and f32 scales are stored as f32 (exact).
typedef enum md_cell { MD_CELL_Q4, MD_CELL_Q8, MD_CELL_BF16, MD_CELL_F16, MD_CELL_F32 } md_cell;

typedef struct md_tile_shape {
    md_cell cell;
    bool wide_scales; // scales and biases are f32, not bf16
    uint32_t cols;    // K
    uint32_t group;   // elements of a chunk: the quantization group, or 64 for unquantized cells
    uint32_t chunks;  // ceil(cols / group); a short last chunk (unquantized only) is filled with zeros
    uint32_t chunk_bytes;
    uint32_t tile_bytes; // chunks * chunk_bytes; a multiple of 64
} md_tile_shape;

// The rows of one tile as the snapshot stores them: what a codec packs. Absent lanes are NULL.
typedef struct md_tile_rows {
    const md_matrix *matrix;
    const uint8_t *weight[MD_TILE_ROWS]; // row_bytes of matrix->weight
    const uint8_t *scales[MD_TILE_ROWS]; // row_bytes of matrix->scales; NULL for unquantized matrices
    const uint8_t *biases[MD_TILE_ROWS];
} md_tile_rows;

// The same for writing.
typedef struct md_tile_rows_out {
    const md_matrix *matrix;
    uint8_t *weight[MD_TILE_ROWS], *scales[MD_TILE_ROWS], *biases[MD_TILE_ROWS];
} md_tile_rows_out;

// How a backend wants the bytes of a tile. `shape` must set every field of md_tile_shape; `unpack` is `pack`'s exact
// inverse for the lanes that are present. Both are pure and need no state.
typedef struct md_tile_codec {
    const char *name;
    void (*shape)(const md_matrix *matrix, md_tile_shape *out);
    void (*pack)(const md_tile_shape *shape, const md_tile_rows *rows, uint8_t *tile);
    void (*unpack)(const md_tile_shape *shape, const uint8_t *tile, const md_tile_rows_out *rows);
} md_tile_codec;

// Codec "lanes": what the CPU kernels read. A chunk of a quantized tile is
//   16 scales, 16 biases (bf16 or f32; lane r = row r), then the codes;
//   Q8: for each 4 columns one 64-byte vector: [row 0: c0 c1 c2 c3][row 1: c0 c1 c2 c3]...;
//   Q4: for each 8 columns one 64-byte vector: the low nibbles are Q8's vector of the first four, the high ones of the
//       other four;
// a chunk of an unquantized tile: for each 2 columns 16 x {c0, c1} of the cell's type.
extern const md_tile_codec md_codec_lanes;

typedef struct md_row_map {
    uint32_t rows;     // of the matrix
    uint32_t rope_dim; // head_dim for q and k (RoPE tiles), 0 = consecutive rows
} md_row_map;

uint32_t md_row_map_tiles(const md_row_map *map);
// The matrix row in lane `lane` (0..15) of tile `tile`, or MD_NO_ROW.
int32_t md_row_map_row(const md_row_map *map, uint32_t tile, uint32_t lane);

typedef struct md_run { // one worker's share of one stage
    uint32_t first_item, item_count;
    uint64_t offset, bytes; // in the arena
} md_run;

typedef struct md_stage_layout {
    uint32_t items;
    md_tile_shape shape[3];
    md_row_map map[3];
    uint32_t tiles[3];
} md_stage_layout;

// The layout table for G workers. run[stage * workers + w]. Worker w's runs follow each other in stage order with
// nothing between: its whole token is one forward walk of [worker_offset[w], worker_offset[w] + worker_bytes[w]).
typedef struct md_layout {
    const md_plan *plan; // borrowed
    const md_tile_codec *codec;
    uint32_t workers;
    md_stage_layout *stage;                 // [plan->stage_count]
    md_run *run;                            // [plan->stage_count * workers]
    uint64_t *worker_offset, *worker_bytes; // [workers]; offsets are multiples of 4096, of 2 MiB where runs are long
    uint64_t arena_bytes;
} md_layout;

// workers: 1..MD_MAX_WORKERS. The plan is checked before, the layout after it was built (plan/check.h).
md_status md_layout_build(const md_plan *plan, const md_tile_codec *codec, uint32_t workers, md_layout **out,
                          md_error *err);
void md_layout_free(md_layout *layout);

// Item `item` of stage `s`: which matrix and tile it starts with (gate_up: matrix 0's tile; matrix 1's tile of the same
// index follows it), and its bytes.
void md_layout_item(const md_layout *layout, uint32_t s, uint32_t item, uint32_t *matrix, uint32_t *tile,
                    uint64_t *bytes);

// Packs worker w's run of stage s (or of all stages) from the snapshot's files into arena + run->offset (memory of
// arena_bytes bytes, 64-byte aligned). Reads by slabs of rows: little extra memory. Thread-safe for different workers.
md_status md_pack_stage(const md_layout *layout, uint32_t s, uint32_t worker, uint8_t *arena, md_error *err);
md_status md_pack_worker(const md_layout *layout, uint32_t worker, uint8_t *arena, md_error *err);

// The inverse, for tests and for `verify`: reconstructs matrix `m` of stage `s` from the arena as the snapshot stores
// it: weight (rows * row_bytes bytes), scales and biases (NULL for an unquantized matrix).
void md_unpack_matrix(const md_layout *layout, uint32_t s, uint32_t m, const uint8_t *arena, uint8_t *weight,
                      uint8_t *scales, uint8_t *biases);

#endif
