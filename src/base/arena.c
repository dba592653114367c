#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct md_arena_block {
    struct md_arena_block *next;
    size_t used, cap;
    max_align_t bytes[];
} md_arena_block;

enum { MD_ARENA_BLOCK_BYTES = 64 * 1024 };

void *md_arena_alloc(md_arena *arena, size_t count, size_t size) {
    size_t n;
    if (__builtin_mul_overflow(count, size, &n) || n > SIZE_MAX / 2) return NULL;
    n = (n + 15) & ~(size_t)15;
    md_arena_block *block = arena->head;
    if (!block || block->cap - block->used < n) {
        size_t cap = n > MD_ARENA_BLOCK_BYTES ? n : MD_ARENA_BLOCK_BYTES;
        block = calloc(1, sizeof *block + cap);
        if (!block) return NULL;
        block->cap = cap;
        block->next = arena->head;
        arena->head = block;
    }
    void *out = (char *)block->bytes + block->used;
    block->used += n;
    return out;
}

char *md_arena_strndup(md_arena *arena, const char *text, size_t n) {
    char *copy = md_arena_alloc(arena, n + 1, 1);
    if (copy && n) memcpy(copy, text, n);
    return copy;
}

char *md_arena_strdup(md_arena *arena, const char *text) { return md_arena_strndup(arena, text, strlen(text)); }

void md_arena_free(md_arena *arena) {
    while (arena->head) {
        md_arena_block *next = arena->head->next;
        free(arena->head);
        arena->head = next;
    }
}
