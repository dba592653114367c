// The gates of the CUDA engine that need a GPU; tools/gpu-check builds and runs this. One gate a run:
//   gates golden MODEL GOLDENS ENGINE GROUPS   every golden in the folder, three runs, one digest
//   gates equal MODEL STEPS GROUPS [WIDEST]    resident (GROUPS workers) against ops (all), bitwise, mixed columns; of
//                                              steps of up to WIDEST columns
//   gates graph MODEL STEPS                    bursts of resident, ops, and ops in a graph: the same tokens and caches
//   gates host MODEL                           what the host refuses or takes back, on a real driver
//   gates nan MODEL                            what is no number in a cache stays so when it is quantized
//   gates reference MODEL STEPS CPU            resident against an engine on the CPU (reference, cpu-resident, cpu-ops:
//   they
//                                              give the same bits): mean KL over STEPS tokens
//   gates logits MODEL STEPS ENGINE FILE       the logits of the same tokens, for other comparisons
//   gates burst MODEL STEPS                    tokens of bursts against single steps; twice, the same
//   gates sampling MODEL TOKENS GROUPS         tokens the kernel samples against the host's sampler, alone and together
//   gates cancel MODEL                         how soon a burst ends
//   gates context MODEL LENGTH...              cut prompts at each length: one column against eight, bitwise
//   gates deep MODEL LENGTH FROM               the last tokens of LENGTH in every way; before FROM the caches hold
//   anything gates prefill MODEL LENGTH...              prompts in launches of their own: caches and logits against
//   token by
//                                              token
//   gates prompts MODEL WIDTH LENGTH...        tokens a second of prompts, WIDTH columns a step
//   gates bench MODEL ENGINE GROUPS DEPTH...   tokens a second of bursts at each depth
//   gates profile MODEL DEPTH                  where a token's time goes
//   gates tune MODEL COLUMNS DEPTHS TUNE...    ms a step of COLUMNS sequences at depths D,D,.. with each set of
//   tunables
//                                              (NAME=VALUE,..)
//   gates compile MODEL TUNE [COLUMNS]         the kernel (of one column) to the cache of machine code, without a GPU
//   gates inject MODEL                         delays change nothing; a dropped handoff is reported and survived
// Prints one line a result; exit status 1 when a gate fails.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

#include "backend/backend.h"
#include "backend/cuda/compile.h"
#include "backend/cuda/engine.h"
#include "base/bf16.h"
#include "cli/golden.h"
#include "gates.h"

static const char *path_of_model;
static md_snapshot *model;
static md_plan *plan;
static int failures;

void check(md_status status, const md_error *err, const char *what) {
    if (status == MD_OK) return;
    printf("FAIL %s: %s: %s\n", what, md_status_name(status), err->message);
    fflush(stdout); // what follows may not come back, with a GPU that is lost
    exit(1);
}

void gate(bool ok, const char *text) {
    printf("%s %s\n", ok ? "ok  " : "FAIL", text);
    fflush(stdout);
    failures += !ok;
}

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

md_engine *open_engine(const char *name, uint32_t groups) {
    md_error err;
    md_engine *engine;
    const char *deadline = getenv("GATES_DEADLINE_MS"); // tools that slow the kernel down need a longer one
    md_engine_options options = {.groups = groups, .deadline_ms = deadline ? (uint32_t)atoi(deadline) : 0};
    double start = now();
    const bool graph = strcmp(name, "ops-graph") == 0;
    if (graph) setenv("MEGADECODE_CUDA_GRAPH", "1", 1);
    if (strcmp(name, "reference") == 0)
        check(md_reference_open(plan, &options, &engine, &err), &err, "reference");
    else if (strncmp(name, "cpu-", 4) == 0)
        check(md_cpu_open(plan, strcmp(name, "cpu-resident") == 0, &options, &engine, &err), &err, "opening");
    else
        check(md_cuda_open(plan, strcmp(name, "resident") == 0, &options, &engine, &err), &err, "opening");
    if (graph) unsetenv("MEGADECODE_CUDA_GRAPH");
    md_engine_info info;
    engine->ops->info(engine, &info);
    printf("     %s: %s, %s, %.0f MB, opened in %.2f s\n", path_of_model, info.engine, info.device,
           (double)info.weight_bytes / 1e6, now() - start);
    return engine;
}

