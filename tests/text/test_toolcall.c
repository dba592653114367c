// Tool calls and reasoning in an answer's text: every case as a whole, cut in two at every place, and byte by byte.
#include "md_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "chat/reasoning.h"
#include "chat/toolcall.h"

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"exact\":{\"type\":\"boolean\"},"
    "\"opts\":{\"type\":\"object\"},\"unit\":{\"type\":[\"string\",\"null\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"run\"}}]";

typedef struct log {
    md_buf text; // "content", "{name args}" or "{name args!}" for a call that turned out malformed
    bool in_call;
    size_t calls;
} log;

// Content and arguments are joined, so that the log does not depend on the cutting.
static md_status record(void *user, const md_toolcall_event *event) {
    log *l = user;
    if (event->kind != MD_TOOLCALL_CONTENT) assert_int_equal(event->index, l->calls);
    switch (event->kind) {
    case MD_TOOLCALL_CONTENT:
        assert_false(l->in_call);
        assert_true(event->size > 0);
        return md_buf_append(&l->text, event->text, event->size);
    case MD_TOOLCALL_BEGIN:
        assert_false(l->in_call);
        l->in_call = true;
        md_buf_puts(&l->text, "\x01[");
        md_buf_append(&l->text, event->text, event->size);
        return md_buf_puts(&l->text, " ");
    case MD_TOOLCALL_ARGS:
        assert_true(l->in_call && event->size > 0);
        return md_buf_append(&l->text, event->text, event->size);
    default:
        assert_true(l->in_call);
        l->in_call = false;
        l->calls++;
        return md_buf_puts(&l->text, event->valid ? "]" : "!]");
    }
}

// Feeds text[0..cut) and the rest; cut SIZE_MAX: byte by byte.
static char *run(md_toolcall_style style, const json_t *tools, const char *text, size_t cut) {
    md_toolcall_parser *parser;
    md_error err;
    log l = {.calls = 0};
    size_t n = strlen(text);
    md_buf_init(&l.text, 1 << 20);
    assert_int_equal(md_toolcall_parser_new(style, tools, record, &l, &parser, &err), MD_OK);
    if (cut == SIZE_MAX) {
        for (size_t i = 0; i < n; i++) assert_int_equal(md_toolcall_parser_feed(parser, text + i, 1, &err), MD_OK);
    } else {
        assert_int_equal(md_toolcall_parser_feed(parser, text, cut, &err), MD_OK);
        assert_int_equal(md_toolcall_parser_feed(parser, text + cut, n - cut, &err), MD_OK);
    }
    assert_int_equal(md_toolcall_parser_finish(parser, &err), MD_OK);
    assert_false(l.in_call);
    md_toolcall_parser_free(parser);
    return md_buf_take(&l.text);
}

static void check(md_toolcall_style style, const json_t *tools, const char *text, const char *expected) {
    for (size_t cut = 0; cut <= strlen(text) + 1; cut++) {
        char *got = run(style, tools, text, cut <= strlen(text) ? cut : SIZE_MAX);
        if (strcmp(got, expected) != 0) print_error("cut at %zu of: %s\n", cut, text);
        assert_string_equal(got, expected);
        free(got);
    }
}

typedef struct {
    const char *text, *expected;
} example;

static json_t *tools_json(void) {
    json_t *tools;
    md_error err;
    assert_int_equal(md_json_parse(TOOLS, strlen(TOOLS), false, "tools", &tools, &err), MD_OK);
    return tools;
}

#define CITY(v) "<param name=\"city\">" v "</param>"
#define WEATHER(params) "<function name=\"get_weather\">" params "</function>"

