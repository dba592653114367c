#include "model/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { MAX_CONFIG_BYTES = 16 * 1024 * 1024 };

// What a model_type adds to the common shape.
static const struct family {
    const char *model_type;
    bool qkv_bias;    // always has additive biases on q, k and v, whatever attention_bias says
    bool window_flag; // sliding_window counts only with use_sliding_window
    double rope_theta;
} families[] = {
    {"llama", false, false, 10000.0},
    {"mistral", false, false, 10000.0},
    {"qwen2", true, true, 1000000.0},
};

static md_status find_family(const json_t *root, const struct family **out, const char *what, md_error *err) {
    const char *type = NULL;
    MD_TRY(md_json_get_string(root, "model_type", &type, what, err));
    if (!type) return md_fail(err, MD_E_FORMAT, "%s: \"model_type\" is missing, expected \"llama\"", what);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(type, families[i].model_type) != 0) continue;
        *out = &families[i];
        return MD_OK;
    }
    return md_fail(err, MD_E_UNSUPPORTED,
                   "%s: \"model_type\" is \"%.64s\", which is not modelled (only llama, mistral and qwen2 are)", what,
                   type);
}

static md_status require_u32(const json_t *root, const char *key, uint32_t max, uint32_t *out, const char *what,
                             md_error *err) {
    int64_t value = 0; // stays 0 when the key is missing, since 0 is out of range
    MD_TRY(md_json_get_int(root, key, 1, max, &value, what, err));
    if (value == 0) return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is missing, expected 1 to %u", what, key, max);
    *out = (uint32_t)value;
    return MD_OK;
}

static md_status parse_heads(md_config *c, md_error *err) {
    const char *what = c->path;
    MD_TRY(require_u32(c->root, "num_attention_heads", MD_MAX_HEADS, &c->q_heads, what, err));
    int64_t kv_heads = c->q_heads;
    MD_TRY(md_json_get_int(c->root, "num_key_value_heads", 1, MD_MAX_HEADS, &kv_heads, what, err));
    c->kv_heads = (uint32_t)kv_heads;
    if (c->q_heads % c->kv_heads != 0)
        return md_fail(err, MD_E_FORMAT,
                       "%s: \"num_key_value_heads\" is %u, which does not divide the %u attention heads", what,
                       c->kv_heads, c->q_heads);
    int64_t head_dim = 0;
    MD_TRY(md_json_get_int(c->root, "head_dim", 1, MD_MAX_HEAD_DIM, &head_dim, what, err));
    if (head_dim == 0) {
        if (c->hidden % c->q_heads != 0 || c->hidden / c->q_heads > MD_MAX_HEAD_DIM)
            return md_fail(err, MD_E_FORMAT,
                           "%s: \"head_dim\" is missing and \"hidden_size\" %u over %u heads does not give one", what,
                           c->hidden, c->q_heads);
        head_dim = c->hidden / c->q_heads;
    }
    c->head_dim = (uint32_t)head_dim;
    if (c->head_dim % 2 != 0)
        return md_fail(err, MD_E_FORMAT, "%s: \"head_dim\" is %u, expected an even number (RoPE turns pairs)", what,
                       c->head_dim);
    if ((uint64_t)c->q_heads * c->head_dim > MD_MAX_HIDDEN)
        return md_fail(err, MD_E_FORMAT, "%s: \"num_attention_heads\" %u times \"head_dim\" %u is more than %d", what,
                       c->q_heads, c->head_dim, MD_MAX_HIDDEN);
    return MD_OK;
}

static md_status parse_sizes(md_config *c, md_error *err) {
    MD_TRY(require_u32(c->root, "num_hidden_layers", MD_MAX_LAYERS, &c->layers, c->path, err));
    MD_TRY(require_u32(c->root, "hidden_size", MD_MAX_HIDDEN, &c->hidden, c->path, err));
    MD_TRY(require_u32(c->root, "intermediate_size", MD_MAX_HIDDEN, &c->ffn, c->path, err));
    MD_TRY(require_u32(c->root, "vocab_size", MD_MAX_VOCAB, &c->vocab, c->path, err));
    MD_TRY(require_u32(c->root, "max_position_embeddings", MD_MAX_CONTEXT, &c->context, c->path, err));
    return parse_heads(c, err);
}

