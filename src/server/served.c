#include "server/served.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/log.h"

enum { TEMPLATE_FILE_MAX = 1 << 20 };

typedef struct loading {
    _Atomic(double) *fraction;
    atomic_bool *give_up;
} loading;

static bool on_progress(void *user, double fraction) {
    loading *l = user;
    // Only shown, and only a flag: nothing else is ordered by them.
    atomic_store_explicit(l->fraction, fraction, memory_order_relaxed);
    return !atomic_load_explicit(l->give_up, memory_order_relaxed);
}

// The text of the chat template: *out malloc'd; NULL where there is none.
static md_status read_template(const md_served *served, const char *path, char **out, size_t *size, md_error *err) {
    *out = NULL;
    *size = 0;
    if (path) return md_file_read_all(path, TEMPLATE_FILE_MAX, out, size, err);
    const char *text = md_tokenizer_chat_template(served->tokenizer, NULL, size);
    if (!text) return MD_OK;
    *out = malloc(*size + 1);
    if (!*out) return md_fail(err, MD_E_MEMORY, "chat template: out of memory");
    memcpy(*out, text, *size);
    (*out)[*size] = '\0';
    return MD_OK;
}

static md_status load_template(md_served *served, const char *path, md_error *err) {
    static const struct {
        md_token_role role;
        const char *name;
    } roles[] = {{MD_TOKEN_BOS, "bos_token"},
                 {MD_TOKEN_EOS, "eos_token"},
                 {MD_TOKEN_PAD, "pad_token"},
                 {MD_TOKEN_UNK, "unk_token"}};
    size_t size;
    MD_TRY(read_template(served, path, &served->template_source, &size, err));
    served->template_tokens = json_object();
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        const char *text = md_tokenizer_role_text(served->tokenizer, roles[i].role);
        if (text) json_object_set_new(served->template_tokens, roles[i].name, json_string(text));
    }
    if (!served->template_source) return MD_OK;
    const char *name = path ? path : "chat_template";
    md_error problem = {0};
    md_status status = md_chat_template_compile(served->template_source, size, name, &served->chat_template, &problem);
    if (status != MD_OK && path) return md_fail(err, status, "%s", problem.message);
    if (status != MD_OK) { // completions work without it
        md_log(MD_LOG_WARN, "no chat: %s", problem.message);
        return MD_OK;
    }
    served->toolcall_style = md_toolcall_style_of(served->chat_template);
    served->thinks = md_chat_template_mentions(served->chat_template, "<think>");
    return MD_OK;
}

static md_status set_context(md_served *served, uint32_t context, md_error *err) {
    uint32_t most = served->info.context;
    if (context > most)
        return md_fail(err, MD_E_USAGE, "--ctx: found %u, expected at most the model's %u", context, most);
    served->context = context ? context : most < MD_CONTEXT_DEFAULT ? most : MD_CONTEXT_DEFAULT;
    return MD_OK;
}

md_status md_served_open(const md_server_options *options, _Atomic(double) *fraction, atomic_bool *give_up,
                         md_served **out, md_error *err) {
    *out = NULL;
    md_served *served = calloc(1, sizeof *served);
    if (!served) return md_fail(err, MD_E_MEMORY, "model: out of memory");
    loading progress = {fraction, give_up};
    md_model_options model_options = options->model_options;
    model_options.progress = on_progress;
    model_options.progress_user = &progress;
    md_status status;
    MD_TRY_GOTO(md_model_open(options->model, &model_options, &served->model, err));
    md_model_get_info(served->model, &served->info);
    served->tokenizer = md_model_tokenizer(served->model);
    if (!served->tokenizer) {
        status =
            md_fail(err, MD_E_UNSUPPORTED, "%s: a snapshot without tokenizer.json can't be served", served->info.dir);
        goto fail;
    }
    MD_TRY_GOTO(set_context(served, options->context, err));
    served->created = (int64_t)time(NULL);
    served->session_options = (md_session_options){
        .context = served->context, .kv = options->kv, .kv_from_start = true}; // so that any prefix can be reused
    md_model_sampling(served->model, &served->defaults);
    served->id = strdup(options->alias ? options->alias : served->info.name);
    if (!served->id) {
        status = md_fail(err, MD_E_MEMORY, "model: out of memory");
        goto fail;
    }
    MD_TRY_GOTO(load_template(served, options->chat_template_file, err));
    MD_TRY_GOTO(md_token_order_init(&served->order, served->tokenizer, served->info.vocab, err));
    *out = served;
    return MD_OK;
fail:
    md_served_close(served);
    return status;
}

void md_served_close(md_served *served) {
    if (!served) return;
    md_token_order_free(&served->order);
    md_chat_template_free(served->chat_template);
    free(served->template_source);
    json_decref(served->template_tokens);
    free(served->id);
    md_model_close(served->model);
    free(served);
}
