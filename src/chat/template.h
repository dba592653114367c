// A chat template: conversation -> prompt text, as transformers' apply_chat_template renders it (Jinja2 with
// trim_blocks, lstrip_blocks and loop controls; immutable sandbox), with a budget on everything a template can do.
//
// Trust. A prompt is text plus spans that say where each byte came from. A span has `parse` true when its bytes were
// written by the template: the text between its tags, its string constants, the special tokens, and what it computed
// from them. Whatever comes from the conversation, the tools or the client's variables has `parse` false, also after
// string operations (jinja/value.h has the rule). Give the spans to md_tokenizer_encode_spans with add_special false:
// control tokens are then recognised in the template's own text only, so a user who writes "<|im_end|>" gets the plain
// characters; words may still cross a span's border. The template writes BOS itself where the model wants one, so
// add_special must stay false (one BOS, never two).
//
// Thread rule: a compiled template is immutable; any number of threads may render it at the same time.
#ifndef MD_CHAT_TEMPLATE_H
#define MD_CHAT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "text/tokenizer.h" // md_text_span

typedef struct md_chat_template md_chat_template;

// Compiles `n` bytes of template source (UTF-8, at most 256 KiB). `name` names it in messages ("chat_template.jinja").
// MD_E_FORMAT for a syntax error, MD_E_UNSUPPORTED for Jinja that is not modelled (include, import, extends, block,
// recursive loops); the message has the line. *out is owned by the caller; NULL on failure.
md_status md_chat_template_compile(const char *source, size_t n, const char *name, md_chat_template **out,
                                   md_error *err);
void md_chat_template_free(md_chat_template *chat_template); // NULL is fine

// True when `word` occurs in the source: what a template can do ("enable_thinking", "tools", "developer").
bool md_chat_template_mentions(const md_chat_template *chat_template, const char *word);

// The bounds of one rendering. A bound that is passed gives MD_E_CONTEXT with the line.
typedef struct md_chat_limits {
    uint64_t steps;      // work: nodes evaluated, items iterated, and string bytes handled / 64
    size_t memory_bytes; // all values made while rendering
    size_t output_bytes;
    int depth; // nested evaluations, macro calls among them
} md_chat_limits;

// Bounds that any published template stays far below, growing with the size of the conversation (bytes of JSON text).
md_chat_limits md_chat_limits_for(size_t input_bytes);

// What to render. JSON is borrowed and not changed.
typedef struct md_chat_render {
    const json_t *messages;     // array, as md_chat_messages_check makes it
    const json_t *tools;        // array, as md_chat_tools_check makes it; NULL: none
    const json_t *variables;    // object: the client's chat_template_kwargs (enable_thinking, ...); NULL: none
    const json_t *tokens;       // object of strings: bos_token, eos_token, ...; the template may print them; NULL: none
    bool add_generation_prompt; // end with the head of the assistant's turn
    int64_t now;                // seconds since 1970, what strftime_now formats (in UTC); 0 or less: the clock
    const md_chat_limits *limits; // NULL: md_chat_limits_for(size of the input)
} md_chat_render;

typedef struct md_chat_prompt {
    char *text; // owned; UTF-8, NUL-terminated, may hold NULs
    size_t size;
    md_text_span *spans; // owned; in order, without gaps or empty spans; they point into `text`
    size_t span_count;
} md_chat_prompt;

// MD_E_USAGE: the template refused the conversation (raise_exception; the message is the template's own), or a variable
// has a name that is not the client's to set. MD_E_FORMAT: an error in the template. MD_E_CONTEXT: over a limit.
// MD_E_MEMORY. *out is empty on failure.
md_status md_chat_template_render(const md_chat_template *chat_template, const md_chat_render *render,
                                  md_chat_prompt *out, md_error *err);
void md_chat_prompt_free(md_chat_prompt *prompt);

#endif
