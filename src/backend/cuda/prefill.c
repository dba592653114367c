#include "backend/cuda/prefill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/compile.h"
#include "backend/cuda/engine.h"
#include "base/checked.h"
#include "base/log.h"
#include "plan/tile_mma.h"

enum {
    MAX_SOURCE = 8 << 20,
    PARTIAL_BYTES = 64 << 20, // of attention partials: more columns' are computed in turn
    SPAN_COLUMNS = 16,        // columns that one CTA of attention takes, at most
    CTAS_AN_SM = 4,           // of attention, below which a CTA takes fewer columns
    CONSUMERS = 32 * MD_CUDA_CONSUMER_WARPS
};
enum { TALL, SHORT };
enum { QKV, OUT, GATE_UP, DOWN };

// Shared memory of a merge: each warp's weights of a column's blocks.
static uint32_t merge_bytes(uint32_t blocks) { return MD_CUDA_CONSUMER_WARPS * blocks * (uint32_t)sizeof(float); }

// ---- opening ---------------------------------------------------------------------------------------------------

static md_status find_functions(md_cuda_engine *engine, md_cuda_prefill *prefill, md_error *err) {
    static const char *const names[] = {"qkv", "out", "gate_up", "down"}, *const shapes[] = {"tall", "short"};
    const struct {
        CUfunction *at;
        const char *name;
    } others[] = {{&prefill->places, "md_prefill_places"},
                  {&prefill->begin, "md_prefill_begin"},
                  {&prefill->hand, "md_prefill_hand"},
                  {&prefill->attention, "md_prefill_attention"},
                  {&prefill->merge, "md_prefill_merge"}};
    char name[64];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        MD_TRY(MD_CU(engine, cuModuleGetFunction(others[i].at, prefill->module, others[i].name), others[i].name));
    for (uint32_t m = 0; m < MD_CUDA_PREFILL_MATRICES; m++) {
        snprintf(name, sizeof name, "md_prefill_%s_input", names[m]);
        MD_TRY(MD_CU(engine, cuModuleGetFunction(&prefill->input[m], prefill->module, name), name));
        for (uint32_t s = 0; s < MD_CUDA_PREFILL_SHAPES; s++) {
            CUfunction *function = &prefill->matrix[m][s];
            snprintf(name, sizeof name, "md_prefill_%s_%s", names[m], shapes[s]);
            MD_TRY(MD_CU(engine, cuModuleGetFunction(function, prefill->module, name), name));
            MD_TRY(MD_CU(engine,
                         cuFuncSetAttribute(*function, CU_FUNC_MAX_DYNAMIC_SHARED, (int)prefill->sizes.shape[s].bytes),
                         name));
        }
    }
    MD_TRY(MD_CU(
        engine, cuFuncSetAttribute(prefill->attention, CU_FUNC_MAX_DYNAMIC_SHARED, (int)prefill->sizes.attention_bytes),
        "shared memory of attention"));
    return MD_CU(engine,
                 cuFuncSetAttribute(prefill->merge, CU_FUNC_MAX_DYNAMIC_SHARED,
                                    (int)merge_bytes(engine->shape->attn_blocks)), // over 48 KB from 196,608 positions
                 "shared memory of attention's merge");
}

static md_status open_module(md_cuda_engine *engine, md_cuda_prefill *prefill, md_error *err) {
    const md_cuda_emit_options options = {
        .prefill = true, .inject = engine->inject, .tune = getenv("MEGADECODE_CUDA_TUNE")};
    md_buf source;
    md_cubin cubin = {0};
    md_status status;
    CUdeviceptr sizes;
    size_t bytes = 0;
    md_buf_init(&source, MAX_SOURCE);
    MD_TRY_GOTO(md_cuda_emit(engine->shape, &engine->target, &options, &source, err));
    MD_TRY_GOTO(md_cuda_compile_cached(md_buf_str(&source), engine->target.arch, &cubin, err));
    MD_TRY_GOTO(MD_CU(engine, cuModuleLoadData(&prefill->module, cubin.bytes), "loading the compiled kernels"));
    MD_TRY_GOTO(MD_CU(engine, cuModuleGetGlobal(&sizes, &bytes, prefill->module, "md_prefill_sizes"), "sizes"));
    if (bytes != sizeof prefill->sizes) {
        status = md_fail(err, MD_E_INTERNAL, "CUDA: md_prefill_sizes has %zu bytes, expected %zu", bytes,
                         sizeof prefill->sizes);
        goto fail;
    }
    MD_TRY_GOTO(MD_CU(engine, cuMemcpyDtoH(&prefill->sizes, sizes, bytes), "sizes"));
    MD_TRY_GOTO(find_functions(engine, prefill, err));
fail:
    md_cubin_free(&cubin);
    md_buf_free(&source);
    return status;
}