md_kv *open_kv(md_engine *engine, uint32_t context) {
    md_error err;
    md_kv *kv;
    check(engine->ops->kv_open(engine, context, &kv, &err), &err, "kv_open");
    return kv;
}

// Tokens at [position, position + n), in steps of up to `width` columns; logits of the last where wanted.
void feed(md_engine *engine, md_kv *kv, uint32_t position, const uint32_t *tokens, uint32_t n, uint32_t width,
          float *logits) {
    md_error err;
    for (uint32_t at = 0; at < n;) {
        md_column columns[MD_CUDA_PREFILL_COLUMNS];
        uint32_t count = n - at < width ? n - at : width;
        for (uint32_t c = 0; c < count; c++)
            columns[c] = (md_column){.kv = kv,
                                     .position = position + at + c,
                                     .token = tokens[at + c],
                                     .logits = at + c + 1 == n ? logits : NULL};
        check(engine->ops->step(engine, columns, count, &err), &err, "step");
        at += count;
    }
}

uint32_t *some_tokens(uint32_t n, uint32_t seed) {
    uint32_t *tokens = malloc(n * sizeof *tokens), x = seed * 2654435761u + 1;
    for (uint32_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        tokens[i] = (x >> 8) % model->vocab;
    }
    return tokens;
}

static uint32_t widest(md_engine *engine) {
    md_engine_info info;
    engine->ops->info(engine, &info);
    return info.max_columns < 8 ? info.max_columns : 8;
}

static void golden_one(md_engine *engine, const char *path, const char *label) {
    md_error err;
    md_golden golden;
    check(md_golden_read(path, &golden, &err), &err, path);
    float *logits = malloc(golden.vocab * sizeof *logits);
    md_score score;
    uint64_t digest = 0;
    bool same = true;
    for (int run = 0; run < 3; run++) {
        md_kv *kv = open_kv(engine, (uint32_t)(golden.prefill_count + golden.steps));
        check(md_score_begin(&score, &err), &err, "score");
        feed(engine, kv, 0, golden.prefill, (uint32_t)golden.prefill_count, run == 1 ? 1 : widest(engine), NULL);
        if (golden.kv_quantized)
            check(engine->ops->kv_quantize(engine, kv, model->kv, (uint32_t)golden.prefill_count, &err), &err,
                  "quantize");
        for (size_t i = 0; i < golden.steps; i++) {
            feed(engine, kv, (uint32_t)(golden.prefill_count + i), &golden.decode[i], 1, 1, logits);
            md_score_row(&score, golden.logits + i * golden.vocab, logits, golden.vocab);
        }
        md_score_end(&score);
        same = same && (run == 0 || score.digest == digest);
        digest = score.digest;
        engine->ops->kv_close(engine, kv);
    }
    double kl = score.kl_sum / (double)score.steps;
    double right = (double)(score.agree + score.legal_flips) / (double)score.steps;
    char text[400];
    snprintf(text, sizeof text,
             "golden %-16s %s: %zu steps, %zu agree + %zu legal, mean KL %.2e, max %.2e, NaN %zu, digest %016llx%s",
             label, strrchr(path, '/') + 1, score.steps, score.agree, score.legal_flips, kl, score.kl_max, score.nan,
             (unsigned long long)score.digest, same ? "" : ", RUNS DIFFER");
    gate(same && !score.nan && right >= 0.98 && kl <= (golden.kv_quantized ? 6e-3 : 5e-4), text);
    free(logits);
    md_golden_free(&golden);
}

static void gate_golden(const char *folder, const char *name, uint32_t groups) {
    static const char *const files[] = {"text-bf16-kv.json", "greedy-bf16-kv.json", "text-quantized-kv.json",
                                        "greedy-quantized-kv.json"};
    md_engine *engine = open_engine(name, groups);
    char path[1024], label[64];
    snprintf(label, sizeof label, "%s G=%u", name, groups);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        golden_one(engine, path, label);
    }
    engine->ops->close(engine);
}

