// The commands of `megadecode chat`: lines that begin with '/'.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/chat_state.h"

const md_option md_chat_answer_options[MD_CHAT_ANSWER_OPTIONS] = {
    {'n', "tokens", "N", MD_OPT_COUNT, 0, 0, 4294967295.0,
     "an answer has at most N tokens; 0, the default: until the context is full"},
};

enum { SAMPLING_OPTIONS = sizeof md_sampling_options_table / sizeof *md_sampling_options_table };

typedef struct command {
    const char *name, *usage, *help;
    md_status (*run)(md_chat *chat, const char *rest, md_error *err); // rest: what follows the name, without spaces
} command;

enum { COMMANDS = 11 };
static const command commands[COMMANDS];

// ---- what was said ---------------------------------------------------------------------------------------------

static md_status run_clear(md_chat *chat, const char *rest, md_error *err) {
    if (*rest) return md_fail(err, MD_E_USAGE, "/clear: found \"%.60s\", expected nothing", rest);
    md_chat_clear(chat);
    fputs(md_chat_system(chat) ? "The conversation is empty; the system prompt stays.\n"
                               : "The conversation is empty.\n",
          stderr);
    return MD_OK;
}

static md_status run_system(md_chat *chat, const char *rest, md_error *err) {
    if (*rest) return md_chat_set_system(chat, strcmp(rest, "\"\"") == 0 ? "" : rest, err);
    const char *system = md_chat_system(chat);
    fprintf(stderr, "%s%s\n", system ? "" : "There is no system prompt.", system ? system : "");
    return MD_OK;
}

// Without a name: to the file it was saved to or loaded from.
static md_status save(md_chat *chat, const char *name, bool replace, md_error *err) {
    const char *path = *name ? name : chat->file;
    if (!path) return md_fail(err, MD_E_USAGE, "/save: expected a file's name");
    if (!json_array_size(chat->messages)) return md_fail(err, MD_E_USAGE, "/save: the conversation is empty");
    char *copy = strdup(path); // chat->file changes
    if (!copy) return md_fail(err, MD_E_MEMORY, "out of memory");
    md_status status = md_chat_save(chat, copy, replace, err);
    if (status == MD_OK) fprintf(stderr, "%zu messages saved to %s.\n", json_array_size(chat->messages), copy);
    free(copy);
    return status;
}

static md_status run_save(md_chat *chat, const char *rest, md_error *err) { return save(chat, rest, false, err); }
static md_status run_save_over(md_chat *chat, const char *rest, md_error *err) { return save(chat, rest, true, err); }

static md_status run_load(md_chat *chat, const char *rest, md_error *err) {
    if (!*rest) return md_fail(err, MD_E_USAGE, "/load: expected a file's name");
    MD_TRY(md_chat_load(chat, rest, err));
    fprintf(stderr, "%zu messages loaded from %s.\n", json_array_size(chat->messages), rest);
    if (strcmp(md_chat_last_role(chat), "user") == 0)
        fputs("The last one has no answer: /regenerate makes one.\n", stderr);
    return MD_OK;
}

// Answers the last user's message again, or for the first time. Without an answer the old one stays.
static md_status run_regenerate(md_chat *chat, const char *rest, md_error *err) {
    bool said = false;
    if (*rest) return md_fail(err, MD_E_USAGE, "/regenerate: found \"%.60s\", expected nothing", rest);
    size_t n = json_array_size(chat->messages);
    json_t *old = NULL;
    if (strcmp(md_chat_last_role(chat), "assistant") == 0) {
        old = json_incref(json_array_get(chat->messages, n - 1));
        json_array_remove(chat->messages, n - 1);
    }
    md_status status = MD_OK;
    if (strcmp(md_chat_last_role(chat), "user") == 0)
        status = md_chat_answer(chat, &said, err);
    else
        status = md_fail(err, MD_E_USAGE, "/regenerate: there is no message to answer");
    if (old && !said) json_array_append(chat->messages, old);
    json_decref(old);
    return status;
}

// ---- how answers are made --------------------------------------------------------------------------------------

static void print_option(const md_option *option, const void *base) {
    const void *where = (const char *)base + option->offset;
    char value[64] = "not set";
    if (option->type == MD_OPT_COUNT && ((const md_opt_count *)where)->given)
        snprintf(value, sizeof value, "%" PRIu64, ((const md_opt_count *)where)->value);
    if (option->type == MD_OPT_NUMBER && ((const md_opt_number *)where)->given)
        snprintf(value, sizeof value, "%.15g", ((const md_opt_number *)where)->value);
    if (option->type == MD_OPT_LIST) snprintf(value, sizeof value, "%zu texts", ((const md_opt_list *)where)->count);
    fprintf(stderr, "  %-18s %-18s %s\n", option->name, value, option->help);
}

// The value of a list outlives the line: the conversation owns it.
static md_status set_stop(md_chat *chat, const char *value, md_error *err) {
    if (!*value) {
        chat->sampling.stop.count = 0;
        return MD_OK;
    }
    MD_TRY(md_utf8_check("stop", value, strlen(value), MD_E_USAGE, err));
    if (strlen(value) > MD_STOP_SIZE_MAX)
        return md_fail(err, MD_E_USAGE, "stop: found %zu bytes, expected at most %d", strlen(value), MD_STOP_SIZE_MAX);
    json_t *text = json_string(value);
    if (!text || json_array_append_new(chat->stops, text) != 0) return md_fail(err, MD_E_MEMORY, "out of memory");
    return md_option_set(md_sampling_options_table, SAMPLING_OPTIONS, &chat->sampling, "stop", json_string_value(text),
                         err);
}

