// md_devices and md_emit_cuda: what the backends can say without opening an engine.
#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/level.h"
#include "backend/cuda/dl.h"
#include "backend/cuda/emit.h"
#include "base/cpu_info.h"
#include "base/json.h"
#include "megadecode.h"
#include "plan/plan.h"

enum { MAX_SOURCE = 8 << 20 };

static json_t *describe(int index) {
    md_cuda_device gpu;
    md_error err;
    char name[24], sm[16];
    snprintf(name, sizeof name, "cuda:%d", index);
    if (md_cuda_device_get(index, &gpu, &err) != MD_OK)
        return json_pack("{s:s, s:b, s:s}", "device", name, "usable", 0, "why", err.message);
    snprintf(sm, sizeof sm, "%d.%d", gpu.major, gpu.minor);
    json_t *out = json_pack("{s:s, s:s, s:s, s:i, s:I, s:b}", "device", name, "name", gpu.name, "sm", sm, "sms",
                            gpu.sms, "memory", (json_int_t)gpu.memory, "usable", gpu.unsupported == NULL);
    if (out && gpu.unsupported) json_object_set_new(out, "why", json_string(gpu.unsupported));
    return out;
}

static json_t *describe_cpu(void) {
    const md_kernels *kernels = NULL;
    md_error err = {0};
    char name[128];
    bool usable = md_cpu_level_select(&kernels, &err) == MD_OK;
    json_t *out = json_pack("{s:s, s:s, s:i, s:b}", "device", "cpu", "name", md_cpu_name(name, sizeof name), "cpus",
                            (int)md_cpu_count(), "usable", usable);
    if (out) json_object_set_new(out, usable ? "kernels" : "why", json_string(usable ? kernels->name : err.message));
    return out;
}

md_status md_devices(char **json, md_error *err) {
    *json = NULL;
    uint64_t losses = md_json_losses();
    json_t *list = json_pack("[o]", describe_cpu());
    md_error gpu;
    int count = 0;
    if (md_cuda_device_count(&count, &gpu) != MD_OK)
        json_array_append_new(list, json_pack("{s:s, s:b, s:s}", "device", "cuda", "usable", 0, "why", gpu.message));
    for (int i = 0; i < count; i++) json_array_append_new(list, describe(i));
    *json = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    if (md_json_losses() == losses) return MD_OK;
    free(*json);
    *json = NULL;
    return md_fail(err, MD_E_MEMORY, "out of memory for the list of devices");
}

md_status md_emit_cuda(const char *model, const char *arch, uint32_t columns, char **source, md_error *err) {
    *source = NULL;
    md_snapshot *snapshot = NULL;
    md_plan *plan = NULL;
    md_cuda_shape *shape = NULL;
    md_cuda_target target;
    md_buf out;
    md_status status;
    bool prefill = columns == MD_CUDA_EMIT_PREFILL;
    if (columns & (columns - 1) || (columns > MD_CUDA_COLUMNS && !prefill))
        return md_fail(err, MD_E_USAGE, "columns: found %u, expected 1, 2, 4, 8 or, of prompts, 64", columns);
    const md_cuda_emit_options options = {.columns = columns ? columns : 1, .prefill = prefill};
    md_buf_init(&out, MAX_SOURCE);
    MD_TRY_GOTO(md_cuda_target_named(arch ? arch : "sm_90a", &target, err));
    MD_TRY_GOTO(md_snapshot_open(model, &snapshot, err));
    MD_TRY_GOTO(md_plan_build(snapshot, &plan, err));
    MD_TRY_GOTO(md_cuda_shape_build(plan, &shape, err));
    MD_TRY_GOTO(md_cuda_emit(shape, &target, &options, &out, err));
    *source = md_buf_take(&out);
    if (!*source) status = md_fail(err, MD_E_MEMORY, "out of memory");
fail:
    md_buf_free(&out);
    md_cuda_shape_free(shape);
    md_plan_free(plan);
    if (snapshot) md_snapshot_close(snapshot);
    return status;
}
