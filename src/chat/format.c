#include "chat/format.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "chat/messages.h"

enum { TEMPLATE_FILE_MAX = 1 << 20 };

static md_status read_source(const md_tokenizer *tokenizer, const char *path, char **out, size_t *size, md_error *err) {
    if (path) return md_file_read_all(path, TEMPLATE_FILE_MAX, out, size, err);
    const char *own = md_tokenizer_chat_template(tokenizer, NULL, size);
    if (!own) return md_fail(err, MD_E_UNSUPPORTED, "the model has no chat template");
    *out = calloc(1, *size + 1);
    if (!*out) return md_fail(err, MD_E_MEMORY, "chat template: out of memory");
    memcpy(*out, own, *size);
    return MD_OK;
}

md_status md_chat_format_open(md_chat_format *out, const md_tokenizer *tokenizer, const char *path, md_error *err) {
    static const struct {
        md_token_role role;
        const char *name;
    } roles[] = {{MD_TOKEN_BOS, "bos_token"},
                 {MD_TOKEN_EOS, "eos_token"},
                 {MD_TOKEN_PAD, "pad_token"},
                 {MD_TOKEN_UNK, "unk_token"}};
    size_t size = 0;
    md_status status;
    *out = (md_chat_format){.source = NULL};
    MD_TRY_GOTO(read_source(tokenizer, path, &out->source, &size, err));
    MD_TRY_GOTO(md_chat_template_compile(out->source, size, path ? path : "chat_template", &out->chat_template, err));
    out->tokens = json_object();
    bool complete = out->tokens != NULL;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        const char *text = md_tokenizer_role_text(tokenizer, roles[i].role);
        if (text) complete &= json_object_set_new(out->tokens, roles[i].name, json_string(text)) == 0;
    }
    if (complete) return MD_OK;
    status = md_fail(err, MD_E_MEMORY, "chat template: out of memory");
fail:
    md_chat_format_close(out);
    return status;
}

void md_chat_format_close(md_chat_format *format) {
    md_chat_template_free(format->chat_template);
    json_decref(format->tokens);
    free(format->source);
    *format = (md_chat_format){.source = NULL};
}

md_status md_chat_format_render(const md_chat_format *format, const json_t *messages, const json_t *tools,
                                const json_t *variables, bool add_generation_prompt, md_chat_prompt *out,
                                md_error *err) {
    json_t *checked = NULL;
    *out = (md_chat_prompt){.text = NULL};
    bool developer = md_chat_template_mentions(format->chat_template, "developer");
    MD_TRY(md_chat_messages_check(messages, developer, &checked, err));
    md_chat_render render = {.messages = checked,
                             .tools = tools,
                             .variables = variables,
                             .tokens = format->tokens,
                             .add_generation_prompt = add_generation_prompt};
    md_status status = md_chat_template_render(format->chat_template, &render, out, err);
    json_decref(checked);
    return status;
}
