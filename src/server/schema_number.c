// Numbers of a schema within bounds: minimum, maximum, exclusiveMinimum, exclusiveMaximum. The bounds become a regular
// expression over decimal digits. Both ends are written as digits before and after the point; without a bound an end is
// the largest whole number that the server writes.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "server/schema.h"
#include "server/schema_pattern.h"

enum {
    WHOLE_MAX = 15,    // digits before the point, as without bounds
    FRACTION_MAX = 15, // digits of a bound after it
    MORE_DIGITS = 12,  // digits of a number beyond those that its bound has
    ZEROS = 6,         // that may follow where only zeros keep a bound
    TEXT_MAX = 1 << 16
};

// One end of a range of numbers that are not negative.
typedef struct end {
    char whole[24], fraction[24]; // digits; the fraction without zeros at its end
    bool open;                    // the end itself is not in the range
} end;

#define PUT(...) MD_TRY(put(out, __VA_ARGS__))

static md_status put(md_buf *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static md_status put(md_buf *out, const char *format, ...) {
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return md_buf_puts(out, text);
}

static bool all(const char *digits, char digit) { return digits[strspn(digits, (char[]){digit, 0})] == '\0'; }

// ---- whole numbers ---------------------------------------------------------------------------------------------

// Digits from `low` on, of the same length.
static md_status at_least(md_buf *out, const char *low) {
    size_t rest = strlen(low);
    if (rest == 0) return MD_OK;
    if (all(low, '0')) return put(out, "[0-9]{%zu}", rest);
    PUT("(?:%c", low[0]);
    MD_TRY(at_least(out, low + 1));
    if (low[0] < '9') PUT("|[%c-9][0-9]{%zu}", low[0] + 1, rest - 1);
    return put(out, ")");
}

static md_status at_most(md_buf *out, const char *high) {
    size_t rest = strlen(high);
    if (rest == 0) return MD_OK;
    if (all(high, '9')) return put(out, "[0-9]{%zu}", rest);
    PUT("(?:%c", high[0]);
    MD_TRY(at_most(out, high + 1));
    if (high[0] > '0') PUT("|[0-%c][0-9]{%zu}", high[0] - 1, rest - 1);
    return put(out, ")");
}

// low to high, of the same length.
static md_status same_length(md_buf *out, const char *low, const char *high) {
    for (; *low && *low == *high; low++, high++) PUT("%c", *low);
    if (!*low) return MD_OK;
    PUT("(?:%c", *low);
    MD_TRY(at_least(out, low + 1));
    if (*high - *low > 1) PUT("|[%c-%c][0-9]{%zu}", *low + 1, *high - 1, strlen(low + 1));
    PUT("|%c", *high);
    MD_TRY(at_most(out, high + 1));
    return put(out, ")");
}

// Alternatives for the whole numbers from low to high, each after a "|".
static md_status whole_range(md_buf *out, uint64_t low, uint64_t high) {
    for (uint64_t from = 0, to = 9; low <= high; from = to + 1, to = to * 10 + 9) {
        if (low > to) continue;
        char a[24], b[24];
        uint64_t last = high < to ? high : to;
        snprintf(a, sizeof a, "%" PRIu64, low > from ? low : from);
        snprintf(b, sizeof b, "%" PRIu64, last);
        PUT("|");
        MD_TRY(same_length(out, a, b));
        low = last + 1;
    }
    return MD_OK;
}

// ---- fractions -------------------------------------------------------------------------------------------------

// Digits after a point that are `low` or more, taken as going on with zeros.
static md_status fraction_least(md_buf *out, const char *low, bool open) {
    if (!*low)
        return open ? put(out, "0{0,%d}[1-9][0-9]{0,%d}", ZEROS, MORE_DIGITS) : put(out, "[0-9]{0,%d}", MORE_DIGITS);
    PUT("(?:%c", *low);
    MD_TRY(fraction_least(out, low + 1, open));
    if (*low < '9') PUT("|[%c-9][0-9]{0,%d}", *low + 1, MORE_DIGITS);
    return put(out, ")");
}

// Digits that are `high` or less, at least one; `high` has one.
static md_status fraction_most(md_buf *out, const char *high, bool open) {
    PUT("(?:");
    if (high[1]) {
        PUT("%c(?:", *high);
        MD_TRY(fraction_most(out, high + 1, open));
        PUT(")?");
    } else if (open) {
        PUT("[^\\s\\S]"); // nothing
    } else {
        PUT("%c0{0,%d}", *high, ZEROS);
    }
    if (*high > '0') PUT("|[0-%c][0-9]{0,%d}", *high - 1, MORE_DIGITS);
    return put(out, ")");
}

// What may follow a whole part: a fraction of at least (at most) the end's, or none.
static md_status after_least(md_buf *out, const end *low) {
    if (!*low->fraction && !low->open) return put(out, "(?:\\.[0-9]{1,%d})?", MORE_DIGITS);
    PUT("\\.");
    return fraction_least(out, low->fraction, low->open);
}

static md_status after_most(md_buf *out, const end *high) {
    if (!*high->fraction) return high->open ? put(out, "[^\\s\\S]") : put(out, "(?:\\.0{1,%d})?", ZEROS);
    PUT("(?:\\.");
    MD_TRY(fraction_most(out, high->fraction, high->open));
    return put(out, ")?");
}

// Digits between both; a shorter one goes on with zeros.
static md_status fraction_between(md_buf *out, const char *low, const char *high, bool open_low, bool open_high) {
    char a = *low ? *low : '0', b = *high ? *high : '0';
    const char *low_rest = *low ? low + 1 : low, *high_rest = *high ? high + 1 : high;
    if (a == b) {
        PUT("%c", a);
        if (!*low_rest && !*high_rest)
            return open_low || open_high ? put(out, "[^\\s\\S]") : put(out, "0{0,%d}", ZEROS);
        bool none = !*low_rest && !open_low; // the number may end here
        PUT("(?:");
        MD_TRY(fraction_between(out, low_rest, high_rest, open_low, open_high));
        return put(out, none ? ")?" : ")");
    }
    PUT("(?:%c", a);
    MD_TRY(fraction_least(out, low_rest, open_low));
    if (b - a > 1) PUT("|[%c-%c][0-9]{0,%d}", a + 1, b - 1, MORE_DIGITS);
    PUT("|%c", b);
    if (*high_rest) {
        PUT("(?:");
        MD_TRY(fraction_most(out, high_rest, open_high));
        PUT(")?");
    } else {
        PUT("%s", open_high ? "[^\\s\\S]" : "0{0,6}");
    }
    return put(out, ")");
}

// Alternatives, each after a "|", for the numbers from low to high.
static md_status decimal_range(md_buf *out, const end *low, const end *high) {
    uint64_t a = strtoull(low->whole, NULL, 10), b = strtoull(high->whole, NULL, 10);
    if (a > b) return MD_OK;
    if (a == b) {
        int order = strcmp(low->fraction, high->fraction);
        if (order > 0 || (order == 0 && (low->open || high->open))) return MD_OK;
        PUT("|%s", low->whole);
        if (!*low->fraction && !low->open) return after_most(out, high);
        PUT("\\.");
        return fraction_between(out, low->fraction, high->fraction, low->open, high->open);
    }
    PUT("|%s", low->whole);
    MD_TRY(after_least(out, low));
    if (b - a > 1) {
        PUT("|(?:[^\\s\\S]");
        MD_TRY(whole_range(out, a + 1, b - 1));
        PUT(")(?:\\.[0-9]{1,%d})?", MORE_DIGITS);
    }
    PUT("|%s", high->whole);
    return after_most(out, high);
}

// ---- bounds ----------------------------------------------------------------------------------------------------

// Reads `inclusive` and `exclusive`, of which the tighter one counts. sign -1: lower bounds.
static md_status read_bound(md_schema *s, const json_t *schema, const char *inclusive, const char *exclusive, int sign,
                            md_bound *out, md_error *err) {
    const char *const names[] = {inclusive, exclusive};
    *out = (md_bound){sign * INFINITY, false};
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(schema, names[i]);
        if (!value) continue;
        if (!json_is_number(value))
            return md_fail(err, MD_E_USAGE, "%s.%s: found %s, expected a number", s->path, names[i],
                           md_json_type_name(value));
        double x = json_number_value(value);
        if (sign * x < sign * out->value || (x == out->value && i == 1)) *out = (md_bound){x, i == 1};
    }
    return MD_OK;
}

