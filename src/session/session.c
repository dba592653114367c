#include "session/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "session/kv_spec.h"

enum { EACH_COLUMNS = MD_MAX_STEP_COLUMNS }; // columns of a step that wants every column's logits

static const md_engine_ops *ops_of(const md_session *session) { return session->model->engine->ops; }

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

// ---- open and close --------------------------------------------------------------------------------------------

// Takes another cache in place of the session's.
static void replace_kv(md_session *session, md_kv *kv) {
    if (session->kv) ops_of(session)->kv_close(session->model->engine, session->kv);
    session->kv = kv;
}

// The session as it was opened. After a failure it is as it was before.
static md_status reopen_kv(md_session *session, md_error *err) {
    md_engine *engine = session->model->engine;
    md_kv *kv;
    MD_TRY(engine->ops->kv_open(engine, session->context, &kv, err));
    md_status status = session->from_start ? engine->ops->kv_quantize(engine, kv, session->format, 0, err) : MD_OK;
    if (status != MD_OK) {
        engine->ops->kv_close(engine, kv);
        return status;
    }
    replace_kv(session, kv);
    session->position = session->quantized_at = 0;
    session->has_logits = false;
    session->quantized = session->from_start;
    return MD_OK;
}

md_status md_session_open(md_model *model, const md_session_options *options, md_session **out, md_error *err) {
    static const md_session_options defaults = {0};
    if (!options) options = &defaults;
    *out = NULL;
    uint32_t most = model->info.context;
    uint32_t context = options->context ? options->context : min_u32(most, MD_CONTEXT_DEFAULT);
    if (context > most)
        return md_fail(err, MD_E_USAGE, "context: found %" PRIu32 ", expected at most the model's %" PRIu32, context,
                       most);
    md_session *session = calloc(1, sizeof *session);
    if (!session) return md_fail(err, MD_E_MEMORY, "session: out of memory");
    md_model_hold(model);
    session->model = model;
    session->context = context;
    session->tokens = malloc(context * sizeof *session->tokens);
    session->prompt = malloc(context * sizeof *session->prompt);
    session->logits = malloc(model->info.vocab * sizeof *session->logits);
    md_status status = MD_OK;
    if (!session->tokens || !session->prompt || !session->logits) {
        status = md_fail(err, MD_E_MEMORY, "session: out of memory for %" PRIu32 " positions", context);
        goto fail;
    }
    MD_TRY_GOTO(md_kv_spec_read(model->snapshot, options->kv, &session->format, err));
    session->from_start = options->kv_from_start && session->format;
    MD_TRY_GOTO(reopen_kv(session, err));
    *out = session;
    return MD_OK;
fail:
    md_session_close(session);
    return status;
}

void md_session_close(md_session *session) {
    if (!session) return;
    if (session->kv) ops_of(session)->kv_close(session->model->engine, session->kv);
    free(session->format);
    free(session->tokens);
    free(session->prompt);
    free(session->logits);
    md_model_close(session->model);
    free(session);
}

// ---- what it holds ---------------------------------------------------------------------------------------------

md_model *md_session_model(const md_session *session) { return session->model; }
uint32_t md_session_context(const md_session *session) { return session->context; }
uint32_t md_session_position(const md_session *session) { return session->position; }
const uint32_t *md_session_tokens(const md_session *session) { return session->tokens; }
const float *md_session_logits(const md_session *session) { return session->has_logits ? session->logits : NULL; }

uint64_t md_session_kv_bytes(const md_session *session) {
    return ops_of(session)->kv_bytes(session->model->engine, session->kv);
}

uint64_t md_session_kv_position_bytes(const md_session *session) {
    return md_kv_position_bytes(session->model->snapshot, session->format);
}

// ---- appending -------------------------------------------------------------------------------------------------

md_status md_session_check(const md_session *session, const uint32_t *tokens, size_t n, md_error *err) {
    if (n > session->context - session->position)
        return md_fail(err, MD_E_CONTEXT,
                       "context: %zu tokens after %" PRIu32 " do not fit into a context of %" PRIu32 " tokens", n,
                       session->position, session->context);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= session->model->info.vocab)
            return md_fail(err, MD_E_USAGE, "tokens[%zu]: found %" PRIu32 ", expected below the vocabulary of %" PRIu32,
                           i, tokens[i], session->model->info.vocab);
    return MD_OK;
}

