// Steps and bursts whose columns belong to several sessions of one model.
#include <inttypes.h>

#include "session/generation.h"

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
    md_column step[MD_WIDEST_STEP] = {{0}};
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

// ---- many tokens -----------------------------------------------------------------------------------------------

typedef struct running { // one turn while the engine chooses tokens for it
    md_batch_turn *turn;
    md_session *session;
} running;

// md_burst_column.on_token: the engine has fed turn->token and chosen `token`.
static bool on_token(void *user, uint32_t token) {
    running *r = user;
    md_piece piece;
    r->session->tokens[r->session->position++] = r->turn->token;
    r->turn->token = token;
    if (md_generation_take(r->turn->generation, token, &piece, &r->turn->error) != MD_OK) return false;
    bool more = !r->turn->on_piece || r->turn->on_piece(r->turn->user, &piece);
    return more && !piece.finish;
}

// One step, after which the caller chooses.
static md_status one_step(md_model *model, md_batch_turn *turns, uint32_t n, md_error *err) {
    md_batch_column columns[MD_WIDEST_STEP];
    for (uint32_t i = 0; i < n; i++)
        columns[i] = (md_batch_column){md_generation_session(turns[i].generation), turns[i].token, true};
    MD_TRY(md_batch_step(model, columns, n, err));
    for (uint32_t i = 0; i < n; i++) turns[i].choose = true;
    return MD_OK;
}

static md_status burst(md_model *model, md_burst *request, running *r, md_error *err) {
    bool any = false;
    for (uint32_t i = 0; i < request->count; i++) {
        r[i].session->has_logits = false;
        r[i].session->prompt_size = 0;
    }
    md_status status = model->engine->ops->burst(model->engine, request, err);
    for (uint32_t i = 0; i < request->count; i++) {
        const md_burst_column *column = &request->column[i];
        any |= column->produced || column->undecided;
        if (status != MD_OK || !column->undecided) continue;
        r[i].session->tokens[r[i].session->position++] = r[i].turn->token;
        r[i].session->has_logits = r[i].turn->choose = true;
    }
    if (status != MD_OK || any) return status;
    return md_fail(err, MD_E_INTERNAL, "%s engine: a burst of up to %" PRIu32 " tokens gave none", model->info.engine,
                   request->max_tokens);
}

md_status md_batch_generate(md_model *model, md_batch_turn *turns, uint32_t n, uint32_t max_tokens, md_error *err) {
    md_burst_column columns[MD_WIDEST_STEP];
    running r[MD_WIDEST_STEP];
    md_burst request = {.column = columns, .count = n, .max_tokens = max_tokens};
    bool plain = model->engine->ops->burst && max_tokens > 1;
    if (n == 0 || n > model->info.max_columns)
        return md_fail(err, MD_E_USAGE, "batch: found %" PRIu32 " columns, expected 1 to %" PRIu32, n,
                       model->info.max_columns);
    for (uint32_t i = 0; i < n; i++) turns[i].choose = false, turns[i].error.code = MD_OK;
    for (uint32_t i = 0; i < n && plain; i++) {
        md_session *session = md_generation_session(turns[i].generation);
        uint32_t run;
        MD_TRY(check_run(model, &(md_batch_column){session, turns[i].token, true}, 1, &run, err));
        r[i] = (running){&turns[i], session};
        columns[i] = (md_burst_column){.kv = session->kv,
                                       .position = session->position,
                                       .token = turns[i].token,
                                       .logits = session->logits,
                                       .on_token = on_token,
                                       .user = &r[i]};
        plain = md_generation_is_plain(turns[i].generation, &columns[i], &request.max_tokens);
    }
    return plain ? burst(model, &request, r, err) : one_step(model, turns, n, err);
}
