// The CUDA engine's host side on a driver without a GPU (tests/fakes): what it says and does when memory is short, an
// allocation fails, a wait runs out or the GPU is lost; and how it follows bursts.
#include "md_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/engine.h"
#include "fakes/fake_cuda.h"
#include "model_maker.h"

static md_snapshot *snapshot;
static md_plan *plan;
static md_error err;
static float *logits;
static char *cache;

static int begin(void **state) {
    (void)state;
    cache = mm_temp_dir();
    setenv("XDG_CACHE_HOME", cache, 1);     // the fake's code is no kernel
    assert_int_equal(fake_compilations, 0); // and the fakes are what the engine will open
    if (md_snapshot_open("models/fairytales", &snapshot, &err) != MD_OK) return -1;
    fake.vocab = snapshot->vocab;
    logits = malloc(snapshot->vocab * sizeof *logits);
    return md_plan_build(snapshot, &plan, &err) == MD_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    free(logits);
    md_plan_free(plan);
    md_snapshot_close(snapshot);
    mm_remove(cache);
    return 0;
}

// Each test begins with a GPU of 1 GB that works.
static int fresh(void **state) {
    (void)state;
    fake.total = (size_t)1 << 30;
    fake.major = 9, fake.minor = 0, fake.cooperative = 1;
    fake.fail_at = 0, fake.launch_result = 0, fake.sync_result = 0, fake.hang = false, fake.undecided_at = -1;
    assert_int_equal(fake.live, 0);
    return 0;
}

static md_status open_status(md_engine **engine) {
    return md_cuda_open(plan, true, &(md_engine_options){0}, engine, &err);
}
static md_engine *open_engine(void) {
    md_engine *engine;
    if (open_status(&engine) != MD_OK) fail_msg("%s", err.message);
    return engine;
}
static md_kv *open_kv(md_engine *engine, uint32_t context) {
    md_kv *kv;
    if (engine->ops->kv_open(engine, context, &kv, &err) != MD_OK) fail_msg("%s", err.message);
    return kv;
}
static md_status step(md_engine *engine, md_kv *kv, uint32_t position) {
    md_column column = {.kv = kv, .position = position, .token = 1, .logits = logits};
    return engine->ops->step(engine, &column, 1, &err);
}
static void says(const char *words) {
    if (!strstr(err.message, words)) fail_msg("\"%s\" does not hold \"%s\"", err.message, words);
}

// ---- memory ----------------------------------------------------------------------------------------------------

static void every_allocation_may_fail(void **state) {
    (void)state;
    uint32_t n = 1;
    for (;; n++) {
        md_engine *engine;
        md_kv *kv;
        fake.fail_at = n;
        md_status status = open_status(&engine);
        if (status == MD_OK) {
            status = engine->ops->kv_open(engine, 100, &kv, &err);
            if (status == MD_OK) engine->ops->kv_close(engine, kv);
            engine->ops->close(engine);
        }
        assert_int_equal(fake.live, 0);
        assert_int_equal(fake.used, 0);
        if (status == MD_OK) break;
        assert_int_equal(status, MD_E_MEMORY);
    }
    assert_true(n > 10);
}

static void a_model_too_large_says_how_much(void **state) {
    (void)state;
    md_engine *engine;
    fake.total = 2 << 20;
    assert_int_equal(open_status(&engine), MD_E_MEMORY);
    says("Fake GPU: ");
    says(" MB for ");
    says("of 2 MB are free");
}

static void a_context_too_long_says_what_fits(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, 200), *longer;
    uint32_t context = snapshot->context;
    fake.total = fake.used + (4 << 20); // a position takes 3 KB, and its part of the partials
    assert_int_equal(engine->ops->kv_open(engine, context, &longer, &err), MD_E_MEMORY);
    char words[64];
    snprintf(words, sizeof words, "a KV cache of %u positions takes 12 MB, ", context); // 6 layers, 2 heads of 64
    says(words);
    const char *about = strstr(err.message, "about ");
    assert_non_null(about);
    uint32_t fit = (uint32_t)atoi(about + 6);
    assert_true(fit >= 128 && fit < context);
    assert_int_equal(step(engine, kv, 0), MD_OK); // the engine goes on
    longer = open_kv(engine, fit);
    assert_int_equal(step(engine, longer, fit - 1), MD_OK);
    engine->ops->kv_close(engine, longer);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
}

