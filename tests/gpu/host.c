// Gates of the host's side on a real driver: launches in a graph, refusals, kernels that can't be used.
#include <stdio.h>
#include <stdlib.h>

#include <xxhash.h>

#include "backend/cuda/engine.h"
#include "gates.h"

// Bursts of one sequence and of three, from each place greedily twice and sampled, then the logits of a step behind
// them.
static uint64_t burst_run(const char *name, uint32_t steps) {
    md_error err;
    md_engine *engine = open_engine(name, 0);
    const uint32_t vocab = engine->snapshot->vocab;
    float *logits = malloc(vocab * sizeof *logits);
    uint64_t digest = 0;
    md_kv *kv[3];
    for (int i = 0; i < 3; i++) kv[i] = open_kv(engine, 4 * steps + 8);
    for (uint32_t run = 0; run < 12; run++) {
        md_burst_column column[3];
        const uint32_t count = run % 6 < 3 ? 1 : 3, position = run / 6 * steps;
        const md_choice choice = {.sampled = run % 3 == 2, .per_unit = 1.5, .top_k = 20, .seed = run};
        for (uint32_t i = 0; i < count; i++)
            column[i] = (md_burst_column){.kv = kv[i],
                                          .position = position,
                                          .token = 5 + i,
                                          .choice = choice,
                                          .on_token = collect,
                                          .user = &digest};
        check(engine->ops->burst(engine, &(md_burst){column, count, steps}, &err), &err, "burst");
    }
    for (int i = 0; i < 3; i++) {
        feed(engine, kv[i], 2 * steps, &(uint32_t){7}, 1, 1, logits);
        digest = XXH64(logits, vocab * sizeof *logits, digest);
    }
    free(logits);
    engine->ops->close(engine);
    return digest;
}

void gate_graph(uint32_t steps) {
    char text[200];
    uint64_t a = burst_run("resident", steps), b = burst_run("ops", steps), c = burst_run("ops-graph", steps);
    snprintf(text, sizeof text,
             "graph: bursts of %u steps, one sequence and three: resident %016llx, ops %016llx, in a graph %016llx",
             steps, (unsigned long long)a, (unsigned long long)b, (unsigned long long)c);
    gate(a == b && b == c, text);
}

static bool nest(void *user, uint32_t token) {
    md_engine *engine = user;
    md_error err;
    md_kv *kv;
    (void)token;
    return engine->ops->kv_open(engine, 16, &kv, &err) == MD_E_USAGE; // a wrong answer ends the burst early
}

// What the host refuses, and takes back where a kernel can't be used: of the driver nothing must be broken by it.
void gate_host(void) {
    md_error err;
    md_engine *engine = open_engine("resident", 0), *none = NULL;
    md_cuda_engine *cuda = md_cuda_of(engine);
    md_kv *kv = open_kv(engine, 64);
    md_burst_column column = {.kv = kv, .token = 5, .on_token = nest, .user = engine};
    check(engine->ops->burst(engine, &(md_burst){&column, 1, 40}, &err), &err, "burst");
    gate(column.produced == 40, "host: calls from inside a burst are refused, and it goes on");
    uint32_t groups = cuda->groups, tokens[4] = {1, 2, 3, 4};
    md_column columns[4];
    for (uint32_t c = 0; c < 4; c++) columns[c] = (md_column){.kv = kv, .position = 40 + c, .token = tokens[c]};
    cuda->groups = MD_CUDA_MAX_GROUPS; // more than fit at once: the wide kernel is refused when it is first needed
    md_status status = engine->ops->step(engine, columns, 4, &err);
    gate(status == MD_E_DEVICE && !cuda->width[1].module && !cuda->lost, err.message);
    cuda->groups = groups;
    gate(engine->ops->step(engine, columns, 4, &err) == MD_OK, "host: and made when it can be used");
    status = md_cuda_open(engine->plan, true, &(md_engine_options){.groups = MD_CUDA_MAX_GROUPS}, &none, &err);
    gate(status == MD_E_DEVICE, err.message);
    gate(engine->ops->step(engine, columns, 4, &err) == MD_OK, "host: an engine beside one that could not be opened");
    engine->ops->close(engine);
}
