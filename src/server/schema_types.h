// What a schema says of types, without compiling it.
#ifndef MD_SERVER_SCHEMA_TYPES_H
#define MD_SERVER_SCHEMA_TYPES_H

#include "server/schema.h"

extern const struct md_type_name {
    const char *name;
    unsigned bit;
} md_type_names[7];

// The types of "type"; without it, those that the keywords for one type mean; 0: it says nothing.
md_status md_schema_types(md_schema *s, const json_t *schema, unsigned *types, md_error *err);
unsigned md_type_of_value(const json_t *value);

// The names in "required", as the keys of an object: a new reference. What is no name is left out.
json_t *md_schema_required(const json_t *schema);

// The subschema that a $ref names: "#", or "#/..." through the root's members. MD_E_USAGE where there is none.
md_status md_schema_find_ref(md_schema *s, const json_t *target, const json_t **out, md_error *err);

// oneOf wants exactly one of its schemas to hold. MD_OK when at most one can: their types differ, or they are objects
// that a required member tells apart by its "const" or "enum". MD_E_UNSUPPORTED otherwise.
md_status md_schema_check_disjoint(md_schema *s, const json_t *list, md_error *err);

#endif
