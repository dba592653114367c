// The same answer everywhere: computes the shipped model's logits with every CPU engine, level of instructions, number
// of threads and of columns, and every kind of KV cache, and compares one digest of them (digests.h).
//
//     digest                       all of it
//     digest --quick               each engine and level with a few numbers of threads and columns
//     digest --best                the best level alone, and mostly its early digests: for an emulator
//     digest --print               the digests of the reference engine, as digests.h has them
//     digest --describe > FILE     the model in a form that needs no JSON (description.h)
//     digest --model FILE [...]    the same model from such a file
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/level.h"
#include "base/bf16.h"
#include "digest/description.h"
#include "digest/digests.h"

enum { THREADS = 16, COLUMNS = MD_MAX_STEP_COLUMNS };
#define MODEL "models/fairytales"
#define WEIGHTS MODEL "/model.safetensors"

typedef enum engine_kind { REFERENCE, OPS, RESIDENT } engine_kind;
static const char *const kind_names[] = {"reference", "ops", "resident"};

typedef struct runner {
    const md_snapshot *snapshot;
    md_plan *plan;
    float *logits;      // [COLUMNS][vocab]
    uint32_t positions; // of a run: DIGEST_POSITIONS or DIGEST_EARLY
    unsigned runs, wrong;
} runner;

static void stop(const md_error *err) {
    fprintf(stderr, "digest: %s\n", err->message);
    exit(1);
}

// ---- one run -----------------------------------------------------------------------------------------------------

static uint32_t token_at(const md_snapshot *snapshot, uint32_t position) {
    uint32_t x = (position + 1) * 2246822519u ^ 2654435761u;
    x ^= x >> 15;
    x *= 2654435761u;
    return (x >> 8) % snapshot->vocab;
}

static uint64_t hash_logits(uint64_t hash, const float *logits, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint16_t value = md_bf16_from_f32(logits[i]);
        hash = (hash ^ (value & 0xff)) * 0x100000001b3u;
        hash = (hash ^ (value >> 8)) * 0x100000001b3u;
    }
    return hash;
}

// Positions [first, end) in steps of `columns`.
static uint64_t feed(runner *r, md_engine *engine, md_kv *kv, uint32_t first, uint32_t end, uint32_t columns,
                     uint64_t hash) {
    size_t vocab = r->snapshot->vocab;
    md_column column[COLUMNS];
    md_error err;
    for (uint32_t at = first; at < end;) {
        uint32_t n = 0;
        for (; n < columns && at < end; n++, at++)
            column[n] = (md_column){kv, at, token_at(r->snapshot, at), r->logits + n * vocab};
        if (engine->ops->step(engine, column, n, &err) != MD_OK) stop(&err);
        hash = hash_logits(hash, r->logits, n * vocab);
    }
    return hash;
}

static uint64_t digest_of(runner *r, md_engine *engine, const digest_case *kind, uint32_t columns) {
    md_kv_format format[MD_MAX_LAYERS];
    md_error err;
    md_kv *kv;
    if (engine->ops->kv_open(engine, DIGEST_POSITIONS, &kv, &err) != MD_OK) stop(&err);
    uint64_t hash = feed(r, engine, kv, 0, DIGEST_PROMPT, columns, 0xcbf29ce484222325u);
    for (uint32_t l = 0; l < r->snapshot->layers; l++)
        format[l] = kind->bits == 1 ? r->snapshot->kv[l] : (md_kv_format){kind->bits, kind->group};
    if (kind->bits && engine->ops->kv_quantize(engine, kv, format, DIGEST_PROMPT, &err) != MD_OK) stop(&err);
    hash = feed(r, engine, kv, DIGEST_PROMPT, r->positions, columns, hash);
    engine->ops->kv_close(engine, kv);
    return hash;
}

// ---- engines -----------------------------------------------------------------------------------------------------

static md_engine *open_engine(runner *r, engine_kind kind, uint32_t threads) {
    md_engine *engine;
    md_error err;
    const md_engine_options options = {.threads = threads, .deadline_ms = 120000};
    md_status status = kind == REFERENCE ? md_reference_open(r->plan, &options, &engine, &err)
                                         : md_cpu_open(r->plan, kind == RESIDENT, &options, &engine, &err);
    if (status != MD_OK) stop(&err);
    return engine;
}

// Kinds of cache and numbers of columns, as sets (bit i: case i; bit c: c columns).
static void check(runner *r, engine_kind kind, uint32_t threads, unsigned cases, unsigned columns) {
    md_engine *engine = open_engine(r, kind, threads);
    md_engine_info info;
    engine->ops->info(engine, &info);
    for (size_t i = 0; i < DIGEST_CASES; i++)
        for (uint32_t c = 1; c <= COLUMNS; c++) {
            if (!(cases >> i & 1) || !(columns >> c & 1)) continue;
            uint64_t found = digest_of(r, engine, &digest_cases[i], c);
            uint64_t expected = r->positions == DIGEST_EARLY ? digest_cases[i].early : digest_cases[i].digest;
            r->runs++;
            if (found == expected) continue;
            r->wrong++;
            fprintf(stderr, "WRONG: %s on %s, %u columns, cache %s: %016" PRIx64 ", expected %016" PRIx64 "\n",
                    kind_names[kind], info.device, c, digest_cases[i].name, found, expected);
        }
    engine->ops->close(engine);
}

