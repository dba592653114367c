#include "backend/cuda/compile.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "backend/cuda/dl.h"
#include "base/file.h"
#include "base/log.h"

enum { MAX_CUBIN = 64 << 20 };

// A cache file: this header, then the code.
typedef struct cache_header {
    char magic[8];
    uint64_t size, hash; // of the code
} cache_header;
static const char MAGIC[8] = {'m', 'd', 'c', 'u', 'b', 'i', 'n', '1'};

// No fused operations but those the source writes; denormals flushed, as docs/MODEL.md says.
static const char *const FLAGS[] = {"--fmad=false",     "--ftz=true",  "--prec-div=true",
                                    "--prec-sqrt=true", "--std=c++17", "--ptxas-options=-v"};
enum { FLAG_COUNT = sizeof FLAGS / sizeof *FLAGS };

void md_cubin_free(md_cubin *cubin) {
    free(cubin->bytes);
    free(cubin->log);
    *cubin = (md_cubin){0};
}

static char *program_log(const md_nvrtc *nvrtc, nvrtcProgram program) {
    size_t size = 0;
    if (nvrtc->nvrtcGetProgramLogSize(program, &size)) return NULL;
    char *log = calloc(size + 1, 1);
    if (log) nvrtc->nvrtcGetProgramLog(program, log);
    return log;
}

md_status md_cuda_compile(const char *source, const char *arch, md_cubin *out, md_error *err) {
    const md_nvrtc *nvrtc;
    md_status status = MD_OK;
    nvrtcProgram program = NULL;
    *out = (md_cubin){0};
    MD_TRY(md_nvrtc_get(&nvrtc, err));
    if (nvrtc->nvrtcCreateProgram(&program, source, "megadecode.cu", 0, NULL, NULL))
        return md_fail(err, MD_E_DEVICE, "NVRTC: cannot create a program");
    char target[64];
    snprintf(target, sizeof target, "--gpu-architecture=%s", arch);
    const char *options[FLAG_COUNT + 2] = {target};
    memcpy(options + 1, FLAGS, sizeof FLAGS);
    int count = FLAG_COUNT + 1, major = 0, minor = 0;
    // From 13 on NVRTC has a cache of its own, for which it calls into the driver in the middle of a compilation, and
    // crashes where that does not go as it expects. There is one here already.
    if (!nvrtc->nvrtcVersion(&major, &minor) && major >= 13) options[count++] = "--no-cache";
    nvrtcResult result = nvrtc->nvrtcCompileProgram(program, count, options);
    out->log = program_log(nvrtc, program);
    if (result) {
        status = md_fail(err, MD_E_INTERNAL, "NVRTC (%s): error %d: %.400s", arch, result, out->log ? out->log : "");
    } else if (nvrtc->nvrtcGetCUBINSize(program, &out->size) || !(out->bytes = malloc(out->size)) ||
               nvrtc->nvrtcGetCUBIN(program, out->bytes)) {
        status = md_fail(err, MD_E_DEVICE, "NVRTC (%s): no machine code", arch);
    }
    nvrtc->nvrtcDestroyProgram(&program);
    if (status != MD_OK) md_cubin_free(out);
    return status;
}

// mkdir -p; the path is changed in between and restored.
static int make_dirs(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int failed = mkdir(path, 0777) && errno != EEXIST;
        *slash = '/';
        if (failed) return -1;
    }
    return 0;
}

// The cache file's path, its folders made; NULL where there is nowhere to put one.
static char *cache_path(const char *source, const char *arch) {
    const char *base = getenv("XDG_CACHE_HOME"), *below = "";
    if (!base || base[0] != '/') base = getenv("HOME"), below = "/.cache";
    const md_nvrtc *nvrtc;
    int major = 0, minor = 0;
    if (!base || base[0] != '/' || md_nvrtc_get(&nvrtc, NULL) != MD_OK) return NULL;
    nvrtc->nvrtcVersion(&major, &minor);
    char compiler[64];
    snprintf(compiler, sizeof compiler, "%s NVRTC %d.%d", arch, major, minor);
    XXH64_hash_t seed = XXH64(compiler, strlen(compiler), 0);
    for (size_t i = 0; i < FLAG_COUNT; i++) seed = XXH64(FLAGS[i], strlen(FLAGS[i]), seed);
    XXH128_hash_t key = XXH3_128bits_withSeed(source, strlen(source), seed);
    size_t size = strlen(base) + 128;
    char *path = malloc(size);
    if (!path) return NULL;
    snprintf(path, size, "%s%s/megadecode/cuda/%016llx%016llx.cubin", base, below, (unsigned long long)key.high64,
             (unsigned long long)key.low64);
    if (make_dirs(path) == 0) return path;
    free(path);
    return NULL;
}

static int cache_read(const char *path, md_cubin *out) {
    char *bytes;
    size_t size;
    if (md_file_read_all(path, MAX_CUBIN, &bytes, &size, NULL) != MD_OK) return 0;
    cache_header header;
    if (size >= sizeof header) {
        memcpy(&header, bytes, sizeof header);
        size_t code = size - sizeof header;
        if (memcmp(header.magic, MAGIC, sizeof MAGIC) == 0 && header.size == code &&
            header.hash == XXH64(bytes + sizeof header, code, 0)) {
            memmove(bytes, bytes + sizeof header, code);
            *out = (md_cubin){.bytes = bytes, .size = code, .cached = 1};
            return 1;
        }
    }
    md_log(MD_LOG_WARN, "%s: damaged cache file, compiling again", path);
    free(bytes);
    return 0;
}

static void cache_write(const char *path, const md_cubin *cubin) {
    cache_header header = {.size = cubin->size, .hash = XXH64(cubin->bytes, cubin->size, 0)};
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    char *file = malloc(sizeof header + cubin->size);
    md_error err;
    if (!file) return;
    memcpy(file, &header, sizeof header);
    memcpy(file + sizeof header, cubin->bytes, cubin->size);
    if (md_file_write_atomic(path, file, sizeof header + cubin->size, &err) != MD_OK)
        md_log(MD_LOG_INFO, "the compiled kernel was not cached: %s", err.message);
    free(file);
}

md_status md_cuda_compile_cached(const char *source, const char *arch, md_cubin *out, md_error *err) {
    char *path = cache_path(source, arch);
    if (path && cache_read(path, out)) {
        free(path);
        return MD_OK;
    }
    md_status status = md_cuda_compile(source, arch, out, err);
    if (status == MD_OK && path) cache_write(path, out);
    free(path);
    return status;
}
