// The layout table: which tiles each worker computes in each stage and where their bytes lie in the arena.
#include <stdlib.h>

#include "base/checked.h"
#include "plan/check.h"

uint32_t md_row_map_tiles(const md_row_map *map) {
    if (map->rope_dim == 0) return (uint32_t)md_ceil_div(map->rows, MD_TILE_ROWS);
    uint32_t heads = map->rows / map->rope_dim;
    return heads * (uint32_t)md_ceil_div(map->rope_dim / 2, MD_TILE_ROWS / 2);
}

int32_t md_row_map_row(const md_row_map *map, uint32_t tile, uint32_t lane) {
    if (map->rope_dim == 0) {
        uint32_t row = tile * MD_TILE_ROWS + lane;
        return row < map->rows ? (int32_t)row : MD_NO_ROW;
    }
    uint32_t half = map->rope_dim / 2, pairs = MD_TILE_ROWS / 2;
    uint32_t tiles_a_head = (uint32_t)md_ceil_div(half, pairs);
    uint32_t head = tile / tiles_a_head;
    uint32_t d = tile % tiles_a_head * pairs + lane % pairs;
    if (d >= half) return MD_NO_ROW;
    return (int32_t)(head * map->rope_dim + d + (lane < pairs ? 0 : half));
}

static void stage_layout(const md_layout *layout, const md_stage *stage, md_stage_layout *out) {
    for (uint32_t m = 0; m < stage->matrix_count; m++) {
        layout->codec->shape(stage->matrix[m], &out->shape[m]);
        bool rope = stage->kind == MD_STAGE_QKV && m < 2;
        out->map[m] =
            (md_row_map){.rows = stage->matrix[m]->rows, .rope_dim = rope ? layout->plan->snapshot->head_dim : 0};
        out->tiles[m] = md_row_map_tiles(&out->map[m]);
        // gate and up have equal rows, hence equal tiles: an item is the pair.
        out->items = stage->kind == MD_STAGE_GATE_UP ? out->tiles[0] : out->items + out->tiles[m];
    }
}

void md_layout_item(const md_layout *layout, uint32_t s, uint32_t item, uint32_t *matrix, uint32_t *tile,
                    uint64_t *bytes) {
    const md_stage_layout *stage = &layout->stage[s];
    uint32_t m = 0;
    if (layout->plan->stage[s].kind == MD_STAGE_GATE_UP) {
        *bytes = (uint64_t)stage->shape[0].tile_bytes + stage->shape[1].tile_bytes;
    } else {
        while (item >= stage->tiles[m]) item -= stage->tiles[m++];
        *bytes = stage->shape[m].tile_bytes;
    }
    *matrix = m;
    *tile = item;
}

// Cuts a stage's items into `workers` contiguous ranges of about equal bytes: range w has the items whose middle
// lies in [w, w + 1) * total / workers.
static void split_stage(md_layout *layout, uint32_t s) {
    md_run *run = &layout->run[(size_t)s * layout->workers];
    uint32_t items = layout->stage[s].items, matrix, tile, w = 0;
    uint64_t total = 0, at = 0, bytes;
    for (uint32_t i = 0; i < items; i++) {
        md_layout_item(layout, s, i, &matrix, &tile, &bytes);
        total += bytes;
    }
    for (uint32_t i = 0; i < items; i++) {
        md_layout_item(layout, s, i, &matrix, &tile, &bytes);
        // The middle of an item decides, so that ranges differ by at most one item.
        while (w + 1 < layout->workers && (at + bytes / 2) * layout->workers >= total * (w + 1)) w++;
        if (run[w].item_count == 0) run[w].first_item = i;
        run[w].item_count++;
        run[w].bytes += bytes;
        at += bytes;
    }
}

typedef struct ranked {
    uint32_t late; // greater: later in any case
    uint64_t bytes;
    uint32_t index;
} ranked;

static int by_bytes(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->late != y->late) return x->late < y->late ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

// Deals a stage's ranges out again: the longest to the worker that has read the least of late. With more workers than
// tiles somebody gets one tile more than the others in every stage; were it always the same, its stream would decide
// the token's time. What lies further back counts less, since a GPU's ring holds about one layer. `load`: each worker's
// bytes so far, halved from stage to stage. The first `attending` workers have the first sequence's attention to do
// between QKV and OUT, and are late for it and behind it: they are given the shorter ranges of both. `scratch`: 2 *
// workers.
static void deal_runs(md_layout *layout, uint32_t s, uint32_t attending, uint64_t *load, ranked *scratch,
                      md_run *copy) {
    uint32_t workers = layout->workers;
    const md_stage_kind kind = layout->plan->stage[s].kind;
    const bool attends = kind == MD_STAGE_QKV || kind == MD_STAGE_OUT;
    md_run *run = &layout->run[(size_t)s * workers];
    ranked *range = scratch, *worker = scratch + workers;
    for (uint32_t w = 0; w < workers; w++) {
        copy[w] = run[w];
        range[w] = (ranked){0, UINT64_MAX - run[w].bytes, w}; // the longest first
        worker[w] = (ranked){attends && w < attending ? attending - w : 0, load[w], w};
    }
    qsort(range, workers, sizeof *range, by_bytes);
    qsort(worker, workers, sizeof *worker, by_bytes);
    for (uint32_t i = 0; i < workers; i++) {
        uint32_t w = worker[i].index;
        run[w] = copy[range[i].index];
        load[w] = load[w] / 2 + run[w].bytes;
    }
}

