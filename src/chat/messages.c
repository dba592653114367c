#include "chat/messages.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "text/utf8.h"

enum { MAX_TOOLS = 256, MAX_NAME = 64, PATH_MAX_BYTES = 120 };

static const json_t *member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

// The path of a member, for messages ("messages[2].tool_calls[0]"); paths are short, and cut at the buffer's end.
MD_PRINTF(2, 3) static void set_path(char out[PATH_MAX_BYTES], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(out, PATH_MAX_BYTES, fmt, ap);
    va_end(ap);
}

static md_status wrong_type(md_error *err, const char *path, const char *expected, const json_t *found) {
    return md_fail(err, MD_E_USAGE, "%s: expected %s, found %s", path, expected, md_json_type_name(found));
}

// Bytes of `text` to show in a message: not many, and whole characters.
static int shown(const char *text) {
    size_t n = strlen(text);
    return (int)md_utf8_valid_prefix(text, n < 40 ? n : 40);
}

static md_status out_of_memory(md_error *err) { return md_fail(err, MD_E_MEMORY, "messages: out of memory"); }

static md_status set_new(json_t *object, const char *key, json_t *value, md_error *err) {
    return json_object_set_new(object, key, value) == 0 ? MD_OK : out_of_memory(err);
}

// ---- content --------------------------------------------------------------------------------------------------------

// The text of one part of a content array, appended to *all.
static md_status add_part(const json_t *part, const char *path, md_buf *all, md_error *err) {
    if (!json_is_object(part)) return wrong_type(err, path, "an object", part);
    const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
    if (!json_is_string(type)) return md_fail(err, MD_E_USAGE, "%s.type: expected a string", path);
    if (strcmp(json_string_value(type), "text") != 0)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.type: '%.*s' is not supported, only 'text' is", path,
                       shown(json_string_value(type)), json_string_value(type));
    if (!json_is_string(text)) return md_fail(err, MD_E_USAGE, "%s.text: expected a string", path);
    return md_buf_append(all, json_string_value(text), json_string_length(text)) == MD_OK ? MD_OK : out_of_memory(err);
}

static md_status join_parts(const json_t *parts, const char *path, json_t **out, md_error *err) {
    char part_path[PATH_MAX_BYTES];
    const json_t *part;
    size_t i;
    md_status status = MD_OK;
    md_buf all;
    md_buf_init(&all, SIZE_MAX / 4); // the request's own size bounds it
    json_array_foreach((json_t *)(uintptr_t)parts, i, part) {
        set_path(part_path, "%s[%zu]", path, i);
        status = add_part(part, part_path, &all, err);
        if (status != MD_OK) break;
    }
    if (status == MD_OK && !(*out = json_stringn(md_buf_str(&all), all.size))) status = out_of_memory(err);
    md_buf_free(&all);
    return status;
}

static md_status check_content(json_t *message, const char *path, bool may_lack, md_error *err) {
    char at[PATH_MAX_BYTES];
    const json_t *content = json_object_get(message, "content");
    set_path(at, "%s.content", path);
    if (json_is_string(content)) return MD_OK;
    json_t *text = NULL;
    if (json_is_array(content))
        MD_TRY(join_parts(content, at, &text, err));
    else if ((!content || json_is_null(content)) && may_lack)
        text = json_string("");
    else
        return wrong_type(err, at, "a string or an array of parts", content);
    return set_new(message, "content", text, err);
}

// ---- tool calls -----------------------------------------------------------------------------------------------------

// arguments: a JSON text that holds an object (what OpenAI's API carries) or the object itself.
static md_status check_arguments(json_t *function, const char *path, md_error *err) {
    const json_t *arguments = json_object_get(function, "arguments");
    json_t *object = NULL;
    if (json_is_object(arguments)) return MD_OK;
    if (!json_is_string(arguments))
        return md_fail(err, MD_E_USAGE, "%s.arguments: expected a string of JSON, found %s", path,
                       md_json_type_name(arguments));
    if (json_string_length(arguments) == 0) return set_new(function, "arguments", json_object(), err);
    md_error why;
    if (md_json_parse(json_string_value(arguments), json_string_length(arguments), true, "it", &object, &why) != MD_OK)
        return md_fail(err, MD_E_USAGE, "%s.arguments: not valid JSON: %.200s", path, why.message);
    if (!json_is_object(object)) {
        md_fail(err, MD_E_USAGE, "%s.arguments: expected the JSON of an object, found %s", path,
                md_json_type_name(object));
        json_decref(object);
        return MD_E_USAGE;
    }
    return set_new(function, "arguments", object, err);
}

