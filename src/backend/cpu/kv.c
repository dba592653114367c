#include "backend/cpu/kv.h"

#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/checked.h"
#include "model/quant.h"

enum { UNQUANTIZED_CHUNK = 64, MAX_KV_GROUP = 128 };

static void shape_of(uint32_t heads, uint32_t head_dim, md_kv_format format, md_cpu_kv_shape *out) {
    *out = (md_cpu_kv_shape){.format = format, .head_dim = head_dim, .dim = (uint32_t)md_round_up(head_dim, 16)};
    uint32_t values;
    if (format.bits) {
        uint32_t groups = head_dim / format.group;
        out->group = format.group;
        out->chunk_bytes = 64 + 16u * format.group * format.bits / 8;
        out->chunks = groups;
        out->tile_bytes = groups * out->chunk_bytes;
        out->value_stride = head_dim * format.bits / 8;
        values = MD_ATTN_BLOCK * (out->value_stride + groups * 4);
    } else {
        out->group = UNQUANTIZED_CHUNK;
        out->chunk_bytes = 16u * UNQUANTIZED_CHUNK * 2;
        out->chunks = (uint32_t)md_ceil_div(head_dim, UNQUANTIZED_CHUNK);
        out->tile_bytes = (head_dim + 1) / 2 * 64; // the last chunk ends where head_dim does
        out->value_stride = out->dim * 2;
        values = MD_ATTN_BLOCK * out->value_stride;
    }
    out->keys_bytes = MD_ATTN_BLOCK / 16 * out->tile_bytes;
    out->head_bytes = (uint32_t)md_round_up(out->keys_bytes + values, 64);
    out->block_bytes = (uint64_t)heads * out->head_bytes;
}

static md_status alloc_layer(const md_cpu_kv *kv, uint32_t l, md_kv_format format, md_cpu_kv_layer *out,
                             md_error *err) {
    shape_of(kv->heads, kv->head_dim, format, &out->shape);
    uint64_t blocks = md_ceil_div(kv->context, MD_ATTN_BLOCK);
    md_status status = md_pages_alloc(&out->pages, blocks * out->shape.block_bytes, false, "KV cache", err);
    return status == MD_OK ? MD_OK : md_fail_context(err, status, "layer %u, context %u", l, kv->context);
}

md_status md_cpu_kv_new(const md_snapshot *model, uint32_t context, md_cpu_kv **out, md_error *err) {
    *out = NULL;
    if (context < 1 || context > MD_MAX_CONTEXT)
        return md_fail(err, MD_E_USAGE, "a context of %u positions, expected 1 to %d", context, MD_MAX_CONTEXT);
    md_cpu_kv *kv = calloc(1, sizeof *kv);
    if (kv) kv->layer = calloc(model->layers, sizeof *kv->layer);
    if (!kv || !kv->layer) {
        free(kv);
        return md_fail(err, MD_E_MEMORY, "out of memory for a KV cache");
    }
    kv->context = context;
    kv->layers = model->layers;
    kv->heads = model->kv_heads;
    kv->head_dim = model->head_dim;
    md_status status;
    for (uint32_t l = 0; l < kv->layers; l++) MD_TRY_GOTO(alloc_layer(kv, l, (md_kv_format){0}, &kv->layer[l], err));
    *out = kv;
    return MD_OK;
fail:
    md_cpu_kv_free(kv);
    return status;
}

void md_cpu_kv_free(md_cpu_kv *kv) {
    if (!kv) return;
    for (uint32_t l = 0; l < kv->layers; l++) md_pages_free(&kv->layer[l].pages);
    free(kv->layer);
    free(kv);
}

uint64_t md_cpu_kv_size(const md_cpu_kv *kv) {
    uint64_t blocks = md_ceil_div(kv->used, MD_ATTN_BLOCK), bytes = 0;
    for (uint32_t l = 0; l < kv->layers; l++) bytes += blocks * kv->layer[l].shape.block_bytes;
    return bytes;
}

