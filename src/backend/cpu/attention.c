// Attention, split over units: (sequence, KV head, block of 128 positions), each computed by one worker for all columns
// of the sequence. The worker that has a block also appends the step's keys and values that lie in it, so nobody reads
// an entry that somebody else is writing.
//
// A sequence whose columns see one block only is finished by its unit. Longer ones leave {m, l} and o of each block in
// the partials; the merge combines them in ascending order. For a quantized layer the scores come one stage earlier,
// since its probabilities are rounded and so need the maximum and the sum over all blocks.
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/bf16.h"
#include "base/checked.h"
#include "base/mathx.h"

enum { PARTIAL_HEAD = 16 };

typedef struct unit {
    const md_cpu_sequence *sequence;
    const md_cpu_kv_layer *layer;
    uint32_t kv_head, block;
} unit;

typedef void (*unit_fn)(md_cpu_engine *e, const unit *u, md_cpu_scratch *scratch);

static uint32_t group_heads(const md_cpu_engine *e) { return e->base.snapshot->q_heads / e->base.snapshot->kv_heads; }
static uint32_t block_cap(const md_cpu_engine *e) { return (uint32_t)md_ceil_div(e->context, MD_ATTN_BLOCK); }

// {m, l, ..., o[dim] from element 16 on} of (column, query head, block)
static float *partial(const md_cpu_engine *e, uint32_t column, uint32_t head, uint32_t block) {
    uint64_t index = ((uint64_t)column * e->base.snapshot->q_heads + head) * block_cap(e) + block;
    return (float *)(void *)e->partials.at + index * (PARTIAL_HEAD + e->dim);
}

// Scores of (column, query head) from position 0 on.
static float *score_row(const md_cpu_engine *e, uint32_t column, uint32_t head) {
    uint64_t index = (uint64_t)column * e->base.snapshot->q_heads + head;
    return (float *)(void *)e->scores.at + index * block_cap(e) * MD_ATTN_BLOCK;
}

