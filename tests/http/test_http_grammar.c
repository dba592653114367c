// The grammar of a schema, byte by byte: what it takes and what it leaves. Expected values are arithmetic (bounds of
// numbers), PCRE2 (patterns) and texts written by hand. Random walks look for dead ends: wherever a walk that the
// grammar allows may go, there is a way on to a whole sentence.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "md_test.h"
#include "server/automaton.h"
#include "server/schema.h"

static uint64_t random_state = 1;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static md_status compile(const char *text, md_automaton **out, md_error *err) {
    json_t *parsed = json_loads(text, JSON_DECODE_ANY, NULL);
    if (!parsed) fail_msg("the test's schema is no JSON: %s", text);
    json_t *schema = json_deep_copy(parsed); // the parser's strings have room behind them, where a sanitizer is blind
    json_decref(parsed);
    md_grammar grammar = {0};
    md_status status = md_schema_emit(&grammar, schema, "schema", err);
    json_decref(schema);
    *out = NULL;
    if (status == MD_OK) status = md_grammar_emit(&grammar, MD_GRAMMAR_MATCH, 0, 0, NULL, err);
    if (status == MD_OK) return md_automaton_new(&grammar, out, err);
    md_grammar_free(&grammar);
    return status;
}

static md_automaton *compiled(const char *text) {
    md_automaton *automaton;
    md_error err;
    md_status status = compile(text, &automaton, &err);
    if (status != MD_OK) fail_msg("%s: %s", text, err.message);
    return automaton;
}

static bool accepts(md_automaton *automaton, const char *text) {
    uint32_t state = md_automaton_start(automaton);
    for (; *text && state != MD_AUTOMATON_DEAD; text++)
        assert_int_equal(md_automaton_next(automaton, state, (uint8_t)*text, &state, NULL), MD_OK);
    return state != MD_AUTOMATON_DEAD && md_automaton_accepts(automaton, state);
}

// A sentence by a random walk; it ends at the first chance after `enough` bytes, from where on the bytes in `closing`
// are likelier than others. False when it finds no end within `cap` bytes. Fails at a dead end.
static bool walk(md_automaton *automaton, size_t enough, const char *closing, char *out, size_t cap) {
    uint32_t state = md_automaton_start(automaton);
    size_t n = 0;
    while (!(md_automaton_accepts(automaton, state) && (n >= enough || random_below(4) == 0))) {
        uint8_t ways[256];
        uint32_t count = 0, next;
        bool trimmed;
        assert_int_equal(md_automaton_trim(automaton, &state, &trimmed, NULL), MD_OK);
        for (uint32_t byte = 0; byte < 256; byte++) {
            assert_int_equal(md_automaton_next(automaton, state, (uint8_t)byte, &next, NULL), MD_OK);
            if (next != MD_AUTOMATON_DEAD) ways[count++] = (uint8_t)byte;
        }
        if (count == 0 && md_automaton_accepts(automaton, state)) break;
        if (count == 0) fail_msg("a dead end after: %.*s", (int)n, out);
        uint8_t byte = ways[random_below(count)];
        for (uint32_t i = 0; n >= enough && i < count && !strchr(closing, byte); i++)
            if (strchr(closing, ways[i]) && random_below(2)) byte = ways[i];
        if (n + 1 == cap) return false;
        out[n++] = (char)byte;
        assert_int_equal(md_automaton_next(automaton, state, byte, &state, NULL), MD_OK);
    }
    out[n] = '\0';
    return true;
}

// ---- numbers ---------------------------------------------------------------------------------------------------

