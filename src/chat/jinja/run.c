#include "chat/jinja/run.h"

#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

md_status md_jn_fail(md_jn_run *run, md_status status, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = strlen(text), good;
    while ((good = md_utf8_valid_prefix(text, n)) < n) text[good] = '?'; // a character cut by a length limit
    return md_fail(run->err, status, "%s, line %d: %s", run->name, run->line, text);
}

void *md_jn_alloc(md_jn_run *run, size_t count, size_t size) {
    size_t n;
    if (__builtin_mul_overflow(count, size, &n) || n > run->limits.memory_bytes ||
        run->memory > run->limits.memory_bytes - n) {
        run->memory = run->limits.memory_bytes + 1;
        md_jn_fail(run, MD_E_CONTEXT, "the template needs more than %zu bytes of memory", run->limits.memory_bytes);
        return NULL;
    }
    run->memory += n + 16;
    void *out = md_arena_alloc(&run->arena, n ? n : 1, 1);
    if (!out) md_jn_fail(run, MD_E_MEMORY, "out of memory (%zu bytes)", n);
    return out;
}

md_status md_jn_charge(md_jn_run *run, uint64_t n) {
    run->steps += n;
    if (run->steps <= run->limits.steps) return MD_OK;
    return md_jn_fail(run, MD_E_CONTEXT, "the template takes more than %llu steps",
                      (unsigned long long)run->limits.steps);
}

md_status md_jn_enter(md_jn_run *run) {
    if (run->depth >= run->limits.depth)
        return md_jn_fail(run, MD_E_CONTEXT, "the template nests deeper than %d levels", run->limits.depth);
    run->depth++;
    return MD_OK;
}

md_jscope *md_jn_scope_new(md_jn_run *run, md_jscope *parent) {
    md_jscope *scope = MD_JN_ALLOC(run, md_jscope, 1);
    if (scope) scope->parent = parent;
    return scope;
}

md_status md_jn_bind(md_jn_run *run, md_jscope *scope, const md_jname *name, const md_jv *value) {
    uint64_t walked = 0;
    for (md_jbinding *b = scope->first; b; b = b->next, walked++) {
        if (b->name != name) continue;
        b->value = *value;
        return md_jn_charge(run, walked / 8);
    }
    md_jbinding *binding = MD_JN_ALLOC(run, md_jbinding, 1);
    if (!binding) return md_jn_oom(run);
    *binding = (md_jbinding){.name = name, .value = *value, .next = scope->first};
    scope->first = binding;
    return md_jn_charge(run, walked / 8);
}
