#include "server/answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum {
    PING_MS = 5000,        // a stream without news says so: proxies keep it open, and a gone client is noticed
    WAIT_MS = 60000,       // one round of waiting for a whole answer
    EVENTS_MAX = 256 << 20 // made of one delivery; far above what a context can hold
};

// ---- pieces of responses ---------------------------------------------------------------------------------------

md_status md_event(md_buf *out, json_t *data, md_error *err) {
    char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;
    json_decref(data);
    bool kept = text && md_buf_puts(out, "data: ") == MD_OK && md_buf_puts(out, text) == MD_OK &&
                md_buf_puts(out, "\n\n") == MD_OK;
    free(text);
    return kept ? MD_OK : md_fail(err, MD_E_MEMORY, "answer: out of memory");
}

json_t *md_usage_json(const md_job_end *ends, uint32_t n) {
    json_int_t prompt = 0, cached = 0, completion = 0;
    for (uint32_t i = 0; i < n; i++) {
        prompt += ends[i].prompt_tokens;
        cached += ends[i].cached_tokens;
        completion += ends[i].completion_tokens;
    }
    return json_pack("{s:I,s:I,s:I,s:{s:I}}", "prompt_tokens", prompt, "completion_tokens", completion, "total_tokens",
                     prompt + completion, "prompt_tokens_details", "cached_tokens", cached);
}

json_t *md_timings_json(const md_job_end *end) {
    bool known = end->completion_tokens > 1 && end->decode_seconds > 0;
    json_t *rate = known ? json_real((end->completion_tokens - 1) / end->decode_seconds) : json_null();
    return json_pack("{s:f,s:f,s:o}", "first_token_ms", end->first_seconds * 1000, "decode_ms",
                     end->decode_seconds * 1000, "tokens_per_second", rate);
}

void md_answer_id(const char *prefix, char id[40]) {
    snprintf(id, 40, "%s-%016" PRIx64 "%08" PRIx32, prefix, md_random_seed(), (uint32_t)md_random_seed());
}

json_t *md_text_json(const char *text, size_t size) {
    json_t *string = json_stringn(text, size);
    return string ? string : json_string("\xef\xbf\xbd");
}

// ---- whole -----------------------------------------------------------------------------------------------------

// Takes until every job has ended well. *end: how the last one taken ended.
static md_status collect(md_job_group *jobs, const md_answer_writer *writer, void *self, md_take *take, md_job_end *end,
                         md_error *err) {
    md_delivery delivery;
    md_delivery_init(&delivery);
    md_buf none;
    md_buf_init(&none, 0);
    md_status status = writer->begin(self, &none, err);
    for (uint32_t left = jobs->count, job; status == MD_OK && left > 0;) {
        *take = md_job_group_take(jobs, WAIT_MS, &job, &delivery, end);
        if (*take == MD_TAKE_CANCELLED) break;
        if (*take == MD_TAKE_NOTHING) continue;
        status = writer->delivery(self, job, &delivery, &none, err);
        if (*take != MD_TAKE_DONE || status != MD_OK) continue;
        if (end->status != MD_OK) break;
        status = writer->end(self, job, end, &none, err);
        left--;
    }
    if (status == MD_OK && *take == MD_TAKE_DONE && end->status == MD_OK) status = writer->finish(self, &none, err);
    md_delivery_free(&delivery);
    md_buf_free(&none);
    return status;
}

static void answer_whole(md_request *r, md_job_group *jobs, const md_answer_writer *writer, void *self) {
    md_take take = MD_TAKE_NOTHING;
    md_job_end end = {0};
    md_error err;
    md_fail(&err, MD_E_MEMORY, "answer: out of memory"); // what a failure without a text of its own is
    md_status status = collect(jobs, writer, self, &take, &end, &err);
    if (take == MD_TAKE_CANCELLED) return; // nobody is there to reply to
    if (status == MD_OK && end.status == MD_OK) {
        md_reply_json(r, 200, writer->whole(self));
        return;
    }
    md_job_group_cancel(jobs); // those that still run
    if (status != MD_OK)
        md_reply_failure(r, status, &err, false);
    else
        md_reply_failure(r, end.status, &end.error, end.overloaded);
}

