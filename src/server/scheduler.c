#include "server/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/clock.h"
#include "server/slots.h"

struct md_scheduler {
    const md_server_options *options;
    md_metrics *metrics;
    pthread_t thread;
    md_served *served; // written before state becomes READY

    pthread_mutex_t mutex; // guards what follows
    pthread_cond_t work;   // for the thread: a job came, or a stop
    pthread_cond_t idle;   // for drain: the last job ended; also: loading ended
    md_job *first, *last;  // the queue
    uint32_t queued, running;
    bool stopping;
    double mean_ms; // of a request, a moving average
    md_server_state state;

    _Atomic(double) loaded;
    atomic_bool give_up; // loading
    md_status load_status;
    md_error load_error;
};

// ---- the queue -------------------------------------------------------------------------------------------------

static void end_queued(md_job *job, md_status status, const char *why) {
    md_job_end end = {.status = status, .overloaded = true};
    md_fail(&end.error, status, "%s", why);
    md_job_finish(job, &end);
    md_job_group_unref(job->group);
}

static void show_counts(md_scheduler *s) {
    md_gauge(&s->metrics->queued, s->queued);
    md_gauge(&s->metrics->running, s->running);
}

// Takes the jobs out of the queue that nobody waits for any more or that waited too long.
static void drop_queued(md_scheduler *s) {
    uint64_t now = md_clock_ms();
    md_job **link = &s->first;
    s->last = NULL;
    while (*link) {
        md_job *job = *link;
        bool gone = md_job_is_cancelled(job), late = job->deadline_ms && now >= job->deadline_ms;
        if (!gone && !late && !s->stopping) {
            s->last = job;
            link = &job->next;
            continue;
        }
        *link = job->next;
        s->queued--;
        if (gone) md_count(&s->metrics->cancelled, 1);
        end_queued(job, gone ? MD_E_CANCELLED : MD_E_TIMEOUT,
                   s->stopping ? "the server is shutting down" : "the request waited too long for a place");
    }
}

static md_job *pop(md_scheduler *s) {
    md_job *job = s->first;
    s->first = job->next;
    if (!s->first) s->last = NULL;
    s->queued--;
    job->next = NULL;
    return job;
}

// Moves jobs from the queue to free slots; waits while there is nothing to do. False when it is time to end.
static bool take_jobs(md_scheduler *s, md_slots *slots) {
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        drop_queued(s);
        s->running = md_slots_used(slots);
        if (s->stopping) break;
        while (s->first && md_slots_admit(slots, s->first)) {
            pop(s);
            s->running = md_slots_used(slots);
        }
        show_counts(s);
        if (s->running) break;
        if (!s->first) pthread_cond_broadcast(&s->idle);
        pthread_cond_wait(&s->work, &s->mutex);
    }
    show_counts(s);
    bool go_on = !s->stopping;
    s->mean_ms = md_slots_mean_ms(slots);
    pthread_mutex_unlock(&s->mutex);
    return go_on;
}

// ---- the thread ------------------------------------------------------------------------------------------------

static void set_state(md_scheduler *s, md_server_state state) {
    pthread_mutex_lock(&s->mutex);
    if (s->state == MD_SERVER_LOADING || state == MD_SERVER_FAILED) s->state = state;
    pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->mutex);
}

static void *run(void *user) {
    md_scheduler *s = user;
    md_served *served;
    s->load_status = md_served_open(s->options, &s->loaded, &s->give_up, &served, &s->load_error);
    if (s->load_status != MD_OK) {
        set_state(s, MD_SERVER_FAILED);
        return NULL;
    }
    md_slots slots;
    md_slots_init(&slots, served, s->options->parallel, s->metrics);
    pthread_mutex_lock(&s->mutex);
    s->served = served;
    pthread_mutex_unlock(&s->mutex);
    set_state(s, MD_SERVER_READY);
    md_log(MD_LOG_INFO, "%s is loaded: %s engine, %s, context %u, %u together", served->id, served->info.engine,
           served->info.device, served->context, s->options->parallel);
    while (take_jobs(s, &slots)) {
        md_slots_drop(&slots);
        md_slots_prefill(&slots);
        md_slots_choose(&slots);
        md_slots_step(&slots);
    }
    md_slots_free(&slots);
    return NULL;
}

