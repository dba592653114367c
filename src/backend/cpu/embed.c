// The embedding row of a token, read from the snapshot's file when the token comes: three small reads from the page
// cache take about two microseconds, and no copy of the embedding has to stay in memory.
#include "backend/cpu/cpu.h"
#include "base/bf16.h"
#include "model/quant.h"

enum { SPAN = 1024 }; // elements decoded at a time; a multiple of every group

static md_status read_floats(const md_tensor *tensor, uint32_t row, float *out, md_error *err) {
    return md_tensor_read_f32(tensor, row, 1, out, err);
}

md_status md_cpu_embed(md_cpu_engine *e, uint32_t c, md_error *err) {
    const md_matrix *embed = &e->base.snapshot->embed;
    uint32_t token = e->column[c].token;
    uint16_t *x = e->x + (size_t)c * e->hidden_stride;
    // Worker 0's scratch is idle between steps; both parts hold at least a row.
    float *values = e->scratch[0].x, *scales = e->scratch[0].embed, *biases = scales + embed->cols;
    if (!embed->bits) {
        MD_TRY(read_floats(&embed->weight, token, values, err));
        for (uint32_t i = 0; i < embed->cols; i++) x[i] = md_bf16_from_f32(values[i]);
        return MD_OK;
    }
    uint8_t *packed = (uint8_t *)values, codes[SPAN];
    MD_TRY(md_tensor_read(&embed->weight, token, 1, packed, err));
    MD_TRY(read_floats(&embed->scales, token, scales, err));
    MD_TRY(read_floats(&embed->biases, token, biases, err));
    for (uint32_t at = 0; at < embed->cols; at += SPAN) {
        uint32_t n = embed->cols - at < SPAN ? embed->cols - at : SPAN;
        md_codes_unpack(packed + (size_t)at * embed->bits / 8, embed->bits, n, codes);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t g = (at + i) / embed->group;
            x[at + i] = md_bf16_from_f32(md_bf16_round(scales[g] * (float)codes[i]) + biases[g]);
        }
    }
    return MD_OK;
}
