// `megadecode chat`: a conversation, at a terminal or through a pipe.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/chat_input.h"
#include "cli/chat_state.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/pull_offer.h"
#include "cli/term.h"

typedef struct chat_args {
    md_model_args model;
    md_engine_args engine;
    md_sampling_args sampling;
    md_opt_count tokens, context;
    const char *system, *kv, *template_file;
    bool no_think, hide_thinking, no_history;
} chat_args;

#define AT(member) offsetof(chat_args, member)
static const md_option chat_options[] = {
    {'c', "context", "CTX", MD_OPT_COUNT, AT(context), 1, 4294967295.0,
     "positions of the KV cache: tokens that the conversation has room for; without it the model's most, but at most "
     "8192"},
    {0, "system", "TEXT", MD_OPT_TEXT, AT(system), 0, 0, "the system prompt"},
    {0, "kv", "KV", MD_OPT_TEXT, AT(kv), 0, 0,
     "KV cache: none (bf16), snapshot (its kv_config.json), 8 or 4 bits, or a file like kv_config.json"},
    {0, "chat-template-file", "FILE", MD_OPT_TEXT, AT(template_file), 0, 0,
     "a chat template (Jinja) instead of the model's own"},
    {0, "no-think", NULL, MD_OPT_FLAG, AT(no_think), 0, 0, "ask the template to let the model answer without thinking"},
    {0, "hide-thinking", NULL, MD_OPT_FLAG, AT(hide_thinking), 0, 0, "don't show the model's thinking"},
    {0, "no-history", NULL, MD_OPT_FLAG, AT(no_history), 0, 0,
     "neither read nor keep the lines typed at the terminal ($MEGADECODE_HISTORY, or megadecode/history in "
     "$XDG_STATE_HOME)"},
};

static const md_option_group chat_groups[] = {
    MD_GROUP_MODEL(chat_args, model),
    {"Chat", chat_options, sizeof chat_options / sizeof *chat_options, 0},
    {"Answers", md_chat_answer_options, MD_CHAT_ANSWER_OPTIONS, AT(tokens)},
    MD_GROUP_SAMPLING(chat_args, sampling),
    MD_GROUP_ENGINE(chat_args, engine),
};
#undef AT

// ---- opening ---------------------------------------------------------------------------------------------------

static md_status open_chat(md_chat *chat, const chat_args *args, md_error *err) {
    MD_TRY(md_pull_offer(&args->model, true, err));
    MD_TRY(md_open_model(&args->model, &args->engine, &chat->model, err));
    md_model_get_info(chat->model, &chat->info);
    const md_tokenizer *tokenizer = md_model_tokenizer(chat->model);
    if (!tokenizer) return md_fail(err, MD_E_NOT_FOUND, "the model's folder has no tokenizer.json");
    md_status status = md_chat_format_open(&chat->format, tokenizer, args->template_file, err);
    if (status == MD_E_UNSUPPORTED && !args->template_file)
        return md_fail_context(err, status, "give one with --chat-template-file, or use 'megadecode run'");
    if (status != MD_OK) return status;
    // A cache that is quantized from the start lets every turn reuse the turns before it.
    md_session_options options = {.context = (uint32_t)args->context.value, .kv = args->kv, .kv_from_start = true};
    MD_TRY(md_session_open(chat->model, &options, &chat->session, err));
    chat->messages = json_array();
    chat->variables = json_object();
    chat->stops = json_array();
    if (!chat->messages || !chat->variables || !chat->stops) return md_fail(err, MD_E_MEMORY, "out of memory");
    if (args->no_think) MD_TRY(md_chat_think(chat, false, err));
    return args->system ? md_chat_set_system(chat, args->system, err) : MD_OK;
}

static void close_chat(md_chat *chat) {
    json_decref(chat->messages);
    json_decref(chat->variables);
    json_decref(chat->stops);
    free(chat->file);
    md_chat_format_close(&chat->format);
    md_session_close(chat->session);
    md_model_close(chat->model);
}

// ---- the conversation ------------------------------------------------------------------------------------------

static bool is_blank(const md_buf *text) { return strspn(md_buf_str(text), " \t\n") == text->size; }

static md_status take(md_chat *chat, const md_chat_message *message, bool *leave, md_error *err) {
    const char *text = md_buf_str(&message->text);
    size_t size = message->text.size;
    if (is_blank(&message->text)) return MD_OK;
    if (!message->block && *text == '/') return md_chat_command(chat, text, leave, err);
    bool escaped = !message->block && text[0] == ' ' && text[1] == '/';
    return md_chat_say(chat, text + escaped, size - escaped, err);
}

// At a terminal a mistake is said and the conversation goes on; a pipe ends with its first failure.
static md_status converse(md_chat *chat, md_chat_input *input, md_error *err) {
    md_chat_message message = {.block = false};
    md_status status = MD_OK;
    bool leave = false;
    md_buf_init(&message.text, MD_INPUT_MAX);
    while (!leave && !chat->unread && !md_terminated()) {
        md_chat_read got = MD_CHAT_READ_END;
        status = md_chat_input_read(input, &message, &got, err);
        if (status == MD_OK && got == MD_CHAT_READ_END) break;
        if (status == MD_OK && got == MD_CHAT_READ_MESSAGE) status = take(chat, &message, &leave, err);
        if (!chat->person && (status != MD_OK || md_interrupted())) break;
        if (status != MD_OK) fprintf(stderr, "%s\n", err->message);
        status = MD_OK;
    }
    md_buf_free(&message.text);
    return status;
}

static int run(const void *arguments, int words, char **word) {
    (void)words, (void)word;
    const chat_args *args = arguments;
    md_error err = {0};
    md_chat chat = {.sampling = args->sampling, .tokens = args->tokens};
    md_chat_input *input = NULL;
    md_status status = open_chat(&chat, args, &err);
    if (status == MD_OK) status = md_chat_input_open(!args->no_history, &input, &err);
    if (status == MD_OK) {
        chat.person = md_chat_input_edits(input);
        chat.show_thinking = chat.person && !args->hide_thinking;
        if (chat.person) {
            md_signals_interactive();
            fprintf(stderr, "%s, context of %" PRIu32 " tokens. /help lists the commands; Ctrl-D leaves.\n",
                    chat.info.name, md_session_context(chat.session));
        }
        status = converse(&chat, input, &err);
    }
    md_chat_input_close(input);
    close_chat(&chat);
    if (status != MD_OK) return md_out_error("chat", false, &err);
    bool stopped = chat.person ? md_terminated() : md_interrupted();
    return stopped ? MD_EXIT_FAILED : MD_EXIT_DONE;
}

const md_command md_cmd_chat = {
    .name = "chat",
    .summary = "talk with a model",
    .usage = "",
    .details = "Standard input is a terminal: lines can be edited, and /help lists the commands. It is no terminal:\n"
               "each line is a turn, and only the answers are written to standard output.",
    .groups = chat_groups,
    .group_count = sizeof chat_groups / sizeof *chat_groups,
    .args_size = sizeof(chat_args),
    .run = run,
};
