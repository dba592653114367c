// The stages that multiply by matrices: bring the inputs into the kernels' form, walk this worker's run of the arena
// once for all columns, finish each tile in its epilogue.
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/checked.h"

// Bytes of weights to prefetch ahead when several columns share a tile: the walk is then too slow for the hardware's
// prefetchers to look far enough. A single column's walk is fast and strictly sequential; there prefetching in software
// only costs (docs/SPEED.md).
enum { PREFETCH_BYTES = 2048 };

typedef struct stage_input {
    const uint16_t *rows; // [count][stride] bf16
    size_t stride;
    uint32_t cols, count;
    const uint32_t *columns; // the step's column behind each row; NULL: row i is column i
} stage_input;

static uint32_t column_of(const stage_input *in, uint32_t i) { return in->columns ? in->columns[i] : i; }

static stage_input find_input(md_cpu_engine *e, const md_stage *stage) {
    const md_snapshot *model = e->base.snapshot;
    stage_input in = {.rows = e->x, .stride = e->hidden_stride, .cols = model->hidden, .count = e->count};
    if (stage->kind == MD_STAGE_OUT) {
        in.rows = e->attn;
        in.stride = e->q_stride;
        in.cols = model->q_heads * model->head_dim;
    } else if (stage->kind == MD_STAGE_DOWN) {
        in.rows = e->act;
        in.stride = e->ffn_stride;
        in.cols = model->ffn;
    } else if (stage->kind == MD_STAGE_HEAD) {
        in.count = e->wanted_count;
        in.columns = e->wanted;
    }
    return in;
}

static bool is_quantized(const md_tile_shape *shape) { return shape->cell == MD_CELL_Q4 || shape->cell == MD_CELL_Q8; }

static size_t act_bytes(const md_cpu_engine *e, uint32_t columns, uint32_t cols) {
    return (size_t)columns * (cols + 1) / 2 * 2 * (e->k->act == MD_ACT_PAIRS ? 2 : 4);
}

// The rows of a stage in the kernels' forms: a block of columns after the other.
typedef struct prepared {
    uint8_t *x;   // for unquantized matrices; NULL where the stage has none
    md_ints ints; // for codes; x NULL likewise
} prepared;

static prepared first_block(const md_cpu_engine *e, uint32_t s, const md_cpu_scratch *scratch) {
    prepared block = {0};
    for (uint32_t m = 0; m < e->base.plan->stage[s].matrix_count; m++) {
        if (is_quantized(&e->layout->stage[s].shape[m]))
            block.ints = scratch->ints;
        else
            block.x = scratch->x;
    }
    return block;
}

static void next_block(const md_cpu_engine *e, prepared *block, uint32_t columns, uint32_t cols) {
    if (block->x) block->x += md_round_up(act_bytes(e, columns, cols), 64);
    if (!block->ints.x) return;
    block->ints.x = (uint8_t *)block->ints.x + (size_t)columns * cols * 2;
    block->ints.unit += columns * md_ceil_div(cols, 64);
    block->ints.sums += columns * (cols / 32);
}

// X_g of matrix m's groups, or those of an earlier matrix with the same groups.
static const float *group_sums(const md_cpu_engine *e, uint32_t s, uint32_t m, const prepared *block, uint32_t first,
                               uint32_t columns, const md_cpu_scratch *scratch) {
    const md_tile_shape *shape = e->layout->stage[s].shape;
    for (uint32_t before = 0; before <= m; before++) {
        if (!is_quantized(&shape[before]) || shape[before].group != shape[m].group) continue;
        float *sums = scratch->sums[before] + (size_t)first * shape[m].chunks;
        if (before == m) e->k->act_sums(&block->ints, columns, shape[m].cols, shape[m].group, sums);
        return sums;
    }
    return NULL; // not quantized
}

