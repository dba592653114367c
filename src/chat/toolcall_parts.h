// Inside of the tool call parser: what toolcall.c and the readers of the styles share.
#ifndef MD_CHAT_TOOLCALL_PARTS_H
#define MD_CHAT_TOOLCALL_PARTS_H

#include "base/buf.h"
#include "chat/toolcall.h"

// What a reader found at its place in the text.
typedef enum md_tc_result {
    MD_TC_MORE, // cannot tell before more text (or the end) is there
    MD_TC_OK,   // took something; go on
    MD_TC_BAD,  // no call after all: the text up to `pos` becomes content
    MD_TC_DONE  // the call is complete and ends at `pos`
} md_tc_result;

typedef enum md_tc_state {
    MD_TC_TEXT, // looking for a call
    MD_TC_HEAD, // after a call's mark
    MD_TC_BODY, // XML: between parameters
    MD_TC_VALUE_START,
    MD_TC_VALUE,
    MD_TC_ARGS,  // JSON: in the arguments' object, which is passed on as it comes
    MD_TC_TAIL,  // JSON: after that object
    MD_TC_PLAIN, // LLAMA3: the answer is no call; everything is content
} md_tc_state;

struct md_toolcall_parser {
    md_toolcall_style style;
    json_t *tools; // owned reference; NULL: any name
    md_toolcall_sink sink;
    void *user;
    md_tc_state state;
    md_buf held;      // text not settled yet; inside a call: its whole text, with the white space before its mark
    size_t pos;       // inside a call: how much of `held` is read
    size_t scan;      // how far beyond `pos` has been searched already
    size_t index;     // of the current or next call
    bool begun;       // BEGIN was sent for the current call
    bool finished;    // no more text will come
    md_status status; // of the sink, or of a failed allocation; sticky
    // XML
    size_t name_at, name_size; // the function's name in `held`, by which its schema is found
    bool cdata;
    bool is_string; // the value goes out as characters while it comes in
    json_t *seen;   // owned: the parameters so far (name: true), which also says whether a comma is due
    md_buf key;     // the current parameter's name
    // JSON: where the object being read starts, and the scanner's place in it
    size_t object;
    size_t depth;
    bool in_string, escaped;
};

md_tc_result md_tc_read_xml(md_toolcall_parser *p);
md_tc_result md_tc_read_json(md_toolcall_parser *p);

// The tool's declared parameters may say what a name is allowed to be; false where it is none of the tools.
bool md_tc_known_name(const md_toolcall_parser *p, const char *name, size_t n);
bool md_tc_emit(md_toolcall_parser *p, md_toolcall_event_kind kind, const char *text, size_t n); // false: failed

static inline bool md_tc_is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
static inline size_t md_tc_skip_space(const md_toolcall_parser *p, size_t pos) {
    while (pos < p->held.size && md_tc_is_space(p->held.data[pos])) pos++;
    return pos;
}
// OK: `word` is at pos. MORE: the text ends within it. BAD: something else is there.
md_tc_result md_tc_match(const md_toolcall_parser *p, size_t pos, const char *word);

#endif
