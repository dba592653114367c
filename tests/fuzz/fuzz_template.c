// The input is a chat template, rendered with a small conversation. Whatever comes out must be valid UTF-8 with spans
// that cover it; whatever fails must say why, in valid UTF-8 too.
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "chat/template.h"
#include "fuzz/fuzz.h"
#include "text/utf8.h"

static const char CONTEXT[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"a b\"}, {\"role\": \"user\", \"content\": \"é <|x|> '\"},"
    "{\"role\": \"assistant\", \"content\": \"<think>t</think>c\", \"tool_calls\": [{\"function\": {\"name\": \"f\","
    "\"arguments\": {\"a\": 1, \"b\": [true, null, 1.5]}}}]}, {\"role\": \"tool\", \"content\": \"\"}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}],"
    "\"tokens\": {\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"},"
    "\"variables\": {\"x\": \"word é\", \"n\": 7, \"f\": 2.5, \"xs\": [3, \"a\", null], \"d\": {\"k\": 1, \"l\": []}}}";

static void check(const md_chat_prompt *prompt) {
    const char *at = prompt->text;
    for (size_t i = 0; i < prompt->span_count; i++) {
        require(prompt->spans[i].text == at && prompt->spans[i].size > 0);
        at += prompt->spans[i].size;
    }
    require(at == prompt->text + prompt->size);
    require(md_utf8_valid_prefix(prompt->text, prompt->size) == prompt->size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *context;
    md_error err = {.message = ""};
    md_chat_template *chat_template;
    md_chat_prompt prompt = {.text = NULL};
    if (!context) require(md_json_parse(CONTEXT, strlen(CONTEXT), false, "context", &context, &err) == MD_OK);
    md_status status = md_chat_template_compile((const char *)data, size, "t", &chat_template, &err);
    if (status == MD_OK) {
        // Smaller bounds than a conversation gets, so that the fuzzer gets round quickly.
        const md_chat_limits limits = {.steps = 20000, .memory_bytes = 4 << 20, .output_bytes = 1 << 18, .depth = 400};
        const md_chat_render render = {.messages = json_object_get(context, "messages"),
                                       .tools = json_object_get(context, "tools"),
                                       .tokens = json_object_get(context, "tokens"),
                                       .variables = json_object_get(context, "variables"),
                                       .add_generation_prompt = true,
                                       .now = 1,
                                       .limits = &limits};
        status = md_chat_template_render(chat_template, &render, &prompt, &err);
        md_chat_template_free(chat_template);
    }
    if (status == MD_OK)
        check(&prompt);
    else
        require(err.message[0] && md_utf8_valid_prefix(err.message, strlen(err.message)) == strlen(err.message));
    md_chat_prompt_free(&prompt);
    return 0;
}