// An only sequence's first block is with the first worker, whatever was open before.
static void a_seat_is_taken_again(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *first = open_kv(engine, 16), *second = open_kv(engine, 16);
    assert_true(((md_cuda_kv *)first)->home == 0 && ((md_cuda_kv *)second)->home != 0);
    engine->ops->kv_close(engine, first);
    engine->ops->kv_close(engine, second);
    first = open_kv(engine, 16);
    assert_int_equal(((md_cuda_kv *)first)->home, 0);
    engine->ops->kv_close(engine, first);
    engine->ops->close(engine);
}

// ---- prompts ---------------------------------------------------------------------------------------------------

enum { PROMPT = 70 };
static md_status prompt(md_engine *engine, md_kv *kv) {
    md_column columns[PROMPT];
    for (uint32_t c = 0; c < PROMPT; c++) columns[c] = (md_column){.kv = kv, .position = c, .token = c};
    columns[PROMPT - 1].logits = logits;
    return engine->ops->step(engine, columns, PROMPT, &err);
}

// Launches of a prompt's step: its columns, each layer's four matrices with their inputs and its attention (of one
// block), the last column's logits.
static void a_prompt_is_some_launches_a_layer(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, 128);
    assert_int_equal(prompt(engine, kv), MD_OK); // the first makes ready
    uint32_t launches = fake.launches;
    assert_int_equal(prompt(engine, kv), MD_OK);
    assert_int_equal(fake.launches - launches, 1 + 9 * snapshot->layers + 2);
    assert_true(logits[PROMPT] == 1.0f && logits[0] == 0.0f);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
}

// Its partials are merged with weights in over 48 KB of shared memory, which has to be asked for.
static void a_prompt_reaches_the_longest_context(void **state) {
    (void)state;
    mm_shape shape = MM_SHAPE;
    shape.context = MD_CUDA_MAX_CONTEXT;
    char *dir = mm_make(&shape, 1);
    md_snapshot *long_snapshot, *short_snapshot = snapshot;
    md_plan *long_plan, *short_plan = plan;
    assert_int_equal(md_snapshot_open(dir, &long_snapshot, &err), MD_OK);
    assert_int_equal(md_plan_build(long_snapshot, &long_plan, &err), MD_OK);
    snapshot = long_snapshot, plan = long_plan, fake.vocab = shape.vocab;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, shape.context);
    md_column columns[PROMPT];
    for (uint32_t c = 0; c < PROMPT; c++)
        columns[c] = (md_column){.kv = kv, .position = shape.context - PROMPT + c, .token = c};
    if (engine->ops->step(engine, columns, PROMPT, &err) != MD_OK) fail_msg("%s", err.message);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
    snapshot = short_snapshot, plan = short_plan, fake.vocab = short_snapshot->vocab;
    md_plan_free(long_plan);
    md_snapshot_close(long_snapshot);
    mm_remove(dir);
}

static void a_prompt_goes_in_steps_without_memory_or_with_a_quantized_cache(void **state) {
    (void)state;
    for (int quantized = 0; quantized < 2; quantized++) {
        md_engine *engine = open_engine();
        md_kv *kv = open_kv(engine, 128);
        if (quantized)
            assert_int_equal(engine->ops->kv_quantize(engine, kv, snapshot->kv, 0, &err), MD_OK);
        else
            fake.total = fake.used + (1 << 20);
        assert_int_equal(prompt(engine, kv), MD_OK);
        uint32_t launches = fake.launches;
        assert_int_equal(prompt(engine, kv), MD_OK);
        assert_int_equal(fake.launches - launches, (PROMPT + 7) / 8);
        assert_true(logits[PROMPT] == 1.0f && logits[0] == 0.0f);
        engine->ops->kv_close(engine, kv);
        engine->ops->close(engine);
        assert_int_equal(fake.live, 0);
        fake.total = (size_t)1 << 30;
    }
}

static void a_prompt_that_loses_the_gpu_is_told(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, 128);
    assert_int_equal(prompt(engine, kv), MD_OK);
    fake.launch_result = FAKE_GONE;
    assert_int_equal(prompt(engine, kv), MD_E_DEVICE);
    says("launching a prompt's stage");
    fake.launch_result = 0;
    assert_int_equal(prompt(engine, kv), MD_E_DEVICE);
    says("lost");
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
    engine = open_engine();
    kv = open_kv(engine, 128);
    fake.launch_result = FAKE_GONE; // while it is made ready: no way back to steps
    assert_int_equal(prompt(engine, kv), MD_E_DEVICE);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
    assert_int_equal(fake.live, 0);
}

