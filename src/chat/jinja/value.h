// The values of the template language, with Python's semantics, and where their text came from.
//
// Provenance. Every value has an origin: TRUSTED when the template (or the host's special tokens) wrote it, DATA when
// it came from the conversation. A string may be mixed; then it has a map with the origin of every byte. The rules:
// - concatenation (+ and ~), join, replace, % and format, repetition, slices, strip, split, center, indent and the
//   capture of a set block or macro keep the origin of every byte;
// - changing letters (upper, title, ...) and escaping keep the origin of a uniform string; a mixed one becomes DATA;
// - a number, True, None and the like print with the origin of the value: arithmetic gives DATA when an operand is;
//   a loop's counters and the results of comparisons and tests are TRUSTED (they are the template's own count), while
//   the length of data is DATA;
// - printing or tojson of a container gives the container's own origin to punctuation, and each element's to the
//   element; a container from JSON is DATA throughout.
// What is in doubt is DATA: that can cost a control token, never forge one.
//
// Values live in the arena of one rendering (md_jn_run) and are immutable, but for namespaces, loops and iterators.
#ifndef MD_CHAT_JINJA_VALUE_H
#define MD_CHAT_JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct md_jn_run md_jn_run;

typedef enum md_jv_kind {
    MD_JV_MISSING, // an argument that was not passed; never seen by a template
    MD_JV_UNDEFINED,
    MD_JV_NONE,
    MD_JV_BOOL,
    MD_JV_INT,
    MD_JV_FLOAT,
    MD_JV_STRING,
    MD_JV_LIST,
    MD_JV_TUPLE,
    MD_JV_VIEW, // dict.keys(), values(), items(): has a length, cannot be indexed
    MD_JV_ITER, // a generator: can be walked once, is always true, has no length
    MD_JV_RANGE,
    MD_JV_DICT,
    MD_JV_NAMESPACE, // a dict that set can change
    MD_JV_LOOP,
    MD_JV_MACRO,
    MD_JV_METHOD,  // bound to its receiver
    MD_JV_FUNCTION // global
} md_jv_kind;

typedef enum md_jv_origin { MD_JV_TRUSTED = 0, MD_JV_DATA = 1 } md_jv_origin;

typedef struct md_jv {
    uint8_t kind;   // md_jv_kind
    uint8_t origin; // md_jv_origin; of a mixed string: DATA
    union {
        bool b;
        int64_t i;
        double f;
        const struct md_jstr *str;
        const char *hint; // UNDEFINED: the message an operation on it fails with
        struct md_jseq *seq;
        struct md_jdict *dict;
        const struct md_jrange *range;
        struct md_jloop *loop;
        const struct md_jmacro *macro;
        const struct md_jmethod *method;
        const struct md_jn_func *func;
    };
} md_jv;

typedef struct md_jstr {
    const char *bytes; // UTF-8, not NUL-terminated
    size_t size;
    const uint8_t *map; // size origins when mixed, else NULL
} md_jstr;

typedef struct md_jseq { // LIST, TUPLE, VIEW, ITER
    const md_jv *items;
    size_t size;
    size_t pos;       // ITER: the next item
    const char *view; // VIEW: "dict_keys", ...
} md_jseq;

typedef struct md_jpair {
    md_jv key, value;
} md_jpair;

typedef struct md_jdict {
    md_jpair *items; // in order of insertion
    size_t size, cap;
} md_jdict;

typedef struct md_jrange {
    int64_t start, stop, step;
    size_t size;
} md_jrange;

typedef struct md_jloop {
    const md_jv *items;
    size_t size, index0;
    md_jv changed; // what changed() was last called with, a tuple
} md_jloop;

typedef struct md_jmethod {
    md_jv self;
    const struct md_jn_func *func;
} md_jmethod;

static inline md_jv md_jv_none(void) { return (md_jv){.kind = MD_JV_NONE}; }
static inline md_jv md_jv_bool(bool b) { return (md_jv){.kind = MD_JV_BOOL, .b = b}; }
static inline md_jv md_jv_int(int64_t i, uint8_t origin) {
    return (md_jv){.kind = MD_JV_INT, .origin = origin, .i = i};
}
static inline md_jv md_jv_float(double f, uint8_t origin) {
    return (md_jv){.kind = MD_JV_FLOAT, .origin = origin, .f = f};
}
static inline bool md_jv_is_seq(const md_jv *v) { return v->kind >= MD_JV_LIST && v->kind <= MD_JV_ITER; }
static inline bool md_jv_is_number(const md_jv *v) { return v->kind >= MD_JV_BOOL && v->kind <= MD_JV_FLOAT; }
// An int or a bool as Python's int.
static inline bool md_jv_as_int(const md_jv *v, int64_t *out) {
    *out = v->kind == MD_JV_BOOL ? v->b : v->i;
    return v->kind == MD_JV_BOOL || v->kind == MD_JV_INT;
}
// Any number as a double; call only where md_jv_is_number.
static inline double md_jv_as_float(const md_jv *v) {
    return v->kind == MD_JV_FLOAT ? v->f : v->kind == MD_JV_BOOL ? (double)v->b : (double)v->i;
}

