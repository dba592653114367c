#define _DEFAULT_SOURCE // MAP_ANONYMOUS, madvise
#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include "base/checked.h"

enum { HUGE_PAGE = 2 << 20 };

md_status md_pages_alloc(md_pages *pages, uint64_t bytes, bool huge, const char *what, md_error *err) {
    *pages = (md_pages){0};
    uint64_t align = huge ? HUGE_PAGE : 4096;
    if (bytes == 0) bytes = 1;
    if (bytes > (uint64_t)1 << 46)
        return md_fail(err, MD_E_MEMORY, "%s: %llu bytes are more than an address space holds", what,
                       (unsigned long long)bytes);
    bytes = md_round_up(bytes, align);
    uint64_t mapped = bytes + (huge ? align : 0);
    void *at = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return md_fail(err, MD_E_MEMORY, "%s: the system has no %llu bytes", what, (unsigned long long)bytes);
    *pages = (md_pages){.bytes = bytes, .mapping = at, .mapped = mapped};
    pages->at = (uint8_t *)at + (md_round_up((uintptr_t)at, align) - (uintptr_t)at);
    if (huge) (void)madvise(pages->at, bytes, MADV_HUGEPAGE); // a refusal costs speed only
    return MD_OK;
}

void md_pages_free(md_pages *pages) {
    if (pages->mapping) munmap(pages->mapping, pages->mapped);
    *pages = (md_pages){0};
}
