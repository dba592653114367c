#include "session/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "plan/pack.h"

enum { MAX_DEVICES = 1024 };

typedef enum engine_kind { ENGINE_RESIDENT, ENGINE_OPS, ENGINE_REFERENCE } engine_kind;

// The option, or the environment variable where it is unset; an empty variable counts as unset. *name says which.
static const char *text_option(const char *option, const char *variable, const char **name) {
    if (option) return option;
    const char *value = getenv(variable);
    *name = variable;
    return value && *value ? value : NULL;
}

// A whole number of at most `max`, and nothing behind it.
static bool parse_count(const char *text, unsigned long max, uint32_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || value > max) return false;
    *out = (uint32_t)value;
    return true;
}

static md_status count_option(uint32_t option, const char *variable, const char *name, uint32_t *out, md_error *err) {
    const char *text = option ? NULL : text_option(NULL, variable, &variable);
    *out = option;
    if (option > MD_MAX_WORKERS)
        return md_fail(err, MD_E_USAGE, "%s: found %u, expected at most %d", name, option, MD_MAX_WORKERS);
    if (!text || (parse_count(text, MD_MAX_WORKERS, out) && *out)) return MD_OK;
    return md_fail(err, MD_E_USAGE, "%s: found \"%s\", expected a whole number from 1 to %d", variable, text,
                   MD_MAX_WORKERS);
}

static md_status parse_engine(const char *text, const char *name, engine_kind *out, md_error *err) {
    static const char *const names[] = {"resident", "ops", "reference"};
    *out = ENGINE_RESIDENT;
    if (!text) return MD_OK;
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *out = (engine_kind)i;
        return MD_OK;
    }
    return md_fail(err, MD_E_USAGE, "%s: found \"%s\", expected resident, ops or reference", name, text);
}

// text NULL: *cuda and *cpu both true, either will do.
static md_status parse_device(const char *text, const char *name, bool *cuda, bool *cpu, int *index, md_error *err) {
    *cuda = *cpu = !text;
    *index = 0;
    if (!text) return MD_OK;
    *cpu = strcmp(text, "cpu") == 0;
    *cuda = strncmp(text, "cuda", 4) == 0 && (text[4] == 0 || text[4] == ':');
    uint32_t number = 0;
    if (*cuda && text[4]) *cuda = parse_count(text + 5, MAX_DEVICES, &number);
    *index = (int)number;
    if (*cpu || *cuda) return MD_OK;
    return md_fail(err, MD_E_USAGE, "%s: found \"%s\", expected cpu, cuda or cuda:N", name, text);
}

md_status md_device_open(const md_plan *plan, const md_model_options *options, md_engine **out, md_error *err) {
    const char *engine_name = "engine", *device_name = "device";
    const char *engine_text = text_option(options->engine, "MEGADECODE_ENGINE", &engine_name);
    const char *device_text = text_option(options->device, "MEGADECODE_DEVICE", &device_name);
    engine_kind kind;
    bool cuda, cpu;
    md_engine_options eo = {.deadline_ms = options->deadline_ms,
                            .account = options->account,
                            .progress = options->progress,
                            .progress_user = options->progress_user};
    MD_TRY(parse_engine(engine_text, engine_name, &kind, err));
    MD_TRY(parse_device(device_text, device_name, &cuda, &cpu, &eo.device_index, err));
    MD_TRY(count_option(options->threads, "MEGADECODE_THREADS", "threads", &eo.threads, err));
    MD_TRY(count_option(options->groups, "MEGADECODE_GROUPS", "groups", &eo.groups, err));
    if (kind == ENGINE_REFERENCE) {
        if (!cpu)
            return md_fail(err, MD_E_USAGE, "%s: found \"%s\", but the reference engine runs on the CPU", device_name,
                           device_text);
        return md_reference_open(plan, &eo, out, err);
    }
    if (cuda) {
        md_error gpu = {0};
        md_status status = md_cuda_open(plan, kind == ENGINE_RESIDENT, &eo, out, &gpu);
        if (status == MD_OK) return MD_OK;
        if (!cpu || status == MD_E_CANCELLED || status == MD_E_USAGE) return md_fail(err, status, "%s", gpu.message);
        md_log(MD_LOG_INFO, "the CPU is used: %s", gpu.message);
    }
    if (options->threads && options->groups && options->threads != options->groups)
        return md_fail(err, MD_E_USAGE, "threads %u, groups %u: on a CPU they are the same, expected one of them",
                       options->threads, options->groups);
    return md_cpu_open(plan, kind == ENGINE_RESIDENT, &eo, out, err);
}