md_status md_cpu_kv_check_formats(const md_cpu_kv *kv, const md_kv_format *format, md_error *err) {
    for (uint32_t l = 0; l < kv->layers; l++) {
        md_kv_format now = kv->layer[l].shape.format, wanted = format[l];
        if (wanted.bits && wanted.bits != 4 && wanted.bits != 8)
            return md_fail(err, MD_E_USAGE, "layer %u: a KV cache of %u bits, expected 4 or 8", l, wanted.bits);
        if (wanted.bits &&
            ((wanted.group != 32 && wanted.group != 64 && wanted.group != 128) || kv->head_dim % wanted.group))
            return md_fail(err, MD_E_USAGE, "layer %u: KV groups of %u, expected 32, 64 or 128 dividing head_dim %u", l,
                           wanted.group, kv->head_dim);
        if (now.bits && (now.bits != wanted.bits || now.group != wanted.group))
            return md_fail(err, MD_E_USAGE, "layer %u's KV cache has %u bits in groups of %u already", l, now.bits,
                           now.group);
    }
    return MD_OK;
}

md_status md_cpu_kv_prepare_layer(const md_cpu_kv *kv, uint32_t l, md_kv_format format, md_cpu_kv_layer *to,
                                  md_error *err) {
    return alloc_layer(kv, l, format, to, err);
}

// A code of 8 bits, or one nibble of a byte whose other one stays.
static void write_code(uint8_t *at, uint8_t code, uint32_t bits, bool high) {
    if (bits == 8)
        *at = code;
    else
        *at = high ? (uint8_t)((*at & 15) | code << 4) : (uint8_t)((*at & 240) | code);
}

// One position's codes of one group of keys.
static void write_key_codes(const md_cpu_kv_shape *shape, uint8_t *chunk, uint32_t lane, const uint8_t *codes) {
    uint32_t bits = shape->format.bits, quads = bits == 8 ? 1 : 2; // in 64 bytes
    for (uint32_t d = 0; d < shape->group; d++) {
        uint32_t quad = d / 4;
        write_code(chunk + 64 + quad / quads * 64 + 4 * lane + d % 4, codes[d], bits, quad % quads);
    }
}

// One position's codes of one group of values, from dim `first` on.
static void write_value_codes(const md_cpu_kv_shape *shape, uint8_t *values, uint32_t row, uint32_t first,
                              const uint8_t *codes) {
    uint32_t bits = shape->format.bits, quads = bits == 8 ? 1 : 2, quad = row / 4;
    uint8_t *at = values + (size_t)first * (MD_ATTN_BLOCK * bits / 8) + quad / quads * 64 + row % 4;
    for (uint32_t d = 0; d < shape->group; d++) {
        uint8_t *code = at + (size_t)(d / 16) * (16 * MD_ATTN_BLOCK * bits / 8) + d % 16 * 4;
        write_code(code, codes[d], bits, quad % quads);
    }
}

// Quantizes one group.
static void quantize_group(const md_cpu_kv_shape *shape, const uint16_t *from, uint8_t *codes, uint16_t *scale,
                           uint16_t *bias) {
    float wide[MAX_KV_GROUP];
    for (uint32_t i = 0; i < shape->group; i++) wide[i] = md_bf16_to_f32(from[i]);
    md_affine_quantize(wide, shape->group, shape->format.bits, shape->group, codes, scale, bias);
}

