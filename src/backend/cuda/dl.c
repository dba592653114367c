#include "backend/cuda/dl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { OLDEST_MAJOR = 8, CUDA_OUT_OF_MEMORY = 2 };

static struct {
    pthread_once_t once;
    md_cuda_driver table;
    md_status status;
    md_error err;
} driver = {.once = PTHREAD_ONCE_INIT};

static struct {
    pthread_once_t once;
    md_nvrtc table;
    md_status status;
    md_error err;
} nvrtc = {.once = PTHREAD_ONCE_INIT};

// A function pointer from dlsym, which ISO C has no conversion for.
static bool find(void *library, const char *symbol, void *slot) {
    void *found = dlsym(library, symbol);
    memcpy(slot, &found, sizeof found);
    return found != NULL;
}

static void *open_first(const char *const *names, const char **found) {
    for (; *names; names++) {
        void *library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        *found = *names;
        if (library) return library;
    }
    return NULL;
}

static void driver_open(void) {
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
    const char *name;
    void *library = open_first(names, &name);
    if (!library) {
        driver.status = md_fail(&driver.err, MD_E_DEVICE, "no NVIDIA driver: libcuda.so.1 was not found");
        return;
    }
#define FIND(function, symbol, arguments)                                                                              \
    if (!find(library, symbol, &driver.table.function)) {                                                              \
        driver.status = md_fail(&driver.err, MD_E_DEVICE, "the NVIDIA driver is too old: %s has no %s", name, symbol); \
        return;                                                                                                        \
    }
    MD_CUDA_FUNCTIONS(FIND)
#undef FIND
    driver.status = md_cuda_check(&driver.table, driver.table.cuInit(0), "cuInit", &driver.err);
}

static void nvrtc_open(void) {
    static const char *const names[] = {"libnvrtc.so.13",
                                        "libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12",
                                        "libnvrtc.so",
                                        NULL};
    const char *name;
    void *library = open_first(names, &name);
    if (!library) {
        nvrtc.status =
            md_fail(&nvrtc.err, MD_E_DEVICE,
                    "no NVRTC: libnvrtc.so.13 or libnvrtc.so.12 was not found (it comes with the CUDA toolkit)");
        return;
    }
#define FIND(function, symbol, arguments)                                                                              \
    if (!find(library, symbol, &nvrtc.table.function)) {                                                               \
        nvrtc.status = md_fail(&nvrtc.err, MD_E_DEVICE, "NVRTC is too old: %s has no %s", name, symbol);               \
        return;                                                                                                        \
    }
    MD_NVRTC_FUNCTIONS(FIND)
#undef FIND
}

md_status md_cuda_driver_get(const md_cuda_driver **out, md_error *err) {
    pthread_once(&driver.once, driver_open);
    *out = &driver.table;
    return driver.status == MD_OK ? MD_OK : md_fail(err, driver.status, "%s", driver.err.message);
}

md_status md_nvrtc_get(const md_nvrtc **out, md_error *err) {
    pthread_once(&nvrtc.once, nvrtc_open);
    *out = &nvrtc.table;
    return nvrtc.status == MD_OK ? MD_OK : md_fail(err, nvrtc.status, "%s", nvrtc.err.message);
}

md_status md_cuda_check(const md_cuda_driver *table, CUresult result, const char *what, md_error *err) {
    if (result == 0) return MD_OK;
    const char *text = NULL;
    table->cuGetErrorString(result, &text);
    md_status status = result == CUDA_OUT_OF_MEMORY ? MD_E_MEMORY : MD_E_DEVICE;
    return md_fail(err, status, "%s: %s (CUDA error %d)", what, text ? text : "unknown", result);
}

md_status md_cuda_device_count(int *count, md_error *err) {
    const md_cuda_driver *table;
    *count = 0;
    MD_TRY(md_cuda_driver_get(&table, err));
    return md_cuda_check(table, table->cuDeviceGetCount(count), "cuDeviceGetCount", err);
}

md_status md_cuda_device_get(int index, md_cuda_device *out, md_error *err) {
    const md_cuda_driver *table;
    int count;
    MD_TRY(md_cuda_driver_get(&table, err));
    MD_TRY(md_cuda_device_count(&count, err));
    if (index < 0 || index >= count)
        return md_fail(err, MD_E_DEVICE, "GPU %d: the driver sees %d GPU%s", index, count, count == 1 ? "" : "s");
    *out = (md_cuda_device){.index = index};
    CUdevice device;
    size_t memory;
    int shared, cooperative;
    MD_TRY(md_cuda_check(table, table->cuDeviceGet(&device, index), "cuDeviceGet", err));
    MD_TRY(md_cuda_check(table, table->cuDeviceGetName(out->name, sizeof out->name, device), "cuDeviceGetName", err));
    MD_TRY(md_cuda_check(table, table->cuDeviceTotalMem(&memory, device), "cuDeviceTotalMem", err));
    const struct {
        int attribute, *value;
    } wanted[] = {{CU_ATTR_SHARED_OPTIN, &shared},
                  {CU_ATTR_COOPERATIVE, &cooperative},
                  {CU_ATTR_SM_COUNT, &out->sms},
                  {CU_ATTR_MAJOR, &out->major},
                  {CU_ATTR_MINOR, &out->minor}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        MD_TRY(md_cuda_check(table, table->cuDeviceGetAttribute(wanted[i].value, wanted[i].attribute, device),
                             "cuDeviceGetAttribute", err));
    out->memory = memory;
    out->shared_bytes = (uint32_t)shared;
    if (out->major < OLDEST_MAJOR)
        out->unsupported = "its architecture is older than sm_80";
    else if (!cooperative)
        out->unsupported = "it has no cooperative launch";
    return MD_OK;
}
