// libcuda.so.1, faked (fake_cuda.h).
#include "fakes/fake_cuda.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/dl.h"
#include "backend/cuda/params.h"
#include "backend/cuda/prefill.h"

fake_cuda fake = {.major = 9, .cooperative = 1, .total = (size_t)1 << 30, .undecided_at = -1};

typedef struct block { // before each piece of "device" memory
    size_t bytes;
    uint64_t pad;
} block;

// Once the GPU is gone every call says so.
static CUresult state(void) { return fake.sync_result; }

// The table's functions, defined with the symbols' names.
#define FAKE(symbol, arguments)                                                                                        \
    CUresult symbol arguments;                                                                                         \
    CUresult symbol arguments

static uint32_t number(const char *name) {
    const char *text = getenv(name);
    return text ? (uint32_t)atoi(text) : 0;
}

FAKE(cuInit, (unsigned flags)) {
    (void)flags;
    if (!fake.vocab) fake.vocab = number("FAKE_CUDA_VOCAB");
    return 0;
}
FAKE(cuDriverGetVersion, (int *version)) {
    *version = 13000;
    return 0;
}
FAKE(cuGetErrorString, (CUresult result, const char **text)) {
    *text = result == FAKE_OUT_OF_MEMORY ? "out of memory" : result == FAKE_GONE ? "unspecified launch failure" : "?";
    return 0;
}
FAKE(cuDeviceGetCount, (int *count)) {
    *count = 1;
    return 0;
}
FAKE(cuDeviceGet, (CUdevice * device, int index)) {
    *device = index;
    return 0;
}
FAKE(cuDeviceGetName, (char *name, int size, CUdevice device)) {
    (void)device;
    strncpy(name, "Fake GPU", (size_t)size);
    return 0;
}
FAKE(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) {
    (void)device;
    switch (attribute) {
    case CU_ATTR_SHARED_OPTIN: *value = 232448; break;
    case CU_ATTR_SM_COUNT: *value = number("FAKE_CUDA_SMS") ? (int)number("FAKE_CUDA_SMS") : 4; break;
    case CU_ATTR_MAJOR: *value = fake.major; break;
    case CU_ATTR_MINOR: *value = fake.minor; break;
    case CU_ATTR_COOPERATIVE: *value = fake.cooperative; break;
    default: *value = 0;
    }
    return 0;
}
FAKE(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device)) {
    (void)device;
    *bytes = fake.total;
    return 0;
}
FAKE(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device)) {
    (void)device;
    *context = (CUcontext)&fake;
    return 0;
}
FAKE(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) {
    (void)device;
    return 0;
}
FAKE(cuCtxSetCurrent, (CUcontext context)) {
    (void)context;
    return 0;
}
// A shared object that nvrtc.c has made: kernels that run (emulate.hpp).
static CUresult load(CUmodule *module, const void *image) {
    const Elf64_Ehdr *head = image;
    char path[] = "/tmp/fake-cuda-XXXXXX";
    int file = mkstemp(path);
    const size_t bytes = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
    bool written = file >= 0 && write(file, image, bytes) == (ssize_t)bytes;
    *module = written ? (CUmodule)dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (file >= 0) close(file), unlink(path);
    return *module ? state() : FAKE_INVALID;
}
FAKE(cuModuleLoadData, (CUmodule * module, const void *image)) {
    if (memcmp(image, ELFMAG, SELFMAG) == 0) return load(module, image);
    *module = (CUmodule)&fake;
    return state();
}
FAKE(cuModuleUnload, (CUmodule module)) {
    if ((void *)module != &fake) dlclose(module);
    return state();
}
// The kernels that have been asked for, by name.
enum { DEFAULT_SHARED = 48 << 10 };
typedef struct kernel {
    char name[48];
    unsigned shared; // memory that a launch may ask for
    CUmodule module;
    void *code; // of a module that runs
} kernel;
static kernel kernels[256];

static bool is(CUfunction function, const char *name) { return strcmp(((const kernel *)function)->name, name) == 0; }