// One step of n <= MD_WIDEST_PROMPT checked tokens; logits[i * stride] receives column i's, or only the last's when
// stride is 0.
static md_status step(md_session *session, const uint32_t *tokens, uint32_t n, float *logits, size_t stride,
                      md_error *err) {
    md_column columns[MD_WIDEST_PROMPT];
    for (uint32_t i = 0; i < n; i++) {
        float *wanted = stride ? logits + i * stride : i + 1 == n ? logits : NULL;
        columns[i] = (md_column){session->kv, session->position + i, tokens[i], wanted};
    }
    session->has_logits = false;
    MD_TRY(ops_of(session)->step(session->model->engine, columns, n, err));
    memcpy(session->tokens + session->position, tokens, n * sizeof *tokens);
    session->position += n;
    return MD_OK;
}

// Appends checked tokens; logits of the last only when they are wanted.
static md_status append(md_session *session, const uint32_t *tokens, uint32_t n, bool want_logits, md_error *err) {
    for (uint32_t done = 0; done < n;) {
        uint32_t width = min_u32(n - done, session->model->info.prompt_columns);
        bool last = want_logits && done + width == n;
        MD_TRY(step(session, tokens + done, width, last ? session->logits : NULL, 0, err));
        session->has_logits = last;
        done += width;
    }
    return MD_OK;
}

md_status md_session_feed(md_session *session, const uint32_t *tokens, size_t n, md_error *err) {
    MD_TRY(md_session_check(session, tokens, n, err));
    session->prompt_size = 0;
    return append(session, tokens, (uint32_t)n, true, err);
}

md_status md_session_feed_each(md_session *session, const uint32_t *tokens, size_t n, md_logits_fn seen, void *user,
                               md_error *err) {
    MD_TRY(md_session_check(session, tokens, n, err));
    session->prompt_size = 0;
    size_t vocab = session->model->info.vocab;
    uint32_t most = min_u32(EACH_COLUMNS, session->model->info.max_columns);
    float *rows = malloc(most * vocab * sizeof *rows);
    if (!rows) return md_fail(err, MD_E_MEMORY, "session: out of memory for %u rows of logits", most);
    md_status status = MD_OK;
    for (size_t done = 0; done < n && status == MD_OK;) {
        uint32_t width = min_u32((uint32_t)(n - done), most), first = session->position;
        status = step(session, tokens + done, width, rows, vocab, err);
        if (status != MD_OK) break;
        memcpy(session->logits, rows + (width - 1) * vocab, vocab * sizeof *rows);
        session->has_logits = true;
        for (uint32_t i = 0; i < width && status == MD_OK; i++)
            if (!seen(user, first + i, rows + i * vocab))
                status = md_fail(err, MD_E_CANCELLED, "session: cancelled at position %" PRIu32, first + i);
        done += width;
    }
    free(rows);
    return status;
}

// ---- a whole prompt --------------------------------------------------------------------------------------------

// Where mlx-lm's generate_step quantizes the cache of a prompt of n tokens: after the first chunk of its prefill, which
// leaves the last token for the first decode step; a prompt of one token has no prefill, and is quantized after it.
static uint32_t quantize_point(size_t n) { return n < 2 ? 1 : min_u32((uint32_t)n - 1, MD_PREFILL_STEP); }

uint32_t md_session_reusable(const md_session *session, const uint32_t *tokens, size_t n) {
    uint32_t common = 0;
    while (common < session->position && common + 1 < n && session->tokens[common] == tokens[common]) common++;
    if (!session->format || session->from_start) return common;
    uint32_t point = quantize_point(n);
    if (!session->quantized) return min_u32(common, point);
    return session->quantized_at == point && common >= point ? common : 0;
}

md_status md_session_prepare(md_session *session, const uint32_t *tokens, size_t n, uint32_t *reused, md_error *err) {
    if (n == 0) return md_fail(err, MD_E_USAGE, "prompt: found no tokens, expected at least 1");
    if (n > session->context)
        return md_fail(err, MD_E_CONTEXT,
                       "prompt: %zu tokens do not fit into the session's context of %" PRIu32 " tokens", n,
                       session->context);
    uint32_t keep = md_session_reusable(session, tokens, n);
    if (keep == 0 && session->quantized) MD_TRY(reopen_kv(session, err));
    session->position = keep;
    session->has_logits = false;
    MD_TRY(md_session_check(session, tokens + keep, n - keep, err));
    memcpy(session->prompt, tokens, n * sizeof *tokens);
    session->prompt_size = (uint32_t)n;
    if (reused) *reused = keep;
    return MD_OK;
}