// ---- streamed --------------------------------------------------------------------------------------------------

typedef struct stream {
    md_job_group *jobs; // a reference
    const md_answer_writer *writer;
    void *self;
    md_delivery delivery;
    md_buf out;
    size_t sent;   // of out
    uint32_t left; // jobs that have not ended
} stream;

static md_status take_some(stream *s, md_error *err) {
    md_job_end end;
    uint32_t job;
    md_buf_clear(&s->out);
    s->sent = 0;
    md_take take = md_job_group_take(s->jobs, PING_MS, &job, &s->delivery, &end);
    if (take == MD_TAKE_CANCELLED) return MD_E_CANCELLED;
    if (take == MD_TAKE_NOTHING) return md_buf_puts(&s->out, ": ping\n\n");
    MD_TRY(s->writer->delivery(s->self, job, &s->delivery, &s->out, err));
    if (take == MD_TAKE_SOME) return MD_OK;
    if (end.status != MD_OK) {
        s->left = 0;
        return md_event(&s->out, md_failure_json(end.status, &end.error, end.overloaded), err);
    }
    MD_TRY(s->writer->end(s->self, job, &end, &s->out, err));
    if (--s->left > 0) return MD_OK;
    MD_TRY(s->writer->finish(s->self, &s->out, err));
    return md_buf_puts(&s->out, "data: [DONE]\n\n");
}

static md_status take_more(stream *s, md_error *err) {
    uint64_t losses = md_json_losses();
    MD_TRY(take_some(s, err));
    return md_json_losses() == losses ? MD_OK : md_fail(err, MD_E_MEMORY, "answer: out of memory");
}

static long read_stream(void *user, char *bytes, size_t max) {
    stream *s = user;
    while (s->sent == s->out.size) {
        if (s->left == 0) return MD_STREAM_END;
        if (take_more(s, NULL) != MD_OK) return MD_STREAM_BROKEN;
    }
    size_t n = s->out.size - s->sent;
    if (n > max) n = max;
    memcpy(bytes, s->out.data + s->sent, n);
    s->sent += n;
    return (long)n;
}

static void release_stream(void *user) {
    stream *s = user;
    md_job_group_cancel(s->jobs); // where they are not done, the client closed the stream, or one of them failed
    md_job_group_unref(s->jobs);
    s->writer->release(s->self);
    md_delivery_free(&s->delivery);
    md_buf_free(&s->out);
    free(s);
}

void md_answer(md_request *request, md_job_group *jobs, bool stream_wanted, const md_answer_writer *writer,
               void *self) {
    md_error err;
    md_status begun = md_fail(&err, MD_E_MEMORY, "answer: out of memory");
    stream *s = stream_wanted ? calloc(1, sizeof *s) : NULL;
    if (s) {
        *s = (stream){.jobs = jobs, .writer = writer, .self = self, .left = jobs->count};
        md_delivery_init(&s->delivery);
        md_buf_init(&s->out, EVENTS_MAX);
        begun = writer->begin(self, &s->out, &err);
        if (md_json_losses() != request->json_losses) begun = MD_E_MEMORY;
    }
    bool ready = !stream_wanted || begun == MD_OK;
    md_conn_set_job(request->conn, jobs);
    md_submit submit = ready ? md_scheduler_submit(request->app->scheduler, jobs) : MD_SUBMIT_OK;
    if (!ready)
        md_reply_failure(request, begun, &err, false);
    else if (submit != MD_SUBMIT_OK)
        md_reply_overloaded(request, submit);
    else if (!stream_wanted)
        answer_whole(request, jobs, writer, self);
    else
        md_reply_stream(request, "text/event-stream", read_stream, release_stream, s);
    if (s) {
        if (!ready || submit != MD_SUBMIT_OK) release_stream(s);
    } else {
        md_job_group_unref(jobs);
        writer->release(self);
    }
}
