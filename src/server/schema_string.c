// Strings of a schema: length, pattern, format.
#include <string.h>

#include "base/json.h"
#include "server/schema.h"
#include "server/schema_pattern.h"

enum { PATTERN_MAX = 1024 }; // bytes; what walks a pattern's nodes goes as deep

// ---- formats ---------------------------------------------------------------------------------------------------

#define DIGITS "[0-9]{1,4}"
#define DATE                                                                                                           \
    "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"             \
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define DURATION_TIME "T(?:" DIGITS "H(?:" DIGITS "M(?:" DIGITS "S)?)?|" DIGITS "M(?:" DIGITS "S)?|" DIGITS "S)"
#define DURATION_DATE "(?:" DIGITS "D|" DIGITS "M(?:" DIGITS "D)?|" DIGITS "Y(?:" DIGITS "M(?:" DIGITS "D)?)?)"

// Each describes some of what its format allows, so that whatever is written is valid: of dates no 29th of February and
// only years of four digits, of addresses the plain forms. Sources: RFC 3339, 5321, 1123, 4291, 4122.
static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration", "^P(?:" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME "|" DIGITS "W)$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"},
    {"email", "^[A-Za-z0-9_+-]{1,24}(?:\\.[A-Za-z0-9_+-]{1,16})?@" LABEL "(?:\\." LABEL "){0,2}\\.[a-z]{2,12}$"},
    {"hostname", "^" LABEL "(?:\\." LABEL "){0,4}$"},
    {"ipv4", "^(?:" OCTET "\\.){3}" OCTET "$"},
    {"ipv6", "^(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static md_status find_pattern(md_schema *s, const json_t *schema, const char **pattern, size_t *n, md_error *err) {
    const json_t *given = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    *pattern = NULL;
    if (given && format)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: \"format\" beside \"pattern\" can't constrain an answer here",
                       s->path);
    if (given) {
        if (!json_is_string(given))
            return md_fail(err, MD_E_USAGE, "%s.pattern: found %s, expected a string", s->path,
                           md_json_type_name(given));
        *pattern = json_string_value(given);
        *n = json_string_length(given);
        if (*n <= PATTERN_MAX) return MD_OK;
        return md_fail(err, MD_E_UNSUPPORTED, "%s.pattern: found %zu bytes, expected at most %d", s->path, *n,
                       PATTERN_MAX);
    }
    if (!format) return MD_OK;
    if (!json_is_string(format))
        return md_fail(err, MD_E_USAGE, "%s.format: found %s, expected a string", s->path, md_json_type_name(format));
    for (size_t i = 0; i < FORMATS; i++)
        if (strcmp(json_string_value(format), formats[i].name) == 0) {
            *pattern = formats[i].pattern;
            *n = strlen(*pattern);
            return MD_OK;
        }
    return md_fail(err, MD_E_UNSUPPORTED, "%s.format: \"%.64s\" can't constrain an answer here", s->path,
                   json_string_value(format));
}

// ---- strings ---------------------------------------------------------------------------------------------------

static md_status compile_pattern(md_schema *s, const char *pattern, size_t n, uint32_t min, uint32_t max,
                                 md_error *err) {
    md_schema_pattern *compiled;
    MD_TRY(md_schema_pattern_parse(pattern, n, s->path, &compiled, err));
    md_status status = md_schema_pattern_bound(compiled, min, max, s->path, err);
    if (status == MD_OK)
        status = md_schema_pattern_emit(compiled, s->grammar, s->raw ? MD_TEXT_RAW : s->parts->form, err);
    md_schema_pattern_free(compiled);
    return status;
}

md_status md_schema_string(md_schema *s, const json_t *schema, md_error *err) {
    uint32_t min, max;
    const char *pattern;
    size_t n;
    MD_TRY(md_schema_bounds(s, schema, "minLength", "maxLength", &min, &max, err));
    MD_TRY(find_pattern(s, schema, &pattern, &n, err));
    if (!pattern && !s->raw) return md_json_string(s->grammar, s->parts, min, max, err);
    if (!s->raw) MD_TRY(md_grammar_emit_bytes(s->grammar, "\"", 1, err));
    if (pattern)
        MD_TRY(compile_pattern(s, pattern, n, min, max, err));
    else
        MD_TRY(md_json_characters(s->grammar, s->parts->raw_character, min, max, err));
    return s->raw ? MD_OK : md_grammar_emit_bytes(s->grammar, "\"", 1, err);
}
