// Random weights, streamed. Every tensor has its own random sequence, seeded by the seed and the name it depends on, so
// the bytes do not depend on the order or the cutting of the files.
//
// Codes are uniform. A group's scale is chosen so that a weight has the standard deviation `spread`, times a random
// factor and sign (MLX's scales may be negative), and its bias so that the group's mean is 0. With spread
// 1/sqrt(inputs) every matrix keeps the size of what it is given and norms keep it at 1. The two matrices a layer that
// are added to the residual stream have 1/sqrt(2 layers) of that, as models are initialised (GPT-2, section 2.3;
// Megatron): a layer then changes the stream by a little, as trained layers do, and not by as much as the stream
// itself, which would amplify every rounding. The head has 3 times 1/sqrt(inputs): logits of standard deviation 3,
// clearly apart in bf16.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/buf.h"
#include "base/file.h"
#include "model/config.h"
#include "model/synth.h"

enum { SLAB_BYTES = 1 << 20, MAX_NAME = 128, MAX_HEADER_BYTES = 64 * 1024 * 1024 };
static const uint64_t default_shard_bytes = 5ull << 30;

typedef enum content { CODES, SCALES, BIASES, DENSE } content;

typedef struct part {
    char name[MAX_NAME];
    content content;
    md_dtype dtype;
    uint32_t rank; // 1: [cols]
    uint32_t rows, cols;
    uint64_t seed;        // of its random sequence; scales and biases of a matrix share one
    uint32_t bits;        // scales, biases: of the codes they belong to
    float spread, center; // standard deviation of the weights; their mean (dense)
    uint32_t shard;
    uint64_t begin; // in its shard's data
} part;

typedef struct writer {
    const md_config *config;
    md_dtype scale_dtype, dense_dtype;
    uint64_t seed;
    part *part; // owned
    size_t count, cap;
    uint32_t shards;
    uint64_t total, done; // bytes
    char *slab;           // SLAB_BYTES, owned
    const md_synth_options *options;
} writer;

// ---- random numbers (splitmix64: one counter, one mix, no dependence between values) -------------------------------

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t random_at(uint64_t seed, uint64_t index) { return mix(seed + (index + 1) * 0x9e3779b97f4a7c15u); }

static uint64_t seed_of(uint64_t seed, const char *name) {
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return mix(seed ^ hash);
}

// ---- the list of tensors -----------------------------------------------------------------------------------------

static uint64_t part_bytes(const part *p) { return (uint64_t)p->rows * p->cols * md_dtype_size(p->dtype); }

static md_status add_part(writer *w, const char *path, const char *suffix, part p, md_error *err) {
    if (w->count == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 256;
        part *grown = realloc(w->part, cap * sizeof *grown);
        if (!grown) return md_fail(err, MD_E_MEMORY, "out of memory for the list of tensors");
        w->part = grown;
        w->cap = cap;
    }
    snprintf(p.name, sizeof p.name, "%s.%s", path, suffix);
    p.seed = seed_of(w->seed, p.content == SCALES || p.content == BIASES ? path : p.name);
    w->part[w->count++] = p;
    w->total += part_bytes(&p);
    return MD_OK;
}

static md_status add_vector(writer *w, const char *path, const char *suffix, uint32_t cols, float center, float spread,
                            md_error *err) {
    const part p = {.content = DENSE,
                    .dtype = w->dense_dtype,
                    .rank = 1,
                    .rows = 1,
                    .cols = cols,
                    .spread = spread,
                    .center = center};
    return add_part(w, path, suffix, p, err);
}

