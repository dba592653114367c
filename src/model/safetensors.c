#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"

// Every element type of the format that has whole bytes. Which of them a model can use is the snapshot's business.
static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
             {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
             {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8}};

static md_status parse_dtype(const json_t *entry, md_st_tensor *tensor, uint32_t *bytes, const char *what,
                             md_error *err) {
    const json_t *dtype = json_object_get(entry, "dtype");
    if (!json_is_string(dtype))
        return md_fail(err, MD_E_FORMAT, "%s: tensor %s: \"dtype\" is %s, expected a string", what, tensor->name,
                       md_json_type_name(dtype));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(json_string_value(dtype), types[i].name) != 0) continue;
        tensor->dtype = types[i].name;
        *bytes = types[i].bytes;
        return MD_OK;
    }
    return md_fail(err, MD_E_FORMAT, "%s: tensor %s: unknown dtype \"%.32s\"", what, tensor->name,
                   json_string_value(dtype));
}

// *bytes: in, of one element; out, of the whole tensor.
static md_status parse_shape(const json_t *entry, md_st_tensor *tensor, uint64_t *bytes, const char *what,
                             md_error *err) {
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return md_fail(err, MD_E_FORMAT, "%s: tensor %s: \"shape\" is %s, expected an array", what, tensor->name,
                       md_json_type_name(shape));
    size_t rank = json_array_size(shape);
    if (rank < 1 || rank > MD_ST_MAX_RANK)
        return md_fail(err, MD_E_FORMAT, "%s: tensor %s: \"shape\" has %zu dimensions, expected 1 to %d", what,
                       tensor->name, rank, MD_ST_MAX_RANK);
    tensor->rank = (uint32_t)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 1)
            return md_fail(err, MD_E_FORMAT,
                           "%s: tensor %s: dimension %zu of \"shape\" is %s%s, expected a positive integer", what,
                           tensor->name, i, md_json_type_name(dim), json_is_integer(dim) ? " below 1" : "");
        tensor->shape[i] = (uint64_t)json_integer_value(dim);
        if (md_mul_overflow(*bytes, tensor->shape[i], bytes))
            return md_fail(err, MD_E_FORMAT, "%s: tensor %s: the size of its \"shape\" overflows 64 bits", what,
                           tensor->name);
    }
    return MD_OK;
}

static md_status parse_offsets(const json_t *entry, md_st_tensor *tensor, uint64_t bytes, uint64_t data_bytes,
                               const char *what, md_error *err) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return md_fail(err, MD_E_FORMAT, "%s: tensor %s: \"data_offsets\" is %s of %zu, expected [begin, end]", what,
                       tensor->name, md_json_type_name(offsets), json_array_size(offsets));
    uint64_t at[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_array_get(offsets, i);
        if (!json_is_integer(value))
            return md_fail(err, MD_E_FORMAT, "%s: tensor %s: \"data_offsets\" holds %s, expected integers", what,
                           tensor->name, md_json_type_name(value));
        if (json_integer_value(value) < 0)
            return md_fail(err, MD_E_FORMAT, "%s: tensor %s: \"data_offsets\" holds the negative %lld", what,
                           tensor->name, (long long)json_integer_value(value));
        at[i] = (uint64_t)json_integer_value(value);
    }
    if (at[1] < at[0])
        return md_fail(err, MD_E_FORMAT, "%s: tensor %s: \"data_offsets\" end at %llu, before they begin at %llu", what,
                       tensor->name, (unsigned long long)at[1], (unsigned long long)at[0]);
    if (at[1] > data_bytes)
        return md_fail(err, MD_E_FORMAT,
                       "%s: tensor %s: \"data_offsets\" end at %llu, but the file has %llu bytes of data (was it "
                       "truncated?)",
                       what, tensor->name, (unsigned long long)at[1], (unsigned long long)data_bytes);
    if (at[1] - at[0] != bytes)
        return md_fail(err, MD_E_FORMAT, "%s: tensor %s: %llu bytes of data, but its shape and dtype need %llu", what,
                       tensor->name, (unsigned long long)(at[1] - at[0]), (unsigned long long)bytes);
    tensor->begin = at[0];
    tensor->end = at[1];
    return MD_OK;
}

