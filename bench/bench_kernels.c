// Times the CPU kernels alone: nanoseconds and weights per nanosecond of each level's products, with tiles in the
// second level cache (what the arithmetic costs) and streamed from memory (what a decode step pays). The least of many
// short runs of thread CPU time, so that a busy machine disturbs little.
//
//   bench_kernels [level [attention]]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/level.h"
#include "backend/cpu/memory.h"
#include "base/fpmode.h"

enum { K = 1536, CACHED_TILES = 24, MEMORY_BYTES = 256 << 20, PART_BYTES = 12 << 20 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint8_t *random_tiles(size_t bytes) {
    md_pages pages; // huge pages, as the arena has them
    if (md_pages_alloc(&pages, bytes + 65536, true, "tiles", NULL) != MD_OK) return NULL;
    uint8_t *tiles = pages.at;
    uint32_t state = 1;
    for (size_t i = 0; i < bytes + 65536; i += 2) { // bf16 around 1 as scales; any nibbles as codes
        state = state * 1664525u + 1013904223u;
        uint16_t half = (uint16_t)(0x3f80 | state >> 25);
        memcpy(tiles + i, &half, 2);
    }
    return tiles;
}

static double time_tiles(md_dot_fn fn, const md_dot *dot, const uint8_t *tiles, size_t count, size_t tile_bytes,
                         int repeats) {
    float out[8 * 16];
    double best = 1e30;
    for (int r = 0; r < repeats; r++) {
        double start = now_ns();
        for (size_t t = 0; t < count; t++) fn(dot, tiles + t * tile_bytes, out);
        double ns = (now_ns() - start) / (double)count;
        if (ns < best) best = ns;
    }
    return best;
}

// The same over tiles from memory: the best of many parts of it, each long gone from the caches when its turn comes
// again.
static double time_streamed(md_dot_fn fn, const md_dot *dot, const uint8_t *tiles, size_t tile_bytes) {
    size_t parts = MEMORY_BYTES / PART_BYTES;
    double best = 1e30;
    for (size_t part = 0; part < 2 * parts; part++) {
        const uint8_t *at = tiles + part % parts * PART_BYTES;
        double ns = time_tiles(fn, dot, at, PART_BYTES / tile_bytes, tile_bytes, 1);
        if (ns < best) best = ns;
    }
    return best;
}

static void bench_cell(const md_kernels *k, md_cell cell, const char *name, const uint8_t *tiles) {
    uint32_t chunk_bytes = cell == MD_CELL_Q4 ? 64 + 512 : cell == MD_CELL_Q8 ? 64 + 1024 : 2048;
    size_t tile_bytes = (size_t)chunk_bytes * (K / 64);
    static _Alignas(64) uint16_t rows[8][K];
    static _Alignas(64) uint8_t x[8 * K * 4];
    static float sums[8 * K / 32], unit[8 * K / 64], parts[8 * K / 32];
    const md_ints ints = {x, unit, parts};
    for (int c = 0; c < 8; c++)
        for (int i = 0; i < K; i++) rows[c][i] = (uint16_t)(0x3f00 + (i + c) % 128);
    for (uint32_t columns = 1; columns <= 8; columns *= 2) {
        if (cell == MD_CELL_BF16) {
            k->act_pack(rows[0], K, columns, K, x);
        } else {
            k->act_ints(rows[0], K, columns, K, &ints);
            k->act_sums(&ints, columns, K, 64, sums);
        }
        md_dot dot = {.cols = K, .group = 64, .chunks = K / 64, .chunk_bytes = chunk_bytes, .columns = columns};
        dot.x = x;
        dot.unit = unit;
        dot.sums = sums;
        double cached = time_tiles(k->dot[cell][0], &dot, tiles, CACHED_TILES, tile_bytes, 200);
        printf("%-10s %-4s %u columns: cached %7.0f ns a tile, %6.1f weights/ns", k->name, name, columns, cached,
               16.0 * K * columns / cached);
        if (columns == 1)
            for (uint32_t ahead = 0; ahead <= 32768; ahead = ahead ? ahead * 2 : 1024) {
                dot.prefetch = ahead;
                double ns = time_streamed(k->dot[cell][0], &dot, tiles, tile_bytes);
                printf("%s%u: %.1f", ahead ? ", " : "; GB/s streamed, by bytes prefetched ahead: ", ahead,
                       (double)tile_bytes / ns);
            }
        printf("\n");
    }
}

// Runs `statement` 16 times between two looks at the clock; `best` is the least time of one.
#define TIME(best, statement)                                                                                          \
    do {                                                                                                               \
        best = 1e30;                                                                                                   \
        for (int round = 0; round < 200; round++) {                                                                    \
            double start = now_ns();                                                                                   \
            for (int i = 0; i < 16; i++) statement;                                                                    \
            double ns = (now_ns() - start) / 16;                                                                       \
            if (ns < best) best = ns;                                                                                  \
        }                                                                                                              \
    } while (0)

static void bench_vectors(const md_kernels *k) {
    static uint16_t rows[8][4608], out[4608];
    static float weight[4608], sums[8 * 4608 / 32], t[2][16];
    static float unit[8 * 4608 / 64], parts[8 * 4608 / 32];
    static _Alignas(64) uint8_t x[8 * 4608 * 4];
    const md_ints ints = {x, unit, parts};
    double norm, pack1, ints1, sums1, pack8, ints8, sums8, swiglu, residual;
    TIME(norm, k->rmsnorm(rows[0], weight, 1536, 1e-6f, out));
    TIME(pack1, k->act_pack(rows[0], 4608, 1, 4608, x));
    TIME(ints1, k->act_ints(rows[0], 4608, 1, 4608, &ints));
    TIME(sums1, k->act_sums(&ints, 1, 4608, 64, sums));
    TIME(pack8, k->act_pack(rows[0], 4608, 8, 4608, x));
    TIME(ints8, k->act_ints(rows[0], 4608, 8, 4608, &ints));
    TIME(sums8, k->act_sums(&ints, 8, 4608, 64, sums));
    TIME(swiglu, k->swiglu(t[0], NULL, t[1], NULL, out));
    TIME(residual, k->residual(t[0], NULL, out));
    printf("%-10s rmsnorm 1536: %.0f ns; 4608 activations, 1 column: pack %.0f, integers %.0f, sums %.0f; 8 columns: "
           "pack %.0f, integers %.0f, sums %.0f; swiglu %.1f, residual %.1f\n",
           k->name, norm, pack1, ints1, sums1, pack8, ints8, sums8, swiglu, residual);
}

// One block of 128 positions and 8 heads of 128, at L2's distance: keys and values of BLOCKS blocks in turn.
enum { D = 128, HEADS = 8, BLOCKS = 12, KEYS_BYTES = 8 * D / 2 * 64, VALUES_BYTES = 128 * D * 2 };

static void bench_attention(const md_kernels *k, const uint8_t *memory) {
    static _Alignas(64) uint8_t x[HEADS * D * 4];
    static uint16_t rows[HEADS][D];
    static float s[HEADS * 128], o[HEADS * D], m[16], l[16], w[16], unit[HEADS], sums[2 * HEADS], out[HEADS * 16];
    const uint8_t *keys = memory, *values = memory + BLOCKS * KEYS_BYTES;
    uint32_t n = 0;
    for (int i = 0; i < HEADS * D; i++) rows[i / D][i % D] = (uint16_t)(0x3e00 + i * 7919 % 512);
    k->act_pack(rows[0], D, HEADS, D, x);
    md_dot dot = {.cols = D, .group = 64, .chunks = 2, .chunk_bytes = 2048, .columns = HEADS, .x = x};
    double scores, softmax, pv = 0, wide = 0, pack, share;
    TIME(scores, {
        const uint8_t *tile = keys + n++ % BLOCKS * KEYS_BYTES;
        for (uint32_t j = 0; j < 128; j += 16, tile += D / 2 * 64) {
            k->dot[MD_CELL_BF16][0](&dot, tile, out);
            k->scale(out, HEADS, 0.01f, s + j);
        }
    });
    TIME(softmax, k->softmax(s, HEADS, 128, m, l));
    md_values v = {.dim = D, .stride = 2 * D};
    TIME(pv, (v.rows = values + n++ % BLOCKS * VALUES_BYTES, k->pv_bf16(&v, s, 128, HEADS, o)));
    printf("%-10s 128 positions, 8 heads of 128: bf16 scores %.0f ns, softmax %.0f, values %.0f\n", k->name, scores,
           softmax, pv);
    md_queries q = {.x = x, .unit = unit, .sums = sums};
    TIME(pack, k->query_ints(rows[0], 0.088f, HEADS, D, 64, &q));
    TIME(share, k->shares(m, m, l, HEADS, w));
    for (uint32_t bits = 4; bits <= 8; bits += 4) {
        const uint32_t chunk_bytes = 64 + 16 * 64 * bits / 8, keys_bytes = 8 * 2 * chunk_bytes,
                       codes = 128 * D * bits / 8;
        md_key_codes key = {.group = 64, .chunks = 2, .chunk_bytes = chunk_bytes};
        md_value_codes value = {.dim = D, .group = 64};
        TIME(scores, (key.tiles = keys + n++ % BLOCKS * keys_bytes,
                      (bits == 4 ? k->scores_q4 : k->scores_q8)(&key, &q, 128, HEADS, s)));
        for (int small = 0; small < 2; small++) { // a share that needs wide integers, then a small one
            wide = pv;
            for (int h = 0; h < HEADS; h++) w[h] = small ? 0.001f : 0.1f;
            TIME(pv, {
                value.codes = values + n++ % BLOCKS * (codes + 1024);
                value.scales = (const uint16_t *)(const void *)(value.codes + codes);
                (bits == 4 ? k->values_q4 : k->values_q8)(&value, s, w, 128, HEADS, o);
            });
        }
        printf("%-10s %u bits: queries %.0f, scores %.0f, shares %.0f, values %.0f, wide %.0f\n", k->name, bits, pack,
               scores, share, pv, wide);
    }
}

int main(int argc, char **argv) {
    const md_kernels *level[MD_CPU_MAX_LEVELS];
    uint32_t levels = md_cpu_levels(level);
    uint8_t *tiles = random_tiles(MEMORY_BYTES);
    if (!tiles) return 1;
    uint64_t mode = md_fpmode_enter();
    for (uint32_t i = 0; i < levels; i++) {
        if (argc > 1 ? strcmp(argv[1], level[i]->name) != 0 : i == 0) continue; // the scalar level only when named
        bench_attention(level[i], tiles);
        if (argc > 2) continue;
        bench_cell(level[i], MD_CELL_Q4, "q4", tiles);
        bench_cell(level[i], MD_CELL_Q8, "q8", tiles);
        bench_cell(level[i], MD_CELL_BF16, "bf16", tiles);
        bench_vectors(level[i]);
    }
    md_fpmode_leave(mode);
    return 0;
}
