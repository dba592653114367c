// Tensors and matrices of an open snapshot: sizes and reads.
#include <string.h>

#include "base/bf16.h"
#include "base/file.h"
#include "model/snapshot.h"

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

md_status md_tensor_read(const md_tensor *tensor, uint32_t first, uint32_t count, void *out, md_error *err) {
    if (first > tensor->rows || count > tensor->rows - first)
        return md_fail(err, MD_E_USAGE, "%s: rows %u and %u more asked for, it has %u", tensor->name, first, count,
                       tensor->rows);
    return md_file_pread(tensor->file, tensor->offset + first * tensor->row_bytes, out,
                         (size_t)(count * tensor->row_bytes), err);
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
