// The shape against the snapshot, derived again: tile counts from the matrices' row maps, formats from the codec, and
// vectors and auxiliary values one behind the other, so that none overlaps another and all lie inside their buffers.
#include <string.h>

#include "backend/cuda/shape.h"
#include "base/checked.h"
#include "model/rope.h"
#include "plan/tile_mma.h"

typedef struct number {
    const char *name;
    uint32_t found, expected;
} number;

static md_status compare(const number *numbers, size_t n, md_error *err) {
    for (size_t i = 0; i < n; i++)
        if (numbers[i].found != numbers[i].expected)
            return md_fail(err, MD_E_INTERNAL, "CUDA shape: %s: found %u, expected %u", numbers[i].name,
                           numbers[i].found, numbers[i].expected);
    return MD_OK;
}
#define COMPARE(numbers) MD_TRY(compare(numbers, sizeof(numbers) / sizeof *(numbers), err))

static uint32_t tiles_of(const md_matrix *matrix, uint32_t rope_dim) {
    const md_row_map map = {.rows = matrix->rows, .rope_dim = rope_dim};
    return md_row_map_tiles(&map);
}

static uint32_t blocks_of(const md_matrix *matrix) { return (uint32_t)md_ceil_div(matrix->cols, MD_MMA_BLOCK); }

static md_status check_counts(const md_cuda_shape *shape, md_error *err) {
    const md_snapshot *model = shape->plan->snapshot;
    const md_layer *layer = &model->layer[0]; // all layers have matrices of the same size (md_plan_check)
    uint32_t x = tiles_of(&layer->o, 0), q = tiles_of(&layer->q, model->head_dim);
    uint32_t k = tiles_of(&layer->k, model->head_dim), v = tiles_of(&layer->v, 0), f = tiles_of(&layer->gate, 0);
    uint32_t head = tiles_of(&model->head, 0);
    uint32_t in = blocks_of(&layer->q), attn = blocks_of(&layer->o), ffn = blocks_of(&layer->down);
    uint32_t context = model->context < MD_CUDA_MAX_CONTEXT ? model->context : (uint32_t)MD_CUDA_MAX_CONTEXT;
    const number numbers[] = {
        {"tiles_x", shape->tiles_x, x},
        {"tiles_q", shape->tiles_q, q},
        {"tiles_k", shape->tiles_k, k},
        {"tiles_v", shape->tiles_v, v},
        {"tiles_attn", shape->tiles_attn, (uint32_t)md_ceil_div(layer->o.cols, MD_TILE_ROWS)},
        {"tiles_f", shape->tiles_f, f},
        {"tiles_head", shape->tiles_head, head},
        {"blocks_x", shape->blocks_x, in},
        {"blocks_attn", shape->blocks_attn, attn},
        {"blocks_f", shape->blocks_f, ffn},
        {"blocks_max", shape->blocks_max, (uint32_t)md_max_u64(in, md_max_u64(attn, ffn))},
        {"split_qkv", shape->split_qkv, md_cuda_split(q + k + v, in)},
        {"split_out", shape->split_out, md_cuda_split(x, attn)},
        {"split_gate_up", shape->split_gate_up, md_cuda_split(2 * f, in)},
        {"split_down", shape->split_down, md_cuda_split(x, ffn)},
        {"split_head", shape->split_head, md_cuda_split(head, in)},
        {"attn_blocks", shape->attn_blocks, (uint32_t)md_ceil_div(context, MD_CUDA_ATTN_ROWS)},
    };
    COMPARE(numbers);
    float inv_freq[MD_MAX_HEAD_DIM / 2], scale;
    md_rope_frequencies(&model->rope, model->head_dim, inv_freq, &scale);
    if (memcmp(&shape->rope_scale, &scale, sizeof scale) == 0) return MD_OK;
    return md_fail(err, MD_E_INTERNAL, "CUDA shape: rope_scale: found %g, expected %g", (double)shape->rope_scale,
                   (double)scale);
}

// Four entries a tile and column; vectors begin at multiples of 8 entries (128 bytes). Behind them the inputs' digits.
static md_status check_vectors(const md_cuda_shape *shape, md_error *err) {
    const struct {
        const char *name;
        uint32_t at, tiles;
    } vectors[] = {
        {"vector_xa", shape->vector_xa, shape->tiles_x},  {"vector_xb", shape->vector_xb, shape->tiles_x},
        {"vector_q", shape->vector_q, shape->tiles_q},    {"vector_k", shape->vector_k, shape->tiles_k},
        {"vector_v", shape->vector_v, shape->tiles_v},    {"vector_attn", shape->vector_attn, shape->tiles_attn},
        {"vector_act", shape->vector_act, shape->tiles_f}};
    uint32_t end = 0;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const number start = {vectors[i].name, vectors[i].at, end};
        MD_TRY(compare(&start, 1, err));
        end += (4 * vectors[i].tiles * MD_CUDA_COLUMNS + 7) / 8 * 8;
    }
    uint32_t lanes = 96; // entries of a block: three a lane of operand B; six where bf16 values come with the digits
    for (uint32_t i = 0; i < shape->format_count && i < MD_CUDA_MAX_FORMATS; i++)
        if (shape->format[i].cell > MD_CELL_Q8) lanes = 192;
    const uint32_t act = end + (shape->blocks_x + shape->blocks_attn) * lanes;
    const number digits[] = {{"digits_x", shape->digits_x, end},
                             {"digits_attn", shape->digits_attn, end + shape->blocks_x * lanes},
                             {"digits_act", shape->digits_act, act},
                             {"exchange_entries", shape->exchange_entries, act + shape->blocks_f * lanes}};
    COMPARE(digits);
    return MD_OK;
}

