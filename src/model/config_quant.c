// The quantization block of config.json. "quantization" is MLX's own; "quantization_config" is its mirror, read when
// the first is absent, and also where other quantizers leave their mark ("quant_method"), which are refused by name.
#include <string.h>

#include "model/config.h"

// Reads bits, group_size and mode of `object` over the defaults in *format.
static md_status parse_format(const json_t *object, md_quant_format *format, const char *what, md_error *err) {
    const char *mode = "affine";
    MD_TRY(md_json_get_string(object, "mode", &mode, what, err));
    if (strcmp(mode, "affine") != 0)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: \"mode\" is \"%.64s\", which is not modelled (only affine is)", what,
                       mode);
    int64_t bits = format->bits, group = format->group;
    MD_TRY(md_json_get_int(object, "bits", INT64_MIN, INT64_MAX, &bits, what, err));
    MD_TRY(md_json_get_int(object, "group_size", INT64_MIN, INT64_MAX, &group, what, err));
    if (bits != 2 && bits != 3 && bits != 4 && bits != 5 && bits != 6 && bits != 8)
        return md_fail(err, MD_E_FORMAT, "%s: \"bits\" is %lld, expected 2, 3, 4, 5, 6 or 8", what, (long long)bits);
    if (group != 32 && group != 64 && group != 128)
        return md_fail(err, MD_E_FORMAT, "%s: \"group_size\" is %lld, expected 32, 64 or 128", what, (long long)group);
    *format = (md_quant_format){(uint32_t)bits, (uint32_t)group};
    return MD_OK;
}

md_status md_config_parse_quant(md_config *config, md_error *err) {
    const char *key = "quantization";
    const json_t *block = json_object_get(config->root, key);
    if (!block || json_is_null(block)) {
        key = "quantization_config";
        block = json_object_get(config->root, key);
    }
    if (!block || json_is_null(block)) return MD_OK;
    char what[512];
    snprintf(what, sizeof what, "%s: \"%s\"", config->path, key);
    if (!json_is_object(block))
        return md_fail(err, MD_E_FORMAT, "%s is %s, expected an object", what, md_json_type_name(block));
    const char *method = NULL;
    MD_TRY(md_json_get_string(block, "quant_method", &method, what, err));
    if (method)
        return md_fail(err, MD_E_UNSUPPORTED,
                       "%s: \"quant_method\" is \"%.64s\", which is not modelled: convert the model to MLX's format",
                       what, method);
    config->quant = (md_quant_format){.bits = 4, .group = 64}; // MLX's defaults (mlx/ops.cpp)
    MD_TRY(parse_format(block, &config->quant, what, err));
    config->quantized = true;
    config->modules = block;
    return MD_OK;
}

md_status md_config_module(const md_config *config, const char *module, bool has_scales, md_quant_format *out,
                           md_error *err) {
    *out = has_scales ? config->quant : (md_quant_format){0};
    const json_t *rule = json_object_get(config->modules, module);
    if (!rule || json_is_null(rule)) return MD_OK;
    if (json_is_false(rule)) {
        *out = (md_quant_format){0};
        return MD_OK;
    }
    *out = config->quant;
    if (json_is_true(rule)) return MD_OK;
    char what[512];
    snprintf(what, sizeof what, "%s: quantization of %s", config->path, module);
    if (!json_is_object(rule))
        return md_fail(err, MD_E_FORMAT, "%s is %s, expected an object, true or false", what, md_json_type_name(rule));
    return parse_format(rule, out, what, err);
}