// ---- GPUs that can't be used -----------------------------------------------------------------------------------

static void unfit_gpus_are_refused_in_one_line(void **state) {
    (void)state;
    const struct {
        int major, minor, cooperative;
        const char *words;
    } gpus[] = {{7, 5, 1, "Fake GPU: its architecture is older than sm_80"},
                {8, 0, 0, "Fake GPU: it has no cooperative launch"},
                {14, 2, 1, "compute capability 14.2 is not one the kernels know"}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        md_engine *engine;
        md_model *model;
        md_model_info info;
        fake.major = gpus[i].major, fake.minor = gpus[i].minor, fake.cooperative = gpus[i].cooperative;
        assert_int_equal(open_status(&engine), MD_E_UNSUPPORTED);
        says(gpus[i].words);
        assert_null(strchr(err.message, '\n'));
        assert_int_equal(fake.live, 0);
        assert_int_equal(md_model_open("models/fairytales", NULL, &model, &err), MD_OK);
        md_model_get_info(model, &info);
        assert_string_equal(info.backend, "cpu");
        md_model_close(model);
    }
    md_engine *engine;
    assert_int_equal(md_cuda_open(plan, true, &(md_engine_options){.device_index = 1}, &engine, &err), MD_E_DEVICE);
    says("GPU 1: the driver sees 1 GPU");
    fake.major = 9, fake.minor = 0, fake.cooperative = 1;
    assert_int_equal(md_cuda_open(plan, true, &(md_engine_options){.groups = 5}, &engine, &err), MD_E_DEVICE);
    says("5 workers can't all run at once, at most 4 can");
}

// ---- faults ----------------------------------------------------------------------------------------------------

static void a_wait_that_ran_out_is_reported(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, 64);
    fake.hang = true;
    assert_int_equal(step(engine, kv, 0), MD_E_TIMEOUT);
    says("worker 3 of 4 in stage 2 (attn_scores of layer 0) waited over 2000 ms for tag");
    uint32_t launches = fake.launches; // and the engine goes on, with one launch a stage
    assert_int_equal(step(engine, kv, 0), MD_OK);
    assert_int_equal(fake.launches - launches, plan->stage_count);
    assert_true(logits[1] == 1.0f && logits[0] == 0.0f);
    md_engine_info info;
    engine->ops->info(engine, &info);
    assert_string_equal(info.engine, "ops");
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
}

static void a_lost_gpu_stays_lost(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, 64), *other;
    fake.sync_result = FAKE_GONE;
    assert_int_equal(step(engine, kv, 0), MD_E_DEVICE);
    says("Fake GPU is lost to this program");
    says("unspecified launch failure (CUDA error 719)");
    uint32_t launches = fake.launches;
    assert_int_equal(step(engine, kv, 0), MD_E_DEVICE);
    says("unspecified launch failure");
    assert_int_equal(engine->ops->kv_open(engine, 64, &other, &err), MD_E_DEVICE);
    md_burst_column column = {.kv = kv, .token = 1};
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 10}, &err), MD_E_DEVICE);
    assert_int_equal(column.produced, 0);
    assert_int_equal(fake.launches, launches);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
    assert_int_equal(fake.live, 0);
}

static void a_launch_that_fails_is_told(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, 64);
    fake.launch_result = FAKE_GONE;
    assert_int_equal(step(engine, kv, 0), MD_E_DEVICE);
    says("is lost to this program");
    says("launching the resident kernel");
    fake.launch_result = 0;
    assert_int_equal(step(engine, kv, 0), MD_E_DEVICE);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
}

