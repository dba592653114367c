// What keeps a failed allocation inside jansson from doing harm. It reports few of them, and its lexer writes beyond
// its buffer after one (2.14: a string whose closing quote was not kept is copied on and on). So allocations are
// watched: outside of reading, failures are counted; while reading, a failure jumps out of jansson, and what it had
// allocated is freed here.
//
// Thread rule: everything is per thread, but for the two functions that jansson had before, set once.
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>

#include "base/json.h"

// One call of json_loadb: all it allocated, and (with FREED added) freed, in order.
typedef struct reading {
    jmp_buf out;
    uintptr_t *event; // [count of cap]; cap holds two for each allocation
    size_t count, allocations, cap;
} reading;
enum { FREED = 1 }; // blocks are aligned

static json_malloc_t allocate; // whatever was set before
static json_free_t release;
static _Thread_local uint64_t losses;
static _Thread_local reading *current; // NULL: not reading

static bool make_room(reading *r) {
    if (2 * (r->allocations + 1) <= r->cap) return true;
    size_t cap = r->cap ? 2 * r->cap : 256;
    uintptr_t *event = realloc(r->event, cap * sizeof *event);
    if (!event) return false;
    r->event = event;
    r->cap = cap;
    return true;
}

static void *watched_malloc(size_t n) {
    reading *r = current;
    void *memory = r && !make_room(r) ? NULL : allocate(n);
    if (!memory) {
        losses++;
        if (r) longjmp(r->out, 1);
        return NULL;
    }
    if (r) {
        r->allocations++;
        r->event[r->count++] = (uintptr_t)memory;
    }
    return memory;
}

static void watched_free(void *memory) {
    reading *r = current;
    if (r && memory) r->event[r->count++] = (uintptr_t)memory | FREED;
    release(memory);
}

static void watch(void) {
    json_get_alloc_funcs(&allocate, &release);
    json_set_alloc_funcs(watched_malloc, watched_free);
}

uint64_t md_json_losses(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch);
    return losses;
}

static int by_block(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a & ~(uintptr_t)FREED, y = *(const uintptr_t *)b & ~(uintptr_t)FREED;
    return x < y ? -1 : x > y;
}

// A block may have been allocated, freed and allocated again: it is there when it was allocated once more than freed.
static void free_what_is_left(reading *r) {
    if (r->count) qsort(r->event, r->count, sizeof *r->event, by_block);
    for (size_t i = 0; i < r->count;) {
        uintptr_t block = r->event[i] & ~(uintptr_t)FREED;
        int there = 0;
        for (; i < r->count && (r->event[i] & ~(uintptr_t)FREED) == block; i++) there += r->event[i] & FREED ? -1 : 1;
        if (there) release((void *)block);
    }
}

// `r` is the caller's: what longjmp finds changed in a function's own variables is not defined.
static json_t *read_watched(reading *r, const char *bytes, size_t n, size_t flags, json_error_t *error) {
    current = r;
    if (setjmp(r->out) == 0) {
        json_t *root = json_loadb(bytes, n, flags, error);
        current = NULL;
        return root;
    }
    current = NULL;
    free_what_is_left(r);
    return NULL;
}

json_t *md_json_load(const char *bytes, size_t n, size_t flags, json_error_t *error) {
    reading r = {.event = NULL};
    (void)md_json_losses(); // the watch is set
    json_t *root = read_watched(&r, bytes, n, flags, error);
    free(r.event);
    return root;
}