// `steps` steps of three sequences that come and go, 1 to 8 columns; a digest of all logits.
static uint64_t mixed_run(md_engine *engine, uint32_t steps, bool quantized) {
    md_error err;
    uint32_t lengths[3] = {0, 0, 0}, context = steps * 8 + 16, vocab = model->vocab, most = widest(engine);
    uint32_t *tokens = some_tokens(steps * 8, 7);
    float *logits = malloc((size_t)8 * vocab * sizeof *logits);
    uint64_t digest = 0;
    md_kv *kv[3];
    for (int i = 0; i < 3; i++) kv[i] = open_kv(engine, context);
    if (quantized) check(engine->ops->kv_quantize(engine, kv[1], model->kv, 0, &err), &err, "quantize");
    for (uint32_t s = 0; s < steps; s++) {
        md_column columns[8];
        uint32_t count = 0, parts[3] = {1 + s % 3, s % 2, s % 4 == 0 ? 2 : 1};
        for (int i = 0; i < 3; i++)
            for (uint32_t k = 0; k < parts[i] && count < most; k++, count++) {
                columns[count] = (md_column){.kv = kv[i],
                                             .position = lengths[i]++,
                                             .token = tokens[s * 8 + count],
                                             .logits = logits + (size_t)count * vocab};
            }
        check(engine->ops->step(engine, columns, count, &err), &err, "step");
        digest = XXH64(logits, (size_t)count * vocab * sizeof *logits, digest);
    }
    for (int i = 0; i < 3; i++) engine->ops->kv_close(engine, kv[i]);
    free(tokens);
    free(logits);
    return digest;
}

// Another widest step than the widest that fits: before the wide kernel is made, which is when it is first needed.
static void narrow(md_engine *engine, uint32_t widest) {
    md_cuda_engine *cuda = md_cuda_of(engine);
    if (widest && widest < cuda->width[cuda->width_count - 1].columns)
        cuda->width[cuda->width_count - 1].columns = widest;
}

static void gate_equal(uint32_t steps, uint32_t groups, uint32_t most) {
    bool quantized = model->kv != NULL;
    char text[200];
    md_engine *ops = open_engine("ops", 0);
    narrow(ops, most);
    uint64_t a = mixed_run(ops, steps, quantized);
    ops->ops->close(ops);
    md_engine *resident = open_engine("resident", groups);
    narrow(resident, most);
    uint64_t b = mixed_run(resident, steps, quantized), c = mixed_run(resident, steps, quantized);
    resident->ops->close(resident);
    snprintf(text, sizeof text, "equal: ops %016llx, resident G=%u %016llx, again %016llx, %u steps",
             (unsigned long long)a, groups, (unsigned long long)b, (unsigned long long)c, steps);
    if (most) snprintf(text + strlen(text), sizeof text - strlen(text), " of up to %u columns", most);
    gate(a == b && b == c, text);
}

static void gate_reference(uint32_t steps, const char *name, double most) {
    uint32_t vocab = model->vocab, agree = 0;
    uint32_t *tokens = some_tokens(steps, 3);
    float *ours = malloc(vocab * sizeof *ours), *right = malloc(vocab * sizeof *right);
    md_engine *gpu = open_engine("resident", 0), *cpu = open_engine(name, 0);
    md_kv *a = open_kv(gpu, steps), *b = open_kv(cpu, steps);
    double kl = 0, worst = 0, difference = 0;
    for (uint32_t s = 0; s < steps; s++) {
        feed(gpu, a, s, &tokens[s], 1, 1, ours);
        feed(cpu, b, s, &tokens[s], 1, 1, right);
        double top = -INFINITY, sum_a = 0, sum_b = 0, this_kl = 0;
        uint32_t best_a = 0, best_b = 0;
        for (uint32_t i = 0; i < vocab; i++) {
            if (ours[i] > ours[best_a]) best_a = i;
            if (right[i] > right[best_b]) best_b = i;
            top = fmax(top, fmax((double)ours[i], (double)right[i]));
            difference = fmax(difference, fabs((double)ours[i] - (double)right[i]));
        }
        for (uint32_t i = 0; i < vocab; i++) sum_a += exp(ours[i] - top), sum_b += exp(right[i] - top);
        for (uint32_t i = 0; i < vocab; i++) {
            double p = exp(right[i] - top) / sum_b;
            this_kl += p * ((right[i] - log(sum_b)) - (ours[i] - log(sum_a)));
        }
        kl += this_kl / steps;
        worst = fmax(worst, this_kl);
        agree += best_a == best_b;
    }
    char text[200];
    snprintf(text, sizeof text,
             "reference: %u steps, argmax agrees %u, mean KL %.2e, max %.2e, largest difference %.3g", steps, agree, kl,
             worst, difference);
    gate(kl <= most, text);
    gpu->ops->close(gpu);
    cpu->ops->close(cpu);
}

