#include "backend/cuda/shape.h"

#include <stdlib.h>

#include "base/checked.h"
#include "model/rope.h"
#include "plan/check.h"
#include "plan/tile_mma.h"

const md_matrix *md_cuda_layer_matrix(const md_cuda_shape *shape, uint32_t layer, uint32_t mat) {
    const md_layer *l = &shape->plan->snapshot->layer[layer];
    const md_matrix *matrices[MD_CUDA_MATS] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    return matrices[mat];
}

md_row_map md_cuda_row_map(const md_cuda_shape *shape, uint32_t mat) {
    const md_snapshot *model = shape->plan->snapshot;
    return (md_row_map){.rows = md_cuda_layer_matrix(shape, 0, mat)->rows, .rope_dim = mat < 2 ? model->head_dim : 0};
}

static md_status format_of(md_cuda_shape *shape, const md_matrix *matrix, uint32_t *out, md_error *err) {
    md_tile_shape tile;
    md_codec_mma.shape(matrix, &tile);
    md_cuda_format format = {tile.cell, tile.wide_scales, md_mma_scale_sets(&tile)};
    for (uint32_t i = 0; i < shape->format_count; i++) {
        const md_cuda_format *known = &shape->format[i];
        if (known->cell == format.cell && known->wide == format.wide && known->sets == format.sets) {
            *out = i;
            return MD_OK;
        }
    }
    if (shape->format_count == MD_CUDA_MAX_FORMATS)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: more than %d ways of storing weights in one model", matrix->path,
                       MD_CUDA_MAX_FORMATS);
    *out = shape->format_count;
    shape->format[shape->format_count++] = format;
    return MD_OK;
}

// Few tiles: all warps of a CTA on one; otherwise half of them, which costs fewer partial sums.
uint32_t md_cuda_split(uint32_t tiles, uint32_t blocks) {
    if (blocks >= 32 && tiles <= 144) return MD_CUDA_CONSUMER_WARPS;
    return blocks >= 4 ? MD_CUDA_CONSUMER_WARPS / 2 : blocks >= 2 ? 2 : 1;
}

static md_status check_model(const md_plan *plan, md_error *err) {
    const md_snapshot *model = plan->snapshot;
    if (model->head_dim % 16 || model->head_dim > 256)
        return md_fail(err, MD_E_UNSUPPORTED, "CUDA: head_dim %u, expected a multiple of 16 up to 256",
                       model->head_dim);
    if (model->q_heads / model->kv_heads > MD_CUDA_MAX_REP)
        return md_fail(err, MD_E_UNSUPPORTED, "CUDA: %u query heads a key/value head, expected at most %d",
                       model->q_heads / model->kv_heads, MD_CUDA_MAX_REP);
    return MD_OK;
}

bool md_cuda_has_wide(const md_cuda_shape *shape) {
    for (uint32_t i = 0; i < shape->format_count; i++)
        if (shape->format[i].cell > MD_CELL_Q8) return true;
    return false;
}

// Three of each of the 32 lanes of an operand B, and three more of bf16 values where weights need them.
uint32_t md_cuda_digit_entries(const md_cuda_shape *shape) { return 32 * (md_cuda_has_wide(shape) ? 6 : 3); }

static void place_vectors(md_cuda_shape *shape) {
    struct {
        uint32_t *at, tiles;
    } vectors[] = {{&shape->vector_xa, shape->tiles_x}, {&shape->vector_xb, shape->tiles_x},
                   {&shape->vector_q, shape->tiles_q},  {&shape->vector_k, shape->tiles_k},
                   {&shape->vector_v, shape->tiles_v},  {&shape->vector_attn, shape->tiles_attn},
                   {&shape->vector_act, shape->tiles_f}};
    uint32_t at = 0;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        *vectors[i].at = at;
        at += (uint32_t)md_round_up(4ull * vectors[i].tiles * MD_CUDA_COLUMNS, 8); // vectors share no 128-byte line
    }
    const uint32_t entries = md_cuda_digit_entries(shape);
    shape->digits_x = at, at += shape->blocks_x * entries;
    shape->digits_attn = at, at += shape->blocks_attn * entries;
    shape->digits_act = at, at += shape->blocks_f * entries;
    shape->exchange_entries = at;
}

