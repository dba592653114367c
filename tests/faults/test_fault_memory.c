// Every allocation fails in turn, in everything the library does: it says so, nothing leaks, and what it was done to is
// usable afterwards.
#include <string.h>
#include <sys/stat.h>

#include "chat/messages.h"
#include "chat/template.h"
#include "chat/toolcall.h"
#include "faults/each.h"
#include "megadecode.h"
#include "model_maker.h"

static char *folder;        // a small snapshot
static md_model *model;     // of it, 2 workers
static md_session *session; // of it, bf16 cache
static md_tokenizer *story; // of the shipped model
static const char fairytales[] = "models/fairytales";

enum { PROMPT = 21, CONTEXT = 160 };
static uint32_t prompt[PROMPT];

static void add_logits(uint64_t *digest, const md_session *s) {
    md_model_info info;
    md_model_get_info(model, &info);
    const float *logits = md_session_logits(s);
    if (logits) each_add(digest, logits, info.vocab * sizeof *logits);
}

// ---- opening -----------------------------------------------------------------------------------------------------

static md_status open_model(const char *engine, uint32_t threads, uint64_t *digest, md_error *err) {
    md_model *m;
    md_model_options options = {.engine = engine, .device = "cpu", .threads = threads};
    MD_TRY(md_model_open(folder, &options, &m, err));
    md_model_info info;
    md_model_get_info(m, &info);
    each_add(digest, &info.weight_bytes, sizeof info.weight_bytes);
    md_model_close(m);
    return MD_OK;
}

static md_status open_resident(uint64_t *digest, md_error *err) { return open_model("resident", 1, digest, err); }
static md_status open_reference(uint64_t *digest, md_error *err) { return open_model("reference", 1, digest, err); }
static md_status open_team(uint64_t *digest, md_error *err) { return open_model("resident", 4, digest, err); }

