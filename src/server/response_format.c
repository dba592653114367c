#include "server/response_format.h"

#include <string.h>

#include "base/json.h"
#include "server/fields.h"

// The schema that the format names: *schema borrowed, NULL for "any object". *path: what to call it in messages.
static md_status find_schema(const json_t *format, const char *type, const json_t **schema, const char **path,
                             md_error *err) {
    *schema = NULL;
    if (strcmp(type, "json_object") == 0) {
        *path = "response_format.schema";
        *schema = md_field(format, "schema"); // an extension that some clients use
        return MD_OK;
    }
    *path = "response_format.json_schema.schema";
    const json_t *holder = md_field(format, "json_schema");
    if (!json_is_object(holder))
        return md_fail(err, MD_E_USAGE, "response_format.json_schema: found %s, expected an object",
                       md_json_type_name(holder));
    if (!json_is_string(json_object_get(holder, "name")))
        return md_fail(err, MD_E_USAGE, "response_format.json_schema.name: found %s, expected a string",
                       md_json_type_name(json_object_get(holder, "name")));
    *schema = md_field(holder, "schema");
    if (!*schema) return md_fail(err, MD_E_USAGE, "%s: found nothing, expected a schema", *path);
    return MD_OK;
}

md_status md_response_format_read(const json_t *body, const md_served *served, bool has_tools, bool inside_reasoning,
                                  md_job *job, md_error *err) {
    const json_t *format = NULL, *schema;
    MD_TRY(md_field_object(body, "response_format", &format, err));
    if (!format) return MD_OK;
    const char *type = json_string_value(json_object_get(format, "type")), *path;
    if (type && strcmp(type, "text") == 0) return MD_OK;
    if (!type || (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0))
        return md_fail(err, MD_E_USAGE, "response_format.type: found %.32s, expected text, json_object or json_schema",
                       type ? type : md_json_type_name(json_object_get(format, "type")));
    if (has_tools) return md_fail(err, MD_E_UNSUPPORTED, "response_format: can't be combined with tools here");
    MD_TRY(find_schema(format, type, &schema, &path, err));
    md_grammar grammar;
    MD_TRY(md_schema_compile(schema, inside_reasoning, path, &grammar, err));
    MD_TRY(md_constraint_new(&grammar, &served->order, served->info.eos, served->info.eos_count,
                             inside_reasoning ? "</think>" : NULL, &job->constraint, err));
    job->params.sampling.adjust = md_constraint_adjust;
    job->params.sampling.adjust_user = job->constraint;
    return MD_OK;
}
