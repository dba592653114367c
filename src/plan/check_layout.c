// The layout table against the plan: rows in tiles, tiles in runs, runs in the arena.
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "plan/check.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, LANE_BYTES = 64 };

typedef struct checker {
    const md_layout *layout;
    const md_plan *plan;
    md_row_map proven[MD_STAGE_KIND_COUNT][3]; // the row map that was proven last for a kind's matrix
    uint8_t *seen;                             // [seen_size] a mark for each row or item
    uint32_t seen_size;
    md_error *err;
} checker;

static md_status wrong(const checker *c, uint32_t s, const char *field, uint32_t index, uint64_t found,
                       uint64_t expected) {
    const md_stage *stage = &c->plan->stage[s];
    return md_fail(c->err, MD_E_INTERNAL, "layout: stage %u (%s of layer %d): %s %u: found %llu, expected %llu", s,
                   md_stage_name(stage->kind), (int)stage->layer, field, index, (unsigned long long)found,
                   (unsigned long long)expected);
}

static md_status make_room(checker *c, uint32_t marks) {
    if (c->seen && c->seen_size >= marks) return MD_OK;
    free(c->seen);
    c->seen_size = marks;
    c->seen = malloc(marks + 1ull); // one at least: attention has no items
    return c->seen ? MD_OK : md_fail(c->err, MD_E_MEMORY, "layout: out of memory for the check of %u rows", marks);
}

// ---- rows in tiles -----------------------------------------------------------------------------------------------

// Every row of the matrix lies in exactly one lane of one tile.
static md_status prove_map(checker *c, uint32_t s, uint32_t m) {
    const md_row_map *map = &c->layout->stage[s].map[m];
    md_row_map *proven = &c->proven[c->plan->stage[s].kind][m];
    if (proven->rows == map->rows && proven->rope_dim == map->rope_dim) return MD_OK;
    MD_TRY(make_room(c, map->rows));
    memset(c->seen, 0, map->rows);
    uint32_t rows = 0;
    for (uint32_t tile = 0; tile < c->layout->stage[s].tiles[m]; tile++)
        for (uint32_t lane = 0; lane < MD_TILE_ROWS; lane++) {
            int32_t row = md_row_map_row(map, tile, lane);
            if (row == MD_NO_ROW) continue;
            if (row < 0 || (uint32_t)row >= map->rows)
                return wrong(c, s, "map: a row of matrix", m, (uint64_t)row, map->rows - 1);
            if (c->seen[row]++) return wrong(c, s, "map: times a row is in tiles of matrix", m, 2, 1);
            rows++;
        }
    if (rows != map->rows) return wrong(c, s, "map: rows in tiles of matrix", m, rows, map->rows);
    *proven = *map;
    return MD_OK;
}

// The tile's shape is the codec's for this matrix, has room for what it holds, and keeps the next tile aligned.
static md_status check_tile(const checker *c, uint32_t s, uint32_t m) {
    const md_tile_shape *found = &c->layout->stage[s].shape[m];
    const md_matrix *matrix = c->plan->stage[s].matrix[m];
    md_tile_shape expected;
    c->layout->codec->shape(matrix, &expected);
    if (found->cell != expected.cell) return wrong(c, s, "shape.cell", m, found->cell, expected.cell);
    if (found->wide_scales != expected.wide_scales)
        return wrong(c, s, "shape.wide_scales", m, found->wide_scales, expected.wide_scales);
    if (found->cols != matrix->cols || expected.cols != matrix->cols)
        return wrong(c, s, "shape.cols", m, found->cols, matrix->cols);
    if (found->group != expected.group) return wrong(c, s, "shape.group", m, found->group, expected.group);
    if (found->chunks != expected.chunks) return wrong(c, s, "shape.chunks", m, found->chunks, expected.chunks);
    if (found->chunk_bytes != expected.chunk_bytes)
        return wrong(c, s, "shape.chunk_bytes", m, found->chunk_bytes, expected.chunk_bytes);
    uint64_t bytes = (uint64_t)found->chunks * found->chunk_bytes;
    if (found->tile_bytes != bytes) return wrong(c, s, "shape.tile_bytes", m, found->tile_bytes, bytes);
    uint64_t held = matrix->weight.row_bytes + (matrix->bits ? matrix->scales.row_bytes + matrix->biases.row_bytes : 0);
    if (bytes < MD_TILE_ROWS * held || bytes % LANE_BYTES)
        return wrong(c, s, "shape.tile_bytes", m, bytes, md_round_up(MD_TILE_ROWS * held, LANE_BYTES));
    return MD_OK;
}

