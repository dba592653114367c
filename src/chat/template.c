#include "chat/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chat/jinja/parse.h"
#include "chat/jinja/run.h"

enum { MAX_SOURCE = 1 << 18 }; // published templates have up to some 30 KB; parsing this much takes some 25 ms

struct md_chat_template {
    md_jtemplate tree;
};

md_status md_chat_template_compile(const char *source, size_t n, const char *name, md_chat_template **out,
                                   md_error *err) {
    *out = NULL;
    if (n > MAX_SOURCE)
        return md_fail(err, MD_E_FORMAT, "%s: a chat template of %zu bytes, at most %d are read", name, n, MAX_SOURCE);
    md_chat_template *chat_template = calloc(1, sizeof *chat_template);
    if (!chat_template) return md_fail(err, MD_E_MEMORY, "%s: out of memory", name);
    md_status status = md_jtemplate_parse(&chat_template->tree, name, source, n, err);
    if (status != MD_OK) {
        md_chat_template_free(chat_template);
        return status;
    }
    *out = chat_template;
    return MD_OK;
}

void md_chat_template_free(md_chat_template *chat_template) {
    if (!chat_template) return;
    md_jtemplate_free(&chat_template->tree);
    free(chat_template);
}

bool md_chat_template_mentions(const md_chat_template *chat_template, const char *word) {
    const md_jstr source = {.bytes = chat_template->tree.source, .size = chat_template->tree.source_size};
    const md_jstr needle = {.bytes = word, .size = strlen(word)};
    return md_jstr_find(&source, &needle, 0) != SIZE_MAX;
}

// A published template takes some hundred steps a message and holds a few copies of its text. The fixed parts keep the
// worst template under 100 ms.
md_chat_limits md_chat_limits_for(size_t input_bytes) {
    return (md_chat_limits){.steps = 400000 + (uint64_t)input_bytes * 4,
                            .memory_bytes = ((size_t)32 << 20) + input_bytes * 32,
                            .output_bytes = ((size_t)4 << 20) + input_bytes * 4,
                            .depth = 400};
}

// A lower bound of the JSON text's size, without making the text.
static size_t json_bytes(const json_t *json, int depth) {
    size_t total = 2, i;
    json_t *item;
    const char *key;
    if (!json || depth > MD_JN_MAX_NESTING) return 0; // deeper values are refused when they are converted
    if (json_is_string(json)) return 2 + json_string_length(json);
    if (json_is_array(json)) {
        json_array_foreach((json_t *)(uintptr_t)json, i, item) total += 2 + json_bytes(item, depth + 1);
    } else if (json_is_object(json)) {
        json_object_foreach((json_t *)(uintptr_t)json, key, item) total +=
            6 + strlen(key) + json_bytes(item, depth + 1);
    }
    return total;
}

static md_status bind_value(md_jn_run *run, const md_jnames *names, md_jscope *scope, const char *name,
                            const md_jv *value) {
    const md_jname *found = md_jname_find(names, name, strlen(name));
    return found ? md_jn_bind(run, scope, found, value) : MD_OK;
}

static md_status bind_json(md_jn_run *run, const md_jnames *names, md_jscope *scope, const char *name,
                           const json_t *json, uint8_t origin) {
    md_jv value = md_jv_none();
    if (!md_jname_find(names, name, strlen(name))) return MD_OK;
    if (json) MD_TRY(md_jv_from_json(run, json, origin, 0, &value));
    return bind_value(run, names, scope, name, &value);
}

static bool is_reserved(const char *name, const json_t *tokens) {
    static const char *const reserved[] = {"messages", "tools", "add_generation_prompt", "documents",    "namespace",
                                           "range",    "dict",  "raise_exception",       "strftime_now", "loop",
                                           "caller"};
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (strcmp(name, reserved[i]) == 0) return true;
    return json_object_get(tokens, name) != NULL;
}

static md_status bind_all(md_jn_run *run, const md_jnames *names, const md_chat_render *render, md_jscope *scope) {
    const char *key;
    json_t *value;
    md_jv prompt = md_jv_bool(render->add_generation_prompt);
    // As transformers calls a template: tools and documents are there, and None, where none are given.
    MD_TRY(bind_json(run, names, scope, "messages", render->messages, MD_JV_DATA));
    MD_TRY(bind_json(run, names, scope, "tools", render->tools, MD_JV_DATA));
    MD_TRY(bind_json(run, names, scope, "documents", NULL, MD_JV_DATA));
    MD_TRY(bind_value(run, names, scope, "add_generation_prompt", &prompt));
    json_object_foreach((json_t *)(uintptr_t)render->tokens, key, value)
        MD_TRY(bind_json(run, names, scope, key, value, MD_JV_TRUSTED));
    json_object_foreach((json_t *)(uintptr_t)render->variables, key, value) {
        if (is_reserved(key, render->tokens))
            return md_fail(run->err, MD_E_USAGE, "chat_template_kwargs: '%s' cannot be set", key); // one of a few names
        MD_TRY(bind_json(run, names, scope, key, value, MD_JV_DATA));
    }
    return MD_OK;
}

// The text of `b` and its runs of one origin, for the caller to own.
static md_status make_prompt(const md_jb *b, md_chat_prompt *out, md_error *err) {
    size_t spans = b->size > 0;
    for (size_t i = 1; b->map && i < b->size; i++) spans += b->map[i] != b->map[i - 1];
    out->text = malloc(b->size + 1);
    out->spans = calloc(spans ? spans : 1, sizeof *out->spans);
    if (!out->text || !out->spans) {
        md_chat_prompt_free(out);
        return md_fail(err, MD_E_MEMORY, "out of memory for a prompt of %zu bytes", b->size);
    }
    if (b->size) memcpy(out->text, b->bytes, b->size);
    out->text[b->size] = 0;
    out->size = b->size;
    for (size_t i = 0; i < b->size; i++) {
        uint8_t origin = b->map ? b->map[i] : b->origin;
        if (i == 0 || (b->map && origin != b->map[i - 1]))
            out->spans[out->span_count++] = (md_text_span){.text = out->text + i, .parse = origin == MD_JV_TRUSTED};
        out->spans[out->span_count - 1].size++;
    }
    return MD_OK;
}

md_status md_chat_template_render(const md_chat_template *chat_template, const md_chat_render *render,
                                  md_chat_prompt *out, md_error *err) {
    *out = (md_chat_prompt){.text = NULL};
    const md_jnames *names = &chat_template->tree.names;
    size_t input = json_bytes(render->messages, 0) + json_bytes(render->tools, 0) + json_bytes(render->variables, 0);
    md_jn_run run = {.limits = render->limits ? *render->limits : md_chat_limits_for(input),
                     .loop_name = md_jname_find(names, "loop", 4),
                     .caller_name = md_jname_find(names, "caller", 6),
                     .line = 1,
                     .name = chat_template->tree.name,
                     .now = render->now > 0 ? render->now : (int64_t)time(NULL),
                     .err = err};
    md_jb b;
    md_jb_init(&b, &run);
    md_jscope *scope = md_jn_scope_new(&run, NULL);
    md_status status = scope ? bind_all(&run, names, render, scope) : md_jn_oom(&run);
    if (status == MD_OK) status = md_jn_exec(&run, scope, chat_template->tree.body, &b);
    if (status == MD_OK) status = make_prompt(&b, out, err);
    md_arena_free(&run.arena);
    return status;
}

void md_chat_prompt_free(md_chat_prompt *prompt) {
    free(prompt->text);
    free(prompt->spans);
    *prompt = (md_chat_prompt){.text = NULL};
}