// A layer_types list that holds anything but full attention, or a sliding window shorter than the context.
static md_status refuse_windows(const md_config *c, const struct family *family, md_error *err) {
    bool on = !family->window_flag;
    if (family->window_flag) MD_TRY(md_json_get_bool(c->root, "use_sliding_window", &on, c->path, err));
    int64_t window = c->context;
    MD_TRY(md_json_get_int(c->root, "sliding_window", 0, INT64_MAX, &window, c->path, err));
    if (on && window < c->context)
        return md_fail(err, MD_E_UNSUPPORTED,
                       "%s: \"sliding_window\" is %lld with a context of %u: sliding-window attention is not modelled",
                       c->path, (long long)window, c->context);
    size_t i;
    json_t *type;
    json_array_foreach(json_object_get(c->root, "layer_types"), i, type) {
        const char *name = json_string_value(type);
        if (!name || strcmp(name, "full_attention") != 0)
            return md_fail(err, MD_E_UNSUPPORTED,
                           "%s: \"layer_types\" of layer %zu is \"%.64s\", which is not modelled", c->path, i,
                           name ? name : md_json_type_name(type));
    }
    return MD_OK;
}

// Keys that change the forward pass when they are set, and are not modelled.
static md_status refuse_variants(const md_config *c, md_error *err) {
    const char *act = "silu";
    MD_TRY(md_json_get_string(c->root, "hidden_act", &act, c->path, err));
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: \"hidden_act\" is \"%.64s\", which is not modelled (only silu is)",
                       c->path, act);
    double rotary = 1.0;
    MD_TRY(md_json_get_number(c->root, "partial_rotary_factor", 0, 1, &rotary, c->path, err));
    if (rotary != 1.0)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: \"partial_rotary_factor\" is %g: partial rotary is not modelled",
                       c->path, rotary);
    static const char *const flags[] = {"rope_traditional", "use_qk_norm", "qk_layernorm"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool set = false;
        MD_TRY(md_json_get_bool(c->root, flags[i], &set, c->path, err));
        if (set) return md_fail(err, MD_E_UNSUPPORTED, "%s: \"%s\" is true, which is not modelled", c->path, flags[i]);
    }
    static const char *const set[] = {
        "attn_logit_softcapping", "final_logit_softcapping", "logits_scaling",    "logit_scale",
        "residual_multiplier",    "embedding_multiplier",    "num_local_experts", "num_experts"};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        const json_t *value = json_object_get(c->root, set[i]);
        if (value && !json_is_null(value))
            return md_fail(err, MD_E_UNSUPPORTED, "%s: \"%s\" is set, which is not modelled", c->path, set[i]);
    }
    return MD_OK;
}

// "architectures" may be absent; what it names must be the architecture of the model_type.
static md_status refuse_architectures(const md_config *c, md_error *err) {
    static const char *const known[] = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"};
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(c->root, "architectures"), i, entry) {
        const char *name = json_string_value(entry);
        bool found = false;
        for (size_t k = 0; name && k < sizeof known / sizeof *known; k++) found |= strcmp(name, known[k]) == 0;
        if (!found)
            return md_fail(err, MD_E_UNSUPPORTED, "%s: \"architectures\" names \"%.64s\", which is not modelled",
                           c->path, name ? name : md_json_type_name(entry));
    }
    return MD_OK;
}

static md_status add_eos(const json_t *id, uint32_t vocab, uint32_t *eos, uint32_t *count, const char *what,
                         md_error *err) {
    if (!json_is_integer(id))
        return md_fail(err, MD_E_FORMAT, "%s: \"eos_token_id\" is or holds %s, expected an id or a list of ids", what,
                       md_json_type_name(id));
    int64_t value = json_integer_value(id);
    if (value < 0 || value >= vocab)
        return md_fail(err, MD_E_FORMAT, "%s: \"eos_token_id\" is %lld, outside the vocabulary of %u", what,
                       (long long)value, vocab);
    for (uint32_t i = 0; i < *count; i++)
        if (eos[i] == (uint32_t)value) return MD_OK;
    if (*count == MD_MAX_EOS)
        return md_fail(err, MD_E_FORMAT, "%s: \"eos_token_id\" names more than %d tokens", what, MD_MAX_EOS);
    eos[(*count)++] = (uint32_t)value;
    return MD_OK;
}

