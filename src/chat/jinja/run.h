// One rendering: its memory, its budget, its error, and the scopes of names.
#ifndef MD_CHAT_JINJA_RUN_H
#define MD_CHAT_JINJA_RUN_H

#include "base/arena.h"
#include "chat/jinja/ast.h"
#include "chat/jinja/value.h"
#include "chat/template.h"

typedef struct md_jbinding {
    const md_jname *name;
    md_jv value;
    struct md_jbinding *next;
} md_jbinding;

// Names resolve from the innermost scope outwards. A for body, a macro, a set block and with make scopes; if does not.
typedef struct md_jscope {
    struct md_jscope *parent;
    md_jbinding *first;
} md_jscope;

typedef struct md_jmacro {
    const md_jnode *node; // MD_JN_MACRO
    md_jscope *scope;     // where it was defined
} md_jmacro;

struct md_jn_run {
    md_arena arena;
    md_chat_limits limits;
    size_t memory;  // bytes taken from the arena
    uint64_t steps; // used
    int depth;
    int line;                                                     // of the node being evaluated
    enum { MD_JN_ONWARD, MD_JN_BREAKING, MD_JN_CONTINUING } flow; // a break or continue on its way to its loop
    md_jv block_input;                                            // of the filters of a filter or set block
    const md_jname *loop_name, *caller_name;                      // NULL where the template does not use the name
    const char *name;
    int64_t now;
    md_error *err;
};

enum {
    MD_JN_MAX_NESTING = 128,   // of values, when they are printed, compared or read from JSON
    MD_JN_MAX_RANGE = 100000,  // items; Jinja2's sandbox has the same bound
    MD_JN_MAX_PADDING = 10000, // characters of padding, indentation or precision that one operation may ask for
};

// Memory of the rendering, zeroed. NULL after recording MD_E_MEMORY or MD_E_CONTEXT.
void *md_jn_alloc(md_jn_run *run, size_t count, size_t size);
// Uses up `n` steps; MD_E_CONTEXT when the budget is spent.
md_status md_jn_charge(md_jn_run *run, uint64_t n);
static inline md_status md_jn_charge_bytes(md_jn_run *run, size_t n) { return md_jn_charge(run, n / 64); }
// "NAME, line N: text"; returns `status`.
md_status md_jn_fail(md_jn_run *run, md_status status, const char *fmt, ...) MD_PRINTF(3, 4);
// One level of evaluation deeper; MD_E_CONTEXT when that is too deep. Every md_jn_enter that succeeds has its leave.
md_status md_jn_enter(md_jn_run *run);
static inline void md_jn_leave(md_jn_run *run) { run->depth--; }
// The status that allocating failed with (md_jn_alloc recorded the message).
static inline md_status md_jn_oom(const md_jn_run *run) {
    return run->memory > run->limits.memory_bytes ? MD_E_CONTEXT : MD_E_MEMORY;
}

#define MD_JN_ALLOC(run, type, n) ((type *)md_jn_alloc((run), (n), sizeof(type)))

// ---- arguments and callables (call.c) --------------------------------------------------------------------
typedef struct md_jkwarg {
    const md_jname *name;
    md_jv value;
} md_jkwarg;

typedef struct md_jargs {
    const md_jv *pos;
    size_t n;
    const md_jkwarg *kw;
    size_t n_kw;
} md_jargs;

enum { MD_JN_MAX_PARAMS = 5 };

// A filter, test, method or function. `self` is the filtered or tested value or the method's receiver. Unless
// `variadic`, args->pos holds exactly one value a parameter, MISSING where none was passed, and args->kw nothing.
typedef md_status (*md_jn_fn)(md_jn_run *run, const md_jv *self, const md_jargs *args, md_jv *out);
typedef struct md_jn_func {
    const char *name;
    md_jn_fn fn;
    const char *params[MD_JN_MAX_PARAMS];
    uint8_t required; // how many parameters must be given
    bool variadic;    // arguments as they were written
} md_jn_func;

// Binds the arguments to the parameters and calls. `what` is "filter", "test", "method" or "function".
md_status md_jn_invoke(md_jn_run *run, const md_jn_func *func, const char *what, const md_jv *self,
                       const md_jargs *args, md_jv *out);
// Calls any callable value.
md_status md_jn_call(md_jn_run *run, const md_jv *callee, const md_jargs *args, md_jv *out);

// Lookups by name; NULL where there is none.
const md_jn_func *md_jn_find_filter(const char *name, size_t n);
const md_jn_func *md_jn_find_test(const char *name, size_t n);
const md_jn_func *md_jn_find_method(md_jv_kind kind, const char *name, size_t n);
const md_jn_func *md_jn_find_global(const char *name, size_t n);
const md_jn_func *md_jn_find_in(const md_jn_func *table, size_t size, const char *name, size_t n);

// The argument as what the callee wants. `what` names it in messages. A MISSING one leaves *out as it was.
md_status md_jn_arg_int(md_jn_run *run, const md_jv *arg, const char *what, int64_t *out);
md_status md_jn_arg_bool(md_jn_run *run, const md_jv *arg, bool *out);
md_status md_jn_arg_string(md_jn_run *run, const md_jv *arg, const char *what, md_jv *out);

// ---- evaluation (eval.c, exec.c, operate.c, access.c) ----------------------------------------------------
md_status md_jn_eval(md_jn_run *run, md_jscope *scope, const md_jnode *node, md_jv *out);
md_status md_jn_exec(md_jn_run *run, md_jscope *scope, const md_jnode *body, md_jb *out);
md_status md_jn_call_macro(md_jn_run *run, const md_jmacro *macro, const md_jargs *args, md_jv *out);
md_status md_jn_binary(md_jn_run *run, int op, const md_jv *a, const md_jv *b, md_jv *out);
// The % operator and the format filter; str.format().
md_status md_jn_format(md_jn_run *run, const md_jv *format, const md_jargs *args, md_jv *out);
md_status md_jn_format_braces(md_jn_run *run, const md_jv *format, const md_jargs *args, md_jv *out);
md_status md_jn_getattr(md_jn_run *run, const md_jv *object, const char *name, size_t n, md_jv *out);
md_status md_jn_getitem(md_jn_run *run, const md_jv *object, const md_jv *key, md_jv *out);
// A dotted path as Jinja's attribute= arguments have it; `path` is a string or an int. What is undefined on the way
// becomes `fallback` unless that is NULL.
md_status md_jn_getpath(md_jn_run *run, const md_jv *object, const md_jv *path, const md_jv *fallback, md_jv *out);
md_status md_jn_slice(md_jn_run *run, const md_jv *object, const md_jv bounds[3], md_jv *out);

md_status md_jn_bind(md_jn_run *run, md_jscope *scope, const md_jname *name, const md_jv *value);
md_jscope *md_jn_scope_new(md_jn_run *run, md_jscope *parent); // NULL as md_jn_alloc

#endif
