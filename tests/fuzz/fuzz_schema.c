// The input is a JSON schema, a NUL, and bytes. The schema compiles or is refused with a reason; whatever its automaton
// accepts is JSON, be it the bytes as they are or a sentence found by letting them choose the way.
#include <string.h>

#include "base/json.h"
#include "fuzz/fuzz.h"
#include "server/automaton.h"
#include "server/schema.h"

enum { SENTENCE = 256 };

static void check_sentence(const char *text, size_t n) {
    json_t *json = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    require(json != NULL);
    json_decref(json);
}

static void read_text(md_automaton *automaton, const char *text, size_t n) {
    uint32_t state = md_automaton_start(automaton);
    for (size_t i = 0; i < n; i++) {
        if (md_automaton_next(automaton, state, (uint8_t)text[i], &state, NULL) != MD_OK) return;
        if (state == MD_AUTOMATON_DEAD) return;
    }
    if (md_automaton_accepts(automaton, state)) check_sentence(text, n);
}

// At each place the first byte from the chosen one on that does not lead into a dead end.
static void find_sentence(md_automaton *automaton, const char *choice, size_t n) {
    char text[SENTENCE];
    uint32_t state = md_automaton_start(automaton);
    for (size_t i = 0; i < SENTENCE && i < n; i++) {
        uint32_t next = MD_AUTOMATON_DEAD;
        uint8_t byte = (uint8_t)choice[i];
        for (int tries = 0; tries < 256 && next == MD_AUTOMATON_DEAD; tries++)
            if (md_automaton_next(automaton, state, (uint8_t)(byte + tries), &next, NULL) != MD_OK)
                return;
            else
                text[i] = (char)(byte + tries);
        if (next == MD_AUTOMATON_DEAD) return;
        state = next;
        if (md_automaton_accepts(automaton, state)) check_sentence(text, i + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    size_t schema_size, text_size;
    const char *bytes = next_part(&at, end, &schema_size);
    const char *text = next_part(&at, end, &text_size);
    json_t *parsed;
    md_error err = {0};
    if (md_json_parse(bytes, schema_size, true, "schema", &parsed, &err) != MD_OK) return 0;
    json_t *schema = json_deep_copy(parsed); // the parser's strings have room behind them, where a sanitizer is blind
    json_decref(parsed);
    require(schema != NULL);
    md_grammar grammar = {0};
    md_automaton *automaton = NULL;
    md_status status = md_schema_emit(&grammar, schema, "schema", &err);
    if (status == MD_OK) status = md_grammar_emit(&grammar, MD_GRAMMAR_MATCH, 0, 0, NULL, &err);
    if (status == MD_OK) status = md_automaton_new(&grammar, &automaton, &err);
    md_grammar_free(&grammar);
    if (status == MD_OK) {
        read_text(automaton, text, text_size);
        find_sentence(automaton, text, text_size);
    } else {
        require(err.message[0] != 0);
    }
    md_automaton_free(automaton);
    json_decref(schema);
    return 0;
}