md_status md_config_read_eos(const json_t *root, uint32_t vocab, uint32_t *eos, uint32_t *count, const char *what,
                             md_error *err) {
    const json_t *value = json_object_get(root, "eos_token_id");
    if (!value || json_is_null(value)) return MD_OK;
    if (!json_is_array(value)) return add_eos(value, vocab, eos, count, what, err);
    for (size_t i = 0; i < json_array_size(value); i++)
        MD_TRY(add_eos(json_array_get(value, i), vocab, eos, count, what, err));
    return MD_OK;
}

static md_status parse_forward(md_config *c, const struct family *family, md_error *err) {
    double eps = 0;
    MD_TRY(md_json_get_number(c->root, "rms_norm_eps", 1e-20, 1, &eps, c->path, err));
    if (eps == 0) return md_fail(err, MD_E_FORMAT, "%s: \"rms_norm_eps\" is missing", c->path);
    c->norm_eps = (float)eps;
    c->tied_head = true;
    MD_TRY(md_json_get_bool(c->root, "tie_word_embeddings", &c->tied_head, c->path, err));
    bool attention_bias = false;
    MD_TRY(md_json_get_bool(c->root, "attention_bias", &attention_bias, c->path, err));
    MD_TRY(md_json_get_bool(c->root, "mlp_bias", &c->mlp_bias, c->path, err));
    c->qkv_bias = family->qkv_bias || attention_bias;
    c->o_bias = !family->qkv_bias && attention_bias;
    MD_TRY(md_config_parse_rope(c->root, family->rope_theta, &c->rope, c->path, err));
    MD_TRY(refuse_windows(c, family, err));
    MD_TRY(refuse_variants(c, err));
    return refuse_architectures(c, err);
}

md_module md_config_layer_module(const md_config *c, uint32_t index) {
    static const char q_key[] = "num_attention_heads * head_dim", kv_key[] = "num_key_value_heads * head_dim",
                      hidden_key[] = "hidden_size", ffn_key[] = "intermediate_size";
    const uint32_t q = c->q_heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const md_module modules[MD_LAYER_MATRICES] = {
        {"self_attn.q_proj", q, c->hidden, q_key, hidden_key, c->qkv_bias},
        {"self_attn.k_proj", kv, c->hidden, kv_key, hidden_key, c->qkv_bias},
        {"self_attn.v_proj", kv, c->hidden, kv_key, hidden_key, c->qkv_bias},
        {"self_attn.o_proj", c->hidden, q, hidden_key, q_key, c->o_bias},
        {"mlp.gate_proj", c->ffn, c->hidden, ffn_key, hidden_key, c->mlp_bias},
        {"mlp.up_proj", c->ffn, c->hidden, ffn_key, hidden_key, c->mlp_bias},
        {"mlp.down_proj", c->hidden, c->ffn, hidden_key, ffn_key, c->mlp_bias},
    };
    return modules[index];
}

md_status md_config_parse(const char *text, size_t n, const char *path, md_config *out, md_error *err) {
    *out = (md_config){.bos = -1};
    MD_TRY(md_json_parse(text, n, false, path, &out->root, err));
    md_status status = MD_OK;
    out->path = strdup(path);
    if (!out->path) {
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory", path);
        goto fail;
    }
    if (!json_is_object(out->root)) {
        status = md_fail(err, MD_E_FORMAT, "%s: is %s, expected an object", path, md_json_type_name(out->root));
        goto fail;
    }
    const struct family *family = NULL;
    MD_TRY_GOTO(find_family(out->root, &family, path, err));
    MD_TRY_GOTO(parse_sizes(out, err));
    MD_TRY_GOTO(parse_forward(out, family, err));
    MD_TRY_GOTO(md_config_parse_quant(out, err));
    MD_TRY_GOTO(md_config_read_eos(out->root, out->vocab, out->eos, &out->eos_count, path, err));
    MD_TRY_GOTO(md_json_get_int(out->root, "bos_token_id", 0, (int64_t)out->vocab - 1, &out->bos, path, err));
    return MD_OK;
fail:
    md_config_free(out);
    return status;
}

md_status md_config_read(const char *path, md_config *out, md_error *err) {
    char *text;
    size_t size;
    MD_TRY(md_file_read_all(path, MAX_CONFIG_BYTES, &text, &size, err));
    md_status status = md_config_parse(text, size, path, out, err);
    free(text);
    return status;
}

void md_config_free(md_config *config) {
    json_decref(config->root);
    free(config->path);
    *config = (md_config){0};
}