// Layers before the failure are quantized, those after it aren't: nothing may go on from there.
static void a_gpu_lost_in_quantizing_stays_lost(void **state) {
    (void)state;
    md_kv_format format[MD_MAX_LAYERS] = {{0}};
    for (uint32_t l = 0; l < snapshot->layers; l++) format[l] = (md_kv_format){.bits = 8, .group = 64};
    for (int copying = 0; copying < 2; copying++) { // the third layer's launch fails; a copy does
        md_engine *engine = open_engine();
        md_kv *kv = open_kv(engine, 64), *other = open_kv(engine, 64);
        fake.quantize_at = copying ? 0 : 3;
        fake.sync_result = copying ? FAKE_GONE : 0;
        md_status status = copying ? engine->ops->kv_copy(engine, other, kv, 20, &err)
                                   : engine->ops->kv_quantize(engine, kv, format, 20, &err);
        assert_int_equal(status, MD_E_DEVICE);
        says("Fake GPU is lost to this program");
        says(copying ? "copying a KV cache" : "quantizing a KV cache");
        fake.sync_result = 0;
        assert_int_equal(step(engine, kv, 0), MD_E_DEVICE);
        says("is lost to this program");
        engine->ops->kv_close(engine, kv);
        engine->ops->kv_close(engine, other);
        engine->ops->close(engine);
        assert_int_equal(fake.live, 0);
    }
}

// Where any device will do a GPU that can't be used is passed over; where it was asked for its failure is the answer.
static void the_cpu_takes_over_at_the_start(void **state) {
    (void)state;
    md_model *model;
    md_model_info info;
    fake.total = 2 << 20;
    assert_int_equal(md_model_open("models/fairytales", &(md_model_options){.device = "cuda"}, &model, &err),
                     MD_E_MEMORY);
    assert_int_equal(md_model_open("models/fairytales", NULL, &model, &err), MD_OK);
    md_model_get_info(model, &info);
    assert_string_equal(info.backend, "cpu");
    md_model_close(model);
    fake.total = (size_t)1 << 30;
    assert_int_equal(md_model_open("models/fairytales", NULL, &model, &err), MD_OK);
    md_model_get_info(model, &info);
    assert_string_equal(info.backend, "cuda");
    md_model_close(model);
}

// ---- bursts ----------------------------------------------------------------------------------------------------

typedef struct taker {
    uint32_t tokens[256], count, most; // most: says no with this many
} taker;

static bool take(void *user, uint32_t token) {
    taker *t = user;
    t->tokens[t->count++] = token;
    return t->count != t->most;
}

// The fake's tokens are positions + 1.
static void follows(const taker *t, uint32_t position, uint32_t count) {
    assert_int_equal(t->count, count);
    for (uint32_t i = 0; i < count; i++) assert_int_equal(t->tokens[i], position + 1 + i);
}

static void bursts_end_as_asked(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, 128);
    const uint32_t stop[] = {9999, 50};
    md_choice sampled = {.sampled = true, .per_unit = 1};

    taker t = {0}; // to the end, over several launches
    md_burst_column column = {.kv = kv, .position = 3, .token = 1, .on_token = take, .user = &t};
    uint32_t launches = fake.launches;
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 100}, &err), MD_OK);
    follows(&t, 3, 100);
    assert_int_equal(column.produced, 100);
    assert_int_equal(column.last, 103);
    assert_false(column.undecided);
    assert_int_equal(fake.launches - launches, 4); // of 32 tokens

    t = (taker){0}; // until the cache is full
    column.position = 120;
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 100}, &err), MD_OK);
    follows(&t, 120, 8);
    column.position = 128;
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 1}, &err), MD_E_CONTEXT);

    t = (taker){0}; // a stop token, handed on
    column.position = 10, column.stop = stop, column.stop_count = 2;
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 100}, &err), MD_OK);
    follows(&t, 10, 40);
    assert_int_equal(column.last, 50);

    t = (taker){.most = 7}; // no more wanted
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 100}, &err), MD_OK);
    follows(&t, 10, 7);
    assert_int_equal(column.produced, 7);

    t = (taker){0}; // undecided: the logits come
    fake.undecided_at = 20;
    column.choice = sampled, column.logits = logits;
    memset(logits, 0xff, snapshot->vocab * sizeof *logits);
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 100}, &err), MD_OK);
    follows(&t, 10, 10); // positions 10 .. 19
    assert_true(column.undecided);
    assert_true(logits[21] == 1.0f && logits[20] == 0.0f);

    t = (taker){0}; // and nobody wants them
    column.logits = NULL;
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 100}, &err), MD_OK);
    assert_true(column.undecided);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
}

