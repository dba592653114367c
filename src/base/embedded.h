// Text files built into the program (cmake/embed.cmake).
#ifndef MD_BASE_EMBEDDED_H
#define MD_BASE_EMBEDDED_H

#include <stddef.h>

typedef struct md_embedded {
    const char *name; // file name without folder; NULL ends the array
    const char *text; // NUL-terminated
    size_t bytes;
} md_embedded;

extern const md_embedded md_cuda_kernels[]; // src/backend/cuda/kernels/*.cuh, in the order in which they are compiled
extern const md_embedded
    md_page_files[]; // src/server/page/*, in the order in which they are joined (the program's alone)

#endif