static md_status add_matrix(writer *w, const char *path, uint32_t rows, uint32_t cols, bool bias, float spread,
                            md_error *err) {
    md_quant_format format;
    MD_TRY(md_config_module(w->config, path, w->config->quantized, &format, err));
    part p = {.content = DENSE, .dtype = w->dense_dtype, .rank = 2, .rows = rows, .cols = cols, .spread = spread};
    if (format.bits) {
        if (cols % format.group != 0)
            return md_fail(err, MD_E_FORMAT, "%s: groups of %u do not divide the %u inputs of %s", w->config->path,
                           format.group, cols, path);
        p.content = CODES;
        p.dtype = MD_DTYPE_U32;
        p.cols = (uint32_t)((uint64_t)cols * format.bits / 32);
    }
    MD_TRY(add_part(w, path, "weight", p, err));
    if (format.bits) {
        p.dtype = w->scale_dtype;
        p.cols = cols / format.group;
        p.bits = format.bits;
        p.content = SCALES;
        MD_TRY(add_part(w, path, "scales", p, err));
        p.content = BIASES;
        MD_TRY(add_part(w, path, "biases", p, err));
    }
    return bias ? add_vector(w, path, "bias", rows, 0.0f, 0.1f, err) : MD_OK;
}

static md_status list_parts(writer *w, md_error *err) {
    const md_config *c = w->config;
    const float head_spread = 3.0f / sqrtf((float)c->hidden);
    const float residual = 1.0f / sqrtf(2.0f * (float)c->layers);
    char path[MAX_NAME - 16];
    MD_TRY(add_matrix(w, "model.embed_tokens", c->vocab, c->hidden, false, c->tied_head ? head_spread : 1.0f, err));
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        for (uint32_t i = 0; i < MD_LAYER_MATRICES; i++) {
            md_module m = md_config_layer_module(c, i);
            snprintf(path, sizeof path, "model.layers.%u.%s", layer, m.name);
            const bool added = strcmp(m.name, "self_attn.o_proj") == 0 || strcmp(m.name, "mlp.down_proj") == 0;
            MD_TRY(add_matrix(w, path, m.rows, m.cols, m.bias, (added ? residual : 1.0f) / sqrtf((float)m.cols), err));
        }
        snprintf(path, sizeof path, "model.layers.%u.input_layernorm", layer);
        MD_TRY(add_vector(w, path, "weight", c->hidden, 1.0f, 0.1f, err));
        snprintf(path, sizeof path, "model.layers.%u.post_attention_layernorm", layer);
        MD_TRY(add_vector(w, path, "weight", c->hidden, 1.0f, 0.1f, err));
    }
    MD_TRY(add_vector(w, "model.norm", "weight", c->hidden, 1.0f, 0.1f, err));
    return c->tied_head ? MD_OK : add_matrix(w, "lm_head", c->vocab, c->hidden, false, head_spread, err);
}

static void place_parts(writer *w, uint64_t shard_bytes) {
    uint64_t at = 0;
    w->shards = 1;
    for (size_t i = 0; i < w->count; i++) {
        if (at > 0 && at + part_bytes(&w->part[i]) > shard_bytes) {
            w->shards++;
            at = 0;
        }
        w->part[i].shard = w->shards - 1;
        w->part[i].begin = at;
        at += part_bytes(&w->part[i]);
    }
}

// ---- the values --------------------------------------------------------------------------------------------------

// A number in [-1, 1) of standard deviation 1/sqrt(3).
static float uniform(uint64_t random) { return (float)(int32_t)(random >> 32) * 0x1p-31f; }

static float round_to(float value, md_dtype dtype) {
    if (dtype == MD_DTYPE_BF16) return md_bf16_round(value);
    return dtype == MD_DTYPE_F16 ? md_f16_to_f32(md_f16_from_f32(value)) : value;
}

// Value `index` of a part that is not codes.
static float value_at(const part *p, uint64_t index) {
    uint64_t random = random_at(p->seed, index);
    if (p->content == DENSE) return p->center + p->spread * 1.7320508f * uniform(random);
    const float levels = (float)(1u << p->bits);
    float scale = p->spread * sqrtf(12.0f / (levels * levels - 1.0f)); // uniform codes: variance (levels^2 - 1) / 12
    scale *= 1.0f + 0.25f * uniform(random);
    scale = round_to(random & 1 ? scale : -scale, p->dtype);
    return p->content == SCALES ? scale : -scale * (levels - 1.0f) / 2.0f;
}