const char *md_jv_type_name(const md_jv *v); // Python's: "str", "int", "NoneType", "Undefined", ...
bool md_jv_truth(const md_jv *v);

// An undefined value that fails with the formatted message when it is used.
md_status md_jv_undefined(md_jn_run *run, md_jv *out, const char *fmt, ...) MD_PRINTF(3, 4);

// ---- strings (string.c) ----------------------------------------------------------------------------------
md_status md_jv_string(md_jn_run *run, const char *bytes, size_t n, uint8_t origin, md_jv *out);        // copies
md_status md_jv_string_borrow(md_jn_run *run, const char *bytes, size_t n, uint8_t origin, md_jv *out); // does not
md_status md_jv_substring(md_jn_run *run, const md_jv *s, size_t offset, size_t n, md_jv *out);         // shares
bool md_jv_string_is(const md_jv *v, const char *text); // a string equal to `text`
// First occurrence of `needle` at or after `from`; SIZE_MAX where there is none. An empty needle is found at once.
size_t md_jstr_find(const md_jstr *s, const md_jstr *needle, size_t from);
// The last one that ends at or before `end`.
md_status md_jstr_rfind(md_jn_run *run, const md_jstr *s, const md_jstr *needle, size_t end, size_t *out);

// Text with provenance under construction; its memory belongs to the run.
typedef struct md_jb {
    md_jn_run *run;
    char *bytes;
    uint8_t *map;   // NULL while uniform
    uint8_t origin; // of all bytes while uniform
    size_t size, cap;
} md_jb;
void md_jb_init(md_jb *b, md_jn_run *run);
md_status md_jb_put(md_jb *b, const char *bytes, size_t n, uint8_t origin);
md_status md_jb_puts(md_jb *b, const char *text, uint8_t origin);
md_status md_jb_put_char(md_jb *b, uint32_t cp, uint8_t origin);
md_status md_jb_put_string(md_jb *b, const md_jv *s); // s is a STRING
md_status md_jb_put_part(md_jb *b, const md_jv *s, size_t offset, size_t n);
md_status md_jb_fill(md_jb *b, char c, size_t n, uint8_t origin);
md_status md_jb_finish(md_jb *b, md_jv *out);

// A list under construction.
typedef struct md_jl {
    md_jn_run *run;
    md_jv *items;
    size_t size, cap;
} md_jl;
md_status md_jl_push(md_jl *list, const md_jv *v);
md_status md_jl_push_part(md_jl *list, const md_jv *s, size_t offset, size_t n); // a part of a string

// ---- printing (repr.c, json_out.c) -----------------------------------------------------------------------
md_status md_jv_str(md_jb *b, const md_jv *v);  // Python's str()
md_status md_jv_repr(md_jb *b, const md_jv *v); // Python's repr()
// v itself where it is a string, else its str().
md_status md_jv_to_string(md_jn_run *run, const md_jv *v, md_jv *out);
size_t md_jv_format_float(double value, char out[40]); // Python's repr of a float; returns its length

typedef struct md_jv_json_options {
    bool ensure_ascii, sort_keys, pretty;
    const char *indent; // one level, when pretty
    size_t indent_size;
    const char *item_sep, *key_sep;
    size_t item_sep_size, key_sep_size;
} md_jv_json_options;
md_status md_jv_to_json(md_jb *b, const md_jv *v, const md_jv_json_options *options);

// ---- containers (value.c) --------------------------------------------------------------------------------
md_status md_jv_seq(md_jn_run *run, md_jv_kind kind, const md_jv *items, size_t n, uint8_t origin, md_jv *out);
md_status md_jv_dict(md_jn_run *run, md_jv_kind kind, size_t cap, uint8_t origin, md_jv *out);
md_status md_jdict_set(md_jn_run *run, md_jdict *dict, const md_jv *key, const md_jv *value); // adds or replaces
// *out is NULL where there is no such key; an unhashable key is MD_E_FORMAT.
md_status md_jdict_get(md_jn_run *run, const md_jdict *dict, const md_jv *key, const md_jv **out);
md_status md_jdict_get_text(md_jn_run *run, const md_jdict *dict, const char *key, size_t n, const md_jv **out);
// A JSON value as a template value; strings are borrowed from it.
md_status md_jv_from_json(md_jn_run *run, const json_t *json, uint8_t origin, int depth, md_jv *out);

// ---- relations (relate.c) --------------------------------------------------------------------------------
md_status md_jv_equal(md_jn_run *run, const md_jv *a, const md_jv *b, bool *out);
// -1, 0 or 1; MD_E_FORMAT for types that Python does not order.
md_status md_jv_order(md_jn_run *run, const md_jv *a, const md_jv *b, const char *op, int *out);
md_status md_jv_contains(md_jn_run *run, const md_jv *container, const md_jv *item, bool *out);

// Walking any iterable: a list of its items (an ITER is used up; a dict gives its keys, a string its characters).
// `what` begins the message where v cannot be walked.
md_status md_jv_items(md_jn_run *run, const md_jv *v, const char *what, const md_jv **items, size_t *n);
// len(); false where v has none.
bool md_jv_length(const md_jv *v, size_t *n);

#endif