static void whole_numbers_within_bounds(void **state) {
    (void)state;
    static const int64_t ends[] = {-1000000007, -1000, -99, -10, -1,  0,   1,   7,
                                   9,           10,    11,  99,  100, 305, 999, 123456789012345};
    enum { N = sizeof ends / sizeof ends[0] };
    for (int form = 0; form < 4; form++)
        for (int i = 0; i < N; i++)
            for (int k = i; k < N; k++) {
                char text[256], number[32];
                bool open_low = form & 1, open_high = form & 2;
                if (ends[k] - ends[i] <= (open_low && open_high)) continue; // would be empty
                if (ends[k] == ends[i] && form) continue;
                snprintf(text, sizeof text, "{\"type\": \"integer\", \"%s\": %lld, \"%s\": %lld}",
                         open_low ? "exclusiveMinimum" : "minimum", (long long)ends[i],
                         open_high ? "exclusiveMaximum" : "maximum", (long long)ends[k]);
                md_automaton *automaton = compiled(text);
                int64_t tries[400];
                int count = 0;
                for (int e = 0; e < N; e++)
                    for (int64_t d = -2; d <= 2; d++) tries[count++] = ends[e] + d;
                for (int64_t n = -130; n <= 130; n += 1 + (int64_t)random_below(3)) tries[count++] = n;
                for (int t = 0; t < count; t++) {
                    bool in = (open_low ? tries[t] > ends[i] : tries[t] >= ends[i]) &&
                              (open_high ? tries[t] < ends[k] : tries[t] <= ends[k]);
                    snprintf(number, sizeof number, "%lld", (long long)tries[t]);
                    if (accepts(automaton, number) != in) fail_msg("%s: %s", text, number);
                }
                assert_false(accepts(automaton, "01") || accepts(automaton, "-0") || accepts(automaton, "1.0") ||
                             accepts(automaton, "1e1") || accepts(automaton, ""));
                char sentence[64];
                for (int w = 0; w < 4; w++) assert_true(walk(automaton, 0, "", sentence, sizeof sentence));
                md_automaton_free(automaton);
            }
}

// Bounds in thousandths, so that the expected value is arithmetic of whole numbers.
static void decimal_numbers_within_bounds(void **state) {
    (void)state;
    static const int ends[] = {-2250, -1000, -500, -125, 0, 5, 250, 255, 500, 750, 1000, 1005, 1500, 3000, 100000};
    static const char *const texts[] = {"-2.25", "-1",   "-0.5", "-0.125", "0",   "0.005", "0.25", "0.255",
                                        "0.5",   "0.75", "1.0",  "1.005",  "1.5", "3",     "1e2"};
    enum { N = sizeof ends / sizeof ends[0] };
    for (int form = 0; form < 4; form++)
        for (int i = -1; i < N; i++)
            for (int k = i < 0 ? 0 : i; k <= N; k++) {
                bool open_low = i >= 0 && form & 1, open_high = k < N && form & 2;
                if ((i < 0 && k == N) || (i == k && form)) continue;
                char text[256], low[64] = "", high[64] = "", number[64];
                if (i >= 0)
                    snprintf(low, sizeof low, ", \"%s\": %s", open_low ? "exclusiveMinimum" : "minimum", texts[i]);
                if (k < N)
                    snprintf(high, sizeof high, ", \"%s\": %s", open_high ? "exclusiveMaximum" : "maximum", texts[k]);
                snprintf(text, sizeof text, "{\"type\": \"number\"%s%s}", low, high);
                md_automaton *automaton = compiled(text);
                for (int n = -2600; n <= 3200; n += 1 + (int)random_below(9)) {
                    int size = abs(n);
                    bool in = (i < 0 || (open_low ? n > ends[i] : n >= ends[i])) &&
                              (k == N || (open_high ? n < ends[k] : n <= ends[k]));
                    snprintf(number, sizeof number, "%s%d.%03d", n < 0 ? "-" : "", size / 1000, size % 1000);
                    if (accepts(automaton, number) != in) fail_msg("%s: %s", text, number);
                    if (size % 10 == 0) {
                        number[strlen(number) - 1] = '\0';
                        if (accepts(automaton, number) != in) fail_msg("%s: %s", text, number);
                    }
                    if (size % 1000 == 0) {
                        snprintf(number, sizeof number, "%d", n / 1000);
                        if (accepts(automaton, number) != in) fail_msg("%s: %s", text, number);
                    }
                }
                for (int w = 0; w < 6; w++) {
                    char sentence[64];
                    assert_true(walk(automaton, 3, "", sentence, sizeof sentence));
                    double x = strtod(sentence, NULL);
                    bool below = i >= 0 && x < strtod(texts[i], NULL), above = k < N && x > strtod(texts[k], NULL);
                    if (below || above) fail_msg("%s: %s", text, sentence);
                }
                md_automaton_free(automaton);
            }
}

