// Attention, split over units: (sequence, KV head, block of 128 positions), each computed by one worker for all columns
// of the sequence. The worker that has a block also appends the step's keys and values that lie in it, so nobody reads
// an entry that somebody else is writing.
//
// A sequence whose columns see one block only is finished by its unit. Longer ones leave m and l of each block in the
// statistics and o in the partials; the merge combines them in ascending order. For a quantized layer the scores come
// one stage earlier, since its probabilities are rounded and so need the maximum and the sum over all blocks. A worker
// has the same units in both stages: the exponentials it reads are those it wrote.
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/bf16.h"
#include "base/checked.h"
#include "base/mathx.h"

typedef struct unit {
    const md_cpu_sequence *sequence;
    const md_cpu_kv_layer *layer;
    uint32_t kv_head, block;
} unit;

// What one column sees of a unit.
typedef struct view {
    const unit *u;
    uint32_t column, positions;
    bool only; // the sequence has no other block
} view;

typedef void (*view_fn)(md_cpu_engine *e, const view *v, md_cpu_scratch *scratch);

static uint32_t group_heads(const md_cpu_engine *e) { return e->base.snapshot->q_heads / e->base.snapshot->kv_heads; }
static uint32_t block_cap(const md_cpu_engine *e) { return (uint32_t)md_ceil_div(e->context, MD_ATTN_BLOCK); }
static uint32_t statistics_stride(const md_cpu_engine *e) { return (uint32_t)md_round_up(block_cap(e), 16); }

// Number of (column, KV head, block).
static uint64_t unit_index(const md_cpu_engine *e, uint32_t column, uint32_t kv_head, uint32_t block) {
    return ((uint64_t)column * e->base.snapshot->kv_heads + kv_head) * block_cap(e) + block;
}

// o[group heads][dim] of a unit's column.
static float *partial(const md_cpu_engine *e, uint32_t column, uint32_t kv_head, uint32_t block) {
    return (float *)(void *)e->partials.at + unit_index(e, column, kv_head, block) * group_heads(e) * e->dim;
}

// Exponentials [group heads][128] of a unit's column.
static float *unit_scores(const md_cpu_engine *e, uint32_t column, uint32_t kv_head, uint32_t block) {
    return (float *)(void *)e->scores.at + unit_index(e, column, kv_head, block) * group_heads(e) * MD_ATTN_BLOCK;
}

// m of every block of (column, query head); l follows a stride later.
static float *statistics(const md_cpu_engine *e, uint32_t column, uint32_t head) {
    return (float *)(void *)e->statistics.at +
           ((uint64_t)column * e->base.snapshot->q_heads + head) * 2 * statistics_stride(e);
}

md_status md_cpu_attention_reserve(md_cpu_engine *e, uint32_t context, md_error *err) {
    if (context <= e->context) return MD_OK;
    const uint64_t blocks = md_ceil_div(context, MD_ATTN_BLOCK), stride = md_round_up(blocks, 16);
    const uint64_t rows = (uint64_t)MD_CPU_MAX_COLUMNS * e->base.snapshot->q_heads;
    md_pages *const pages[] = {&e->partials, &e->scores, &e->statistics, &e->weights};
    const uint64_t floats[] = {rows * blocks * e->dim, rows * blocks * MD_ATTN_BLOCK, rows * 2 * stride,
                               e->workers * stride};
    enum { COUNT = sizeof pages / sizeof *pages };
    md_pages fresh[COUNT] = {{0}};
    md_status status = MD_OK;
    for (int i = 0; i < COUNT && status == MD_OK; i++)
        status = md_pages_alloc(&fresh[i], floats[i] * sizeof(float), false, "attention scratch", err);
    for (int i = 0; i < COUNT; i++) {
        md_pages_free(status == MD_OK ? pages[i] : &fresh[i]);
        if (status == MD_OK) *pages[i] = fresh[i];
    }
    if (status == MD_OK) e->context = context;
    return status;
}

// Positions of a block that a column sees.
static uint32_t visible(const md_cpu_sequence *sequence, uint32_t c, uint32_t block) {
    uint32_t end = sequence->position + c + 1, first = block * MD_ATTN_BLOCK;
    return end <= first ? 0 : end - first < MD_ATTN_BLOCK ? end - first : MD_ATTN_BLOCK;
}

static void append(md_cpu_engine *e, const unit *u) {
    const md_cpu_sequence *sequence = u->sequence;
    uint32_t head_dim = e->base.snapshot->head_dim;
    for (uint32_t c = 0; c < sequence->count; c++) {
        uint32_t position = sequence->position + c;
        if (position / MD_ATTN_BLOCK != u->block) continue;
        size_t at = (size_t)(sequence->first + c) * e->kv_stride + (size_t)u->kv_head * head_dim;
        md_cpu_kv_append(u->layer, u->kv_head, position, e->key + at, e->value + at);
    }
}

