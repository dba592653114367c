#include "server/schema_json.h"

enum {
    INDENT_MAX = 32,   // spaces after a line break; a bound keeps a model from writing white space for ever
    WHOLE_DIGITS = 15, // every integer of that many digits is exact in a double
    FRACTION_DIGITS = 17,
    EXPONENT_DIGITS = 2, // within a double's range
    STACK_MAX = 96       // of the automaton: some 30 levels of nesting where a schema allows any value
};

#define EMIT(op, a, b) MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_##op, (a), (b), NULL, err))
#define RANGE(low, high) EMIT(RANGE, (low), (high))
#define CALL(subroutine) EMIT(CALL, (subroutine), 0)
#define RETURN() EMIT(RETURN, 0, 0)

// ---- alternatives ----------------------------------------------------------------------------------------------

md_status md_json_alternative(md_grammar *grammar, md_json_choice *choice, bool more, md_error *err) {
    if (choice->split != UINT32_MAX) grammar->code[choice->split].b = grammar->size;
    choice->split = UINT32_MAX;
    if (!more) return MD_OK;
    uint32_t at;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &at, err));
    choice->split = at;
    return MD_OK;
}

md_status md_json_join(md_grammar *grammar, md_json_choice *choice, md_error *err) {
    uint32_t at;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, choice->joins, 0, &at, err));
    choice->joins = at;
    return MD_OK;
}

void md_json_choice_end(md_grammar *grammar, md_json_choice *choice) {
    for (uint32_t at = choice->joins; at != UINT32_MAX;) {
        uint32_t next = grammar->code[at].a;
        grammar->code[at].a = grammar->size;
        at = next;
    }
}

// Up to n bytes of [low, high].
static md_status emit_upto(md_grammar *grammar, uint32_t n, uint32_t low, uint32_t high, md_error *err) {
    uint32_t end = grammar->size + 2 * n;
    for (uint32_t i = 0; i < n; i++) {
        EMIT(SPLIT, grammar->size + 1, end);
        RANGE(low, high);
    }
    return MD_OK;
}

// ---- subroutines -----------------------------------------------------------------------------------------------

// Nothing, one space, or a line break and an indentation.
static md_status emit_space(md_grammar *grammar, uint32_t *at, md_error *err) {
    *at = grammar->size;
    EMIT(SPLIT, *at + 1, *at + 2);
    RETURN();
    EMIT(SPLIT, *at + 3, *at + 5);
    RANGE(' ', ' ');
    RETURN();
    RANGE('\n', '\n');
    MD_TRY(emit_upto(grammar, INDENT_MAX, ' ', ' ', err));
    RETURN();
    return MD_OK;
}

// One character of a string: UTF-8 without quote, backslash and controls, or an escape. \u stands for controls only:
// everything else has a shorter form.
static md_status emit_character(md_grammar *grammar, uint32_t *at, md_error *err) {
    static const struct {
        uint32_t n;
        uint8_t ranges[6][2];
    } rows[] = {
        {1, {{0x20, 0x21}}},
        {1, {{0x23, 0x5b}}},
        {1, {{0x5d, 0x7f}}},
        {2, {{0xc2, 0xdf}, {0x80, 0xbf}}},
        {3, {{0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}}},
        {3, {{0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}}},
        {3, {{0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}}}, // no surrogates
        {3, {{0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}}},
        {4, {{0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}},
        {4, {{0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}}},
        {4, {{0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}}},
        {2, {{'\\', '\\'}, {'"', '"'}}},
        {2, {{'\\', '\\'}, {'/', '/'}}},
        {2, {{'\\', '\\'}, {'\\', '\\'}}},
        {2, {{'\\', '\\'}, {'b', 'b'}}},
        {2, {{'\\', '\\'}, {'f', 'f'}}},
        {2, {{'\\', '\\'}, {'n', 'n'}}},
        {2, {{'\\', '\\'}, {'r', 'r'}}},
        {2, {{'\\', '\\'}, {'t', 't'}}},
        {6, {{'\\', '\\'}, {'u', 'u'}, {'0', '0'}, {'0', '0'}, {'0', '1'}, {'0', '9'}}},
        {6, {{'\\', '\\'}, {'u', 'u'}, {'0', '0'}, {'0', '0'}, {'0', '1'}, {'a', 'f'}}},
    };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    *at = grammar->size;
    md_json_choice choice = MD_JSON_CHOICE;
    for (uint32_t i = 0; i < ROWS; i++) {
        MD_TRY(md_json_alternative(grammar, &choice, i + 1 < ROWS, err));
        for (uint32_t k = 0; k < rows[i].n; k++) RANGE(rows[i].ranges[k][0], rows[i].ranges[k][1]);
        RETURN();
    }
    return MD_OK;
}

// -?(0|[1-9][0-9]*), and a fraction and an exponent when not `whole`.
static md_status emit_number(md_grammar *grammar, bool whole, uint32_t *at, md_error *err) {
    *at = grammar->size;
    MD_TRY(emit_upto(grammar, 1, '-', '-', err));
    md_json_choice choice = MD_JSON_CHOICE;
    MD_TRY(md_json_alternative(grammar, &choice, true, err));
    RANGE('0', '0');
    MD_TRY(md_json_join(grammar, &choice, err));
    MD_TRY(md_json_alternative(grammar, &choice, false, err));
    RANGE('1', '9');
    MD_TRY(emit_upto(grammar, WHOLE_DIGITS - 1, '0', '9', err));
    md_json_choice_end(grammar, &choice);
    if (!whole) {
        EMIT(SPLIT, grammar->size + 1, grammar->size + 3 + 2 * (FRACTION_DIGITS - 1));
        RANGE('.', '.');
        RANGE('0', '9');
        MD_TRY(emit_upto(grammar, FRACTION_DIGITS - 1, '0', '9', err));
        uint32_t exponent;
        MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &exponent, err));
        RANGE('e', 'e');
        EMIT(SPLIT, grammar->size + 1, grammar->size + 3);
        RANGE('+', '+');
        EMIT(JUMP, grammar->size + 3, 0);
        MD_TRY(emit_upto(grammar, 1, '-', '-', err));
        RANGE('0', '9');
        MD_TRY(emit_upto(grammar, EXPONENT_DIGITS - 1, '0', '9', err));
        grammar->code[exponent].b = grammar->size;
    }
    RETURN();
    return MD_OK;
}

