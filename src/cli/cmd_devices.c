// `megadecode devices`: what there is to compute on.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "megadecode.h"

typedef struct devices_args {
    bool json;
} devices_args;

static const md_option devices_options[] = {
    {0, "json", NULL, MD_OPT_FLAG, offsetof(devices_args, json), 0, 0, "print one JSON array"},
};
static const md_option_group devices_groups[] = {{"Devices", devices_options, 1, 0}};

static const char *string(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void print_device(const json_t *device) {
    printf("%-8s", string(device, "device"));
    if (json_object_get(device, "cpus"))
        printf(" %s, %" PRId64 " CPUs, kernels: %s", string(device, "name"),
               (int64_t)json_integer_value(json_object_get(device, "cpus")), string(device, "kernels"));
    else if (json_object_get(device, "name"))
        printf(" %s, compute capability %s, %" PRId64 " SMs, %.1f GB", string(device, "name"), string(device, "sm"),
               (int64_t)json_integer_value(json_object_get(device, "sms")),
               (double)json_integer_value(json_object_get(device, "memory")) * 1e-9);
    if (!json_is_true(json_object_get(device, "usable"))) printf(" not usable: %s", string(device, "why"));
    putchar('\n');
}

static int devices(const void *arguments, int words, char **word) {
    (void)words, (void)word;
    const devices_args *args = arguments;
    md_error err = {0};
    char *text;
    if (md_devices(&text, &err) != MD_OK) return md_out_error("devices", args->json, &err);
    json_t *list;
    md_status status = md_json_parse(text, strlen(text), false, "the list of devices", &list, &err);
    md_free(text);
    if (status != MD_OK) return md_out_error("devices", args->json, &err);
    if (args->json) {
        md_out_json(list);
        return md_out_finish(MD_EXIT_DONE);
    }
    for (size_t i = 0; i < json_array_size(list); i++) print_device(json_array_get(list, i));
    json_decref(list);
    return md_out_finish(MD_EXIT_DONE);
}

const md_command md_cmd_devices = {
    .name = "devices",
    .summary = "what there is to compute on: the CPU and the GPUs",
    .usage = "",
    .groups = devices_groups,
    .group_count = 1,
    .args_size = sizeof(devices_args),
    .run = devices,
};
