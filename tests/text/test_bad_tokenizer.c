// Tokenizer files that are wrong or ask for what is not modelled: each is refused by name, or read as Hugging Face
// reads it; none crashes or runs for long.
#include "md_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/detok.h"
#include "tokenizer_fixture.h"

#define MODEL_START "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
#define WITH_MODEL(members) "{" members MODEL_START "\"merges\":[\"a b\"]}}"
#define WITH_MERGES(merges) "{" MODEL_START "\"merges\":" merges "}}"
#define WITH_VOCAB(vocab) "{\"model\":{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":[]}}"
#define WITH_SPLIT(regex)                                                                                              \
    WITH_MODEL("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},"                          \
               "\"behavior\":\"Isolated\",\"invert\":false},")
#define WITH_ADDED(token) WITH_MODEL("\"added_tokens\":[" token "],")

typedef struct bad_file {
    const char *json;
    md_status status;
    const char *message; // a part of it
} bad_file;

static const bad_file files[] = {
    {"", MD_E_FORMAT, "tokenizer.json: not valid JSON"},
    {"[]", MD_E_FORMAT, "tokenizer.json: found an array, expected an object"},
    {"{}", MD_E_FORMAT, "tokenizer.json: model is nothing, expected an object"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", MD_E_UNSUPPORTED,
     "\"WordPiece\" is not supported, only BPE is"},
    {"{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", MD_E_FORMAT, "\"vocab\" is nothing, expected an object"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", MD_E_FORMAT, "\"merges\" is nothing, expected an array"},
    // vocabulary ids
    {WITH_VOCAB("{\"a\":-1}"), MD_E_FORMAT, "token \"a\" has id -1, expected 0 to 4194303"},
    {WITH_VOCAB("{\"a\":1099511627776}"), MD_E_FORMAT, "token \"a\" has id 1099511627776, expected 0 to 4194303"},
    {WITH_VOCAB("{\"a\":7,\"b\":7}"), MD_E_FORMAT, "tokens \"a\" and \"b\" have the same id 7"},
    {WITH_VOCAB("{\"a\":7,\"a\":8}"), MD_E_FORMAT, "not valid JSON: duplicate object key"},
    {WITH_VOCAB("{\"a\":1.5}"), MD_E_FORMAT, "the id of token \"a\" is a number with a fraction, expected an integer"},
    {WITH_VOCAB("{\"a\":\"1\"}"), MD_E_FORMAT, "the id of token \"a\" is a string, expected an integer"},
    {WITH_VOCAB("{\"\xff\":1}"), MD_E_FORMAT, "not valid JSON"},
    // merges
    {WITH_MERGES("[\"a b\",[\"a\",\"b\"]]"), MD_E_FORMAT, "merges[1] is an array, expected a string as merges[0]"},
    {WITH_MERGES("[[\"a\",\"b\"],\"a b\"]"), MD_E_FORMAT, "merges[1] is a string, expected a pair of strings"},
    {WITH_MERGES("[[\"a\",\"b\",\"a\"]]"), MD_E_FORMAT, "merges[0] is another array, expected a pair of strings"},
    {WITH_MERGES("[\"a c\"]"), MD_E_FORMAT, "merges[0]: the part \"c\" is not in the vocabulary"},
    {WITH_MERGES("[\"b a\"]"), MD_E_FORMAT, "merges[0]: what it makes, \"ba\" is not in the vocabulary"},
    {WITH_MERGES("[\"a b ab\"]"), MD_E_FORMAT, "merges[0] is \"a b ab\", expected two parts with one space between"},
    {WITH_MERGES("[\"ab\"]"), MD_E_FORMAT, "merges[0] is \"ab\", expected two parts with one space between"},
    // what is not modelled in the model
    {"{" MODEL_START "\"continuing_subword_prefix\":\"##\",\"merges\":[]}}", MD_E_UNSUPPORTED,
     "\"continuing_subword_prefix\" is \"##\", only an empty one is supported"},
    {"{" MODEL_START "\"end_of_word_suffix\":\"</w>\",\"merges\":[]}}", MD_E_UNSUPPORTED,
     "\"end_of_word_suffix\" is \"</w>\""},
    {"{" MODEL_START "\"dropout\":0.1,\"merges\":[]}}", MD_E_UNSUPPORTED, "\"dropout\" is 0.1"},
    {"{" MODEL_START "\"unk_token\":\"<unk>\",\"merges\":[]}}", MD_E_FORMAT,
     "\"unk_token\" \"<unk>\" is not in the vocabulary"},
    {"{" MODEL_START "\"byte_fallback\":1,\"merges\":[]}}", MD_E_FORMAT, "\"byte_fallback\" is an integer"},
    // added tokens
    {WITH_ADDED("{\"id\":3}"), MD_E_FORMAT, "added_tokens[0]: \"content\" is nothing, expected a string"},
    {WITH_ADDED("{\"content\":\"x\"}"), MD_E_FORMAT, "added_tokens[0]: \"id\" is nothing, expected an integer"},
    {WITH_ADDED("{\"id\":-3,\"content\":\"x\"}"), MD_E_FORMAT, "added_tokens[0]: \"id\" is -3, expected 0 to 4194303"},
    {WITH_ADDED("{\"id\":1,\"content\":\"x\"}"), MD_E_FORMAT, "tokens \"b\" and \"x\" have the same id 1"},
    {WITH_ADDED("{\"id\":9,\"content\":\"a\"}"), MD_E_FORMAT, "token \"a\" has the ids 0 and 9"},
    {WITH_ADDED("5"), MD_E_FORMAT, "added_tokens[0]: \"id\" is nothing"},
    // types that are not modelled
    {WITH_MODEL("\"normalizer\":{\"type\":\"Precompiled\"},"), MD_E_UNSUPPORTED,
     "tokenizer.json: normalizer: the type \"Precompiled\" is not supported"},
    {WITH_MODEL("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Nmt\"}]},"), MD_E_UNSUPPORTED,
     "normalizer: the type \"Nmt\" is not supported"},
    {WITH_MODEL("\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"), MD_E_UNSUPPORTED,
     "tokenizer.json: pre_tokenizer: the type \"BertPreTokenizer\" is not supported"},
    {WITH_MODEL("\"pre_tokenizer\":{},"), MD_E_UNSUPPORTED, "pre_tokenizer: the type \"(none)\" is not supported"},
    {WITH_MODEL("\"pre_tokenizer\":7,"), MD_E_FORMAT, "pre_tokenizer: found an integer, expected an object"},
    {WITH_MODEL("\"post_processor\":{\"type\":\"RobertaProcessing\"},"), MD_E_UNSUPPORTED,
     "tokenizer.json: post_processor: the type \"RobertaProcessing\" is not supported"},
    {WITH_MODEL("\"decoder\":{\"type\":\"WordPiece\"},"), MD_E_UNSUPPORTED,
     "tokenizer.json: decoder: the type \"WordPiece\" is not supported"},
    {WITH_MODEL("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\"}]},"),
     MD_E_UNSUPPORTED, "\"Replace\" at this place of a Sequence is not supported"},
    {WITH_MODEL("\"decoder\":{\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":0},"), MD_E_FORMAT,
     "\"content\" is \"ab\", expected one character"},
    // post-processors
    {WITH_MODEL("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]},"),
     MD_E_FORMAT, "the template's \"x\" is not in \"special_tokens\""},
    {WITH_MODEL("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],"
                "\"special_tokens\":{\"x\":{\"ids\":[3]}}},"),
     MD_E_FORMAT, "has an id for \"x\" that is no token"},
    // an id below the greatest that no token has
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},"
     "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[3]}}},"
     "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":9},\"merges\":[]}}",
     MD_E_FORMAT, "has an id for \"x\" that is no token"},
    {WITH_MODEL("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]},"), MD_E_UNSUPPORTED,
     "a template that uses the text 0 times is not supported"},
    // patterns
    {WITH_SPLIT("(a"), MD_E_FORMAT, "the regex cannot be compiled: missing closing parenthesis"},
    {WITH_SPLIT("[a"), MD_E_FORMAT, "the regex has a class without its ']'"},
    {WITH_SPLIT("[a[bc]]"), MD_E_UNSUPPORTED, "the regex uses a class inside a class at byte 2"},
    {WITH_SPLIT("[a&&b]"), MD_E_UNSUPPORTED, "the regex uses an intersection of classes"},
    {WITH_SPLIT("a{2}+"), MD_E_UNSUPPORTED, "the regex uses a quantifier after an interval"},
    {WITH_SPLIT("(*FAIL)"), MD_E_UNSUPPORTED, "the regex uses \"(*\""},
    {WITH_SPLIT("\\\\C"), MD_E_UNSUPPORTED, "the regex uses \\C at byte 1"},
    {WITH_SPLIT("\\\\1"), MD_E_UNSUPPORTED, "the regex uses \\1 at byte 1"},
    {WITH_SPLIT("\\\\p{Nonsense}"), MD_E_FORMAT, "the regex cannot be compiled: unknown property"},
    {WITH_MODEL("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"},"),
     MD_E_UNSUPPORTED, "pre_tokenizer: the pattern is empty"},
    {WITH_MODEL("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Isolated\"},"), MD_E_FORMAT,
     "\"pattern\" is a string, expected {\"String\": ...} or {\"Regex\": ...}"},
    {WITH_MODEL("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Gone\"},"),
     MD_E_FORMAT, "\"behavior\" is \"Gone\", expected Removed, Isolated"},
};