static void xml_calls(void **state) {
    (void)state;
    static const example cases[] = {
        {"no call", "no call"},
        {"", ""},
        {WEATHER(CITY("Paris")), "\x01[get_weather {\"city\": \"Paris\"}]"},
        {"Let me see.\n" WEATHER(CITY("Paris")), "Let me see.\x01[get_weather {\"city\": \"Paris\"}]"},
        // Parallel calls; white space between them is no content.
        {WEATHER(CITY("Paris")) "\n" WEATHER(CITY("Rome")) "\n",
         "\x01[get_weather {\"city\": \"Paris\"}]\x01[get_weather {\"city\": \"Rome\"}]\n"},
        {WEATHER(CITY("Paris")) " and " WEATHER(CITY("Rome")) " done",
         "\x01[get_weather {\"city\": \"Paris\"}] and\x01[get_weather {\"city\": \"Rome\"}] done"},
        {WEATHER(""), "\x01[get_weather {}]"},
        {WEATHER("\n  "), "\x01[get_weather {}]"},
        {WEATHER("\n" CITY("a") "\n<param name='days'>2</param>\n"),
         "\x01[get_weather {\"city\": \"a\", \"days\": 2}]"},
        // CDATA is unwrapped, and what it protects is kept.
        {WEATHER(CITY("<![CDATA[a < b & \"c\"\n</param></function>\t\\]]>")),
         "\x01[get_weather {\"city\": \"a < b & \\\"c\\\"\\n</param></function>\\t\\\\\"}]"},
        {WEATHER(CITY("\n<![CDATA[x]]>\n")), "\x01[get_weather {\"city\": \"x\"}]"},
        {WEATHER(CITY("<![CDATA[a]]b]]>c]]>")), "\x01[get_weather {\"city\": \"a]]b]]>c\"}]"},
        {WEATHER(CITY("<![CDATA[]]>")), "\x01[get_weather {\"city\": \"\"}]"},
        {WEATHER(CITY("a < b </par> <param")), "\x01[get_weather {\"city\": \"a < b </par> <param\"}]"},
        {WEATHER(CITY(" keep ")), "\x01[get_weather {\"city\": \" keep \"}]"},
        {WEATHER(CITY("naïve 日本 😀\x01")), "\x01[get_weather {\"city\": \"naïve 日本 😀\\u0001\"}]"},
        // Types: as declared, else as they look.
        {WEATHER(CITY("12") "<param name=\"days\"> 3 </param>"), "\x01[get_weather {\"city\": \"12\", \"days\": 3}]"},
        {WEATHER("<param name=\"exact\">True</param><param name=\"opts\">{\"a\": [1]}</param>"),
         "\x01[get_weather {\"exact\": true, \"opts\": {\"a\": [1]}}]"},
        {WEATHER("<param name=\"days\">three</param><param name=\"exact\">None</param>"),
         "\x01[get_weather {\"days\": \"three\", \"exact\": null}]"},
        {WEATHER("<param name=\"unit\">null</param>"), "\x01[get_weather {\"unit\": null}]"},
        {WEATHER("<param name=\"unit\">7</param>"), "\x01[get_weather {\"unit\": \"7\"}]"},
        {"<function name=\"run\"><param name=\"a\">1.50</param><param name=\"b\">x</param><param name=\"c\">[1, "
         "2]</param>"
         "<param name=\"d\"><![CDATA[1]]></param><param name=\"e\">\"q\"</param></function>",
         "\x01[run {\"a\": 1.50, \"b\": \"x\", \"c\": [1, 2], \"d\": \"1\", \"e\": \"\\\"q\\\"\"}]"},
        // No calls: everything is content, to the byte.
        {"a <function", "a <function"},
        {"a  <func x", "a  <func x"},
        {"trailing \n ", "trailing \n "},
        {"<function name=\"nosuch\"></function>", "<function name=\"nosuch\"></function>"},
        {"<functional name=\"run\"></function>", "<functional name=\"run\"></function>"},
        {"<function name=run></function>", "<function name=run></function>"},
        {"<function name=\"run\" x></function>", "<function name=\"run\" x></function>"},
        {"x\n<function name=\"run", "x\n<function name=\"run"},
        // Malformed or cut off after it began: the arguments stay incomplete, the text comes out.
        {"x\n<function name=\"run\">text</function> y", "x\x01[run {!]\n<function name=\"run\">text</function> y"},
        {WEATHER(CITY("a") CITY("b")), "\x01[get_weather {\"city\": \"a\"!]" WEATHER(CITY("a") CITY("b"))},
        {"<function name=\"get_weather\">" CITY("a"), "\x01[get_weather {\"city\": \"a\"!]<function "
                                                      "name=\"get_weather\">" CITY("a")},
        {"<function name=\"get_weather\"><param name=\"city\">Par",
         "\x01[get_weather {\"city\": \"Par!]<function name=\"get_weather\"><param name=\"city\">Par"},
        {"<function name=\"run\">" WEATHER(CITY("x")),
         "\x01[run {!]<function name=\"run\">\x01[get_weather {\"city\": \"x\"}]"},
    };
    json_t *tools = tools_json();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(MD_TOOLCALL_XML, tools, cases[i].text, cases[i].expected);
    // Without a list of tools every name is taken, and every value as it looks.
    check(MD_TOOLCALL_XML, NULL, "<function name=\"f\"><param name=\"x\">1</param></function>", "\x01[f {\"x\": 1}]");
    json_decref(tools);
}

