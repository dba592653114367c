// The input is an answer's text, after two bytes that choose the style of its tool calls and the size of the pieces.
// The events must be the same whole and in pieces, valid calls have JSON objects as arguments, and no text is lost:
// what is no valid call comes out as content.
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "chat/reasoning.h"
#include "chat/toolcall.h"
#include "fuzz/fuzz.h"
#include "text/utf8.h"

typedef struct log {
    md_buf all, content, args;
    size_t valid;
} log;

static md_status record(void *user, const md_toolcall_event *event) {
    log *l = user;
    const char kind[] = {"cbae"[event->kind], 0};
    if (event->kind == MD_TOOLCALL_BEGIN || event->kind == MD_TOOLCALL_END) md_buf_puts(&l->all, kind);
    if (event->kind == MD_TOOLCALL_CONTENT) md_buf_append(&l->content, event->text, event->size);
    if (event->kind == MD_TOOLCALL_BEGIN) md_buf_clear(&l->args);
    if (event->kind == MD_TOOLCALL_ARGS) md_buf_append(&l->args, event->text, event->size);
    if (event->kind == MD_TOOLCALL_END && event->valid) {
        json_t *json = json_loadb(l->args.data, l->args.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        require(json_is_object(json));
        json_decref(json);
        l->valid++;
    }
    return md_buf_append(&l->all, event->text, event->size);
}

static void parse(md_toolcall_style style, const char *text, size_t n, size_t piece, log *l) {
    md_toolcall_parser *parser;
    *l = (log){.valid = 0};
    md_buf_init(&l->all, 1 << 26);
    md_buf_init(&l->content, 1 << 26);
    md_buf_init(&l->args, 1 << 26);
    require(md_toolcall_parser_new(style, NULL, record, l, &parser, NULL) == MD_OK);
    for (size_t i = 0; i < n; i += piece)
        require(md_toolcall_parser_feed(parser, text + i, n - i < piece ? n - i : piece, NULL) == MD_OK);
    require(md_toolcall_parser_finish(parser, NULL) == MD_OK);
    md_toolcall_parser_free(parser);
}

static void release(log *l) {
    md_buf_free(&l->all);
    md_buf_free(&l->content);
    md_buf_free(&l->args);
}

static md_status take(void *user, bool reasoning, const char *text, size_t n) {
    md_buf *b = user;
    md_buf_putc(b, reasoning ? 'r' : 'c');
    (void)text;
    for (size_t i = 1; i < n; i++) md_buf_putc(b, reasoning ? 'r' : 'c');
    return MD_OK;
}

static void split(bool opened, const char *text, size_t n, size_t piece, md_buf *out) {
    md_reasoning splitter;
    md_buf_init(out, 1 << 26);
    md_reasoning_init(&splitter, opened, take, out);
    for (size_t i = 0; i < n; i += piece)
        require(md_reasoning_feed(&splitter, text + i, n - i < piece ? n - i : piece, NULL) == MD_OK);
    require(md_reasoning_finish(&splitter, NULL) == MD_OK);
    md_reasoning_free(&splitter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const char *text = (const char *)data + 2;
    size_t n = md_utf8_valid_prefix(text, size - 2), piece = data[1] % 16 + 1; // a detokenizer gives valid text
    md_toolcall_style style = (md_toolcall_style)(data[0] % 4);
    log whole, cut;
    parse(style, text, n, n ? n : 1, &whole);
    parse(style, text, n, piece, &cut);
    require(whole.all.size == cut.all.size && whole.valid == cut.valid);
    require(whole.all.size == 0 || memcmp(whole.all.data, cut.all.data, whole.all.size) == 0);
    if (whole.valid == 0) require(whole.content.size == n && (n == 0 || memcmp(whole.content.data, text, n) == 0));
    release(&whole);
    release(&cut);
    md_buf a, b;
    split(data[0] & 4, text, n, n ? n : 1, &a);
    split(data[0] & 4, text, n, piece, &b);
    require(a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0));
    md_buf_free(&a);
    md_buf_free(&b);
    return 0;
}