static void bad_files_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        md_tokenizer *t;
        md_error err = {0};
        md_status status = open_text(files[i].json, NULL, &t, &err);
        if (status != files[i].status || !strstr(err.message, files[i].message))
            fail_msg("file %zu: %s, \"%s\"; expected %s, \"%s\"", i, md_status_name(status), err.message,
                     md_status_name(files[i].status), files[i].message);
        assert_null(t);
    }
}

static void bad_configs_are_refused_by_name(void **state) {
    (void)state;
    static const bad_file configs[] = {
        {"[]", MD_E_FORMAT, "tokenizer_config.json: found an array, expected an object"},
        {"{\"bos_token\":5}", MD_E_FORMAT, "\"bos_token\" is an integer, expected a string"},
        {"{\"chat_template\":5}", MD_E_FORMAT, "\"chat_template\" is an integer, expected a string or an array"},
        {"{\"chat_template\":[{}]}", MD_E_FORMAT, "chat_template[0] is not {\"name\": ..., \"template\": ...}"},
        {"{\"added_tokens_decoder\":{\"x\":{}}}", MD_E_FORMAT, "added_tokens_decoder has the id \"x\""},
        {"{\"added_tokens_decoder\":{\"1\":{\"content\":\"z\"}}}", MD_E_FORMAT, "have the same id 1"},
        {"{\"bos_token\":\"z\",\"add_bos_token\":true}", MD_E_FORMAT,
         "\"add_bos_token\" is set, but \"z\" is not a token"},
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        md_tokenizer *t;
        md_error err = {0};
        md_status status = open_text(WITH_MODEL(""), configs[i].json, &t, &err);
        if (status != configs[i].status || !strstr(err.message, configs[i].message))
            fail_msg("config %zu: %s, \"%s\"; expected \"%s\"", i, md_status_name(status), err.message,
                     configs[i].message);
    }
}

