// Opening a snapshot: config and tensors are bound to each other, every shape checked against the hyperparameters.
#include "model/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "model/config.h"
#include "model/shards.h"

enum { MAX_GENERATION_BYTES = 1024 * 1024, MAX_NAME = 128 };

typedef struct binder {
    md_snapshot *snapshot;
    const md_config *config;
    md_snapshot_files *files;
    md_error *err;
} binder;

// ---- one tensor --------------------------------------------------------------------------------------------------

static bool parse_dtype(const char *name, md_dtype *out) {
    for (md_dtype dtype = MD_DTYPE_U32; dtype <= MD_DTYPE_F32; dtype++) {
        if (strcmp(md_dtype_name(dtype), name) != 0) continue;
        *out = dtype;
        return true;
    }
    return false;
}

// "[4096, 64]" into `out`, for messages.
static const char *shape_text(const md_st_tensor *tensor, char *out, size_t cap) {
    size_t at = 0;
    for (uint32_t i = 0; i < tensor->rank && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%llu", i ? ", " : "[", (unsigned long long)tensor->shape[i]);
    if (at < cap) snprintf(out + at, cap - at, "]");
    return out;
}

// Takes tensor `name` of `rank` dimensions (1: a vector). Its size along them is the caller's to check, but fits.
static md_status take(binder *b, const char *name, uint32_t rank, md_tensor *out) {
    md_named_tensor *found = md_files_find(b->files, name);
    if (!found)
        return md_fail(b->err, MD_E_FORMAT, "%s: tensor %s is missing from the weight files", b->snapshot->dir, name);
    const md_st_tensor *tensor = found->tensor;
    const char *file = found->file->path;
    md_dtype dtype;
    if (!parse_dtype(tensor->dtype, &dtype))
        return md_fail(b->err, MD_E_UNSUPPORTED, "%s: tensor %s has dtype %s, expected U32, BF16, F16 or F32", file,
                       name, tensor->dtype);
    char shape[192];
    uint64_t rows = rank == 2 ? tensor->shape[0] : 1, cols = tensor->shape[rank - 1];
    if (tensor->rank != rank || rows > UINT32_MAX || cols > UINT32_MAX)
        return md_fail(b->err, MD_E_FORMAT, "%s: tensor %s has shape %s, expected %u dimension%s", file, name,
                       shape_text(tensor, shape, sizeof shape), rank, rank == 1 ? "" : "s");
    *out = (md_tensor){.name = tensor->name,
                       .file = found->file,
                       .offset = found->offset,
                       .dtype = dtype,
                       .rows = (uint32_t)rows,
                       .cols = (uint32_t)cols,
                       .row_bytes = cols * md_dtype_size(dtype)};
    found->used = true;
    return MD_OK;
}

static md_status check_dtype(binder *b, const md_tensor *tensor, bool packed) {
    if ((tensor->dtype == MD_DTYPE_U32) == packed) return MD_OK;
    return md_fail(b->err, MD_E_FORMAT, "%s: tensor %s has dtype %s, expected %s", tensor->file->path, tensor->name,
                   md_dtype_name(tensor->dtype), packed ? "U32 (packed codes)" : "BF16, F16 or F32");
}

static md_status take_vector(binder *b, const char *name, uint32_t cols, md_tensor *out) {
    MD_TRY(take(b, name, 1, out));
    MD_TRY(check_dtype(b, out, false));
    if (out->cols != cols)
        return md_fail(b->err, MD_E_FORMAT, "%s: tensor %s has %u elements, expected %u by config.json",
                       out->file->path, name, out->cols, cols);
    return MD_OK;
}

// ---- one matrix --------------------------------------------------------------------------------------------------

static const char *join(char *out, const char *path, const char *suffix) {
    snprintf(out, 2 * MAX_NAME, "%s.%s", path, suffix);
    return out;
}

static md_status fail_size(binder *b, const md_tensor *tensor, const char *what, uint64_t found, uint32_t expected,
                           const char *key) {
    return md_fail(b->err, MD_E_FORMAT, "%s: %s has %llu %s, expected %u by config.json (%s)", tensor->file->path,
                   tensor->name, (unsigned long long)found, what, expected, key);
}

// The pair of scales and biases, and that they have a row for each row of codes.
static md_status check_scales(binder *b, const md_matrix *m, const char *rows_key) {
    const md_tensor *scales = &m->scales, *biases = &m->biases;
    MD_TRY(check_dtype(b, scales, false));
    if (biases->rows != scales->rows || biases->cols != scales->cols || biases->dtype != scales->dtype)
        return md_fail(b->err, MD_E_FORMAT, "%s: %s is %s [%u, %u] and %s is %s [%u, %u], expected the same",
                       scales->file->path, scales->name, md_dtype_name(scales->dtype), scales->rows, scales->cols,
                       biases->name, md_dtype_name(biases->dtype), biases->rows, biases->cols);
    return scales->rows == m->rows ? MD_OK : fail_size(b, scales, "rows", scales->rows, m->rows, rows_key);
}

// Given the inputs a row has, bits and group follow from the shapes alone; both must be what the config says.
static md_status check_quantized(binder *b, const md_matrix *m, md_quant_format format, const char *cols_key) {
    const char *file = m->weight.file->path;
    const uint64_t row_bits = (uint64_t)m->weight.cols * 32, inputs = (uint64_t)m->scales.cols * format.group;
    if (inputs != m->cols && inputs * format.bits == row_bits) // the config's own bits and group, another width
        return fail_size(b, &m->weight, "inputs", inputs, m->cols, cols_key);
    if (row_bits != (uint64_t)m->cols * format.bits) {
        char really[64] = "no whole number of bits";
        if (row_bits % m->cols == 0)
            snprintf(really, sizeof really, "%llu bits", (unsigned long long)(row_bits / m->cols));
        return md_fail(
            b->err, MD_E_FORMAT,
            "%s: %s: config.json gives it %u bits%s, but its weight has %u words a row for %u inputs, which is "
            "%s",
            file, m->path, format.bits,
            json_object_get(b->config->modules, m->path) ? "" : " (the default; no override names this path)",
            m->weight.cols, m->cols, really);
    }
    if (inputs != m->cols)
        return md_fail(b->err, MD_E_FORMAT,
                       "%s: %s: config.json gives it groups of %u, but its scales have %u columns for %u inputs", file,
                       m->path, format.group, m->scales.cols, m->cols);
    return MD_OK;
}

// Takes scales and biases of a matrix whose codes are taken, and checks all three.
static md_status bind_quantized(binder *b, md_matrix *m, md_quant_format format, const md_module *module) {
    char name[2 * MAX_NAME];
    MD_TRY(check_dtype(b, &m->weight, true));
    MD_TRY(take(b, join(name, m->path, "scales"), 2, &m->scales));
    MD_TRY(take(b, join(name, m->path, "biases"), 2, &m->biases));
    MD_TRY(check_scales(b, m, module->rows_key));
    MD_TRY(check_quantized(b, m, format, module->cols_key));
    m->bits = format.bits;
    m->group = format.group;
    return MD_OK;
}

// How `path` is stored: what the config says, held against whether it has scales at all.
static md_status find_format(binder *b, const char *path, md_quant_format *format) {
    char name[2 * MAX_NAME];
    bool has_scales = md_files_find(b->files, join(name, path, "scales")) != NULL;
    if (has_scales && !b->config->quantized)
        return md_fail(b->err, MD_E_FORMAT, "%s: tensor %s exists, but config.json has no \"quantization\"",
                       b->snapshot->dir, name);
    MD_TRY(md_config_module(b->config, path, has_scales, format, b->err));
    if (has_scales && format->bits == 0)
        return md_fail(b->err, MD_E_FORMAT, "%s: tensor %s exists, but config.json says that %s is not quantized",
                       b->snapshot->dir, name, path);
    return MD_OK;
}

// Fills *m for the module at `path`, quantized as the config says or dense.
static md_status bind_matrix(binder *b, const char *path, const md_module *module, md_matrix *m) {
    char name[2 * MAX_NAME];
    md_quant_format format;
    m->path = md_arena_strdup(&b->files->arena, path);
    if (!m->path) return md_fail(b->err, MD_E_MEMORY, "%s: out of memory", b->snapshot->dir);
    m->rows = module->rows;
    m->cols = module->cols;
    m->has_bias = module->bias;
    MD_TRY(find_format(b, path, &format));
    MD_TRY(take(b, join(name, path, "weight"), 2, &m->weight));
    if (m->weight.rows != m->rows) return fail_size(b, &m->weight, "rows", m->weight.rows, m->rows, module->rows_key);
    if (format.bits) {
        MD_TRY(bind_quantized(b, m, format, module));
    } else {
        MD_TRY(check_dtype(b, &m->weight, false));
        if (m->weight.cols != m->cols)
            return fail_size(b, &m->weight, "columns", m->weight.cols, m->cols, module->cols_key);
    }
    return m->has_bias ? take_vector(b, join(name, path, "bias"), m->rows, &m->bias) : MD_OK;
}

// ---- the model ---------------------------------------------------------------------------------------------------

static md_status bind_layer(binder *b, uint32_t index, md_layer *layer) {
    md_matrix *const out[] = {&layer->q, &layer->k, &layer->v, &layer->o, &layer->gate, &layer->up, &layer->down};
    char path[MAX_NAME];
    for (uint32_t i = 0; i < MD_LAYER_MATRICES; i++) {
        md_module module = md_config_layer_module(b->config, i);
        snprintf(path, sizeof path, "model.layers.%u.%s", index, module.name);
        MD_TRY(bind_matrix(b, path, &module, out[i]));
    }
    snprintf(path, sizeof path, "model.layers.%u.input_layernorm.weight", index);
    MD_TRY(take_vector(b, path, b->config->hidden, &layer->attn_norm));
    snprintf(path, sizeof path, "model.layers.%u.post_attention_layernorm.weight", index);
    return take_vector(b, path, b->config->hidden, &layer->ffn_norm);
}

// Tensors nobody took: what mlx-lm drops too (rotary tables, the weight of a tied model's head) is ignored; anything
// else means a forward pass that is not modelled. That includes a quantized head beside a tied config: mlx-lm refuses
// its scales, and whichever of the two were taken at its word, the other would be wrong.
static md_status check_rest(binder *b) {
    static const char rotary[] = "rotary_emb.inv_freq";
    for (size_t i = 0; i < b->files->tensors; i++) {
        const md_named_tensor *rest = &b->files->tensor[i];
        const char *name = rest->tensor->name;
        size_t n = strlen(name), r = strlen(rotary);
        if (rest->used || (n >= r && strcmp(name + n - r, rotary) == 0)) continue;
        if (b->config->tied_head && strcmp(name, "lm_head.weight") == 0) {
            md_log(MD_LOG_WARN, "%s: tensor %s is not used, since config.json ties the head to the embedding",
                   rest->file->path, name);
            continue;
        }
        return md_fail(b->err, MD_E_UNSUPPORTED, "%s: tensor %s is not part of the model that config.json describes",
                       rest->file->path, name);
    }
    return MD_OK;
}

static md_status bind_model(binder *b) {
    md_snapshot *s = b->snapshot;
    s->layer = MD_ARENA_ARRAY(&b->files->arena, md_layer, s->layers);
    if (!s->layer) return md_fail(b->err, MD_E_MEMORY, "%s: out of memory for %u layers", s->dir, s->layers);
    const md_module table = {"", s->vocab, s->hidden, "vocab_size", "hidden_size", false};
    MD_TRY(bind_matrix(b, "model.embed_tokens", &table, &s->embed));
    for (uint32_t i = 0; i < s->layers; i++) MD_TRY(bind_layer(b, i, &s->layer[i]));
    MD_TRY(take_vector(b, "model.norm.weight", s->hidden, &s->final_norm));
    if (s->tied_head)
        s->head = s->embed;
    else
        MD_TRY(bind_matrix(b, "lm_head", &table, &s->head));
    return check_rest(b);
}

static void copy_config(md_snapshot *s, const md_config *c) {
    s->layers = c->layers;
    s->hidden = c->hidden;
    s->ffn = c->ffn;
    s->vocab = c->vocab;
    s->q_heads = c->q_heads;
    s->kv_heads = c->kv_heads;
    s->head_dim = c->head_dim;
    s->context = c->context;
    s->norm_eps = c->norm_eps;
    s->rope = c->rope;
    s->tied_head = c->tied_head;
    memcpy(s->eos, c->eos, sizeof s->eos);
    s->eos_count = c->eos_count;
    s->bos = c->bos;
}

// ---- generation_config.json --------------------------------------------------------------------------------------

static md_status read_number(const json_t *root, const char *key, double min, double max, bool *has, double *out,
                             const char *what, md_error *err) {
    const json_t *value = json_object_get(root, key);
    *has = value && !json_is_null(value);
    return md_json_get_number(root, key, min, max, out, what, err);
}

// Sampling defaults, and more end-of-text tokens: the set is the union of this file's and config.json's.
static md_status parse_generation(const json_t *root, md_snapshot *s, const char *what, md_error *err) {
    if (!json_is_object(root))
        return md_fail(err, MD_E_FORMAT, "%s: is %s, expected an object", what, md_json_type_name(root));
    md_sampling_defaults *d = &s->sampling;
    MD_TRY(md_config_read_eos(root, s->vocab, s->eos, &s->eos_count, what, err));
    if (s->bos < 0) MD_TRY(md_json_get_int(root, "bos_token_id", 0, (int64_t)s->vocab - 1, &s->bos, what, err));
    MD_TRY(md_json_get_bool(root, "do_sample", &d->do_sample, what, err));
    MD_TRY(read_number(root, "temperature", 0, 1000, &d->has_temperature, &d->temperature, what, err));
    MD_TRY(read_number(root, "top_p", 0, 1, &d->has_top_p, &d->top_p, what, err));
    MD_TRY(read_number(root, "min_p", 0, 1, &d->has_min_p, &d->min_p, what, err));
    MD_TRY(read_number(root, "repetition_penalty", 1e-3, 1000, &d->has_repetition_penalty, &d->repetition_penalty, what,
                       err));
    const json_t *top_k = json_object_get(root, "top_k");
    d->has_top_k = top_k && !json_is_null(top_k);
    return md_json_get_int(root, "top_k", 0, INT32_MAX, &d->top_k, what, err);
}

static md_status read_generation(md_snapshot *s, const char *path, md_error *err) {
    json_t *root;
    MD_TRY(md_json_read_file(path, MAX_GENERATION_BYTES, &root, err));
    md_status status = parse_generation(root, s, path, err);
    json_decref(root);
    return status;
}

// ---- opening -----------------------------------------------------------------------------------------------------

// *path: that of `name` in the folder of the snapshot, to be freed, or NULL where there is no such file.
static md_status optional_file(const md_snapshot *s, const char *name, char **path, md_error *err) {
    *path = md_path_join(s->dir, name);
    if (!*path) return md_fail(err, MD_E_MEMORY, "%s: out of memory", s->dir);
    if (md_path_absent(*path)) {
        free(*path);
        *path = NULL;
    }
    return MD_OK;
}

static md_status read_optional_files(md_snapshot *s, md_error *err) {
    char *path;
    md_status status = MD_OK;
    MD_TRY(optional_file(s, "generation_config.json", &path, err));
    if (path) status = read_generation(s, path, err);
    free(path);
    MD_TRY(status);
    MD_TRY(optional_file(s, "kv_config.json", &path, err));
    if (path) status = md_kv_config_read(path, s->layers, s->head_dim, &s->kv, err);
    free(path);
    return status;
}

static md_status open_dir(md_snapshot *s, md_error *err) {
    char *path = md_path_join(s->dir, "config.json");
    if (!path) return md_fail(err, MD_E_MEMORY, "%s: out of memory", s->dir);
    md_config config;
    md_status status = md_config_read(path, &config, err);
    free(path);
    MD_TRY(status);
    copy_config(s, &config);
    MD_TRY_GOTO(read_optional_files(s, err));
    MD_TRY_GOTO(md_files_open(s->files, s->dir, err));
    binder b = {s, &config, s->files, err};
    MD_TRY_GOTO(bind_model(&b));
fail:
    md_config_free(&config);
    return status;
}

md_status md_snapshot_open(const char *model, md_snapshot **out, md_error *err) {
    *out = NULL;
    char *dir;
    MD_TRY(md_model_dir(model, &dir, err));
    md_snapshot *s = calloc(1, sizeof *s);
    md_snapshot_files *files = calloc(1, sizeof *files);
    if (!s || !files) {
        free(s);
        free(files);
        free(dir);
        return md_fail(err, MD_E_MEMORY, "%s: out of memory", model);
    }
    s->dir = dir;
    s->files = files;
    md_status status = open_dir(s, err);
    if (status == MD_OK)
        *out = s;
    else
        md_snapshot_close(s);
    return status;
}

void md_snapshot_close(md_snapshot *snapshot) {
    if (!snapshot) return;
    md_files_close(snapshot->files);
    free(snapshot->files);
    free(snapshot->kv);
    free((char *)snapshot->dir);
    free(snapshot);
}
