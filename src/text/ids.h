// A growable array of token ids with a mandatory maximum.
#ifndef MD_TEXT_IDS_H
#define MD_TEXT_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct md_ids {
    uint32_t *data; // owned; NULL until the first append
    size_t size;    // ids used
    size_t cap;     // ids allocated
    size_t max;     // appending past this many ids fails with MD_E_CONTEXT
} md_ids;

void md_ids_init(md_ids *ids, size_t max);
void md_ids_free(md_ids *ids); // frees and leaves an empty array with the same max

// MD_E_MEMORY or MD_E_CONTEXT; a failed append changes nothing. `from` may be NULL when n is 0.
md_status md_ids_append(md_ids *ids, const uint32_t *from, size_t n, md_error *err);

#endif
