// libnvrtc.so.13, faked (fake_cuda.h): whatever the source, some bytes are its machine code.
#include "fakes/fake_cuda.h"

#include <string.h>

#include "backend/cuda/dl.h"

uint32_t fake_compilations;
static const char code[] = "machine code";

#define FAKE(symbol, arguments)                                                                                        \
    nvrtcResult symbol arguments;                                                                                      \
    nvrtcResult symbol arguments

FAKE(nvrtcVersion, (int *major, int *minor)) {
    *major = 99, *minor = 0;
    return 0;
}
FAKE(nvrtcCreateProgram, (nvrtcProgram * program, const char *source, const char *name, int headers,
                          const char *const *texts, const char *const *names)) {
    (void)source, (void)name, (void)headers, (void)texts, (void)names;
    *program = (nvrtcProgram)&fake_compilations;
    return 0;
}
FAKE(nvrtcDestroyProgram, (nvrtcProgram * program)) {
    *program = NULL;
    return 0;
}
FAKE(nvrtcCompileProgram, (nvrtcProgram program, int count, const char *const *options)) {
    (void)program, (void)count, (void)options;
    fake_compilations++;
    return 0;
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
    *size = sizeof code;
    return 0;
}
FAKE(nvrtcGetCUBIN, (nvrtcProgram program, char *out)) {
    (void)program;
    memcpy(out, code, sizeof code);
    return 0;
}
