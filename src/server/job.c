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

md_job_group *md_job_group_new(uint32_t count) {
    md_job_group *group = calloc(1, sizeof *group + count * sizeof *group->jobs);
    if (!group) return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&group->mutex, NULL);
    pthread_cond_init(&group->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    atomic_init(&group->cancelled, false);
    atomic_init(&group->refs, 1);
    group->count = count;
    for (uint32_t i = 0; i < count; i++) {
        group->jobs[i].group = group;
        md_delivery_init(&group->jobs[i].mail);
    }
    return group;
}

md_job_group *md_job_group_ref(md_job_group *group) {
    atomic_fetch_add_explicit(&group->refs, 1, memory_order_relaxed); // the caller's own reference keeps it alive
    return group;
}

void md_job_group_unref(md_job_group *group) {
    if (!group) return;
    // Release: what this side wrote happens before the free. Acquire: the last side sees all of it.
    if (atomic_fetch_sub_explicit(&group->refs, 1, memory_order_acq_rel) > 1) return;
    for (uint32_t i = 0; i < group->count; i++) {
        md_delivery_free(&group->jobs[i].mail);
        md_constraint_free(group->jobs[i].constraint);
        free(group->jobs[i].prompt);
    }
    for (size_t i = 0; i < group->stop_count; i++) free(group->stop[i]);
    free(group->stop);
    free(group->bias);
    pthread_mutex_destroy(&group->mutex);
    pthread_cond_destroy(&group->changed);
    free(group);
}

void md_job_group_cancel(md_job_group *group) {
    pthread_mutex_lock(&group->mutex);
    atomic_store_explicit(&group->cancelled, true, memory_order_relaxed); // a flag alone; the mutex orders the rest
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->mutex);
}

static bool is_cancelled(const md_job_group *group) {
    return atomic_load_explicit(&group->cancelled, memory_order_relaxed); // a hint that is looked at again and again
}

bool md_job_is_cancelled(const md_job *job) { return is_cancelled(job->group); }

// ---- the mailbox -----------------------------------------------------------------------------------------------

// The job to take from, beginning with the one whose turn it is; NULL: nothing came.
static md_job *find_mail(md_job_group *group) {
    for (uint32_t i = 0; i < group->count; i++) {
        md_job *job = &group->jobs[(group->turn + i) % group->count];
        if (job->mail.text.size || job->mail.token_count || (job->done && !job->done_taken)) return job;
    }
    return NULL;
}

md_take md_job_group_take(md_job_group *group, uint64_t ms, uint32_t *index, md_delivery *delivery, md_job_end *end) {
    struct timespec until = md_ms_from_now(ms);
    md_delivery_clear(delivery);
    pthread_mutex_lock(&group->mutex);
    md_job *job = NULL;
    while (!(job = find_mail(group)) && !is_cancelled(group))
        if (pthread_cond_timedwait(&group->changed, &group->mutex, &until) != 0) break;
    md_take result = MD_TAKE_NOTHING;
    if (is_cancelled(group)) {
        result = MD_TAKE_CANCELLED;
    } else if (job) {
        *index = (uint32_t)(job - group->jobs);
        group->turn = (*index + 1) % group->count;
        md_delivery empty = *delivery;
        *delivery = job->mail;
        job->mail = empty;
        job->done_taken = job->done;
        if (job->done) *end = job->end;
        result = job->done ? MD_TAKE_DONE : MD_TAKE_SOME;
    }
    pthread_mutex_unlock(&group->mutex);
    return result;
}

md_status md_job_deliver(md_job *job, const md_piece *piece, md_error *err) {
    if (!piece->size && !piece->token_count) return MD_OK;
    pthread_mutex_lock(&job->group->mutex);
    bool kept = md_buf_append(&job->mail.text, piece->text, piece->size) == MD_OK &&
                append_tokens(&job->mail, piece->tokens, piece->token_count);
    pthread_cond_signal(&job->group->changed);
    pthread_mutex_unlock(&job->group->mutex);
    return kept ? MD_OK : md_fail(err, MD_E_MEMORY, "answer: out of memory");
}

void md_job_finish(md_job *job, const md_job_end *end) {
    pthread_mutex_lock(&job->group->mutex);
    job->end = *end;
    job->done = true;
    pthread_cond_broadcast(&job->group->changed);
    pthread_mutex_unlock(&job->group->mutex);
}
