// The whole loop: prompt in, pieces out.
#include "base/clock.h"
#include "session/generation.h"

// Computes the prompt. *cancelled: params->progress said no.
static md_status prefill(md_session *session, const uint32_t *prompt, size_t n, const md_generation_params *params,
                         md_result *result, bool *cancelled, md_error *err) {
    uint32_t left = 0, most = params->progress ? session->model->info.prompt_columns : 0;
    MD_TRY(md_session_prepare(session, prompt, n, &result->cached_tokens, err));
    do {
        MD_TRY(md_session_advance(session, most, &left, err));
        *cancelled = params->progress && !params->progress(params->progress_user, (uint32_t)n - left, (uint32_t)n);
    } while (left && !*cancelled);
    return MD_OK;
}

// One call's decoding.
typedef struct decoding {
    md_session *session;
    md_generation *generation;
    const md_generation_params *params;
    md_piece_fn on_piece;
    void *user;
    double start, first; // times of the call and of the first token
    md_result *result;
    md_piece piece; // the last
    bool go_on;     // on_piece has not said no
    md_status status;
    md_error *err;
} decoding;

// Counts and hands on d->piece.
static void deliver(decoding *d, bool chosen) {
    double now = md_clock_seconds();
    if (chosen && ++d->result->completion_tokens == 1) {
        d->first = now;
        d->result->first_seconds = now - d->start;
    }
    d->result->decode_seconds = now - d->first;
    d->go_on = !d->on_piece || d->on_piece(d->user, &d->piece);
}

static bool take_piece(void *user, const md_piece *piece) {
    decoding *d = user;
    d->piece = *piece;
    deliver(d, true);
    return d->go_on;
}

// Chooses and feeds tokens until the last piece.
static md_status decode(decoding *d) {
    md_batch_turn turn = {.generation = d->generation, .on_piece = take_piece, .user = d, .choose = true};
    for (;;) {
        if (turn.choose) {
            MD_TRY(md_generation_next(d->generation, &d->piece, d->err));
            deliver(d, true);
            turn.token = d->piece.next;
        }
        if (d->piece.finish) break;
        if (!d->go_on) {
            MD_TRY(md_generation_cancel(d->generation, &d->piece, d->err));
            deliver(d, false);
            break;
        }
        MD_TRY(md_batch_generate(d->session->model, &turn, 1, UINT32_MAX, d->err));
        if (turn.error.code != MD_OK) return md_fail(d->err, turn.error.code, "%s", turn.error.message);
    }
    d->result->finish = d->piece.finish;
    d->result->stop_index = d->piece.stop_index;
    return MD_OK;
}

md_status md_generate(md_session *session, const uint32_t *prompt, size_t n, const md_generation_params *params,
                      md_piece_fn on_piece, void *user, md_result *result, md_error *err) {
    static const md_generation_params defaults = {0};
    md_result unused;
    md_generation *generation = NULL;
    bool cancelled = false;
    double start = md_clock_seconds();
    if (!params) params = &defaults;
    if (!result) result = &unused;
    *result = (md_result){.stop_index = -1, .prompt_tokens = (uint32_t)n};
    MD_TRY(prefill(session, prompt, n, params, result, &cancelled, err));
    result->prefill_seconds = md_clock_seconds() - start;
    if (cancelled) {
        result->finish = MD_FINISH_CANCELLED;
        return MD_OK;
    }
    MD_TRY(md_generation_open(session, params, &generation, err));
    decoding d = {.session = session,
                  .generation = generation,
                  .params = params,
                  .on_piece = on_piece,
                  .user = user,
                  .start = start,
                  .result = result,
                  .err = err};
    md_status status = decode(&d);
    md_generation_close(generation);
    return status;
}
