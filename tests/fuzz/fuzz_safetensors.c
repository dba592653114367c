// The input is a whole safetensors file. Whatever is accepted must tile the data by the format's own arithmetic.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "model/safetensors.h"

static void check(const md_st_header *header, uint64_t file_size) {
    uint64_t at = 0;
    for (size_t i = 0; i < header->count; i++) {
        const md_st_tensor *tensor = &header->tensor[i];
        uint64_t elements = 1;
        for (uint32_t d = 0; d < tensor->rank; d++) elements *= tensor->shape[d];
        if (tensor->begin != at || tensor->end <= at || (tensor->end - at) % elements != 0) abort();
        at = tensor->end;
    }
    if (header->data_offset + at != file_size) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    md_file file = {.fd = memfd_create("fuzz", MFD_CLOEXEC), .size = size, .path = "fuzz"};
    if (file.fd < 0 || write(file.fd, data, size) != (ssize_t)size) abort();
    md_arena arena = {0};
    md_st_header header;
    md_error err = {0};
    if (md_st_read(&file, &arena, &header, &err) == MD_OK)
        check(&header, size);
    else if (err.message[0] == 0)
        abort();
    md_arena_free(&arena);
    close(file.fd);
    return 0;
}
