// The members of a request's JSON body: read with type and range checked. A null or missing member leaves the default.
//
// Messages begin with the member's name and ": " (md_reply_failure makes OpenAI's `param` of it). MD_E_USAGE.
#ifndef MD_SERVER_FIELDS_H
#define MD_SERVER_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "server/http.h"

// The request's body as an object: a new reference.
md_status md_body_parse(const md_request *request, json_t **out, md_error *err);

// The member's value; NULL for null and missing.
const json_t *md_field(const json_t *body, const char *name);

md_status md_field_bool(const json_t *body, const char *name, bool *out, md_error *err);
md_status md_field_int(const json_t *body, const char *name, int64_t min, int64_t max, int64_t *out, md_error *err);
md_status md_field_number(const json_t *body, const char *name, double min, double max, double *out, md_error *err);
md_status md_field_string(const json_t *body, const char *name, const char **out, md_error *err); // borrowed
md_status md_field_object(const json_t *body, const char *name, const json_t **out, md_error *err);

// MD_E_USAGE: the member must not be there with a value other than null (and, where `allowed` is not NULL, `allowed`).
md_status md_field_refuse(const json_t *body, const char *name, const json_t *allowed, const char *why, md_error *err);

#endif
