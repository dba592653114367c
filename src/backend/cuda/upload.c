// The weights on the device: the packed stream and its table of runs, norms and biases, the embedding.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/engine.h"
#include "base/checked.h"
#include "model/rope.h"
#include "plan/tile_mma.h"

enum { MAX_PACK_THREADS = 32, EMBED_SLAB_BYTES = 32 << 20 };

typedef struct packing {
    const md_layout *layout;
    uint8_t *arena;
    atomic_uint next;   // worker to pack; relaxed: it only hands out numbers
    atomic_bool failed; // relaxed: a hint to stop early; results are read after the joins
    pthread_mutex_t lock;
    md_error err; // of the first to fail, under `lock`
} packing;

static bool pack_next(packing *work) {
    uint32_t w = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed);
    if (w >= work->layout->workers || atomic_load_explicit(&work->failed, memory_order_relaxed)) return false;
    md_error err;
    if (md_pack_worker(work->layout, w, work->arena, &err) == MD_OK) return true;
    pthread_mutex_lock(&work->lock);
    if (!atomic_exchange_explicit(&work->failed, true, memory_order_relaxed)) work->err = err;
    pthread_mutex_unlock(&work->lock);
    return false;
}

static void *pack_thread(void *argument) {
    while (pack_next(argument)) continue;
    return NULL;
}

static md_status pack_all(const md_layout *layout, uint8_t *arena, const md_engine_options *options, md_error *err) {
    packing work = {.layout = layout, .arena = arena, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread[MAX_PACK_THREADS];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t wanted = options->threads ? options->threads : cpus > 1 ? (uint32_t)cpus : 1, started = 0;
    bool cancelled = false;
    if (wanted > MAX_PACK_THREADS) wanted = MAX_PACK_THREADS;
    while (started + 1 < wanted && pthread_create(&thread[started], NULL, pack_thread, &work) == 0) started++;
    while (!cancelled && pack_next(&work)) {
        uint32_t done = atomic_load_explicit(&work.next, memory_order_relaxed);
        double fraction = done < layout->workers ? (double)done / layout->workers : 1.0;
        cancelled = options->progress && !options->progress(options->progress_user, fraction);
    }
    if (cancelled) atomic_store_explicit(&work.next, layout->workers, memory_order_relaxed);
    for (uint32_t i = 0; i < started; i++) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&work.lock);
    if (atomic_load_explicit(&work.failed, memory_order_relaxed))
        return md_fail(err, work.err.code, "%s", work.err.message);
    return cancelled ? md_fail(err, MD_E_CANCELLED, "cancelled while packing the weights") : MD_OK;
}

static md_status upload(md_cuda_engine *engine, const void *bytes, uint64_t n, const char *what, CUdeviceptr *out,
                        md_error *err) {
    MD_TRY(md_cuda_alloc(engine, n, what, out, err));
    return MD_CU(engine, cuMemcpyHtoDAsync(*out, bytes, n, engine->stream), what);
}

static md_status upload_runs(md_cuda_engine *engine, const md_layout *layout, md_error *err) {
    uint32_t stages = engine->base.plan->stage_count, workers = layout->workers;
    md_cuda_run *runs = calloc((size_t)(stages + 1) * workers, sizeof *runs);
    if (!runs) return md_fail(err, MD_E_MEMORY, "out of memory for the table of runs");
    for (uint32_t w = 0; w < workers; w++) {
        for (uint32_t s = 0; s < stages; s++) {
            const md_run *run = &layout->run[(size_t)s * workers + w];
            runs[(size_t)s * workers + w] = (md_cuda_run){run->offset, run->first_item, run->item_count};
        }
        runs[(size_t)stages * workers + w].offset = layout->worker_offset[w] + layout->worker_bytes[w];
    }
    md_status status =
        upload(engine, runs, (uint64_t)(stages + 1) * workers * sizeof *runs, "the table of runs", &engine->runs, err);
    free(runs);
    return status;
}

static md_status upload_stream(md_cuda_engine *engine, const md_engine_options *options, md_error *err) {
    md_layout *layout;
    md_status status;
    uint8_t *arena = NULL;
    MD_TRY(md_layout_build(engine->base.plan, &md_codec_mma, engine->groups, &layout, err));
    for (uint32_t w = 0; w < layout->workers; w++)
        if (layout->worker_bytes[w] >> 31) {
            status = md_fail(err, MD_E_UNSUPPORTED,
                             "CUDA: %u workers have over 2 GB of weights each; use more (--groups)", layout->workers);
            goto fail;
        }
    arena = aligned_alloc(4096, md_round_up(layout->arena_bytes, 4096));
    if (!arena) {
        status = md_fail(err, MD_E_MEMORY, "out of memory for %llu bytes of packed weights",
                         (unsigned long long)layout->arena_bytes);
        goto fail;
    }
    MD_TRY_GOTO(pack_all(layout, arena, options, err));
    MD_TRY_GOTO(upload(engine, arena, layout->arena_bytes, "the packed weights", &engine->arena, err));
    MD_TRY_GOTO(upload_runs(engine, layout, err));
    engine->arena_bytes = engine->weight_bytes = layout->arena_bytes;
fail:
    free(arena);
    md_layout_free(layout);
    return status;
}

