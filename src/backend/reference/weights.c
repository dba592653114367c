// A matrix of the reference engine: read whole, kept as the snapshot stores it.
#include <stdlib.h>

#include "backend/reference/ops.h"

static md_status load_f32(const md_tensor *tensor, float **out, md_error *err) {
    *out = malloc((size_t)tensor->rows * tensor->cols * sizeof **out);
    if (!*out)
        return md_fail(err, MD_E_MEMORY, "%s: out of memory for %u x %u values", tensor->name, tensor->rows,
                       tensor->cols);
    return md_tensor_read_f32(tensor, 0, tensor->rows, *out, err);
}

md_status md_ref_matrix_load(const md_matrix *desc, md_ref_matrix *out, md_error *err) {
    *out = (md_ref_matrix){.desc = desc};
    size_t bytes = (size_t)desc->rows * desc->weight.row_bytes;
    out->weight = malloc(bytes);
    if (!out->weight) return md_fail(err, MD_E_MEMORY, "%s: out of memory for %zu bytes", desc->path, bytes);
    MD_TRY(md_tensor_read(&desc->weight, 0, desc->rows, out->weight, err));
    if (desc->bits) {
        MD_TRY(load_f32(&desc->scales, &out->scales, err));
        MD_TRY(load_f32(&desc->biases, &out->biases, err));
    }
    return desc->has_bias ? load_f32(&desc->bias, &out->bias, err) : MD_OK;
}

void md_ref_matrix_free(md_ref_matrix *matrix) {
    free(matrix->weight);
    free(matrix->scales);
    free(matrix->biases);
    free(matrix->bias);
    *matrix = (md_ref_matrix){0};
}