static size_t queries_bytes(const md_cpu_engine *e, uint32_t heads) {
    uint32_t even = (e->base.snapshot->head_dim + 1) / 2 * 2;
    return md_round_up((uint64_t)heads * even * (e->k->act == MD_ACT_PAIRS ? 2 : 4), 64);
}

// Queries as integers live where group sums and activations of other stages do.
static md_queries integers(const md_cpu_scratch *scratch) {
    return (md_queries){.x = scratch->x, .unit = scratch->sums[0], .sums = scratch->sums[1]};
}

// One column's queries of the unit's KV head into scratch->x: in blocks of 8 heads, or as integers. They stay there for
// the next blocks.
static void pack_queries(md_cpu_engine *e, const view *v, md_cpu_scratch *scratch) {
    const md_cpu_kv_shape *shape = &v->u->layer->shape;
    uint32_t head_dim = e->base.snapshot->head_dim, heads = group_heads(e);
    if (scratch->packed_column == v->column && scratch->packed_kv_head == v->u->kv_head) return;
    scratch->packed_column = v->column;
    scratch->packed_kv_head = v->u->kv_head;
    const uint16_t *rows = e->q + (size_t)v->column * e->q_stride + (size_t)v->u->kv_head * heads * head_dim;
    if (shape->format.bits) {
        float factor = md_bf16_round((float)(1.0 / sqrt((double)head_dim)));
        md_queries to = integers(scratch);
        e->k->query_ints(rows, factor, heads, head_dim, shape->group, &to);
        return;
    }
    uint8_t *x = scratch->x;
    for (uint32_t h = 0; h < heads; h += MD_ACT_BLOCK) {
        uint32_t columns = heads - h < MD_ACT_BLOCK ? heads - h : MD_ACT_BLOCK;
        e->k->act_pack(rows + (size_t)h * head_dim, head_dim, columns, head_dim, x);
        x += queries_bytes(e, columns);
    }
}

// scores[head][128]: the unit's block against the column's queries.
static void scores_bf16(md_cpu_engine *e, const view *v, float *scores, const md_cpu_scratch *scratch) {
    const md_cpu_kv_shape *shape = &v->u->layer->shape;
    uint32_t head_dim = e->base.snapshot->head_dim, heads = group_heads(e);
    float factor = (float)(1.0 / sqrt((double)head_dim));
    const uint8_t *x = scratch->x;
    for (uint32_t h = 0; h < heads; h += MD_ACT_BLOCK) {
        uint32_t columns = heads - h < MD_ACT_BLOCK ? heads - h : MD_ACT_BLOCK;
        md_dot dot = {.cols = head_dim,
                      .group = shape->group,
                      .chunks = shape->chunks,
                      .chunk_bytes = shape->chunk_bytes,
                      .columns = columns,
                      .x = x};
        const uint8_t *tile = md_cpu_kv_keys(v->u->layer, v->u->block, v->u->kv_head);
        float *s = scores + (size_t)h * MD_ATTN_BLOCK;
        for (uint32_t j = 0; j < v->positions; j += 16, tile += shape->tile_bytes) {
            e->k->dot[MD_CELL_BF16][0](&dot, tile, scratch->out[0]);
            e->k->scale(scratch->out[0], columns, factor, s + j);
        }
        x += queries_bytes(e, columns);
    }
}

static void scores_quantized(md_cpu_engine *e, const view *v, float *scores, const md_cpu_scratch *scratch) {
    const md_cpu_kv_shape *shape = &v->u->layer->shape;
    md_key_codes keys = {.tiles = md_cpu_kv_keys(v->u->layer, v->u->block, v->u->kv_head),
                         .group = shape->group,
                         .chunks = shape->chunks,
                         .chunk_bytes = shape->chunk_bytes};
    md_queries queries = integers(scratch);
    (shape->format.bits == 4 ? e->k->scores_q4 : e->k->scores_q8)(&keys, &queries, v->positions, group_heads(e),
                                                                  scores);
}

// Scores, then exponentials relative to the block's own maximum in their place, m and l.
static void block_softmax(md_cpu_engine *e, const view *v, float *scores, float *m, float *l, md_cpu_scratch *scratch) {
    pack_queries(e, v, scratch);
    (v->u->layer->shape.format.bits ? scores_quantized : scores_bf16)(e, v, scores, scratch);
    e->k->softmax(scores, group_heads(e), v->positions, m, l);
}

static void keep_statistics(md_cpu_engine *e, const view *v, const float *m, const float *l) {
    uint32_t heads = group_heads(e), stride = statistics_stride(e);
    for (uint32_t h = 0; h < heads; h++) {
        float *to = statistics(e, v->column, v->u->kv_head * heads + h) + v->u->block;
        to[0] = m[h];
        to[stride] = l[h];
    }
}

