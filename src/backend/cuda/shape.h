// What the emitter, the packing and the launches of a model on a GPU agree on: tile counts, formats, splits, and where
// vectors and auxiliary values lie. Derived from the plan alone; immutable.
#ifndef MD_BACKEND_CUDA_SHAPE_H
#define MD_BACKEND_CUDA_SHAPE_H

#include "plan/pack.h"

enum {
    MD_CUDA_COLUMNS = 8,           // widest step
    MD_CUDA_CONSUMER_WARPS = 8,    // of a CTA
    MD_CUDA_ATTN_ROWS = 128,       // positions of an attention block
    MD_CUDA_MAX_REP = 32,          // query heads that share a kv head
    MD_CUDA_MAX_CONTEXT = 1 << 18, // positions a cache can have on a GPU
    MD_CUDA_MAX_FORMATS = 16,
    MD_CUDA_MATS = 7, // matrices of a layer: q, k, v, out, gate, up, down
    MD_CUDA_STAGES_A_LAYER = 7
};
#define MD_CUDA_NO_BIAS UINT32_MAX

typedef struct md_cuda_format { // how the blocks of some of the model's matrices are stored
    md_cell cell;
    bool wide;
    uint32_t sets;
} md_cuda_format;

typedef struct md_cuda_shape {
    const md_plan *plan; // borrowed
    md_cuda_format format[MD_CUDA_MAX_FORMATS];
    uint32_t format_count, head_format;
    uint8_t *layer_format; // [layers][MD_CUDA_MATS], owned
    uint32_t *layer_bias;  // [layers][MD_CUDA_MATS] offset of the additive bias in aux, MD_CUDA_NO_BIAS; owned
    bool has_bias;
    uint32_t tiles_x, tiles_q, tiles_k, tiles_v, tiles_attn, tiles_f, tiles_head;
    uint32_t blocks_x, blocks_attn, blocks_f, blocks_max;                 // of 64 columns
    uint32_t split_qkv, split_out, split_gate_up, split_down, split_head; // warps that share a tile
    // Entries of 16 bytes: where each exchanged vector begins, with room for MD_CUDA_COLUMNS columns.
    uint32_t vector_xa, vector_xb, vector_q, vector_k, vector_v, vector_attn, vector_act;
    // And the digits of matrix inputs, which steps of several columns exchange (kernels/input_columns.cuh).
    uint32_t digits_x, digits_attn, digits_act, exchange_entries;
    // fp32 values: norms, inverse frequencies, biases.
    uint32_t aux_attn_norm, aux_ffn_norm, aux_final_norm, aux_inv_freq, aux_count;
    float rope_scale;
    uint32_t attn_blocks; // most attention blocks of a cache
} md_cuda_shape;

// MD_E_UNSUPPORTED where the kernels don't model this snapshot; the message names the field.
md_status md_cuda_shape_build(const md_plan *plan, md_cuda_shape **out, md_error *err);
// MD_E_INTERNAL when the plan's stages would let a vector be overwritten while it may still be read (handoff.c).
md_status md_cuda_check_handoffs(const md_plan *plan, md_error *err);
// Run on every shape that is built. MD_E_INTERNAL names the field, what was found and what was expected.
md_status md_cuda_shape_check(const md_cuda_shape *shape, const md_plan *plan, md_error *err);
void md_cuda_shape_free(md_cuda_shape *shape);

// Matrix `mat` (0..6) of a layer, and the row map of its tiles.
const md_matrix *md_cuda_layer_matrix(const md_cuda_shape *shape, uint32_t layer, uint32_t mat);
md_row_map md_cuda_row_map(const md_cuda_shape *shape, uint32_t mat);

// Entries of a block of 64 columns in the digits of a matrix input; whether any weights are not quantized.
uint32_t md_cuda_digit_entries(const md_cuda_shape *shape);
bool md_cuda_has_wide(const md_cuda_shape *shape);
// Bytes of one copy of the weight stream; the ring has two at least.
uint32_t md_cuda_segment_bytes(uint32_t shared_bytes);
// Warps that share a tile: by the matrix's shape alone, since it orders the sums.
uint32_t md_cuda_split(uint32_t tiles, uint32_t blocks);

#endif
