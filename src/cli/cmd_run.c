// `megadecode run`: one prompt in, its continuation out.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/pull_offer.h"
#include "cli/shared.h"
#include "cli/term.h"

enum { DEFAULT_TOKENS = 512, LONG_PROMPT = 512, MAX_ANSWER = 1 << 30 };

typedef struct run_args {
    md_model_args model;
    md_engine_args engine;
    md_sampling_args sampling;
    const char *prompt, *file, *kv;
    md_opt_count tokens, context, logprobs;
    bool ignore_eos, special, echo, json, verbose;
} run_args;

#define AT(member) offsetof(run_args, member)
static const md_option run_options[] = {
    {'p', "prompt", "TEXT", MD_OPT_TEXT, AT(prompt), 0, 0,
     "the prompt; without -p and -f it is read from standard input"},
    {'f', "file", "FILE", MD_OPT_TEXT, AT(file), 0, 0,
     "the prompt is a file's text, without its last newline ('-': standard input)"},
    {'n', "tokens", "N", MD_OPT_COUNT, AT(tokens), 0, 4294967295.0,
     "write at most N tokens (512); 0: until the context is full"},
    {'c', "context", "CTX", MD_OPT_COUNT, AT(context), 1, 4294967295.0,
     "positions of the KV cache: room for prompt and answer, whose last token needs none; without it as many as they "
     "need"},
    {0, "kv", "KV", MD_OPT_TEXT, AT(kv), 0, 0,
     "KV cache: none (bf16), snapshot (its kv_config.json), 8 or 4 bits, or a file like kv_config.json"},
    {0, "ignore-eos", NULL, MD_OPT_FLAG, AT(ignore_eos), 0, 0, "go on past end-of-text tokens"},
    {0, "special", NULL, MD_OPT_FLAG, AT(special), 0, 0, "write control tokens into the text"},
    {0, "echo", NULL, MD_OPT_FLAG, AT(echo), 0, 0,
     "write the prompt before its continuation, as is done on a terminal"},
    {0, "logprobs", "N", MD_OPT_COUNT, AT(logprobs), 0, MD_TOP_LOGPROBS_MAX,
     "with --json: each token's log-probability, and the N likeliest"},
    {0, "json", NULL, MD_OPT_FLAG, AT(json), 0, 0, "print one JSON object at the end instead of the text"},
    {'v', "verbose", NULL, MD_OPT_FLAG, AT(verbose), 0, 0, "say times, rates and memory on standard error"},
};
#undef AT

static const md_option_group run_groups[] = {
    MD_GROUP_MODEL(run_args, model),
    {"Run", run_options, sizeof run_options / sizeof *run_options, 0},
    MD_GROUP_SAMPLING(run_args, sampling),
    MD_GROUP_ENGINE(run_args, engine),
};

typedef struct answer {
    bool stream;      // write pieces as they come
    bool failed;      // stdout takes no more, or memory ran out
    char last;        // last byte written
    md_buf text;      // the whole answer, for JSON
    json_t *ids;      // for JSON
    json_t *logprobs; // for JSON; NULL: not asked for
    const md_tokenizer *tokenizer;
    md_progress progress;
} answer;

// ---- pieces ----------------------------------------------------------------------------------------------------

// {"id", "token", "bytes", "logprob"}: the token's text where it is UTF-8 by itself, and its bytes always.
static json_t *logprob_json(const md_tokenizer *tokenizer, uint32_t id, double logprob) {
    size_t n = 0;
    const char *bytes = tokenizer ? md_tokenizer_token_bytes(tokenizer, id, &n) : NULL;
    json_t *list = json_array(), *text = bytes ? json_stringn(bytes, n) : NULL;
    for (size_t i = 0; bytes && i < n; i++) json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    if (!text) text = json_null();
    return json_pack("{s:I,s:o,s:o,s:f}", "id", (json_int_t)id, "token", text, "bytes", list, "logprob", logprob);
}

static void keep_for_json(answer *a, const md_piece *piece) {
    if (md_buf_append(&a->text, piece->text, piece->size) != MD_OK) a->failed = true;
    for (size_t i = 0; i < piece->token_count; i++) {
        const md_token *token = &piece->tokens[i];
        json_array_append_new(a->ids, json_integer(token->id));
        if (!a->logprobs) continue;
        json_t *item = logprob_json(a->tokenizer, token->id, token->logprob), *top = json_array();
        for (uint32_t t = 0; t < token->top_count; t++)
            json_array_append_new(top, logprob_json(a->tokenizer, token->top[t].token, token->top[t].logprob));
        json_object_set_new(item, "top", top);
        json_array_append_new(a->logprobs, item);
    }
}

static bool on_piece(void *user, const md_piece *piece) {
    answer *a = user;
    md_progress_clear(&a->progress);
    if (!a->stream)
        keep_for_json(a, piece);
    else if (piece->size && !a->failed) {
        a->failed = !md_out_write(piece->text, piece->size);
        a->last = piece->text[piece->size - 1];
    }
    return !a->failed && !md_interrupted();
}

