// What the user of `megadecode chat` writes, message by message: from a terminal with line editing and history, or from
// a pipe line by line.
//
// A message is one line. A line that ends in `\` goes on in the next one. A line that begins with `"""` begins a block
// that goes on to a line ending in `"""` (or to the end of the input); in it nothing has a special meaning.
//
// One thread.
#ifndef MD_CLI_CHAT_INPUT_H
#define MD_CLI_CHAT_INPUT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct md_chat_input md_chat_input;

typedef struct md_chat_message {
    md_buf text; // owned
    bool block;  // written as a block: never a command
} md_chat_message;

typedef enum md_chat_read {
    MD_CHAT_READ_MESSAGE,
    MD_CHAT_READ_CLEARED, // Ctrl-C took back what was typed
    MD_CHAT_READ_END      // end of the input, Ctrl-D, SIGTERM
} md_chat_read;

// Edits lines where standard input is a terminal (prompts and echo go to stderr), with the lines of earlier chats where
// `keep` (cli/chat_history.h); reads plain lines otherwise. Sets the locale's LC_CTYPE to one with UTF-8.
md_status md_chat_input_open(bool keep, md_chat_input **out, md_error *err);
void md_chat_input_close(md_chat_input *input); // NULL is fine
bool md_chat_input_edits(const md_chat_input *input);

// Reads the next message into *message, whose text is initialised by the caller. MD_E_USAGE: more bytes than the
// buffer's maximum; MD_E_IO.
md_status md_chat_input_read(md_chat_input *input, md_chat_message *message, md_chat_read *out, md_error *err);

#endif
