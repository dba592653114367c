// A model's way of writing conversations: its chat template with the special tokens the template may print.
//
// Thread rule: immutable once it is open; any number of threads may render with it.
#ifndef MD_CHAT_FORMAT_H
#define MD_CHAT_FORMAT_H

#include <jansson.h>

#include "base/status.h"
#include "chat/template.h"

typedef struct md_chat_format {
    md_chat_template *chat_template; // owned
    char *source;                    // owned: its text
    json_t *tokens;                  // owned: an object of bos_token, eos_token, pad_token, unk_token, as far as known
} md_chat_format;

// With the template in the file `path`, or the snapshot's own where `path` is NULL. MD_E_UNSUPPORTED: it has none; and
// what reading the file and md_chat_template_compile give. *out is empty on failure.
md_status md_chat_format_open(md_chat_format *out, const md_tokenizer *tokenizer, const char *path, md_error *err);
void md_chat_format_close(md_chat_format *format); // an empty one is fine

// Checks the messages (OpenAI's, md_chat_messages_check) and renders them. tools: as md_chat_tools_check makes them;
// variables: chat_template_kwargs; either may be NULL. Errors as these functions and md_chat_template_render.
md_status md_chat_format_render(const md_chat_format *format, const json_t *messages, const json_t *tools,
                                const json_t *variables, bool add_generation_prompt, md_chat_prompt *out,
                                md_error *err);

#endif
