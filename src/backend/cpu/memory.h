// Large memory straight from the system: zeroed, only what is touched takes room.
#ifndef MD_BACKEND_CPU_MEMORY_H
#define MD_BACKEND_CPU_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct md_pages {
    uint8_t *at; // NULL when empty; 4096-byte aligned, 2 MiB when huge
    uint64_t bytes;
    void *mapping; // what was mapped, at or before `at`
    uint64_t mapped;
} md_pages;

// huge: aligned to 2 MiB and huge pages asked for. `what` names the memory in the message.
md_status md_pages_alloc(md_pages *pages, uint64_t bytes, bool huge, const char *what, md_error *err);
void md_pages_free(md_pages *pages);

#endif