// One piece of memory, cut into what the kernels use.
static md_status open_memory(md_cuda_engine *engine, md_cuda_prefill *prefill, md_error *err) {
    const md_cuda_shape *shape = engine->shape;
    const md_snapshot *model = engine->base.snapshot;
    md_cuda_prefill_params *p = &prefill->params;
    const uint64_t columns = MD_CUDA_PREFILL_COLUMNS, sets = md_ceil_div(columns, prefill->sizes.set_columns),
                   row = 2 * MD_TILE_ROWS;
    const uint64_t partial = model->q_heads * (model->head_dim + 2) * sizeof(float); // of a column and block
    const uint64_t places = shape->tiles_q + shape->tiles_k + shape->tiles_v + 2 * shape->tiles_x + 2 * shape->tiles_f;
    prefill->room = (uint32_t)(PARTIAL_BYTES / partial);
    const struct {
        uint64_t *at, bytes;
    } parts[] = {{&p->places, 4 * places * model->layers},
                 {&p->columns_at, columns * sizeof(md_cuda_prefill_column)},
                 {&p->spans, columns * sizeof(md_cuda_prefill_span)},
                 {&p->rope, columns * model->head_dim / 2 * 8},
                 {&p->x, columns * shape->tiles_x * row},
                 {&p->q, columns * shape->tiles_q * row},
                 {&p->attn, columns * shape->tiles_attn * row},
                 {&p->act, columns * shape->tiles_f * row},
                 {&p->input, sets * shape->blocks_max * prefill->sizes.input_bytes},
                 {&p->partials, (uint64_t)prefill->room * model->q_heads * model->head_dim * sizeof(float)},
                 {&p->stats, (uint64_t)prefill->room * model->q_heads * 2 * sizeof(float)}};
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) bytes += md_round_up(parts[i].bytes, 256);
    MD_TRY(md_cuda_alloc(engine, bytes, "prompts", &prefill->memory, err));
    CUdeviceptr at = prefill->memory;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) *parts[i].at = at, at += md_round_up(parts[i].bytes, 256);
    p->arena = engine->arena, p->runs = engine->runs, p->aux = engine->aux, p->exchange = engine->exchange;
    p->embed = engine->embed, p->embed_scales = engine->embed_scales, p->embed_biases = engine->embed_biases;
    p->workers = engine->groups;
    return MD_OK;
}

static md_status launch(md_cuda_engine *engine, CUfunction function, uint32_t x, uint32_t y, uint32_t z,
                        uint32_t threads, uint32_t shared, md_error *err) {
    void *arguments[] = {&engine->prefill.params, &engine->prefill.wanted}; // the second is one kernel's, `hand`'s
    CUresult result =
        engine->cu->cuLaunchKernel(function, x, y, z, threads, 1, 1, shared, engine->stream, arguments, NULL);
    return result == 0 ? MD_OK : md_cuda_lose(engine, result, "launching a prompt's stage", err);
}

void md_cuda_prefill_close(md_cuda_engine *engine) {
    md_cuda_prefill *prefill = &engine->prefill;
    md_cuda_free(engine, &prefill->memory);
    if (prefill->module) (void)engine->cu->cuModuleUnload(prefill->module);
    prefill->module = NULL;
    prefill->ready = false;
}

static md_status open_prefill(md_cuda_engine *engine, md_error *err) {
    md_cuda_prefill *prefill = &engine->prefill;
    const md_snapshot *model = engine->base.snapshot;
    if (engine->arena_bytes / 16 > UINT32_MAX) // places are counted in units of 16 bytes
        return md_fail(err, MD_E_UNSUPPORTED, "the weights take over 64 GB");
    MD_TRY(open_module(engine, prefill, err));
    MD_TRY(open_memory(engine, prefill, err));
    MD_TRY(launch(engine, prefill->places, model->layers, engine->groups, 1, 32, 0, err));
    CUresult result = engine->cu->cuStreamSynchronize(engine->stream);
    if (result != 0) return md_cuda_lose(engine, result, "readying prompts", err);
    prefill->ready = true;
    return MD_OK;
}

