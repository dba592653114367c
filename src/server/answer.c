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

json_t *md_usage_json(const md_job_end *end) {
    return json_pack("{s:I,s:I,s:I,s:{s:I}}", "prompt_tokens", (json_int_t)end->prompt_tokens, "completion_tokens",
                     (json_int_t)end->completion_tokens, "total_tokens",
                     (json_int_t)end->prompt_tokens + (json_int_t)end->completion_tokens, "prompt_tokens_details",
                     "cached_tokens", (json_int_t)end->cached_tokens);
}

void md_answer_id(const char *prefix, char id[40]) {
    snprintf(id, 40, "%s-%016" PRIx64 "%08" PRIx32, prefix, md_random_seed(), (uint32_t)md_random_seed());
}

json_t *md_text_json(const char *text, size_t size) {
    json_t *string = json_stringn(text, size);
    return string ? string : json_string("\xef\xbf\xbd");
}

// ---- whole -----------------------------------------------------------------------------------------------------

static void answer_whole(md_request *r, md_job *job, const md_answer_writer *writer, void *self) {
    md_delivery delivery;
    md_delivery_init(&delivery);
    md_buf none;
    md_buf_init(&none, 0);
    md_job_end end = {0};
    md_error err;
    md_fail(&err, MD_E_MEMORY, "answer: out of memory"); // what a failure without a text of its own is
    md_status status = writer->begin(self, &none, &err);
    md_take take = MD_TAKE_NOTHING;
    while (status == MD_OK && take != MD_TAKE_DONE && take != MD_TAKE_CANCELLED) {
        take = md_job_take(job, WAIT_MS, &delivery, &end);
        if (take == MD_TAKE_SOME || take == MD_TAKE_DONE) status = writer->delivery(self, &delivery, &none, &err);
    }
    md_delivery_free(&delivery);
    if (status == MD_OK && take == MD_TAKE_DONE && end.status == MD_OK) status = writer->end(self, &end, &none, &err);
    md_buf_free(&none);
    if (take == MD_TAKE_CANCELLED) return; // nobody is there to reply to
    if (status != MD_OK) {
        md_job_cancel(job);
        md_reply_failure(r, status, &err, false);
    } else if (end.status != MD_OK) {
        md_reply_failure(r, end.status, &end.error, end.overloaded);
    } else {
        md_reply_json(r, 200, writer->whole(self));
    }
}

// ---- streamed --------------------------------------------------------------------------------------------------

typedef struct stream {
    md_job *job; // a reference
    const md_answer_writer *writer;
    void *self;
    md_delivery delivery;
    md_buf out;
    size_t sent; // of out
    bool ended;
} stream;

static md_status take_some(stream *s, md_error *err) {
    md_job_end end;
    md_buf_clear(&s->out);
    s->sent = 0;
    switch (md_job_take(s->job, PING_MS, &s->delivery, &end)) {
    case MD_TAKE_CANCELLED: return MD_E_CANCELLED;
    case MD_TAKE_NOTHING: return md_buf_puts(&s->out, ": ping\n\n");
    case MD_TAKE_SOME: return s->writer->delivery(s->self, &s->delivery, &s->out, err);
    case MD_TAKE_DONE: break;
    }
    s->ended = true;
    MD_TRY(s->writer->delivery(s->self, &s->delivery, &s->out, err));
    if (end.status != MD_OK) return md_event(&s->out, md_failure_json(end.status, &end.error, end.overloaded), err);
    MD_TRY(s->writer->end(s->self, &end, &s->out, err));
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
        if (s->ended) return MD_STREAM_END;
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
    md_job_cancel(s->job); // where it is not done, the client closed the stream
    md_job_unref(s->job);
    s->writer->release(s->self);
    md_delivery_free(&s->delivery);
    md_buf_free(&s->out);
    free(s);
}

void md_answer(md_request *request, md_job *job, bool stream_wanted, const md_answer_writer *writer, void *self) {
    md_error err;
    md_status begun = md_fail(&err, MD_E_MEMORY, "answer: out of memory");
    stream *s = stream_wanted ? calloc(1, sizeof *s) : NULL;
    if (s) {
        *s = (stream){.job = job, .writer = writer, .self = self};
        md_delivery_init(&s->delivery);
        md_buf_init(&s->out, EVENTS_MAX);
        begun = writer->begin(self, &s->out, &err);
        if (md_json_losses() != request->json_losses) begun = MD_E_MEMORY;
    }
    bool ready = !stream_wanted || begun == MD_OK;
    md_conn_set_job(request->conn, job);
    md_submit submit = ready ? md_scheduler_submit(request->app->scheduler, job) : MD_SUBMIT_OK;
    if (!ready)
        md_reply_failure(request, begun, &err, false);
    else if (submit != MD_SUBMIT_OK)
        md_reply_overloaded(request, submit);
    else if (!stream_wanted)
        answer_whole(request, job, writer, self);
    else
        md_reply_stream(request, "text/event-stream", read_stream, release_stream, s);
    if (s) {
        if (!ready || submit != MD_SUBMIT_OK) release_stream(s);
    } else {
        md_job_unref(job);
        writer->release(self);
    }
}