static void check_multiples(const char *schema, int64_t factor, int64_t low, int64_t high) {
    md_automaton *automaton = compiled(schema);
    char text[64];
    for (int64_t n = -1300; n <= 1300; n++) {
        snprintf(text, sizeof text, "%lld", (long long)n);
        bool in = n % factor == 0 && n >= low && n <= high;
        if (accepts(automaton, text) != in) fail_msg("%s: %s", schema, text);
    }
    assert_false(accepts(automaton, "-0") || accepts(automaton, "00") || accepts(automaton, "0.0"));
    for (int w = 0; w < 40; w++) {
        assert_true(walk(automaton, 8, "", text, sizeof text));
        long long n = atoll(text);
        if (n % factor != 0 || n < low || n > high || strlen(text) > 16) fail_msg("%s: wrote %s", schema, text);
    }
    md_automaton_free(automaton);
}

static void multiples(void **state) {
    (void)state;
    static const int64_t factors[] = {1, 2, 3, 7, 10, 12, 64, 100, 256};
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        char schema[128];
        long long k = (long long)factors[i];
        snprintf(schema, sizeof schema, "{\"type\": \"integer\", \"multipleOf\": %lld}", k);
        check_multiples(schema, k, INT64_MIN, INT64_MAX);
        snprintf(schema, sizeof schema, "{\"type\": \"number\", \"multipleOf\": %lld.0, \"minimum\": 0}", k);
        check_multiples(schema, k, 0, INT64_MAX);
        snprintf(schema, sizeof schema, "{\"multipleOf\": %lld, \"exclusiveMinimum\": -256, \"maximum\": 256.5}", k);
        check_multiples(schema, k, -255, 256);
    }
    check_multiples("{\"type\": \"integer\", \"multipleOf\": 500, \"minimum\": -999.5, \"exclusiveMaximum\": 1000}",
                    500, -999, 999);
    md_automaton *automaton;
    md_error err;
    assert_int_equal(compile("{\"multipleOf\": 0}", &automaton, &err), MD_E_USAGE);
    assert_int_equal(compile("{\"multipleOf\": \"2\"}", &automaton, &err), MD_E_USAGE);
    assert_int_equal(compile("{\"multipleOf\": 7, \"minimum\": 1, \"maximum\": 6}", &automaton, &err), MD_E_USAGE);
    assert_int_equal(compile("{\"multipleOf\": 0.01}", &automaton, &err), MD_E_UNSUPPORTED);
    assert_int_equal(compile("{\"multipleOf\": 257}", &automaton, &err), MD_E_UNSUPPORTED);
    assert_int_equal(compile("{\"multipleOf\": 3, \"minimum\": 5}", &automaton, &err), MD_E_UNSUPPORTED);
}

// ---- patterns --------------------------------------------------------------------------------------------------

static bool pcre_matches(const char *pattern, const char *text) {
    int number;
    PCRE2_SIZE offset;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_NEVER_BACKSLASH_C,
                                     &number, &offset, NULL);
    if (!code) fail_msg("PCRE2 does not take %s", pattern);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    bool found = pcre2_match(code, (PCRE2_SPTR)text, strlen(text), 0, 0, data, NULL) >= 0;
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return found;
}

// As the grammar writes strings: json_dumps, whose \u escapes are those of controls only.
static void as_json(const char *text, char *out, size_t cap) {
    json_t *string = json_string(text);
    char *dumped = json_dumps(string, JSON_ENCODE_ANY);
    snprintf(out, cap, "%s", dumped);
    for (char *c = out; *c; c++) // jansson writes \u001F
        if (c[0] == '\\' && c[1] == 'u')
            for (int i = 2; i < 6; i++) c[i] = (char)(c[i] | (c[i] >= 'A' && c[i] <= 'F' ? 0x20 : 0));
    free(dumped);
    json_decref(string);
}