static bool is_zero(const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((const uint8_t *)bytes)[i]) return false;
    return true;
}

static md_status check_matrix(checker *c, uint32_t s, uint32_t m) {
    const md_stage *stage = &c->plan->stage[s];
    const md_stage_layout *found = &c->layout->stage[s];
    bool rope = stage->kind == MD_STAGE_QKV && m < 2;
    uint32_t dim = rope ? c->plan->snapshot->head_dim : 0;
    MD_TRY(check_tile(c, s, m));
    if (found->map[m].rows != stage->matrix[m]->rows)
        return wrong(c, s, "map.rows", m, found->map[m].rows, stage->matrix[m]->rows);
    if (found->map[m].rope_dim != dim) return wrong(c, s, "map.rope_dim", m, found->map[m].rope_dim, dim);
    uint32_t tiles = md_row_map_tiles(&found->map[m]);
    if (found->tiles[m] != tiles) return wrong(c, s, "tiles", m, found->tiles[m], tiles);
    return prove_map(c, s, m);
}

static md_status check_stage(checker *c, uint32_t s) {
    const md_stage *stage = &c->plan->stage[s];
    const md_stage_layout *found = &c->layout->stage[s];
    uint64_t items = 0;
    for (uint32_t m = 0; m < 3; m++) {
        if (m < stage->matrix_count) {
            MD_TRY(check_matrix(c, s, m));
            items += found->tiles[m];
        } else if (found->tiles[m] || !is_zero(&found->map[m], sizeof found->map[m]) ||
                   !is_zero(&found->shape[m], sizeof found->shape[m])) {
            return wrong(c, s, "matrices: an entry for matrix", m, 1, 0);
        }
    }
    if (stage->kind == MD_STAGE_GATE_UP) {
        if (found->tiles[1] != found->tiles[0]) return wrong(c, s, "tiles", 1, found->tiles[1], found->tiles[0]);
        items = found->tiles[0]; // an item is a pair
    }
    return found->items == items ? MD_OK : wrong(c, s, "items of stage", s, found->items, items);
}

// ---- tiles in runs -----------------------------------------------------------------------------------------------

// Bytes of the stage's items [0, n).
static uint64_t bytes_before(const checker *c, uint32_t s, uint32_t n) {
    const md_stage_layout *stage = &c->layout->stage[s];
    uint64_t bytes = 0;
    if (c->plan->stage[s].kind == MD_STAGE_GATE_UP)
        return (uint64_t)n * ((uint64_t)stage->shape[0].tile_bytes + stage->shape[1].tile_bytes);
    for (uint32_t m = 0; m < 3; m++) {
        uint32_t tiles = n < stage->tiles[m] ? n : stage->tiles[m];
        bytes += (uint64_t)tiles * stage->shape[m].tile_bytes;
        n -= tiles;
    }
    return bytes;
}