// How many workers have less of OUT than others: of its ranges, which lie in the order of workers before they are dealt
// out. There is no use in sparing more: block b of key/value head h is worker b * heads + h's (kernels/attention.cuh).
static uint32_t attending_workers(const md_layout *layout) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < layout->plan->stage_count; s++) {
        if (layout->plan->stage[s].kind != MD_STAGE_OUT) continue;
        const md_run *run = &layout->run[(size_t)s * layout->workers];
        uint32_t most = 0;
        for (uint32_t w = 0; w < layout->workers; w++) most = run[w].item_count > most ? run[w].item_count : most;
        for (uint32_t w = 0; w < layout->workers; w++) count += run[w].item_count < most;
        break; // all layers' have the same number of items
    }
    return count;
}

// Cuts all stages and deals them out.
static md_status split_stages(md_layout *layout, md_error *err) {
    uint32_t workers = layout->workers;
    uint64_t *load = calloc(workers, sizeof *load);
    ranked *scratch = calloc(2 * (size_t)workers, sizeof *scratch);
    md_run *copy = calloc(workers, sizeof *copy);
    md_status status = MD_OK;
    if (load && scratch && copy) {
        for (uint32_t s = 0; s < layout->plan->stage_count; s++) {
            stage_layout(layout, &layout->plan->stage[s], &layout->stage[s]);
            split_stage(layout, s);
        }
        const uint32_t attending = attending_workers(layout);
        for (uint32_t s = 0; s < layout->plan->stage_count; s++) deal_runs(layout, s, attending, load, scratch, copy);
    } else {
        status = md_fail(err, MD_E_MEMORY, "out of memory for a layout table of %u workers", workers);
    }
    free(load);
    free(scratch);
    free(copy);
    return status;
}

static void place_runs(md_layout *layout) {
    uint64_t at = 0, total = 0;
    size_t runs = (size_t)layout->plan->stage_count * layout->workers;
    for (size_t i = 0; i < runs; i++) total += layout->run[i].bytes;
    const uint64_t huge = 2u << 20;
    uint64_t align = total / layout->workers >= 8 * huge ? huge : 4096;
    for (uint32_t w = 0; w < layout->workers; w++) {
        layout->worker_offset[w] = at;
        for (uint32_t s = 0; s < layout->plan->stage_count; s++) {
            md_run *run = &layout->run[(size_t)s * layout->workers + w];
            run->offset = at;
            at += run->bytes;
        }
        layout->worker_bytes[w] = at - layout->worker_offset[w];
        at = md_round_up(at, align);
    }
    layout->arena_bytes = at;
}

md_status md_layout_build(const md_plan *plan, const md_tile_codec *codec, uint32_t workers, md_layout **out,
                          md_error *err) {
    *out = NULL;
    if (workers < 1 || workers > MD_MAX_WORKERS)
        return md_fail(err, MD_E_USAGE, "%u workers, expected 1 to %d", workers, MD_MAX_WORKERS);
    MD_TRY(md_plan_check(plan, err));
    md_layout *layout = calloc(1, sizeof *layout);
    if (!layout) return md_fail(err, MD_E_MEMORY, "out of memory for the layout table");
    layout->plan = plan;
    layout->codec = codec;
    layout->workers = workers;
    layout->stage = calloc(plan->stage_count, sizeof *layout->stage);
    layout->run = calloc((size_t)plan->stage_count * workers, sizeof *layout->run);
    layout->worker_offset = calloc(workers, sizeof *layout->worker_offset);
    layout->worker_bytes = calloc(workers, sizeof *layout->worker_bytes);
    if (!layout->stage || !layout->run || !layout->worker_offset || !layout->worker_bytes) {
        md_layout_free(layout);
        return md_fail(err, MD_E_MEMORY, "out of memory for a layout table of %u stages and %u workers",
                       plan->stage_count, workers);
    }
    md_status status = split_stages(layout, err);
    if (status == MD_OK) {
        place_runs(layout);
        status = md_layout_check(layout, plan, codec, workers, err);
    }
    if (status == MD_OK)
        *out = layout;
    else
        md_layout_free(layout);
    return status;
}

void md_layout_free(md_layout *layout) {
    if (!layout) return;
    free(layout->stage);
    free(layout->run);
    free(layout->worker_offset);
    free(layout->worker_bytes);
    free(layout);
}
