// The input is a file for /load of `megadecode chat`: a saved conversation, as anybody may have written it. What is
// accepted can be counted, saved and loaded again, and is the same then; what is not leaves the conversation alone.
#include <string.h>

#include "cli/chat_state.h"
#include "fuzz/scratch.h"

static md_chat *open_chat(void) {
    static md_chat chat;
    if (chat.model) return &chat;
    const md_model_options options = {.device = "cpu", .threads = 1};
    const md_session_options session = {.context = 512};
    require(md_model_open("models/fairytales", &options, &chat.model, NULL) == MD_OK);
    require(md_session_open(chat.model, &session, &chat.session, NULL) == MD_OK);
    require(md_chat_format_open(&chat.format, md_model_tokenizer(chat.model), NULL, NULL) == MD_OK);
    md_model_get_info(chat.model, &chat.info);
    chat.messages = json_array();
    chat.variables = json_object();
    chat.stops = json_array();
    return &chat;
}

static void use(md_chat *chat) {
    char path[128];
    size_t tokens, again;
    md_error err = {0};
    snprintf(path, sizeof path, "%s/saved", scratch_dir());
    require(md_chat_count(chat, &tokens, &err) == MD_OK);
    require(md_chat_save(chat, path, true, &err) == MD_OK);
    json_t *before = json_deep_copy(chat->messages);
    require(md_chat_load(chat, path, &err) == MD_OK && json_equal(before, chat->messages));
    require(md_chat_count(chat, &again, &err) == MD_OK && tokens == again);
    json_decref(before);
    (void)md_chat_last_role(chat);
    require(md_chat_set_system(chat, "be brief", &err) == MD_OK && strcmp(md_chat_system(chat), "be brief") == 0);
    md_chat_clear(chat);
    require(json_array_size(chat->messages) == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    md_chat *chat = open_chat();
    char path[128];
    md_error err = {0};
    json_array_clear(chat->messages);
    scratch_write("given", (const char *)data, size);
    snprintf(path, sizeof path, "%s/given", scratch_dir());
    if (md_chat_load(chat, path, &err) == MD_OK)
        use(chat);
    else
        require(err.message[0] != 0 && json_array_size(chat->messages) == 0);
    return 0;
}