static bool on_prefill(void *user, uint32_t done, uint32_t total) {
    answer *a = user;
    if (total >= LONG_PROMPT) md_progress_draw(&a->progress, (double)done / total);
    return !md_interrupted();
}

// ---- reports ---------------------------------------------------------------------------------------------------

static double rate(uint32_t tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }
static double prefill_rate(const md_result *r) { return rate(r->prompt_tokens - r->cached_tokens, r->prefill_seconds); }
static double decode_rate(const md_result *r) {
    return r->completion_tokens > 1 ? rate(r->completion_tokens - 1, r->decode_seconds) : 0;
}

// VmHWM, not ru_maxrss: the latter survives exec, so it may be that of the program that started this one.
static uint64_t peak_memory(void) {
    char line[128];
    unsigned long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %lu kB", &kib) == 1) break;
    if (status) fclose(status);
    return (uint64_t)kib * 1024;
}

static void report_verbose(const md_model *model, const md_session *session, const md_result *r, uint64_t seed) {
    md_model_info info;
    md_model_get_info(model, &info);
    const double mb = 1e-6;
    fprintf(stderr, "%s: %s engine on %s, %s\n", info.name, info.engine, info.backend, info.device);
    fprintf(stderr, "load          %9.3f s\n", info.load_seconds);
    fprintf(stderr, "first token   %9.3f s\n", r->first_seconds);
    fprintf(stderr, "prefill       %9.1f tokens/s  (%" PRIu32 " tokens, %.3f s)\n", prefill_rate(r), r->prompt_tokens,
            r->prefill_seconds);
    fprintf(stderr, "decode        %9.1f tokens/s  (%" PRIu32 " tokens, %.3f s)\n", decode_rate(r),
            r->completion_tokens, r->decode_seconds);
    fprintf(stderr, "memory        %9.1f MB peak   (weights %.1f MB)\n", (double)peak_memory() * mb,
            (double)info.weight_bytes * mb);
    fprintf(stderr,
            "KV cache      %9.1f MB        (room for %" PRIu32 " positions; %" PRIu64 " bytes each, in bf16 %" PRIu64
            ")\n",
            (double)md_session_kv_bytes(session) * mb, md_session_context(session),
            md_session_kv_position_bytes(session), info.kv_bytes_bf16);
    fprintf(stderr, "finish        %s, seed %" PRIu64 "\n", md_finish_name(r->finish), seed);
}

static bool report_json(const run_args *args, const md_model *model, const md_session *session, const md_result *r,
                        uint64_t seed, answer *a) {
    md_model_info info;
    md_model_get_info(model, &info);
    json_t *stop = r->stop_index >= 0 ? json_string(args->sampling.stop.items[r->stop_index]) : NULL;
    json_t *usage = json_pack("{s:I,s:I,s:I}", "prompt_tokens", (json_int_t)r->prompt_tokens, "completion_tokens",
                              (json_int_t)r->completion_tokens, "total_tokens",
                              (json_int_t)r->prompt_tokens + (json_int_t)r->completion_tokens);
    json_t *timings = json_pack("{s:f,s:f,s:f,s:f,s:f,s:f}", "load_seconds", info.load_seconds, "first_token_seconds",
                                r->first_seconds, "prefill_seconds", r->prefill_seconds, "decode_seconds",
                                r->decode_seconds, "prefill_tps", prefill_rate(r), "decode_tps", decode_rate(r));
    json_t *memory = json_pack("{s:I,s:I,s:I}", "peak_bytes", (json_int_t)peak_memory(), "weight_bytes",
                               (json_int_t)info.weight_bytes, "kv_bytes", (json_int_t)md_session_kv_bytes(session));
    json_t *root =
        json_pack("{s:o,s:s,s:s,s:s,s:I}", "model", md_json_text(info.name), "engine", info.engine, "backend",
                  info.backend, "device", info.device, "context", (json_int_t)md_session_context(session));
    // Seeds above 2^63 do not fit a JSON integer; as text none loses digits.
    char seed_text[24];
    snprintf(seed_text, sizeof seed_text, "%" PRIu64, seed);
    json_object_set_new(root, "text", json_stringn(md_buf_str(&a->text), a->text.size));
    json_object_set(root, "ids", a->ids);
    json_object_set_new(root, "finish_reason", json_string(md_finish_name(r->finish)));
    json_object_set_new(root, "stop", stop ? stop : json_null());
    json_object_set_new(root, "seed", json_string(seed_text));
    json_object_set_new(root, "usage", usage);
    json_object_set_new(root, "timings", timings);
    json_object_set_new(root, "memory", memory);
    if (a->logprobs) json_object_set(root, "logprobs", a->logprobs);
    return md_out_json(root);
}

// ---- running ---------------------------------------------------------------------------------------------------