// Any value; the subroutines of nested values refer to it.
static md_status emit_value(md_grammar *grammar, md_json_parts *parts, md_error *err) {
    static const char *const words[] = {"true", "false", "null"};
    parts->value = grammar->size;
    md_json_choice choice = MD_JSON_CHOICE;
    for (size_t i = 0; i < 3; i++) {
        MD_TRY(md_json_alternative(grammar, &choice, true, err));
        MD_TRY(md_grammar_emit_bytes(grammar, words[i], i == 1 ? 5 : 4, err));
        RETURN();
    }
    MD_TRY(md_json_alternative(grammar, &choice, true, err));
    CALL(parts->string);
    RETURN();
    MD_TRY(md_json_alternative(grammar, &choice, true, err));
    CALL(parts->number);
    RETURN();
    MD_TRY(md_json_alternative(grammar, &choice, true, err));
    EMIT(SHALLOW, STACK_MAX, 0);
    MD_TRY(md_json_array(grammar, parts, parts->value, 0, MD_GRAMMAR_UNBOUNDED, err));
    RETURN();
    MD_TRY(md_json_alternative(grammar, &choice, false, err));
    EMIT(SHALLOW, STACK_MAX, 0);
    uint32_t call;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_CALL, 0, 0, &call, err));
    RETURN();

    uint32_t member = grammar->size;
    CALL(parts->string);
    RANGE(':', ':');
    CALL(parts->space);
    CALL(parts->value);
    RETURN();
    parts->object = grammar->code[call].a = grammar->size;
    MD_TRY(md_json_map(grammar, parts, member, err));
    RETURN();
    return MD_OK;
}

md_status md_json_parts_emit(md_grammar *grammar, md_json_parts *parts, md_error *err) {
    MD_TRY(emit_space(grammar, &parts->space, err));
    MD_TRY(emit_character(grammar, &parts->character, err));
    parts->string = grammar->size;
    MD_TRY(md_json_string(grammar, parts, 0, MD_GRAMMAR_UNBOUNDED, err));
    RETURN();
    MD_TRY(emit_number(grammar, false, &parts->number, err));
    MD_TRY(emit_number(grammar, true, &parts->integer, err));
    return emit_value(grammar, parts, err);
}

// ---- parts with bounds -----------------------------------------------------------------------------------------

md_status md_json_call(md_grammar *grammar, uint32_t subroutine, md_error *err) {
    return md_grammar_emit(grammar, MD_GRAMMAR_CALL, subroutine, 0, NULL, err);
}

md_status md_json_string(md_grammar *grammar, const md_json_parts *parts, uint32_t min, uint32_t max, md_error *err) {
    bool counted = min > 0 || max != MD_GRAMMAR_UNBOUNDED; // without a counter all places in a string are one state
    RANGE('"', '"');
    if (counted) EMIT(ZERO, 0, 0);
    uint32_t loop;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &loop, err));
    if (counted) EMIT(COUNT, max, min);
    CALL(parts->character);
    EMIT(JUMP, loop, 0);
    grammar->code[loop].b = grammar->size;
    if (counted) EMIT(END, min, 0);
    RANGE('"', '"');
    return MD_OK;
}

md_status md_json_array(md_grammar *grammar, const md_json_parts *parts, uint32_t item, uint32_t min, uint32_t max,
                        md_error *err) {
    bool counted = min > 1 || max != MD_GRAMMAR_UNBOUNDED;
    RANGE('[', '[');
    CALL(parts->space);
    uint32_t empty = UINT32_MAX;
    if (max > 0) {
        if (min == 0) MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &empty, err));
        if (counted) EMIT(ZERO, 0, 0);
        if (counted) EMIT(COUNT, max, min);
        CALL(item);
        uint32_t more;
        MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &more, err));
        if (counted) EMIT(COUNT, max, min); // before the comma, behind which there is no way back
        RANGE(',', ',');
        CALL(parts->space);
        CALL(item);
        EMIT(JUMP, more, 0);
        grammar->code[more].b = grammar->size;
        if (counted) EMIT(END, min, 0);
        CALL(parts->space);
        if (empty != UINT32_MAX) grammar->code[empty].b = grammar->size;
    }
    RANGE(']', ']');
    return MD_OK;
}

md_status md_json_map(md_grammar *grammar, const md_json_parts *parts, uint32_t member, md_error *err) {
    RANGE('{', '{');
    CALL(parts->space);
    uint32_t empty, more;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &empty, err));
    uint32_t loop = grammar->size;
    CALL(member);
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &more, err));
    RANGE(',', ',');
    CALL(parts->space);
    EMIT(JUMP, loop, 0);
    grammar->code[more].b = grammar->size;
    CALL(parts->space);
    grammar->code[empty].b = grammar->size;
    RANGE('}', '}');
    return MD_OK;
}
