// The checked, immutable description of an MLX snapshot on disk: hyperparameters and where each tensor's bytes lie.
//
// md_snapshot_open reads config.json, generation_config.json, kv_config.json, the safetensors headers (shards and
// index), checks everything against everything, and keeps the weight files open. No weights are held in memory: they
// are read with md_tensor_read when an engine repacks them, so that a snapshot costs no memory and a file truncated
// later is an error, never SIGBUS. After opening, every size below is trusted: no reader checks it again.
// Thread-safe after opening (reads use pread).
#ifndef MD_MODEL_SNAPSHOT_H
#define MD_MODEL_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// Bounds that config.json is held to; plan and engines size their arithmetic by them.
enum {
    MD_MAX_LAYERS = 1024,
    MD_MAX_HIDDEN = 1 << 16, // also the bound of intermediate size and of heads * head_dim
    MD_MAX_VOCAB = 1 << 21,
    MD_MAX_HEADS = 1024,
    MD_MAX_HEAD_DIM = 1024,
    MD_MAX_CONTEXT = 1 << 24,
    MD_MAX_EOS = 16
};

typedef enum md_dtype { MD_DTYPE_U32, MD_DTYPE_BF16, MD_DTYPE_F16, MD_DTYPE_F32 } md_dtype;

size_t md_dtype_size(md_dtype dtype);      // bytes an element
const char *md_dtype_name(md_dtype dtype); // as safetensors spells it: "U32", "BF16", "F16", "F32"

// One tensor's bytes: row-major, little endian, dense, `rows * row_bytes` bytes at `offset` of one open file.
typedef struct md_tensor {
    const char *name;           // "model.layers.0.mlp.up_proj.weight"; owned by the snapshot
    const struct md_file *file; // owned by the snapshot
    uint64_t offset;            // of the first byte in the file
    md_dtype dtype;
    uint32_t rows, cols; // a vector is 1 row; cols counts elements of dtype (packed words for U32)
    uint64_t row_bytes;
} md_tensor;

// A linear layer's weights W[rows][cols] (rows = outputs, cols = inputs), quantized or not.
//   quantized:  w = scale * q + bias, groups of `group` along a row; MLX affine (mlx/ops.cpp)
//               weight: U32 [rows][cols * bits / 32], little-endian bit stream of codes along the row
//               scales, biases: [rows][cols / group] of bf16, f16 or f32 (both the same)
//   otherwise:  bits == 0; weight: bf16, f16 or f32 [rows][cols]; scales and biases are absent
typedef struct md_matrix {
    const char *path; // module path, "model.layers.0.mlp.up_proj"
    uint32_t rows, cols;
    uint32_t bits;  // 2, 3, 4, 5, 6, 8; 0 = not quantized
    uint32_t group; // 32, 64, 128; 0 = not quantized
    md_tensor weight, scales, biases;
    bool has_bias; // an additive bias b[rows] (config: attention_bias, mlp_bias), bf16/f16/f32
    md_tensor bias;
} md_matrix;

uint64_t md_matrix_bytes(const md_matrix *matrix); // codes, scales, biases and additive bias as stored

typedef struct md_layer {
    md_matrix q, k, v, o;     // [q_heads*head_dim][hidden], [kv_heads*head_dim][hidden] x2, [hidden][q_heads*head_dim]
    md_matrix gate, up, down; // [ffn][hidden] x2, [hidden][ffn]
    md_tensor attn_norm, ffn_norm; // [hidden]: input_layernorm, post_attention_layernorm
} md_layer;

typedef enum md_rope_type { MD_ROPE_PLAIN, MD_ROPE_LINEAR, MD_ROPE_LLAMA3 } md_rope_type;

typedef struct md_rope {
    md_rope_type type;
    double theta;                                               // base, 10000 .. 5e6 ..
    double factor;                                              // linear and llama3
    double low_freq_factor, high_freq_factor, original_context; // llama3
} md_rope;

// How one layer's KV cache is stored once quantized: bits 0 = stays bf16, else 4 or 8 with groups of 64 (or 32, 128)
// along head_dim.
typedef struct md_kv_format {
    uint8_t bits;
    uint8_t group;
} md_kv_format;

typedef struct md_sampling_defaults { // generation_config.json; each `has_` says whether the file gives it
    bool has_temperature, has_top_p, has_top_k, has_min_p, has_repetition_penalty, do_sample;
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
} md_sampling_defaults;

typedef struct md_snapshot {
    const char *dir;
    uint32_t layers, hidden, ffn, vocab;
    uint32_t q_heads, kv_heads, head_dim; // kv_heads divides q_heads; head_dim is even
    uint32_t context;                     // max_position_embeddings
    float norm_eps;
    md_rope rope;
    bool tied_head;           // head == embed then
    uint32_t eos[MD_MAX_EOS]; // the union of eos_token_id in config.json and in generation_config.json
    uint32_t eos_count;
    int64_t bos; // of config.json, else of generation_config.json; -1: none
    md_sampling_defaults sampling;

    md_matrix embed;      // [vocab][hidden]
    md_matrix head;       // [vocab][hidden]; a copy of embed's description when tied
    md_tensor final_norm; // [hidden]
    md_layer *layer;      // [layers]
    md_kv_format *kv;     // [layers] from kv_config.json; NULL when the snapshot has none

    struct md_snapshot_files *files; // owned: open shards, names
} md_snapshot;

// `model` is a folder, or a Hugging Face repo id ("org/name") looked up in the local hub cache (HF_HUB_CACHE, HF_HOME,
// ~/.cache/huggingface/hub). Errors: MD_E_NOT_FOUND, MD_E_IO, MD_E_FORMAT, MD_E_UNSUPPORTED, MD_E_MEMORY, each naming
// the file and the field or tensor, what was found and what was expected.
md_status md_snapshot_open(const char *model, md_snapshot **out, md_error *err);
void md_snapshot_close(md_snapshot *snapshot);

// Resolves `model` as md_snapshot_open does, without opening it: a malloc'd folder path.
md_status md_model_dir(const char *model, char **dir, md_error *err);

// Reads rows [first, first + count) of a tensor as stored: count * row_bytes bytes into `out`. MD_E_FORMAT where one of
// its values (not of U32: codes) is an infinity or a NaN; the message names file, tensor, row and group or column.
md_status md_tensor_read(const md_tensor *tensor, uint32_t first, uint32_t count, void *out, md_error *err);

// Reads the same rows converted to fp32 (exact): count * cols floats. Not for U32.
md_status md_tensor_read_f32(const md_tensor *tensor, uint32_t first, uint32_t count, float *out, md_error *err);

// Reads what stands beside a matrix's weights, scales, biases and additive bias, to refuse what md_tensor_read refuses;
// of a snapshot all matrices' and the norms. Matrices that are not quantized are looked at when they are read.
md_status md_matrix_check_scales(const md_matrix *matrix, md_error *err);
md_status md_snapshot_check_scales(const md_snapshot *snapshot, md_error *err);

// Reads kv_config.json's format (an array of {"layer_idx", "bits", "group_size"}) from `path` for a model of `layers`
// layers and `head_dim`; *out is malloc'd [layers].
md_status md_kv_config_read(const char *path, uint32_t layers, uint32_t head_dim, md_kv_format **out, md_error *err);

#endif
