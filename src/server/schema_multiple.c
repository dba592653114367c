// Whole numbers that are multiples of one ("multipleOf"): few within bounds are written out, all of them are read digit
// by digit, with the remainder so far as the state.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "server/choice.h"
#include "server/schema.h"

enum {
    DIGITS_MAX = 15, // as for other whole numbers
    FACTOR_MAX = 256,
    VALUES_MAX = 1024
};

static const double WHOLE_MAX = 1e15;

// A jump to the end, which is not known yet: a chain linked through the jumps' `a`.
static md_status jump_later(md_grammar *grammar, uint32_t *chain, md_error *err) {
    return md_grammar_emit(grammar, MD_GRAMMAR_JUMP, *chain, 0, chain, err);
}

static md_status emit_digit(md_grammar *grammar, md_choice *choice, uint32_t digit, uint32_t to, md_error *err) {
    MD_TRY(md_choice_begin(grammar, choice, true, err));
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_RANGE, '0' + digit, '0' + digit, NULL, err));
    return md_grammar_emit(grammar, MD_GRAMMAR_JUMP, to, 0, NULL, err);
}

// What can follow `length` digits whose remainder is `rest`; after[]: the same for one digit more.
static md_status emit_state(md_grammar *grammar, uint32_t factor, uint32_t length, uint32_t rest, const uint32_t *after,
                            uint32_t *end, md_error *err) {
    md_choice choice = MD_CHOICE;
    if (rest == 0) {
        MD_TRY(md_choice_begin(grammar, &choice, true, err));
        MD_TRY(jump_later(grammar, end, err));
    }
    for (uint32_t digit = 0; digit < 10 && length < DIGITS_MAX; digit++)
        MD_TRY(emit_digit(grammar, &choice, digit, after[(10 * rest + digit) % factor], err));
    MD_TRY(md_choice_begin(grammar, &choice, false, err));
    return md_grammar_emit(grammar, MD_GRAMMAR_RANGE, 1, 0, NULL, err); // no other
}

static md_status emit_first(md_grammar *grammar, uint32_t factor, const uint32_t *after, bool zero, uint32_t *end,
                            md_error *err) {
    md_choice choice = MD_CHOICE;
    if (zero) {
        MD_TRY(md_choice_begin(grammar, &choice, true, err));
        MD_TRY(md_grammar_emit_bytes(grammar, "0", 1, err));
        MD_TRY(jump_later(grammar, end, err));
    }
    for (uint32_t digit = 1; digit < 10; digit++)
        MD_TRY(emit_digit(grammar, &choice, digit, after[digit % factor], err));
    MD_TRY(md_choice_begin(grammar, &choice, false, err));
    return md_grammar_emit(grammar, MD_GRAMMAR_RANGE, 1, 0, NULL, err);
}

static md_status emit_all(md_grammar *grammar, uint32_t factor, bool negative, md_error *err) {
    uint32_t states[2][FACTOR_MAX], over, split, end = UINT32_MAX;
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, 0, 0, &over, err));
    for (uint32_t length = DIGITS_MAX; length > 0; length--) // from the last digit on: each state knows what follows
        for (uint32_t rest = 0; rest < factor; rest++) {
            states[length % 2][rest] = grammar->size;
            MD_TRY(emit_state(grammar, factor, length, rest, states[(length + 1) % 2], &end, err));
        }
    grammar->code[over].a = grammar->size;
    if (negative) {
        MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &split, err));
        MD_TRY(md_grammar_emit_bytes(grammar, "-", 1, err));
        MD_TRY(emit_first(grammar, factor, states[1], false, &end, err));
        grammar->code[split].b = grammar->size;
    }
    MD_TRY(emit_first(grammar, factor, states[1], true, &end, err));
    for (uint32_t next; end != UINT32_MAX; end = next) {
        next = grammar->code[end].a;
        grammar->code[end].a = grammar->size;
    }
    return MD_OK;
}

static md_status emit_values(md_schema *s, int64_t factor, int64_t low, int64_t high, md_error *err) {
    int64_t first = low / factor * factor;
    md_choice choice = MD_CHOICE;
    if (first < low) first += factor;
    if (first > high) return md_fail(err, MD_E_USAGE, "%s: no multiple is within the bounds", s->path);
    for (int64_t value = first; value <= high; value += factor) {
        char text[32];
        snprintf(text, sizeof text, "%" PRId64, value);
        MD_TRY(md_choice_begin(s->grammar, &choice, value + factor <= high, err));
        MD_TRY(md_grammar_emit_bytes(s->grammar, text, strlen(text), err));
        MD_TRY(md_choice_join(s->grammar, &choice, err));
    }
    md_choice_end(s->grammar, &choice);
    return MD_OK;
}

md_status md_schema_multiple(md_schema *s, const json_t *factor, md_bound low, md_bound high, md_error *err) {
    double k = json_number_value(factor);
    if (!json_is_number(factor) || k <= 0)
        return md_fail(err, MD_E_USAGE, "%s.multipleOf: found %s, expected a number above 0", s->path,
                       json_is_number(factor) ? "one that is not" : md_json_type_name(factor));
    if (k > WHOLE_MAX || k != (double)(int64_t)k)
        return md_fail(err, MD_E_UNSUPPORTED, "%s.multipleOf: only whole numbers can constrain an answer here",
                       s->path);
    bool bounded = low.value >= -WHOLE_MAX && high.value <= WHOLE_MAX;
    if (bounded && (high.value - low.value) / k <= VALUES_MAX) {
        int64_t from = (int64_t)low.value, to = (int64_t)high.value; // cut towards 0
        if ((double)from < low.value || (low.open && (double)from == low.value)) from++;
        if ((double)to > high.value || (high.open && (double)to == high.value)) to--;
        return emit_values(s, (int64_t)k, from, to, err);
    }
    bool from_zero = low.value == 0 && !low.open, any = low.value < -WHOLE_MAX;
    if (k > FACTOR_MAX || !(from_zero || any) || high.value <= WHOLE_MAX)
        return md_fail(
            err, MD_E_UNSUPPORTED,
            "%s.multipleOf: can't constrain an answer unless the bounds leave at most %d values, or it is at "
            "most %d and without bounds, or with a minimum of 0",
            s->path, VALUES_MAX, FACTOR_MAX);
    return emit_all(s->grammar, (uint32_t)k, any, err);
}