// The logits of gate_reference's tokens by one engine, as rows of bf16: to compare builds and engines with each other.
static void write_logits(uint32_t steps, const char *name, const char *path) {
    uint32_t vocab = model->vocab, *tokens = some_tokens(steps, 3);
    float *logits = malloc(vocab * sizeof *logits);
    uint16_t *row = malloc(vocab * sizeof *row);
    md_engine *engine = open_engine(name, 0);
    md_kv *kv = open_kv(engine, steps);
    FILE *file = fopen(path, "wb");
    for (uint32_t s = 0; file && s < steps; s++) {
        feed(engine, kv, s, &tokens[s], 1, 1, logits);
        for (uint32_t i = 0; i < vocab; i++) row[i] = md_bf16_from_f32(logits[i]);
        fwrite(row, sizeof *row, vocab, file);
    }
    if (file) fclose(file);
    engine->ops->close(engine);
}

bool collect(void *user, uint32_t token) {
    uint64_t *digest = user;
    *digest = XXH64(&token, sizeof token, *digest);
    return true;
}

static void gate_burst(uint32_t steps) {
    md_error err;
    md_engine *engine = open_engine("resident", 0);
    uint32_t context = steps < 2048 ? steps + 16 : 2064, vocab = model->vocab, token = 5, wrong = 0, last = 5;
    float *logits = malloc(vocab * sizeof *logits);
    md_kv *kv = open_kv(engine, context);
    uint64_t digest[2] = {0, 0}, stepped = 0;
    for (int run = 0; run < 2; run++)
        for (uint32_t done = 0, part = 0; done < steps; part++) { // the context begins anew when it is full
            md_burst_column column = {.kv = kv, .token = 5 + part, .on_token = collect, .user = &digest[run]};
            md_burst burst = {&column, 1, steps - done < 2048 ? steps - done : 2048};
            check(engine->ops->burst(engine, &burst, &err), &err, "burst");
            done += column.produced;
            if (column.produced != burst.max_tokens) wrong++;
        }
    uint32_t few = steps < 200 ? steps : 200;
    uint64_t first = 0;
    md_burst_column column = {.kv = kv, .token = 5, .on_token = collect, .user = &first};
    check(engine->ops->burst(engine, &(md_burst){&column, 1, few}, &err), &err, "burst");
    for (uint32_t s = 0; s < few; s++) {
        feed(engine, kv, s, &token, 1, 1, logits);
        last = 0;
        for (uint32_t i = 1; i < vocab; i++)
            if (logits[i] > logits[last]) last = i;
        token = last;
        collect(&stepped, token);
    }
    char text[200];
    snprintf(text, sizeof text, "burst: %u tokens twice %016llx %016llx; first %u %016llx, stepped %016llx", steps,
             (unsigned long long)digest[0], (unsigned long long)digest[1], few, (unsigned long long)first,
             (unsigned long long)stepped);
    gate(digest[0] == digest[1] && first == stepped && !wrong, text);
    engine->ops->close(engine);
}

// Says no to the 40th token, and when.
typedef struct no_more {
    uint32_t count;
    double said;
} no_more;
static bool say_no(void *user, uint32_t token) {
    no_more *n = user;
    (void)token;
    n->said = now();
    return ++n->count < 40;
}

static void gate_cancel(void) {
    md_error err;
    md_engine *engine = open_engine("resident", 0);
    md_kv *kv = open_kv(engine, 512);
    double longest = 0;
    for (int run = 0; run < 20; run++) {
        no_more n = {0};
        md_burst_column column = {.kv = kv, .token = 5, .on_token = say_no, .user = &n};
        check(engine->ops->burst(engine, &(md_burst){&column, 1, 500}, &err), &err, "burst");
        longest = fmax(longest, now() - n.said);
    }
    char text[100];
    snprintf(text, sizeof text, "cancel: the call is over %.2f ms after it, at most", longest * 1e3);
    gate(longest < 0.01, text);
    engine->ops->close(engine);
}

