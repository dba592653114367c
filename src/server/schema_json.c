#include "server/schema_json.h"

#include "server/choice.h"

enum {
    INDENT_MAX = 32,   // spaces after a line break; a bound keeps a model from writing white space for ever
    WHOLE_DIGITS = 15, // every integer of that many digits is exact in a double
    FRACTION_DIGITS = 17,
    EXPONENT_DIGITS = 2 // within a double's range
};

#define EMIT(op, a, b) MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_##op, (a), (b), NULL, err))
#define RANGE(low, high) EMIT(RANGE, (low), (high))
#define CALL(subroutine) EMIT(CALL, (subroutine), 0)
#define RETURN() EMIT(RETURN, 0, 0)

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

// -?(0|[1-9][0-9]*), and a fraction and an exponent when not `whole`.
static md_status emit_number(md_grammar *grammar, bool whole, uint32_t *at, md_error *err) {
    *at = grammar->size;
    MD_TRY(emit_upto(grammar, 1, '-', '-', err));
    md_choice choice = MD_CHOICE;
    MD_TRY(md_choice_begin(grammar, &choice, true, err));
    RANGE('0', '0');
    MD_TRY(md_choice_join(grammar, &choice, err));
    MD_TRY(md_choice_begin(grammar, &choice, false, err));
    RANGE('1', '9');
    MD_TRY(emit_upto(grammar, WHOLE_DIGITS - 1, '0', '9', err));
    md_choice_end(grammar, &choice);
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
    md_choice choice = MD_CHOICE;
    for (size_t i = 0; i < 3; i++) {
        MD_TRY(md_choice_begin(grammar, &choice, true, err));
        MD_TRY(md_grammar_emit_bytes(grammar, words[i], i == 1 ? 5 : 4, err));
        RETURN();
    }
    MD_TRY(md_choice_begin(grammar, &choice, true, err));
    CALL(parts->string);
    RETURN();
    MD_TRY(md_choice_begin(grammar, &choice, true, err));
    CALL(parts->number);
    RETURN();
    MD_TRY(md_choice_begin(grammar, &choice, true, err));
    MD_TRY(md_json_array(grammar, parts, parts->value, 0, MD_GRAMMAR_UNBOUNDED, err));
    RETURN();
    MD_TRY(md_choice_begin(grammar, &choice, false, err));
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

md_status md_json_parts_emit(md_grammar *grammar, md_text_form form, md_json_parts *parts, md_error *err) {
    md_charset all = {.count = 0}; // but U+0000, which many readers of JSON can't take
    md_charset_add(&all, 0, 0);
    md_charset_negate(&all);
    parts->form = form;
    MD_TRY(emit_space(grammar, &parts->space, err));
    parts->character = grammar->size;
    MD_TRY(md_charset_emit(grammar, &all, form, err));
    RETURN();
    parts->raw_character = grammar->size;
    if (form == MD_TEXT_JSON_LT) MD_TRY(md_charset_emit(grammar, &all, MD_TEXT_RAW, err));
    RETURN();
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
    RANGE('"', '"');
    MD_TRY(md_json_characters(grammar, parts->character, min, max, err));
    RANGE('"', '"');
    return MD_OK;
}

md_status md_json_characters(md_grammar *grammar, uint32_t character, uint32_t min, uint32_t max, md_error *err) {
    bool counted = min > 0 || max != MD_GRAMMAR_UNBOUNDED; // without a counter all places in a string are one state
    if (counted) EMIT(ZERO, 0, 0);
    uint32_t loop;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &loop, err));
    if (counted) EMIT(COUNT, max, min);
    CALL(character);
    EMIT(JUMP, loop, 0);
    grammar->code[loop].b = grammar->size;
    if (counted) EMIT(END, min, 0);
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
