#include "server/job.h"

#include <stdlib.h>
#include <string.h>

#include "server/clock.h"

enum { MAIL_TEXT_MAX = 256 << 20 }; // beyond any answer: a context of tokens of some bytes each

// ---- deliveries ------------------------------------------------------------------------------------------------

void md_delivery_init(md_delivery *delivery) {
    memset(delivery, 0, sizeof *delivery);
    md_buf_init(&delivery->text, MAIL_TEXT_MAX);
}

void md_delivery_free(md_delivery *delivery) {
    md_buf_free(&delivery->text);
    free(delivery->tokens);
    free(delivery->tops);
    md_delivery_init(delivery);
}

void md_delivery_clear(md_delivery *delivery) {
    md_buf_clear(&delivery->text);
    delivery->token_count = delivery->top_count = 0;
}

// Room for n more items of `size` bytes behind *items.
static bool reserve(void **items, size_t count, size_t *cap, size_t n, size_t size) {
    if (n <= *cap - count) return true;
    size_t want = *cap ? *cap : 16;
    while (want - count < n) want *= 2;
    void *grown = realloc(*items, want * size);
    if (!grown) return false;
    *items = grown;
    *cap = want;
    return true;
}

static bool append_tokens(md_delivery *mail, const md_token *tokens, size_t n) {
    size_t tops = 0;
    for (size_t i = 0; i < n; i++) tops += tokens[i].top_count;
    if (!reserve((void **)&mail->tokens, mail->token_count, &mail->token_cap, n, sizeof *mail->tokens)) return false;
    if (!reserve((void **)&mail->tops, mail->top_count, &mail->top_cap, tops, sizeof *mail->tops)) return false;
    for (size_t i = 0; i < n; i++) {
        const md_token *token = &tokens[i];
        mail->tokens[mail->token_count++] = (md_job_token){.id = token->id,
                                                           .hidden = token->hidden,
                                                           .text_offset = token->text_offset,
                                                           .logprob = token->logprob,
                                                           .top_first = (uint32_t)mail->top_count,
                                                           .top_count = token->top_count};
        if (token->top_count) memcpy(mail->tops + mail->top_count, token->top, token->top_count * sizeof *mail->tops);
        mail->top_count += token->top_count;
    }
    return true;
}

// ---- life ------------------------------------------------------------------------------------------------------

md_job *md_job_new(void) {
    md_job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&job->mutex, NULL);
    pthread_cond_init(&job->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    md_delivery_init(&job->mail);
    atomic_init(&job->cancelled, false);
    atomic_init(&job->refs, 1);
    return job;
}

md_job *md_job_ref(md_job *job) {
    atomic_fetch_add_explicit(&job->refs, 1, memory_order_relaxed); // the caller's own reference keeps it alive
    return job;
}

void md_job_unref(md_job *job) {
    // Release: this thread's last writes come before the free. Acquire: whoever frees sees them.
    if (!job || atomic_fetch_sub_explicit(&job->refs, 1, memory_order_acq_rel) != 1) return;
    pthread_mutex_destroy(&job->mutex);
    pthread_cond_destroy(&job->changed);
    md_delivery_free(&job->mail);
    md_constraint_free(job->constraint);
    for (size_t i = 0; i < job->params.stop_count; i++) free(job->stop[i]);
    free(job->stop);
    free(job->bias);
    free(job->prompt);
    free(job);
}

void md_job_cancel(md_job *job) {
    pthread_mutex_lock(&job->mutex);
    atomic_store_explicit(&job->cancelled, true, memory_order_relaxed); // a flag alone; the mutex orders the rest
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->mutex);
}

bool md_job_is_cancelled(const md_job *job) {
    return atomic_load_explicit(&job->cancelled, memory_order_relaxed); // a hint that is looked at again and again
}

// ---- the mailbox -----------------------------------------------------------------------------------------------

static bool has_mail(const md_job *job) { return job->mail.text.size || job->mail.token_count; }

md_take md_job_take(md_job *job, uint64_t ms, md_delivery *delivery, md_job_end *end) {
    struct timespec until = md_ms_from_now(ms);
    md_delivery_clear(delivery);
    pthread_mutex_lock(&job->mutex);
    while (!has_mail(job) && !job->done && !md_job_is_cancelled(job))
        if (pthread_cond_timedwait(&job->changed, &job->mutex, &until) != 0) break;
    md_take result = MD_TAKE_NOTHING;
    if (md_job_is_cancelled(job)) {
        result = MD_TAKE_CANCELLED;
    } else {
        if (has_mail(job)) result = MD_TAKE_SOME;
        md_delivery empty = *delivery;
        *delivery = job->mail;
        job->mail = empty;
        if (job->done) {
            *end = job->end;
            result = MD_TAKE_DONE;
        }
    }
    pthread_mutex_unlock(&job->mutex);
    return result;
}

md_status md_job_deliver(md_job *job, const md_piece *piece, md_error *err) {
    if (!piece->size && !piece->token_count) return MD_OK;
    pthread_mutex_lock(&job->mutex);
    bool kept = md_buf_append(&job->mail.text, piece->text, piece->size) == MD_OK &&
                append_tokens(&job->mail, piece->tokens, piece->token_count);
    pthread_cond_signal(&job->changed);
    pthread_mutex_unlock(&job->mutex);
    return kept ? MD_OK : md_fail(err, MD_E_MEMORY, "answer: out of memory");
}

void md_job_finish(md_job *job, const md_job_end *end) {
    pthread_mutex_lock(&job->mutex);
    job->end = *end;
    job->done = true;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->mutex);
}
