#include "session/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/file.h"
#include "session/device.h"

_Static_assert((int)MD_EOS_MAX == (int)MD_MAX_EOS, "the public list of end-of-text tokens holds the snapshot's");

uint64_t md_kv_position_bytes(const md_snapshot *snapshot, const md_kv_format *format) {
    uint64_t values = (uint64_t)snapshot->kv_heads * snapshot->head_dim, bytes = 0;
    for (uint32_t i = 0; i < snapshot->layers; i++) {
        if (format && format[i].bits) // codes, and a bf16 scale and bias for each group
            bytes += 2 * (values * format[i].bits / 8 + values / format[i].group * 4);
        else
            bytes += 2 * values * 2;
    }
    return bytes;
}

// "org/name" or the last folder of a path, without trailing slashes.
static char *base_name(const char *model) {
    size_t end = strlen(model);
    while (end > 1 && model[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && model[start - 1] != '/') start--;
    return strndup(model + start, end - start);
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void fill_info(md_model *model) {
    const md_snapshot *s = model->snapshot;
    md_engine_info engine = {0};
    model->engine->ops->info(model->engine, &engine);
    md_model_info *info = &model->info;
    *info = (md_model_info){
        .name = model->name,
        .dir = s->dir,
        .engine = engine.engine,
        .backend = engine.backend,
        .layers = s->layers,
        .hidden = s->hidden,
        .ffn = s->ffn,
        .vocab = s->vocab,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .context = s->context,
        .eos_count = s->eos_count,
        .workers = engine.workers,
        .max_columns = least(engine.max_columns, MD_WIDEST_STEP),
        .prompt_columns = least(engine.prompt_columns ? engine.prompt_columns : engine.max_columns, MD_WIDEST_PROMPT),
        .weight_bytes = engine.weight_bytes,
        .bytes_per_token = md_plan_bytes_per_token(model->plan),
        .kv_bytes_bf16 = md_kv_position_bytes(s, NULL),
        .kv_bytes_snapshot = s->kv ? md_kv_position_bytes(s, s->kv) : 0,
    };
    memcpy(info->device, engine.device, sizeof info->device);
    memcpy(info->eos, s->eos, s->eos_count * sizeof *info->eos);
}

// A worker that is stuck in an abandoned step keeps what it reads.
static void close_computing(md_engine *engine, md_plan *plan, md_snapshot *snapshot) {
    if (!engine->ops->close(engine)) return;
    md_plan_free(plan);
    md_snapshot_close(snapshot);
}

md_status md_model_assemble(const char *name, md_snapshot *snapshot, md_plan *plan, md_engine *engine,
                            md_tokenizer *tokenizer, md_model **out, md_error *err) {
    *out = NULL;
    md_model *model = calloc(1, sizeof *model);
    char *copy = base_name(name);
    if (!model || !copy) {
        close_computing(engine, plan, snapshot);
        md_tokenizer_close(tokenizer);
        free(model);
        free(copy);
        return md_fail(err, MD_E_MEMORY, "%s: out of memory", name);
    }
    *model = (md_model){.snapshot = snapshot, .plan = plan, .engine = engine, .tokenizer = tokenizer, .name = copy};
    atomic_init(&model->holders, 1);
    fill_info(model);
    *out = model;
    return MD_OK;
}

// A tokenizer of another model would make nonsense of every prompt, or ids that the model has no rows for.
static md_status open_tokenizer(const md_snapshot *snapshot, md_tokenizer **out, md_error *err) {
    const char *dir = snapshot->dir;
    *out = NULL;
    char *path = md_path_join(dir, "tokenizer.json");
    if (!path) return md_fail(err, MD_E_MEMORY, "%s: out of memory", dir);
    bool exists = !md_path_absent(path);
    free(path);
    if (!exists) return MD_OK;
    MD_TRY(md_tokenizer_open(dir, out, err));
    md_status status = md_tokenizer_check(*out, snapshot->vocab, err);
    return status == MD_OK ? MD_OK : md_fail_context(err, status, "%s", dir);
}

md_status md_model_open(const char *name, const md_model_options *options, md_model **out, md_error *err) {
    static const md_model_options defaults = {0};
    md_snapshot *snapshot = NULL;
    md_plan *plan = NULL;
    md_engine *engine = NULL;
    md_tokenizer *tokenizer = NULL;
    md_status status = MD_OK;
    double start = md_clock_seconds();
    *out = NULL;
    MD_TRY_GOTO(md_snapshot_open(name, &snapshot, err));
    MD_TRY_GOTO(open_tokenizer(snapshot, &tokenizer, err));
    MD_TRY_GOTO(md_plan_build(snapshot, &plan, err));
    MD_TRY_GOTO(md_device_open(plan, options ? options : &defaults, &engine, err));
    MD_TRY(md_model_assemble(name, snapshot, plan, engine, tokenizer, out, err));
    (*out)->info.load_seconds = md_clock_seconds() - start;
    return MD_OK;
fail:
    if (status != MD_E_TIMEOUT) { // a worker that is stuck reading weights keeps them (md_cpu_open)
        md_plan_free(plan);
        md_snapshot_close(snapshot);
    }
    md_tokenizer_close(tokenizer);
    return status;
}

void md_model_hold(md_model *model) {
    // Relaxed: the caller has the model already, so nothing needs to be seen through this count.
    atomic_fetch_add_explicit(&model->holders, 1, memory_order_relaxed);
}

void md_model_close(md_model *model) {
    // Release: what this holder did with the model comes before it is freed; acquire: the last one sees all of that.
    if (!model || atomic_fetch_sub_explicit(&model->holders, 1, memory_order_acq_rel) != 1) return;
    close_computing(model->engine, model->plan, model->snapshot);
    md_tokenizer_close(model->tokenizer);
    free(model->name);
    free(model);
}

void md_model_get_info(const md_model *model, md_model_info *out) { *out = model->info; }

md_status md_model_account(md_model *model, md_account *out, md_error *err) {
    const md_engine_ops *ops = model->engine->ops;
    if (!ops->account) return md_fail(err, MD_E_UNSUPPORTED, "account: the %s engine keeps none", model->info.engine);
    return ops->account(model->engine, out, err);
}

const md_tokenizer *md_model_tokenizer(const md_model *model) { return model->tokenizer; }

bool md_model_is_eos(const md_model *model, uint32_t token) {
    for (uint32_t i = 0; i < model->info.eos_count; i++)
        if (model->info.eos[i] == token) return true;
    return false;
}

void md_model_sampling(const md_model *model, md_sampling *out) {
    const md_sampling_defaults *d = &model->snapshot->sampling;
    *out = (md_sampling){0};
    if (d->do_sample) out->temperature = d->has_temperature ? d->temperature : 1;
    if (d->has_top_p) out->top_p = d->top_p;
    if (d->has_min_p) out->min_p = d->min_p;
    if (d->has_top_k && d->top_k > 0) out->top_k = (uint32_t)md_min_u64((uint64_t)d->top_k, UINT32_MAX);
    if (d->has_repetition_penalty) out->repetition_penalty = d->repetition_penalty;
}