// An additive bias in the order of its matrix's tiles.
static md_status fill_bias(const md_cuda_shape *shape, uint32_t layer, uint32_t mat, float *out, md_error *err) {
    const md_matrix *matrix = md_cuda_layer_matrix(shape, layer, mat);
    md_row_map map = md_cuda_row_map(shape, mat);
    float *values = malloc(matrix->rows * sizeof *values);
    if (!values) return md_fail(err, MD_E_MEMORY, "out of memory");
    md_status status = md_tensor_read_f32(&matrix->bias, 0, 1, values, err);
    uint32_t lanes = md_row_map_tiles(&map) * MD_TILE_ROWS;
    for (uint32_t i = 0; status == MD_OK && i < lanes; i++) {
        int32_t row = md_row_map_row(&map, i / MD_TILE_ROWS, i % MD_TILE_ROWS);
        out[i] = row == MD_NO_ROW ? 0.0f : values[row];
    }
    free(values);
    return status;
}

static md_status upload_aux(md_cuda_engine *engine, md_error *err) {
    const md_cuda_shape *shape = engine->shape;
    const md_snapshot *model = engine->base.snapshot;
    md_status status = MD_OK;
    float scale, *aux = calloc(shape->aux_count, sizeof *aux);
    if (!aux) return md_fail(err, MD_E_MEMORY, "out of memory for norms");
    uint32_t norm = shape->tiles_x * MD_TILE_ROWS;
    for (uint32_t l = 0; l < model->layers; l++) {
        MD_TRY_GOTO(
            md_tensor_read_f32(&model->layer[l].attn_norm, 0, 1, aux + shape->aux_attn_norm + (size_t)l * norm, err));
        MD_TRY_GOTO(
            md_tensor_read_f32(&model->layer[l].ffn_norm, 0, 1, aux + shape->aux_ffn_norm + (size_t)l * norm, err));
        for (uint32_t m = 0; m < MD_CUDA_MATS; m++) {
            uint32_t at = shape->layer_bias[l * MD_CUDA_MATS + m];
            if (at != MD_CUDA_NO_BIAS) MD_TRY_GOTO(fill_bias(shape, l, m, aux + at, err));
        }
    }
    MD_TRY_GOTO(md_tensor_read_f32(&model->final_norm, 0, 1, aux + shape->aux_final_norm, err));
    md_rope_frequencies(&model->rope, model->head_dim, aux + shape->aux_inv_freq, &scale);
    MD_TRY_GOTO(upload(engine, aux, sizeof *aux * (uint64_t)shape->aux_count, "norms and biases", &engine->aux, err));
fail:
    free(aux);
    return status;
}

// A tensor as it is stored, or converted to fp32, by slabs of rows.
static md_status upload_tensor(md_cuda_engine *engine, const md_tensor *tensor, bool as_float, CUdeviceptr *out,
                               md_error *err) {
    uint64_t row = as_float ? tensor->cols * sizeof(float) : tensor->row_bytes;
    uint32_t slab = (uint32_t)md_max_u64(1, EMBED_SLAB_BYTES / row);
    md_status status = MD_OK;
    uint8_t *rows = malloc(slab * row);
    if (!rows) return md_fail(err, MD_E_MEMORY, "out of memory for %s", tensor->name);
    MD_TRY_GOTO(md_cuda_alloc(engine, row * tensor->rows, tensor->name, out, err));
    for (uint32_t first = 0; first < tensor->rows; first += slab) {
        uint32_t n = (uint32_t)md_min_u64(slab, tensor->rows - first);
        MD_TRY_GOTO(as_float ? md_tensor_read_f32(tensor, first, n, (float *)(void *)rows, err)
                             : md_tensor_read(tensor, first, n, rows, err));
        MD_TRY_GOTO(MD_CU(engine, cuMemcpyHtoDAsync(*out + first * row, rows, n * row, engine->stream), tensor->name));
    }
    engine->weight_bytes += row * tensor->rows;
fail:
    free(rows);
    return status;
}

md_status md_cuda_upload(md_cuda_engine *engine, const md_engine_options *options, md_error *err) {
    const md_matrix *embed = &engine->base.snapshot->embed;
    MD_TRY(upload_stream(engine, options, err));
    MD_TRY(upload_aux(engine, err));
    MD_TRY(upload_tensor(engine, &embed->weight, embed->bits == 0, &engine->embed, err));
    if (!embed->bits) return MD_OK;
    MD_TRY(upload_tensor(engine, &embed->scales, true, &engine->embed_scales, err));
    return upload_tensor(engine, &embed->biases, true, &engine->embed_biases, err);
}