static void no_folder(void **state) {
    (void)state;
    md_tokenizer *t;
    md_error err;
    assert_int_equal(md_tokenizer_open("no/such/folder", &t, &err), MD_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "no/such/folder/tokenizer.json"));
    assert_null(t);
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    enum { DEPTH = 100000 };
    char *json = malloc(DEPTH + 1);
    assert_non_null(json);
    memset(json, '[', DEPTH);
    json[DEPTH] = 0;
    md_tokenizer *t;
    md_error err;
    assert_int_equal(open_text(json, NULL, &t, &err), MD_E_FORMAT);
    assert_non_null(strstr(err.message, "maximum parsing depth"));
    free(json);
}

static void long_tokens(void **state) {
    (void)state;
    enum { SIZE = 1 << 20 };
    char *json = malloc(SIZE + 300), *token = malloc(SIZE + 1);
    assert_true(json && token);
    memset(token, 'a', SIZE);
    token[SIZE] = 0;
    md_tokenizer *t;
    md_error err;
    snprintf(json, SIZE + 300,
             "{\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"%s\":1,\"a\":0},\"merges\":[]}}", token);
    t = must_open(json, NULL); // a megabyte as a token is strange, but right
    expect_encoding(t, token, SIZE, true, IDS(1));
    md_tokenizer_close(t);
    snprintf(json, SIZE + 300, "{\"added_tokens\":[{\"id\":3,\"content\":\"%s\"}]," MODEL_START "\"merges\":[]}}",
             token);
    assert_int_equal(open_text(json, NULL, &t, &err), MD_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "has 1048576 bytes, at most 512 are supported"));
    free(json);
    free(token);
}

static void an_empty_added_token_matches_nothing(void **state) {
    (void)state;
    md_tokenizer *t = must_open(WITH_ADDED("{\"id\":3,\"content\":\"\"}"), NULL);
    expect_encoding(t, "aab", 3, true, IDS(0, 2));
    md_tokenizer_close(t);
}

static void a_runaway_regex_is_stopped(void **state) {
    (void)state;
    md_tokenizer *t = must_open(WITH_SPLIT("(a+)+$"), NULL);
    char text[202];
    memset(text, 'a', 200);
    text[200] = '!';
    md_ids ids;
    md_error err;
    md_ids_init(&ids, 1000);
    assert_int_equal(md_tokenizer_encode(t, text, 201, NULL, &ids, &err), MD_E_CONTEXT);
    assert_non_null(strstr(err.message, "the tokenizer's regex gave up at byte 0 of 201: match limit exceeded"));
    assert_int_equal(ids.size, 0);
    md_ids_free(&ids);
    md_tokenizer_close(t);
}

