// Arithmetic and the other binary operators. Integers are 64 bits: where Python's would grow, this is an error.
#include <math.h>
#include <string.h>

#include "chat/jinja/lexer.h"
#include "chat/jinja/run.h"

static const char *op_text(int op) {
    switch (op) {
    case '+': return "+";
    case '-': return "-";
    case '*': return "*";
    case '/': return "/";
    case '%': return "%";
    case MD_JOP_FLOORDIV: return "//";
    default: return "**";
    }
}

static md_status too_large(md_jn_run *run) {
    return md_jn_fail(run, MD_E_UNSUPPORTED, "an integer does not fit 64 bits");
}

static int64_t floor_div(int64_t x, int64_t y) { return x / y - (x % y != 0 && (x < 0) != (y < 0)); }

static md_status int_power(md_jn_run *run, int64_t x, int64_t y, uint8_t origin, md_jv *out) {
    if (y < 0) {
        if (x == 0) return md_jn_fail(run, MD_E_FORMAT, "0 cannot be raised to a negative power");
        *out = md_jv_float(pow((double)x, (double)y), origin);
        return MD_OK;
    }
    int64_t result = 1;
    if (x == 0 || x == 1)
        y = y != 0; // so that the loop below ends by overflow at the latest
    else if (x == -1)
        y &= 1;
    for (; y > 0; y--)
        if (__builtin_mul_overflow(result, x, &result)) return too_large(run);
    *out = md_jv_int(result, origin);
    return MD_OK;
}

static md_status int_binary(md_jn_run *run, int op, int64_t x, int64_t y, uint8_t origin, md_jv *out) {
    int64_t result = 0;
    bool overflow = false;
    if (y == 0 && (op == '/' || op == '%' || op == MD_JOP_FLOORDIV))
        return md_jn_fail(run, MD_E_FORMAT, "division by zero");
    switch (op) {
    case '+': overflow = __builtin_add_overflow(x, y, &result); break;
    case '-': overflow = __builtin_sub_overflow(x, y, &result); break;
    case '*': overflow = __builtin_mul_overflow(x, y, &result); break;
    case '/': *out = md_jv_float((double)x / (double)y, origin); return MD_OK;
    case MD_JOP_POW: return int_power(run, x, y, origin, out);
    default:
        if (y == -1) { // INT64_MIN / -1 overflows
            overflow = op != '%' && __builtin_sub_overflow((int64_t)0, x, &result);
        } else {
            result = floor_div(x, y);
            if (op == '%') result = x - result * y;
        }
    }
    if (overflow) return too_large(run);
    *out = md_jv_int(result, origin);
    return MD_OK;
}

static md_status float_binary(md_jn_run *run, int op, double x, double y, uint8_t origin, md_jv *out) {
    double result;
    if (y == 0.0 && (op == '/' || op == '%' || op == MD_JOP_FLOORDIV))
        return md_jn_fail(run, MD_E_FORMAT, "division by zero");
    switch (op) {
    case '+': result = x + y; break;
    case '-': result = x - y; break;
    case '*': result = x * y; break;
    case '/': result = x / y; break;
    case MD_JOP_POW: result = pow(x, y); break;
    default:
        result = fmod(x, y);
        if (result != 0.0 && (result < 0.0) != (y < 0.0)) result += y;
        if (op == MD_JOP_FLOORDIV) {
            double quotient = (x - result) / y;
            result = floor(quotient);
            if (quotient - result > 0.5) result += 1.0; // as CPython rounds it
        }
    }
    *out = md_jv_float(result, origin);
    return MD_OK;
}