static void gate_context(int n, char **lengths) {
    md_engine *engine = open_engine("resident", 0), *ops = open_engine("ops", 0);
    uint32_t vocab = model->vocab;
    float *a = malloc(vocab * sizeof *a), *b = malloc(vocab * sizeof *b);
    for (int i = 0; i < n; i++) {
        uint32_t length = (uint32_t)atoi(lengths[i]);
        uint32_t *tokens = some_tokens(length, 11);
        md_kv *wide = open_kv(engine, length), *narrow = open_kv(ops, length);
        feed(engine, wide, 0, tokens, length, widest(engine), a);
        uint32_t tail = length < 24 ? length : 24; // the last ones singly, by the other engine
        if (length > tail) feed(ops, narrow, 0, tokens, length - tail, widest(ops), NULL);
        feed(ops, narrow, length - tail, tokens + length - tail, tail, 1, b);
        char text[100];
        bool finite = true;
        for (uint32_t k = 0; k < vocab; k++) finite = finite && isfinite(a[k]);
        snprintf(text, sizeof text, "context %u: resident in chunks = ops one by one", length);
        gate(finite && memcmp(a, b, vocab * sizeof *a) == 0, text);
        engine->ops->kv_close(engine, wide);
        ops->ops->kv_close(ops, narrow);
        free(tokens);
    }
    engine->ops->close(engine);
    ops->ops->close(ops);
}

static void bench(const char *name, uint32_t groups, int n, char **depths) {
    md_error err;
    md_engine *engine = open_engine(name, groups);
    for (int i = 0; i < n; i++) {
        uint32_t depth = (uint32_t)atoi(depths[i]), tokens = strcmp(name, "ops") ? 256 : 64;
        uint32_t *prompt = some_tokens(depth + 1, 1);
        md_kv *kv = open_kv(engine, depth + tokens + 1);
        double start = now();
        if (depth) feed(engine, kv, 0, prompt, depth, widest(engine), NULL);
        double prefill = now() - start, times[5];
        for (int r = 0; r < 5; r++) {
            md_burst_column column = {.kv = kv, .position = depth, .token = prompt[depth]};
            start = now();
            check(engine->ops->burst(engine, &(md_burst){&column, 1, tokens}, &err), &err, "burst");
            times[r] = (now() - start) / column.produced;
            if (column.produced != tokens) gate(false, "bench: a token could not be chosen");
            for (int k = r; k > 0 && times[k] < times[k - 1]; k--) { // sorted: the median is in the middle
                double t = times[k];
                times[k] = times[k - 1], times[k - 1] = t;
            }
        }
        printf("     bench %-9s G=%-3u depth %5u: %.4f ms a token, %.0f tok/s (best %.4f, worst %.4f), weights at "
               "%.0f GB/s; prompt %.0f tok/s\n",
               name, groups, depth, times[2] * 1e3, 1 / times[2], times[0] * 1e3, times[4] * 1e3,
               (double)md_plan_bytes_per_token(plan) / times[2] * 1e-9, depth ? depth / prefill : 0);
        fflush(stdout);
        engine->ops->kv_close(engine, kv);
        free(prompt);
    }
    engine->ops->close(engine);
}

// Where a token's time goes, in microseconds, means over the CTAs.
static void profile(uint32_t depth, uint32_t tokens) {
    md_error err;
    md_engine *engine;
    md_account account;
    const md_engine_options options = {.account = true};
    check(md_cuda_open(plan, true, &options, &engine, &err), &err, "opening");
    uint32_t *prompt = some_tokens(depth + 1, 1);
    md_kv *kv = open_kv(engine, depth + tokens);
    if (depth) feed(engine, kv, 0, prompt, depth, widest(engine), NULL);
    md_burst_column column = {.kv = kv, .position = depth, .token = prompt[depth]};
    check(engine->ops->account(engine, &account, &err), &err, "account");
    check(engine->ops->burst(engine, &(md_burst){&column, 1, tokens}, &err), &err, "burst");
    check(engine->ops->account(engine, &account, &err), &err, "account");
    printf("     us a token   whole | setup weights handoff arithmetic out | slowest CTA, without handoffs\n");
    for (uint32_t k = 0; k < account.kinds; k++) {
        const md_stage_time *t = &account.stage[k];
        double whole = t->setup + t->weights + t->handoff + t->arithmetic + t->out;
        printf("     %-11s %7.2f | %6.2f %6.2f %7.2f %7.2f %6.2f | %6.2f\n", t->kind, whole * 1e3, t->setup * 1e3,
               t->weights * 1e3, t->handoff * 1e3, t->arithmetic * 1e3, t->out * 1e3, t->slowest * 1e3);
    }
    engine->ops->close(engine);
}

