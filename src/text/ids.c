#include "text/ids.h"

#include <stdlib.h>
#include <string.h>

void md_ids_init(md_ids *ids, size_t max) { *ids = (md_ids){.max = max}; }

void md_ids_free(md_ids *ids) {
    free(ids->data);
    *ids = (md_ids){.max = ids->max};
}

md_status md_ids_append(md_ids *ids, const uint32_t *from, size_t n, md_error *err) {
    if (n > ids->max || ids->size > ids->max - n)
        return md_fail(err, MD_E_CONTEXT, "the text has more than %zu tokens", ids->max);
    size_t need = ids->size + n;
    if (need > ids->cap) {
        size_t cap = ids->cap ? ids->cap : 32;
        while (cap < need) cap += cap / 2;
        uint32_t *data = cap <= SIZE_MAX / sizeof *data ? realloc(ids->data, cap * sizeof *data) : NULL;
        if (!data) return md_fail(err, MD_E_MEMORY, "out of memory for %zu token ids", cap);
        ids->data = data;
        ids->cap = cap;
    }
    if (n) memcpy(ids->data + ids->size, from, n * sizeof *from);
    ids->size = need;
    return MD_OK;
}
