// md_inspect: a snapshot and its plan described as JSON, from headers and config; of the weights only scales and norms
// are looked at.
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "plan/plan.h"
#include "session/kv_spec.h"
#include "session/model.h"

// Jansson's setters take the reference and report failure by -1; one sticky flag is checked at the end.
typedef struct writer {
    bool failed;
} writer;

static void put(writer *w, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) != 0) w->failed = true;
}

static void put_uint(writer *w, json_t *object, const char *key, uint64_t value) {
    put(w, object, key, json_integer((json_int_t)value));
}

static void push(writer *w, json_t *array, json_t *value) {
    if (json_array_append_new(array, value) != 0) w->failed = true;
}

static json_t *rope_json(writer *w, const md_rope *rope) {
    static const char *const names[] = {"plain", "linear", "llama3"};
    json_t *out = json_object();
    put(w, out, "type", json_string(names[rope->type]));
    put(w, out, "theta", json_real(rope->theta));
    if (rope->type != MD_ROPE_PLAIN) put(w, out, "factor", json_real(rope->factor));
    if (rope->type == MD_ROPE_LLAMA3) {
        put(w, out, "low_freq_factor", json_real(rope->low_freq_factor));
        put(w, out, "high_freq_factor", json_real(rope->high_freq_factor));
        put(w, out, "original_context", json_real(rope->original_context));
    }
    return out;
}

static void put_hyperparameters(writer *w, json_t *root, const md_snapshot *s) {
    put(w, root, "dir", md_json_text(s->dir));
    put(w, root, "architecture", json_string("llama"));
    put_uint(w, root, "layers", s->layers);
    put_uint(w, root, "hidden", s->hidden);
    put_uint(w, root, "ffn", s->ffn);
    put_uint(w, root, "vocab", s->vocab);
    put_uint(w, root, "q_heads", s->q_heads);
    put_uint(w, root, "kv_heads", s->kv_heads);
    put_uint(w, root, "head_dim", s->head_dim);
    put_uint(w, root, "context", s->context);
    put(w, root, "norm_eps", json_real((double)s->norm_eps));
    put(w, root, "rope", rope_json(w, &s->rope));
    put(w, root, "tied_head", json_boolean(s->tied_head));
    put(w, root, "bos", s->bos < 0 ? json_null() : json_integer(s->bos));
    json_t *eos = json_array();
    for (uint32_t i = 0; i < s->eos_count; i++) push(w, eos, json_integer(s->eos[i]));
    put(w, root, "eos", eos);
}

static json_t *matrix_json(writer *w, const md_matrix *m) {
    json_t *out = json_object();
    put(w, out, "path", json_string(m->path));
    put_uint(w, out, "rows", m->rows);
    put_uint(w, out, "cols", m->cols);
    put_uint(w, out, "bits", m->bits);
    put_uint(w, out, "group", m->group);
    put(w, out, "type", json_string(md_dtype_name(m->bits ? m->scales.dtype : m->weight.dtype)));
    put(w, out, "bias", json_boolean(m->has_bias));
    put_uint(w, out, "bytes", md_matrix_bytes(m));
    return out;
}

