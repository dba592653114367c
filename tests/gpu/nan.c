// A NaN or an infinity in a cache stays one when the cache is quantized, and reaches the logits; every other group is
// quantized as md_affine_quantize does it, which MLX's fixtures hold (tests/unit/test_model_quant.c).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/engine.h"
#include "base/bf16.h"
#include "gates.h"
#include "model/quant.h"

enum { LENGTH = 40, CONTEXT = 48 };

static bool no_number(uint16_t bf16) { return (bf16 & 0x7f80) == 0x7f80; }
static bool is_nan(uint16_t bf16) { return (bf16 & 0x7fff) > 0x7f80; }

static void *read_back(const md_cuda_engine *cuda, CUdeviceptr at, size_t bytes) {
    md_error err;
    void *copy = malloc(bytes);
    check(md_cuda_check(cuda->cu, cuda->cu->cuMemcpyDtoH(copy, at, bytes), "cache", &err), &err, "cache");
    return copy;
}

// In each layer one number of a key (parts & 1) and one of a value (parts & 2), at either end of a row and group and
// inside.
static void spoil(const md_snapshot *model, uint32_t parts, uint16_t *wide, size_t half) {
    const uint32_t dims[] = {0, 5, 31, 32, model->head_dim - 1, 17};
    static const uint16_t bits[] = {0x7fc1, 0xffc0, 0x7f80, 0xff80}; // NaN, infinity
    for (uint32_t l = 0; l < model->layers; l++)
        for (uint32_t value = 0; value < 2; value++) {
            if (!(parts >> value & 1)) continue;
            const uint32_t head = l % model->kv_heads, position = (3 * l + value) % LENGTH;
            const uint32_t dim = dims[(l + 3 * value) % 6] % model->head_dim;
            wide[(2 * l + value) * half + ((size_t)head * CONTEXT + position) * model->head_dim + dim] =
                bits[(l + value) % 4];
        }
}

typedef struct tally {
    uint32_t spoiled, lost, differ; // groups with something that is no number, those of them that came out as numbers,
                                    // and others that are not the CPU's
} tally;

// A group as the device has stored it, against the CPU's.
static void compare_group(const uint16_t *values, md_kv_format format, const uint8_t *codes, uint32_t scale_bias,
                          tally *t) {
    float wide[128];
    uint8_t ours[128], packed[128];
    uint16_t scale, bias;
    bool number = true;
    for (uint32_t i = 0; i < format.group; i++) {
        wide[i] = md_bf16_to_f32(values[i]);
        number = number && !no_number(values[i]);
    }
    if (!number) {
        t->spoiled++;
        t->lost += !is_nan((uint16_t)scale_bias);
        return;
    }
    md_affine_quantize(wide, format.group, format.bits, format.group, ours, &scale, &bias);
    md_codes_pack(ours, format.bits, format.group, packed);
    const bool same = scale_bias == (scale | (uint32_t)bias << 16);
    t->differ += !same || memcmp(codes, packed, format.group * format.bits / 8) != 0;
}

static void compare_layer(const md_engine *engine, const md_cuda_kv_layer *layer, const uint16_t *wide, size_t half,
                          tally *t) {
    const md_snapshot *model = engine->snapshot;
    const md_cuda_engine *cuda = (const md_cuda_engine *)engine;
    const md_kv_format format = {.bits = (uint8_t)layer->bits, .group = (uint8_t)layer->group};
    const size_t rows = (size_t)model->kv_heads * CONTEXT, groups = model->head_dim / format.group;
    const size_t group_bytes = format.group * format.bits / 8;
    for (uint32_t value = 0; value < 2; value++) {
        uint8_t *codes = read_back(cuda, value ? layer->v : layer->k, rows * groups * group_bytes);
        uint32_t *scales = read_back(cuda, value ? layer->v_scales : layer->k_scales, rows * groups * 4);
        for (size_t row = 0; row < rows; row++)
            for (size_t g = 0; g < groups && row % CONTEXT < LENGTH; g++)
                compare_group(wide + value * half + row * model->head_dim + g * format.group, format,
                              codes + (row * groups + g) * group_bytes, scales[row * groups + g], t);
        free(codes);
        free(scales);
    }
}

static void spoiled_run(md_engine *engine, uint32_t parts) {
    static const md_kv_format formats[] = {{8, 64}, {4, 64}, {8, 32}, {4, 32}};
    md_error err;
    md_cuda_engine *cuda = md_cuda_of(engine);
    const md_snapshot *model = engine->snapshot;
    md_kv_format format[MD_MAX_LAYERS];
    uint32_t *tokens = some_tokens(LENGTH + 1, 3);
    float *logits = malloc(model->vocab * sizeof *logits);
    md_kv *kv = open_kv(engine, CONTEXT);
    const md_cuda_kv *memory = (const md_cuda_kv *)kv;
    feed(engine, kv, 0, tokens, LENGTH, 8, NULL);
    const size_t half = (size_t)model->kv_heads * CONTEXT * model->head_dim; // values of a layer's keys
    uint16_t *wide = read_back(cuda, memory->wide, memory->wide_bytes);
    spoil(model, parts, wide, half);
    check(md_cuda_check(cuda->cu, cuda->cu->cuMemcpyHtoDAsync(memory->wide, wide, memory->wide_bytes, cuda->stream),
                        "cache", &err),
          &err, "cache");
    for (uint32_t l = 0; l < model->layers; l++) format[l] = formats[l % 4];
    check(engine->ops->kv_quantize(engine, kv, format, LENGTH, &err), &err, "quantize");
    tally t = {0};
    for (uint32_t l = 0; l < model->layers; l++)
        compare_layer(engine, &memory->layer[l], wide + 2 * l * half, half, &t);
    char text[160];
    snprintf(text, sizeof text, "nan: %u groups with a NaN or an infinity, %u lost it; %u others are not the CPU's",
             t.spoiled, t.lost, t.differ);
    gate(t.spoiled == (parts == 3 ? 2 : 1) * model->layers && !t.lost && !t.differ, text);
    feed(engine, kv, LENGTH, tokens + LENGTH, 1, 1, logits);
    bool all = true;
    for (uint32_t i = 0; i < model->vocab; i++) all = all && isnan(logits[i]);
    snprintf(text, sizeof text, "nan: one among the quantized %s makes every logit NaN",
             parts == 1   ? "keys"
             : parts == 2 ? "values"
                          : "keys and values");
    gate(all, text);
    engine->ops->kv_close(engine, kv);
    free(wide);
    free(logits);
    free(tokens);
}

void gate_nan(void) {
    md_engine *engine = open_engine("resident", 0);
    for (uint32_t parts = 1; parts <= 3; parts++) spoiled_run(engine, parts);
    engine->ops->close(engine);
}
