// The body of a chat request: checked, rendered by the chat template, and turned into a job.
#ifndef MD_SERVER_CHAT_REQUEST_H
#define MD_SERVER_CHAT_REQUEST_H

#include <jansson.h>

#include "server/params.h"

typedef struct md_chat_request {
    md_params params;
    json_t *tools; // owned: those that may be called; NULL: none
    bool parallel_calls;
    bool logprobs;
    bool opened_reasoning; // the prompt ends inside "<think>"
} md_chat_request;

// Fills *out and the job's request part. MD_E_USAGE, MD_E_UNSUPPORTED, MD_E_CONTEXT (does not fit), MD_E_MEMORY.
md_status md_chat_request_read(const json_t *body, const md_served *served, md_job *job, md_chat_request *out,
                               md_error *err);
void md_chat_request_free(md_chat_request *request);

// The prompt alone, as a request's body asks for it.
md_status md_chat_request_render(const json_t *body, const md_served *served, md_chat_prompt *out, md_error *err);

#endif