static void place_aux(md_cuda_shape *shape) {
    const md_snapshot *model = shape->plan->snapshot;
    uint32_t norm = shape->tiles_x * MD_TILE_ROWS, at = 0;
    shape->aux_attn_norm = at, at += norm * model->layers;
    shape->aux_ffn_norm = at, at += norm * model->layers;
    shape->aux_final_norm = at, at += norm;
    shape->aux_inv_freq = at, at += model->head_dim / 2;
    for (uint32_t i = 0; i < model->layers * MD_CUDA_MATS; i++) {
        shape->layer_bias[i] = MD_CUDA_NO_BIAS;
        if (!md_cuda_layer_matrix(shape, i / MD_CUDA_MATS, i % MD_CUDA_MATS)->has_bias) continue;
        md_row_map map = md_cuda_row_map(shape, i % MD_CUDA_MATS);
        shape->has_bias = true;
        shape->layer_bias[i] = at, at += md_row_map_tiles(&map) * MD_TILE_ROWS;
    }
    shape->aux_count = at;
}

static void count_tiles(md_cuda_shape *shape) {
    const md_snapshot *model = shape->plan->snapshot;
    uint32_t width = model->q_heads * model->head_dim;
    shape->tiles_x = (uint32_t)md_ceil_div(model->hidden, MD_TILE_ROWS);
    shape->tiles_q = width / MD_TILE_ROWS; // head_dim is a multiple of 16
    shape->tiles_k = shape->tiles_v = model->kv_heads * model->head_dim / MD_TILE_ROWS;
    shape->tiles_attn = width / MD_TILE_ROWS;
    shape->tiles_f = (uint32_t)md_ceil_div(model->ffn, MD_TILE_ROWS);
    shape->tiles_head = (uint32_t)md_ceil_div(model->vocab, MD_TILE_ROWS);
    shape->blocks_x = (uint32_t)md_ceil_div(model->hidden, MD_MMA_BLOCK);
    shape->blocks_attn = (uint32_t)md_ceil_div(width, MD_MMA_BLOCK);
    shape->blocks_f = (uint32_t)md_ceil_div(model->ffn, MD_MMA_BLOCK);
    shape->blocks_max = (uint32_t)md_max_u64(shape->blocks_x, md_max_u64(shape->blocks_attn, shape->blocks_f));
    shape->split_qkv = md_cuda_split(shape->tiles_q + shape->tiles_k + shape->tiles_v, shape->blocks_x);
    shape->split_out = md_cuda_split(shape->tiles_x, shape->blocks_attn);
    shape->split_gate_up = md_cuda_split(2 * shape->tiles_f, shape->blocks_x);
    shape->split_down = md_cuda_split(shape->tiles_x, shape->blocks_f);
    shape->split_head = md_cuda_split(shape->tiles_head, shape->blocks_x);
    uint32_t context = (uint32_t)md_min_u64(model->context, MD_CUDA_MAX_CONTEXT);
    shape->attn_blocks = (uint32_t)md_ceil_div(context, MD_CUDA_ATTN_ROWS);
}

md_status md_cuda_shape_build(const md_plan *plan, md_cuda_shape **out, md_error *err) {
    *out = NULL;
    const md_snapshot *model = plan->snapshot;
    MD_TRY(md_plan_check(plan, err));
    MD_TRY(md_cuda_check_handoffs(plan, err));
    MD_TRY(check_model(plan, err));
    md_status status = MD_OK;
    md_cuda_shape *shape = calloc(1, sizeof *shape);
    if (!shape) return md_fail(err, MD_E_MEMORY, "out of memory");
    shape->plan = plan;
    shape->layer_format = calloc(model->layers, MD_CUDA_MATS);
    shape->layer_bias = calloc((size_t)model->layers * MD_CUDA_MATS, sizeof *shape->layer_bias);
    if (!shape->layer_format || !shape->layer_bias) {
        status = md_fail(err, MD_E_MEMORY, "out of memory");
        goto fail;
    }
    count_tiles(shape);
    for (uint32_t i = 0; i < model->layers * MD_CUDA_MATS; i++) {
        uint32_t format;
        MD_TRY_GOTO(format_of(shape, md_cuda_layer_matrix(shape, i / MD_CUDA_MATS, i % MD_CUDA_MATS), &format, err));
        shape->layer_format[i] = (uint8_t)format;
    }
    MD_TRY_GOTO(format_of(shape, &model->head, &shape->head_format, err));
    place_vectors(shape);
    place_aux(shape);
    float inv_freq[MD_MAX_HEAD_DIM / 2];
    md_rope_frequencies(&model->rope, model->head_dim, inv_freq, &shape->rope_scale);
    MD_TRY_GOTO(md_cuda_shape_check(shape, plan, err));
    *out = shape;
    return MD_OK;
fail:
    md_cuda_shape_free(shape);
    return status;
}

void md_cuda_shape_free(md_cuda_shape *shape) {
    if (!shape) return;
    free(shape->layer_format);
    free(shape->layer_bias);
    free(shape);
}

uint32_t md_cuda_segment_bytes(uint32_t shared_bytes) { return shared_bytes >= 160 << 10 ? 12288 : 8192; }