// The digits of a bound that is not negative.
static md_status write_end(md_schema *s, double value, bool open, end *out, md_error *err) {
    char text[64];
    *out = (end){.open = open};
    if (isinf(value)) {
        memset(out->whole, '9', WHOLE_MAX);
        return MD_OK;
    }
    snprintf(text, sizeof text, "%.*f", FRACTION_MAX, value < 1e15 ? value : 0);
    for (int digits = 0; digits < FRACTION_MAX; digits++) { // the shortest that means this number
        char shorter[64];
        snprintf(shorter, sizeof shorter, "%.*f", digits, value < 1e15 ? value : 0);
        if (strtod(shorter, NULL) != value) continue;
        memcpy(text, shorter, sizeof text);
        break;
    }
    size_t n = strcspn(text, ".");
    if (value >= 1e15 || strtod(text, NULL) != value || n > WHOLE_MAX)
        return md_fail(err, MD_E_UNSUPPORTED,
                       "%s: a bound of more than %d digits before or after the point can't constrain an answer here",
                       s->path, WHOLE_MAX);
    snprintf(out->whole, sizeof out->whole, "%.*s", (int)n, text);
    if (text[n]) snprintf(out->fraction, sizeof out->fraction, "%s", text + n + 1);
    for (size_t k = strlen(out->fraction); k > 0 && out->fraction[k - 1] == '0';) out->fraction[--k] = '\0';
    return MD_OK;
}

