// One turn of `megadecode chat`: the conversation rendered, encoded and continued.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "chat/reasoning.h"
#include "cli/chat_state.h"
#include "cli/output.h"
#include "cli/term.h"

enum { MAX_ANSWER = 1 << 28, LONG_PROMPT = 512, NEARLY_FULL = 90 };

typedef struct answer {
    md_chat *chat;
    md_reasoning split;
    md_buf content, reasoning;
    bool thinking; // shown thinking has not been ended
    char last;     // last byte written
    md_progress progress;
    uint32_t cached; // tokens of the prompt that need no computing
    md_status status;
    md_error *err;
} answer;

// ---- showing ---------------------------------------------------------------------------------------------------

// Writes text; to a terminal without control characters, which a model must not send there. A piece holds whole
// characters, so the two bytes of U+0080 to U+009F are together.
static bool show(FILE *stream, bool terminal, const char *text, size_t n) {
    if (!terminal) return fwrite(text, 1, n, stream) == n && fflush(stream) == 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        bool high = c == 0xC2 && next >= 0x80 && next < 0xA0;
        bool control = high || c == 0x7F || (c < 0x20 && c != '\n' && c != '\t');
        i += high;
        if (putc(control ? '?' : c, stream) == EOF) return false;
    }
    return fflush(stream) == 0;
}

static void begin_thinking(answer *a) {
    fputs(md_term_colour(STDERR_FILENO) ? "\033[2m" : "[thinking]\n", stderr);
    a->thinking = true;
}

static void end_thinking(answer *a) {
    if (!a->thinking) return;
    fputs(md_term_colour(STDERR_FILENO) ? "\033[0m\n\n" : "\n[answer]\n", stderr);
    fflush(stderr);
    a->thinking = false;
}

static md_status on_text(void *user, bool reasoning, const char *text, size_t n) {
    answer *a = user;
    if (md_buf_append(reasoning ? &a->reasoning : &a->content, text, n) != MD_OK)
        return md_fail(a->err, MD_E_MEMORY, "an answer of more than %d bytes, or memory ran out", MAX_ANSWER);
    if (reasoning) {
        if (!a->chat->show_thinking) return MD_OK;
        if (!a->thinking) begin_thinking(a);
        show(stderr, md_term_stderr(), text, n);
        return MD_OK;
    }
    end_thinking(a);
    if (md_term_stdout() ? !show(stdout, true, text, n) : !md_out_write(text, n)) a->chat->unread = true;
    a->last = text[n - 1];
    return MD_OK;
}

static bool on_piece(void *user, const md_piece *piece) {
    answer *a = user;
    md_progress_clear(&a->progress);
    a->status = md_reasoning_feed(&a->split, piece->text, piece->size, a->err);
    return a->status == MD_OK && !a->chat->unread && !md_interrupted();
}

static bool on_prefill(void *user, uint32_t done, uint32_t total) {
    answer *a = user;
    if (total > a->cached + LONG_PROMPT) md_progress_draw(&a->progress, (double)done / total);
    return !md_interrupted();
}

// ---- tokens ----------------------------------------------------------------------------------------------------

// The conversation's tokens: *ids for md_free. *opened: the prompt ends inside the model's thinking.
static md_status encode(const md_chat *chat, bool to_answer, uint32_t **ids, size_t *n, bool *opened, md_error *err) {
    md_chat_prompt prompt;
    MD_TRY(md_chat_format_render(&chat->format, chat->messages, NULL, chat->variables, to_answer, &prompt, err));
    *opened = md_reasoning_prompt_opens(prompt.text, prompt.size);
    // The template writes BOS itself where the model wants one.
    md_status status =
        md_encode_spans(md_model_tokenizer(chat->model), prompt.spans, prompt.span_count, false, ids, n, err);
    md_chat_prompt_free(&prompt);
    MD_TRY(status);
    return md_check_ids(chat->model, *ids, *n, err);
}

md_status md_chat_count(const md_chat *chat, size_t *tokens, md_error *err) {
    uint32_t *ids = NULL;
    bool opened;
    *tokens = 0;
    if (json_array_size(chat->messages) == 0) return MD_OK;
    MD_TRY(encode(chat, false, &ids, tokens, &opened, err));
    // Where the cache holds this conversation, what the template writes behind the last answer is not there yet; nor is
    // the answer's last token, whose place is taken all the same.
    uint32_t held = md_session_position(chat->session);
    if (held && md_session_reusable(chat->session, ids, *tokens) == held)
        *tokens = held + (held < md_session_context(chat->session));
    md_free(ids);
    return MD_OK;
}

// What to do about a full context, for the end of a sentence.
static void advice(const md_chat *chat, char *out, size_t size) {
    uint32_t have = md_session_context(chat->session), most = chat->info.context;
    if (have < most)
        snprintf(out, size, "/clear begins anew; or /save FILE, start again with -c N (up to %" PRIu32 "), /load FILE",
                 most);
    else
        snprintf(out, size, "/clear begins anew (%" PRIu32 " is all this model has; /save FILE keeps the text)", most);
}

