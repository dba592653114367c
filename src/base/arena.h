// An arena for what lives as long as its owner: many allocations, one free. Not thread-safe.
#ifndef MD_BASE_ARENA_H
#define MD_BASE_ARENA_H

#include <stddef.h>

typedef struct md_arena {
    struct md_arena_block *head; // owned chain of blocks
} md_arena;

// Zeroed memory, 16-byte aligned, owned by the arena; NULL when out of memory or count*size overflows.
void *md_arena_alloc(md_arena *arena, size_t count, size_t size);
char *md_arena_strndup(md_arena *arena, const char *text, size_t n); // NUL-terminated copy
char *md_arena_strdup(md_arena *arena, const char *text);
void md_arena_free(md_arena *arena); // frees everything; the arena may be used again

#define MD_ARENA_NEW(arena, type) ((type *)md_arena_alloc((arena), 1, sizeof(type)))
#define MD_ARENA_ARRAY(arena, type, n) ((type *)md_arena_alloc((arena), (n), sizeof(type)))

#endif
