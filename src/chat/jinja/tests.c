// The tests of "is". Their results are the template's own and carry no data.
#include <string.h>

#include "chat/jinja/lexer.h"
#include "chat/jinja/run.h"

#define TEST(name, expr)                                                                                               \
    static md_status name(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {                       \
        (void)run;                                                                                                     \
        (void)args;                                                                                                    \
        *out = md_jv_bool(expr);                                                                                       \
        return MD_OK;                                                                                                  \
    }

static bool iterable(const md_jv *v) {
    return v->kind == MD_JV_UNDEFINED || (v->kind >= MD_JV_STRING && v->kind <= MD_JV_DICT) || v->kind == MD_JV_LOOP;
}
// Has a length and can be indexed, as Jinja2 tries it.
static bool sequence(const md_jv *v) {
    return v->kind == MD_JV_UNDEFINED || v->kind == MD_JV_STRING || v->kind == MD_JV_LIST || v->kind == MD_JV_TUPLE ||
           v->kind == MD_JV_RANGE || v->kind == MD_JV_DICT;
}

TEST(t_defined, self->kind != MD_JV_UNDEFINED)
TEST(t_undefined, self->kind == MD_JV_UNDEFINED)
TEST(t_none, self->kind == MD_JV_NONE)
TEST(t_boolean, self->kind == MD_JV_BOOL)
TEST(t_true, self->kind == MD_JV_BOOL && self->b)
TEST(t_false, self->kind == MD_JV_BOOL && !self->b)
TEST(t_integer, self->kind == MD_JV_INT)
TEST(t_float, self->kind == MD_JV_FLOAT)
TEST(t_number, md_jv_is_number(self))
TEST(t_string, self->kind == MD_JV_STRING)
TEST(t_mapping, self->kind == MD_JV_DICT)
TEST(t_iterable, iterable(self))
TEST(t_sequence, sequence(self))
TEST(t_callable, self->kind == MD_JV_MACRO || self->kind == MD_JV_METHOD || self->kind == MD_JV_FUNCTION)

static md_status has_case(md_jn_run *run, const md_jv *self, const char *method, md_jv *out) {
    md_jv s, func;
    const md_jargs none = {.n = 0};
    MD_TRY(md_jv_to_string(run, self, &s));
    MD_TRY(md_jn_getattr(run, &s, method, strlen(method), &func));
    return md_jn_call(run, &func, &none, out);
}
static md_status t_lower(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)args;
    return has_case(run, self, "islower", out);
}
static md_status t_upper(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)args;
    return has_case(run, self, "isupper", out);
}

static md_status remainder_is(md_jn_run *run, const md_jv *self, int64_t divisor, uint8_t origin, int64_t wanted,
                              md_jv *out) {
    md_jv rest;
    const md_jv by = md_jv_int(divisor, origin), want = md_jv_int(wanted, MD_JV_TRUSTED);
    bool same;
    MD_TRY(md_jn_binary(run, '%', self, &by, &rest));
    MD_TRY(md_jv_equal(run, &rest, &want, &same));
    *out = md_jv_bool(same);
    return MD_OK;
}
static md_status t_odd(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)args;
    return remainder_is(run, self, 2, MD_JV_TRUSTED, 1, out);
}
static md_status t_even(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)args;
    return remainder_is(run, self, 2, MD_JV_TRUSTED, 0, out);
}
static md_status t_divisibleby(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    int64_t by = 0;
    MD_TRY(md_jn_arg_int(run, &args->pos[0], "divisibleby's number", &by));
    return remainder_is(run, self, by, args->pos[0].origin, 0, out);
}

