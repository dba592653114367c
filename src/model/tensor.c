// Tensors and matrices of an open snapshot: sizes, and reads that let nothing through but numbers.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/file.h"
#include "model/snapshot.h"

enum { CHECK_SLAB_BYTES = 1 << 20 };

size_t md_dtype_size(md_dtype dtype) { return dtype == MD_DTYPE_U32 || dtype == MD_DTYPE_F32 ? 4 : 2; }

const char *md_dtype_name(md_dtype dtype) {
    switch (dtype) {
    case MD_DTYPE_U32: return "U32";
    case MD_DTYPE_BF16: return "BF16";
    case MD_DTYPE_F16: return "F16";
    case MD_DTYPE_F32: return "F32";
    }
    return "?";
}

static uint64_t tensor_bytes(const md_tensor *tensor) { return tensor->rows * tensor->row_bytes; }

uint64_t md_matrix_bytes(const md_matrix *matrix) {
    uint64_t bytes = tensor_bytes(&matrix->weight);
    if (matrix->bits) bytes += tensor_bytes(&matrix->scales) + tensor_bytes(&matrix->biases);
    if (matrix->has_bias) bytes += tensor_bytes(&matrix->bias);
    return bytes;
}

// A type's exponent, in the lowest of its elements that a word of 64 bits holds; that bit times `lanes` is in all.
static const struct exponent {
    uint64_t lanes, field, lowest;
} exponents[] = {[MD_DTYPE_BF16] = {0x0001000100010001u, 0x7f80, 0x0080},
                 [MD_DTYPE_F16] = {0x0001000100010001u, 0x7c00, 0x0400},
                 [MD_DTYPE_F32] = {0x0000000100000001u, 0x7f800000, 0x00800000}};

// Infinities and NaN have an exponent of ones, so that its lowest bit added to it carries into the sign's place.
static bool all_finite(const uint8_t *values, size_t bytes, md_dtype dtype) {
    const struct exponent *e = &exponents[dtype];
    const uint64_t field = e->lanes * e->field, lowest = e->lanes * e->lowest;
    uint64_t word, carried = 0;
    size_t at = 0;
    for (; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, values + at, sizeof word);
        carried |= (word & field) + lowest;
    }
    word = 0;
    memcpy(&word, values + at, bytes - at);
    carried |= (word & field) + lowest;
    return !(carried & e->lanes * (e->field + e->lowest));
}

static float element(const uint8_t *values, size_t index, md_dtype dtype) {
    uint16_t half;
    float value;
    if (dtype == MD_DTYPE_F32) {
        memcpy(&value, values + index * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, values + index * sizeof half, sizeof half);
    return dtype == MD_DTYPE_BF16 ? md_bf16_to_f32(half) : md_f16_to_f32(half);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

// What stands in `values`, rows of the tensor from `first` on, has one that is not finite: which.
static md_status not_finite(const md_tensor *tensor, uint32_t first, const uint8_t *values, md_error *err) {
    size_t i = 0;
    while (isfinite(element(values, i, tensor->dtype))) i++;
    const float found = element(values, i, tensor->dtype);
    const bool groups = ends_with(tensor->name, ".scales") || ends_with(tensor->name, ".biases");
    return md_fail(err, MD_E_FORMAT, "%s: %s: row %zu, %s %zu: found %s, expected a finite number", tensor->file->path,
                   tensor->name, first + i / tensor->cols, groups ? "group" : "column", i % tensor->cols,
                   isnan(found) ? "NaN"
                   : found > 0  ? "infinity"
                                : "-infinity");
}

md_status md_tensor_read(const md_tensor *tensor, uint32_t first, uint32_t count, void *out, md_error *err) {
    if (first > tensor->rows || count > tensor->rows - first)
        return md_fail(err, MD_E_USAGE, "%s: rows %u and %u more asked for, it has %u", tensor->name, first, count,
                       tensor->rows);
    const size_t bytes = (size_t)(count * tensor->row_bytes);
    MD_TRY(md_file_pread(tensor->file, tensor->offset + first * tensor->row_bytes, out, bytes, err));
    if (tensor->dtype == MD_DTYPE_U32 || all_finite(out, bytes, tensor->dtype)) return MD_OK; // codes are any bits
    return not_finite(tensor, first, out, err);
}

// Widens n 16-bit values that lie at the end of the n floats of `out`, front to back: a value is read before the float
// that covers its place is written.
static void widen(float *out, size_t n, md_dtype dtype) {
    const char *in = (const char *)(out + n) - n * sizeof(uint16_t);
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, in + i * sizeof half, sizeof half);
        out[i] = dtype == MD_DTYPE_BF16 ? md_bf16_to_f32(half) : md_f16_to_f32(half);
    }
}

md_status md_tensor_read_f32(const md_tensor *tensor, uint32_t first, uint32_t count, float *out, md_error *err) {
    if (tensor->dtype == MD_DTYPE_U32)
        return md_fail(err, MD_E_USAGE, "%s: holds packed codes, not values", tensor->name);
    if (tensor->dtype == MD_DTYPE_F32) return md_tensor_read(tensor, first, count, out, err);
    size_t n = (size_t)count * tensor->cols;
    MD_TRY(md_tensor_read(tensor, first, count, (char *)(out + n) - n * sizeof(uint16_t), err));
    widen(out, n, tensor->dtype);
    return MD_OK;
}

// Reads it all, by slabs of rows, for md_tensor_read to look at.
static md_status check_tensor(const md_tensor *tensor, md_error *err) {
    const uint64_t fit = CHECK_SLAB_BYTES / tensor->row_bytes;
    const uint32_t slab = fit < 1 ? 1 : fit > tensor->rows ? tensor->rows : (uint32_t)fit;
    md_status status = MD_OK;
    void *rows = malloc((size_t)(slab * tensor->row_bytes));
    if (!rows) return md_fail(err, MD_E_MEMORY, "%s: out of memory", tensor->name);
    for (uint32_t at = 0; status == MD_OK && at < tensor->rows; at += slab)
        status = md_tensor_read(tensor, at, tensor->rows - at < slab ? tensor->rows - at : slab, rows, err);
    free(rows);
    return status;
}

md_status md_matrix_check_scales(const md_matrix *matrix, md_error *err) {
    if (matrix->has_bias) MD_TRY(check_tensor(&matrix->bias, err));
    if (!matrix->bits) return MD_OK;
    MD_TRY(check_tensor(&matrix->scales, err));
    return check_tensor(&matrix->biases, err);
}

md_status md_snapshot_check_scales(const md_snapshot *snapshot, md_error *err) {
    MD_TRY(md_matrix_check_scales(&snapshot->embed, err));
    for (uint32_t i = 0; i < snapshot->layers; i++) {
        const md_layer *l = &snapshot->layer[i];
        const md_matrix *matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        MD_TRY(check_tensor(&l->attn_norm, err));
        MD_TRY(check_tensor(&l->ffn_norm, err));
        for (size_t m = 0; m < sizeof matrices / sizeof *matrices; m++)
            MD_TRY(md_matrix_check_scales(matrices[m], err));
    }
    MD_TRY(check_tensor(&snapshot->final_norm, err));
    return snapshot->tied_head ? MD_OK : md_matrix_check_scales(&snapshot->head, err);
}