// A cache whose entries are all alike, and no NaN.
static md_kv *some_kv(md_engine *engine, uint32_t context) {
    md_error err;
    md_kv *kv = open_kv(engine, context);
    const md_cuda_kv *memory = (const md_cuda_kv *)kv;
    check(md_cuda_fill(md_cuda_of(engine), memory->wide, 0x3c, memory->wide_bytes, &err), &err, "filling the cache");
    return kv;
}

// The median and the least of 7 bursts of `columns` sequences over caches of anything, and a digest of the tokens.
static void tune_at(md_engine *engine, uint32_t columns, uint32_t depth) {
    md_error err;
    md_kv *kv[8];
    for (uint32_t c = 0; c < columns; c++) kv[c] = some_kv(engine, depth + 256 + 1);
    double times[7];
    uint64_t digest = 0;
    for (int r = 0; r < 7; r++) {
        md_burst_column column[8];
        for (uint32_t c = 0; c < columns; c++)
            column[c] =
                (md_burst_column){.kv = kv[c], .position = depth, .token = 5 + c, .on_token = collect, .user = &digest};
        digest = 0;
        double start = now();
        check(engine->ops->burst(engine, &(md_burst){column, columns, 256}, &err), &err, "burst");
        times[r] = (now() - start) / column[0].produced;
        for (int k = r; k > 0 && times[k] < times[k - 1]; k--) {
            double t = times[k];
            times[k] = times[k - 1], times[k - 1] = t;
        }
    }
    printf(" %u: %.4f (%.4f) %04x ", depth, times[3] * 1e3, times[0] * 1e3, (uint32_t)digest & 0xffffu);
    for (uint32_t c = 0; c < columns; c++) engine->ops->kv_close(engine, kv[c]);
}