static const char *const patterns[] = {"^[a-z]+$",
                                       "a",
                                       "^a",
                                       "b$",
                                       "^ab|ba$",
                                       "^(ab|ba)$",
                                       "^(?:a|bc)*$",
                                       "^[^ab]{2,3}$",
                                       "^a{3}$",
                                       "^a{2,}b?$",
                                       "^.$",
                                       "^\\d\\d-\\w+$",
                                       "^\\s$",
                                       "^\\S+$",
                                       "^[\\d_]*$",
                                       "^\\D\\W$",
                                       "^a\\.b$",
                                       "^\\/\\\\\"$",
                                       "^[-a]$",
                                       "^[a-]$",
                                       "^[\\]a]$",
                                       "^\\u00e9$",
                                       "^\\x61$",
                                       "^[\\u00e0-\\u00ff]+$",
                                       "^(a*)*b$",
                                       "^(a|b?){3}$",
                                       "^(a?b?){2,5}$",
                                       "^((a|b)(c|d)){2}$",
                                       "^[^\\n]*$",
                                       "^\\t\\n$",
                                       "",
                                       "^$",
                                       "^(?<year>ab)-(?<rest>c)$",
                                       "(a|b){2}c",
                                       "^a+?b*?$",
                                       "^[.]$",
                                       "^[^a]$",
                                       "^[\\s\\S]$",
                                       "^a|b|c$",
                                       "^(|a)$",
                                       "^a{0}b$",
                                       "^\\-\\.$"};

static void patterns_as_pcre2_reads_them(void **state) {
    (void)state;
    static const char *const pieces[] = {"a", "b", "c", "d",  "1",  "_", "-", ".",    "\"", "\\",
                                         "/", "é", " ", "\n", "\t", "z", "]", "\x01", "中"};
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        char schema[512], quoted[256], text[64], json[512];
        as_json(patterns[p], quoted, sizeof quoted);
        snprintf(schema, sizeof schema, "{\"type\": \"string\", \"pattern\": %s}", quoted);
        md_automaton *automaton = compiled(schema);
        for (int t = 0; t < 3000; t++) {
            uint32_t length = random_below(7), few = 1 + random_below(sizeof pieces / sizeof pieces[0]);
            text[0] = '\0';
            for (uint32_t i = 0; i < length; i++) strcat(text, pieces[random_below(few)]);
            as_json(text, json, sizeof json);
            bool expected = pcre_matches(patterns[p], text);
            if (accepts(automaton, json) != expected) fail_msg("%s: %s, PCRE2 says %d", patterns[p], json, expected);
        }
        // And what it writes by itself. By chance alone it rarely comes upon what a pattern without anchors waits for.
        for (int w = 0; w < 40; w++) {
            char sentence[4096];
            if (!walk(automaton, 4, "\"", sentence, sizeof sentence)) break;
            json_t *value = json_loads(sentence, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            if (!value) fail_msg("%s: %s is no JSON", patterns[p], sentence);
            const char *text_written = json_string_value(value);
            bool ascii = true;
            for (const char *c = text_written; *c; c++) ascii &= (unsigned char)*c < 0x80;
            // PCRE2's \s is ASCII's here, ECMA's is Unicode's.
            bool comparable =
                strlen(text_written) == json_string_length(value) && (ascii || !strstr(patterns[p], "\\s"));
            if (comparable && !pcre_matches(patterns[p], text_written)) fail_msg("%s: wrote %s", patterns[p], sentence);
            json_decref(value);
        }
        md_automaton_free(automaton);
    }
}