md_status md_scheduler_start(const md_server_options *options, md_metrics *metrics, md_scheduler **out, md_error *err) {
    *out = NULL;
    md_scheduler *s = calloc(1, sizeof *s);
    if (!s) return md_fail(err, MD_E_MEMORY, "scheduler: out of memory");
    s->options = options;
    s->metrics = metrics;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->work, &monotonic);
    pthread_cond_init(&s->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int failed = pthread_create(&s->thread, NULL, run, s);
    if (failed) {
        free(s);
        return md_fail(err, MD_E_IO, "scheduler: the system gives no thread: %s", strerror(failed));
    }
    *out = s;
    return MD_OK;
}

// ---- from other threads ----------------------------------------------------------------------------------------

md_server_state md_scheduler_state(md_scheduler *scheduler) {
    pthread_mutex_lock(&scheduler->mutex);
    md_server_state state = scheduler->state;
    pthread_mutex_unlock(&scheduler->mutex);
    return state;
}

double md_scheduler_loaded(md_scheduler *scheduler) {
    return atomic_load_explicit(&scheduler->loaded, memory_order_relaxed); // only shown
}

const md_served *md_scheduler_served(md_scheduler *scheduler) {
    pthread_mutex_lock(&scheduler->mutex);
    const md_served *served = scheduler->served;
    pthread_mutex_unlock(&scheduler->mutex);
    return served;
}

static md_submit room(const md_scheduler *s, uint32_t jobs) {
    if (s->stopping || s->state != MD_SERVER_READY) return MD_SUBMIT_DRAINING;
    uint32_t free_slots = s->options->parallel - s->running; // running counts the slots in use
    return s->queued + jobs > s->options->queue + free_slots ? MD_SUBMIT_FULL : MD_SUBMIT_OK;
}

md_submit md_scheduler_has_room(md_scheduler *scheduler) {
    pthread_mutex_lock(&scheduler->mutex);
    md_submit result = room(scheduler, 1);
    pthread_mutex_unlock(&scheduler->mutex);
    return result;
}

static void enqueue(md_scheduler *s, md_job *job, uint64_t now) {
    job->submitted_ms = now;
    if (s->options->request_seconds) job->deadline_ms = now + (uint64_t)s->options->request_seconds * 1000;
    md_job_group_ref(job->group);
    job->next = NULL;
    if (s->last)
        s->last->next = job;
    else
        s->first = job;
    s->last = job;
    s->queued++;
}

md_submit md_scheduler_submit(md_scheduler *scheduler, md_job_group *group) {
    md_scheduler *s = scheduler;
    pthread_mutex_lock(&s->mutex);
    md_submit result = room(s, group->count);
    if (result == MD_SUBMIT_OK) {
        uint64_t now = md_clock_ms();
        for (uint32_t i = 0; i < group->count; i++) enqueue(s, &group->jobs[i], now);
        show_counts(s);
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->mutex);
    return result;
}

unsigned md_scheduler_retry_after(md_scheduler *scheduler) {
    md_scheduler *s = scheduler;
    pthread_mutex_lock(&s->mutex);
    double seconds = s->mean_ms / 1000 * (s->queued + 1) / s->options->parallel;
    pthread_mutex_unlock(&s->mutex);
    return seconds < 1 ? 1 : seconds > 60 ? 60 : (unsigned)(seconds + 0.5);
}

bool md_scheduler_drain(md_scheduler *scheduler, uint64_t ms) {
    md_scheduler *s = scheduler;
    struct timespec until = md_ms_from_now(ms);
    pthread_mutex_lock(&s->mutex);
    if (s->state == MD_SERVER_LOADING) atomic_store_explicit(&s->give_up, true, memory_order_relaxed);
    while (s->state == MD_SERVER_LOADING && pthread_cond_timedwait(&s->idle, &s->mutex, &until) == 0) {
    }
    if (s->state == MD_SERVER_READY) s->state = MD_SERVER_DRAINING;
    bool late = false;
    while (!late && (s->queued || s->running)) late = pthread_cond_timedwait(&s->idle, &s->mutex, &until) != 0;
    pthread_mutex_unlock(&s->mutex);
    return !late;
}

void md_scheduler_end(md_scheduler *scheduler) {
    md_scheduler *s = scheduler;
    pthread_mutex_lock(&s->mutex);
    s->stopping = true;
    atomic_store_explicit(&s->give_up, true, memory_order_relaxed);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
}

md_status md_scheduler_free(md_scheduler *scheduler, md_error *err) {
    md_scheduler *s = scheduler;
    md_status status = s->load_status;
    if (status != MD_OK && err) *err = s->load_error;
    md_served_close(s->served);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->idle);
    free(s);
    return status;
}
