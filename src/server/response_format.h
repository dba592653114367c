// The response_format member: text, json_object or json_schema.
#ifndef MD_SERVER_RESPONSE_FORMAT_H
#define MD_SERVER_RESPONSE_FORMAT_H

#include <jansson.h>

#include "server/job.h"
#include "server/served.h"

// Gives the job a constraint where one is asked for. A schema that can't constrain every part of the answer is refused.
// `inside_reasoning`: the answer begins inside "<think>"; it is constrained after the closing mark.
md_status md_response_format_read(const json_t *body, const md_served *served, bool has_tools, bool inside_reasoning,
                                  md_job *job, md_error *err);

#endif