static void test_load(void **state) {
    (void)state;
    each_fails("model, resident", open_resident, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("model, reference", open_reference, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("model, threads fail", open_team, FAULT_THREAD, MD_E_IO);
    each_fails("model, advice fails", open_team, FAULT_ADVICE, MD_E_IO);
}

// ---- sessions ----------------------------------------------------------------------------------------------------

static md_status a_session(const char *kv, bool from_start, uint64_t *digest, md_error *err) {
    md_session_options options = {.context = CONTEXT, .kv = kv, .kv_from_start = from_start};
    md_session *s;
    MD_TRY(md_session_open(model, &options, &s, err));
    md_status status = md_session_sync(s, prompt, PROMPT, NULL, err);
    if (status == MD_OK) status = md_session_feed(s, prompt, 3, err);
    if (status == MD_OK) add_logits(digest, s);
    md_session_close(s);
    return status;
}

static md_status plain_session(uint64_t *digest, md_error *err) { return a_session(NULL, false, digest, err); }
static md_status quantized_session(uint64_t *digest, md_error *err) { return a_session("4", false, digest, err); }
static md_status snapshot_session(uint64_t *digest, md_error *err) { return a_session("snapshot", true, digest, err); }

static bool every_row(void *user, uint32_t position, const float *logits) {
    (void)position;
    each_add(user, logits, 16 * sizeof *logits);
    return true;
}

// A session that lives on: whatever failed in it, a prompt gives the right logits afterwards.
static md_session *living;
static uint64_t living_right; // those logits

static md_status change_it(uint64_t *digest, md_error *err) {
    MD_TRY(md_session_sync(living, prompt, PROMPT, NULL, err));
    MD_TRY(md_session_feed_each(living, prompt, 5, every_row, digest, err));
    MD_TRY(md_session_rewind(living, 0, err));
    MD_TRY(md_session_sync(living, prompt, 9, NULL, err));
    MD_TRY(md_session_quantize(living, err));
    MD_TRY(md_session_sync(living, prompt, PROMPT, NULL, err));
    add_logits(digest, living);
    return MD_OK;
}

static md_status then_use_it(uint64_t *digest, md_error *err) {
    uint64_t from = atomic_load(&faults->from[FAULT_MEMORY]), found = 0;
    md_status status = change_it(digest, err);
    fault_pause(FAULT_MEMORY);
    md_error later = {0};
    must(md_session_sync(living, prompt, PROMPT, NULL, &later), &later);
    add_logits(&found, living);
    if (!living_right) living_right = found;
    if (found != living_right) fail_msg("after call %" PRIu64 " failed the session computes something else", from);
    // As a new one, for the next run.
    must(md_session_rewind(living, 0, &later), &later);
    return status;
}

static void use_after(const char *name, const char *kv, bool from_start) {
    md_session_options options = {.context = CONTEXT, .kv = kv, .kv_from_start = from_start};
    md_error err = {0};
    must(md_session_open(model, &options, &living, &err), &err);
    living_right = 0;
    each_fails(name, then_use_it, FAULT_MEMORY, MD_E_MEMORY);
    md_session_close(living);
}

// Whatever fails in a rewind or copy, the session is as it was or as it should be, and takes tokens at once.
static md_status rewind_and_feed(uint64_t *digest, md_error *err) {
    md_error later = {0};
    uint64_t from = fault_pause(FAULT_MEMORY);
    must(md_session_sync(living, prompt, PROMPT, NULL, &later), &later);
    fault_resume(FAULT_MEMORY, from);
    md_status status = md_session_rewind(living, 0, err);
    fault_pause(FAULT_MEMORY);
    assert_int_equal(md_session_position(living), status == MD_OK ? 0 : PROMPT);
    must(md_session_feed(living, prompt, 2, &later), &later);
    assert_int_equal(md_session_position(living), status == MD_OK ? 2 : PROMPT + 2);
    if (status == MD_OK) add_logits(digest, living);
    return status;
}

static md_status copy_and_feed(uint64_t *digest, md_error *err) {
    md_error later = {0};
    md_session_options options = {.context = CONTEXT, .kv = "4"};
    md_session *copy;
    uint64_t from = fault_pause(FAULT_MEMORY);
    must(md_session_sync(living, prompt, PROMPT, NULL, &later), &later);
    must(md_session_open(model, &options, &copy, &later), &later);
    must(md_session_sync(copy, prompt, 3, NULL, &later), &later);
    fault_resume(FAULT_MEMORY, from);
    md_status status = md_session_copy(copy, living, PROMPT, err);
    fault_pause(FAULT_MEMORY);
    assert_int_equal(md_session_position(copy), status == MD_OK ? PROMPT : 3);
    must(md_session_feed(copy, prompt, 2, &later), &later);
    if (status == MD_OK) add_logits(digest, copy);
    md_session_close(copy);
    return status;
}

static void test_sessions(void **state) {
    (void)state;
    each_fails("session, bf16", plain_session, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("session, quantized", quantized_session, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("session, quantized from the start", snapshot_session, FAULT_MEMORY, MD_E_MEMORY);
    use_after("session used after, bf16", NULL, false);
    use_after("session used after, quantized", "4", false);
    use_after("session used after, from the start", "8", true);
    md_session_options options = {.context = CONTEXT, .kv = "4"};
    md_error err = {0};
    must(md_session_open(model, &options, &living, &err), &err);
    each_fails("rewind, then feed", rewind_and_feed, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("copy, then feed", copy_and_feed, FAULT_MEMORY, MD_E_MEMORY);
    md_session_close(living);
}

// ---- steps and answers -------------------------------------------------------------------------------------------

static md_status a_batch(uint64_t *digest, md_error *err) {
    md_session *s[3] = {0};
    md_status status = MD_OK;
    md_session_options options = {.context = CONTEXT};
    for (int i = 0; i < 3 && status == MD_OK; i++) status = md_session_open(model, &options, &s[i], err);
    for (uint32_t round = 0; round < 3 && status == MD_OK; round++) {
        md_batch_column columns[3];
        for (int i = 0; i < 3; i++) columns[i] = (md_batch_column){s[i], prompt[round + (uint32_t)i], true};
        status = md_batch_step(model, columns, 3, err);
    }
    for (int i = 0; i < 3; i++) {
        if (status == MD_OK) add_logits(digest, s[i]);
        md_session_close(s[i]);
    }
    return status;
}

static bool add_piece(void *user, const md_piece *piece) {
    each_add(user, piece->text, piece->size);
    for (size_t i = 0; i < piece->token_count; i++) {
        each_add(user, &piece->tokens[i].id, sizeof piece->tokens[i].id);
        each_add(user, &piece->tokens[i].logprob, sizeof(double));
    }
    return true;
}

static md_status answer(const md_generation_params *params, uint64_t *digest, md_error *err) {
    uint64_t pieces = 0;
    md_status status = md_generate(session, prompt, PROMPT, params, add_piece, &pieces, NULL, err);
    *digest ^= pieces;
    return status;
}

static md_status greedy(uint64_t *digest, md_error *err) {
    return answer(&(md_generation_params){.max_tokens = 40, .ignore_eos = true}, digest, err);
}

static md_status sampled(uint64_t *digest, md_error *err) {
    static const char *const stop[] = {"\x01never", "nor this"};
    static const md_logit_bias bias[] = {{3, -1.0f}, {5, 2.0f}};
    return answer(&(md_generation_params){.sampling = {.temperature = 1,
                                                       .top_k = 50,
                                                       .top_p = 0.95,
                                                       .min_p = 0.01,
                                                       .repetition_penalty = 1.1,
                                                       .frequency_penalty = 0.1,
                                                       .seed = 7,
                                                       .bias = bias,
                                                       .bias_count = 2},
                                          .max_tokens = 40,
                                          .ignore_eos = true,
                                          .logprobs = true,
                                          .top_logprobs = 5,
                                          .stop = stop,
                                          .stop_count = 2},
                  digest, err);
}

static void test_answers(void **state) {
    (void)state;
    each_fails("batch of 3 sessions", a_batch, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("answer, greedy", greedy, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("answer, sampled", sampled, FAULT_MEMORY, MD_E_MEMORY);
}

// ---- text --------------------------------------------------------------------------------------------------------

static md_status open_tokenizer(uint64_t *digest, md_error *err) { return each_tokenizer(folder, digest, err); }

// The shipped one has a regex, a byte-level decoder and merges.
static md_status open_story_tokenizer(uint64_t *digest, md_error *err) {
    return each_tokenizer(fairytales, digest, err);
}

static md_status there_and_back(uint64_t *digest, md_error *err) {
    static const char text[] = "Once upon a time, in a \xe2\x80\x9cgreat\xe2\x80\x9d wood \xf0\x9f\x8c\xb2, 1,234 "
                               "wolves' supercalifragilistic howls\n\n  were heard.";
    uint32_t *ids = NULL;
    size_t n = 0, size = 0;
    char *back = NULL;
    MD_TRY(md_encode(story, text, sizeof text - 1, MD_ENCODE_ADD_SPECIAL | MD_ENCODE_PARSE_SPECIAL, &ids, &n, err));
    each_add(digest, ids, n * sizeof *ids);
    md_status status = md_decode(story, ids, n, true, &back, &size, err);
    if (status == MD_OK) each_add(digest, back, size);
    md_free(ids);
    md_free(back);
    return status;
}

static const char chat[] =
    "{%- macro line(m) -%}<|{{ m.role }}|>{{ m.content | trim }}{%- endmacro -%}"
    "{% for m in messages %}{{ line(m) }}{% if loop.last %} {{ m.content.split(' ') | join('/') | upper }}{% endif %}\n"
    "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}{% set ns = namespace(n=0) %}{% for k, v in "
    "{'a': 1, 'b': [2, 3.5]}.items() %}{% set ns.n = ns.n + 1 %}{{ k ~ v }}{% endfor %}{{ ns.n }}"
    "{{ messages | map(attribute='role') | list | length }}{% if add_generation_prompt %}<|assistant|>{% endif %}";
static json_t *messages, *tools;

static md_status a_chat(uint64_t *digest, md_error *err) {
    md_chat_template *compiled;
    MD_TRY(md_chat_template_compile(chat, sizeof chat - 1, "chat", &compiled, err));
    md_chat_prompt out = {0};
    json_t *checked = NULL, *functions = NULL;
    md_status status = md_chat_messages_check(messages, false, &checked, err);
    if (status == MD_OK) status = md_chat_tools_check(tools, &functions, err);
    md_chat_render render = {.messages = checked, .tools = functions, .add_generation_prompt = true, .now = 1};
    if (status == MD_OK) status = md_chat_template_render(compiled, &render, &out, err);
    if (status == MD_OK) each_add(digest, out.text, out.size);
    md_chat_prompt_free(&out);
    md_chat_template_free(compiled);
    json_decref(checked);
    json_decref(functions);
    return status;
}

static md_status parse_calls(md_toolcall_style style, const char *text, uint64_t *digest, md_error *err) {
    md_toolcall_result result;
    MD_TRY(md_toolcall_parse(style, NULL, text, strlen(text), &result, err));
    each_add(digest, result.content, result.content_size);
    for (size_t i = 0; i < result.call_count; i++) {
        each_add(digest, result.calls[i].name, strlen(result.calls[i].name));
        each_add(digest, result.calls[i].arguments, strlen(result.calls[i].arguments));
    }
    md_toolcall_result_free(&result);
    return MD_OK;
}

static md_status calls_as_json(uint64_t *digest, md_error *err) {
    return parse_calls(MD_TOOLCALL_HERMES,
                       "Well. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, \"\u00e4\"], \"b\": {}}}\n"
                       "</tool_call><tool_call>{\"arguments\": {\"n\": 1}, \"name\": \"g\"}</tool_call>",
                       digest, err);
}

static md_status calls_as_xml(uint64_t *digest, md_error *err) {
    return parse_calls(
        MD_TOOLCALL_XML,
        "So: <function name=\"f\"><param name=\"a\">12</param><param name=\"b\"><![CDATA[x < y]]></param>"
        "<param name=\"c\">{\"k\": [true, null]}</param></function>",
        digest, err);
}

static void test_text(void **state) {
    (void)state;
    md_error err = {0};
    must(md_tokenizer_open(fairytales, &story, &err), &err);
    messages = json_loads("[{\"role\": \"system\", \"content\": \"  Be kind. \"}, {\"role\": \"user\", \"content\": "
                          "[{\"type\": \"text\", \"text\": \"Tell me a story\"}]}]",
                          0, NULL);
    tools = json_loads("[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
                       "\"object\"}}}]",
                       0, NULL);
    assert_non_null(messages);
    assert_non_null(tools);
    each_fails("tokenizer, small", open_tokenizer, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("tokenizer, shipped", open_story_tokenizer, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("encode and decode", there_and_back, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("chat template", a_chat, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("tool calls, JSON", calls_as_json, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("tool calls, XML", calls_as_xml, FAULT_MEMORY, MD_E_MEMORY);
    json_decref(messages);
    json_decref(tools);
    md_tokenizer_close(story);
}

// ---- the rest ----------------------------------------------------------------------------------------------------

static md_status give_text(md_status status, char *text, uint64_t *digest) {
    if (status == MD_OK) each_add(digest, text, strlen(text));
    if (status == MD_OK) md_free(text);
    return status;
}

static md_status inspect(uint64_t *digest, md_error *err) {
    return each_inspect(folder, &(md_inspect_options){.plan = true}, digest, err);
}

// The CPU's name becomes a plainer one where /proc/cpuinfo cannot be opened, so that only the beginning is compared.
static md_status devices(uint64_t *digest, md_error *err) {
    char *json = NULL;
    MD_TRY(md_devices(&json, err));
    each_add(digest, json, sizeof "[{\"device\":\"cpu\"" - 1);
    md_free(json);
    return MD_OK;
}

static md_status emit(uint64_t *digest, md_error *err) {
    char *source = NULL;
    md_status status = md_emit_cuda(fairytales, NULL, 1, &source, err);
    return give_text(status, source, digest);
}

static md_status model_dir(uint64_t *digest, md_error *err) {
    char *dir = NULL;
    md_status status = md_model_dir(folder, &dir, err);
    return give_text(status, dir, digest);
}

static char *synth_home, *synth_config;

static void add_file(uint64_t *digest, const char *dir, const char *name) {
    char *path = md_path_join(dir, name), *text;
    size_t n;
    md_error err = {0};
    must(md_file_read_all(path, 64 << 20, &text, &n, &err), &err);
    each_add(digest, text, n);
    free(text);
    free(path);
}

// A whole folder or none, and no temporary one beside it.
static md_status synth(uint64_t *digest, md_error *err) {
    char out[600];
    snprintf(out, sizeof out, "%s/out", synth_home);
    md_status status = md_synth_write(synth_config, out, &(md_synth_options){.seed = 3, .bits = 4}, err);
    fault_pause(FAULT_MEMORY);
    assert_int_equal(mm_count(synth_home), status == MD_OK ? 1 : 0);
    if (status != MD_OK) return status;
    static const char *const names[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json", "model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) add_file(digest, out, names[i]);
    mm_remove(strdup(out));
    return MD_OK;
}

static void test_rest(void **state) {
    (void)state;
    each_fails("inspect", inspect, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("devices", devices, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("emit", emit, FAULT_MEMORY, MD_E_MEMORY);
    each_fails("model's folder", model_dir, FAULT_MEMORY, MD_E_MEMORY);
    synth_home = mm_temp_dir();
    synth_config = md_path_join(folder, "config.json");
    each_fails("synth", synth, FAULT_MEMORY, MD_E_MEMORY);
    free(synth_config);
    mm_remove(synth_home);
}

static int open_all(void **state) {
    (void)state;
    setvbuf(stdout, NULL, _IOLBF, 0);
    mm_shape shape = MM_SHAPE;
    shape.kv = "[{\"layer_idx\": 0, \"bits\": 8, \"group_size\": 64}, "
               "{\"layer_idx\": 1, \"bits\": 4, \"group_size\": 32}]";
    shape.extra = "\"attention_bias\": true";
    folder = mm_make(&shape, 1);
    for (uint32_t i = 0; i < PROMPT; i++) prompt[i] = (i * 37 + 11) % shape.vocab;
    md_error err = {0};
    must(md_model_open(folder, &(md_model_options){.device = "cpu", .threads = 2}, &model, &err), &err);
    must(md_session_open(model, &(md_session_options){.context = CONTEXT}, &session, &err), &err);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    md_session_close(session);
    md_model_close(model);
    mm_remove(folder);
    return 0;
}

// An argument chooses tests by name ("test_text").
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_load), cmocka_unit_test(test_sessions),
                                       cmocka_unit_test(test_answers), cmocka_unit_test(test_text),
                                       cmocka_unit_test(test_rest)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