bool md_cuda_prefill_can(md_cuda_engine *engine, const md_column *columns, uint32_t count) {
    md_cuda_prefill *prefill = &engine->prefill;
    uint32_t deepest = 0;
    if (count <= engine->width[engine->width_count - 1].columns || prefill->refused) return false;
    for (uint32_t c = 0; c < count; c++) {
        if (((const md_cuda_kv *)columns[c].kv)->quantized) return false;
        if (columns[c].position > deepest) deepest = columns[c].position;
    }
    md_error err;
    if (!prefill->ready && open_prefill(engine, &err) != MD_OK) {
        md_cuda_prefill_close(engine);
        prefill->refused = true;
        md_log(MD_LOG_WARN, "prompts are computed in steps of %u tokens: %s",
               engine->width[engine->width_count - 1].columns, err.message);
        return false;
    }
    return deepest / MD_CUDA_ATTN_ROWS < prefill->room;
}

// ---- a step ----------------------------------------------------------------------------------------------------

// Columns whose attention partials are kept at once, and their spans.
typedef struct batch {
    uint32_t first, count, blocks, first_span, spans;
} batch;

typedef struct work {
    md_cuda_prefill_column column[MD_CUDA_PREFILL_COLUMNS];
    md_cuda_prefill_span span[MD_CUDA_PREFILL_COLUMNS];
    batch batch[MD_CUDA_PREFILL_COLUMNS];
    uint32_t spans, batches;
} work;

static uint32_t blocks_of(const md_column *column) { return column->position / MD_CUDA_ATTN_ROWS + 1; }

// Columns a span: as many as leave enough CTAs, since they read a block's keys and values once for all.
static uint32_t span_columns(const md_cuda_engine *engine, const md_column *columns, uint32_t count) {
    uint64_t items = 0;
    for (uint32_t c = 0; c < count; c++) items += blocks_of(&columns[c]);
    items *= engine->base.snapshot->kv_heads;
    uint32_t span = SPAN_COLUMNS;
    while (span > 1 && items / span < (uint64_t)CTAS_AN_SM * (uint32_t)engine->device.sms) span /= 2;
    return span;
}

// Cuts the columns into batches as the partials' room allows, and those into spans of one sequence.
static void share_out(const md_cuda_engine *engine, const md_column *columns, uint32_t count, work *w) {
    const md_cuda_prefill *prefill = &engine->prefill;
    const uint32_t longest = span_columns(engine, columns, count);
    for (uint32_t c = 0; c < count; c++) {
        batch *b = w->batches ? &w->batch[w->batches - 1] : NULL;
        uint32_t blocks = blocks_of(&columns[c]), most = b && b->blocks > blocks ? b->blocks : blocks;
        bool fresh = !b || (uint64_t)(b->count + 1) * most > prefill->room;
        if (fresh) {
            b = &w->batch[w->batches++];
            *b = (batch){.first = c, .first_span = w->spans};
            most = blocks;
        }
        b->count++, b->blocks = most;
        md_cuda_prefill_span *span = w->spans ? &w->span[w->spans - 1] : NULL;
        if (fresh || columns[c].kv != columns[c - 1].kv || span->count == longest) {
            w->span[w->spans++] = (md_cuda_prefill_span){c, 1};
            b->spans++;
        } else {
            span->count++;
        }
        const md_cuda_kv *kv = (const md_cuda_kv *)columns[c].kv;
        w->column[c] =
            (md_cuda_prefill_column){.kv = kv->layers, .position = columns[c].position, .token = columns[c].token};
    }
}

static md_status matrix(md_cuda_engine *engine, uint32_t m, md_error *err) {
    const md_cuda_prefill *prefill = &engine->prefill;
    const md_cuda_shape *s = engine->shape;
    uint32_t sets = (uint32_t)md_ceil_div(prefill->params.columns, prefill->sizes.set_columns), groups[2], cost[2];
    MD_TRY(launch(engine, prefill->input[m], prefill->params.columns, 1, 1, CONSUMERS, 0, err));
    for (uint32_t i = 0; i < MD_CUDA_PREFILL_SHAPES; i++) {
        uint32_t tiles = prefill->sizes.shape[i].row_tiles;
        if (m == QKV)
            groups[i] = (uint32_t)(md_ceil_div(s->tiles_q, tiles) + md_ceil_div(s->tiles_k, tiles) +
                                   md_ceil_div(s->tiles_v, tiles));
        else
            groups[i] = (uint32_t)md_ceil_div(m == GATE_UP ? s->tiles_f : s->tiles_x, tiles);
        cost[i] = (uint32_t)md_ceil_div(groups[i] * sets, (uint32_t)engine->device.sms) * tiles; // of the busiest SM
    }
    uint32_t i = 4 * cost[TALL] <= 5 * cost[SHORT] ? TALL : SHORT; // short CTAs read their inputs more often
    return launch(engine, prefill->matrix[m][i], sets, groups[i], 1, prefill->sizes.shape[i].threads,
                  prefill->sizes.shape[i].bytes, err);
}