md_status md_cpu_attention_reserve(md_cpu_engine *e, uint32_t context, md_error *err) {
    if (context <= e->context) return MD_OK;
    uint64_t blocks = md_ceil_div(context, MD_ATTN_BLOCK);
    uint64_t rows = (uint64_t)MD_CPU_MAX_COLUMNS * e->base.snapshot->q_heads;
    md_pages partials, scores;
    MD_TRY(md_pages_alloc(&partials, rows * blocks * (PARTIAL_HEAD + e->dim) * 4, false, "attention partials", err));
    md_status status = md_pages_alloc(&scores, rows * blocks * MD_ATTN_BLOCK * 4, false, "attention scores", err);
    if (status != MD_OK) {
        md_pages_free(&partials);
        return status;
    }
    md_pages_free(&e->partials);
    md_pages_free(&e->scores);
    e->partials = partials;
    e->scores = scores;
    e->context = context;
    return MD_OK;
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

// One column's queries of the unit's KV head into scratch->x (and their group sums), in blocks of 8 heads.
static void pack_queries(md_cpu_engine *e, const unit *u, uint32_t c, md_cpu_scratch *scratch) {
    const md_cpu_kv_shape *shape = &u->layer->shape;
    uint32_t head_dim = e->base.snapshot->head_dim, heads = group_heads(e);
    const uint16_t *rows =
        e->q + (size_t)(u->sequence->first + c) * e->q_stride + (size_t)u->kv_head * heads * head_dim;
    if (shape->format.bits) {
        float factor = md_bf16_round((float)(1.0 / sqrt((double)head_dim)));
        e->k->scale_rows(rows, heads * head_dim, factor, scratch->rows);
        rows = scratch->rows;
    }
    uint8_t *x = scratch->x;
    float *sums = scratch->sums[0];
    for (uint32_t h = 0; h < heads; h += MD_ACT_BLOCK) {
        uint32_t columns = heads - h < MD_ACT_BLOCK ? heads - h : MD_ACT_BLOCK;
        e->k->act_pack(rows + (size_t)h * head_dim, head_dim, columns, head_dim, x);
        if (shape->format.bits) e->k->act_sums(x, columns, head_dim, shape->group, sums);
        x += queries_bytes(e, columns);
        sums += columns * shape->chunks;
    }
}

// scratch->scores[head][128]: the unit's block against the queries in scratch->x.
static void block_scores(md_cpu_engine *e, const unit *u, uint32_t positions, md_cpu_scratch *scratch) {
    const md_cpu_kv_shape *shape = &u->layer->shape;
    uint32_t head_dim = e->base.snapshot->head_dim, heads = group_heads(e), bits = shape->format.bits;
    float factor = (float)(1.0 / sqrt((double)head_dim));
    md_cell cell = bits == 4 ? MD_CELL_Q4 : bits == 8 ? MD_CELL_Q8 : MD_CELL_BF16;
    const uint8_t *x = scratch->x;
    const float *sums = scratch->sums[0];
    for (uint32_t h = 0; h < heads; h += MD_ACT_BLOCK) {
        uint32_t columns = heads - h < MD_ACT_BLOCK ? heads - h : MD_ACT_BLOCK;
        md_dot dot = {.cols = head_dim,
                      .group = shape->group,
                      .chunks = shape->chunks,
                      .chunk_bytes = shape->chunk_bytes,
                      .columns = columns,
                      .x = x,
                      .sums = bits ? sums : NULL};
        const uint8_t *tile = md_cpu_kv_keys(u->layer, u->block, u->kv_head);
        float *s = scratch->scores + (size_t)h * MD_ATTN_BLOCK;
        for (uint32_t j = 0; j < positions; j += 16, tile += shape->tile_bytes) {
            e->k->dot[cell][0](&dot, tile, scratch->out[0]);
            if (bits)
                e->k->round(scratch->out[0], columns, s + j);
            else
                e->k->scale(scratch->out[0], columns, factor, s + j);
        }
        x += queries_bytes(e, columns);
        sums += columns * shape->chunks;
    }
}

// scratch->o[head][dim] = sum of p_j v_j over the block, from +0.
static void block_values(md_cpu_engine *e, const unit *u, uint32_t positions, const float *p, md_cpu_scratch *scratch) {
    const md_cpu_kv_shape *shape = &u->layer->shape;
    md_values values = {.rows = md_cpu_kv_values(u->layer, u->block, u->kv_head),
                        .stride = shape->value_stride,
                        .dim = shape->dim,
                        .group = shape->group};
    uint32_t heads = group_heads(e);
    memset(scratch->o, 0, (size_t)heads * e->dim * sizeof(float));
    if (shape->format.bits) values.scales = md_cpu_kv_value_scales(u->layer, u->block, u->kv_head);
    md_pv_fn pv = shape->format.bits == 4 ? e->k->pv_q4 : shape->format.bits == 8 ? e->k->pv_q8 : e->k->pv_bf16;
    pv(&values, p, positions, heads, scratch->o);
}

static uint16_t *output(const md_cpu_engine *e, uint32_t column, uint32_t head) {
    return e->attn + (size_t)column * e->q_stride + (size_t)head * e->base.snapshot->head_dim;
}

// The only block of a sequence is the whole attention: O = fma(o, 1, +0), then its division.
static void finish_single(md_cpu_engine *e, uint32_t column, uint32_t head, const float *o, float l,
                          md_cpu_scratch *scratch) {
    memset(scratch->accumulator, 0, e->dim * sizeof(float));
    e->k->merge(o, 1.0f, e->dim, scratch->accumulator);
    e->k->finish(scratch->accumulator, l, e->base.snapshot->head_dim, output(e, column, head));
}

static void attend_bf16(md_cpu_engine *e, const unit *u, md_cpu_scratch *scratch) {
    uint32_t heads = group_heads(e);
    append(e, u);
    for (uint32_t c = 0; c < u->sequence->count; c++) {
        uint32_t positions = visible(u->sequence, c, u->block), column = u->sequence->first + c;
        if (!positions) continue;
        float m[MD_MAX_HEADS], l[MD_MAX_HEADS];
        pack_queries(e, u, c, scratch);
        block_scores(e, u, positions, scratch);
        for (uint32_t h = 0; h < heads; h++)
            l[h] = e->k->softmax(scratch->scores + (size_t)h * MD_ATTN_BLOCK, positions, &m[h]);
        block_values(e, u, positions, scratch->scores, scratch);
        for (uint32_t h = 0; h < heads; h++) {
            uint32_t head = u->kv_head * heads + h;
            const float *o = scratch->o + (size_t)h * e->dim;
            if (u->sequence->blocks == 1) {
                finish_single(e, column, head, o, l[h], scratch);
                continue;
            }
            float *to = partial(e, column, head, u->block);
            to[0] = m[h];
            to[1] = l[h];
            memcpy(to + PARTIAL_HEAD, o, e->dim * sizeof *o);
        }
    }
}

// p = bf(exp(s - m) / l) in place, then the values.
static void quantized_values(md_cpu_engine *e, const unit *u, uint32_t positions, const float *m, const float *l,
                             md_cpu_scratch *scratch) {
    for (uint32_t h = 0; h < group_heads(e); h++)
        e->k->probabilities(scratch->scores + (size_t)h * MD_ATTN_BLOCK, positions, m[h], 1.0f / l[h]);
    block_values(e, u, positions, scratch->scores, scratch);
}

static void score_quantized(md_cpu_engine *e, const unit *u, md_cpu_scratch *scratch) {
    uint32_t heads = group_heads(e);
    append(e, u);
    for (uint32_t c = 0; c < u->sequence->count; c++) {
        uint32_t positions = visible(u->sequence, c, u->block), column = u->sequence->first + c;
        if (!positions) continue;
        float m[MD_MAX_HEADS], l[MD_MAX_HEADS];
        pack_queries(e, u, c, scratch);
        block_scores(e, u, positions, scratch);
        for (uint32_t h = 0; h < heads; h++)
            l[h] = e->k->softmax_sum(scratch->scores + (size_t)h * MD_ATTN_BLOCK, positions, &m[h]);
        if (u->sequence->blocks == 1) {
            quantized_values(e, u, positions, m, l, scratch);
            for (uint32_t h = 0; h < heads; h++)
                finish_single(e, column, u->kv_head * heads + h, scratch->o + (size_t)h * e->dim, 1.0f, scratch);
            continue;
        }
        for (uint32_t h = 0; h < heads; h++) {
            uint32_t head = u->kv_head * heads + h;
            float *to = partial(e, column, head, u->block);
            to[0] = m[h];
            to[1] = l[h];
            memcpy(score_row(e, column, head) + (size_t)u->block * MD_ATTN_BLOCK,
                   scratch->scores + (size_t)h * MD_ATTN_BLOCK, positions * sizeof(float));
        }
    }
}

// M and L over all blocks of (column, head), ascending.
static void totals(const md_cpu_engine *e, uint32_t column, uint32_t head, uint32_t blocks, float *m, float *l) {
    *m = -INFINITY;
    *l = 0;
    for (uint32_t b = 0; b < blocks; b++) {
        float block_max = partial(e, column, head, b)[0];
        *m = block_max > *m ? block_max : *m;
    }
    for (uint32_t b = 0; b < blocks; b++) {
        const float *from = partial(e, column, head, b);
        *l = fmaf(from[1], md_expf(from[0] - *m), *l);
    }
}

static uint32_t blocks_of(const md_cpu_sequence *sequence, uint32_t c) {
    return (sequence->position + c) / MD_ATTN_BLOCK + 1;
}

// M and L of every column and head of the unit's sequence and KV head into scratch->totals. A worker's units follow
// each other block by block, so this happens once or twice a stage and not once a block.
static const md_cpu_totals *unit_totals(const md_cpu_engine *e, const unit *u, md_cpu_scratch *scratch) {
    uint32_t heads = group_heads(e);
    if (scratch->totals_sequence == u->sequence && scratch->totals_kv_head == u->kv_head) return scratch->totals;
    scratch->totals_sequence = u->sequence;
    scratch->totals_kv_head = u->kv_head;
    for (uint32_t c = 0; c < u->sequence->count; c++)
        for (uint32_t h = 0; h < heads; h++) {
            md_cpu_totals *to = &scratch->totals[c * heads + h];
            totals(e, u->sequence->first + c, u->kv_head * heads + h, blocks_of(u->sequence, c), &to->m, &to->l);
        }
    return scratch->totals;
}

static void attend_quantized(md_cpu_engine *e, const unit *u, md_cpu_scratch *scratch) {
    uint32_t heads = group_heads(e);
    const md_cpu_totals *all = unit_totals(e, u, scratch);
    for (uint32_t c = 0; c < u->sequence->count; c++) {
        uint32_t positions = visible(u->sequence, c, u->block), column = u->sequence->first + c;
        if (!positions) continue;
        float m[MD_MAX_HEADS], l[MD_MAX_HEADS];
        for (uint32_t h = 0; h < heads; h++) {
            uint32_t head = u->kv_head * heads + h;
            m[h] = all[c * heads + h].m;
            l[h] = all[c * heads + h].l;
            memcpy(scratch->scores + (size_t)h * MD_ATTN_BLOCK,
                   score_row(e, column, head) + (size_t)u->block * MD_ATTN_BLOCK, positions * sizeof(float));
        }
        quantized_values(e, u, positions, m, l, scratch);
        for (uint32_t h = 0; h < heads; h++)
            memcpy(partial(e, column, u->kv_head * heads + h, u->block) + PARTIAL_HEAD, scratch->o + (size_t)h * e->dim,
                   e->dim * sizeof(float));
    }
}

// Calls fn for this worker's share of the units of all sequences.
static void each_unit(md_cpu_engine *e, uint32_t layer, uint32_t worker, unit_fn bf16, unit_fn quantized) {
    const uint32_t kv_heads = e->base.snapshot->kv_heads;
    uint64_t total = 0, at = 0;
    for (uint32_t i = 0; i < e->sequences; i++) total += (uint64_t)e->sequence[i].blocks * kv_heads;
    uint64_t first = total * worker / e->workers, end = total * (worker + 1) / e->workers;
    for (uint32_t i = 0; i < e->sequences; i++) {
        const md_cpu_sequence *sequence = &e->sequence[i];
        uint64_t units = (uint64_t)sequence->blocks * kv_heads;
        unit u = {.sequence = sequence, .layer = &sequence->kv->layer[layer]};
        unit_fn fn = u.layer->shape.format.bits ? quantized : bf16;
        for (uint64_t n = at < first ? first - at : 0; fn && n < units && at + n < end; n++) {
            u.kv_head = (uint32_t)(n / sequence->blocks);
            u.block = (uint32_t)(n % sequence->blocks);
            fn(e, &u, &e->scratch[worker]);
        }
        at += units;
    }
}

void md_cpu_attention_scores(md_cpu_engine *e, uint32_t layer, uint32_t worker) {
    each_unit(e, layer, worker, NULL, score_quantized);
}

static void attend_long_quantized(md_cpu_engine *e, const unit *u, md_cpu_scratch *scratch) {
    if (u->sequence->blocks > 1) attend_quantized(e, u, scratch);
}

void md_cpu_attention(md_cpu_engine *e, uint32_t layer, uint32_t worker) {
    e->scratch[worker].totals_sequence = NULL; // those of another layer
    each_unit(e, layer, worker, attend_bf16, attend_long_quantized);
}

static void merge_head(md_cpu_engine *e, const md_cpu_sequence *sequence, uint32_t c, uint32_t head, bool quantized,
                       md_cpu_scratch *scratch) {
    uint32_t column = sequence->first + c, blocks = blocks_of(sequence, c);
    float m = 0, l = 1;
    if (!quantized) totals(e, column, head, blocks, &m, &l);
    memset(scratch->accumulator, 0, e->dim * sizeof(float));
    for (uint32_t b = 0; b < blocks; b++) {
        const float *from = partial(e, column, head, b);
        e->k->merge(from + PARTIAL_HEAD, quantized ? 1.0f : md_expf(from[0] - m), e->dim, scratch->accumulator);
    }
    e->k->finish(scratch->accumulator, l, e->base.snapshot->head_dim, output(e, column, head));
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
