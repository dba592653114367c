// GET /health, /metrics, /v1/models, /v1/models/{id}, /props
#include <string.h>

#include "server/route.h"

void md_handle_health(md_request *request, const md_served *served) {
    (void)served;
    md_scheduler *scheduler = request->app->scheduler;
    switch (md_scheduler_state(scheduler)) {
    case MD_SERVER_READY: md_reply_json(request, 200, json_pack("{s:s}", "status", "ok")); return;
    case MD_SERVER_LOADING:
        md_reply_json(request, 503,
                      json_pack("{s:s,s:f}", "status", "loading", "progress", md_scheduler_loaded(scheduler)));
        return;
    case MD_SERVER_DRAINING: md_reply_json(request, 503, json_pack("{s:s}", "status", "draining")); return;
    case MD_SERVER_FAILED: md_reply_json(request, 503, json_pack("{s:s}", "status", "failed")); return;
    }
}

void md_handle_metrics(md_request *request, const md_served *served) {
    (void)served;
    md_buf text;
    md_buf_init(&text, 1 << 16);
    if (md_metrics_write(&request->app->metrics, &text) == MD_OK)
        md_reply_text(request, 200, "text/plain; version=0.0.4; charset=utf-8", text.data, text.size);
    md_buf_free(&text);
}

static json_t *model_json(const md_served *served) {
    return json_pack("{s:s,s:s,s:I,s:s,s:I}", "id", served->id, "object", "model", "created",
                     (json_int_t)served->created, "owned_by", "megadecode", "context_length",
                     (json_int_t)served->context);
}

void md_handle_models(md_request *request, const md_served *served) {
    md_reply_json(request, 200, json_pack("{s:s,s:[o]}", "object", "list", "data", model_json(served)));
}

void md_handle_model(md_request *request, const md_served *served) {
    const char *id = request->url + strlen(request->route->path); // may hold slashes, as repo ids do
    if (strcmp(id, served->id) == 0) {
        md_reply_json(request, 200, model_json(served));
        return;
    }
    md_reply_error(request, 404, "invalid_request_error", "model_not_found", "model",
                   "there is no model of that name here; /v1/models lists what is");
}

void md_handle_props(md_request *request, const md_served *served) {
    const md_model_info *info = &served->info;
    const md_sampling *s = &served->defaults;
    json_t *sampling = json_pack("{s:f,s:I,s:f,s:f,s:f}", "temperature", s->temperature, "top_k", (json_int_t)s->top_k,
                                 "top_p", s->top_p, "min_p", s->min_p, "repetition_penalty",
                                 s->repetition_penalty > 0 ? s->repetition_penalty : 1.0); // 0: off, as 1 is
    json_t *model = json_pack("{s:s,s:I,s:I,s:I,s:I,s:I}", "id", served->id, "layers", (json_int_t)info->layers,
                              "hidden", (json_int_t)info->hidden, "vocab", (json_int_t)info->vocab, "weight_bytes",
                              (json_int_t)info->weight_bytes, "context", (json_int_t)info->context);
    md_reply_json(request, 200,
                  json_pack("{s:s,s:o,s:s,s:s,s:s,s:I,s:I,s:I,s:o,s:s?}", "version", md_version(), "model", model,
                            "engine", info->engine, "backend", info->backend, "device", info->device, "context",
                            (json_int_t)served->context, "parallel", (json_int_t)request->app->options->parallel,
                            "queue", (json_int_t)request->app->options->queue, "sampling", sampling, "chat_template",
                            served->format.source));
}