static md_status attention(md_cuda_engine *engine, const work *w, md_error *err) {
    const md_cuda_prefill *prefill = &engine->prefill;
    const md_snapshot *model = engine->base.snapshot;
    md_cuda_prefill_params *p = &engine->prefill.params;
    const uint64_t spans = p->spans;
    for (uint32_t i = 0; i < w->batches; i++) {
        const batch *b = &w->batch[i];
        p->first = b->first, p->blocks = b->blocks, p->spans = spans + b->first_span * sizeof *w->span;
        md_status status = launch(engine, prefill->attention, b->spans, model->kv_heads, b->blocks, CONSUMERS,
                                  prefill->sizes.attention_bytes, err);
        p->spans = spans;
        MD_TRY(status);
        if (b->blocks == 1) continue;
        MD_TRY(launch(engine, prefill->merge, b->count, (uint32_t)md_ceil_div(model->q_heads, MD_CUDA_CONSUMER_WARPS),
                      1, CONSUMERS, merge_bytes(b->blocks), err));
    }
    return MD_OK;
}

// The logits that are wanted, by the head of the resident kernel, as many columns at once as it has.
static md_status logits(md_cuda_engine *engine, const md_column *columns, uint32_t count, md_error *err) {
    const uint32_t widest = engine->width[engine->width_count - 1].columns, head = engine->base.plan->stage_count - 1;
    md_cuda_prefill_wanted *wanted = &engine->prefill.wanted;
    for (uint32_t next = 0;;) {
        md_cuda_params params;
        uint32_t n = 0;
        md_cuda_params_fill(engine, &params);
        for (; next < count && n < widest; next++) {
            if (!columns[next].logits) continue;
            const md_cuda_kv *kv = (const md_cuda_kv *)columns[next].kv;
            params.col[n] = (md_cuda_col){
                .kv = kv->layers, .position = columns[next].position, .token = columns[next].token, .logits = 1};
            wanted->column[n++] = next;
        }
        if (!n) return md_cuda_finish(engine, err);
        md_cuda_width *width = &engine->width[n == 1 ? 0 : engine->width_count - 1];
        MD_TRY(md_cuda_width_open(engine, width, err));
        MD_TRY(md_cuda_epoch_take(engine, 1, &params.epoch, err));
        params.columns = n, params.stage_begin = head, params.stage_end = head + 1;
        wanted->tag = params.epoch + head; // what the head waits for
        MD_TRY(launch(engine, engine->prefill.hand, n, 1, 1, CONSUMERS, 0, err));
        if (engine->graph.on) MD_TRY(md_cuda_graph_state(engine, &params, err)); // what that kernel reads
        MD_TRY(md_cuda_launch(engine, width, &params, md_cuda_together(engine, width), err));
        for (uint32_t i = 0; i < n; i++) MD_TRY(md_cuda_logits_ask(engine, i, err));
        MD_TRY(md_cuda_finish(engine, err));
        for (uint32_t i = 0; i < n; i++) md_cuda_logits_take(engine, i, columns[wanted->column[i]].logits);
    }
}

md_status md_cuda_prefill_step(md_cuda_engine *engine, const md_column *columns, uint32_t count, md_error *err) {
    md_cuda_prefill *prefill = &engine->prefill;
    work w;
    w.spans = w.batches = 0;
    share_out(engine, columns, count, &w);
    MD_TRY(MD_CU_OR_LOST(
        engine, cuMemcpyHtoDAsync(prefill->params.columns_at, w.column, count * sizeof *w.column, engine->stream),
        "a prompt"));
    MD_TRY(MD_CU_OR_LOST(engine,
                         cuMemcpyHtoDAsync(prefill->params.spans, w.span, w.spans * sizeof *w.span, engine->stream),
                         "a prompt"));
    prefill->params.columns = count;
    MD_TRY(launch(engine, prefill->begin, count, 1, 1, CONSUMERS, 0, err));
    for (uint32_t l = 0; l < engine->base.snapshot->layers; l++) {
        prefill->params.layer = l;
        MD_TRY(matrix(engine, QKV, err));
        MD_TRY(attention(engine, &w, err));
        MD_TRY(matrix(engine, OUT, err));
        MD_TRY(matrix(engine, GATE_UP, err));
        MD_TRY(matrix(engine, DOWN, err));
    }
    return logits(engine, columns, count, err);
}
