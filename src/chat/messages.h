// Messages and tools as OpenAI's chat API carries them: checked, and brought to the form that chat templates expect.
//
// Messages of errors begin with the path of the member and ": ", for example
// "messages[2].content: expected a string or an array of parts, found a number", so that a server can split off
// OpenAI's `param`. Members that are not known are kept in the result, since templates may use them.
#ifndef MD_CHAT_MESSAGES_H
#define MD_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

// Checks `messages` and makes the copy that a template renders (*out, a new reference):
// - role: system, developer, user, assistant, tool, or function. `developer` becomes `system` unless keep_developer.
// - content: a string, an array of {"type": "text", "text": ...} parts (joined without a separator; other part types
//   are MD_E_UNSUPPORTED), or, for an assistant with tool_calls, null or absent (becomes "").
// - tool_calls (assistant): an array of {"id", "type": "function", "function": {"name", "arguments"}}; `arguments` as a
//   JSON string becomes the object it holds, since templates walk it; empty text becomes {}. null or [] is dropped.
// - reasoning_content (assistant): a string; null is dropped; the name `reasoning` is taken for it when it is absent.
// - tool_call_id, name: strings.
// MD_E_USAGE for everything a client got wrong (400), MD_E_UNSUPPORTED, MD_E_MEMORY.
md_status md_chat_messages_check(const json_t *messages, bool keep_developer, json_t **out, md_error *err);

// Checks OpenAI's `tools`: an array of at most 256 {"type": "function", "function": {"name", "description",
// "parameters"}}, names of 1 to 64 of [A-Za-z0-9_-.] and none twice. *out is a new reference; NULL for null or an empty
// array.
md_status md_chat_tools_check(const json_t *tools, json_t **out, md_error *err);

// The function of that name in checked tools (borrowed: {"name", "description", "parameters"}); NULL where none.
const json_t *md_chat_tool_find(const json_t *tools, const char *name, size_t n);

#endif
