#include "base/json.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"

md_status md_json_parse(const char *bytes, size_t n, bool allow_nul, const char *what, json_t **out, md_error *err) {
    json_error_t at;
    size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | (allow_nul ? JSON_ALLOW_NUL : 0u);
    uint64_t losses = md_json_losses();
    *out = md_json_load(bytes, n, flags, &at);
    if (!*out && md_json_losses() != losses)
        return md_fail(err, MD_E_MEMORY, "%s: out of memory while reading JSON", what);
    if (!*out)
        return md_fail(err, MD_E_FORMAT, "%s: not valid JSON: %s (line %d, column %d)", what, at.text, at.line,
                       at.column);
    return MD_OK;
}

md_status md_json_read_file(const char *path, size_t max, json_t **out, md_error *err) {
    *out = NULL;
    char *text;
    size_t size;
    MD_TRY(md_file_read_all(path, max, &text, &size, err));
    md_status status = md_json_parse(text, size, false, path, out, err);
    free(text);
    return status;
}

json_t *md_json_text(const char *text) {
    json_t *out = json_string(text);
    if (out) return out;
    char copy[4096];
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof copy; n++) copy[n] = (unsigned char)text[n] > 127 ? '?' : text[n];
    copy[n] = 0;
    return json_string(copy);
}

const char *md_json_type_name(const json_t *value) {
    if (!value) return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
    }
    return "something unknown";
}

static const json_t *member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

md_status md_json_get_int(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
                          const char *what, md_error *err) {
    const json_t *value = member(object, key);
    if (!value) return MD_OK;
    if (!json_is_integer(value))
        return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is %s, expected an integer", what, key, md_json_type_name(value));
    int64_t found = json_integer_value(value);
    if (found < min || found > max)
        return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is %lld, expected %lld to %lld", what, key, (long long)found,
                       (long long)min, (long long)max);
    *out = found;
    return MD_OK;
}

md_status md_json_get_number(const json_t *object, const char *key, double min, double max, double *out,
                             const char *what, md_error *err) {
    const json_t *value = member(object, key);
    if (!value) return MD_OK;
    if (!json_is_number(value))
        return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is %s, expected a number", what, key, md_json_type_name(value));
    double found = json_number_value(value);
    if (!isfinite(found) || found < min || found > max)
        return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is %g, expected %g to %g", what, key, found, min, max);
    *out = found;
    return MD_OK;
}

md_status md_json_get_bool(const json_t *object, const char *key, bool *out, const char *what, md_error *err) {
    const json_t *value = member(object, key);
    if (!value) return MD_OK;
    if (!json_is_boolean(value))
        return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is %s, expected true or false", what, key,
                       md_json_type_name(value));
    *out = json_is_true(value);
    return MD_OK;
}

md_status md_json_get_string(const json_t *object, const char *key, const char **out, const char *what, md_error *err) {
    const json_t *value = member(object, key);
    if (!value) return MD_OK;
    if (!json_is_string(value))
        return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is %s, expected a string", what, key, md_json_type_name(value));
    *out = json_string_value(value);
    return MD_OK;
}
