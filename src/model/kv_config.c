// kv_config.json: how each layer's key-value cache is stored once it is quantized.
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/snapshot.h"

enum { MAX_KV_CONFIG_BYTES = 1024 * 1024 };

static md_status parse_entry(const json_t *entry, uint32_t layers, uint32_t head_dim, md_kv_format *formats, bool *seen,
                             const char *what, md_error *err) {
    if (!json_is_object(entry))
        return md_fail(err, MD_E_FORMAT, "%s is %s, expected an object", what, md_json_type_name(entry));
    int64_t layer = -1, bits = 0, group = 64;
    MD_TRY(md_json_get_int(entry, "layer_idx", 0, (int64_t)layers - 1, &layer, what, err));
    MD_TRY(md_json_get_int(entry, "bits", INT64_MIN, INT64_MAX, &bits, what, err));
    MD_TRY(md_json_get_int(entry, "group_size", INT64_MIN, INT64_MAX, &group, what, err));
    if (layer < 0) return md_fail(err, MD_E_FORMAT, "%s: \"layer_idx\" is missing", what);
    const json_t *mode = json_object_get(entry, "mode");
    if (mode && (!json_is_string(mode) || strcmp(json_string_value(mode), "affine") != 0))
        return md_fail(err, MD_E_FORMAT, "%s: \"mode\" of layer %lld is %s, expected \"affine\"", what,
                       (long long)layer, json_is_string(mode) ? json_string_value(mode) : md_json_type_name(mode));
    if (!json_object_get(entry, "bits"))
        return md_fail(err, MD_E_FORMAT, "%s: \"bits\" of layer %lld is missing, expected 4 or 8", what,
                       (long long)layer);
    if (seen[layer]) return md_fail(err, MD_E_FORMAT, "%s: \"layer_idx\" %lld is given twice", what, (long long)layer);
    if (bits != 4 && bits != 8)
        return md_fail(err, MD_E_FORMAT, "%s: \"bits\" of layer %lld is %lld, expected 4 or 8", what, (long long)layer,
                       (long long)bits);
    if (group != 32 && group != 64 && group != 128)
        return md_fail(err, MD_E_FORMAT, "%s: \"group_size\" of layer %lld is %lld, expected 32, 64 or 128", what,
                       (long long)layer, (long long)group);
    if (head_dim % (uint32_t)group != 0)
        return md_fail(err, MD_E_FORMAT, "%s: \"group_size\" of layer %lld is %lld, which does not divide head_dim %u",
                       what, (long long)layer, (long long)group, head_dim);
    seen[layer] = true;
    formats[layer] = (md_kv_format){.bits = (uint8_t)bits, .group = (uint8_t)group};
    return MD_OK;
}

md_status md_kv_config_read(const char *path, uint32_t layers, uint32_t head_dim, md_kv_format **out, md_error *err) {
    *out = NULL;
    json_t *root;
    MD_TRY(md_json_read_file(path, MAX_KV_CONFIG_BYTES, &root, err));
    md_status status = MD_OK;
    md_kv_format *formats = calloc(layers, sizeof *formats);
    bool *seen = calloc(layers, sizeof *seen);
    if (!formats || !seen) {
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory", path);
        goto fail;
    }
    if (!json_is_array(root)) {
        status = md_fail(err, MD_E_FORMAT, "%s: is %s, expected an array", path, md_json_type_name(root));
        goto fail;
    }
    for (size_t i = 0; i < json_array_size(root); i++) {
        char what[512];
        snprintf(what, sizeof what, "%s: entry %zu", path, i);
        MD_TRY_GOTO(parse_entry(json_array_get(root, i), layers, head_dim, formats, seen, what, err));
    }
    *out = formats;
    formats = NULL;
fail:
    free(formats);
    free(seen);
    json_decref(root);
    return status;
}
