// The grammar of tool calls, in the way the model writes them (chat/toolcall.h).
#ifndef MD_SERVER_TOOL_GRAMMAR_H
#define MD_SERVER_TOOL_GRAMMAR_H

#include "chat/toolcall.h"
#include "server/schema_json.h"

typedef struct md_call_rules {
    md_toolcall_style style;
    const json_t *tools; // as md_chat_tools_check makes them
    const char *only;    // the one function that may be called; NULL: any of them
    bool several;        // more than one call
    bool free;           // text before them and instead of them; not for MD_TOOLCALL_LLAMA3
} md_call_rules;

// Appends code that reads one call, or several; where `free` says so, text in which what begins as a call is one.
// `parts`: of the form md_call_text_form gives. The arguments satisfy the function's parameters; where these can't be
// expressed, the request is refused for a "strict" function, and the arguments of others are any object, or in XML any
// text. MD_E_UNSUPPORTED also where the style has no grammar.
md_status md_calls_emit(md_grammar *grammar, const md_json_parts *parts, const md_call_rules *rules, md_error *err);

md_text_form md_call_text_form(md_toolcall_style style);

#endif