// y = bf(O / l) with O = sum of w_b o_b, w NULL: 1.
static void finish_head(md_cpu_engine *e, uint32_t column, uint32_t head, const float *o, const float *w,
                        uint32_t blocks, float l, md_cpu_scratch *scratch) {
    uint32_t head_dim = e->base.snapshot->head_dim;
    e->k->merge(o, (size_t)group_heads(e) * e->dim, w, blocks, e->dim, scratch->accumulator);
    e->k->finish(scratch->accumulator, l, head_dim, e->attn + (size_t)column * e->q_stride + (size_t)head * head_dim);
}

// Where a block's o goes: into the partials, or, of an only block, into scratch, to be finished at once.
static float *block_result(const md_cpu_engine *e, const view *v, const md_cpu_scratch *scratch) {
    return v->only ? scratch->o : partial(e, v->column, v->u->kv_head, v->u->block);
}

// Ends the heads of an only block; l NULL: 1.
static void finish_only(md_cpu_engine *e, const view *v, const float *o, const float *l, md_cpu_scratch *scratch) {
    uint32_t heads = group_heads(e);
    for (uint32_t h = 0; v->only && h < heads; h++)
        finish_head(e, v->column, v->u->kv_head * heads + h, o + (size_t)h * e->dim, NULL, 1, l ? l[h] : 1.0f, scratch);
}

static void attend_bf16(md_cpu_engine *e, const view *v, md_cpu_scratch *scratch) {
    const unit *u = v->u;
    float m[MD_MAX_HEADS], l[MD_MAX_HEADS], *o = block_result(e, v, scratch);
    md_values values = {.rows = md_cpu_kv_values(u->layer, u->block, u->kv_head),
                        .stride = u->layer->shape.value_stride,
                        .dim = u->layer->shape.dim};
    block_softmax(e, v, scratch->scores, m, l, scratch);
    if (!v->only) keep_statistics(e, v, m, l);
    e->k->pv_bf16(&values, scratch->scores, v->positions, group_heads(e), o);
    finish_only(e, v, o, l, scratch);
}

// The block's exponentials, relative to m, and its part of the whole.
static void attend_codes(md_cpu_engine *e, const view *v, float *exponentials, const float *m, const float *top,
                         const float *l, md_cpu_scratch *scratch) {
    const unit *u = v->u;
    uint32_t heads = group_heads(e);
    float w[MD_MAX_HEADS], *o = block_result(e, v, scratch);
    md_value_codes values = {.codes = md_cpu_kv_values(u->layer, u->block, u->kv_head),
                             .scales = md_cpu_kv_value_scales(u->layer, u->block, u->kv_head),
                             .dim = u->layer->shape.dim,
                             .group = u->layer->shape.group};
    md_value_codes_fn attend = u->layer->shape.format.bits == 4 ? e->k->values_q4 : e->k->values_q8;
    e->k->shares(m, top, l, heads, w);
    attend(&values, exponentials, w, v->positions, heads, o);
    finish_only(e, v, o, NULL, scratch);
}

static void score_quantized(md_cpu_engine *e, const view *v, md_cpu_scratch *scratch) {
    float m[MD_MAX_HEADS], l[MD_MAX_HEADS];
    float *scores = v->only ? scratch->scores : unit_scores(e, v->column, v->u->kv_head, v->u->block);
    block_softmax(e, v, scores, m, l, scratch);
    if (v->only)
        attend_codes(e, v, scores, m, m, l, scratch);
    else
        keep_statistics(e, v, m, l);
}

// M and L over all blocks of (column, head), ascending; weights[b] = exp(m_b - M), those of this worker.
static float totals(const md_cpu_engine *e, uint32_t column, uint32_t head, uint32_t blocks,
                    const md_cpu_scratch *scratch, float *m, float **weights) {
    const float *block_m = statistics(e, column, head);
    *weights = (float *)(void *)e->weights.at + (size_t)(scratch - e->scratch) * statistics_stride(e);
    return e->k->weigh(block_m, block_m + statistics_stride(e), blocks, *weights, m);
}

static uint32_t blocks_of(const md_cpu_sequence *sequence, uint32_t c) {
    return (sequence->position + c) / MD_ATTN_BLOCK + 1;
}

// M and L of every column and head of the unit's sequence and KV head into scratch->m and ->l. A worker's units follow
// each other block by block, so this happens once or twice a stage and not once a block.
static void unit_totals(const md_cpu_engine *e, const unit *u, md_cpu_scratch *scratch) {
    uint32_t heads = group_heads(e);
    float *weights;
    if (scratch->totals_sequence == u->sequence && scratch->totals_kv_head == u->kv_head) return;
    scratch->totals_sequence = u->sequence;
    scratch->totals_kv_head = u->kv_head;
    for (uint32_t c = 0; c < u->sequence->count; c++)
        for (uint32_t h = 0; h < heads; h++)
            scratch->l[c * heads + h] =
                totals(e, u->sequence->first + c, u->kv_head * heads + h, blocks_of(u->sequence, c), scratch,
                       &scratch->m[c * heads + h], &weights);
}

