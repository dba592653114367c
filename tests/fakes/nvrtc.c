// libnvrtc.so.13, faked (fake_cuda.h): whatever the source, some bytes are its machine code. With FAKE_NVRTC, the
// folder of cuda_to_host.py, it is compiled for the host, by clang++, so that the fake driver can run it.
#include "fakes/fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/dl.h"

uint32_t fake_compilations;
static const char machine_code[] = "machine code";
static const char *code = machine_code; // the last compilation's
static size_t code_bytes = sizeof machine_code;
static char *source_text;

#define FAKE(symbol, arguments)                                                                                        \
    nvrtcResult symbol arguments;                                                                                      \
    nvrtcResult symbol arguments

FAKE(nvrtcVersion, (int *major, int *minor)) {
    *major = 99, *minor = 0;
    return 0;
}
FAKE(nvrtcCreateProgram, (nvrtcProgram * program, const char *source, const char *name, int headers,
                          const char *const *texts, const char *const *names)) {
    (void)name, (void)headers, (void)texts, (void)names;
    free(source_text);
    source_text = strdup(source);
    *program = (nvrtcProgram)&fake_compilations;
    return 0;
}
FAKE(nvrtcDestroyProgram, (nvrtcProgram * program)) {
    *program = NULL;
    return 0;
}
// The source in DIR/k.cu to DIR/k.so, and its bytes; false: not done.
static bool compile(const char *scripts, const char *dir) {
    char path[256], command[1024];
    snprintf(path, sizeof path, "%s/k.cu", dir);
    FILE *file = fopen(path, "w");
    if (!file || fputs(source_text, file) < 0 || fclose(file)) return false;
    snprintf(
        command, sizeof command,
        "cd %s && python3 %s/cuda_to_host.py k.cu %s/emulate.hpp >k.cpp && clang++ -std=c++17 -O1 -w -fPIC -shared "
        "-ffp-contract=off -fno-strict-aliasing -o k.so k.cpp",
        dir, scripts, scripts);
    if (system(command) != 0) return false;
    snprintf(path, sizeof path, "%s/k.so", dir);
    file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) return false;
    code_bytes = (size_t)ftell(file);
    char *bytes = malloc(code_bytes);
    rewind(file);
    bool all = bytes && fread(bytes, 1, code_bytes, file) == code_bytes;
    fclose(file);
    code = bytes; // for as long as the process lives
    return all;
}
FAKE(nvrtcCompileProgram, (nvrtcProgram program, int count, const char *const *options)) {
    (void)program, (void)count, (void)options;
    fake_compilations++;
    const char *scripts = getenv("FAKE_NVRTC");
    if (!scripts) return 0;
    char dir[] = "/tmp/fake-nvrtc-XXXXXX", command[64];
    if (!mkdtemp(dir)) return 6;
    bool done = compile(scripts, dir);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) == 0 && done ? 0 : 6;
}
FAKE(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t *size)) {
    (void)program;
    *size = 1;
    return 0;
}
FAKE(nvrtcGetProgramLog, (nvrtcProgram program, char *log)) {
    (void)program;
    *log = 0;
    return 0;
}
FAKE(nvrtcGetCUBINSize, (nvrtcProgram program, size_t *size)) {
    (void)program;
    *size = code_bytes;
    return 0;
}
FAKE(nvrtcGetCUBIN, (nvrtcProgram program, char *out)) {
    (void)program;
    memcpy(out, code, code_bytes);
    return 0;
}
