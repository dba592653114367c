// One sequence's KV cache on the CPU. A layer is a row of blocks of 128 positions; a block holds, for each KV head, its
// keys and then its values.
//
//   bf16       keys    8 tiles of 16 positions in the codec "lanes" (plan/pack.h) with lanes = positions and columns =
//                      head_dim, so that the products of a matrix compute scores (MD_CELL_BF16)
//              values  [128][dim] bf16, dim = head_dim rounded up to 16
//   quantized  keys    8 tiles of 16 positions; a tile has, for each group of dims, 16 scales and 16 biases in bf16 and
//                      then the codes, [dims / 4][16 positions][4 dims]
//              values  [head_dim / 16][positions / 4][16 dims][4 positions] codes, then
//                      [head_dim / group]{128 scales, 128 biases} in bf16
//              So a vector of codes is 16 lanes of four codes that meet the same four integers (kernels/codes.inl).
//              Of 8 bits a code is a byte; of 4 bits two vectors share 64 bytes: the first one's codes are the low
//              nibbles.
//
// Memory is mapped for the whole context but taken only as positions are written.
#ifndef MD_BACKEND_CPU_KV_H
#define MD_BACKEND_CPU_KV_H

#include "backend/backend.h"
#include "backend/cpu/memory.h"

typedef struct md_cpu_kv_shape { // of one layer's blocks
    md_kv_format format;         // bits 0: bf16
    uint32_t head_dim, dim;      // dim: rounded up to 16
    uint32_t group, chunks, chunk_bytes;
    uint32_t tile_bytes;   // 16 positions of keys
    uint32_t value_stride; // bytes of a position's values
    uint32_t keys_bytes;   // 8 tiles
    uint32_t head_bytes;   // keys and values of one head in a block; a multiple of 64
    uint64_t block_bytes;  // all heads
} md_cpu_kv_shape;

typedef struct md_cpu_kv_layer {
    md_cpu_kv_shape shape;
    md_pages pages;
} md_cpu_kv_layer;

typedef struct md_cpu_kv {
    uint32_t context, layers, heads, head_dim;
    uint32_t used; // positions written so far, at most
    md_cpu_kv_layer *layer;
    struct md_cpu_kv *next; // in the engine's list of caches that could not be freed yet
} md_cpu_kv;

md_status md_cpu_kv_new(const md_snapshot *model, uint32_t context, md_cpu_kv **out, md_error *err);
void md_cpu_kv_free(md_cpu_kv *kv);
uint64_t md_cpu_kv_size(const md_cpu_kv *kv); // bytes of the blocks in use

// Checks formats against the cache: MD_E_USAGE for bits other than 0, 4, 8, a group that doesn't divide head_dim, or a
// layer already quantized otherwise.
md_status md_cpu_kv_check_formats(const md_cpu_kv *kv, const md_kv_format *format, md_error *err);
// Allocates layer l's quantized blocks into *to, without changing the cache.
md_status md_cpu_kv_prepare_layer(const md_cpu_kv *kv, uint32_t l, md_kv_format format, md_cpu_kv_layer *to,
                                  md_error *err);
// Quantizes the first `positions` entries of a bf16 layer into the prepared one.
void md_cpu_kv_convert_layer(const md_cpu_kv *kv, uint32_t l, md_cpu_kv_layer *to, uint32_t positions);

md_status md_cpu_kv_copy_into(md_cpu_kv *dst, const md_cpu_kv *src, uint32_t positions, md_error *err);

// The keys of (block, head), and its values.
static inline uint8_t *md_cpu_kv_keys(const md_cpu_kv_layer *layer, uint32_t block, uint32_t head) {
    return layer->pages.at + block * layer->shape.block_bytes + (uint64_t)head * layer->shape.head_bytes;
}
static inline uint8_t *md_cpu_kv_values(const md_cpu_kv_layer *layer, uint32_t block, uint32_t head) {
    return md_cpu_kv_keys(layer, block, head) + layer->shape.keys_bytes;
}
static inline uint16_t *md_cpu_kv_value_scales(const md_cpu_kv_layer *layer, uint32_t block, uint32_t head) {
    return (uint16_t *)(void *)(md_cpu_kv_values(layer, block, head) + MD_ATTN_BLOCK * layer->shape.value_stride);
}

// Writes one head's key and value (head_dim bf16 each) at `position`, quantizing where the layer is quantized.
void md_cpu_kv_append(const md_cpu_kv_layer *layer, uint32_t head, uint32_t position, const uint16_t *key,
                      const uint16_t *value);

#endif
