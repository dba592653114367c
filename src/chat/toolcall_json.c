// Calls that are JSON objects: <tool_call>{"name": N, "arguments": {...}}</tool_call> (HERMES), or the bare object
// with "parameters" (LLAMA3). In the usual order of members the arguments are passed on while they come in; an object
// in another order is read when it is complete.
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "chat/toolcall_parts.h"

// Moves p->scan to the end of the object that starts at p->object; OK once it is there.
static md_tc_result scan_object(md_toolcall_parser *p) {
    for (; p->scan < p->held.size; p->scan++) {
        char c = p->held.data[p->scan];
        if (p->in_string) {
            if (p->escaped)
                p->escaped = false;
            else if (c == '\\')
                p->escaped = true;
            else if (c == '"')
                p->in_string = false;
        } else if (c == '"') {
            p->in_string = true;
        } else if (c == '{' || c == '[') {
            p->depth++;
        } else if ((c == '}' || c == ']') && --p->depth == 0) {
            p->scan++;
            return MD_TC_OK;
        }
    }
    return MD_TC_MORE;
}

static void start_scan(md_toolcall_parser *p, size_t object) {
    p->object = p->scan = object;
    p->depth = 0;
    p->in_string = p->escaped = false;
}

// One token of the usual head: a punctuation character, or a word in quotes.
static md_tc_result expect(const md_toolcall_parser *p, size_t *pos, const char *word) {
    *pos = md_tc_skip_space(p, *pos);
    md_tc_result result = md_tc_match(p, *pos, word);
    if (result == MD_TC_OK) *pos += strlen(word);
    return result;
}

// {"name": "N", "arguments": and the start of an object: the name, and in *pos that object's place.
static md_tc_result usual_head(const md_toolcall_parser *p, size_t *pos, size_t *name, size_t *n) {
    static const char *const before[] = {"{", "\"name\"", ":", "\""};
    for (size_t i = 0; i < 4; i++) {
        md_tc_result result = expect(p, pos, before[i]);
        if (result != MD_TC_OK) return result;
    }
    *name = *pos;
    while (*pos < p->held.size && (unsigned char)p->held.data[*pos] >= ' ' && p->held.data[*pos] != '"' &&
           p->held.data[*pos] != '\\')
        ++*pos;
    *n = *pos - *name;
    const char *const after[] = {"\"", ",", p->style == MD_TOOLCALL_HERMES ? "\"arguments\"" : "\"parameters\"", ":"};
    for (size_t i = 0; i < 4; i++) {
        md_tc_result result = expect(p, pos, after[i]);
        if (result != MD_TC_OK) return result;
    }
    *pos = md_tc_skip_space(p, *pos);
    return md_tc_match(p, *pos, "{");
}

static bool is_object(const char *text, size_t n) {
    json_t *json = md_json_load(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    bool object = json_is_object(json);
    json_decref(json);
    return object;
}

// A complete object in any order of members.
static md_tc_result emit_object(md_toolcall_parser *p) {
    json_t *json =
        md_json_load(p->held.data + p->object, p->scan - p->object, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const json_t *name = json_object_get(json, "name"), *arguments = json_object_get(json, "arguments");
    if (!arguments) arguments = json_object_get(json, "parameters");
    md_tc_result result = MD_TC_BAD;
    if (json_is_string(name) && (!arguments || json_is_object(arguments)) &&
        md_tc_known_name(p, json_string_value(name), json_string_length(name))) {
        char *text = arguments ? json_dumps(arguments, 0) : NULL;
        md_tc_emit(p, MD_TOOLCALL_BEGIN, json_string_value(name), json_string_length(name));
        md_tc_emit(p, MD_TOOLCALL_ARGS, text ? text : "{}", text ? strlen(text) : 2);
        free(text);
        result = MD_TC_OK;
    }
    json_decref(json);
    return result;
}

// The closing mark. It may be missing where the answer ends, and LLAMA3 has none.
static md_tc_result close_call(md_toolcall_parser *p, size_t pos) {
    static const char mark[] = "</tool_call>";
    if (p->style == MD_TOOLCALL_LLAMA3) {
        p->pos = pos;
        return MD_TC_DONE;
    }
    size_t at = md_tc_skip_space(p, pos);
    md_tc_result result = md_tc_match(p, at, mark);
    if (result == MD_TC_MORE) return result; // p->pos stays: the end of the object is looked for again
    p->pos = pos;
    if (result == MD_TC_OK) {
        p->pos = at + sizeof mark - 1;
        return MD_TC_DONE;
    }
    if (p->finished && strncmp(mark, p->held.data + at, p->held.size - at) == 0) {
        p->pos = p->held.size;
        return MD_TC_DONE;
    }
    return result;
}

static md_tc_result read_head(md_toolcall_parser *p) {
    size_t object = md_tc_skip_space(p, p->pos), pos = object, name = 0, n = 0;
    if (object == p->held.size) return MD_TC_MORE;
    if (p->held.data[object] != '{') return MD_TC_BAD;
    md_tc_result result = usual_head(p, &pos, &name, &n);
    if (result == MD_TC_MORE) return result;
    if (result == MD_TC_BAD) {
        start_scan(p, object);
        p->state = MD_TC_BODY;
        return MD_TC_OK;
    }
    if (!md_tc_known_name(p, p->held.data + name, n)) return MD_TC_BAD;
    md_tc_emit(p, MD_TOOLCALL_BEGIN, p->held.data + name, n);
    start_scan(p, pos);
    p->pos = pos;
    p->state = MD_TC_ARGS;
    return MD_TC_OK;
}

static md_tc_result read_arguments(md_toolcall_parser *p) {
    md_tc_result result = scan_object(p);
    md_tc_emit(p, MD_TOOLCALL_ARGS, p->held.data + p->pos, p->scan - p->pos);
    p->pos = p->scan;
    if (result != MD_TC_OK) return result;
    p->state = MD_TC_TAIL;
    return is_object(p->held.data + p->object, p->scan - p->object) ? MD_TC_OK : MD_TC_BAD;
}

md_tc_result md_tc_read_json(md_toolcall_parser *p) {
    size_t pos;
    switch (p->state) {
    case MD_TC_HEAD: return read_head(p);
    case MD_TC_ARGS: return read_arguments(p);
    case MD_TC_TAIL: // the end of the outer object
        pos = md_tc_skip_space(p, p->pos);
        if (pos == p->held.size) return MD_TC_MORE;
        if (p->held.data[pos] != '}') return MD_TC_BAD;
        return close_call(p, pos + 1);
    default: {
        // Scanned in full before anything is said, so the object is read again when its closing mark is late.
        md_tc_result result = p->depth == 0 && p->scan > p->object ? MD_TC_OK : scan_object(p);
        if (result != MD_TC_OK) return result;
        size_t end = p->scan;
        result = close_call(p, end);
        if (result != MD_TC_DONE) return result;
        return emit_object(p) == MD_TC_OK ? MD_TC_DONE : MD_TC_BAD;
    }
    }
}