static void patterns_with_lengths(void **state) {
    (void)state;
    static const struct {
        const char *schema, *in[4], *out[4];
    } cases[] = {
        {"{\"pattern\": \"^[a-z0-9]+$\", \"minLength\": 2, \"maxLength\": 3}",
         {"\"ab\"", "\"a1b\""},
         {"\"a\"", "\"abcd\"", "\"A1\""}},
        {"{\"pattern\": \"^x[a-z]*-$\", \"minLength\": 4, \"maxLength\": 5}",
         {"\"xab-\"", "\"xabc-\""},
         {"\"xa-\"", "\"xabcd-\"", "\"xab\""}},
        {"{\"pattern\": \"^(ab|cd){2}$\", \"minLength\": 1, \"maxLength\": 9}", {"\"abcd\""}, {"\"ab\""}},
        {"{\"pattern\": \"é*\", \"minLength\": 0}", {"\"\"", "\"éx\""}, {"x"}},
        {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 2}",
         {"\"é中\"", "\"\\n\\u0001\"", "\"\\\"\\/\""},
         {"\"a\"", "\"abc\"", "\"\\u0061a\""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        md_automaton *automaton = compiled(cases[i].schema);
        for (int k = 0; k < 4; k++) {
            if (cases[i].in[k] && !accepts(automaton, cases[i].in[k]))
                fail_msg("%s: %s", cases[i].schema, cases[i].in[k]);
            if (cases[i].out[k] && accepts(automaton, cases[i].out[k]))
                fail_msg("%s: %s", cases[i].schema, cases[i].out[k]);
        }
        md_automaton_free(automaton);
    }
}

// ---- recursion -------------------------------------------------------------------------------------------------

static void recursive_schemas_have_no_dead_ends(void **state) {
    (void)state;
    static const char *const schemas[] = {
        // A list, a tree, and one that needs another of itself unless a choice ends it.
        "{\"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"v\": {\"type\": \"integer\"}, \"next\": "
        "{\"anyOf\": "
        "[{\"$ref\": \"#/$defs/n\"}, {\"type\": \"null\"}]}}, \"required\": [\"v\", \"next\"], "
        "\"additionalProperties\": "
        "false}}, \"$ref\": \"#/$defs/n\"}",
        "{\"type\": \"object\", \"properties\": {\"c\": {\"type\": \"array\", \"items\": {\"$ref\": \"#\"}}}, "
        "\"required\": [\"c\"]}",
        "{\"type\": \"object\", \"properties\": {\"n\": {\"$ref\": \"#\"}}}",
        "{\"$defs\": {\"e\": {\"anyOf\": [{\"type\": \"object\", \"properties\": {\"l\": {\"$ref\": \"#/$defs/e\"}, "
        "\"r\": "
        "{\"$ref\": \"#/$defs/e\"}}, \"required\": [\"l\", \"r\"]}, {\"type\": \"boolean\"}]}}, \"$ref\": "
        "\"#/$defs/e\"}",
        "{\"type\": \"array\", \"minItems\": 1, \"maxItems\": 2, \"items\": {\"anyOf\": [{\"$ref\": \"#\"}, "
        "{\"const\": 1}]}}",
        "{\"type\": \"array\", \"items\": {\"$ref\": \"#/items/anyOf/1\"}, \"maxItems\": 2, \"$defs\": {}, "
        "\"description\": \"\"}",
        "{\"type\": \"object\"}",
        "{}"};
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
        if (i == 5) continue; // the pointer leads nowhere: among those refused below
        md_automaton *automaton = compiled(schemas[i]);
        static char sentence[1 << 16];
        for (int w = 0; w < 30; w++) {
            assert_true(walk(automaton, 50, "\"]}", sentence, sizeof sentence));
            json_t *value = json_loads(sentence, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            if (!value) fail_msg("%s is no JSON", sentence);
            json_decref(value);
        }
        md_automaton_free(automaton);
    }
    // As deep as there is room: the grammar itself says when it is enough.
    md_automaton *tree = compiled(schemas[1]);
    uint32_t at = md_automaton_start(tree), depth = 0;
    static const char deeper[] = "{\"c\":[";
    for (bool alive = true; alive;) {
        for (const char *c = deeper; *c && alive; c++) {
            assert_int_equal(md_automaton_next(tree, at, (uint8_t)*c, &at, NULL), MD_OK);
            alive = at != MD_AUTOMATON_DEAD;
        }
        depth += alive;
    }
    assert_true(depth >= 15 && depth <= 100);
    md_automaton_free(tree);
}

// Definitions that lead to one another, far deeper than a schema may be nested by itself, there and back.
static void many_definitions(void **state) {
    (void)state;
    enum { N = 100, CAP = 1 << 16 };
    char *schema = malloc(CAP), *text = malloc(CAP);
    size_t n = (size_t)snprintf(schema, CAP, "{\"$ref\": \"#/$defs/d0\", \"$defs\": {");
    for (int i = 0; i < N; i++)
        n += (size_t)snprintf(
            schema + n, CAP - n,
            "\"d%d\": {\"type\": \"object\", \"properties\": {\"k%d\": {\"anyOf\": [{\"$ref\": "
            "\"#/$defs/d%d\"}, {\"$ref\": \"#/$defs/d%d\"}, {\"const\": %d}]}}, \"required\": [\"k%d\"]}, ",
            i, i, (i + 1) % N, (i + N - 1) % N, i, i);
    snprintf(schema + n, CAP - n, "\"end\": {}}}");
    md_automaton *automaton = compiled(schema);
    assert_true(accepts(automaton, "{\"k0\":{\"k1\":{\"k2\":{\"k1\":1}}}}"));
    assert_true(accepts(automaton, "{\"k0\":{\"k99\":{\"k0\":0}}}"));
    assert_false(accepts(automaton, "{\"k0\":{\"k2\":2}}"));
    assert_false(accepts(automaton, "{\"k0\":1}"));
    for (int w = 0; w < 20; w++) assert_true(walk(automaton, 40, "0123456789", text, CAP));
    md_automaton_free(automaton);
    free(schema);
    free(text);
}

static void schemas_that_no_answer_satisfies(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{\"type\": \"object\", \"properties\": {\"n\": {\"$ref\": \"#\"}}, \"required\": [\"n\"]}",
        "{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}, \"minItems\": 1}",
        "{\"type\": \"string\", \"pattern\": \"^[^\\\\s\\\\S]$\"}",
        "{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 4}",
        "{\"type\": \"integer\", \"exclusiveMinimum\": 5, \"exclusiveMaximum\": 6}",
        "{\"type\": \"integer\", \"minimum\": 0.2, \"maximum\": 0.8}",
        "{\"$defs\": {\"a\": {\"$ref\": \"#/$defs/b\"}, \"b\": {\"$ref\": \"#/$defs/a\"}}, \"$ref\": \"#/$defs/a\"}",
        "{\"pattern\": \"^a$\", \"minLength\": 2}"};
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
        md_automaton *automaton;
        md_error err;
        md_status status = compile(schemas[i], &automaton, &err);
        if (status != MD_E_USAGE) fail_msg("%s: %s", schemas[i], md_status_name(status));
    }
}