// What a parameter may be follows from all that its schema says, not from "type" alone.
static void parameters_of_composed_types(void **state) {
    (void)state;
    static const struct {
        const char *schema, *text, *value;
    } cases[] = {
        {"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", "7", "\"7\""},
        {"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", "null", "null"},
        {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"null\"}]}", "7", "7"},
        {"{\"type\": [\"string\", \"integer\"]}", "null", "\"null\""},
        {"{\"type\": [\"string\", \"integer\"]}", "7", "\"7\""},
        {"{\"$ref\": \"#/$defs/name\"}", "7", "\"7\""},
        {"{\"$ref\": \"#/$defs/age\"}", "7", "7"},
        {"{\"$ref\": \"#/$defs/loop\"}", "7", "7"}, // says nothing: as it looks
        {"{\"enum\": [\"1\", \"2\"]}", "1", "\"1\""},
        {"{\"enum\": [1, 2]}", "1", "1"},
        {"{\"const\": \"true\"}", "true", "\"true\""},
        {"{\"oneOf\": [{\"const\": \"a\"}, {\"$ref\": \"#/$defs/name\"}]}", "7", "\"7\""},
        {"{\"anyOf\": [{\"type\": \"string\"}, {}]}", "7", "7"}, // one of them may be anything
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char tools[1024], text[256], expected[256];
        snprintf(
            tools, sizeof tools,
            "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"x\": %s}, \"$defs\": {\"name\": "
            "{\"type\": \"string\"}, \"age\": {\"type\": \"integer\"}, \"loop\": {\"$ref\": \"#/$defs/loop\"}}}}}]",
            cases[i].schema);
        snprintf(text, sizeof text, "<function name=\"f\"><param name=\"x\">%s</param></function>", cases[i].text);
        snprintf(expected, sizeof expected, "\x01[f {\"x\": %s}]", cases[i].value);
        json_t *list = json_loads(tools, 0, NULL);
        assert_non_null(list);
        check(MD_TOOLCALL_XML, list, text, expected);
        json_decref(list);
    }
}

#define CALL(object) "<tool_call>\n" object "\n</tool_call>"

