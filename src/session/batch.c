// A step whose columns belong to several sessions of one model.
#include <inttypes.h>

#include "session/session.h"

// Columns of one session must be neighbours, fit, and ask for logits only at the last. *run: how many there are from
// columns[0] on.
static md_status check_run(const md_model *model, const md_batch_column *columns, uint32_t n, uint32_t *run,
                           md_error *err) {
    const md_session *session = columns[0].session;
    uint32_t count = 0;
    if (session->model != model) return md_fail(err, MD_E_USAGE, "batch: a session belongs to another model");
    for (; count < n && columns[count].session == session; count++) {
        bool last = count + 1 == n || columns[count + 1].session != session;
        if (columns[count].want_logits && !last)
            return md_fail(err, MD_E_USAGE, "batch: only the last of a session's columns may ask for logits");
        if (columns[count].token >= model->info.vocab)
            return md_fail(err, MD_E_USAGE, "batch: found token %" PRIu32 ", expected below the vocabulary of %" PRIu32,
                           columns[count].token, model->info.vocab);
    }
    if (count > session->context - session->position)
        return md_fail(err, MD_E_CONTEXT,
                       "batch: %" PRIu32 " tokens after %" PRIu32 " do not fit into a context of %" PRIu32 " tokens",
                       count, session->position, session->context);
    MD_TRY(md_session_check(session, NULL, 0, err));
    *run = count;
    return MD_OK;
}

md_status md_batch_step(md_model *model, const md_batch_column *columns, uint32_t n, md_error *err) {
    md_column step[MD_WIDEST_STEP];
    if (n == 0 || n > model->info.max_columns)
        return md_fail(err, MD_E_USAGE, "batch: found %" PRIu32 " columns, expected 1 to %" PRIu32, n,
                       model->info.max_columns);
    for (uint32_t first = 0, run = 0; first < n; first += run) {
        MD_TRY(check_run(model, columns + first, n - first, &run, err));
        md_session *session = columns[first].session;
        for (uint32_t i = 0; i < first; i++)
            if (columns[i].session == session)
                return md_fail(err, MD_E_USAGE, "batch: columns of one session must follow each other");
        for (uint32_t i = 0; i < run; i++) {
            const md_batch_column *c = &columns[first + i];
            step[first + i] =
                (md_column){session->kv, session->position + i, c->token, c->want_logits ? session->logits : NULL};
        }
    }
    for (uint32_t i = 0; i < n; i++) columns[i].session->has_logits = false;
    MD_TRY(model->engine->ops->step(model->engine, step, n, err));
    for (uint32_t i = 0; i < n; i++) {
        md_session *session = columns[i].session;
        session->tokens[session->position++] = columns[i].token;
        session->has_logits = columns[i].want_logits;
        session->prompt_size = 0;
    }
    return MD_OK;
}