md_status md_session_advance(md_session *session, uint32_t most, uint32_t *left, md_error *err) {
    uint32_t size = session->prompt_size, start = session->position;
    if (size <= start) {
        *left = 0;
        return MD_OK;
    }
    uint32_t goal = most && most < size - start ? start + most : size;
    bool quantize = session->format && !session->quantized;
    if (quantize) {
        uint32_t point = quantize_point(size);
        uint32_t stop = min_u32(goal, point);
        MD_TRY(append(session, session->prompt + start, stop - start, stop == size, err));
        if (stop == point) MD_TRY(md_session_quantize(session, err));
        start = stop;
    }
    MD_TRY(append(session, session->prompt + start, goal - start, goal == size, err));
    *left = size - session->position;
    if (*left == 0) session->prompt_size = 0;
    return MD_OK;
}

md_status md_session_sync(md_session *session, const uint32_t *tokens, size_t n, uint32_t *reused, md_error *err) {
    uint32_t left = 0;
    MD_TRY(md_session_prepare(session, tokens, n, reused, err));
    return md_session_advance(session, 0, &left, err);
}

// ---- other changes ---------------------------------------------------------------------------------------------

md_status md_session_rewind(md_session *session, uint32_t position, md_error *err) {
    if (position > session->position)
        return md_fail(err, MD_E_USAGE, "rewind: found position %" PRIu32 ", expected at most %" PRIu32, position,
                       session->position);
    session->prompt_size = 0;
    if (position == session->position) return MD_OK;
    if (position == 0 && session->quantized) return reopen_kv(session, err);
    session->position = position;
    session->has_logits = false;
    session->quantized_at = min_u32(session->quantized_at, position);
    return MD_OK;
}

static bool same_format(const md_session *a, const md_session *b) {
    if (!a->format || !b->format) return a->format == b->format;
    size_t bytes = a->model->info.layers * sizeof *a->format;
    return a->from_start == b->from_start && memcmp(a->format, b->format, bytes) == 0;
}

md_status md_session_copy(md_session *dst, const md_session *src, uint32_t positions, md_error *err) {
    if (dst->model != src->model || dst == src || !same_format(dst, src))
        return md_fail(err, MD_E_USAGE, "copy: expected two sessions of one model opened with the same kv");
    if (positions > src->position || positions > dst->context)
        return md_fail(err, MD_E_CONTEXT,
                       "copy: found %" PRIu32 " positions, expected at most the %" PRIu32
                       " of the source and the %" PRIu32 " of the destination's context",
                       positions, src->position, dst->context);
    dst->prompt_size = 0;
    md_engine *engine = dst->model->engine;
    if (dst->quantized || src->quantized) { // a cache takes no entries of another form, and may not end up half changed
        md_kv *kv;
        MD_TRY(engine->ops->kv_open(engine, dst->context, &kv, err));
        md_status status = engine->ops->kv_copy(engine, kv, src->kv, positions, err);
        if (status != MD_OK) {
            engine->ops->kv_close(engine, kv);
            return status;
        }
        replace_kv(dst, kv);
    } else {
        dst->position = 0;
        MD_TRY(engine->ops->kv_copy(engine, dst->kv, src->kv, positions, err));
    }
    dst->has_logits = false;
    memcpy(dst->tokens, src->tokens, positions * sizeof *dst->tokens);
    dst->position = positions;
    dst->quantized = src->quantized;
    dst->quantized_at = min_u32(src->quantized_at, positions);
    if (positions == src->position && src->has_logits) {
        memcpy(dst->logits, src->logits, dst->model->info.vocab * sizeof *dst->logits);
        dst->has_logits = true;
    }
    return MD_OK;
}

md_status md_session_quantize(md_session *session, md_error *err) {
    if (!session->format || session->quantized) return MD_OK;
    md_engine *engine = session->model->engine;
    MD_TRY(engine->ops->kv_quantize(engine, session->kv, session->format, session->position, err));
    session->quantized = true;
    session->quantized_at = session->position;
    return MD_OK;
}

md_status md_session_skip(md_session *session, uint32_t n, md_error *err) {
    MD_TRY(md_session_check(session, NULL, 0, err));
    if (n > session->context - session->position)
        return md_fail(err, MD_E_CONTEXT, "skip: %" PRIu32 " positions after %" PRIu32 " pass the context of %" PRIu32,
                       n, session->position, session->context);
    memset(session->tokens + session->position, 0, n * sizeof *session->tokens);
    session->position += n;
    session->has_logits = false;
    session->prompt_size = 0;
    return MD_OK;
}
