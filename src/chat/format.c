#include "chat/format.h"

#include <stdlib.h>

#include "base/file.h"
#include "chat/messages.h"

enum { TEMPLATE_FILE_MAX = 1 << 20 };

static md_status compile(md_chat_format *out, const md_tokenizer *tokenizer, const char *path, md_error *err) {
    size_t size = 0;
    if (!path) {
        const char *own = md_tokenizer_chat_template(tokenizer, NULL, &size);
        if (!own) return md_fail(err, MD_E_UNSUPPORTED, "the model has no chat template");
        return md_chat_template_compile(own, size, "chat_template", &out->chat_template, err);
    }
    char *source = NULL;
    MD_TRY(md_file_read_all(path, TEMPLATE_FILE_MAX, &source, &size, err));
    md_status status = md_chat_template_compile(source, size, path, &out->chat_template, err);
    free(source);
    return status;
}

md_status md_chat_format_open(md_chat_format *out, const md_tokenizer *tokenizer, const char *path, md_error *err) {
    static const struct {
        md_token_role role;
        const char *name;
    } roles[] = {{MD_TOKEN_BOS, "bos_token"},
                 {MD_TOKEN_EOS, "eos_token"},
                 {MD_TOKEN_PAD, "pad_token"},
                 {MD_TOKEN_UNK, "unk_token"}};
    *out = (md_chat_format){NULL, NULL};
    MD_TRY(compile(out, tokenizer, path, err));
    out->tokens = json_object();
    bool complete = out->tokens != NULL;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        const char *text = md_tokenizer_role_text(tokenizer, roles[i].role);
        if (text) complete &= json_object_set_new(out->tokens, roles[i].name, json_string(text)) == 0;
    }
    if (complete) return MD_OK;
    md_chat_format_close(out);
    return md_fail(err, MD_E_MEMORY, "chat template: out of memory");
}

void md_chat_format_close(md_chat_format *format) {
    md_chat_template_free(format->chat_template);
    json_decref(format->tokens);
    *format = (md_chat_format){NULL, NULL};
}

md_status md_chat_format_render(const md_chat_format *format, const json_t *messages, const json_t *variables,
                                bool add_generation_prompt, md_chat_prompt *out, md_error *err) {
    json_t *checked = NULL;
    *out = (md_chat_prompt){.text = NULL};
    bool developer = md_chat_template_mentions(format->chat_template, "developer");
    MD_TRY(md_chat_messages_check(messages, developer, &checked, err));
    md_chat_render render = {.messages = checked,
                             .variables = variables,
                             .tokens = format->tokens,
                             .add_generation_prompt = add_generation_prompt};
    md_status status = md_chat_template_render(format->chat_template, &render, out, err);
    json_decref(checked);
    return status;
}
