// The whole loop: prompt in, pieces out.
#include "base/clock.h"
#include "session/session.h"

enum { PROGRESS_STEP = 64 }; // prompt tokens between two calls of params->progress, or one step where that is wider

// Computes the prompt. *cancelled: params->progress said no.
static md_status prefill(md_session *session, const uint32_t *prompt, size_t n, const md_generation_params *params,
                         md_result *result, bool *cancelled, md_error *err) {
    uint32_t left = 0, widest = session->model->info.max_columns;
    uint32_t most = !params->progress ? 0 : widest > PROGRESS_STEP ? widest : PROGRESS_STEP;
    MD_TRY(md_session_prepare(session, prompt, n, &result->cached_tokens, err));
    do {
        MD_TRY(md_session_advance(session, most, &left, err));
        *cancelled = params->progress && !params->progress(params->progress_user, (uint32_t)n - left, (uint32_t)n);
    } while (left && !*cancelled);
    return MD_OK;
}

// Chooses and feeds tokens until the last piece.
static md_status decode(md_session *session, md_generation *generation, md_piece_fn on_piece, void *user, double start,
                        md_result *result, md_error *err) {
    md_piece piece;
    double first = 0;
    bool go_on = true;
    do {
        if (go_on) {
            MD_TRY(md_generation_next(generation, &piece, err));
            result->completion_tokens++;
        } else {
            MD_TRY(md_generation_cancel(generation, &piece, err));
        }
        double now = md_clock_seconds();
        if (result->completion_tokens == 1) {
            first = now;
            result->first_seconds = now - start;
        }
        result->decode_seconds = now - first;
        go_on = !on_piece || on_piece(user, &piece);
        if (!piece.finish && go_on) MD_TRY(md_session_feed(session, &piece.next, 1, err));
    } while (!piece.finish);
    result->finish = piece.finish;
    result->stop_index = piece.stop_index;
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
    md_status status = decode(session, generation, on_piece, user, start, result, err);
    md_generation_close(generation);
    return status;
}