static void hermes_calls(void **state) {
    (void)state;
    static const example cases[] = {
        {"plain <b>text</b>", "plain <b>text</b>"},
        {CALL("{\"name\": \"run\", \"arguments\": {\"a\": \"}\\\"{\", \"b\": [1, {}]}}"),
         "\x01[run {\"a\": \"}\\\"{\", \"b\": [1, {}]}]"},
        {"Hm.\n\n" CALL("{\"name\": \"run\", \"arguments\": {}}") "\n" CALL(
             "{\"name\":\"run\",\"arguments\":{\"x\":1}}"),
         "Hm.\x01[run {}]\x01[run {\"x\":1}]"},
        // Any order of members, more members, the other name of the arguments.
        {CALL("{\"arguments\": {\"x\":  1}, \"name\": \"run\"}"), "\x01[run {\"x\": 1}]"},
        {CALL("{\"id\": 1, \"name\": \"run\", \"parameters\": {\"x\": 1}}"), "\x01[run {\"x\": 1}]"},
        {CALL("{\"name\": \"run\"}"), "\x01[run {}]"},
        // The closing mark may be missing at the end of the answer.
        {"<tool_call>{\"name\": \"run\", \"arguments\": {}}", "\x01[run {}]"},
        {"<tool_call>{\"name\": \"run\", \"arguments\": {}}\n</tool", "\x01[run {}]"},
        // No calls.
        {CALL("{\"name\": \"nosuch\", \"arguments\": {}}"), CALL("{\"name\": \"nosuch\", \"arguments\": {}}")},
        {CALL("run()"), CALL("run()")},
        {CALL("[1]"), CALL("[1]")},
        {CALL("{\"arguments\": {}, \"name\": 5}"), CALL("{\"arguments\": {}, \"name\": 5}")},
        {CALL("{\"name\": \"run\", \"arguments\": \"x\"}"), CALL("{\"name\": \"run\", \"arguments\": \"x\"}")},
        {"a <tool_call>{\"x\": ", "a <tool_call>{\"x\": "},
        // Begun, then malformed.
        {CALL("{\"name\": \"run\", \"arguments\": {\"x\": oops}}"),
         "\x01[run {\"x\": oops}!]" CALL("{\"name\": \"run\", \"arguments\": {\"x\": oops}}")},
        {"<tool_call>{\"name\": \"run\", \"arguments\": {\"x\": \"cut",
         "\x01[run {\"x\": \"cut!]<tool_call>{\"name\": \"run\", \"arguments\": {\"x\": \"cut"},
        {CALL("{\"name\": \"run\", \"arguments\": {}, \"more\": 1}"),
         "\x01[run {}!]" CALL("{\"name\": \"run\", \"arguments\": {}, \"more\": 1}")},
    };
    json_t *tools = tools_json();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(MD_TOOLCALL_HERMES, tools, cases[i].text, cases[i].expected);
    json_decref(tools);
}

static void llama_calls(void **state) {
    (void)state;
    static const example cases[] = {
        {"{\"name\": \"run\", \"parameters\": {\"a\": \"b\"}}", "\x01[run {\"a\": \"b\"}]"},
        {"<|python_tag|>{\"name\": \"run\", \"parameters\": {}}", "\x01[run {}]"},
        {"{\"type\": \"function\", \"name\": \"run\", \"parameters\": {}}", "\x01[run {}]"},
        {"{\"name\": \"run\", \"parameters\": {}}; {\"name\": \"run\", \"parameters\": {\"x\": 1}}\n",
         "\x01[run {}]\x01[run {\"x\": 1}]"},
        {"Sure: {\"name\": \"run\", \"parameters\": {}}", "Sure: {\"name\": \"run\", \"parameters\": {}}"},
        {"{\"answer\": 42}", "{\"answer\": 42}"},
        {"  {\"name\": \"nosuch\", \"parameters\": {}}", "  {\"name\": \"nosuch\", \"parameters\": {}}"},
        {"{", "{"},
        {" \n", " \n"},
        {"<|python", "<|python"},
        {"{\"name\": \"run\", \"parameters\": {}} text", "\x01[run {}] text"},
    };
    json_t *tools = tools_json();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(MD_TOOLCALL_LLAMA3, tools, cases[i].text, cases[i].expected);
    check(MD_TOOLCALL_NONE, tools, CALL("{}") WEATHER(""), CALL("{}") WEATHER(""));
    json_decref(tools);
}