static void patterns_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        md_status status;
    } cases[] = {{"^+[a-z]$", MD_E_USAGE},
                 {"(a", MD_E_USAGE},
                 {"a)", MD_E_USAGE},
                 {"[a", MD_E_USAGE},
                 {"a**", MD_E_USAGE},
                 {"[z-a]", MD_E_USAGE},
                 {"a{2,1}", MD_E_USAGE},
                 {"\\\\", MD_E_USAGE},
                 {"([\\\\", MD_E_USAGE},
                 {"([a-\\\\", MD_E_USAGE},
                 {"([\\\\x", MD_E_USAGE},
                 {"{1}", MD_E_USAGE},
                 {"(?=a)b", MD_E_UNSUPPORTED},
                 {"(?!a)b", MD_E_UNSUPPORTED},
                 {"(?<=a)b", MD_E_UNSUPPORTED},
                 {"(a)\\\\1", MD_E_UNSUPPORTED},
                 {"\\\\bfoo\\\\b", MD_E_UNSUPPORTED},
                 {"\\\\p{L}", MD_E_UNSUPPORTED},
                 {"a^b", MD_E_UNSUPPORTED},
                 {"(^a|b)c", MD_E_UNSUPPORTED},
                 {"a{5000}", MD_E_UNSUPPORTED},
                 {"(a{100}){100}", MD_E_UNSUPPORTED},
                 {"(?i)a", MD_E_UNSUPPORTED},
                 {"\\\\u{61}", MD_E_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char schema[256];
        md_automaton *automaton;
        md_error err;
        snprintf(schema, sizeof schema, "{\"type\": \"string\", \"pattern\": \"%s\"}", cases[i].pattern);
        md_status status = compile(schema, &automaton, &err);
        if (status != cases[i].status) fail_msg("%s: %s", cases[i].pattern, md_status_name(status));
        assert_non_null(strstr(err.message, "schema"));
    }
    for (int kind = 0; kind < 3; kind++) { // hostile sizes: quickly, and without using up the stack
        static char schema[70000];
        static const char *const parts[] = {"(", "a", "(a?)"};
        strcpy(schema, "{\"pattern\": \"");
        while (strlen(schema) < 60000) strcat(schema, parts[kind]);
        strcat(schema, "\"}");
        md_automaton *automaton;
        md_error err;
        assert_int_equal(compile(schema, &automaton, &err), MD_E_UNSUPPORTED);
    }
}

