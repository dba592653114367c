// `megadecode serve`: the model over HTTP, behind OpenAI's routes.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/shared.h"
#include "server/server.h"

enum { PORT = 8080, PARALLEL = 8, QUEUE = 64, REQUEST_SECONDS = 600, DRAIN_SECONDS = 30, BODY_MIB = 8 };

typedef struct serve_args {
    md_model_args model;
    md_engine_args engine;
    const char *host, *kv, *api_key, *cors, *alias, *chat_template;
    md_opt_count port, context, parallel, queue, timeout, drain, body;
} serve_args;

#define AT(member) offsetof(serve_args, member)
static const md_option serve_options[] = {
    {0, "host", "H", MD_OPT_TEXT, AT(host), 0, 0, "address to listen on (127.0.0.1: this machine alone)"},
    {0, "port", "N", MD_OPT_COUNT, AT(port), 0, 65535, "port to listen on (8080); 0: any free one"},
    {'c', "ctx", "CTX", MD_OPT_COUNT, AT(context), 1, 4294967295.0,
     "tokens that a request's prompt and answer have room for"},
    {0, "context", "CTX", MD_OPT_COUNT, AT(context), 1, 4294967295.0, "the same as --ctx"},
    {0, "kv", "KV", MD_OPT_TEXT, AT(kv), 0, 0,
     "KV cache: none (bf16), snapshot (its kv_config.json), 8 or 4 bits, or a file like kv_config.json"},
    {0, "parallel", "N", MD_OPT_COUNT, AT(parallel), 1, MD_PARALLEL_MAX, "requests that decode together (8)"},
    {0, "queue", "N", MD_OPT_COUNT, AT(queue), 0, MD_QUEUE_MAX, "requests that may wait beyond those (64)"},
    {0, "api-key", "KEY", MD_OPT_TEXT, AT(api_key), 0, 0,
     "a key that clients must send; without it $MEGADECODE_API_KEY, else none is asked for"},
    {0, "cors-origins", "LIST", MD_OPT_TEXT, AT(cors), 0, 0,
     "origins whose pages may call, with commas between them, or '*'; without it none may"},
    {0, "alias", "NAME", MD_OPT_TEXT, AT(alias), 0, 0, "the model's name in the API"},
    {0, "timeout", "SECONDS", MD_OPT_COUNT, AT(timeout), 0, 86400, "a request ends after this long (600); 0: never"},
    {0, "drain", "SECONDS", MD_OPT_COUNT, AT(drain), 0, 86400, "what runs has this long to end after SIGTERM (30)"},
    {0, "max-body", "MIB", MD_OPT_COUNT, AT(body), 1, 64, "largest request body, in MiB (8)"},
    {0, "chat-template-file", "FILE", MD_OPT_TEXT, AT(chat_template), 0, 0,
     "a Jinja chat template to use in place of the snapshot's"},
};
#undef AT

static const md_option_group serve_groups[] = {
    MD_GROUP_MODEL(serve_args, model),
    {"Serve", serve_options, sizeof serve_options / sizeof *serve_options, 0},
    MD_GROUP_ENGINE(serve_args, engine),
};

static uint32_t count_or(const md_opt_count *count, uint32_t otherwise) {
    return count->given ? (uint32_t)count->value : otherwise;
}

// An empty key is a slip (an unset variable in a script), and would let everybody in.
static md_status check_key(const serve_args *args, const char *key, md_error *err) {
    if (key && !*key)
        return md_fail(err, MD_E_USAGE, "%s is empty, expected a key that clients must send",
                       args->api_key ? "--api-key" : "MEGADECODE_API_KEY");
    return MD_OK;
}

// The address of --host; an IPv6 address may stand in brackets, as in a URL. malloc'd.
static md_status read_host(const char *given, char **out, md_error *err) {
    const char *text = given ? given : "127.0.0.1";
    const size_t n = strlen(text);
    const bool brackets = n > 2 && text[0] == '[' && text[n - 1] == ']' && strchr(text, ':');
    *out = brackets ? strndup(text + 1, n - 2) : strdup(text);
    return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory");
}

static int run_serve(const void *arguments, int words, char **word) {
    (void)words, (void)word;
    const serve_args *args = arguments;
    const char *key = args->api_key ? args->api_key : getenv("MEGADECODE_API_KEY");
    md_error err = {0};
    char *model = NULL, *dir = NULL, *host = NULL;
    md_status status = check_key(args, key, &err);
    if (status == MD_OK) status = read_host(args->host, &host, &err);
    if (status == MD_OK) status = md_find_model(args->model.model, &model, &err);
    if (status == MD_OK) status = md_model_dir(model, &dir, &err); // before anybody is told where to ask
    md_free(dir);
    if (status != MD_OK) {
        free(host);
        free(model);
        return md_out_error("serve", false, &err);
    }
    md_server_options options = {
        .model = model,
        .host = host,
        .port = (uint16_t)count_or(&args->port, PORT),
        .model_options = {.engine = args->engine.engine,
                          .device = args->engine.device,
                          .threads = count_or(&args->engine.threads, 0),
                          .groups = count_or(&args->engine.groups, 0),
                          .deadline_ms = count_or(&args->engine.deadline, 0)},
        .context = count_or(&args->context, 0),
        .kv = args->kv,
        .parallel = count_or(&args->parallel, PARALLEL),
        .queue = count_or(&args->queue, QUEUE),
        .api_key = key,
        .cors_origins = args->cors,
        .alias = args->alias,
        .request_seconds = count_or(&args->timeout, REQUEST_SECONDS),
        .drain_seconds = count_or(&args->drain, DRAIN_SECONDS),
        .chat_template_file = args->chat_template,
        .body_max = (size_t)count_or(&args->body, BODY_MIB) << 20,
    };
    // The server waits for these itself; the program's own handlers step aside.
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    status = md_server_run(&options, &err);
    free(host);
    free(model);
    return status == MD_OK ? MD_EXIT_DONE : md_out_error("serve", false, &err);
}

const md_command md_cmd_serve = {
    .name = "serve",
    .summary = "serve the model over HTTP: OpenAI's API, and a page to chat",
    .usage = "",
    .details = "Routes: /v1/chat/completions, /v1/completions, /v1/models, /health, /metrics, /tokenize, /detokenize,\n"
               "/apply-template, /props; / is a page to chat in a browser. SIGTERM and SIGINT let what runs end first.",
    .groups = serve_groups,
    .group_count = sizeof serve_groups / sizeof *serve_groups,
    .args_size = sizeof(serve_args),
    .run = run_serve,
};
