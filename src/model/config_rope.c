// RoPE out of config.json: "rope_theta" with "rope_scaling" (null, or an object with "type" or "rope_type"), or the
// newer "rope_parameters", which holds rope_theta too.
#include <string.h>

#include "model/config.h"

static md_status parse_kind(const json_t *object, md_rope *rope, const char *what, md_error *err) {
    const char *type = "default";
    MD_TRY(md_json_get_string(object, "type", &type, what, err)); // the older name of the two
    MD_TRY(md_json_get_string(object, "rope_type", &type, what, err));
    if (strcmp(type, "default") == 0)
        rope->type = MD_ROPE_PLAIN;
    else if (strcmp(type, "linear") == 0)
        rope->type = MD_ROPE_LINEAR;
    else if (strcmp(type, "llama3") == 0)
        rope->type = MD_ROPE_LLAMA3;
    else
        return md_fail(err, MD_E_UNSUPPORTED,
                       "%s: the RoPE type is \"%.64s\", which is not modelled (only default, linear and llama3 are)",
                       what, type);
    return MD_OK;
}

static md_status parse_scaling(const json_t *object, const char *key, md_rope *rope, const char *path, md_error *err) {
    char what[512];
    snprintf(what, sizeof what, "%s: \"%s\"", path, key);
    if (!json_is_object(object))
        return md_fail(err, MD_E_FORMAT, "%s is %s, expected an object", what, md_json_type_name(object));
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) if (json_is_object(value)) return md_fail(
        err, MD_E_UNSUPPORTED, "%s: one RoPE for each layer type (\"%.64s\") is not modelled", what, name);
    MD_TRY(parse_kind(object, rope, what, err));
    MD_TRY(md_json_get_number(object, "rope_theta", 1, 1e15, &rope->theta, what, err));
    if (rope->type == MD_ROPE_PLAIN) return MD_OK;
    double factor = 0;
    MD_TRY(md_json_get_number(object, "factor", 1e-3, 1e6, &factor, what, err));
    if (factor == 0) return md_fail(err, MD_E_FORMAT, "%s: \"factor\" is missing", what);
    rope->factor = factor;
    if (rope->type == MD_ROPE_LINEAR) return MD_OK;
    rope->low_freq_factor = 1.0; // defaults of mlx_lm/models/rope_utils.py, Llama3RoPE
    rope->high_freq_factor = 4.0;
    rope->original_context = 8192.0;
    MD_TRY(md_json_get_number(object, "low_freq_factor", 1e-3, 1e6, &rope->low_freq_factor, what, err));
    MD_TRY(md_json_get_number(object, "high_freq_factor", 1e-3, 1e6, &rope->high_freq_factor, what, err));
    MD_TRY(md_json_get_number(object, "original_max_position_embeddings", 1, MD_MAX_CONTEXT, &rope->original_context,
                              what, err));
    if (rope->high_freq_factor <= rope->low_freq_factor)
        return md_fail(err, MD_E_FORMAT, "%s: \"high_freq_factor\" is %g, expected more than \"low_freq_factor\" %g",
                       what, rope->high_freq_factor, rope->low_freq_factor);
    return MD_OK;
}

static bool same_rope(const md_rope *a, const md_rope *b) {
    return a->type == b->type && a->theta == b->theta && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->original_context == b->original_context;
}

static const json_t *non_empty(const json_t *root, const char *key) {
    const json_t *value = json_object_get(root, key);
    bool empty = json_is_null(value) || (json_is_object(value) && json_object_size(value) == 0);
    return empty ? NULL : value;
}

md_status md_config_parse_rope(const json_t *root, double default_theta, md_rope *out, const char *what,
                               md_error *err) {
    const md_rope plain = {.type = MD_ROPE_PLAIN, .theta = default_theta, .factor = 1.0};
    const json_t *scaling = non_empty(root, "rope_scaling"), *parameters = non_empty(root, "rope_parameters");
    md_rope old_style = plain;
    MD_TRY(md_json_get_number(root, "rope_theta", 1, 1e15, &old_style.theta, what, err));
    md_rope new_style = old_style;
    if (scaling) MD_TRY(parse_scaling(scaling, "rope_scaling", &old_style, what, err));
    if (parameters) MD_TRY(parse_scaling(parameters, "rope_parameters", &new_style, what, err));
    if (scaling && parameters && !same_rope(&old_style, &new_style))
        return md_fail(err, MD_E_FORMAT, "%s: \"rope_scaling\" and \"rope_parameters\" contradict each other", what);
    *out = parameters ? new_style : old_style;
    return MD_OK;
}
