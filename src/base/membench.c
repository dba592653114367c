#define _GNU_SOURCE
#include "base/membench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

enum { LINE = 64, PREFETCH_AHEAD = 4096, MAX_THREADS = 1024 };

typedef uint64_t vec __attribute__((vector_size(LINE)));

// Hands out passes: the readers start a pass when `pass` moves and count themselves off in `busy`; `stop` ends them.
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t pass, busy;
    int stop;
} gate;

typedef struct reader {
    const uint8_t *data;
    uint64_t bytes;
    gate *gate;
    vec sum; // read by nobody, but the compiler cannot know
} reader;

static void read_once(reader *r) {
    vec a = {0}, b = {0}, c = {0}, d = {0};
    for (uint64_t at = 0; at + 4 * LINE <= r->bytes; at += 4 * LINE) {
        const vec *line = (const vec *)(r->data + at);
        for (int i = 0; i < 4; i++) __builtin_prefetch(r->data + at + PREFETCH_AHEAD + i * LINE);
        a ^= line[0];
        b ^= line[1];
        c ^= line[2];
        d ^= line[3];
    }
    r->sum ^= a ^ b ^ c ^ d;
}

static void *reader_main(void *arg) {
    reader *r = arg;
    gate *g = r->gate;
    pthread_mutex_lock(&g->lock);
    for (uint32_t seen = 0;; seen++) {
        while (g->pass == seen && !g->stop) pthread_cond_wait(&g->moved, &g->lock);
        if (g->stop) break;
        pthread_mutex_unlock(&g->lock);
        read_once(r);
        pthread_mutex_lock(&g->lock);
        if (--g->busy == 0) pthread_cond_broadcast(&g->moved);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static double timed_pass(gate *g, reader *own, uint32_t others) {
    pthread_mutex_lock(&g->lock);
    g->pass++;
    g->busy = others;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
    double begin = md_clock_seconds();
    read_once(own);
    pthread_mutex_lock(&g->lock);
    while (g->busy) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return md_clock_seconds() - begin;
}

// Runs the passes on the calling thread and `threads - 1` others; returns the shortest pass in seconds, or 0 when the
// threads could not be made.
static double timed_passes(reader *readers, pthread_t *ids, uint32_t threads, uint32_t passes) {
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    for (uint32_t t = 0; t < threads; t++) readers[t].gate = &g;
    uint32_t started = 1;
    while (started < threads && pthread_create(&ids[started], NULL, reader_main, &readers[started]) == 0) started++;
    double best = 0;
    for (uint32_t p = 0; p < passes && started == threads; p++) {
        double took = timed_pass(&g, &readers[0], threads - 1);
        if (p == 0 || took < best) best = took;
    }
    pthread_mutex_lock(&g.lock);
    g.stop = 1;
    pthread_cond_broadcast(&g.moved);
    pthread_mutex_unlock(&g.lock);
    for (uint32_t t = 1; t < started; t++) pthread_join(ids[t], NULL);
    return best;
}

md_status md_membench_read(uint32_t threads, uint64_t bytes, uint32_t passes, double *bytes_per_second, md_error *err) {
    if (threads < 1 || threads > MAX_THREADS || passes < 1)
        return md_fail(err, MD_E_USAGE, "a read benchmark of %u threads and %u passes", threads, passes);
    uint64_t share = bytes / threads / 4096 * 4096;
    uint64_t total = share * threads + PREFETCH_AHEAD + 4 * LINE;
    uint8_t *data = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return md_fail(err, MD_E_MEMORY, "out of memory for a read benchmark of %llu bytes", (unsigned long long)total);
    madvise(data, total, MADV_HUGEPAGE);
    memset(data, 1, total);
    reader *readers = aligned_alloc(LINE, threads * sizeof *readers);
    pthread_t *ids = calloc(threads, sizeof *ids);
    md_status status = MD_OK;
    if (readers && ids) {
        for (uint32_t t = 0; t < threads; t++) readers[t] = (reader){.data = data + t * share, .bytes = share};
        double best = timed_passes(readers, ids, threads, passes);
        if (best > 0)
            *bytes_per_second = (double)(share * threads) / best;
        else
            status = md_fail(err, MD_E_IO, "cannot start %u threads for the read benchmark", threads);
    } else {
        status = md_fail(err, MD_E_MEMORY, "out of memory for %u readers", threads);
    }
    free(readers);
    free(ids);
    munmap(data, total);
    return status;
}