static void print_digests(runner *r) {
    md_engine *engine = open_engine(r, REFERENCE, 1);
    for (size_t i = 0; i < DIGEST_CASES; i++) {
        r->positions = DIGEST_EARLY;
        uint64_t early = digest_of(r, engine, &digest_cases[i], COLUMNS);
        r->positions = DIGEST_POSITIONS;
        uint64_t digest = digest_of(r, engine, &digest_cases[i], COLUMNS);
        printf("%-24s 0x%016" PRIx64 ", 0x%016" PRIx64 "\n", digest_cases[i].name, early, digest);
    }
    engine->ops->close(engine);
}

typedef enum extent_kind { ALL, QUICK, BEST } extent_kind;

// Every level of instructions; then every number of columns and of threads on the best one. The plain C of the
// reference and of the scalar level takes most of the time: they stop early (what comes later was computed by the
// reference when the digests were pinned), with BEST all but one run do.
static void check_all(runner *r, extent_kind extent) {
    const md_kernels *level[MD_CPU_MAX_LEVELS];
    uint32_t levels = md_cpu_levels(level);
    const unsigned bf16 = 1, snapshot = 2, all = (1u << DIGEST_CASES) - 1, every = (2u << COLUMNS) - 2;
    const unsigned some = extent == ALL ? all : bf16 | snapshot;
    const uint32_t slow = DIGEST_EARLY;
    r->positions = slow;
    check(r, REFERENCE, 1, some, 1u << COLUMNS);
    for (uint32_t i = 0; i < levels && extent != BEST; i++) {
        setenv("MEGADECODE_CPU", level[i]->name, 1);
        r->positions = i == 0 ? slow : DIGEST_POSITIONS;
        check(r, RESIDENT, 1, i == 0 ? some : all, 1u << COLUMNS);
        check(r, OPS, 2, i == 0 ? bf16 : some, 1u << 3);
    }
    unsetenv("MEGADECODE_CPU");
    r->positions = extent == BEST ? slow : DIGEST_POSITIONS;
    check(r, RESIDENT, 3, bf16 | snapshot, extent == ALL ? every : 1u << 1 | 1u << 5);
    check(r, OPS, 2, extent == ALL ? all : snapshot, 1u << 7);
    r->positions = DIGEST_POSITIONS;
    if (extent == BEST) check(r, RESIDENT, 1, snapshot, 1u << COLUMNS);
    for (uint32_t threads = 1; threads <= THREADS && extent == ALL; threads++) {
        check(r, RESIDENT, threads, all, 1u << (threads * 3 % COLUMNS + 1));
        check(r, OPS, threads, snapshot, 1u << (threads * 5 % COLUMNS + 1));
    }
}

// ---- the model ---------------------------------------------------------------------------------------------------

static md_snapshot *read_description(const char *path) {
    static md_snapshot snapshot;
    static md_file file;
    md_error err;
    if (md_file_open(&file, WEIGHTS, &err) != MD_OK) stop(&err);
    description d = {.in = fopen(path, "r"), .file = &file};
    if (!d.in || !describe(&d, &snapshot)) {
        fprintf(stderr, "digest: %s is no description of a model\n", path);
        exit(1);
    }
    fclose(d.in);
    return &snapshot;
}

#ifdef MEGADECODE_NO_JSON
static md_snapshot *open_snapshot(void) {
    fputs("digest: this build needs --model FILE\n", stderr);
    exit(1);
}
static void close_snapshot(md_snapshot *snapshot) { (void)snapshot; }
#else
static md_snapshot *open_snapshot(void) {
    md_snapshot *snapshot;
    md_error err;
    if (md_snapshot_open(MODEL, &snapshot, &err) != MD_OK) stop(&err);
    return snapshot;
}
static void close_snapshot(md_snapshot *snapshot) { md_snapshot_close(snapshot); }
#endif

static int write_description(md_snapshot *snapshot) {
    description d = {.out = stdout};
    return describe(&d, snapshot) ? 0 : 1;
}

static int run(md_snapshot *snapshot, extent_kind extent, bool print) {
    runner r = {.snapshot = snapshot, .logits = calloc((size_t)COLUMNS * snapshot->vocab, sizeof(float))};
    md_error err = {0};
    if (!r.logits || md_plan_build(snapshot, &r.plan, &err) != MD_OK) stop(&err);
    if (print)
        print_digests(&r);
    else
        check_all(&r, extent);
    md_plan_free(r.plan);
    free(r.logits);
    if (!print) printf("%u runs, %u wrong\n", r.runs, r.wrong);
    return r.wrong ? 1 : 0;
}

int main(int argc, char **argv) {
    const char *model = NULL;
    extent_kind extent = ALL;
    bool print = false, write = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--model") == 0 && i + 1 < argc) model = argv[++i];
        if (strcmp(argv[i], "--quick") == 0) extent = QUICK;
        if (strcmp(argv[i], "--best") == 0) extent = BEST;
        print |= strcmp(argv[i], "--print") == 0;
        write |= strcmp(argv[i], "--describe") == 0;
    }
    md_snapshot *snapshot = model ? read_description(model) : open_snapshot();
    int status = write ? write_description(snapshot) : run(snapshot, extent, print);
    if (!model) close_snapshot(snapshot); // a described one lives as long as the process
    return status;
}
