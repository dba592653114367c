// One conversation of `megadecode chat`: what was said, the session that computed it, and how answers are made.
//
// The conversation is kept as OpenAI's messages and rendered anew for every answer; the session reuses the tokens it
// has in common with the last time, so an answer costs its own message only.
//
// One thread. Data (answers) goes to stdout; everything for people goes to stderr.
#ifndef MD_CLI_CHAT_STATE_H
#define MD_CLI_CHAT_STATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "chat/format.h"
#include "cli/shared.h"

typedef struct md_chat {
    md_model *model;
    md_model_info info;
    md_session *session;
    md_chat_format format;
    json_t *messages;          // owned: an array; the first may be the system's
    json_t *variables;         // owned: what the template is given (enable_thinking)
    md_sampling_args sampling; // as given on the command line, then changed by /set
    json_t *stops;             // owned: an array that holds the stop strings /set added
    md_opt_count tokens;       // most tokens of an answer
    uint64_t attempts;         // answers that the last message has had with this seed
    char *file;                // owned: where it was saved or loaded last; NULL: nowhere
    bool person;               // somebody types at a terminal: hints and figures are shown
    bool show_thinking;
    bool unread; // stdout takes no more: nothing is left to do
} md_chat;

// ---- turns (chat_turn.c) ---------------------------------------------------------------------------------------

// Adds the user's message and answers it. Where there is no answer (a failure, or Ctrl-C before its first word) the
// message is taken back. MD_E_CONTEXT: no room; the message says what to do. MD_E_USAGE: text that is no UTF-8, or
// messages the template refuses.
md_status md_chat_say(md_chat *chat, const char *text, size_t size, md_error *err);

// Answers the conversation as it is; its last message is the user's. *said: an answer was added.
md_status md_chat_answer(md_chat *chat, bool *said, md_error *err);

// Tokens of the context that the conversation takes, 0 when it is empty: as many as after its last answer, or, where it
// has to be computed anew (after /load, say), as the template renders it, which may be more than there is room for.
md_status md_chat_count(const md_chat *chat, size_t *tokens, md_error *err);

// ---- messages (chat_messages.c) --------------------------------------------------------------------------------

md_status md_chat_add(md_chat *chat, const char *role, const char *text, size_t size, md_error *err);
const char *md_chat_last_role(const md_chat *chat); // "" when there is no message
const char *md_chat_system(const md_chat *chat);    // NULL: there is none
// "" takes it away.
md_status md_chat_set_system(md_chat *chat, const char *text, md_error *err);
void md_chat_clear(md_chat *chat); // all but the system's message
// OpenAI's messages as a JSON array, the file whole or not at all. MD_E_USAGE where there is a file already, but for
// the one that this conversation comes from or went to last, and with `replace`.
md_status md_chat_save(md_chat *chat, const char *path, bool replace, md_error *err);
// Such a file, or an object with "messages". The conversation stays as it was where it fails.
md_status md_chat_load(md_chat *chat, const char *path, md_error *err);

// ---- commands (chat_commands.c) --------------------------------------------------------------------------------

enum { MD_CHAT_ANSWER_OPTIONS = 1 };
extern const md_option md_chat_answer_options[MD_CHAT_ANSWER_OPTIONS]; // of an md_opt_count

// A line that begins with '/'. *leave: it was /quit.
md_status md_chat_command(md_chat *chat, const char *line, bool *leave, md_error *err);

// Switches the template's thinking. MD_E_UNSUPPORTED: it has no switch.
md_status md_chat_think(md_chat *chat, bool on, md_error *err);

#endif
