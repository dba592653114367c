// POST /v1/chat/completions
#include "base/json.h"
#include "server/chat_answer.h"
#include "server/fields.h"
#include "server/route.h"

// Everything that is done before the job may wait: bounded in how many do it at the same time.
static md_status read_request(const md_request *request, const md_served *served, md_job *job, md_chat_request *out,
                              md_error *err) {
    json_t *body;
    *out = (md_chat_request){0};
    MD_TRY(md_body_parse(request, &body, err));
    md_status status = md_chat_request_read(body, served, job, out, err);
    if (status == MD_OK && md_json_losses() != request->json_losses)
        status = md_fail(err, MD_E_MEMORY, "request: out of memory");
    json_decref(body);
    return status;
}

void md_handle_chat(md_request *request, const md_served *served) {
    md_chat_request chat = {0};
    md_chat_answer *answer = NULL;
    md_error err;
    md_job_group *jobs = md_job_group_new(1);
    md_status status = jobs ? MD_OK : md_fail(&err, MD_E_MEMORY, "request: out of memory");
    if (status == MD_OK) {
        md_gate_enter(&request->app->gate);
        status = read_request(request, served, &jobs->jobs[0], &chat, &err);
        md_gate_leave(&request->app->gate);
    }
    if (status == MD_OK) status = md_chat_answer_new(served, &chat, &answer, &err);
    bool stream = chat.params.stream;
    md_chat_request_free(&chat);
    if (status == MD_OK) {
        md_answer(request, jobs, stream, &md_chat_writer, answer);
    } else {
        md_job_group_unref(jobs);
        md_reply_failure(request, status, &err, false);
    }
}