// Fills dots[matrix][block of columns].
static void prepare(md_cpu_engine *e, uint32_t s, const stage_input *in, md_cpu_scratch *scratch,
                    md_dot dots[3][MD_CPU_MAX_COLUMNS / MD_ACT_BLOCK]) {
    const md_stage *stage = &e->base.plan->stage[s];
    const uint16_t *rows = in->rows;
    if (stage->norm) {
        for (uint32_t i = 0; i < in->count; i++)
            e->k->rmsnorm(in->rows + column_of(in, i) * in->stride, e->stage[s].norm, in->cols,
                          e->base.snapshot->norm_eps, scratch->rows + i * in->stride);
        rows = scratch->rows;
    }
    prepared block = first_block(e, s, scratch);
    for (uint32_t b = 0; b * MD_ACT_BLOCK < in->count; b++) {
        uint32_t first = b * MD_ACT_BLOCK, columns = in->count - first;
        if (columns > MD_ACT_BLOCK) columns = MD_ACT_BLOCK;
        const uint16_t *from = rows + first * in->stride;
        if (block.x) e->k->act_pack(from, in->stride, columns, in->cols, block.x);
        if (block.ints.x) e->k->act_ints(from, in->stride, columns, in->cols, &block.ints);
        for (uint32_t m = 0; m < stage->matrix_count; m++) {
            const md_tile_shape *shape = &e->layout->stage[s].shape[m];
            dots[m][b] = (md_dot){.cols = shape->cols,
                                  .group = shape->group,
                                  .chunks = shape->chunks,
                                  .chunk_bytes = shape->chunk_bytes,
                                  .columns = columns,
                                  .prefetch = b == 0 && columns > 1 ? PREFETCH_BYTES : 0,
                                  .x = is_quantized(shape) ? block.ints.x : block.x,
                                  .unit = block.ints.unit,
                                  .sums = group_sums(e, s, m, &block, first, columns, scratch)};
        }
        next_block(e, &block, columns, in->cols);
    }
}

static void finish_rope(md_cpu_engine *e, uint32_t column, uint32_t tile, const float *t, const float *bias,
                        uint16_t *row) {
    uint32_t head_dim = e->base.snapshot->head_dim, half = head_dim / 2, tiles = (half + 7) / 8;
    uint32_t head = tile / tiles, d = tile % tiles * 8, count = half - d < 8 ? half - d : 8;
    const float *cosine = e->cosine + (size_t)column * e->half_stride + d;
    const float *sine = e->sine + (size_t)column * e->half_stride + d;
    uint16_t y[16], *to = row + (size_t)head * head_dim + d;
    e->k->rope(t, bias, cosine, sine, y);
    memcpy(to, y, count * sizeof *y);
    memcpy(to + half, y + 8, count * sizeof *y);
}

static void finish_tile(md_cpu_engine *e, md_stage_kind kind, uint32_t matrix, uint32_t tile, uint32_t column,
                        const float *t, const float *bias) {
    size_t at = (size_t)tile * MD_TILE_ROWS;
    switch (kind) {
    case MD_STAGE_QKV:
        if (matrix == 0)
            finish_rope(e, column, tile, t, bias, e->q + (size_t)column * e->q_stride);
        else if (matrix == 1)
            finish_rope(e, column, tile, t, bias, e->key + (size_t)column * e->kv_stride);
        else
            e->k->store(t, bias, e->value + (size_t)column * e->kv_stride + at);
        break;
    case MD_STAGE_HEAD: e->k->store(t, bias, e->logits + (size_t)column * e->vocab_stride + at); break;
    default: e->k->residual(t, bias, e->x + (size_t)column * e->hidden_stride + at); break;
    }
}

static const float *tile_bias(const md_cpu_engine *e, uint32_t s, uint32_t matrix, uint32_t tile) {
    const float *bias = e->stage[s].bias[matrix];
    return bias ? bias + (size_t)tile * MD_TILE_ROWS : NULL;
}

