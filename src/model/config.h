// config.json of a Llama-shaped MLX snapshot: hyperparameters and which module is quantized how.
//
// Accepted model_type: "llama", "mistral" (the same forward) and "qwen2" (biases on q, k and v). What would change the
// forward and is not modelled (sliding windows, partial rotary, soft caps, other RoPE scalings, fp4/fp8 modes, legacy
// quantizers) is refused by name. Defaults of absent keys are mlx-lm's (mlx_lm/models/llama.py, ModelArgs).
#ifndef MD_MODEL_CONFIG_H
#define MD_MODEL_CONFIG_H

#include "base/json.h"
#include "model/snapshot.h"

typedef struct md_quant_format {
    uint32_t bits, group; // 0, 0: not quantized
} md_quant_format;

typedef struct md_config {
    uint32_t layers, hidden, ffn, vocab;
    uint32_t q_heads, kv_heads, head_dim;
    uint32_t context;
    float norm_eps;
    md_rope rope;
    bool tied_head;
    bool qkv_bias, o_bias, mlp_bias;
    uint32_t eos[MD_MAX_EOS];
    uint32_t eos_count;
    int64_t bos; // -1: none

    bool quantized;        // the config has a quantization block
    md_quant_format quant; // its default
    const json_t *modules; // its overrides by exact module path; borrowed from root; NULL without a block
    json_t *root;          // owned
    char *path;            // owned; for messages
} md_config;

// On failure nothing is to be freed. `path` names the source of md_config_parse in messages.
md_status md_config_read(const char *path, md_config *out, md_error *err);
md_status md_config_parse(const char *text, size_t n, const char *path, md_config *out, md_error *err);
void md_config_free(md_config *config);

// How the config says `module` ("model.layers.0.mlp.up_proj") is stored: the override of that exact path, if there is
// one; else the default where the module `has_scales` (mlx-lm's rule). Members an override leaves out are the
// default's.
md_status md_config_module(const md_config *config, const char *module, bool has_scales, md_quant_format *out,
                           md_error *err);

// The seven matrices of a layer, in the order q, k, v, o, gate, up, down: W[rows][cols] with or without additive bias.
enum { MD_LAYER_MATRICES = 7 };
typedef struct md_module {
    const char *name; // below "model.layers.N."; static
    uint32_t rows, cols;
    const char *rows_key, *cols_key; // what of config.json gives them, for messages; static
    bool bias;
} md_module;
md_module md_config_layer_module(const md_config *config, uint32_t index); // index < MD_LAYER_MATRICES

// Adds eos_token_id of a config, a number or a list, to those of `eos` (a set).
md_status md_config_read_eos(const json_t *root, uint32_t vocab, uint32_t *eos, uint32_t *count, const char *what,
                             md_error *err);

// The two parts of config.json that have files of their own (config_rope.c, config_quant.c).
md_status md_config_parse_rope(const json_t *root, double default_theta, md_rope *out, const char *what, md_error *err);
md_status md_config_parse_quant(md_config *config, md_error *err);

#endif
