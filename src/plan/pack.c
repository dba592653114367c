// Packing a worker's run from the snapshot's files, and the exact inverse.
#include "plan/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

enum { SLAB_BYTES = 2 << 20 }; // rows read at a time: large enough for the disk, small enough to stay in the cache

// Where matrix m's tile of an item starts inside the worker's run of a stage, and how far apart its tiles are.
typedef struct tile_walk {
    uint32_t first, count; // tiles of this matrix in the run
    uint64_t offset, stride;
} tile_walk;

static tile_walk walk_of(const md_layout *layout, uint32_t s, uint32_t m, uint32_t worker) {
    const md_stage_layout *stage = &layout->stage[s];
    const md_run *run = &layout->run[(size_t)s * layout->workers + worker];
    if (layout->plan->stage[s].kind == MD_STAGE_GATE_UP) {
        uint64_t stride = (uint64_t)stage->shape[0].tile_bytes + stage->shape[1].tile_bytes;
        return (tile_walk){run->first_item, run->item_count, run->offset + (m ? stage->shape[0].tile_bytes : 0),
                           stride};
    }
    uint32_t base = 0; // index of this matrix's first tile among the stage's items
    for (uint32_t i = 0; i < m; i++) base += stage->tiles[i];
    uint32_t from = run->first_item > base ? run->first_item - base : 0;
    uint32_t end = run->first_item + run->item_count > base ? run->first_item + run->item_count - base : 0;
    if (end > stage->tiles[m]) end = stage->tiles[m];
    if (from >= end) return (tile_walk){0};
    uint64_t offset = run->offset;
    uint32_t item = run->first_item;
    while (item < base + from) { // bytes of the earlier matrices' tiles in this run
        uint32_t matrix, tile;
        uint64_t bytes;
        md_layout_item(layout, s, item++, &matrix, &tile, &bytes);
        offset += bytes;
    }
    return (tile_walk){from, end - from, offset, stage->shape[m].tile_bytes};
}

// Rows of a matrix read in one go: [first, first + count).
typedef struct row_slab {
    uint8_t *weight, *scales, *biases; // owned
    uint32_t first, count;
} row_slab;

static void tile_rows_span(const md_row_map *map, uint32_t tile, uint32_t *low, uint32_t *high) {
    for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++) {
        int32_t row = md_row_map_row(map, tile, lane);
        if (row == MD_NO_ROW) continue;
        if ((uint32_t)row < *low) *low = (uint32_t)row;
        if ((uint32_t)row >= *high) *high = (uint32_t)row + 1;
    }
}

// How many tiles from `tile` on fit one slab, and the rows they span.
static uint32_t slab_tiles(const md_matrix *matrix, const md_row_map *map, uint32_t tile, uint32_t count,
                           row_slab *slab) {
    uint32_t low = UINT32_MAX, high = 0, taken = 0;
    while (taken < count) {
        uint32_t l = low, h = high;
        tile_rows_span(map, tile + taken, &l, &h);
        if (taken && (uint64_t)(h - l) * matrix->weight.row_bytes > SLAB_BYTES) break;
        low = l;
        high = h;
        taken++;
    }
    slab->first = low;
    slab->count = high - low;
    return taken;
}

static md_status read_part(const md_tensor *tensor, const row_slab *slab, uint8_t **buffer, md_error *err) {
    uint8_t *grown = realloc(*buffer, (size_t)(slab->count * tensor->row_bytes));
    if (!grown) return md_fail(err, MD_E_MEMORY, "%s: out of memory for %u rows", tensor->name, slab->count);
    *buffer = grown;
    return md_tensor_read(tensor, slab->first, slab->count, grown, err);
}

static md_status read_slab(const md_matrix *matrix, row_slab *slab, md_error *err) {
    MD_TRY(read_part(&matrix->weight, slab, &slab->weight, err));
    if (!matrix->bits) return MD_OK;
    MD_TRY(read_part(&matrix->scales, slab, &slab->scales, err));
    return read_part(&matrix->biases, slab, &slab->biases, err);
}

static void gather_rows(const md_matrix *matrix, const md_row_map *map, uint32_t tile, const row_slab *slab,
                        md_tile_rows *rows) {
    *rows = (md_tile_rows){.matrix = matrix};
    for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++) {
        int32_t row = md_row_map_row(map, tile, lane);
        if (row == MD_NO_ROW) continue;
        size_t at = (uint32_t)row - slab->first;
        rows->weight[lane] = slab->weight + at * matrix->weight.row_bytes;
        if (!matrix->bits) continue;
        rows->scales[lane] = slab->scales + at * matrix->scales.row_bytes;
        rows->biases[lane] = slab->biases + at * matrix->biases.row_bytes;
    }
}

static md_status pack_walk(const md_layout *layout, uint32_t s, uint32_t m, const tile_walk *walk, row_slab *slab,
                           uint8_t *arena, md_error *err) {
    const md_matrix *matrix = layout->plan->stage[s].matrix[m];
    const md_stage_layout *stage = &layout->stage[s];
    uint32_t done = 0;
    while (done < walk->count) {
        uint32_t tiles = slab_tiles(matrix, &stage->map[m], walk->first + done, walk->count - done, slab);
        MD_TRY(read_slab(matrix, slab, err));
        for (uint32_t t = 0; t < tiles; t++, done++) {
            md_tile_rows rows;
            gather_rows(matrix, &stage->map[m], walk->first + done, slab, &rows);
            layout->codec->pack(&stage->shape[m], &rows, arena + walk->offset + done * walk->stride);
        }
    }
    return MD_OK;
}

md_status md_pack_stage(const md_layout *layout, uint32_t s, uint32_t worker, uint8_t *arena, md_error *err) {
    row_slab slab = {0};
    md_status status = MD_OK;
    for (uint32_t m = 0; m < layout->plan->stage[s].matrix_count && status == MD_OK; m++) {
        tile_walk walk = walk_of(layout, s, m, worker);
        status = pack_walk(layout, s, m, &walk, &slab, arena, err);
    }
    free(slab.weight);
    free(slab.scales);
    free(slab.biases);
    return status;
}

md_status md_pack_worker(const md_layout *layout, uint32_t worker, uint8_t *arena, md_error *err) {
    for (uint32_t s = 0; s < layout->plan->stage_count; s++) MD_TRY(md_pack_stage(layout, s, worker, arena, err));
    return MD_OK;
}

void md_unpack_matrix(const md_layout *layout, uint32_t s, uint32_t m, const uint8_t *arena, uint8_t *weight,
                      uint8_t *scales, uint8_t *biases) {
    const md_matrix *matrix = layout->plan->stage[s].matrix[m];
    const md_stage_layout *stage = &layout->stage[s];
    for (uint32_t w = 0; w < layout->workers; w++) {
        tile_walk walk = walk_of(layout, s, m, w);
        for (uint32_t t = 0; t < walk.count; t++) {
            md_tile_rows_out rows = {.matrix = matrix};
            for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++) {
                int32_t row = md_row_map_row(&stage->map[m], walk.first + t, lane);
                if (row == MD_NO_ROW) continue;
                rows.weight[lane] = weight + (size_t)row * matrix->weight.row_bytes;
                if (!matrix->bits) continue;
                rows.scales[lane] = scales + (size_t)row * matrix->scales.row_bytes;
                rows.biases[lane] = biases + (size_t)row * matrix->biases.row_bytes;
            }
            layout->codec->unpack(&stage->shape[m], arena + walk.offset + t * walk.stride, &rows);
        }
    }
}