static void walk_pairs(md_cpu_engine *e, uint32_t s, const md_run *run, const stage_input *in, md_cpu_scratch *scratch,
                       md_dot dots[3][MD_CPU_MAX_COLUMNS / MD_ACT_BLOCK]) {
    const md_tile_shape *shape = e->layout->stage[s].shape;
    md_dot_fn gate = e->k->dot[shape[0].cell][shape[0].wide_scales],
              up = e->k->dot[shape[1].cell][shape[1].wide_scales];
    const uint8_t *at = e->arena.at + run->offset;
    for (uint32_t tile = run->first_item; tile < run->first_item + run->item_count; tile++) {
        const float *gate_bias = tile_bias(e, s, 0, tile), *up_bias = tile_bias(e, s, 1, tile);
        for (uint32_t b = 0; b * MD_ACT_BLOCK < in->count; b++) {
            gate(&dots[0][b], at, scratch->out[0]);
            up(&dots[1][b], at + shape[0].tile_bytes, scratch->out[1]);
            for (uint32_t i = 0; i < dots[0][b].columns; i++)
                e->k->swiglu(scratch->out[0] + i * 16, gate_bias, scratch->out[1] + i * 16, up_bias,
                             e->act + (size_t)(b * MD_ACT_BLOCK + i) * e->ffn_stride + (size_t)tile * MD_TILE_ROWS);
        }
        at += (size_t)shape[0].tile_bytes + shape[1].tile_bytes;
    }
}

static void walk_tiles(md_cpu_engine *e, uint32_t s, const md_run *run, const stage_input *in, md_cpu_scratch *scratch,
                       md_dot dots[3][MD_CPU_MAX_COLUMNS / MD_ACT_BLOCK]) {
    const md_stage *stage = &e->base.plan->stage[s];
    const md_stage_layout *layout = &e->layout->stage[s];
    const uint8_t *at = e->arena.at + run->offset;
    uint32_t m = 0, tile = run->first_item;
    for (uint32_t n = 0; n < run->item_count; n++, tile++) {
        while (tile >= layout->tiles[m]) tile -= layout->tiles[m++];
        const md_tile_shape *shape = &layout->shape[m];
        md_dot_fn dot = e->k->dot[shape->cell][shape->wide_scales];
        const float *bias = tile_bias(e, s, m, tile);
        for (uint32_t b = 0; b * MD_ACT_BLOCK < in->count; b++) {
            dot(&dots[m][b], at, scratch->out[0]);
            for (uint32_t i = 0; i < dots[m][b].columns; i++)
                finish_tile(e, stage->kind, m, tile, column_of(in, b * MD_ACT_BLOCK + i), scratch->out[0] + i * 16,
                            bias);
        }
        at += shape->tile_bytes;
    }
}

static void run_matrices(md_cpu_engine *e, uint32_t s, uint32_t worker) {
    const md_stage *stage = &e->base.plan->stage[s];
    const md_run *run = &e->layout->run[(size_t)s * e->workers + worker];
    if (run->item_count == 0) return;
    md_cpu_scratch *scratch = &e->scratch[worker];
    stage_input in = find_input(e, stage);
    md_dot dots[3][MD_CPU_MAX_COLUMNS / MD_ACT_BLOCK];
    prepare(e, s, &in, scratch, dots);
    if (stage->kind == MD_STAGE_GATE_UP)
        walk_pairs(e, s, run, &in, scratch, dots);
    else
        walk_tiles(e, s, run, &in, scratch, dots);
}

void md_cpu_run_stage(md_cpu_engine *e, uint32_t s, uint32_t worker) {
    const md_stage *stage = &e->base.plan->stage[s];
    uint32_t layer = (uint32_t)stage->layer;
    switch (stage->kind) {
    case MD_STAGE_ATTN_SCORES: md_cpu_attention_scores(e, layer, worker); break;
    case MD_STAGE_ATTN: md_cpu_attention(e, layer, worker); break;
    case MD_STAGE_ATTN_MERGE: md_cpu_attention_merge(e, layer, worker); break;
    default: run_matrices(e, s, worker); break;
    }
}
