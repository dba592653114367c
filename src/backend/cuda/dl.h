// The CUDA driver and NVRTC, opened at run time: no CUDA package is needed to build, and the same program runs where
// they are missing. Declarations are our own, of the few functions that are used (CUDA driver API and NVRTC manuals).
// Thread-safe: opened once, then immutable.
#ifndef MD_BACKEND_CUDA_DL_H
#define MD_BACKEND_CUDA_DL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef int CUresult; // 0 = success
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef int nvrtcResult; // 0 = success
typedef struct nvrtcProgram_st *nvrtcProgram;

enum { // CUdevice_attribute
    CU_ATTR_SHARED_OPTIN = 97,
    CU_ATTR_SM_COUNT = 16,
    CU_ATTR_MAJOR = 75,
    CU_ATTR_MINOR = 76,
    CU_ATTR_COOPERATIVE = 95,
    CU_FUNC_MAX_DYNAMIC_SHARED = 8, // CUfunction_attribute
    CU_FUNC_REGISTERS = 4,
    CU_FUNC_LOCAL_BYTES = 3,
    CU_STREAM_NON_BLOCKING = 1,
    CU_HOST_ALLOC_DEVICEMAP = 2,
    CU_CAPTURE_THREAD_LOCAL = 1, // CUstreamCaptureMode
    CU_ERROR_NOT_READY = 600
};

// name, result, arguments; the symbol is the name, with the version suffix that the current ABI has.
#define MD_CUDA_FUNCTIONS(F)                                                                                           \
    F(cuInit, "cuInit", (unsigned))                                                                                    \
    F(cuDriverGetVersion, "cuDriverGetVersion", (int *))                                                               \
    F(cuGetErrorString, "cuGetErrorString", (CUresult, const char **))                                                 \
    F(cuDeviceGetCount, "cuDeviceGetCount", (int *))                                                                   \
    F(cuDeviceGet, "cuDeviceGet", (CUdevice *, int))                                                                   \
    F(cuDeviceGetName, "cuDeviceGetName", (char *, int, CUdevice))                                                     \
    F(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice))                                            \
    F(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *, CUdevice))                                                   \
    F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))                                   \
    F(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                                           \
    F(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext))                                                                 \
    F(cuModuleLoadData, "cuModuleLoadData", (CUmodule *, const void *))                                                \
    F(cuModuleUnload, "cuModuleUnload", (CUmodule))                                                                    \
    F(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))                              \
    F(cuModuleGetGlobal, "cuModuleGetGlobal_v2", (CUdeviceptr *, size_t *, CUmodule, const char *))                    \
    F(cuFuncSetAttribute, "cuFuncSetAttribute", (CUfunction, int, int))                                                \
    F(cuFuncGetAttribute, "cuFuncGetAttribute", (int *, int, CUfunction))                                              \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                      \
      (int *, CUfunction, int, size_t))                                                                                \
    F(cuLaunchKernel, "cuLaunchKernel",                                                                                \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))  \
    F(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel",                                                          \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **))           \
    F(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                                            \
    F(cuMemFree, "cuMemFree_v2", (CUdeviceptr))                                                                        \
    F(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *))                                                           \
    F(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))                        \
    F(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t))                                                  \
    F(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream))                              \
    F(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                         \
    F(cuMemsetD8Async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                              \
    F(cuMemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))                                                   \
    F(cuMemFreeHost, "cuMemFreeHost", (void *))                                                                        \
    F(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr *, void *, unsigned))                    \
    F(cuStreamCreate, "cuStreamCreate", (CUstream *, unsigned))                                                        \
    F(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream))                                                               \
    F(cuStreamSynchronize, "cuStreamSynchronize", (CUstream))                                                          \
    F(cuStreamQuery, "cuStreamQuery", (CUstream))                                                                      \
    F(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, int))                                                \
    F(cuStreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph *))                                                 \
    F(cuGraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec *, CUgraph, unsigned long long))                 \
    F(cuGraphDestroy, "cuGraphDestroy", (CUgraph))                                                                     \
    F(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec))                                                         \
    F(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))

#define MD_NVRTC_FUNCTIONS(F)                                                                                          \
    F(nvrtcVersion, "nvrtcVersion", (int *, int *))                                                                    \
    F(nvrtcCreateProgram, "nvrtcCreateProgram",                                                                        \
      (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *))                     \
    F(nvrtcDestroyProgram, "nvrtcDestroyProgram", (nvrtcProgram *))                                                    \
    F(nvrtcCompileProgram, "nvrtcCompileProgram", (nvrtcProgram, int, const char *const *))                            \
    F(nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize", (nvrtcProgram, size_t *))                                      \
    F(nvrtcGetProgramLog, "nvrtcGetProgramLog", (nvrtcProgram, char *))                                                \
    F(nvrtcGetCUBINSize, "nvrtcGetCUBINSize", (nvrtcProgram, size_t *))                                                \
    F(nvrtcGetCUBIN, "nvrtcGetCUBIN", (nvrtcProgram, char *))

typedef struct md_cuda_driver {
#define MD_FIELD(name, symbol, arguments) CUresult(*name) arguments;
    MD_CUDA_FUNCTIONS(MD_FIELD)
#undef MD_FIELD
} md_cuda_driver;

typedef struct md_nvrtc {
#define MD_FIELD(name, symbol, arguments) nvrtcResult(*name) arguments;
    MD_NVRTC_FUNCTIONS(MD_FIELD)
#undef MD_FIELD
} md_nvrtc;

// The driver, initialised; MD_E_DEVICE with one line that says what is missing. The table lives until the program ends.
md_status md_cuda_driver_get(const md_cuda_driver **out, md_error *err);
// NVRTC of CUDA 13 or 12.
md_status md_nvrtc_get(const md_nvrtc **out, md_error *err);

// Turns a driver result into a status: MD_OK, MD_E_MEMORY for out of memory, MD_E_DEVICE with the driver's own words.
md_status md_cuda_check(const md_cuda_driver *driver, CUresult result, const char *what, md_error *err);

typedef struct md_cuda_device {
    int index;
    char name[96];
    int major, minor, sms;
    uint64_t memory;         // bytes
    uint32_t shared_bytes;   // a block may have
    const char *unsupported; // why this program can't use it; NULL = it can
} md_cuda_device;

// The number of GPUs the driver sees (0 is no error), and one of them.
md_status md_cuda_device_count(int *count, md_error *err);
md_status md_cuda_device_get(int index, md_cuda_device *out, md_error *err);

#endif
