#include "server/served.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/utf8.h"

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

// Answers show control tokens only where they mean something to the server itself.
static void find_marks(md_served *served) {
    static const struct {
        const char *text, *known_by; // what the template says where the model writes it
    } marks[MD_MARKS_MAX] = {{"<think>", "<think>"},         {"</think>", "<think>"},        {"<function", "<function"},
                             {"</function>", "<function"},   {"<param", "<function"},        {"</param>", "<function"},
                             {"<tool_call>", "<tool_call>"}, {"</tool_call>", "<tool_call>"}};
    for (int i = 0; i < MD_MARKS_MAX; i++) {
        uint32_t id;
        if (md_chat_template_mentions(served->format.chat_template, marks[i].known_by) &&
            md_tokenizer_find(served->tokenizer, marks[i].text, strlen(marks[i].text), &id) &&
            md_tokenizer_is_special(served->tokenizer, id) && id < served->info.vocab)
            served->marks[served->mark_count++] = id;
    }
}

bool md_served_is_mark(const md_served *served, uint32_t token) {
    for (uint32_t i = 0; i < served->mark_count; i++)
        if (served->marks[i] == token) return true;
    return false;
}

static md_status load_format(md_served *served, const char *path, md_error *err) {
    md_error problem = {0};
    md_status status = md_chat_format_open(&served->format, served->tokenizer, path, &problem);
    if (status != MD_OK && path) return md_fail(err, status, "%s", problem.message);
    if (status != MD_OK) { // completions work without it
        md_log(MD_LOG_WARN, "no chat: %s", problem.message);
        return MD_OK;
    }
    served->toolcall_style = md_toolcall_style_of(served->format.chat_template);
    served->thinks = md_chat_template_mentions(served->format.chat_template, "<think>");
    find_marks(served);
    return MD_OK;
}

// What may be a slip and hurts nobody until it is used; what can't be right md_model_open has refused.
static void warn_tokenizer(const md_served *served) {
    const char *dir = served->info.dir;
    size_t known = md_tokenizer_vocab_size(served->tokenizer), n;
    uint32_t vocab = served->info.vocab, beyond = 0;
    for (size_t id = vocab; id < known; id++)
        beyond += md_tokenizer_token_bytes(served->tokenizer, (uint32_t)id, &n) != NULL;
    if (beyond)
        md_log(MD_LOG_WARN, "%s/tokenizer.json: %u control tokens are beyond the model's vocabulary of %u", dir, beyond,
               vocab);
    if (known < vocab - vocab / 4)
        md_log(MD_LOG_WARN, "%s/tokenizer.json has %zu tokens for a vocabulary of %u: is it this model's?", dir, known,
               vocab);
}

// A template that can't render the simplest conversation is known before the first one comes.
static md_status try_template(const md_served *served, md_error *err) {
    if (!served->format.chat_template) return MD_OK;
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "Hello");
    md_chat_prompt prompt;
    md_error problem;
    md_status status = md_chat_format_render(&served->format, messages, NULL, NULL, true, &prompt, &problem);
    json_decref(messages);
    if (status != MD_OK) {
        md_log(MD_LOG_WARN, "the chat template can't render a plain question: %s", problem.message);
        return MD_OK; // it may ask for variables that clients give
    }
    uint32_t *ids = NULL;
    size_t n = 0;
    status = md_encode_spans(served->tokenizer, prompt.spans, prompt.span_count, false, &ids, &n, err);
    for (size_t i = 0; i < n && status == MD_OK; i++)
        if (ids[i] >= served->info.vocab)
            status = md_fail(err, MD_E_FORMAT,
                             "%s: the chat template writes token %u, expected ids below the model's vocabulary of %u",
                             served->info.dir, ids[i], served->info.vocab);
    md_free(ids);
    md_chat_prompt_free(&prompt);
    return status;
}

static md_status set_context(md_served *served, uint32_t context, md_error *err) {
    uint32_t most = served->info.context;
    if (context > most)
        return md_fail(err, MD_E_USAGE, "--ctx: found %u, expected at most the model's %u", context, most);
    served->context = context ? context : most < MD_CONTEXT_DEFAULT ? most : MD_CONTEXT_DEFAULT;
    return MD_OK;
}

// A cache that can't be had is said before the first request, not to each of them.
static md_status try_session(const md_served *served, md_error *err) {
    md_session *session;
    MD_TRY(md_session_open(served->model, &served->session_options, &session, err));
    md_session_close(session);
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
    warn_tokenizer(served);
    MD_TRY_GOTO(set_context(served, options->context, err));
    served->created = (int64_t)time(NULL);
    served->session_options = (md_session_options){
        .context = served->context, .kv = options->kv, .kv_from_start = true}; // so that any prefix can be reused
    MD_TRY_GOTO(try_session(served, err));
    md_model_sampling(served->model, &served->defaults);
    const char *id = options->alias ? options->alias : served->info.name;
    MD_TRY_GOTO(md_utf8_check(options->alias ? "--alias" : "the model's name (--alias gives it another)", id,
                              strlen(id), MD_E_USAGE, err));
    served->id = strdup(id);
    if (!served->id) {
        status = md_fail(err, MD_E_MEMORY, "model: out of memory");
        goto fail;
    }
    MD_TRY_GOTO(load_format(served, options->chat_template_file, err));
    MD_TRY_GOTO(try_template(served, err));
    MD_TRY_GOTO(md_token_order_init(&served->order, served->tokenizer, served->info.vocab, served->marks,
                                    served->mark_count, err));
    *out = served;
    return MD_OK;
fail:
    md_served_close(served);
    return status;
}

void md_served_close(md_served *served) {
    if (!served) return;
    md_token_order_free(&served->order);
    md_chat_format_close(&served->format);
    free(served->id);
    md_model_close(served->model);
    free(served);
}