// The same tokens by a graph launched once a token, which is captured anew only where its parameters have changed.
static void bursts_in_a_graph(void **state) {
    (void)state;
    setenv("MEGADECODE_CUDA_GRAPH", "1", 1);
    md_engine *engine;
    md_status status = md_cuda_open(plan, false, &(md_engine_options){0}, &engine, &err);
    unsetenv("MEGADECODE_CUDA_GRAPH");
    assert_int_equal(status, MD_OK);
    md_kv *kv = open_kv(engine, 128);
    md_burst_column column = {.kv = kv, .position = 3, .token = 1, .on_token = take};
    uint32_t captures = fake.captures;
    for (uint32_t run = 0; run < 3; run++) { // from another place, and again from there
        taker t = {0};
        uint32_t launches = fake.launches;
        column.position = run ? 20 : 3, column.user = &t;
        assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 50}, &err), MD_OK);
        follows(&t, column.position, 50);
        assert_int_equal(fake.launches - launches, 50 * (plan->stage_count + 1));
        assert_int_equal(fake.captures - captures, run ? 2 : 1);
    }
    assert_int_equal(step(engine, kv, 70), MD_OK);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
    assert_int_equal(fake.live, 0);
}

// The fake's cycles (fakes/cuda.c) as milliseconds.
static void an_account_adds_up(void **state) {
    (void)state;
    md_engine *engine;
    md_account account;
    assert_int_equal(md_cuda_open(plan, true, &(md_engine_options){.account = true}, &engine, &err), MD_OK);
    md_kv *kv = open_kv(engine, 64);
    for (uint32_t s = 0; s < 3; s++) assert_int_equal(step(engine, kv, s), MD_OK);
    assert_int_equal(engine->ops->account(engine, &account, &err), MD_OK);
    assert_int_equal(account.steps, 3);
    assert_int_equal(account.kinds, MD_STAGE_KIND_COUNT + 1);
    assert_true(account.split);
    for (uint32_t k = 0; k < account.kinds; k++) {
        const md_stage_time *stage = &account.stage[k];
        const double mean = 2e-6 * (k + 1) * (1 + 2 + 3 + 4) / 4; // of four workers, ms of a cycle of spending 0
        const double found[] = {stage->setup, stage->weights, stage->handoff, stage->arithmetic, stage->out};
        for (uint32_t i = 0; i < 5; i++) assert_true(fabs(found[i] - mean * (i + 1)) < 1e-9 * mean);
        assert_true(fabs(stage->slowest - 2e-6 * (k + 1) * 4 * (1 + 2 + 4 + 5)) < 1e-9 * mean);
        assert_int_equal(stage->stages, k == 0 || k >= MD_STAGE_HEAD ? 1 : snapshot->layers);
    }
    assert_string_equal(account.stage[MD_STAGE_GATE_UP].kind, "gate_up");
    assert_string_equal(account.stage[MD_STAGE_KIND_COUNT].kind, "next");
    md_burst_column column = {.kv = kv, .position = 3, .token = 1};
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 40}, &err), MD_OK);
    assert_int_equal(engine->ops->account(engine, &account, &err), MD_OK);
    assert_int_equal(account.steps, 40);                                 // those since the last time
    assert_true(fabs(account.stage[0].setup * 20 - 2e-6 * 2.5) < 1e-12); // the fake's two launches
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
    engine = open_engine();
    assert_int_equal(engine->ops->account(engine, &account, &err), MD_E_USAGE);
    engine->ops->close(engine);
}

typedef struct nester {
    taker outer;
    md_engine *engine;
    md_kv *other; // closed from inside, which is allowed
} nester;

static bool take_and_nest(void *user, uint32_t token) {
    nester *n = user;
    md_kv *more = NULL;
    md_burst_column column = {.kv = n->other, .position = 50, .token = 1};
    if (n->other) {
        assert_int_equal(n->engine->ops->burst(n->engine, &(md_burst){&column, 1, 5}, &err), MD_E_USAGE);
        assert_int_equal(n->engine->ops->step(n->engine, &(md_column){.kv = n->other}, 1, &err), MD_E_USAGE);
        assert_int_equal(n->engine->ops->kv_open(n->engine, 16, &more, &err), MD_E_USAGE);
        n->engine->ops->kv_close(n->engine, n->other);
        n->other = NULL;
    }
    return take(&n->outer, token);
}