static md_status repeat(md_jn_run *run, const md_jv *v, int64_t times, md_jv *out) {
    size_t size = v->kind == MD_JV_STRING ? v->str->size : v->seq->size, total;
    if (times < 0 || size == 0) times = 0;
    if (__builtin_mul_overflow(size, (size_t)times, &total) || total > run->limits.memory_bytes)
        return md_jn_fail(run, MD_E_CONTEXT, "repeating %zu items %lld times is too much", size, (long long)times);
    if (v->kind == MD_JV_STRING) {
        md_jb b;
        md_jb_init(&b, run);
        MD_TRY(md_jn_charge(run, (uint64_t)times / 4));
        for (int64_t i = 0; i < times; i++) MD_TRY(md_jb_put_string(&b, v));
        return md_jb_finish(&b, out);
    }
    MD_TRY(md_jn_charge(run, total / 4));
    md_jv *items = MD_JN_ALLOC(run, md_jv, total);
    if (!items) return md_jn_oom(run);
    for (size_t i = 0; i < total; i++) items[i] = v->seq->items[i % size];
    return md_jv_seq(run, (md_jv_kind)v->kind, items, total, v->origin, out);
}

static md_status join_seqs(md_jn_run *run, const md_jv *a, const md_jv *b, md_jv *out) {
    size_t total = a->seq->size + b->seq->size;
    MD_TRY(md_jn_charge(run, total / 4));
    md_jv *items = MD_JN_ALLOC(run, md_jv, total);
    if (!items) return md_jn_oom(run);
    if (a->seq->size) memcpy(items, a->seq->items, a->seq->size * sizeof *items);
    if (b->seq->size) memcpy(items + a->seq->size, b->seq->items, b->seq->size * sizeof *items);
    return md_jv_seq(run, (md_jv_kind)a->kind, items, total, a->origin | b->origin, out);
}

static bool can_repeat(const md_jv *v) {
    return v->kind == MD_JV_STRING || v->kind == MD_JV_LIST || v->kind == MD_JV_TUPLE;
}

// The right operand of % as the arguments of a format.
static md_status format_operand(md_jn_run *run, const md_jv *format, const md_jv *operand, md_jv *out) {
    md_jargs args = {.pos = operand, .n = 1};
    if (operand->kind == MD_JV_TUPLE) args = (md_jargs){.pos = operand->seq->items, .n = operand->seq->size};
    return md_jn_format(run, format, &args, out);
}

md_status md_jn_binary(md_jn_run *run, int op, const md_jv *a, const md_jv *b, md_jv *out) {
    int64_t x, y;
    uint8_t origin = a->origin | b->origin;
    const md_jv *undefined = a->kind == MD_JV_UNDEFINED ? a : b;
    if (op == '%' && a->kind == MD_JV_STRING) return format_operand(run, a, b, out);
    if (undefined->kind == MD_JV_UNDEFINED) return md_jn_fail(run, MD_E_FORMAT, "%s", undefined->hint);
    if (md_jv_is_number(a) && md_jv_is_number(b)) {
        if (md_jv_as_int(a, &x) && md_jv_as_int(b, &y)) return int_binary(run, op, x, y, origin, out);
        return float_binary(run, op, md_jv_as_float(a), md_jv_as_float(b), origin, out);
    }
    if (op == '+' && a->kind == MD_JV_STRING && b->kind == MD_JV_STRING) {
        md_jb both;
        md_jb_init(&both, run);
        MD_TRY(md_jb_put_string(&both, a));
        MD_TRY(md_jb_put_string(&both, b));
        return md_jb_finish(&both, out);
    }
    if (op == '+' && a->kind == b->kind && (a->kind == MD_JV_LIST || a->kind == MD_JV_TUPLE))
        return join_seqs(run, a, b, out);
    if (op == '*' && can_repeat(a) && md_jv_as_int(b, &y)) return repeat(run, a, y, out);
    if (op == '*' && can_repeat(b) && md_jv_as_int(a, &x)) return repeat(run, b, x, out);
    if (op == '+' && a->kind == MD_JV_STRING)
        return md_jn_fail(run, MD_E_FORMAT, "can only concatenate str (not \"%s\") to str", md_jv_type_name(b));
    return md_jn_fail(run, MD_E_FORMAT, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op),
                      md_jv_type_name(a), md_jv_type_name(b));
}
