// The template engine against Jinja2: tests/text/jinja_cases.json holds snippets and what Jinja2 made of them
// (make_jinja_cases.py), and ../shared/templates published templates with renderings, where it is there.
#include "md_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "chat/template.h"

// Moves the special members of `variables` to where a rendering takes them.
static void split(json_t *variables, md_chat_render *render, json_t *tokens) {
    static const char *const special[] = {"bos_token", "eos_token"};
    for (size_t i = 0; i < 2; i++) {
        json_t *value = json_object_get(variables, special[i]);
        if (value) json_object_set(tokens, special[i], value);
        json_object_del(variables, special[i]);
    }
    render->tokens = tokens;
    render->add_generation_prompt = json_is_true(json_object_get(variables, "add_generation_prompt"));
    json_object_del(variables, "add_generation_prompt");
    json_object_del(variables, "messages");
    json_object_del(variables, "tools");
    render->variables = variables;
}

// Renders and checks that the spans cover the text without gaps.
static md_status render_text(const char *source, size_t n, const md_chat_render *render, md_chat_prompt *prompt,
                             md_error *err) {
    md_chat_template *chat_template;
    *prompt = (md_chat_prompt){.text = NULL};
    md_status status = md_chat_template_compile(source, n, "snippet", &chat_template, err);
    if (status != MD_OK) return status;
    status = md_chat_template_render(chat_template, render, prompt, err);
    md_chat_template_free(chat_template);
    if (status != MD_OK) return status;
    const char *at = prompt->text;
    for (size_t i = 0; i < prompt->span_count; i++) {
        assert_ptr_equal(prompt->spans[i].text, at);
        assert_true(prompt->spans[i].size > 0);
        at += prompt->spans[i].size;
    }
    assert_ptr_equal(at, prompt->text + prompt->size);
    return MD_OK;
}

// Renders `source` and compares with `expected` (NULL: it must fail). Prints what differs; true when as expected.
static bool check(const json_t *source, const md_chat_render *render, const json_t *expected) {
    md_error err = {.code = MD_OK};
    md_chat_prompt prompt;
    md_status status = render_text(json_string_value(source), json_string_length(source), render, &prompt, &err);
    bool good = expected ? status == MD_OK && prompt.size == json_string_length(expected) &&
                               memcmp(prompt.text, json_string_value(expected), prompt.size) == 0
                         : status != MD_OK && strstr(err.message, "snippet, line ") == err.message;
    if (!good) {
        print_error("template: %s\n  got:    %s\n  wanted: %s\n", json_string_value(source),
                    status == MD_OK ? prompt.text : err.message, expected ? json_string_value(expected) : "an error");
    }
    md_chat_prompt_free(&prompt);
    return good;
}

static void snippets_equal_jinja2(void **state) {
    (void)state;
    json_t *file, *entry;
    md_error err;
    size_t i, bad = 0;
    assert_int_equal(md_json_read_file("tests/text/jinja_cases.json", 1 << 20, &file, &err), MD_OK);
    json_t *context = json_object_get(file, "context"), *variables = json_deep_copy(context), *tokens = json_object();
    md_chat_render render = {.messages = json_object_get(context, "messages"),
                             .tools = json_object_get(context, "tools"),
                             .now = json_integer_value(json_object_get(file, "clock"))};
    split(variables, &render, tokens);
    json_array_foreach(json_object_get(file, "cases"), i, entry) bad +=
        !check(json_object_get(entry, "template"), &render, json_object_get(entry, "expected"));
    assert_true(json_array_size(json_object_get(file, "cases")) > 150);
    json_decref(variables);
    json_decref(tokens);
    json_decref(file);
    assert_int_equal(bad, 0);
}

static json_t *published_template(const char *name) {
    char path[200];
    char *text;
    size_t size;
    md_error err;
    snprintf(path, sizeof path, "../shared/templates/%s.jinja", name);
    if (md_file_read_all(path, 1 << 20, &text, &size, &err) == MD_OK) {
        json_t *source = json_stringn(text, size);
        free(text);
        return source;
    }
    snprintf(path, sizeof path, "../shared/templates/%s.tokenizer_config.json", name);
    json_t *config;
    assert_int_equal(md_json_read_file(path, 1 << 20, &config, &err), MD_OK);
    json_t *source = json_incref(json_object_get(config, "chat_template"));
    json_decref(config);
    return source;
}

static void published_templates_equal_jinja2(void **state) {
    (void)state;
    json_t *file, *entry;
    md_error err;
    size_t i, bad = 0;
    if (!md_file_exists("../shared/templates/cases.json")) {
        print_message("skipped: ../shared/templates is not there\n");
        skip();
    }
    assert_int_equal(md_json_read_file("../shared/templates/cases.json", 1 << 20, &file, &err), MD_OK);
    json_array_foreach(json_object_get(file, "cases"), i, entry) {
        json_t *source = published_template(json_string_value(json_object_get(entry, "template")));
        json_t *variables = json_deep_copy(json_object_get(entry, "kwargs")), *tokens = json_object();
        json_t *tools = json_incref(json_object_get(variables, "tools"));
        md_chat_render render = {.messages = json_object_get(entry, "messages"), .tools = tools, .now = 1};
        split(variables, &render, tokens);
        bad += !check(source, &render, json_object_get(entry, "expected"));
        json_decref(source);
        json_decref(variables);
        json_decref(tokens);
        json_decref(tools);
    }
    json_decref(file);
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snippets_equal_jinja2),
        cmocka_unit_test(published_templates_equal_jinja2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