static void append_quantized(const md_cpu_kv_layer *layer, uint32_t head, uint32_t position, const uint16_t *key,
                             const uint16_t *value) {
    const md_cpu_kv_shape *shape = &layer->shape;
    uint32_t block = position / MD_ATTN_BLOCK, row = position % MD_ATTN_BLOCK, lane = row % 16;
    uint8_t *tile = md_cpu_kv_keys(layer, block, head) + row / 16 * shape->tile_bytes;
    uint8_t *values = md_cpu_kv_values(layer, block, head);
    uint16_t *scales = md_cpu_kv_value_scales(layer, block, head);
    for (uint32_t g = 0; g < shape->chunks; g++, key += shape->group, value += shape->group) {
        uint8_t codes[MAX_KV_GROUP], *chunk = tile + g * shape->chunk_bytes;
        uint16_t *key_scales = (uint16_t *)(void *)chunk, *value_scales = scales + 2 * g * MD_ATTN_BLOCK;
        quantize_group(shape, key, codes, &key_scales[lane], &key_scales[16 + lane]);
        write_key_codes(shape, chunk, lane, codes);
        quantize_group(shape, value, codes, &value_scales[row], &value_scales[MD_ATTN_BLOCK + row]);
        write_value_codes(shape, values, row, g * shape->group, codes);
    }
}

void md_cpu_kv_append(const md_cpu_kv_layer *layer, uint32_t head, uint32_t position, const uint16_t *key,
                      const uint16_t *value) {
    const md_cpu_kv_shape *shape = &layer->shape;
    if (shape->format.bits) {
        append_quantized(layer, head, position, key, value);
        return;
    }
    uint32_t block = position / MD_ATTN_BLOCK, row = position % MD_ATTN_BLOCK;
    uint8_t *lane = md_cpu_kv_keys(layer, block, head) + row / 16 * shape->tile_bytes + row % 16 * 4;
    for (uint32_t p = 0; p < shape->head_dim / 2; p++) memcpy(lane + 64 * p, key + 2 * p, 4);
    memcpy(md_cpu_kv_values(layer, block, head) + row * shape->value_stride, value, 2 * (size_t)shape->head_dim);
}

void md_cpu_kv_convert_layer(const md_cpu_kv *kv, uint32_t l, md_cpu_kv_layer *to, uint32_t positions) {
    const md_cpu_kv_layer *from = &kv->layer[l];
    const md_cpu_kv_shape *shape = &from->shape;
    uint16_t key[MD_MAX_HEAD_DIM];
    for (uint32_t position = 0; position < positions; position++) {
        uint32_t block = position / MD_ATTN_BLOCK, row = position % MD_ATTN_BLOCK;
        for (uint32_t h = 0; h < kv->heads; h++) {
            const uint8_t *lane = md_cpu_kv_keys(from, block, h) + row / 16 * shape->tile_bytes + row % 16 * 4;
            for (uint32_t p = 0; p < kv->head_dim / 2; p++) memcpy(key + 2 * p, lane + 64 * p, 4);
            const void *value = md_cpu_kv_values(from, block, h) + row * shape->value_stride;
            md_cpu_kv_append(to, h, position, key, value);
        }
    }
}

md_status md_cpu_kv_copy_into(md_cpu_kv *dst, const md_cpu_kv *src, uint32_t positions, md_error *err) {
    if (positions > dst->context || positions > src->context)
        return md_fail(err, MD_E_CONTEXT, "cannot copy %u positions into a cache of %u from one of %u", positions,
                       dst->context, src->context);
    for (uint32_t l = 0; l < src->layers; l++) {
        md_kv_format from = src->layer[l].shape.format, to = dst->layer[l].shape.format;
        if (to.bits && (to.bits != from.bits || to.group != from.group))
            return md_fail(err, MD_E_USAGE, "the cache to copy into is quantized otherwise (layer %u)", l);
    }
    uint64_t blocks = md_ceil_div(positions, MD_ATTN_BLOCK);
    for (uint32_t l = 0; l < src->layers; l++) {
        md_cpu_kv_layer *to = &dst->layer[l], fresh;
        const md_cpu_kv_layer *from = &src->layer[l];
        if (from->shape.format.bits && !to->shape.format.bits) {
            MD_TRY(alloc_layer(dst, l, from->shape.format, &fresh, err));
            md_pages_free(&to->pages);
            *to = fresh;
        }
        memcpy(to->pages.at, from->pages.at, blocks * from->shape.block_bytes);
    }
    if (dst->used < positions) dst->used = positions;
    return MD_OK;
}