// The prompt's ids, with the special tokens the tokenizer adds.
static md_status read_prompt(const run_args *args, const md_model *model, char **text, uint32_t **ids, size_t *n,
                             md_error *err) {
    const md_tokenizer *tokenizer = md_model_tokenizer(model);
    size_t size = 0;
    if (!tokenizer) return md_fail(err, MD_E_NOT_FOUND, "the model's folder has no tokenizer.json");
    MD_TRY(md_read_input(args->prompt, args->file, text, &size, err));
    if (!args->prompt && size && (*text)[size - 1] == '\n') (*text)[--size] = 0;
    MD_TRY(md_encode(tokenizer, *text, size, MD_ENCODE_ADD_SPECIAL | MD_ENCODE_PARSE_SPECIAL, ids, n, err));
    return *n ? md_check_ids(model, *ids, *n, err) : md_fail(err, MD_E_USAGE, "the prompt is empty");
}

// Room for the prompt and the answer, where -c does not say it.
static uint32_t context_for(const run_args *args, const md_model *model, size_t prompt, uint32_t tokens) {
    md_model_info info;
    md_model_get_info(model, &info);
    if (args->context.given) return (uint32_t)args->context.value;
    uint64_t need = (uint64_t)prompt + tokens;
    return tokens == 0 || need > info.context ? info.context : (uint32_t)need;
}

static void echo_prompt(const run_args *args, const char *prompt, answer *a) {
    bool colour = md_term_colour(STDOUT_FILENO);
    if (!a->stream || !*prompt || !(args->echo || md_term_stdout())) return;
    a->failed = (colour && !md_out_write("\033[2m", 4)) || !md_out_write(prompt, strlen(prompt)) ||
                (colour && !md_out_write("\033[0m", 4));
    a->last = prompt[strlen(prompt) - 1];
}

static md_status generate(const run_args *args, md_model *model, answer *a, int *exit_status, md_error *err) {
    char *prompt = NULL;
    uint32_t *ids = NULL, tokens = args->tokens.given ? (uint32_t)args->tokens.value : DEFAULT_TOKENS;
    size_t n = 0;
    md_session *session = NULL;
    md_result result = {0};
    md_status status = MD_OK;
    md_generation_params params = {.max_tokens = tokens,
                                   .stop = args->sampling.stop.items,
                                   .stop_count = args->sampling.stop.count,
                                   .ignore_eos = args->ignore_eos,
                                   .keep_special = args->special,
                                   .logprobs = args->logprobs.given,
                                   .top_logprobs = (uint32_t)args->logprobs.value,
                                   .progress = on_prefill,
                                   .progress_user = a};
    md_sampling_from_args(model, &args->sampling, &params.sampling);
    MD_TRY_GOTO(read_prompt(args, model, &prompt, &ids, &n, err));
    md_session_options so = {.context = context_for(args, model, n, tokens), .kv = args->kv};
    MD_TRY_GOTO(md_session_open(model, &so, &session, err));
    echo_prompt(args, prompt, a);
    status = md_generate(session, ids, n, &params, on_piece, a, &result, err);
    md_progress_clear(&a->progress);
    if (a->stream && a->last && a->last != '\n') md_out_write("\n", 1);
    if (status != MD_OK) goto fail;
    if (args->json) report_json(args, model, session, &result, params.sampling.seed, a);
    if (args->verbose) report_verbose(model, session, &result, params.sampling.seed);
    *exit_status = md_interrupted() ? MD_EXIT_FAILED : MD_EXIT_DONE;
fail:
    md_session_close(session);
    md_free(ids);
    free(prompt);
    return status;
}

// What can't be asked for together.
static md_status check_args(const run_args *args, md_error *err) {
    if (args->prompt && args->file) return md_fail(err, MD_E_USAGE, "-p and -f exclude each other");
    if (args->logprobs.given && !args->json)
        return md_fail(err, MD_E_USAGE, "--logprobs is part of the JSON: give --json too");
    if (args->echo && args->json)
        return md_fail(err, MD_E_USAGE, "--echo and --json exclude each other: the JSON's text is the answer alone");
    return MD_OK;
}

static int run(const void *arguments, int words, char **word) {
    (void)words, (void)word;
    const run_args *args = arguments;
    md_error err = {0};
    md_model *model = NULL;
    int exit_status = MD_EXIT_FAILED;
    if (check_args(args, &err) != MD_OK) return md_out_error("run", args->json, &err);
    md_status status = md_pull_offer(&args->model, !args->json, &err);
    if (status == MD_OK) status = md_open_model(&args->model, &args->engine, &model, &err);
    if (status == MD_OK) {
        answer a = {.stream = !args->json,
                    .ids = json_array(),
                    .logprobs = args->logprobs.given ? json_array() : NULL,
                    .tokenizer = md_model_tokenizer(model),
                    .progress = {.label = "reading the prompt"}};
        md_buf_init(&a.text, MAX_ANSWER);
        status = generate(args, model, &a, &exit_status, &err);
        md_buf_free(&a.text);
        json_decref(a.ids);
        json_decref(a.logprobs);
    }
    md_model_close(model);
    return status == MD_OK ? exit_status : md_out_error("run", args->json, &err);
}

const md_command md_cmd_run = {
    .name = "run",
    .summary = "continue a prompt",
    .usage = "",
    .groups = run_groups,
    .group_count = sizeof run_groups / sizeof *run_groups,
    .args_size = sizeof(run_args),
    .run = run,
};