static md_status check_tool_call(json_t *call, const char *path, md_error *err) {
    char at[PATH_MAX_BYTES];
    if (!json_is_object(call)) return wrong_type(err, path, "an object", call);
    const json_t *type = member(call, "type"), *id = member(call, "id");
    json_t *function = json_object_get(call, "function");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return md_fail(err, MD_E_USAGE, "%s.type: expected 'function'", path);
    if (!type) MD_TRY(set_new(call, "type", json_string("function"), err));
    if (id && !json_is_string(id)) return md_fail(err, MD_E_USAGE, "%s.id: expected a string", path);
    set_path(at, "%s.function", path);
    if (!json_is_object(function)) return wrong_type(err, at, "an object", function);
    if (!json_is_string(json_object_get(function, "name")))
        return md_fail(err, MD_E_USAGE, "%s.name: expected a string, found %s", at,
                       md_json_type_name(json_object_get(function, "name")));
    return check_arguments(function, at, err);
}

static md_status check_tool_calls(json_t *message, const char *path, bool assistant, bool *has_calls, md_error *err) {
    char at[PATH_MAX_BYTES];
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    *has_calls = false;
    if (!calls || json_is_null(calls) || (json_is_array(calls) && json_array_size(calls) == 0)) {
        json_object_del(message, "tool_calls"); // templates ask whether the member is there
        return MD_OK;
    }
    set_path(at, "%s.tool_calls", path);
    if (!json_is_array(calls)) return wrong_type(err, at, "an array", calls);
    if (!assistant) return md_fail(err, MD_E_USAGE, "%s: only an assistant's message has tool calls", at);
    json_array_foreach(calls, i, call) {
        set_path(at, "%s.tool_calls[%zu]", path, i);
        MD_TRY(check_tool_call(call, at, err));
    }
    *has_calls = true;
    return MD_OK;
}

// ---- messages -------------------------------------------------------------------------------------------------------

static md_status check_role(json_t *message, const char *path, bool keep_developer, bool *assistant, md_error *err) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
    const json_t *role = json_object_get(message, "role");
    if (!json_is_string(role))
        return md_fail(err, MD_E_USAGE, "%s.role: expected a string, found %s", path, md_json_type_name(role));
    const char *text = json_string_value(role);
    size_t i = 0;
    while (i < sizeof roles / sizeof roles[0] && strcmp(text, roles[i]) != 0) i++;
    if (i == sizeof roles / sizeof roles[0] || json_string_length(role) != strlen(text))
        return md_fail(err, MD_E_USAGE,
                       "%s.role: '%.*s' is not one of system, developer, user, assistant, tool, function", path,
                       shown(text), text);
    *assistant = i == 3;
    if (i == 1 && !keep_developer) return set_new(message, "role", json_string("system"), err);
    return MD_OK;
}

// reasoning_content, also under the name `reasoning`; other optional members that must be strings.
static md_status check_strings(json_t *message, const char *path, md_error *err) {
    static const char *const names[] = {"reasoning_content", "tool_call_id", "name"};
    const json_t *reasoning = member(message, "reasoning");
    if (!member(message, "reasoning_content") && json_is_string(reasoning))
        MD_TRY(set_new(message, "reasoning_content", json_incref((json_t *)(uintptr_t)reasoning), err));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *value = json_object_get(message, names[i]);
        if (!value || json_is_string(value)) continue;
        if (!json_is_null(value))
            return md_fail(err, MD_E_USAGE, "%s.%s: expected a string, found %s", path, names[i],
                           md_json_type_name(value));
        json_object_del(message, names[i]);
    }
    return MD_OK;
}

static md_status check_message(json_t *message, const char *path, bool keep_developer, md_error *err) {
    bool assistant, has_calls;
    if (!json_is_object(message)) return wrong_type(err, path, "an object", message);
    MD_TRY(check_role(message, path, keep_developer, &assistant, err));
    MD_TRY(check_tool_calls(message, path, assistant, &has_calls, err));
    MD_TRY(check_content(message, path, has_calls, err));
    return check_strings(message, path, err);
}