// The workers' runs are the stage's items, each once.
static md_status check_runs(checker *c, uint32_t s) {
    uint32_t count = 0, items = c->layout->stage[s].items;
    MD_TRY(make_room(c, items));
    memset(c->seen, 0, items);
    for (uint32_t w = 0; w < c->layout->workers; w++) {
        const md_run *run = &c->layout->run[(size_t)s * c->layout->workers + w];
        uint32_t first = run->first_item;
        if (run->item_count > items) return wrong(c, s, "item_count of worker", w, run->item_count, items);
        if (first > (run->item_count ? items - 1 : 0))
            return wrong(c, s, "first_item of worker", w, first, run->item_count ? items - 1 : 0);
        if (run->item_count > items - first)
            return wrong(c, s, "item_count of worker", w, run->item_count, items - first);
        for (uint32_t i = first; i < first + run->item_count; i++)
            if (c->seen[i]++) return wrong(c, s, "times an item is in runs, last of worker", w, 2, 1);
        uint64_t bytes = bytes_before(c, s, first + run->item_count) - bytes_before(c, s, first);
        if (run->bytes != bytes) return wrong(c, s, "bytes of worker", w, run->bytes, bytes);
        count += run->item_count;
    }
    return count == items ? MD_OK : wrong(c, s, "items in runs of stage", s, count, items);
}

// ---- runs in the arena -------------------------------------------------------------------------------------------

static md_status check_worker(const checker *c, uint32_t w, uint64_t *end) {
    const md_layout *layout = c->layout;
    uint64_t at = layout->worker_offset[w];
    if (at < *end || at - *end >= HUGE_PAGE || at % PAGE)
        return md_fail(c->err, MD_E_INTERNAL,
                       "layout: worker_offset %u: found %llu, expected a multiple of %d, at or shortly after %llu", w,
                       (unsigned long long)at, PAGE, (unsigned long long)*end);
    for (uint32_t s = 0; s < c->plan->stage_count; s++) {
        const md_run *run = &layout->run[(size_t)s * layout->workers + w];
        if (run->offset != at) return wrong(c, s, "offset of worker", w, run->offset, at);
        at += run->bytes;
    }
    if (layout->worker_bytes[w] != at - layout->worker_offset[w])
        return md_fail(c->err, MD_E_INTERNAL, "layout: worker_bytes %u: found %llu, expected %llu", w,
                       (unsigned long long)layout->worker_bytes[w],
                       (unsigned long long)(at - layout->worker_offset[w]));
    *end = at;
    return MD_OK;
}

static md_status check_arena(const checker *c) {
    uint64_t end = 0, arena = c->layout->arena_bytes;
    for (uint32_t w = 0; w < c->layout->workers; w++) MD_TRY(check_worker(c, w, &end));
    if (arena >= end && arena - end < HUGE_PAGE && arena % PAGE == 0) return MD_OK;
    return md_fail(c->err, MD_E_INTERNAL,
                   "layout: arena_bytes: found %llu, expected a multiple of %d, at or shortly after %llu",
                   (unsigned long long)arena, PAGE, (unsigned long long)end);
}

static md_status check_asked(const md_layout *layout, const md_plan *plan, const md_tile_codec *codec, uint32_t workers,
                             md_error *err) {
    if (layout->plan != plan)
        return md_fail(err, MD_E_INTERNAL, "layout: plan: found another one, expected the given one");
    if (layout->codec != codec)
        return md_fail(err, MD_E_INTERNAL, "layout: codec: found another one, expected %s", codec->name);
    if (layout->workers != workers)
        return md_fail(err, MD_E_INTERNAL, "layout: workers: found %u, expected %u", layout->workers, workers);
    if (layout->stage && layout->run && layout->worker_offset && layout->worker_bytes) return MD_OK;
    return md_fail(err, MD_E_INTERNAL,
                   "layout: stage, run, worker_offset or worker_bytes: found none, expected a table");
}

md_status md_layout_check(const md_layout *layout, const md_plan *plan, const md_tile_codec *codec, uint32_t workers,
                          md_error *err) {
    MD_TRY(check_asked(layout, plan, codec, workers, err));
    checker c = {.layout = layout, .plan = plan, .err = err};
    md_status status = MD_OK;
    for (uint32_t s = 0; s < plan->stage_count && status == MD_OK; s++) {
        status = check_stage(&c, s);
        if (status == MD_OK) status = check_runs(&c, s);
    }
    free(c.seen);
    return status == MD_OK ? check_arena(&c) : status;
}
