// The conversation of `megadecode chat` as a list of messages.
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "chat/messages.h"
#include "cli/chat_state.h"

enum { FILE_BYTES_MAX = 1 << 28 };

// *out is a new reference.
static md_status new_message(const char *role, const char *text, size_t size, json_t **out, md_error *err) {
    const char *what = strcmp(role, "system") == 0 ? "the system prompt" : "the message";
    MD_TRY(md_utf8_check(what, text, size, MD_E_USAGE, err));
    *out = json_pack("{s:s,s:s%}", "role", role, "content", text, size);
    return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory");
}

md_status md_chat_add(md_chat *chat, const char *role, const char *text, size_t size, md_error *err) {
    json_t *message;
    MD_TRY(new_message(role, text, size, &message, err));
    return json_array_append_new(chat->messages, message) == 0 ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory");
}

static const char *role_of(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

const char *md_chat_last_role(const md_chat *chat) {
    size_t n = json_array_size(chat->messages);
    return n ? role_of(json_array_get(chat->messages, n - 1)) : "";
}

static bool has_system(const md_chat *chat) {
    const char *role = role_of(json_array_get(chat->messages, 0));
    return strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
}

const char *md_chat_system(const md_chat *chat) {
    if (!has_system(chat)) return NULL;
    return json_string_value(json_object_get(json_array_get(chat->messages, 0), "content"));
}

md_status md_chat_set_system(md_chat *chat, const char *text, md_error *err) {
    json_t *message = NULL;
    if (*text) MD_TRY(new_message("system", text, strlen(text), &message, err));
    if (has_system(chat)) json_array_remove(chat->messages, 0);
    if (message && json_array_insert_new(chat->messages, 0, message) != 0)
        return md_fail(err, MD_E_MEMORY, "out of memory");
    return MD_OK;
}

void md_chat_clear(md_chat *chat) {
    size_t keep = has_system(chat);
    while (json_array_size(chat->messages) > keep)
        json_array_remove(chat->messages, json_array_size(chat->messages) - 1);
    free(chat->file); // what comes now is another conversation
    chat->file = NULL;
}

static md_status keep_file(md_chat *chat, const char *path, md_error *err) {
    char *copy = strdup(path);
    if (!copy) return md_fail(err, MD_E_MEMORY, "out of memory");
    free(chat->file);
    chat->file = copy;
    return MD_OK;
}

md_status md_chat_save(md_chat *chat, const char *path, bool replace, md_error *err) {
    bool own = chat->file && strcmp(chat->file, path) == 0;
    if (!replace && !own && md_path_present(path))
        return md_fail(err, MD_E_USAGE, "/save: %s is there already; /save! %s replaces it", path, path);
    uint64_t losses = md_json_losses();
    char *text = json_dumps(chat->messages, JSON_INDENT(2));
    size_t n = text ? strlen(text) : 0;
    char *line = text && md_json_losses() == losses ? realloc(text, n + 2) : NULL;
    if (!line) {
        free(text);
        return md_fail(err, MD_E_MEMORY, "out of memory");
    }
    memcpy(line + n, "\n", 2);
    md_status status = md_file_write_atomic(path, line, n + 1, err);
    free(line);
    return status == MD_OK ? keep_file(chat, path, err) : status;
}

md_status md_chat_load(md_chat *chat, const char *path, md_error *err) {
    json_t *root = NULL, *checked = NULL, *before = chat->messages;
    size_t tokens;
    MD_TRY(md_json_read_file(path, FILE_BYTES_MAX, &root, err));
    const json_t *messages = json_is_object(root) ? json_object_get(root, "messages") : root;
    md_status status = md_chat_messages_check(messages, true, &checked, err);
    json_decref(root);
    if (status != MD_OK) return md_fail_context(err, status, "%s", path);
    chat->messages = checked;
    status = md_chat_count(chat, &tokens, err); // the template has its own opinion
    if (status != MD_OK) {
        chat->messages = before;
        json_decref(checked);
        return md_fail_context(err, status, "%s", path);
    }
    json_decref(before);
    chat->attempts = strcmp(md_chat_last_role(chat), "assistant") == 0;
    return keep_file(chat, path, err);
}