// "matrices": the embedding, the layers' in the order of a step, the head; and the sums over them.
static void put_matrices(writer *w, json_t *root, const md_snapshot *s) {
    json_t *list = json_array();
    uint64_t bytes = 0, parameters = 0;
    for (uint32_t i = 0; i < s->layers * 7 + 2; i++) {
        const md_layer *l = &s->layer[i ? (i - 1) / 7 % s->layers : 0];
        const md_matrix *in_layer[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        const md_matrix *m = i == 0 ? &s->embed : i == s->layers * 7 + 1 ? &s->head : in_layer[(i - 1) % 7];
        if (m == &s->head && s->tied_head) continue;
        push(w, list, matrix_json(w, m));
        bytes += md_matrix_bytes(m);
        parameters += (uint64_t)m->rows * m->cols;
    }
    put_uint(w, root, "matrix_bytes", bytes);
    put_uint(w, root, "matrix_parameters", parameters);
    put(w, root, "matrices", list);
}

static void put_sampling(writer *w, json_t *root, const md_sampling_defaults *d) {
    json_t *out = json_object();
    put(w, out, "do_sample", json_boolean(d->do_sample));
    if (d->has_temperature) put(w, out, "temperature", json_real(d->temperature));
    if (d->has_top_p) put(w, out, "top_p", json_real(d->top_p));
    if (d->has_top_k) put(w, out, "top_k", json_integer(d->top_k));
    if (d->has_min_p) put(w, out, "min_p", json_real(d->min_p));
    if (d->has_repetition_penalty) put(w, out, "repetition_penalty", json_real(d->repetition_penalty));
    put(w, root, "generation_config", out);
}

static json_t *kv_json(writer *w, const md_snapshot *s, const md_kv_format *format) {
    json_t *out = json_object(), *bits = json_array();
    put_uint(w, out, "bytes_per_position", md_kv_position_bytes(s, format));
    put_uint(w, out, "bytes_per_position_bf16", md_kv_position_bytes(s, NULL));
    for (uint32_t i = 0; i < s->layers; i++)
        push(w, bits, json_integer(format && format[i].bits ? format[i].bits : 16));
    put(w, out, "bits", bits);
    return out;
}

static json_t *vectors_json(writer *w, uint32_t set) {
    json_t *out = json_array();
    for (int v = 0; v < MD_VEC_COUNT; v++)
        if (set & 1u << v) push(w, out, json_string(md_vector_name((md_vector)v)));
    return out;
}

static json_t *plan_json(writer *w, const md_plan *plan) {
    json_t *out = json_array();
    for (uint32_t i = 0; i < plan->stage_count; i++) {
        const md_stage *stage = &plan->stage[i];
        json_t *item = json_object(), *matrices = json_array();
        uint64_t bytes = 0;
        for (uint32_t m = 0; m < stage->matrix_count; m++) {
            push(w, matrices, json_string(stage->matrix[m]->path));
            bytes += md_matrix_bytes(stage->matrix[m]);
        }
        put(w, item, "stage", json_string(md_stage_name(stage->kind)));
        put(w, item, "layer", stage->layer < 0 ? json_null() : json_integer(stage->layer));
        put(w, item, "norm", stage->norm ? json_string(stage->norm->name) : json_null());
        put(w, item, "matrices", matrices);
        put(w, item, "reads", vectors_json(w, stage->reads));
        put(w, item, "writes", vectors_json(w, stage->writes));
        put_uint(w, item, "bytes", bytes);
        push(w, out, item);
    }
    return out;
}

md_status md_inspect(const char *model, const md_inspect_options *options, char **json, md_error *err) {
    static const md_inspect_options defaults = {0};
    if (!options) options = &defaults;
    md_snapshot *snapshot = NULL;
    md_plan *plan = NULL;
    md_kv_format *format = NULL;
    json_t *root = NULL;
    writer w = {false};
    md_status status = MD_OK;
    uint64_t losses = md_json_losses();
    *json = NULL;
    MD_TRY_GOTO(md_snapshot_open(model, &snapshot, err));
    MD_TRY_GOTO(md_snapshot_check_scales(snapshot, err));
    MD_TRY_GOTO(md_plan_build(snapshot, &plan, err));
    const char *kv = options->kv ? options->kv : snapshot->kv ? "snapshot" : "none";
    MD_TRY_GOTO(md_kv_spec_read(snapshot, kv, &format, err));
    root = json_object();
    put_hyperparameters(&w, root, snapshot);
    put_uint(&w, root, "bytes_per_token", md_plan_bytes_per_token(plan));
    put(&w, root, "kv", kv_json(&w, snapshot, format));
    put_sampling(&w, root, &snapshot->sampling);
    put_matrices(&w, root, snapshot);
    if (options->plan) put(&w, root, "plan", plan_json(&w, plan));
    *json = w.failed ? NULL : json_dumps(root, JSON_COMPACT);
    if (!*json || md_json_losses() != losses) {
        free(*json);
        *json = NULL;
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory", model);
    }
fail:
    json_decref(root);
    free(format);
    md_plan_free(plan);
    md_snapshot_close(snapshot);
    return status;
}