static md_status run_set(md_chat *chat, const char *rest, md_error *err) {
    char name[32];
    size_t n = strcspn(rest, " \t");
    if (!*rest) {
        for (size_t i = 0; i < SAMPLING_OPTIONS; i++) print_option(&md_sampling_options_table[i], &chat->sampling);
        print_option(md_chat_answer_options, &chat->tokens);
        return MD_OK;
    }
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), rest);
    rest += n;
    rest += strspn(rest, " \t");
    if (strcmp(name, "stop") == 0) return set_stop(chat, rest, err);
    if (strcmp(name, md_chat_answer_options->name) == 0)
        return md_option_set(md_chat_answer_options, MD_CHAT_ANSWER_OPTIONS, &chat->tokens, name, rest, err);
    md_status status = md_option_set(md_sampling_options_table, SAMPLING_OPTIONS, &chat->sampling, name, rest, err);
    if (status != MD_OK) return md_fail_context(err, status, "/set (alone it lists the names and values)");
    if (strcmp(name, "seed") == 0) chat->attempts = 0; // the next answer is this seed's first
    return MD_OK;
}

md_status md_chat_think(md_chat *chat, bool on, md_error *err) {
    if (!md_chat_template_mentions(chat->format.chat_template, "enable_thinking"))
        return md_fail(err, MD_E_UNSUPPORTED, "this model's chat template has no switch for thinking");
    return json_object_set_new(chat->variables, "enable_thinking", json_boolean(on)) == 0
               ? MD_OK
               : md_fail(err, MD_E_MEMORY, "out of memory");
}

static md_status run_think(md_chat *chat, const char *rest, md_error *err) {
    bool on = strcmp(rest, "on") == 0, show = strcmp(rest, "show") == 0;
    if (on || strcmp(rest, "off") == 0) return md_chat_think(chat, on, err);
    if (show || strcmp(rest, "hide") == 0) {
        chat->show_thinking = show;
        return MD_OK;
    }
    if (*rest) return md_fail(err, MD_E_USAGE, "/think: found \"%.60s\", expected on, off, show or hide", rest);
    const json_t *set = json_object_get(chat->variables, "enable_thinking");
    fprintf(stderr, "Thinking is %s and %s.\n",
            !set                ? "as the model's template says"
            : json_is_true(set) ? "on"
                                : "off",
            chat->show_thinking ? "shown" : "hidden");
    return MD_OK;
}

static md_status run_ctx(md_chat *chat, const char *rest, md_error *err) {
    size_t tokens;
    if (*rest) return md_fail(err, MD_E_USAGE, "/ctx: found \"%.60s\", expected nothing", rest);
    MD_TRY(md_chat_count(chat, &tokens, err));
    uint32_t context = md_session_context(chat->session);
    if (tokens > context) {
        fprintf(stderr, "context: too small: %zu tokens in %zu messages, and there is room for %" PRIu32 "\n", tokens,
                json_array_size(chat->messages), context);
        return MD_OK;
    }
    fprintf(stderr, "context: %zu of %" PRIu32 " tokens (%zu%%) in %zu messages; KV cache %.1f MB\n", tokens, context,
            tokens * 100 / context, json_array_size(chat->messages), (double)md_session_kv_bytes(chat->session) * 1e-6);
    return MD_OK;
}

// ---- the list --------------------------------------------------------------------------------------------------

static md_status run_help(md_chat *chat, const char *rest, md_error *err) {
    (void)chat, (void)rest, (void)err;
    for (const command *c = commands; c < commands + COMMANDS; c++) {
        int used = fprintf(stderr, "  /%s %s", c->name, c->usage);
        fprintf(stderr, "%*s%s\n", used < 28 ? 28 - used : 1, "", c->help);
    }
    fputs("A line that ends in \\ goes on in the next one; \"\"\" begins and ends a block of lines.\n"
          "A message that begins with / is written with a space before it.\n"
          "Ctrl-C stops an answer or clears the line; Ctrl-D leaves.\n",
          stderr);
    return MD_OK;
}

static const command commands[COMMANDS] = {
    {"help", "", "this list", run_help},
    {"clear", "", "forget the conversation, but for the system prompt", run_clear},
    {"system", "[TEXT]", "set the system prompt (\"\": none), or show it", run_system},
    {"regenerate", "", "answer the last message again, in another way", run_regenerate},
    {"set", "[NAME VALUE]", "change a setting (temp, seed, tokens, ...), or list them", run_set},
    {"think", "on|off|show|hide", "let the model think, or not; show its thinking, or not", run_think},
    {"ctx", "", "how full the context is", run_ctx},
    {"save", "[FILE]", "write the conversation to a new file, or its own (OpenAI's messages, JSON)", run_save},
    {"save!", "FILE", "the same, and replace what is there", run_save_over},
    {"load", "FILE", "go on with a saved conversation", run_load},
    {"quit", "", "leave (so does Ctrl-D)", NULL},
};

md_status md_chat_command(md_chat *chat, const char *line, bool *leave, md_error *err) {
    const char *name = line + 1;
    size_t n = strcspn(name, " \t\n");
    const char *rest = name + n;
    rest += strspn(rest, " \t\n");
    for (const command *c = commands; c < commands + COMMANDS; c++) {
        if (strlen(c->name) != n || memcmp(c->name, name, n) != 0) continue;
        if (c->run) return c->run(chat, rest, err);
        *leave = true;
        return MD_OK;
    }
    return md_fail(
        err, MD_E_USAGE,
        "no command \"/%.*s\": /help lists them; a message that begins with / is written with a space before "
        "it",
        (int)(n < 40 ? n : 40), name);
}