static void report(const md_chat *chat, const md_result *result) {
    char todo[160];
    bool colour = md_term_colour(STDERR_FILENO);
    uint32_t context = md_session_context(chat->session);
    uint64_t used = (uint64_t)result->prompt_tokens + result->completion_tokens;
    if (used > context) used = context; // the last token chosen takes no position
    unsigned percent = (unsigned)(used * 100 / context);
    advice(chat, todo, sizeof todo);
    if (result->finish == MD_FINISH_CONTEXT)
        fprintf(stderr, "The context is full (%" PRIu32 " tokens), so the answer was cut off. %s.\n", context, todo);
    if (!chat->person) return;
    double rate = result->completion_tokens > 1 && result->decode_seconds > 0
                      ? (result->completion_tokens - 1) / result->decode_seconds
                      : 0;
    fprintf(stderr, "%s[%s%" PRIu32 " tokens, %.1f tokens/s; context %" PRIu64 " of %" PRIu32 " (%u%%)]%s\n",
            colour ? "\033[2m" : "", result->finish == MD_FINISH_CANCELLED ? "stopped; " : "",
            result->completion_tokens, rate, used, context, percent, colour ? "\033[0m" : "");
    if (result->finish == MD_FINISH_LENGTH) fputs("The answer reached its most tokens (/set tokens N).\n", stderr);
    if (percent >= NEARLY_FULL && result->finish != MD_FINISH_CONTEXT)
        fprintf(stderr, "The context is nearly full. %s.\n", todo);
}

// ---- turns -----------------------------------------------------------------------------------------------------

static md_status keep(md_chat *chat, const answer *a, md_error *err) {
    MD_TRY(md_chat_add(chat, "assistant", md_buf_str(&a->content), a->content.size, err));
    if (!a->reasoning.size) return MD_OK;
    json_t *message = json_array_get(chat->messages, json_array_size(chat->messages) - 1);
    json_t *text = json_stringn(md_buf_str(&a->reasoning), a->reasoning.size);
    return json_object_set_new(message, "reasoning_content", text) == 0 ? MD_OK
                                                                        : md_fail(err, MD_E_MEMORY, "out of memory");
}

static md_status generate(md_chat *chat, answer *a, const uint32_t *ids, size_t n, md_result *result, md_error *err) {
    md_generation_params params = {.max_tokens = (uint32_t)chat->tokens.value,
                                   .stop = chat->sampling.stop.items,
                                   .stop_count = chat->sampling.stop.count,
                                   .progress = on_prefill,
                                   .progress_user = a};
    md_sampling_from_args(chat->model, &chat->sampling, &params.sampling);
    params.sampling.seed += chat->attempts; // another answer each time, and the whole session can be repeated
    a->cached = md_session_reusable(chat->session, ids, n);
    md_status status = md_generate(chat->session, ids, n, &params, on_piece, a, result, err);
    md_progress_clear(&a->progress);
    if (status == MD_OK) status = a->status;
    if (status == MD_OK) status = md_reasoning_finish(&a->split, err);
    bool in_thinking = a->thinking;
    end_thinking(a);
    if (a->last && a->last != '\n') md_out_write("\n", 1);
    // Whoever reads the answers of a pipe sees that there was one, also where all of it was hidden thinking.
    if (!a->last && !in_thinking && !chat->person && status == MD_OK && !md_interrupted()) md_out_write("\n", 1);
    return status;
}

md_status md_chat_answer(md_chat *chat, bool *said, md_error *err) {
    uint32_t *ids = NULL;
    size_t n = 0;
    bool opened = false;
    char todo[160];
    md_result result = {0};
    answer a = {.chat = chat, .progress = {.label = "reading the conversation"}, .err = err};
    uint32_t context = md_session_context(chat->session);
    *said = false;
    MD_TRY(encode(chat, true, &ids, &n, &opened, err));
    if (n >= context) {
        md_free(ids);
        advice(chat, todo, sizeof todo);
        return md_fail(err, MD_E_CONTEXT,
                       "The context is full: with this message the conversation has %zu tokens, and there is room for "
                       "%" PRIu32 ". %s.",
                       n, context, todo);
    }
    md_reasoning_init(&a.split, opened, on_text, &a);
    md_buf_init(&a.content, MAX_ANSWER);
    md_buf_init(&a.reasoning, MAX_ANSWER);
    md_status status = n ? generate(chat, &a, ids, n, &result, err)
                         : md_fail(err, MD_E_USAGE, "the chat template makes an empty prompt of the conversation");
    bool cancelled = result.finish == MD_FINISH_CANCELLED;
    if (status == MD_OK && !(cancelled && a.content.size == 0)) {
        status = keep(chat, &a, err);
        *said = status == MD_OK;
        chat->attempts += *said;
    }
    if (status == MD_OK) report(chat, &result);
    md_buf_free(&a.content);
    md_buf_free(&a.reasoning);
    md_reasoning_free(&a.split);
    md_free(ids);
    return status;
}

md_status md_chat_say(md_chat *chat, const char *text, size_t size, md_error *err) {
    bool said;
    size_t before = json_array_size(chat->messages);
    MD_TRY(md_chat_add(chat, "user", text, size, err));
    chat->attempts = 0;
    md_status status = md_chat_answer(chat, &said, err);
    while (!said && json_array_size(chat->messages) > before)
        json_array_remove(chat->messages, json_array_size(chat->messages) - 1);
    return status;
}
