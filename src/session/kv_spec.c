#include "session/kv_spec.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static md_status uniform(const md_snapshot *snapshot, uint8_t bits, md_kv_format *format, md_error *err) {
    uint8_t group = snapshot->head_dim % 64 == 0 ? 64 : 32;
    if (snapshot->head_dim % group != 0)
        return md_fail(err, MD_E_UNSUPPORTED,
                       "kv: a head dimension of %u can't be quantized in groups of 64 or 32; expected a multiple of 32",
                       snapshot->head_dim);
    for (uint32_t i = 0; i < snapshot->layers; i++) format[i] = (md_kv_format){bits, group};
    return MD_OK;
}

md_status md_kv_spec_read(const md_snapshot *snapshot, const char *spec, md_kv_format **out, md_error *err) {
    *out = NULL;
    if (!spec || strcmp(spec, "none") == 0) return MD_OK;
    md_kv_format *format = NULL;
    md_status status = MD_OK;
    if (strcmp(spec, "snapshot") == 0 && !snapshot->kv)
        return md_fail(err, MD_E_USAGE, "kv: \"snapshot\" was asked for, but %s has no kv_config.json", snapshot->dir);
    if (strcmp(spec, "snapshot") == 0 || strcmp(spec, "8") == 0 || strcmp(spec, "4") == 0) {
        format = calloc(snapshot->layers, sizeof *format);
        if (!format) return md_fail(err, MD_E_MEMORY, "kv: out of memory for %u layers", snapshot->layers);
        if (spec[0] == 's')
            memcpy(format, snapshot->kv, snapshot->layers * sizeof *format);
        else
            status = uniform(snapshot, (uint8_t)(spec[0] - '0'), format, err);
    } else {
        if (md_path_absent(spec)) {
            static const char accepted[] = "none, snapshot, 8, 4 or the path of a file like kv_config.json";
            // A path that leads nowhere is a missing file; a bare word is a mistake.
            if (strchr(spec, '/'))
                return md_fail(err, MD_E_NOT_FOUND, "kv: %s: no such file; expected %s", spec, accepted);
            return md_fail(err, MD_E_USAGE, "kv: found \"%s\", expected %s", spec, accepted);
        }
        status = md_kv_config_read(spec, snapshot->layers, snapshot->head_dim, &format, err);
    }
    bool any = false;
    for (uint32_t i = 0; status == MD_OK && i < snapshot->layers; i++) any |= format[i].bits != 0;
    if (!any) {
        free(format);
        format = NULL;
    }
    *out = format;
    return status;
}