static void calls_inside_a_burst_are_refused(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, 128);
    nester n = {.engine = engine, .other = open_kv(engine, 128)};
    md_burst_column column = {.kv = kv, .position = 3, .token = 1, .on_token = take_and_nest, .user = &n};
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 20}, &err), MD_OK);
    follows(&n.outer, 3, 20);
    n.outer = (taker){0};
    column.position = 30; // and afterwards all is as before
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 20}, &err), MD_OK);
    follows(&n.outer, 30, 20);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
}

static void wide_bursts_end_together(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_burst_column column[3];
    taker t[3];
    const uint32_t stop[] = {60};
    md_kv *kv[3];
    for (int i = 0; i < 3; i++) kv[i] = open_kv(engine, 128);
    for (uint32_t ends = 0; ends < 4; ends++) { // nobody; a stop of column 1; column 2's taker; column 0 undecided
        memset(t, 0, sizeof t);
        for (uint32_t i = 0; i < 3; i++)
            column[i] = (md_burst_column){
                .kv = kv[i], .position = 10 * i, .token = 1, .on_token = take, .user = &t[i], .logits = logits};
        column[1].stop = stop, column[1].stop_count = ends == 1;
        t[2].most = ends == 2 ? 5 : 0;
        fake.undecided_at = ends == 3 ? 33 : -1;
        assert_int_equal(engine->ops->burst(engine, &(md_burst){column, 3, 70}, &err), MD_OK);
        const uint32_t count[] = {70, 50, 5, 33};
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t own = count[ends] + (ends == 3 && i > 0); // the others have a token of that step
            follows(&t[i], 10 * i, own);
            assert_int_equal(column[i].produced, own);
            assert_int_equal(column[i].undecided, ends == 3 && i == 0);
        }
    }
    column[1].kv = kv[0];
    assert_int_equal(engine->ops->burst(engine, &(md_burst){column, 3, 70}, &err), MD_E_USAGE);
    says("columns 0 and 1 have one cache");
    for (int i = 0; i < 3; i++) engine->ops->kv_close(engine, kv[i]);
    engine->ops->close(engine);
}

static void too_many_stops_are_refused(void **state) {
    (void)state;
    md_engine *engine = open_engine();
    md_kv *kv = open_kv(engine, 64);
    uint32_t stop[33];
    for (uint32_t i = 0; i < 33; i++) stop[i] = i + 100;
    md_burst_column column = {.kv = kv, .token = 1, .stop = stop, .stop_count = 33};
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 4}, &err), MD_E_USAGE);
    says("stop tokens");
    stop[32] = 100; // one of them twice
    assert_int_equal(engine->ops->burst(engine, &(md_burst){&column, 1, 4}, &err), MD_OK);
    engine->ops->kv_close(engine, kv);
    engine->ops->close(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_allocation_may_fail, fresh),
        cmocka_unit_test_setup(a_model_too_large_says_how_much, fresh),
        cmocka_unit_test_setup(a_prompt_is_some_launches_a_layer, fresh),
        cmocka_unit_test_setup(a_prompt_reaches_the_longest_context, fresh),
        cmocka_unit_test_setup(a_prompt_goes_in_steps_without_memory_or_with_a_quantized_cache, fresh),
        cmocka_unit_test_setup(a_prompt_that_loses_the_gpu_is_told, fresh),
        cmocka_unit_test_setup(a_context_too_long_says_what_fits, fresh),
        cmocka_unit_test_setup(a_seat_is_taken_again, fresh),
        cmocka_unit_test_setup(unfit_gpus_are_refused_in_one_line, fresh),
        cmocka_unit_test_setup(a_wait_that_ran_out_is_reported, fresh),
        cmocka_unit_test_setup(a_lost_gpu_stays_lost, fresh),
        cmocka_unit_test_setup(a_launch_that_fails_is_told, fresh),
        cmocka_unit_test_setup(a_gpu_lost_in_quantizing_stays_lost, fresh),
        cmocka_unit_test_setup(the_cpu_takes_over_at_the_start, fresh),
        cmocka_unit_test_setup(bursts_end_as_asked, fresh),
        cmocka_unit_test_setup(bursts_in_a_graph, fresh),
        cmocka_unit_test_setup(an_account_adds_up, fresh),
        cmocka_unit_test_setup(calls_inside_a_burst_are_refused, fresh),
        cmocka_unit_test_setup(wide_bursts_end_together, fresh),
        cmocka_unit_test_setup(too_many_stops_are_refused, fresh),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
