// From a job to a response: waits for deliveries and hands them to a writer, which makes the response's text of them,
// as server-sent events or whole.
#ifndef MD_SERVER_ANSWER_H
#define MD_SERVER_ANSWER_H

#include <jansson.h>

#include "server/http.h"

// A writer's functions append to `out`: events of a stream; nothing when the answer is wanted whole.
typedef struct md_answer_writer {
    md_status (*begin)(void *self, md_buf *out, md_error *err);
    md_status (*delivery)(void *self, uint32_t job, const md_delivery *delivery, md_buf *out, md_error *err);
    md_status (*end)(void *self, uint32_t job, const md_job_end *end, md_buf *out, md_error *err); // of one job
    md_status (*finish)(void *self, md_buf *out, md_error *err); // all jobs have ended
    json_t *(*whole)(void *self); // after finish: the response's body, a new reference; NULL: out of memory
    void (*release)(void *self);
} md_answer_writer;

// Submits the jobs, follows them to their ends and replies. Takes the reference to the group and the writer.
void md_answer(md_request *request, md_job_group *jobs, bool stream, const md_answer_writer *writer, void *self);

// Appends one event to a stream; takes the reference.
md_status md_event(md_buf *out, json_t *data, md_error *err);

// OpenAI's usage object of all `n` jobs of a request. A new reference.
json_t *md_usage_json(const md_job_end *ends, uint32_t n);

// {"first_token_ms", "decode_ms", "tokens_per_second"}: the last is null where there are not two tokens. A new
// reference.
json_t *md_timings_json(const md_job_end *end);
// "PREFIX-" and 24 random hex digits.
void md_answer_id(const char *prefix, char id[40]);
// A string of any bytes: what is not UTF-8 becomes U+FFFD. A new reference.
json_t *md_text_json(const char *text, size_t size);

#endif