static md_status related(md_jn_run *run, const md_jv *self, const md_jargs *args, int op, md_jv *out) {
    int order = 0;
    bool same = false;
    if (op == MD_JOP_EQ || op == MD_JOP_NE)
        MD_TRY(md_jv_equal(run, self, &args->pos[0], &same));
    else
        MD_TRY(md_jv_order(run, self, &args->pos[0], op == '<' || op == MD_JOP_LE ? "<" : ">", &order));
    switch (op) {
    case MD_JOP_EQ: break;
    case MD_JOP_NE: same = !same; break;
    case '<': same = order < 0; break;
    case MD_JOP_LE: same = order <= 0; break;
    case '>': same = order > 0; break;
    default: same = order >= 0; break;
    }
    *out = md_jv_bool(same);
    return MD_OK;
}
#define RELATION(name, op)                                                                                             \
    static md_status name(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {                       \
        return related(run, self, args, op, out);                                                                      \
    }
RELATION(t_eq, MD_JOP_EQ)
RELATION(t_ne, MD_JOP_NE)
RELATION(t_lt, '<')
RELATION(t_le, MD_JOP_LE)
RELATION(t_gt, '>')
RELATION(t_ge, MD_JOP_GE)

static md_status t_in(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    bool found;
    MD_TRY(md_jv_contains(run, &args->pos[0], self, &found));
    *out = md_jv_bool(found);
    return MD_OK;
}

// The same object: for None and booleans the same value.
static md_status t_sameas(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    const md_jv *other = &args->pos[0];
    bool same = self->kind == other->kind;
    (void)run;
    if (same && self->kind == MD_JV_BOOL)
        same = self->b == other->b;
    else if (same && self->kind == MD_JV_INT)
        same = self->i == other->i;
    else if (same && self->kind == MD_JV_FLOAT)
        same = self->f == other->f;
    else if (same && self->kind != MD_JV_NONE && self->kind != MD_JV_UNDEFINED)
        same = self->seq == other->seq;
    *out = md_jv_bool(same);
    return MD_OK;
}

static md_status t_filter(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)run;
    (void)args;
    *out = md_jv_bool(self->kind == MD_JV_STRING && md_jn_find_filter(self->str->bytes, self->str->size));
    return MD_OK;
}
static md_status t_test(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out) {
    (void)run;
    (void)args;
    *out = md_jv_bool(self->kind == MD_JV_STRING && md_jn_find_test(self->str->bytes, self->str->size));
    return MD_OK;
}

const md_jn_func *md_jn_find_test(const char *name, size_t n) {
    static const md_jn_func table[] = {
        {"boolean", t_boolean, {NULL}, 0, false},
        {"callable", t_callable, {NULL}, 0, false},
        {"defined", t_defined, {NULL}, 0, false},
        {"divisibleby", t_divisibleby, {"num"}, 1, false},
        {"even", t_even, {NULL}, 0, false},
        {"false", t_false, {NULL}, 0, false},
        {"filter", t_filter, {NULL}, 0, false},
        {"float", t_float, {NULL}, 0, false},
        {"in", t_in, {"seq"}, 1, false},
        {"integer", t_integer, {NULL}, 0, false},
        {"iterable", t_iterable, {NULL}, 0, false},
        {"lower", t_lower, {NULL}, 0, false},
        {"mapping", t_mapping, {NULL}, 0, false},
        {"none", t_none, {NULL}, 0, false},
        {"number", t_number, {NULL}, 0, false},
        {"odd", t_odd, {NULL}, 0, false},
        {"sameas", t_sameas, {"other"}, 1, false},
        {"sequence", t_sequence, {NULL}, 0, false},
        {"string", t_string, {NULL}, 0, false},
        {"test", t_test, {NULL}, 0, false},
        {"true", t_true, {NULL}, 0, false},
        {"undefined", t_undefined, {NULL}, 0, false},
        {"upper", t_upper, {NULL}, 0, false},
        {"==", t_eq, {"other"}, 1, false},
        {"eq", t_eq, {"other"}, 1, false},
        {"equalto", t_eq, {"other"}, 1, false},
        {"!=", t_ne, {"other"}, 1, false},
        {"ne", t_ne, {"other"}, 1, false},
        {"<", t_lt, {"other"}, 1, false},
        {"lt", t_lt, {"other"}, 1, false},
        {"lessthan", t_lt, {"other"}, 1, false},
        {"<=", t_le, {"other"}, 1, false},
        {"le", t_le, {"other"}, 1, false},
        {">", t_gt, {"other"}, 1, false},
        {"gt", t_gt, {"other"}, 1, false},
        {"greaterthan", t_gt, {"other"}, 1, false},
        {">=", t_ge, {"other"}, 1, false},
        {"ge", t_ge, {"other"}, 1, false},
    };
    return md_jn_find_in(table, sizeof table / sizeof table[0], name, n);
}