FAKE(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name)) {
    kernel *k = kernels;
    while (k->name[0] && (strcmp(k->name, name) != 0 || k->module != module))
        if (++k == kernels + sizeof kernels / sizeof *kernels) return FAKE_OUT_OF_MEMORY;
    snprintf(k->name, sizeof k->name, "%s", name);
    k->shared = DEFAULT_SHARED, k->module = module;
    k->code = (void *)module != &fake ? dlsym(module, name) : NULL;
    *function = (CUfunction)k;
    return state();
}
// The only one that is asked for: md_prefill_sizes.
FAKE(cuModuleGetGlobal_v2, (CUdeviceptr * out, size_t *bytes, CUmodule module, const char *name)) {
    static const md_cuda_prefill_sizes sizes = {{{384, 6, 65536}, {128, 2, 32768}}, 65536, 64, 12800};
    *out = (CUdeviceptr)(uintptr_t)&sizes, *bytes = sizeof sizes;
    if ((void *)module != &fake) *out = (CUdeviceptr)(uintptr_t)dlsym(module, name);
    return *out ? state() : FAKE_INVALID;
}
FAKE(cuFuncSetAttribute, (CUfunction function, int attribute, int value)) {
    if (attribute == CU_FUNC_MAX_DYNAMIC_SHARED && (unsigned)value > DEFAULT_SHARED)
        ((kernel *)function)->shared = (unsigned)value;
    return state();
}
FAKE(cuFuncGetAttribute, (int *value, int attribute, CUfunction function)) {
    (void)attribute, (void)function;
    *value = 0;
    return state();
}
FAKE(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, CUfunction function, int threads, size_t shared)) {
    (void)function, (void)threads, (void)shared;
    *blocks = 1;
    return state();
}

// ---- memory ----------------------------------------------------------------------------------------------------

FAKE(cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes)) {
    if (state()) return state();
    bool fails = fake.fail_at && --fake.fail_at == 0;
    block *b = fails || fake.used + bytes > fake.total ? NULL : malloc(sizeof *b + bytes);
    if (!b) return FAKE_OUT_OF_MEMORY;
    b->bytes = bytes;
    fake.used += bytes;
    fake.live++;
    *out = (CUdeviceptr)(uintptr_t)(b + 1);
    return 0;
}
FAKE(cuMemFree_v2, (CUdeviceptr memory)) {
    block *b = (block *)(uintptr_t)memory - 1;
    fake.used -= b->bytes;
    fake.live--;
    free(b);
    return state();
}
FAKE(cuMemGetInfo_v2, (size_t * available, size_t *total)) {
    *available = fake.total - fake.used, *total = fake.total;
    return state();
}
static CUresult copy(void *to, const void *from, size_t bytes) {
    if (!state()) memcpy(to, from, bytes);
    return state();
}
FAKE(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) {
    (void)stream;
    return copy((void *)(uintptr_t)to, from, bytes);
}
FAKE(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes)) { return copy(to, (void *)(uintptr_t)from, bytes); }
FAKE(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) {
    (void)stream;
    return copy(to, (void *)(uintptr_t)from, bytes);
}
FAKE(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) {
    (void)stream;
    return copy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
}
FAKE(cuMemsetD8Async, (CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream)) {
    (void)stream;
    if (!state()) memset((void *)(uintptr_t)to, byte, bytes);
    return state();
}
FAKE(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags)) {
    (void)flags;
    bool fails = fake.fail_at && --fake.fail_at == 0;
    *out = fails ? NULL : malloc(bytes);
    fake.live += *out != NULL;
    return *out ? state() : FAKE_OUT_OF_MEMORY;
}
FAKE(cuMemFreeHost, (void *memory)) {
    free(memory);
    fake.live--;
    return state();
}
FAKE(cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void *memory, unsigned flags)) {
    (void)flags;
    *out = (CUdeviceptr)(uintptr_t)memory;
    return state();
}

// ---- launches --------------------------------------------------------------------------------------------------

// Of kind k and spending i worker w has (k + 1) (i + 1) (w + 1) cycles a launch, each of 2 ns.
static void account(const md_cuda_params *p) {
    uint64_t *at = (uint64_t *)(uintptr_t)p->account, cycles = 0;
    for (uint32_t w = 0; at && w < p->groups; w++, cycles = 0) {
        for (uint32_t k = 0; k < MD_CUDA_KINDS; k++)
            for (uint32_t i = 0; i < MD_CUDA_SPENDINGS; i++) {
                uint64_t own = (uint64_t)(k + 1) * (i + 1) * (w + 1);
                at[(k * MD_CUDA_SPENDINGS + i) * p->groups + w] += own;
                cycles += own;
            }
        at[MD_CUDA_KINDS * MD_CUDA_SPENDINGS * p->groups + w] += 2 * cycles;
    }
}

