// Splits a streamed answer into reasoning ("<think>...</think>") and content.
//
// The opening mark counts only at the start of the answer (after white space); a later one is content. White space next
// to the marks belongs to neither side. An answer that ends inside the marks is all reasoning. Pieces may be cut
// anywhere, also inside a mark: the events put together are the same for every cutting.
//
// Thread rule: one splitter is used by one thread at a time.
#ifndef MD_CHAT_REASONING_H
#define MD_CHAT_REASONING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

// Called with text (UTF-8 when the input is; not NUL-terminated; never empty). A status other than MD_OK ends the feed
// with it.
typedef md_status (*md_reasoning_sink)(void *user, bool reasoning, const char *text, size_t n);

typedef enum md_reasoning_state {
    MD_REASONING_START,  // nothing but white space yet: the opening mark may come
    MD_REASONING_OPEN,   // just after the opening mark: white space is dropped
    MD_REASONING_INSIDE, // in the reasoning
    MD_REASONING_CLOSED, // just after the closing mark: white space is dropped
    MD_REASONING_CONTENT // everything is content from here on
} md_reasoning_state;

typedef struct md_reasoning {
    md_reasoning_state state;
    md_buf held; // owned: white space and the possible beginning of a mark
    md_reasoning_sink sink;
    void *user; // borrowed
} md_reasoning;

// `opened`: the prompt already ended with "<think>", so the answer starts inside (md_reasoning_prompt_opens tells).
void md_reasoning_init(md_reasoning *split, bool opened, md_reasoning_sink sink, void *user);
void md_reasoning_free(md_reasoning *split);

md_status md_reasoning_feed(md_reasoning *split, const char *text, size_t n, md_error *err);
md_status md_reasoning_finish(md_reasoning *split, md_error *err); // emits what is still held

// True when a prompt's last mark is an opening one with only white space after it.
bool md_reasoning_prompt_opens(const char *prompt, size_t n);

#endif
