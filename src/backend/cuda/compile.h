// Generated source to machine code: NVRTC, and a cache of its results under $XDG_CACHE_HOME/megadecode/cuda (or
// ~/.cache), keyed by a hash of source, compiler and architecture. A cache file that is damaged is rebuilt.
#ifndef MD_BACKEND_CUDA_COMPILE_H
#define MD_BACKEND_CUDA_COMPILE_H

#include "base/status.h"

typedef struct md_cubin {
    char *bytes; // owned
    size_t size;
    char *log;  // what the compiler said (registers, spills), owned; NULL when it came from the cache
    int cached; // it came from the cache
} md_cubin;

// Compiles, without the cache. MD_E_DEVICE without NVRTC, MD_E_INTERNAL with the compiler's words when it refuses.
md_status md_cuda_compile(const char *source, const char *arch, md_cubin *out, md_error *err);
// The same through the cache; a cache that can't be written is no error.
md_status md_cuda_compile_cached(const char *source, const char *arch, md_cubin *out, md_error *err);
void md_cubin_free(md_cubin *cubin);

#endif