static void whole_answers_drop_malformed_calls(void **state) {
    (void)state;
    static const char text[] = "Two:\n" WEATHER(CITY("Paris")) "\n" WEATHER(CITY("a") CITY("b")) WEATHER(CITY("Rome"));
    md_toolcall_result result;
    md_error err;
    json_t *tools = tools_json();
    assert_int_equal(md_toolcall_parse(MD_TOOLCALL_XML, tools, text, strlen(text), &result, &err), MD_OK);
    assert_int_equal(result.call_count, 2);
    assert_string_equal(result.calls[0].name, "get_weather");
    assert_string_equal(result.calls[0].arguments, "{\"city\": \"Paris\"}");
    assert_string_equal(result.calls[1].arguments, "{\"city\": \"Rome\"}");
    assert_string_equal(result.content, "Two:\n" WEATHER(CITY("a") CITY("b")));
    md_toolcall_result_free(&result);
    assert_int_equal(md_toolcall_parse(MD_TOOLCALL_XML, tools, "", 0, &result, &err), MD_OK);
    assert_string_equal(result.content, "");
    md_toolcall_result_free(&result);
    json_decref(tools);
}

// Long and repetitive text takes linear time: a parser that searched again from every mark would not come back.
static void hostile_answers_are_linear(void **state) {
    (void)state;
    static const char *const pieces[] = {"<function name=\"run\"><param name=\"a\">",
                                         "<function name=\"run\">",
                                         "<",
                                         "<tool_call>{\"name\": \"run\", \"arguments\": {",
                                         "<tool_call>{",
                                         "]]>",
                                         " ",
                                         "<function"};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        md_buf b;
        md_buf_init(&b, 4 << 20);
        while (b.size < 1000000) md_buf_puts(&b, pieces[i]);
        for (md_toolcall_style style = MD_TOOLCALL_XML; style <= MD_TOOLCALL_LLAMA3; style++) {
            md_toolcall_result result;
            md_error err;
            assert_int_equal(md_toolcall_parse(style, NULL, b.data, b.size, &result, &err), MD_OK);
            assert_int_equal(result.content_size, b.size);
            assert_memory_equal(result.content, b.data, b.size);
            md_toolcall_result_free(&result);
        }
        md_buf_free(&b);
    }
}

static md_status refuse(void *user, const md_toolcall_event *event) {
    (void)user;
    (void)event;
    return MD_E_CANCELLED;
}

static void the_sinks_status_ends_the_feed(void **state) {
    (void)state;
    md_toolcall_parser *parser;
    md_error err;
    assert_int_equal(md_toolcall_parser_new(MD_TOOLCALL_XML, NULL, refuse, NULL, &parser, &err), MD_OK);
    assert_int_equal(md_toolcall_parser_feed(parser, "abc", 3, &err), MD_E_CANCELLED);
    assert_int_equal(md_toolcall_parser_feed(parser, WEATHER(""), strlen(WEATHER("")), &err), MD_E_CANCELLED);
    md_toolcall_parser_free(parser);
}