static void tune(uint32_t columns, const char *depths, int n, char **tunes) {
    md_error err;
    md_engine *engine = open_engine("resident", 0);
    md_cuda_engine *cuda = md_cuda_of(engine);
    if (columns < 1 || columns > widest(engine)) {
        printf("FAIL tune: %u columns; 1 to %u\n", columns, widest(engine));
        exit(1);
    }
    for (int i = 0; i < n; i++) {
        setenv("MEGADECODE_CUDA_TUNE", tunes[i], 1);
        for (uint32_t w = 0; w < cuda->width_count; w++) {
            if (cuda->width[w].module) cuda->cu->cuModuleUnload(cuda->width[w].module);
            cuda->width[w].module = NULL;
            check(md_cuda_width_open(cuda, &cuda->width[w], &err), &err, tunes[i]);
        }
        for (const char *at = depths; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
            tune_at(engine, columns, (uint32_t)atoi(at));
        printf("%s\n", tunes[i]);
        fflush(stdout);
    }
    engine->ops->close(engine);
}

static void compile(const char *tunes, uint32_t columns) {
    md_error err;
    md_cuda_shape *shape;
    md_cuda_target target;
    md_buf source;
    md_cubin cubin;
    check(md_cuda_target_named("sm_90a", &target, &err), &err, "target");
    check(md_cuda_shape_build(plan, &shape, &err), &err, "shape");
    md_buf_init(&source, 4 << 20);
    const md_cuda_emit_options options = {
        .columns = columns, .inject = getenv("MEGADECODE_CUDA_INJECT") != NULL, .tune = tunes};
    check(md_cuda_emit(shape, &target, &options, &source, &err), &err, "emit");
    check(md_cuda_compile_cached(md_buf_str(&source), target.arch, &cubin, &err), &err, "compile");
    if (cubin.log) printf("%s\n", cubin.log);
    md_cubin_free(&cubin);
    md_buf_free(&source);
    md_cuda_shape_free(shape);
}

static void gate_inject(void) {
    md_error err;
    setenv("MEGADECODE_CUDA_INJECT", "1", 1);
    md_engine *engine = open_engine("resident", 0);
    md_cuda_engine *cuda = md_cuda_of(engine);
    bool quantized = model->kv != NULL;
    uint64_t calm = mixed_run(engine, 30, quantized);
    bool same = true;
    for (uint32_t seed = 1; seed <= 5; seed++) {
        cuda->delay_seed = seed * 7919;
        same = same && mixed_run(engine, 30, quantized) == calm;
    }
    cuda->delay_seed = 0;
    gate(same, "inject: random delays in every stage of every worker change nothing");
    md_kv *kv = open_kv(engine, 64);
    float *logits = malloc(model->vocab * sizeof *logits);
    cuda->deadline_us = 200000;
    uint32_t reported = 0;
    for (uint32_t stage = 1; stage <= 8; stage++) // whatever the first layer hands on, and the second's first
        for (uint32_t w = 0; w < cuda->groups; w++) {
            cuda->drop_stage = stage, cuda->drop_worker = w, cuda->resident = true;
            md_column column = {.kv = kv, .token = 1, .logits = logits};
            md_status status = engine->ops->step(engine, &column, 1, &err);
            if (status == MD_OK) continue; // this worker hands nothing on there
            if (status != MD_E_TIMEOUT) check(status, &err, "dropped");
            printf("     %s\n", err.message);
            reported++;
            break;
        }
    cuda->drop_stage = 0;
    // A bf16 cache of one block has no scores, and its attention hands on at once what the merge would.
    gate(reported == 6, "inject: a dropped handoff is reported, in every stage that has one");
    gate(!cuda->resident && mixed_run(engine, 30, quantized) == calm, "inject: and survived, by one launch a stage");
    cuda->resident = true;
    gate(mixed_run(engine, 30, quantized) == calm, "inject: and by the resident kernel, the same bits after it");
    engine->ops->close(engine);
}

int main(int argc, char **argv) {
    md_error err;
    if (argc < 3) return puts("gpu_gates GATE MODEL ...: see the head of tests/gpu/gates.c"), 2;
    path_of_model = argv[2];
    check(md_snapshot_open(argv[2], &model, &err), &err, argv[2]);
    check(md_plan_build(model, &plan, &err), &err, "plan");
    const char *name = argv[1];
    if (strcmp(name, "golden") == 0 && argc > 5)
        gate_golden(argv[3], argv[4], (uint32_t)atoi(argv[5]));
    else if (strcmp(name, "equal") == 0 && argc > 4)
        gate_equal(count_of(argv[3]), (uint32_t)atoi(argv[4]), argc > 5 ? (uint32_t)atoi(argv[5]) : 0);
    else if (strcmp(name, "graph") == 0 && argc > 3)
        gate_graph(count_of(argv[3]));
    else if (strcmp(name, "host") == 0)
        gate_host();
    else if (strcmp(name, "nan") == 0)
        gate_nan();
    else if (strcmp(name, "reference") == 0 && argc > 5)
        gate_reference(count_of(argv[3]), argv[4], atof(argv[5]));
    else if (strcmp(name, "logits") == 0 && argc > 5)
        write_logits(count_of(argv[3]), argv[4], argv[5]);
    else if (strcmp(name, "burst") == 0 && argc > 3)
        gate_burst(count_of(argv[3]));
    else if (strcmp(name, "cancel") == 0)
        gate_cancel();
    else if (strcmp(name, "sampling") == 0 && argc > 4)
        gate_sampling(argv[2], count_of(argv[3]), (uint32_t)atoi(argv[4]));
    else if (strcmp(name, "context") == 0)
        gate_context(argc - 3, argv + 3);
    else if (strcmp(name, "deep") == 0 && argc > 4)
        gate_deep((uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]));
    else if (strcmp(name, "bench") == 0 && argc > 4)
        bench(argv[3], (uint32_t)atoi(argv[4]), argc - 5, argv + 5);
    else if (strcmp(name, "profile") == 0 && argc > 3)
        profile((uint32_t)atoi(argv[3]), 96);
    else if (strcmp(name, "tune") == 0 && argc > 5)
        tune((uint32_t)atoi(argv[3]), argv[4], argc - 5, argv + 5);
    else if (strcmp(name, "compile") == 0 && argc > 3)
        compile(argv[3], argc > 4 ? (uint32_t)atoi(argv[4]) : 1);
    else if (strcmp(name, "prefill") == 0)
        gate_prefill(argc - 3, argv + 3);
    else if (strcmp(name, "prompts") == 0 && argc > 4)
        bench_prompts((uint32_t)atoi(argv[3]), argc - 4, argv + 4);
    else if (strcmp(name, "inject") == 0)
        gate_inject();
    else
        return puts("no such gate, or not what it takes"), 2;
    md_plan_free(plan);
    md_snapshot_close(model);
    return failures ? 1 : 0;
}
