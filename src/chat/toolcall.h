// Tool calls in the text of an answer: found, taken apart and streamed as OpenAI's deltas.
//
// Styles:
// - XML (MiniCPM5): <function name="N"><param name="K">V</param></function>, V perhaps in <![CDATA[...]]>. A value's
//   JSON type follows the tool's schema (chat/param_types.h): "string" keeps the characters; any other type is read as
//   JSON (or Python's True, False, None) and stays a string where it is none; without a schema a number, true, false,
//   null, an array or an object is taken as that, everything else as a string.
// - HERMES (Qwen, SmolLM3 and others): <tool_call>{"name": "N", "arguments": {...}}</tool_call>.
// - LLAMA3: the answer as a whole is {"name": "N", "parameters": {...}} (perhaps after <|python_tag|>; several are
//   separated by ";").
//
// Streaming: text that may be the beginning of a call is held back. A call begins (BEGIN) once its head is complete and
// its name is one of the tools; argument text follows in ARGS events, which put together are one JSON object; END
// closes it. White space between content and a call, and between calls, is dropped.
// No text is lost: where a call turns out malformed or is cut off by the end, END has valid = false and the whole text
// of the call comes out as content too. md_toolcall_parse drops such calls and keeps that content.
// The events put together are the same for every cutting into pieces. The text must be valid UTF-8 (a piece may end
// inside a character, and then so may an event).
//
// Thread rule: one parser is used by one thread at a time.
#ifndef MD_CHAT_TOOLCALL_H
#define MD_CHAT_TOOLCALL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "chat/template.h"

typedef enum md_toolcall_style {
    MD_TOOLCALL_NONE, // everything is content
    MD_TOOLCALL_XML,
    MD_TOOLCALL_HERMES,
    MD_TOOLCALL_LLAMA3
} md_toolcall_style;

// The style that a chat template teaches its model.
md_toolcall_style md_toolcall_style_of(const md_chat_template *chat_template);

typedef enum md_toolcall_event_kind {
    MD_TOOLCALL_CONTENT, // text
    MD_TOOLCALL_BEGIN,   // text = the function's name
    MD_TOOLCALL_ARGS,    // text = the next piece of the arguments' JSON
    MD_TOOLCALL_END      // valid
} md_toolcall_event_kind;

typedef struct md_toolcall_event {
    md_toolcall_event_kind kind;
    size_t index; // of the call, from 0 (not for CONTENT)
    const char *text;
    size_t size;
    bool valid;
} md_toolcall_event;

// A status other than MD_OK ends the feed with it.
typedef md_status (*md_toolcall_sink)(void *user, const md_toolcall_event *event);

typedef struct md_toolcall_parser md_toolcall_parser;

// `tools`: as md_chat_tools_check makes them (kept by reference); NULL: every name is taken.
md_status md_toolcall_parser_new(md_toolcall_style style, const json_t *tools, md_toolcall_sink sink, void *user,
                                 md_toolcall_parser **out, md_error *err);
void md_toolcall_parser_free(md_toolcall_parser *parser);
md_status md_toolcall_parser_feed(md_toolcall_parser *parser, const char *text, size_t n, md_error *err);
md_status md_toolcall_parser_finish(md_toolcall_parser *parser, md_error *err);

// A whole answer at once.
typedef struct md_toolcall {
    char *name;      // owned
    char *arguments; // owned: a JSON object
} md_toolcall;
typedef struct md_toolcall_result {
    char *content; // owned; never NULL on MD_OK
    size_t content_size;
    md_toolcall *calls; // owned
    size_t call_count;
} md_toolcall_result;
md_status md_toolcall_parse(md_toolcall_style style, const json_t *tools, const char *text, size_t n,
                            md_toolcall_result *out, md_error *err);
void md_toolcall_result_free(md_toolcall_result *result);

#endif
