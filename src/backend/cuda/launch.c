// Launching steps and reading what came of them.
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/engine.h"
#include "base/bf16.h"
#include "base/log.h"

static const uint32_t EPOCH_WRAP = 0xf0000000u;

md_status md_cuda_epoch_take(md_cuda_engine *engine, uint32_t steps, uint32_t *epoch, md_error *err) {
    uint32_t stages = engine->base.plan->stage_count;
    if (engine->epoch > EPOCH_WRAP) { // once in a billion steps: forget all tags and begin again
        const md_snapshot *model = engine->base.snapshot;
        uint64_t rows = (uint64_t)MD_CUDA_COLUMNS * model->q_heads * engine->blocks;
        const struct {
            CUdeviceptr at;
            uint64_t bytes;
        } tagged[] = {{engine->exchange, 16ull * engine->shape->exchange_entries},
                      {engine->records, md_cuda_record_bytes(engine)},
                      {engine->stats, 16 * rows},
                      {engine->partials, 16 * rows * MD_CUDA_PARTIAL_ENTRIES(model->head_dim)}};
        for (size_t i = 0; i < sizeof tagged / sizeof *tagged; i++)
            if (tagged[i].at) MD_TRY(md_cuda_fill(engine, tagged[i].at, MD_CUDA_NO_TAG, tagged[i].bytes, err));
        engine->epoch = stages;
    }
    *epoch = engine->epoch;
    engine->epoch += stages * steps;
    return MD_OK;
}

void md_cuda_params_fill(md_cuda_engine *engine, md_cuda_params *params) {
    *params = (md_cuda_params){.arena = engine->arena,
                               .runs = engine->runs,
                               .aux = engine->aux,
                               .embed = engine->embed,
                               .embed_scales = engine->embed_scales,
                               .embed_biases = engine->embed_biases,
                               .exchange = engine->exchange,
                               .stats = engine->stats,
                               .partials = engine->partials,
                               .records = engine->records,
                               .logits = engine->logits,
                               .report = engine->report,
                               .account = engine->account,
                               .state = engine->graph.state,
                               .groups = engine->groups,
                               .tokens = 1,
                               .blocks = engine->blocks,
                               .deadline_us = engine->deadline_us,
                               .delay_seed = engine->delay_seed};
}

md_status md_cuda_launch(md_cuda_engine *engine, const md_cuda_width *width, const md_cuda_params *params,
                         bool cooperative, md_error *err) {
    md_cuda_params copy = *params;
    void *arguments[] = {&copy};
    const md_cuda_driver *cu = engine->cu;
    bool token = params->stage_begin == params->stage_end && params->next == MD_CUDA_NEXT_TOKEN;
    uint32_t ctas = token ? 1 : engine->groups; // every CTA chooses alike: where nothing follows, one is enough
    CUresult result = cooperative ? cu->cuLaunchCooperativeKernel(width->step, ctas, 1, 1, width->threads, 1, 1,
                                                                  width->shared_bytes, engine->stream, arguments)
                                  : cu->cuLaunchKernel(width->step, ctas, 1, 1, width->threads, 1, 1,
                                                       width->shared_bytes, engine->stream, arguments, NULL);
    if (result == 0) return MD_OK;
    return md_cuda_lose(engine, result, engine->resident ? "launching the resident kernel" : "launching a stage", err);
}

bool md_cuda_together(const md_cuda_engine *engine, const md_cuda_width *width) {
    return width->columns > 1 && !engine->graph.on;
}

md_status md_cuda_launch_stages(md_cuda_engine *engine, const md_cuda_width *width, md_cuda_params *params,
                                md_error *err) {
    uint32_t end = params->stage_end, next = params->next;
    for (uint32_t s = 0; s < end; s++) {
        params->stage_begin = s, params->stage_end = s + 1;
        params->next = s + 1 == end ? next & MD_CUDA_NEXT_BEST : 0; // the head's CTAs still have what they computed
        MD_TRY(md_cuda_launch(engine, width, params, md_cuda_together(engine, width), err));
    }
    params->stage_begin = params->stage_end = end;
    for (uint32_t part = MD_CUDA_NEXT_CANDIDATES; part <= MD_CUDA_NEXT_TOKEN; part *= 2) {
        params->next = next & part;
        if (params->next) MD_TRY(md_cuda_launch(engine, width, params, false, err));
    }
    params->stage_begin = 0, params->next = next;
    return MD_OK;
}

md_status md_cuda_launch_step(md_cuda_engine *engine, const md_cuda_width *width, md_cuda_params *params,
                              md_error *err) {
    if (engine->poison)
        MD_TRY(md_cuda_fill(engine, engine->logits, MD_CUDA_POISON,
                            2ull * params->columns * engine->base.snapshot->vocab, err));
    if (engine->resident) return md_cuda_launch(engine, width, params, true, err);
    if (engine->graph.on) MD_TRY(md_cuda_graph_state(engine, params, err));
    return md_cuda_launch_stages(engine, width, params, err);
}

