// The parser's frame: content, the marks that begin calls, and what becomes of calls that turn out to be none.
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "chat/messages.h"
#include "chat/toolcall_parts.h"

enum {
    MAX_CALL = 16 << 20, // bytes of one call's text
    MAX_PIECE = 1 << 16
};

md_toolcall_style md_toolcall_style_of(const md_chat_template *chat_template) {
    if (md_chat_template_mentions(chat_template, "<function name=")) return MD_TOOLCALL_XML;
    if (md_chat_template_mentions(chat_template, "<tool_call>")) return MD_TOOLCALL_HERMES;
    if (md_chat_template_mentions(chat_template, "<|python_tag|>") ||
        (md_chat_template_mentions(chat_template, "<|eot_id|>") && md_chat_template_mentions(chat_template, "tools")))
        return MD_TOOLCALL_LLAMA3;
    return MD_TOOLCALL_NONE;
}

md_status md_toolcall_parser_new(md_toolcall_style style, const json_t *tools, md_toolcall_sink sink, void *user,
                                 md_toolcall_parser **out, md_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return md_fail(err, MD_E_MEMORY, "out of memory for a tool call parser");
    **out = (md_toolcall_parser){.style = style, .sink = sink, .user = user};
    (*out)->tools = json_incref((json_t *)(uintptr_t)tools);
    md_buf_init(&(*out)->held, MAX_CALL);
    md_buf_init(&(*out)->key, MAX_CALL);
    return MD_OK;
}

void md_toolcall_parser_free(md_toolcall_parser *parser) {
    if (!parser) return;
    json_decref(parser->tools);
    json_decref(parser->seen);
    md_buf_free(&parser->held);
    md_buf_free(&parser->key);
    free(parser);
}

// ---- shared with the readers ----------------------------------------------------------------------------------------

bool md_tc_known_name(const md_toolcall_parser *p, const char *name, size_t n) {
    if (n == 0) return false;
    return !p->tools || md_chat_tool_find(p->tools, name, n) != NULL;
}

bool md_tc_emit(md_toolcall_parser *p, md_toolcall_event_kind kind, const char *text, size_t n) {
    if (p->status != MD_OK) return false;
    if (n == 0) return true;
    if (kind == MD_TOOLCALL_BEGIN) p->begun = true;
    const md_toolcall_event event = {.kind = kind, .index = p->index, .text = text, .size = n};
    p->status = p->sink(p->user, &event);
    return p->status == MD_OK;
}

md_tc_result md_tc_match(const md_toolcall_parser *p, size_t pos, const char *word) {
    for (; *word; word++, pos++) {
        if (pos >= p->held.size) return p->finished ? MD_TC_BAD : MD_TC_MORE;
        if (p->held.data[pos] != *word) return MD_TC_BAD;
    }
    return MD_TC_OK;
}

static void drop(md_toolcall_parser *p, size_t n) {
    memmove(p->held.data, p->held.data + n, p->held.size - n);
    p->held.size -= n;
}

static void content(md_toolcall_parser *p, size_t n) {
    md_tc_emit(p, MD_TOOLCALL_CONTENT, p->held.data, n);
    drop(p, n);
}

static void end_call(md_toolcall_parser *p, bool valid) {
    const md_toolcall_event event = {.kind = MD_TOOLCALL_END, .index = p->index, .text = "", .valid = valid};
    if (p->begun && p->status == MD_OK) p->status = p->sink(p->user, &event);
    p->index += p->begun;
    p->begun = false;
    p->state = MD_TC_TEXT;
}

// ---- content --------------------------------------------------------------------------------------------------------

static const char *mark_of(md_toolcall_style style) { return style == MD_TOOLCALL_XML ? "<function" : "<tool_call>"; }

// Content up to the next mark. White space at its end is held: it is dropped if a call follows.
static md_tc_result read_text(md_toolcall_parser *p) {
    const char *mark = mark_of(p->style);
    size_t space = 0; // start of the white space before i
    for (size_t i = 0; i < p->held.size; i++) {
        md_tc_result here = p->held.data[i] == '<' ? md_tc_match(p, i, mark) : MD_TC_BAD;
        if (here == MD_TC_BAD) {
            if (!md_tc_is_space(p->held.data[i])) space = i + 1;
            continue;
        }
        content(p, space);
        if (here == MD_TC_MORE) return MD_TC_MORE;
        p->state = MD_TC_HEAD;
        p->pos = p->scan = i - space + strlen(mark);
        return MD_TC_OK;
    }
    content(p, p->finished ? p->held.size : space);
    return MD_TC_MORE;
}

// LLAMA3: only an answer (or the rest after a call) that starts with an object can be a call.
static md_tc_result read_llama_text(md_toolcall_parser *p) {
    static const char tag[] = "<|python_tag|>";
    size_t pos = md_tc_skip_space(p, 0);
    if (p->index > 0 && pos < p->held.size && p->held.data[pos] == ';') pos = md_tc_skip_space(p, pos + 1);
    md_tc_result tagged = md_tc_match(p, pos, tag);
    if (tagged == MD_TC_OK) pos = md_tc_skip_space(p, pos + sizeof tag - 1);
    if (pos == p->held.size && !p->finished) return MD_TC_MORE;
    if (tagged == MD_TC_MORE) return MD_TC_MORE;
    if (pos < p->held.size && p->held.data[pos] == '{') {
        p->state = MD_TC_HEAD;
        p->pos = p->scan = pos;
        return MD_TC_OK;
    }
    if (pos == p->held.size && p->index > 0) drop(p, pos); // white space after the last call
    p->state = MD_TC_PLAIN;
    return MD_TC_OK;
}