// Fills `n` bytes of the slab with the part's bytes from element (codes: 8-byte word) `first` on.
static void fill_slab(const part *p, uint64_t first, char *slab, size_t n) {
    if (p->content == CODES) {
        for (size_t i = 0; i * 8 < n; i++) {
            uint64_t word = random_at(p->seed, first + i);
            memcpy(slab + 8 * i, &word, n - 8 * i < 8 ? n - 8 * i : 8);
        }
        return;
    }
    size_t element = md_dtype_size(p->dtype);
    for (size_t i = 0; i * element < n; i++) {
        float value = value_at(p, first + i);
        if (p->dtype == MD_DTYPE_F32) {
            memcpy(slab + 4 * i, &value, 4);
        } else {
            uint16_t half = p->dtype == MD_DTYPE_BF16 ? md_bf16_from_f32(value) : md_f16_from_f32(value);
            memcpy(slab + 2 * i, &half, 2);
        }
    }
}

// ---- the files ---------------------------------------------------------------------------------------------------

static void shard_name(const writer *w, uint32_t shard, char *out, size_t cap) {
    if (w->shards == 1)
        snprintf(out, cap, "model.safetensors");
    else
        snprintf(out, cap, "model-%05u-of-%05u.safetensors", shard + 1, w->shards);
}

