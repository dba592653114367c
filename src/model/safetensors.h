// The header of one safetensors file, read and held to every rule of the format.
//
// File: 8 bytes little-endian N, N bytes of JSON, then the data. JSON: {"__metadata__": {...}, "NAME": {"dtype": D,
// "shape": [...], "data_offsets": [begin, end]}, ...}, offsets from the start of the data. The tensors must cover the
// data without hole, overlap or rest, and each must have exactly the bytes of its shape (the rules of the reference
// implementation, safetensors/src/tensor.rs). Stricter than it: every tensor has 1 to 8 dimensions, none of them 0.
#ifndef MD_MODEL_SAFETENSORS_H
#define MD_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/status.h"

enum {
    MD_ST_MAX_HEADER = 100 * 1000 * 1000, // the reference implementation's limit
    MD_ST_MAX_RANK = 8
};

typedef struct md_st_tensor {
    const char *name;  // in the caller's arena
    const char *dtype; // the format's name ("BF16"); static
    uint32_t rank;     // 1 .. MD_ST_MAX_RANK
    uint64_t shape[MD_ST_MAX_RANK];
    uint64_t begin, end; // from the start of the data; end - begin == product of shape * element size
} md_st_tensor;

typedef struct md_st_header {
    md_st_tensor *tensor; // [count], in the order of the data
    size_t count;
    uint64_t data_offset; // where the data starts in the file
} md_st_header;

// Parses the `n` bytes of JSON of a file with `data_bytes` bytes of data behind them. `what` names the file.
md_status md_st_parse(const char *json, size_t n, uint64_t data_bytes, const char *what, md_arena *arena,
                      md_st_header *out, md_error *err);

// Reads and parses the header of an open file.
md_status md_st_read(const md_file *file, md_arena *arena, md_st_header *out, md_error *err);

#endif