md_status md_chat_messages_check(const json_t *messages, bool keep_developer, json_t **out, md_error *err) {
    char path[PATH_MAX_BYTES];
    json_t *message;
    size_t i;
    *out = NULL;
    if (!json_is_array(messages)) return wrong_type(err, "messages", "an array", messages);
    if (json_array_size(messages) == 0) return md_fail(err, MD_E_USAGE, "messages: expected at least one message");
    uint64_t losses = md_json_losses();
    json_t *copy = json_deep_copy(messages);
    if (!copy) return out_of_memory(err);
    json_array_foreach(copy, i, message) {
        set_path(path, "messages[%zu]", i);
        md_status status = check_message(message, path, keep_developer, err);
        if (status == MD_OK && md_json_losses() != losses) status = out_of_memory(err);
        if (status == MD_OK) continue;
        json_decref(copy);
        return status;
    }
    *out = copy;
    return MD_OK;
}

// ---- tools ----------------------------------------------------------------------------------------------------------

static bool is_function_name(const json_t *name) {
    size_t n = json_string_length(name);
    if (n < 1 || n > MAX_NAME) return false;
    return strspn(json_string_value(name), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == n;
}

static md_status check_tool(const json_t *tool, const char *path, md_error *err) {
    char at[PATH_MAX_BYTES];
    if (!json_is_object(tool)) return wrong_type(err, path, "an object", tool);
    const json_t *type = json_object_get(tool, "type"), *function = json_object_get(tool, "function");
    if (!json_is_string(type)) return md_fail(err, MD_E_USAGE, "%s.type: expected 'function'", path);
    if (strcmp(json_string_value(type), "function") != 0)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.type: '%.*s' is not supported, only 'function' is", path,
                       shown(json_string_value(type)), json_string_value(type));
    set_path(at, "%s.function", path);
    if (!json_is_object(function)) return wrong_type(err, at, "an object", function);
    const json_t *name = json_object_get(function, "name");
    if (!json_is_string(name))
        return md_fail(err, MD_E_USAGE, "%s.name: expected a string, found %s", at, md_json_type_name(name));
    if (!is_function_name(name))
        return md_fail(err, MD_E_USAGE, "%s.name: expected 1 to %d of letters, digits, '_', '-' and '.'", at, MAX_NAME);
    const json_t *description = member(function, "description"), *parameters = member(function, "parameters");
    if (description && !json_is_string(description))
        return md_fail(err, MD_E_USAGE, "%s.description: expected a string, found %s", at,
                       md_json_type_name(description));
    if (parameters && !json_is_object(parameters))
        return md_fail(err, MD_E_USAGE, "%s.parameters: expected an object, found %s", at,
                       md_json_type_name(parameters));
    return MD_OK;
}

md_status md_chat_tools_check(const json_t *tools, json_t **out, md_error *err) {
    char path[PATH_MAX_BYTES];
    *out = NULL;
    if (!tools || json_is_null(tools)) return MD_OK;
    if (!json_is_array(tools)) return wrong_type(err, "tools", "an array", tools);
    size_t n = json_array_size(tools);
    if (n > MAX_TOOLS) return md_fail(err, MD_E_USAGE, "tools: %zu tools, at most %d are taken", n, MAX_TOOLS);
    for (size_t i = 0; i < n; i++) {
        set_path(path, "tools[%zu]", i);
        MD_TRY(check_tool(json_array_get(tools, i), path, err));
        const json_t *name = json_object_get(json_object_get(json_array_get(tools, i), "function"), "name");
        const json_t *first = md_chat_tool_find(tools, json_string_value(name), json_string_length(name));
        if (first != json_object_get(json_array_get(tools, i), "function"))
            return md_fail(err, MD_E_USAGE, "%s.function.name: '%s' is there twice", path, json_string_value(name));
    }
    if (n == 0) return MD_OK;
    uint64_t losses = md_json_losses();
    *out = json_deep_copy(tools);
    if (md_json_losses() == losses) return MD_OK;
    json_decref(*out);
    *out = NULL;
    return out_of_memory(err);
}

const json_t *md_chat_tool_find(const json_t *tools, const char *name, size_t n) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const json_t *have = json_object_get(function, "name");
        if (json_string_length(have) == n && memcmp(json_string_value(have), name, n) == 0) return function;
    }
    return NULL;
}