md_status md_cuda_finish(md_cuda_engine *engine, md_error *err) {
    uint32_t report[MD_CUDA_REPORT_WORDS];
    CUresult result = engine->cu->cuMemcpyDtoHAsync(report, engine->report, sizeof report, engine->stream);
    if (result == 0) result = engine->cu->cuStreamSynchronize(engine->stream);
    if (result != 0) return md_cuda_lose(engine, result, "the step", err);
    if (!report[0]) return MD_OK;
    MD_TRY(MD_CU_OR_LOST(engine, cuMemsetD8Async(engine->report, 0, sizeof report, engine->stream),
                         "clearing the report"));
    if (engine->resident) md_log(MD_LOG_WARN, "%s goes on with one launch a stage", engine->device.name);
    engine->resident = false; // what kept one CTA from the others may do so again
    const md_plan *plan = engine->base.plan;
    uint32_t s = report[2] < plan->stage_count ? report[2] : 0;
    return md_fail(err, MD_E_TIMEOUT,
                   "%s: worker %u of %u in stage %u (%s of layer %d) waited over %u ms for tag %u and saw %u",
                   engine->device.name, report[1], engine->groups, report[2], md_stage_name(plan->stage[s].kind),
                   plan->stage[s].layer, engine->deadline_us / 1000, report[3], report[4]);
}

md_status md_cuda_logits_ask(md_cuda_engine *engine, uint32_t column, md_error *err) {
    size_t vocab = engine->base.snapshot->vocab;
    CUresult result = engine->cu->cuMemcpyDtoHAsync(engine->logits_host + column * vocab,
                                                    engine->logits + 2 * column * vocab, 2 * vocab, engine->stream);
    return result == 0 ? MD_OK : md_cuda_lose(engine, result, "reading the logits", err);
}

void md_cuda_logits_take(const md_cuda_engine *engine, uint32_t column, float *out) {
    size_t vocab = engine->base.snapshot->vocab;
    for (size_t i = 0; i < vocab; i++) out[i] = md_bf16_to_f32(engine->logits_host[column * vocab + i]);
}

static void fill_columns(const md_cuda_engine *engine, const md_column *columns, uint32_t count,
                         md_cuda_params *params) {
    bool logits = false;
    for (uint32_t c = 0; c < count; c++) {
        const md_cuda_kv *kv = (const md_cuda_kv *)columns[c].kv;
        params->col[c] = (md_cuda_col){.kv = kv->layers,
                                       .position = columns[c].position,
                                       .token = columns[c].token,
                                       .home = kv->home,
                                       .logits = columns[c].logits != NULL};
        logits |= columns[c].logits != NULL;
    }
    params->columns = count;
    params->stage_end = engine->base.plan->stage_count - (logits ? 0 : 1);
}

// A step of at most as many columns as the kernel has; checked.
static md_status step_columns(md_cuda_engine *engine, const md_column *columns, uint32_t count, md_error *err) {
    md_cuda_width *width = &engine->width[count == 1 ? 0 : engine->width_count - 1];
    md_cuda_params params;
    MD_TRY(md_cuda_width_open(engine, width, err));
    md_cuda_params_fill(engine, &params);
    fill_columns(engine, columns, count, &params);
    MD_TRY(md_cuda_epoch_take(engine, 1, &params.epoch, err));
    if (engine->drop_stage)
        params.drop_tag = params.epoch + engine->drop_stage + 1, params.drop_worker = engine->drop_worker;
    MD_TRY(md_cuda_launch_step(engine, width, &params, err));
    for (uint32_t c = 0; c < count; c++)
        if (columns[c].logits) MD_TRY(md_cuda_logits_ask(engine, c, err));
    MD_TRY(md_cuda_finish(engine, err));
    engine->account_steps++;
    for (uint32_t c = 0; c < count; c++)
        if (columns[c].logits) md_cuda_logits_take(engine, c, columns[c].logits);
    return MD_OK;
}

md_status md_cuda_step(md_engine *base, const md_column *columns, uint32_t count, md_error *err) {
    md_cuda_engine *engine = md_cuda_of(base);
    const uint32_t widest = engine->width[engine->width_count - 1].columns;
    MD_TRY(md_step_check(base, columns, count, MD_CUDA_PREFILL_COLUMNS, err));
    for (uint32_t c = 0; c < count; c++)
        MD_TRY(md_column_check_context(&columns[c], ((const md_cuda_kv *)columns[c].kv)->context, err));
    MD_TRY(md_cuda_enter(engine, err));
    if (md_cuda_prefill_can(engine, columns, count)) return md_cuda_prefill_step(engine, columns, count, err);
    MD_TRY(md_cuda_enter(engine, err)); // readying prompts may have lost the GPU
    for (uint32_t done = 0, n; done < count; done += n) {
        n = count - done < widest ? count - done : widest;
        MD_TRY(step_columns(engine, columns + done, n, err));
    }
    return MD_OK;
}