static void a_normalizer_cannot_fill_the_memory(void **state) {
    (void)state;
    md_buf json;
    md_buf_init(&json, 1 << 16);
    md_buf_puts(&json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 30; i++)
        md_buf_printf(&json, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaa\"}",
                      i ? "," : "");
    md_buf_puts(&json, "]}," MODEL_START "\"merges\":[]}}");
    md_tokenizer *t = must_open(md_buf_str(&json), NULL);
    md_ids ids;
    md_error err;
    md_ids_init(&ids, 1 << 24);
    assert_int_equal(md_tokenizer_encode(t, "aa", 2, NULL, &ids, &err), MD_E_CONTEXT);
    assert_non_null(strstr(err.message, "the normalized text is too large"));
    md_ids_free(&ids);
    md_tokenizer_close(t);
    md_buf_free(&json);
}

// ---- broken files made from a good one -----------------------------------------------------------------------------

static const char GOOD[] =
    "{\"added_tokens\":[{\"id\":8,\"content\":\"<s>\",\"special\":true,\"lstrip\":true},{\"id\":9,\"content\":\"  \"}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Prepend\",\"prepend\":\"_"
    "\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\"_\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
    "\" ?[^\\\\s\\\\p{L}]+|\\\\p{L}{1,3}|\\\\s+(?!\\\\S)|[\\\\S]\"},\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"Metaspace\",\"replacement\":\"_\"}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
    "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[8]}}},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":"
    "\" \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<u>\",\"byte_fallback\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"_"
    "\":3,"
    "\"_ab\":4,\"<0xE2>\":5,\"<u>\":6,\"\xc3\xa9\":7},\"merges\":[[\"a\",\"b\"],[\"_\",\"ab\"]]}}";

// Opens the file, and where that works uses it; what comes out is not looked at.
static void use(const char *json, size_t n, const char *text, size_t size) {
    const md_tokenizer_source source = {.json = json, .json_size = n};
    md_tokenizer *t;
    md_error err;
    if (md_tokenizer_open_memory(&source, &t, &err) != MD_OK) return;
    md_ids ids;
    md_buf out;
    md_ids_init(&ids, 1 << 16);
    md_buf_init(&out, 1 << 20);
    md_detok detok;
    md_detok_init(&detok, t, false, false);
    (void)md_tokenizer_encode(t, text, size, NULL, &ids, &err);
    const md_encode_options guarded = {.add_special = true, .parse_special = false};
    (void)md_tokenizer_encode(t, text, size, &guarded, &ids, &err);
    (void)md_tokenizer_decode(t, ids.data, ids.size, true, &out, &err);
    for (size_t i = 0; i < ids.size; i++) (void)md_detok_put(&detok, ids.data[i], &out, &err);
    md_ids_free(&ids);
    md_buf_free(&out);
    md_tokenizer_close(t);
}

static void cut_off_files_are_refused(void **state) {
    (void)state;
    md_tokenizer *t = must_open(GOOD, NULL);
    md_tokenizer_close(t);
    for (size_t n = 0; n < sizeof GOOD - 1; n++) {
        const md_tokenizer_source source = {.json = GOOD, .json_size = n};
        md_error err;
        assert_int_equal(md_tokenizer_open_memory(&source, &t, &err), MD_E_FORMAT);
    }
}

static void changed_files_never_crash(void **state) {
    (void)state;
    enum { ROUNDS = 6000 };
    uint32_t seed = 20261130;
    print_message("seed %u\n", seed);
    char json[sizeof GOOD], text[64];
    static const char spice[] = "{}[]\",:\\0123456789-.eabE_<>+*?()|^$ \xe2\xff";
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(json, GOOD, sizeof GOOD);
        for (int k = 0; k < 1 + round % 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            size_t at = (seed >> 8) % (sizeof GOOD - 1);
            seed = seed * 1664525u + 1013904223u;
            json[at] = spice[(seed >> 8) % (sizeof spice - 1)];
        }
        for (size_t i = 0; i < sizeof text; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = round % 2 ? (char)(seed >> 24) : "ab_ <s>\xc3\xa9\xe2 1"[(seed >> 24) % 13];
        }
        use(json, sizeof GOOD - 1, text, sizeof text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_files_are_refused_by_name),
        cmocka_unit_test(bad_configs_are_refused_by_name),
        cmocka_unit_test(no_folder),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(long_tokens),
        cmocka_unit_test(an_empty_added_token_matches_nothing),
        cmocka_unit_test(a_runaway_regex_is_stopped),
        cmocka_unit_test(a_normalizer_cannot_fill_the_memory),
        cmocka_unit_test(cut_off_files_are_refused),
        cmocka_unit_test(changed_files_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