// Numbers that are not negative, or (negative) the absolute values of those that are.
static md_status write_side(md_schema *s, md_bound low, md_bound high, bool whole, md_buf *out, md_error *err) {
    end a, b;
    MD_TRY(write_end(s, low.value, low.open, &a, err));
    MD_TRY(write_end(s, high.value, high.open, &b, err));
    if (!whole) return decimal_range(out, &a, &b);
    uint64_t first = strtoull(a.whole, NULL, 10), last = strtoull(b.whole, NULL, 10);
    if (*a.fraction || a.open) first++;
    if (!*b.fraction && b.open) {
        if (last == 0) return MD_OK;
        last--;
    }
    return whole_range(out, first, last);
}

static md_status write_pattern(md_schema *s, md_bound low, md_bound high, bool whole, md_buf *out, md_error *err) {
    static const md_bound zero = {0, false}, beyond_zero = {0, true};
    MD_TRY(put(out, "^(?:[^\\s\\S]"));
    if (high.value >= 0) MD_TRY(write_side(s, low.value >= 0 ? low : zero, high, whole, out, err));
    if (low.value < 0) {
        md_bound least = {-high.value, high.open}, most = {-low.value, low.open};
        MD_TRY(put(out, "|-(?:[^\\s\\S]"));
        MD_TRY(write_side(s, high.value < 0 ? least : beyond_zero, most, whole, out, err));
        MD_TRY(put(out, ")"));
    }
    return put(out, ")$");
}

md_status md_schema_number(md_schema *s, const json_t *schema, bool whole, md_error *err) {
    md_bound low, high;
    MD_TRY(read_bound(s, schema, "minimum", "exclusiveMinimum", -1, &low, err));
    MD_TRY(read_bound(s, schema, "maximum", "exclusiveMaximum", 1, &high, err));
    const json_t *factor = json_object_get(schema, "multipleOf");
    if (factor) return md_schema_multiple(s, factor, low, high, err);
    if (isinf(low.value) && isinf(high.value))
        return md_json_call(s->grammar, whole ? s->parts->integer : s->parts->number, err);
    if (low.value > high.value || (low.value == high.value && (low.open || high.open)))
        return md_fail(err, MD_E_USAGE, "%s: no number is within the bounds", s->path);
    md_buf pattern;
    md_buf_init(&pattern, TEXT_MAX);
    md_schema_pattern *compiled = NULL;
    md_error out_of_memory;
    md_status status = write_pattern(s, low, high, whole, &pattern, err ? err : &out_of_memory);
    if (status == MD_E_MEMORY) md_fail(err, status, "%s: out of memory", s->path);
    if (status == MD_OK) status = md_schema_pattern_parse(md_buf_str(&pattern), pattern.size, s->path, &compiled, err);
    if (status == MD_OK) status = md_schema_pattern_emit(compiled, s->grammar, MD_TEXT_RAW, err);
    md_schema_pattern_free(compiled);
    md_buf_free(&pattern);
    return status;
}