// What the kernel hands over: logits whose greatest is the chosen token's, and tokens in the mailbox.
static void run(const md_cuda_params *p) {
    uint32_t *report = (uint32_t *)(uintptr_t)p->report, *mailbox = (uint32_t *)(uintptr_t)p->mailbox;
    uint16_t *logits = (uint16_t *)(uintptr_t)p->logits;
    if (fake.hang) {
        const uint32_t words[] = {1, 3, 2, p->epoch + 2, p->epoch};
        memcpy(report, words, sizeof words);
        fake.hang = false;
        return;
    }
    uint32_t *state = (uint32_t *)(uintptr_t)p->state, first = state ? state[MD_CUDA_STATE_STEPS] : 0;
    bool stop = false;
    account(p);
    for (uint32_t s = first; s < first + p->tokens && !stop; s++) {
        for (uint32_t c = 0; c < p->columns; c++) {
            uint32_t position = p->col[c].position + s, token = (position + 1) % fake.vocab;
            for (uint32_t i = 0; i < fake.vocab && p->col[c].logits; i++)
                logits[c * fake.vocab + i] = i == token ? 0x3f80 : 0;
            if (!p->next) continue;
            if (c == 0 && (int)position == fake.undecided_at) token = MD_CUDA_UNDECIDED;
            mailbox[2 + s * p->columns + c] = token;
            stop |= token == MD_CUDA_UNDECIDED;
            for (uint32_t i = 0; i < p->stop_count; i++) stop |= p->stop[i] == token && (p->stop_columns[i] >> c & 1);
        }
        if (!p->next) continue;
        mailbox[0] = s + 1;
        fake.steps++;
        stop |= mailbox[1] != 0;
        if (state && p->next & MD_CUDA_NEXT_TOKEN) state[MD_CUDA_STATE_STEPS] = s + 1;
    }
}

static struct { // launches of the stream's capture, or of the graph made of them
    bool on;
    uint32_t count;
    CUfunction function[1024];
    md_cuda_params params[1024];
} captured;

typedef struct shape {
    unsigned grid[3], threads;
    int together;
} shape;
typedef void emulate(const char *name, void *code, const unsigned *grid, unsigned threads, unsigned bytes,
                     void **arguments, int together);

static CUresult launched(CUfunction function, unsigned shared, void **arguments, shape how) {
    const kernel *k = (const kernel *)function;
    if (shared > k->shared) return FAKE_INVALID;
    if (k->code) {
        emulate *run_it;
        *(void **)&run_it = dlsym(k->module, "emulate");
        fake.launches++;
        run_it(k->name, k->code, how.grid, how.threads, shared, arguments, how.together);
        return state();
    }
    if (captured.on) {
        captured.function[captured.count] = function;
        memcpy(&captured.params[captured.count++], arguments[0], sizeof(md_cuda_params));
        return state();
    }
    if (fake.launch_result) return fake.launch_result; // what fails later is seen by who waits
    if (is(function, "md_cache_quantize") && fake.quantize_at && --fake.quantize_at == 0) return FAKE_GONE;
    fake.launches++;
    if (fake.launches == number("FAKE_CUDA_HANG_AT")) fake.hang = true;
    if (fake.launches == number("FAKE_CUDA_GONE_AT")) fake.sync_result = FAKE_GONE;
    if (is(function, "md_step")) run(arguments[0]);
    return 0;
}
#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
FAKE(cuLaunchKernel, (CUfunction function, GRID, CUstream stream, void **arguments, void **extra)) {
    (void)stream, (void)extra;
    return launched(function, shared, arguments, (shape){{gx, gy, gz}, bx * by * bz, 0});
}
FAKE(cuLaunchCooperativeKernel, (CUfunction function, GRID, CUstream stream, void **arguments)) {
    (void)stream;
    return launched(function, shared, arguments, (shape){{gx, gy, gz}, bx * by * bz, 1});
}
FAKE(cuStreamCreate, (CUstream * stream, unsigned flags)) {
    (void)flags;
    *stream = (CUstream)&fake;
    return state();
}
FAKE(cuStreamDestroy_v2, (CUstream stream)) {
    (void)stream;
    return state();
}
FAKE(cuStreamSynchronize, (CUstream stream)) {
    (void)stream;
    return state();
}
FAKE(cuStreamQuery, (CUstream stream)) {
    (void)stream;
    return state();
}

// ---- graphs ----------------------------------------------------------------------------------------------------

FAKE(cuStreamBeginCapture_v2, (CUstream stream, int mode)) {
    (void)stream, (void)mode;
    captured.on = true, captured.count = 0;
    return state();
}
FAKE(cuStreamEndCapture, (CUstream stream, CUgraph *graph)) {
    (void)stream;
    captured.on = false;
    fake.captures++;
    *graph = (CUgraph)&captured;
    return state();
}
FAKE(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags)) {
    (void)graph, (void)flags;
    *exec = (CUgraphExec)&captured;
    fake.live++;
    return state();
}
FAKE(cuGraphDestroy, (CUgraph graph)) {
    (void)graph;
    return state();
}
FAKE(cuGraphExecDestroy, (CUgraphExec exec)) {
    (void)exec;
    fake.live--;
    return state();
}
FAKE(cuGraphLaunch, (CUgraphExec exec, CUstream stream)) {
    (void)exec, (void)stream;
    CUresult result = state();
    for (uint32_t i = 0; i < captured.count && !result; i++)
        result = launched(captured.function[i], 0, (void *[]){&captured.params[i]}, (shape){{1, 1, 1}, 1, 0});
    return result;
}