static md_status write_header(const writer *w, uint32_t shard, FILE *file, const char *path, md_error *err) {
    md_buf json;
    md_buf_init(&json, MAX_HEADER_BYTES);
    md_buf_puts(&json, "{\"__metadata__\":{\"format\":\"mlx\"}");
    for (size_t i = 0; i < w->count; i++) {
        const part *p = &w->part[i];
        if (p->shard != shard) continue;
        md_buf_printf(&json, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", p->name, md_dtype_name(p->dtype));
        if (p->rank == 2) md_buf_printf(&json, "%u,", p->rows);
        md_buf_printf(&json, "%u],\"data_offsets\":[%llu,%llu]}", p->cols, (unsigned long long)p->begin,
                      (unsigned long long)(p->begin + part_bytes(p)));
    }
    md_buf_putc(&json, '}');
    while (!json.failed && json.size % 8 != 0) md_buf_putc(&json, ' ');
    md_status status = json.failed ? md_fail(err, MD_E_MEMORY, "%s: out of memory for the header", path) : MD_OK;
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (uint8_t)((uint64_t)json.size >> (8 * i));
    if (status == MD_OK && (fwrite(prefix, 1, 8, file) != 8 || fwrite(json.data, 1, json.size, file) != json.size))
        status = md_fail_errno(err, "cannot write", path);
    md_buf_free(&json);
    return status;
}

static md_status write_part(writer *w, const part *p, FILE *file, const char *path, md_error *err) {
    const size_t unit = p->content == CODES ? 8 : md_dtype_size(p->dtype);
    uint64_t left = part_bytes(p), first = 0;
    while (left > 0) {
        size_t n = left < SLAB_BYTES ? (size_t)left : SLAB_BYTES;
        fill_slab(p, first, w->slab, n);
        if (fwrite(w->slab, 1, n, file) != n) return md_fail_errno(err, "cannot write", path);
        first += n / unit;
        left -= n;
        w->done += n;
        const md_synth_options *options = w->options;
        if (options->progress && !options->progress(options->progress_user, (double)w->done / (double)w->total))
            return md_fail(err, MD_E_CANCELLED, "%s: given up", path);
    }
    return MD_OK;
}

static md_status write_shard(writer *w, uint32_t shard, const char *dir, md_error *err) {
    char name[64];
    shard_name(w, shard, name, sizeof name);
    char *path = md_path_join(dir, name);
    if (!path) return md_fail(err, MD_E_MEMORY, "%s: out of memory", dir);
    md_status status = MD_OK;
    FILE *file = fopen(path, "wbx");
    if (!file) {
        status = md_fail_errno(err, "cannot write", path);
        goto fail;
    }
    MD_TRY_GOTO(write_header(w, shard, file, path, err));
    for (size_t i = 0; i < w->count; i++)
        if (w->part[i].shard == shard) MD_TRY_GOTO(write_part(w, &w->part[i], file, path, err));
    if (fflush(file) != 0 || fsync(fileno(file)) != 0) status = md_fail_errno(err, "cannot write", path);
fail:
    if (file && fclose(file) != 0 && status == MD_OK) status = md_fail_errno(err, "cannot write", path);
    free(path);
    return status;
}

static md_status write_index(const writer *w, const char *dir, md_error *err) {
    char name[64];
    md_buf json;
    md_buf_init(&json, MAX_HEADER_BYTES);
    md_buf_printf(&json, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {",
                  (unsigned long long)w->total);
    for (size_t i = 0; i < w->count; i++) {
        shard_name(w, w->part[i].shard, name, sizeof name);
        md_buf_printf(&json, "%s\n    \"%s\": \"%s\"", i ? "," : "", w->part[i].name, name);
    }
    md_buf_puts(&json, "\n  }\n}\n");
    char *path = md_path_join(dir, "model.safetensors.index.json");
    md_status status;
    if (json.failed || !path)
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory for the index", dir);
    else
        status = md_file_write_atomic(path, json.data, json.size, err);
    free(path);
    md_buf_free(&json);
    return status;
}

static md_status read_dtype(const json_t *object, const char *key, md_dtype *out, const char *what, md_error *err) {
    const char *name = "BF16";
    MD_TRY(md_json_get_string(object, key, &name, what, err));
    for (*out = MD_DTYPE_BF16; *out <= MD_DTYPE_F32; ++*out)
        if (strcmp(name, md_dtype_name(*out)) == 0) return MD_OK;
    return md_fail(err, MD_E_FORMAT, "%s: \"_synth\": \"%s\" is \"%.32s\", expected BF16, F16 or F32", what, key, name);
}

// Before much is written, where the file system is too small for it.
static md_status check_space(const writer *w, const char *dir, md_error *err) {
    struct statvfs fs;
    if (statvfs(dir, &fs) != 0) return MD_OK; // the writing will tell
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (w->total <= room) return MD_OK;
    return md_fail(err, MD_E_IO, "%s: needs %llu MB, but its file system has %llu MB free", dir,
                   (unsigned long long)w->total / 1000000 + 1, (unsigned long long)room / 1000000);
}

md_status md_synth_weights(const md_config *config, const char *dir, const md_synth_options *options, md_error *err) {
    md_status status;
    const json_t *private = json_object_get(config->root, "_synth");
    writer w = {.config = config, .seed = options->seed, .options = options, .slab = malloc(SLAB_BYTES)};
    if (!w.slab) return md_fail(err, MD_E_MEMORY, "%s: out of memory", dir);
    int64_t shard_bytes = (int64_t)default_shard_bytes;
    MD_TRY_GOTO(read_dtype(private, "scales", &w.scale_dtype, config->path, err));
    MD_TRY_GOTO(read_dtype(private, "weights", &w.dense_dtype, config->path, err));
    MD_TRY_GOTO(md_json_get_int(private, "shard_bytes", 1, INT64_MAX, &shard_bytes, config->path, err));
    MD_TRY_GOTO(list_parts(&w, err));
    place_parts(&w, (uint64_t)shard_bytes);
    MD_TRY_GOTO(check_space(&w, dir, err));
    for (uint32_t shard = 0; shard < w.shards; shard++) MD_TRY_GOTO(write_shard(&w, shard, dir, err));
    MD_TRY_GOTO(write_index(&w, dir, err));
fail:
    free(w.part);
    free(w.slab);
    return status;
}
