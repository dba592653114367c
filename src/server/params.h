// The sampling fields of a request, checked, and what they mean for a generation.
#ifndef MD_SERVER_PARAMS_H
#define MD_SERVER_PARAMS_H

#include <jansson.h>

#include "base/status.h"
#include "server/job.h"
#include "server/served.h"

enum { MD_STOP_STRINGS_MAX = 16, MD_LOGIT_BIAS_MAX = 1024, MD_TOP_LOGPROBS_ALLOWED = 20 };

typedef struct md_params {
    bool stream, include_usage;
    bool max_given; // max_tokens came with the request
} md_params;

typedef struct md_length_rule {
    uint32_t least;     // 0: an answer of no tokens may be asked for
    uint32_t otherwise; // tokens when the body says nothing; 0: until the context is full
} md_length_rule;

// Fills job->params and job->prompt_only from the body (temperature, top_p, top_k, min_p, penalties, seed, stop,
// logit_bias, max_tokens, max_completion_tokens) over the snapshot's defaults, and the fields of *out (stream,
// stream_options). What the body leaves out of the length is as `length` says. n, best_of and the like are refused,
// other unknown members ignored.
md_status md_params_read(const json_t *body, const md_served *served, md_length_rule length, md_job *job,
                         md_params *out, md_error *err);

// Checks that the prompt and the answer fit into the context: MD_E_CONTEXT with all numbers otherwise. A length that
// the request did not give is set to what is left.
md_status md_params_fit_context(const md_served *served, const md_params *params, md_job *job, md_error *err);

// The `model` member: absent, or the served model's id. MD_E_NOT_FOUND otherwise.
md_status md_params_check_model(const json_t *body, const md_served *served, md_error *err);

#endif