static md_status parse_tensor(const char *name, const json_t *entry, uint64_t data_bytes, const char *what,
                              md_arena *arena, md_st_tensor *tensor, md_error *err) {
    tensor->name = md_arena_strdup(arena, name);
    if (!tensor->name) return md_fail(err, MD_E_MEMORY, "%s: out of memory for the tensor table", what);
    if (!json_is_object(entry))
        return md_fail(err, MD_E_FORMAT, "%s: tensor %s: its entry is %s, expected an object", what, name,
                       md_json_type_name(entry));
    uint32_t element = 0;
    MD_TRY(parse_dtype(entry, tensor, &element, what, err));
    uint64_t bytes = element;
    MD_TRY(parse_shape(entry, tensor, &bytes, what, err));
    return parse_offsets(entry, tensor, bytes, data_bytes, what, err);
}

static int by_begin(const void *a, const void *b) {
    const md_st_tensor *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

// Sorts by offset and checks that the tensors tile the data exactly.
static md_status check_tiling(md_st_header *header, uint64_t data_bytes, const char *what, md_error *err) {
    qsort(header->tensor, header->count, sizeof *header->tensor, by_begin);
    uint64_t at = 0;
    const char *before = "the start of the data";
    for (size_t i = 0; i < header->count; i++) {
        const md_st_tensor *tensor = &header->tensor[i];
        if (tensor->begin < at)
            return md_fail(err, MD_E_FORMAT, "%s: tensor %s overlaps %s in \"data_offsets\"", what, tensor->name,
                           before);
        if (tensor->begin > at)
            return md_fail(err, MD_E_FORMAT, "%s: a hole of %llu bytes in \"data_offsets\" between %s and tensor %s",
                           what, (unsigned long long)(tensor->begin - at), before, tensor->name);
        at = tensor->end;
        before = tensor->name;
    }
    if (at != data_bytes)
        return md_fail(err, MD_E_FORMAT, "%s: %llu bytes after the last tensor belong to none", what,
                       (unsigned long long)(data_bytes - at));
    return MD_OK;
}

md_status md_st_parse(const char *json, size_t n, uint64_t data_bytes, const char *what, md_arena *arena,
                      md_st_header *out, md_error *err) {
    *out = (md_st_header){0};
    json_t *root;
    md_status status = md_json_parse(json, n, false, what, &root, err);
    if (status != MD_OK) return md_fail_context(err, status, "safetensors header");
    if (!json_is_object(root)) {
        status = md_fail(err, MD_E_FORMAT, "%s: the safetensors header is %s, expected an object", what,
                         md_json_type_name(root));
        goto fail;
    }
    out->tensor = MD_ARENA_ARRAY(arena, md_st_tensor, json_object_size(root));
    if (!out->tensor) {
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory for %zu tensors", what, json_object_size(root));
        goto fail;
    }
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry) {
        if (strcmp(name, "__metadata__") == 0) {
            if (json_is_object(entry)) continue;
            status = md_fail(err, MD_E_FORMAT, "%s: \"__metadata__\" is %s, expected an object", what,
                             md_json_type_name(entry));
            goto fail;
        }
        MD_TRY_GOTO(parse_tensor(name, entry, data_bytes, what, arena, &out->tensor[out->count], err));
        out->count++;
    }
    MD_TRY_GOTO(check_tiling(out, data_bytes, what, err));
fail:
    json_decref(root);
    return status;
}

md_status md_st_read(const md_file *file, md_arena *arena, md_st_header *out, md_error *err) {
    *out = (md_st_header){0};
    if (file->size <= 8)
        return md_fail(err, MD_E_FORMAT, "%s: too small for a safetensors file: %llu bytes", file->path,
                       (unsigned long long)file->size);
    uint8_t prefix[8];
    MD_TRY(md_file_pread(file, 0, prefix, sizeof prefix, err));
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)prefix[i] << (8 * i);
    if (n < 2)
        return md_fail(err, MD_E_FORMAT, "%s: safetensors header length is %llu, too small", file->path,
                       (unsigned long long)n);
    if (n > MD_ST_MAX_HEADER)
        return md_fail(err, MD_E_FORMAT, "%s: safetensors header length is %llu, at most %d expected", file->path,
                       (unsigned long long)n, MD_ST_MAX_HEADER);
    if (n > file->size - 8)
        return md_fail(err, MD_E_FORMAT, "%s: safetensors header length is %llu, but only %llu bytes follow it",
                       file->path, (unsigned long long)n, (unsigned long long)(file->size - 8));
    char *json = malloc((size_t)n);
    if (!json)
        return md_fail(err, MD_E_MEMORY, "%s: out of memory for a header of %llu bytes", file->path,
                       (unsigned long long)n);
    md_status status = md_file_pread(file, 8, json, (size_t)n, err);
    if (status == MD_OK) status = md_st_parse(json, (size_t)n, file->size - 8 - n, file->path, arena, out, err);
    free(json);
    out->data_offset = 8 + n;
    return status;
}