static md_status check_aux(const md_cuda_shape *shape, md_error *err) {
    const md_snapshot *model = shape->plan->snapshot;
    uint32_t norm = shape->tiles_x * MD_TILE_ROWS, all = norm * model->layers;
    const number norms[] = {{"aux_attn_norm", shape->aux_attn_norm, 0},
                            {"aux_ffn_norm", shape->aux_ffn_norm, all},
                            {"aux_final_norm", shape->aux_final_norm, 2 * all},
                            {"aux_inv_freq", shape->aux_inv_freq, 2 * all + norm}};
    COMPARE(norms);
    uint32_t end = 2 * all + norm + model->head_dim / 2;
    bool has_bias = false;
    for (uint32_t i = 0; i < model->layers * MD_CUDA_MATS; i++) {
        const md_matrix *matrix = md_cuda_layer_matrix(shape, i / MD_CUDA_MATS, i % MD_CUDA_MATS);
        const number bias = {"layer_bias", shape->layer_bias[i], matrix->has_bias ? end : MD_CUDA_NO_BIAS};
        MD_TRY(compare(&bias, 1, err));
        has_bias |= matrix->has_bias;
        if (matrix->has_bias) end += tiles_of(matrix, i % MD_CUDA_MATS < 2 ? model->head_dim : 0) * MD_TILE_ROWS;
    }
    const number rest[] = {{"has_bias", shape->has_bias, has_bias}, {"aux_count", shape->aux_count, end}};
    COMPARE(rest);
    return MD_OK;
}

// The matrix's blocks are stored as the format with this number says.
static md_status check_format(const md_cuda_shape *shape, const md_matrix *matrix, uint32_t index, bool *used,
                              md_error *err) {
    md_tile_shape tile;
    md_codec_mma.shape(matrix, &tile);
    if (index >= shape->format_count)
        return md_fail(err, MD_E_INTERNAL, "CUDA shape: %s: format: found %u, expected less than %u", matrix->path,
                       index, shape->format_count);
    const md_cuda_format *format = &shape->format[index];
    const number numbers[] = {{"format.cell", format->cell, tile.cell},
                              {"format.wide", format->wide, tile.wide_scales},
                              {"format.sets", format->sets, md_mma_scale_sets(&tile)}};
    if (compare(numbers, 3, err) != MD_OK) return md_fail_context(err, MD_E_INTERNAL, "%s", matrix->path);
    used[index] = true;
    return MD_OK;
}

static md_status check_formats(const md_cuda_shape *shape, md_error *err) {
    const md_snapshot *model = shape->plan->snapshot;
    bool used[MD_CUDA_MAX_FORMATS] = {false};
    if (shape->format_count > MD_CUDA_MAX_FORMATS)
        return md_fail(err, MD_E_INTERNAL, "CUDA shape: format_count: found %u, expected at most %d",
                       shape->format_count, MD_CUDA_MAX_FORMATS);
    for (uint32_t i = 0; i < model->layers * MD_CUDA_MATS; i++)
        MD_TRY(check_format(shape, md_cuda_layer_matrix(shape, i / MD_CUDA_MATS, i % MD_CUDA_MATS),
                            shape->layer_format[i], used, err));
    MD_TRY(check_format(shape, &model->head, shape->head_format, used, err));
    for (uint32_t i = 0; i < MD_CUDA_MAX_FORMATS; i++) {
        const md_cuda_format *format = &shape->format[i];
        bool filled = format->cell || format->wide || format->sets;
        if (i < shape->format_count ? !used[i] : filled)
            return md_fail(err, MD_E_INTERNAL, "CUDA shape: format[%u]: found one that no matrix has, expected none",
                           i);
    }
    return MD_OK;
}

md_status md_cuda_shape_check(const md_cuda_shape *shape, const md_plan *plan, md_error *err) {
    if (shape->plan != plan)
        return md_fail(err, MD_E_INTERNAL, "CUDA shape: plan: found another one, expected the given one");
    if (!shape->layer_format || !shape->layer_bias)
        return md_fail(err, MD_E_INTERNAL, "CUDA shape: layer_format or layer_bias: found none, expected a table");
    MD_TRY(check_counts(shape, err));
    MD_TRY(check_vectors(shape, err));
    MD_TRY(check_aux(shape, err));
    return check_formats(shape, err);
}
