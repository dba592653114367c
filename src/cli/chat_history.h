// What was typed at the terminal, kept from one `megadecode chat` to the next.
//
// The file: MEGADECODE_HISTORY (empty: none is kept), else $XDG_STATE_HOME/megadecode/history, else
// ~/.local/state/megadecode/history; in libedit's format, readable by its owner only, at most MD_HISTORY_ENTRIES lines.
// Chats that run at once each add their own lines when they end, one after the other. One thread.
#ifndef MD_CLI_CHAT_HISTORY_H
#define MD_CLI_CHAT_HISTORY_H

#include <histedit.h>
#include <stdbool.h>

#include "base/status.h"

enum { MD_HISTORY_ENTRIES = 1000, MD_HISTORY_LINE_MAX = 1 << 14, MD_HISTORY_FILE_MAX = 1 << 25 };

typedef struct md_chat_history {
    History *entries; // for the editor
    History *typed;   // what this chat adds
    char *path;       // owned; NULL: nothing is kept
} md_chat_history;

// keep false: no file is read or written. MD_E_MEMORY; a file that can't be read is a warning, and stays as it is.
md_status md_chat_history_open(md_chat_history *history, bool keep, md_error *err);
void md_chat_history_add(md_chat_history *history, const char *line); // lines beyond MD_HISTORY_LINE_MAX are not kept
void md_chat_history_close(md_chat_history *history);                 // writes the file; what fails is a warning

#endif
