// MiniCPM5's calls: <function name="N"><param name="K">V</param>...</function>.
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "chat/messages.h"
#include "chat/param_types.h"
#include "chat/toolcall_parts.h"

enum { MAX_ATTRIBUTE = 256 };

// ' name="N">' at pos: the name is held.data[*name .. *name + *n), *end is after the ">".
static md_tc_result attribute(const md_toolcall_parser *p, size_t pos, size_t *name, size_t *n, size_t *end) {
    const char *data = p->held.data;
    const md_tc_result lacking = p->finished ? MD_TC_BAD : MD_TC_MORE;
    size_t at = md_tc_skip_space(p, pos);
    *end = at;
    if (at == p->held.size) return lacking;
    if (at == pos) return MD_TC_BAD;
    md_tc_result word = md_tc_match(p, at, "name=");
    if (word != MD_TC_OK) return word;
    at += 5;
    if (at == p->held.size) return lacking;
    char quote = data[at++];
    if (quote != '"' && quote != '\'') return MD_TC_BAD;
    *name = at;
    while (at < p->held.size && data[at] != quote && (unsigned char)data[at] >= ' ' && at - *name <= MAX_ATTRIBUTE)
        at++;
    *n = at - *name;
    if (*n > MAX_ATTRIBUTE || (at < p->held.size && data[at] != quote)) return MD_TC_BAD; // no name has a control in it
    if (at == p->held.size) return lacking;
    at = md_tc_skip_space(p, at + 1);
    *end = at;
    if (at == p->held.size) return lacking;
    *end = at + 1;
    return data[at] == '>' ? MD_TC_OK : MD_TC_BAD;
}

static md_tc_result read_head(md_toolcall_parser *p) {
    size_t name, n, end;
    md_tc_result result = attribute(p, p->pos, &name, &n, &end);
    if (result != MD_TC_OK) return result;
    if (!md_tc_known_name(p, p->held.data + name, n)) return MD_TC_BAD;
    json_decref(p->seen);
    p->seen = json_object();
    p->name_at = name;
    p->name_size = n;
    p->pos = end;
    p->state = MD_TC_BODY;
    md_tc_emit(p, MD_TOOLCALL_BEGIN, p->held.data + name, n);
    md_tc_emit(p, MD_TOOLCALL_ARGS, "{", 1);
    return MD_TC_OK;
}

// Characters as the inside of a JSON string.
static void emit_escaped(md_toolcall_parser *p, const char *text, size_t n) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    size_t plain = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        char escape[8];
        const char *found = c ? strchr(from, c) : NULL;
        if (found)
            snprintf(escape, sizeof escape, "\\%c", to[found - from]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", c);
        md_tc_emit(p, MD_TOOLCALL_ARGS, text + plain, i - plain);
        md_tc_emit(p, MD_TOOLCALL_ARGS, escape, strlen(escape));
        plain = i + 1;
    }
    md_tc_emit(p, MD_TOOLCALL_ARGS, text + plain, n - plain);
}

static void emit_string(md_toolcall_parser *p, const char *text, size_t n) {
    md_tc_emit(p, MD_TOOLCALL_ARGS, "\"", 1);
    emit_escaped(p, text, n);
    md_tc_emit(p, MD_TOOLCALL_ARGS, "\"", 1);
}

// The types that the current parameter's schema allows (MD_PARAM_*); 0 where nothing is declared.
static unsigned declared_types(const md_toolcall_parser *p) {
    const json_t *function = md_chat_tool_find(p->tools, p->held.data + p->name_at, p->name_size);
    return md_param_types(json_object_get(function, "parameters"),
                          md_param_schema(function, md_buf_str(&p->key), p->key.size));
}

static md_tc_result read_param(md_toolcall_parser *p, size_t after) {
    size_t name, n, end;
    md_tc_result result = attribute(p, after, &name, &n, &end);
    if (result != MD_TC_OK) return result;
    const char *key = p->held.data + name;
    if (!p->seen || json_object_getn(p->seen, key, n)) return MD_TC_BAD; // twice: JSON cannot say that
    bool first = json_object_size(p->seen) == 0;
    if (json_object_setn_new(p->seen, key, n, json_true()) != 0) return MD_TC_BAD; // not UTF-8
    md_buf_clear(&p->key);
    if (md_buf_append(&p->key, key, n) != MD_OK) p->status = MD_E_MEMORY;
    if (!first) md_tc_emit(p, MD_TOOLCALL_ARGS, ", ", 2);
    emit_string(p, key, n);
    md_tc_emit(p, MD_TOOLCALL_ARGS, ": ", 2);
    p->pos = end;
    p->state = MD_TC_VALUE_START;
    return MD_TC_OK;
}