// {"enum": [...]} of `count` equal arrays: `size` zeros, and `last`.
static json_t *enum_of_arrays(int count, int size, int last) {
    json_t *array = json_array(), *values = json_array();
    for (int i = 0; i < size; i++) json_array_append_new(array, json_integer(0));
    json_array_append_new(array, json_integer(last));
    for (int i = 0; i < count; i++) json_array_append(values, array);
    json_decref(array);
    return json_pack("{s:o}", "enum", values);
}

// Telling the schemas of a oneOf apart costs what their values hold, not how many there are.
static void one_of_is_told_apart_with_bounded_work(void **state) {
    (void)state;
    static const struct {
        int count, size;
        md_status status;
        const char *message;
    } cases[] = {
        {4, 10, MD_OK, NULL},
        {512, 700, MD_E_UNSUPPORTED, "schema.oneOf: the schemas are too large or too many to be told apart"},
        {1025, 0, MD_E_UNSUPPORTED, "schema.oneOf: found an enum of 1025 values, expected at most 1024"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int as_member = 0; as_member < 2; as_member++) {
            json_t *list = json_array();
            for (int last = 1; last <= 2; last++) {
                json_t *values = enum_of_arrays(cases[i].count, cases[i].size, last);
                if (as_member)
                    values = json_pack("{s:s, s:{s:o}, s:[s]}", "type", "object", "properties", "kind", values,
                                       "required", "kind");
                json_array_append_new(list, values);
            }
            json_t *schema = json_pack("{s:o}", "oneOf", list);
            md_grammar grammar = {0};
            md_error err = {0};
            assert_int_equal(md_schema_emit(&grammar, schema, "schema", &err), cases[i].status);
            if (cases[i].message && !strstr(err.message, cases[i].message)) fail_msg("%s", err.message);
            md_grammar_free(&grammar);
            json_decref(schema);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_within_bounds),
        cmocka_unit_test(decimal_numbers_within_bounds),
        cmocka_unit_test(multiples),
        cmocka_unit_test(patterns_as_pcre2_reads_them),
        cmocka_unit_test(patterns_with_lengths),
        cmocka_unit_test(recursive_schemas_have_no_dead_ends),
        cmocka_unit_test(many_definitions),
        cmocka_unit_test(schemas_that_no_answer_satisfies),
        cmocka_unit_test(patterns_that_are_refused),
        cmocka_unit_test(one_of_is_told_apart_with_bounded_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