static md_tc_result step(md_toolcall_parser *p) {
    if (p->state == MD_TC_PLAIN || p->style == MD_TOOLCALL_NONE) {
        content(p, p->held.size);
        return MD_TC_MORE;
    }
    if (p->state == MD_TC_TEXT) return p->style == MD_TOOLCALL_LLAMA3 ? read_llama_text(p) : read_text(p);
    return p->style == MD_TOOLCALL_XML ? md_tc_read_xml(p) : md_tc_read_json(p);
}

static void run(md_toolcall_parser *p) {
    while (p->held.size > 0 && p->status == MD_OK) {
        uint64_t losses = md_json_losses();
        md_tc_result result = step(p);
        if (md_json_losses() != losses && p->status == MD_OK) p->status = MD_E_MEMORY; // what was read may be wrong
        if (result == MD_TC_OK) continue;
        if (result == MD_TC_MORE && !(p->finished && p->state > MD_TC_TEXT && p->state != MD_TC_PLAIN)) break;
        if (result == MD_TC_DONE) {
            end_call(p, true);
            drop(p, p->pos);
            continue;
        }
        // Malformed, or cut off by the end. The text read so far is content and not searched again, so that no text
        // can make this quadratic.
        end_call(p, false);
        if (p->style == MD_TOOLCALL_LLAMA3) p->state = MD_TC_PLAIN;
        content(p, p->finished && result == MD_TC_MORE ? p->held.size : p->pos);
    }
}

md_status md_toolcall_parser_feed(md_toolcall_parser *parser, const char *text, size_t n, md_error *err) {
    for (size_t take; n > 0; text += take, n -= take) {
        take = n < MAX_PIECE ? n : MAX_PIECE;
        if (parser->status == MD_OK && md_buf_append(&parser->held, text, take) != MD_OK)
            parser->status = md_fail(err, MD_E_MEMORY, "out of memory, or a tool call over %d bytes", MAX_CALL);
        run(parser);
        if (parser->status == MD_E_MEMORY) md_fail(err, MD_E_MEMORY, "out of memory in a tool call");
        MD_TRY(parser->status);
    }
    return parser->status;
}

md_status md_toolcall_parser_finish(md_toolcall_parser *parser, md_error *err) {
    (void)err; // part of the interface: the sink reports its own errors
    parser->finished = true;
    run(parser);
    return parser->status;
}

// ---- a whole answer -------------------------------------------------------------------------------------------------

typedef struct collector {
    md_buf content, args;
    char *name;
    md_toolcall_result *out;
} collector;

static md_status add_call(collector *c) {
    size_t n = c->out->call_count;
    if ((n & (n - 1)) == 0) { // grows at 0, 1, 2, 4, ...
        md_toolcall *calls = realloc(c->out->calls, (n ? 2 * n : 1) * sizeof *calls);
        if (!calls) return MD_E_MEMORY;
        c->out->calls = calls;
    }
    char *arguments = md_buf_take(&c->args);
    if (!arguments) return MD_E_MEMORY;
    c->out->calls[c->out->call_count++] = (md_toolcall){.name = c->name, .arguments = arguments};
    c->name = NULL;
    return MD_OK;
}

static md_status collect(void *user, const md_toolcall_event *event) {
    collector *c = user;
    switch (event->kind) {
    case MD_TOOLCALL_CONTENT: return md_buf_append(&c->content, event->text, event->size);
    case MD_TOOLCALL_BEGIN:
        md_buf_clear(&c->args);
        c->name = malloc(event->size + 1);
        if (!c->name) return MD_E_MEMORY;
        memcpy(c->name, event->text, event->size);
        c->name[event->size] = 0;
        return MD_OK;
    case MD_TOOLCALL_ARGS: return md_buf_append(&c->args, event->text, event->size);
    default:
        if (event->valid) return add_call(c);
        free(c->name);
        c->name = NULL;
        return MD_OK;
    }
}

md_status md_toolcall_parse(md_toolcall_style style, const json_t *tools, const char *text, size_t n,
                            md_toolcall_result *out, md_error *err) {
    collector c = {.out = out};
    md_toolcall_parser *parser = NULL;
    *out = (md_toolcall_result){.content = NULL};
    md_buf_init(&c.content, SIZE_MAX / 4); // no longer than the text
    md_buf_init(&c.args, SIZE_MAX / 4);
    md_status status = md_toolcall_parser_new(style, tools, collect, &c, &parser, err);
    if (status == MD_OK) status = md_toolcall_parser_feed(parser, text, n, err);
    if (status == MD_OK) status = md_toolcall_parser_finish(parser, err);
    out->content_size = c.content.size;
    if (status == MD_OK && !(out->content = md_buf_take(&c.content))) status = MD_E_MEMORY;
    if (status == MD_E_MEMORY) md_fail(err, status, "out of memory for an answer of %zu bytes", n);
    md_toolcall_parser_free(parser);
    md_buf_free(&c.content);
    md_buf_free(&c.args);
    free(c.name);
    if (status != MD_OK) md_toolcall_result_free(out);
    return status;
}

void md_toolcall_result_free(md_toolcall_result *result) {
    for (size_t i = 0; i < result->call_count; i++) {
        free(result->calls[i].name);
        free(result->calls[i].arguments);
    }
    free(result->calls);
    free(result->content);
    *result = (md_toolcall_result){.content = NULL};
}
