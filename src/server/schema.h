// JSON Schema to a grammar (server/grammar.h): code that reads the values which satisfy a schema. What can't be
// expressed is refused, never left out: an answer is either constrained by the whole schema or there is none.
// docs/SERVER.md lists what is modelled.
#ifndef MD_SERVER_SCHEMA_H
#define MD_SERVER_SCHEMA_H

#include <jansson.h>

#include "server/schema_json.h"

enum {
    MD_SCHEMA_REFS_MAX = 512,
    MD_SCHEMA_PATH_MAX = 256,
    MD_SCHEMA_ENUM_MAX = 1024 // values of one enum, schemas of one anyOf
};

enum {
    MD_TYPE_STRING = 1,
    MD_TYPE_NUMBER = 2,
    MD_TYPE_INTEGER = 4,
    MD_TYPE_BOOLEAN = 8,
    MD_TYPE_NULL = 16,
    MD_TYPE_ARRAY = 32,
    MD_TYPE_OBJECT = 64
};

// An end of a range of numbers; infinite: none. open: the end itself is not in the range.
typedef struct md_bound {
    double value;
    bool open;
} md_bound;

// A subschema that $ref names. It becomes a subroutine when all else is compiled, so that it may name itself.
typedef struct md_schema_ref {
    const json_t *schema;
    const char *name; // what $ref says; borrowed
    bool raw;
    unsigned raw_types;
    uint32_t calls; // chain of calls to it, linked through their `a`; UINT32_MAX: the last
    uint32_t at;    // where it was compiled to
} md_schema_ref;

typedef struct md_schema {
    md_grammar *grammar;        // borrowed
    const md_json_parts *parts; // of that grammar; borrowed
    const json_t *root;         // what "#" in a $ref is; borrowed
    // Strings are written as they are, without quotes, and values of other types than these are left out (all: 0).
    bool raw;
    unsigned raw_types;
    md_schema_ref refs[MD_SCHEMA_REFS_MAX];
    uint32_t ref_count;
    uint32_t nesting;
    uint64_t work;                 // done to tell the schemas of oneOfs apart: nodes looked at
    char path[MD_SCHEMA_PATH_MAX]; // of the subschema being compiled, for messages
} md_schema;

// Appends code that reads JSON texts that satisfy a schema, with all it needs; `schema` NULL: any object. What the
// functions below say of errors holds.
md_status md_schema_emit(md_grammar *grammar, const json_t *schema, const char *path, md_error *err);

// A compiler for subschemas of `root`, named `path` in messages.
void md_schema_init(md_schema *s, md_grammar *grammar, const md_json_parts *parts, const json_t *root,
                    const char *path);

// Appends code that reads a value of the schema and goes on behind itself. A keyword that is not modelled is
// MD_E_UNSUPPORTED, one of a wrong form MD_E_USAGE; both name its place.
md_status md_schema_compile(md_schema *s, const json_t *schema, md_error *err);

// Once behind all of them: appends what their $refs name. What was compiled can't be run before.
md_status md_schema_finish(md_schema *s, md_error *err);

// ---- shared by the files of the compiler -------------------------------------------------------------------------

md_status md_schema_compile_at(md_schema *s, const char *part, const json_t *schema, md_error *err);

// minLength and the like. *max: MD_GRAMMAR_UNBOUNDED when it is not there.
md_status md_schema_bounds(md_schema *s, const json_t *schema, const char *low, const char *high, uint32_t *min,
                           uint32_t *max, md_error *err);
md_status md_schema_literal(md_schema *s, const json_t *value, md_error *err); // reads exactly this value
md_status md_schema_nothing(md_schema *s, md_error *err);                      // reads nothing at all

md_status md_schema_string(md_schema *s, const json_t *schema, md_error *err);
md_status md_schema_number(md_schema *s, const json_t *schema, bool whole, md_error *err);
md_status md_schema_multiple(md_schema *s, const json_t *factor, md_bound low, md_bound high, md_error *err);
md_status md_schema_object(md_schema *s, const json_t *schema, md_error *err);
md_status md_schema_array(md_schema *s, const json_t *schema, md_error *err);

#endif
