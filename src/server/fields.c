#include "server/fields.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"

md_status md_body_parse(const md_request *request, json_t **out, md_error *err) {
    *out = NULL;
    const md_buf *body = &request->body;
    if (body->size == 0) return md_fail(err, MD_E_USAGE, "the body is empty, expected a JSON object");
    // U+0000 is a character like any other in a text.
    md_status status = md_json_parse(body->data, body->size, true, "body", out, err);
    if (status == MD_E_FORMAT) status = MD_E_USAGE;
    MD_TRY(status);
    if (json_is_object(*out)) return MD_OK;
    status = md_fail(err, MD_E_USAGE, "the body is %s, expected a JSON object", md_json_type_name(*out));
    json_decref(*out);
    *out = NULL;
    return status;
}

const json_t *md_field(const json_t *body, const char *name) {
    const json_t *value = json_object_get(body, name);
    return json_is_null(value) ? NULL : value;
}

static md_status wrong_type(const char *name, const json_t *value, const char *expected, md_error *err) {
    return md_fail(err, MD_E_USAGE, "%s: found %s, expected %s", name, md_json_type_name(value), expected);
}

md_status md_field_bool(const json_t *body, const char *name, bool *out, md_error *err) {
    const json_t *value = md_field(body, name);
    if (!value) return MD_OK;
    if (!json_is_boolean(value)) return wrong_type(name, value, "true or false", err);
    *out = json_is_true(value);
    return MD_OK;
}

md_status md_field_int(const json_t *body, const char *name, int64_t min, int64_t max, int64_t *out, md_error *err) {
    const json_t *value = md_field(body, name);
    if (!value) return MD_OK;
    if (!json_is_integer(value)) return wrong_type(name, value, "a whole number", err);
    int64_t n = json_integer_value(value);
    if (n < min || n > max)
        return md_fail(err, MD_E_USAGE, "%s: found %" PRId64 ", expected %" PRId64 " to %" PRId64, name, n, min, max);
    *out = n;
    return MD_OK;
}

md_status md_field_number(const json_t *body, const char *name, double min, double max, double *out, md_error *err) {
    const json_t *value = md_field(body, name);
    if (!value) return MD_OK;
    if (!json_is_number(value)) return wrong_type(name, value, "a number", err);
    double x = json_number_value(value);
    if (!(x >= min && x <= max)) return md_fail(err, MD_E_USAGE, "%s: found %g, expected %g to %g", name, x, min, max);
    *out = x;
    return MD_OK;
}

md_status md_field_string(const json_t *body, const char *name, const char **out, md_error *err) {
    const json_t *value = md_field(body, name);
    if (!value) return MD_OK;
    if (!json_is_string(value)) return wrong_type(name, value, "a string", err);
    *out = json_string_value(value);
    return MD_OK;
}

md_status md_field_object(const json_t *body, const char *name, const json_t **out, md_error *err) {
    const json_t *value = md_field(body, name);
    if (!value) return MD_OK;
    if (!json_is_object(value)) return wrong_type(name, value, "an object", err);
    *out = value;
    return MD_OK;
}

md_status md_field_refuse(const json_t *body, const char *name, const json_t *allowed, const char *why, md_error *err) {
    const json_t *value = md_field(body, name);
    if (!value || (allowed && json_equal(value, allowed))) return MD_OK;
    return md_fail(err, MD_E_UNSUPPORTED, "%s: %s", name, why);
}