static void styles_are_told_from_the_template(void **state) {
    (void)state;
    static const struct {
        const char *source;
        md_toolcall_style style;
    } cases[] = {
        {"{{ '<function name=\"' ~ n ~ '\">' }}", MD_TOOLCALL_XML},
        {"{{ '<tool_call>' }}", MD_TOOLCALL_HERMES},
        {"{{ '<|python_tag|>' }}", MD_TOOLCALL_LLAMA3},
        {"{{ messages }}", MD_TOOLCALL_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        md_chat_template *chat_template;
        md_error err;
        assert_int_equal(md_chat_template_compile(cases[i].source, strlen(cases[i].source), "t", &chat_template, &err),
                         MD_OK);
        assert_int_equal(md_toolcall_style_of(chat_template), cases[i].style);
        md_chat_template_free(chat_template);
    }
}

// ---- reasoning ------------------------------------------------------------------------------------------------------

typedef struct halves {
    md_buf reasoning, content;
} halves;

static md_status take(void *user, bool reasoning, const char *text, size_t n) {
    halves *h = user;
    assert_true(n > 0);
    if (reasoning) assert_int_equal(h->content.size, 0); // reasoning comes first
    return md_buf_append(reasoning ? &h->reasoning : &h->content, text, n);
}

static void check_split(bool opened, const char *text, const char *reasoning, const char *content) {
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        md_error err;
        halves h;
        md_reasoning split;
        md_buf_init(&h.reasoning, 1 << 20);
        md_buf_init(&h.content, 1 << 20);
        md_reasoning_init(&split, opened, take, &h);
        if (cut > n) {
            for (size_t i = 0; i < n; i++) assert_int_equal(md_reasoning_feed(&split, text + i, 1, &err), MD_OK);
        } else {
            assert_int_equal(md_reasoning_feed(&split, text, cut, &err), MD_OK);
            assert_int_equal(md_reasoning_feed(&split, text + cut, n - cut, &err), MD_OK);
        }
        assert_int_equal(md_reasoning_finish(&split, &err), MD_OK);
        assert_string_equal(md_buf_str(&h.reasoning), reasoning);
        assert_string_equal(md_buf_str(&h.content), content);
        md_reasoning_free(&split);
        md_buf_free(&h.reasoning);
        md_buf_free(&h.content);
    }
}

static void reasoning_is_split_off(void **state) {
    (void)state;
    check_split(false, "<think>\nhm, 1 < 2\n\nso\n</think>\n\nAnswer.\n", "hm, 1 < 2\n\nso", "Answer.\n");
    check_split(false, "\n<think>a</think>b", "a", "b");
    check_split(false, "Answer <think>x</think>", "", "Answer <think>x</think>");
    check_split(false, "  <thin", "", "  <thin");
    check_split(false, "", "", "");
    check_split(false, " \n", "", " \n");
    check_split(false, "<think>\n\n</think>\n\nAnswer", "", "Answer"); // thinking was off
    check_split(false, "<think>cut off </thi", "cut off </thi", "");
    check_split(false, "<think>only\n", "only", "");
    check_split(false, "<think>a </thinker> b</think>c</think>d", "a </thinker> b", "c</think>d");
    check_split(false, "<think>a<<</think>\n<think>b</think>", "a<<", "<think>b</think>");
    // The prompt ended with the mark.
    check_split(true, "hm\n</think>\n\nAnswer", "hm", "Answer");
    check_split(true, "\nhm", "hm", "");
    check_split(true, "</think>Answer", "", "Answer");
    check_split(true, "日本 😀</think>é", "日本 😀", "é");
}

static void an_opened_prompt_is_recognised(void **state) {
    (void)state;
    static const struct {
        const char *prompt;
        bool opens;
    } cases[] = {{"<|im_start|>assistant\n<think>\n", true},
                 {"<think>", true},
                 {"<|im_start|>assistant\n<think>\n\n</think>\n\n", false},
                 {"<|im_start|>assistant\n", false},
                 {"", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(md_reasoning_prompt_opens(cases[i].prompt, strlen(cases[i].prompt)), cases[i].opens);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xml_calls),
        cmocka_unit_test(parameters_of_composed_types),
        cmocka_unit_test(hermes_calls),
        cmocka_unit_test(llama_calls),
        cmocka_unit_test(whole_answers_drop_malformed_calls),
        cmocka_unit_test(hostile_answers_are_linear),
        cmocka_unit_test(the_sinks_status_ends_the_feed),
        cmocka_unit_test(styles_are_told_from_the_template),
        cmocka_unit_test(reasoning_is_split_off),
        cmocka_unit_test(an_opened_prompt_is_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
