// Log-probabilities in OpenAI's two forms.
#ifndef MD_SERVER_LOGPROBS_H
#define MD_SERVER_LOGPROBS_H

#include <jansson.h>

#include "server/job.h"
#include "server/served.h"

// A token's text; where its bytes are no UTF-8 by themselves, with U+FFFD in it. A new reference.
json_t *md_token_text_json(const md_served *served, uint32_t id);

// JSON has no infinity; OpenAI writes -9999 for what can't be.
double md_logprob_shown(double logprob);

// Does the token's text belong to the answer's text?
bool md_token_is_shown(const md_served *served, const md_job_token *token);

// Chat: {"token", "logprob", "bytes", "top_logprobs": [...]}. A new reference; NULL when out of memory.
json_t *md_chat_logprob_json(const md_served *served, const md_delivery *delivery, const md_job_token *token);

#endif