static void attend_quantized(md_cpu_engine *e, const view *v, md_cpu_scratch *scratch) {
    if (v->only) return; // done with its scores
    const unit *u = v->u;
    uint32_t heads = group_heads(e), at = (v->column - u->sequence->first) * heads;
    float m[MD_MAX_HEADS];
    unit_totals(e, u, scratch);
    for (uint32_t h = 0; h < heads; h++) m[h] = statistics(e, v->column, u->kv_head * heads + h)[u->block];
    attend_codes(e, v, unit_scores(e, v->column, u->kv_head, u->block), m, scratch->m + at, scratch->l + at, scratch);
}

static void each_view(md_cpu_engine *e, const unit *u, view_fn fn, md_cpu_scratch *scratch) {
    for (uint32_t c = 0; c < u->sequence->count; c++) {
        view v = {.u = u,
                  .column = u->sequence->first + c,
                  .positions = visible(u->sequence, c, u->block),
                  .only = u->sequence->blocks == 1};
        if (v.positions) fn(e, &v, scratch);
    }
}

// Calls a function for every column of this worker's share of the units of all sequences: `bf16` or `quantized`, as the
// layer's cache is; NULL: nothing. The first stage that meets a unit appends to the cache.
static void each_unit(md_cpu_engine *e, uint32_t layer, uint32_t worker, view_fn bf16, view_fn quantized) {
    const uint32_t kv_heads = e->base.snapshot->kv_heads;
    md_cpu_scratch *scratch = &e->scratch[worker];
    uint64_t total = 0, at = 0;
    scratch->packed_column = UINT32_MAX; // what other stages and layers left is not this one's
    scratch->totals_sequence = NULL;
    for (uint32_t i = 0; i < e->sequences; i++) total += (uint64_t)e->sequence[i].blocks * kv_heads;
    uint64_t first = total * worker / e->workers, end = total * (worker + 1) / e->workers;
    for (uint32_t i = 0; i < e->sequences; i++) {
        const md_cpu_sequence *sequence = &e->sequence[i];
        uint64_t units = (uint64_t)sequence->blocks * kv_heads;
        unit u = {.sequence = sequence, .layer = &sequence->kv->layer[layer]};
        view_fn fn = u.layer->shape.format.bits ? quantized : bf16;
        for (uint64_t n = at < first ? first - at : 0; fn && n < units && at + n < end; n++) {
            u.kv_head = (uint32_t)(n / sequence->blocks);
            u.block = (uint32_t)(n % sequence->blocks);
            if (fn != attend_quantized) append(e, &u);
            each_view(e, &u, fn, scratch);
        }
        at += units;
    }
}

void md_cpu_attention_scores(md_cpu_engine *e, uint32_t layer, uint32_t worker) {
    each_unit(e, layer, worker, NULL, score_quantized);
}

void md_cpu_attention(md_cpu_engine *e, uint32_t layer, uint32_t worker) {
    each_unit(e, layer, worker, attend_bf16, attend_quantized);
}

static void merge_head(md_cpu_engine *e, const md_cpu_sequence *sequence, uint32_t c, uint32_t head, bool quantized,
                       md_cpu_scratch *scratch) {
    uint32_t column = sequence->first + c, heads = group_heads(e), blocks = blocks_of(sequence, c);
    float m, l = 1, *weights = NULL;
    if (!quantized) l = totals(e, column, head, blocks, scratch, &m, &weights);
    const float *o = partial(e, column, head / heads, 0) + (size_t)(head % heads) * e->dim;
    finish_head(e, column, head, o, weights, blocks, l, scratch);
}

void md_cpu_attention_merge(md_cpu_engine *e, uint32_t layer, uint32_t worker) {
    uint32_t q_heads = e->base.snapshot->q_heads;
    uint64_t total = (uint64_t)e->count * q_heads, n = 0;
    uint64_t first = total * worker / e->workers, end = total * (worker + 1) / e->workers;
    for (uint32_t i = 0; i < e->sequences; i++) {
        const md_cpu_sequence *sequence = &e->sequence[i];
        bool quantized = sequence->kv->layer[layer].shape.format.bits != 0;
        for (uint32_t c = 0; c < sequence->count; c++)
            for (uint32_t head = 0; head < q_heads; head++, n++)
                if (n >= first && n < end && sequence->blocks > 1)
                    merge_head(e, sequence, c, head, quantized, &e->scratch[worker]);
    }
}