static md_tc_result read_body(md_toolcall_parser *p) {
    size_t pos = md_tc_skip_space(p, p->pos);
    if (pos == p->held.size) return MD_TC_MORE;
    md_tc_result close = md_tc_match(p, pos, "</function>");
    if (close == MD_TC_OK) {
        p->pos = pos + 11;
        md_tc_emit(p, MD_TOOLCALL_ARGS, "}", 1);
        return MD_TC_DONE;
    }
    md_tc_result param = md_tc_match(p, pos, "<param");
    if (param == MD_TC_OK) return read_param(p, pos + 6);
    p->pos = pos;
    return close == MD_TC_MORE ? close : param;
}

static md_tc_result start_value(md_toolcall_parser *p) {
    static const char mark[] = "<![CDATA[";
    size_t pos = md_tc_skip_space(p, p->pos);
    md_tc_result result = md_tc_match(p, pos, mark);
    if (result == MD_TC_MORE) return result;
    p->cdata = result == MD_TC_OK;
    if (p->cdata) p->pos = pos + sizeof mark - 1;
    p->scan = p->pos;
    p->is_string = declared_types(p) == MD_PARAM_STRING;
    if (p->is_string) md_tc_emit(p, MD_TOOLCALL_ARGS, "\"", 1);
    p->state = MD_TC_VALUE;
    return MD_TC_OK;
}

// Whether the value ends at `pos`: OK with the place after </param> in *after.
static md_tc_result value_ends(const md_toolcall_parser *p, size_t pos, size_t *after) {
    if (p->cdata) {
        md_tc_result close = md_tc_match(p, pos, "]]>");
        if (close != MD_TC_OK) return close;
        pos = md_tc_skip_space(p, pos + 3);
    }
    *after = pos + 8;
    return md_tc_match(p, pos, "</param>");
}

// A value that is not declared a string: as JSON where it is some.
static void emit_typed(md_toolcall_parser *p, const char *text, size_t n) {
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    unsigned types = declared_types(p);
    size_t begin = 0, end = n;
    while (begin < end && md_tc_is_space(text[begin])) begin++;
    while (end > begin && md_tc_is_space(text[end - 1])) end--;
    const char *value = text + begin;
    size_t size = end - begin;
    for (size_t i = 0; i < 3; i++) {
        if (size != strlen(python[i][0]) || memcmp(value, python[i][0], size) != 0) continue;
        value = python[i][1];
        size = strlen(value);
        break;
    }
    json_t *json = md_json_load(value, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    bool takes = json && !json_is_string(json) && !(p->cdata && !types);
    if (types & MD_PARAM_STRING && !(types & MD_PARAM_NULL && json_is_null(json))) takes = false; // ["string", "null"]
    json_decref(json);
    if (takes)
        md_tc_emit(p, MD_TOOLCALL_ARGS, value, size);
    else
        emit_string(p, text, n);
}

static md_tc_result read_value(md_toolcall_parser *p) {
    const char *data = p->held.data;
    size_t at = p->scan, after = 0;
    md_tc_result result = MD_TC_MORE;
    for (; at < p->held.size; at++) {
        if (data[at] != (p->cdata ? ']' : '<')) continue;
        result = value_ends(p, at, &after);
        if (result != MD_TC_BAD) break;
        result = MD_TC_MORE;
    }
    p->scan = at;
    if (p->is_string) { // what is certain to belong to the value goes out
        emit_escaped(p, data + p->pos, at - p->pos);
        p->pos = at;
    }
    if (result != MD_TC_OK) return MD_TC_MORE;
    if (p->is_string)
        md_tc_emit(p, MD_TOOLCALL_ARGS, "\"", 1);
    else
        emit_typed(p, data + p->pos, at - p->pos);
    p->pos = after;
    p->state = MD_TC_BODY;
    return MD_TC_OK;
}

md_tc_result md_tc_read_xml(md_toolcall_parser *p) {
    switch (p->state) {
    case MD_TC_HEAD: return read_head(p);
    case MD_TC_BODY: return read_body(p);
    case MD_TC_VALUE_START: return start_value(p);
    default: return read_value(p);
    }
}
