// An opened snapshot as lines of text, so that a build without the JSON library (another processor's, under an
// emulator) can open it: where the one weight file is, the sizes, and every tensor's place in it.
#ifndef MD_TESTS_DESCRIPTION_H
#define MD_TESTS_DESCRIPTION_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "model/snapshot.h"

// One walk over all fields serves both directions: `in` NULL writes to `out`.
typedef struct description {
    FILE *in, *out;
    const md_file *file;
    bool bad;
} description;

static inline void describe_u64(description *d, uint64_t *value) {
    if (d->in)
        d->bad |= fscanf(d->in, "%" SCNu64, value) != 1;
    else
        fprintf(d->out, "%" PRIu64 "\n", *value);
}

#define DESCRIBE(d, field)                                                                                             \
    do {                                                                                                               \
        uint64_t value_ = (uint64_t)(field);                                                                           \
        describe_u64(d, &value_);                                                                                      \
        (field) = value_;                                                                                              \
    } while (0)

static inline void describe_double(description *d, double *value) {
    if (d->in)
        d->bad |= fscanf(d->in, "%la", value) != 1;
    else
        fprintf(d->out, "%a\n", *value);
}

static inline void describe_tensor(description *d, md_tensor *tensor) {
    uint64_t dtype = tensor->dtype;
    DESCRIBE(d, tensor->offset);
    describe_u64(d, &dtype);
    tensor->dtype = (md_dtype)dtype;
    DESCRIBE(d, tensor->rows);
    DESCRIBE(d, tensor->cols);
    DESCRIBE(d, tensor->row_bytes);
    if (!d->in) return;
    tensor->file = d->file;
    tensor->name = "tensor";
}

static inline void describe_matrix(description *d, md_matrix *matrix) {
    DESCRIBE(d, matrix->rows);
    DESCRIBE(d, matrix->cols);
    DESCRIBE(d, matrix->bits);
    DESCRIBE(d, matrix->group);
    describe_tensor(d, &matrix->weight);
    if (matrix->bits) describe_tensor(d, &matrix->scales);
    if (matrix->bits) describe_tensor(d, &matrix->biases);
    DESCRIBE(d, matrix->has_bias);
    if (matrix->has_bias) describe_tensor(d, &matrix->bias);
    if (d->in) matrix->path = "matrix";
}

static inline void describe_sizes(description *d, md_snapshot *s) {
    uint64_t type = s->rope.type;
    double eps = (double)s->norm_eps;
    DESCRIBE(d, s->layers);
    DESCRIBE(d, s->hidden);
    DESCRIBE(d, s->ffn);
    DESCRIBE(d, s->vocab);
    DESCRIBE(d, s->q_heads);
    DESCRIBE(d, s->kv_heads);
    DESCRIBE(d, s->head_dim);
    DESCRIBE(d, s->context);
    describe_double(d, &eps);
    s->norm_eps = (float)eps;
    describe_u64(d, &type);
    s->rope.type = (md_rope_type)type;
    describe_double(d, &s->rope.theta);
    describe_double(d, &s->rope.factor);
    describe_double(d, &s->rope.low_freq_factor);
    describe_double(d, &s->rope.high_freq_factor);
    describe_double(d, &s->rope.original_context);
}

static inline void describe_layer(description *d, md_snapshot *s, uint32_t index) {
    md_layer *layer = &s->layer[index];
    md_matrix *matrices[] = {&layer->q, &layer->k, &layer->v, &layer->o, &layer->gate, &layer->up, &layer->down};
    for (size_t m = 0; m < sizeof matrices / sizeof *matrices; m++) describe_matrix(d, matrices[m]);
    describe_tensor(d, &layer->attn_norm);
    describe_tensor(d, &layer->ffn_norm);
    DESCRIBE(d, s->kv[index].bits);
    DESCRIBE(d, s->kv[index].group);
}

// Reads it into *s (d->in) or writes *s (d->out). False: what was read is no description.
static inline bool describe(description *d, md_snapshot *s) {
    describe_sizes(d, s);
    if (d->in) {
        if (d->bad || s->layers > MD_MAX_LAYERS) return false;
        s->layer = calloc(s->layers, sizeof *s->layer);
        s->kv = calloc(s->layers, sizeof *s->kv);
        if (!s->layer || !s->kv) return false;
    }
    describe_matrix(d, &s->embed);
    describe_matrix(d, &s->head);
    describe_tensor(d, &s->final_norm);
    for (uint32_t i = 0; i < s->layers; i++) describe_layer(d, s, i);
    return !d->bad;
}

#endif
