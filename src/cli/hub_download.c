#include "cli/hub_download.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/hub_blob.h"

enum { MAX_URL_BYTES = 2048, POLL_MS = 100, HASH_TRIES = 2, PROGRESS_BYTES = 1 << 16 };

typedef enum job_state { JOB_WAITING, JOB_ACTIVE, JOB_DONE } job_state;

typedef struct job {
    md_hub_file *file;
    job_state state;
    bool begun; // blob is open
    md_hub_blob blob;
    CURL *curl; // while active; owned
    md_hub_reply reply;
    uint64_t start; // blob.have when the transfer began
    bool answered;  // its first byte has come and the answer was checked
    uint64_t best;  // the most bytes that were ever there
    int tries;      // transfers in a row that did not get PROGRESS_BYTES further than that
    int wrong_hashes;
    double not_before; // md_clock_seconds() of the next try
    md_error failure;  // of the write callback
} job;

typedef struct download {
    const md_hub_downloads *what;
    job *jobs;
    size_t count;
    CURLM *multi;
} download;

// ---- one transfer ------------------------------------------------------------------------------------------------

// The first bytes of an answer have come: is it the part that was asked for?
static md_status check_answer(job *j, md_error *err) {
    long status = 0;
    curl_off_t length = -1;
    curl_easy_getinfo(j->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(j->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (status == 206) {
        char expected[64];
        snprintf(expected, sizeof expected, "bytes %" PRIu64 "-", j->start);
        if (j->start == 0 || strncmp(j->reply.content_range, expected, strlen(expected)) != 0)
            return md_fail(err, MD_E_FORMAT, "%s: the server sends the part \"%s\", expected %s", j->file->name,
                           j->reply.content_range, expected);
    } else if (j->start > 0) { // all of it, though a part was asked for
        MD_TRY(md_hub_blob_restart(&j->blob, err));
        j->start = 0;
        j->file->resumed = 0;
    }
    if (length >= 0 && (uint64_t)length != j->file->size - j->start)
        return md_fail(err, MD_E_FORMAT, "%s: the server sends %" PRId64 " bytes, expected %" PRIu64, j->file->name,
                       (int64_t)length, j->file->size - j->start);
    return MD_OK;
}

static size_t on_bytes(char *bytes, size_t size, size_t count, void *user) {
    job *j = user;
    size_t n = size * count;
    if (!j->answered) {
        if (check_answer(j, &j->failure) != MD_OK) return 0;
        j->answered = true;
    }
    if (md_hub_blob_add(&j->blob, bytes, n, &j->failure) != MD_OK) return 0;
    j->file->received += n;
    return n;
}

static md_status start_transfer(download *d, job *j, md_error *err) {
    const md_hub_http *http = d->what->http;
    char url[MAX_URL_BYTES], range[32];
    int n =
        snprintf(url, sizeof url, "%s/%s/resolve/%s/%s", http->endpoint, http->repo, d->what->commit, j->file->name);
    if (n < 0 || n >= (int)sizeof url)
        return md_fail(err, MD_E_USAGE, "%s: a URL of over %d bytes", j->file->name, MAX_URL_BYTES);
    j->curl = curl_easy_init();
    if (!j->curl) return md_fail(err, MD_E_MEMORY, "%s: out of memory", j->file->name);
    MD_TRY(md_hub_http_prepare(http, j->curl, url, &j->reply, err));
    j->answered = false;
    j->start = j->blob.have;
    if (j->start > 0) {
        snprintf(range, sizeof range, "%" PRIu64 "-", j->start);
        curl_easy_setopt(j->curl, CURLOPT_RANGE, range);
    }
    curl_easy_setopt(j->curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(j->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(j->curl, CURLOPT_WRITEDATA, j);
    curl_easy_setopt(j->curl, CURLOPT_PRIVATE, j);
    if (curl_multi_add_handle(d->multi, j->curl) != CURLM_OK)
        return md_fail(err, MD_E_MEMORY, "%s: the transfer cannot be started", j->file->name);
    j->state = JOB_ACTIVE;
    return MD_OK;
}

static void end_transfer(download *d, job *j) {
    if (!j->curl) return;
    curl_multi_remove_handle(d->multi, j->curl);
    curl_easy_cleanup(j->curl);
    j->curl = NULL;
    j->state = JOB_WAITING;
}

// ---- a job's life ------------------------------------------------------------------------------------------------

static void finish_job(job *j) {
    md_hub_blob_close(&j->blob);
    j->begun = false;
    j->state = JOB_DONE;
}

// All bytes are there. Wrong ones may be an earlier download's: they are fetched once more before that is an error.
static md_status check_job(job *j, md_error *err) {
    md_error wrong = {0};
    md_status status = md_hub_blob_finish(&j->blob, &wrong);
    if (status == MD_OK) {
        finish_job(j);
        return MD_OK;
    }
    if (status == MD_E_FORMAT && ++j->wrong_hashes < HASH_TRIES) {
        j->file->resumed = 0;
        return MD_OK;
    }
    return md_fail(err, status, "%s", wrong.message);
}

// Opens the blob, or starts its transfer where it is open.
static md_status start_job(download *d, job *j, md_error *err) {
    if (!j->begun) {
        bool complete = false;
        MD_TRY(
            md_hub_blob_begin(&j->blob, d->what->cache, j->file->name, j->file->etag, j->file->size, &complete, err));
        j->begun = true;
        j->file->cached = complete;
        j->file->resumed = complete ? 0 : j->blob.have;
        j->best = j->file->resumed;
        if (complete) {
            finish_job(j);
            return MD_OK;
        }
    }
    if (j->blob.have == j->blob.size) return check_job(j, err);
    return start_transfer(d, j, err);
}

// A transfer has ended: done, or to be tried again, or the end of everything.
static md_status transfer_ended(download *d, job *j, CURLcode code, md_error *err) {
    const md_hub_http *http = d->what->http;
    md_status status = MD_OK;
    long http_status = 0;
    curl_easy_getinfo(j->curl, CURLINFO_RESPONSE_CODE, &http_status);
    if (j->failure.code != MD_OK) {
        status = md_fail(err, j->failure.code, "%s: %s", http->repo, j->failure.message);
        goto fail;
    }
    if (j->blob.have == j->blob.size && http_status < 400) {
        end_transfer(d, j);
        return check_job(j, err);
    }
    if (j->blob.have >= j->best + PROGRESS_BYTES) {
        j->best = j->blob.have;
        j->tries = 0;
    } else {
        j->tries++;
    }
    double delay = md_hub_delay(j->curl, j->tries);
    bool stale = http_status == 416 && j->start > 0; // the server has no such part: begin anew
    bool again = code == CURLE_OK || stale || md_hub_may_pass(code, http_status);
    if (!again || j->tries >= MD_HUB_TRIES || delay > MD_HUB_PATIENCE_S) {
        status = md_hub_http_fail(http, j->file->name, j->curl, code == CURLE_OK ? CURLE_PARTIAL_FILE : code, &j->reply,
                                  err);
        goto fail;
    }
    if (stale) MD_TRY_GOTO(md_hub_blob_restart(&j->blob, err));
    j->not_before = md_clock_seconds() + delay;
fail:
    end_transfer(d, j);
    return status;
}

// ---- all of them -------------------------------------------------------------------------------------------------

// Another job fetches the same bytes under another name: wait for its blob.
static bool has_twin_before(const download *d, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (d->jobs[i].state != JOB_DONE && strcmp(d->jobs[i].file->etag, d->jobs[index].file->etag) == 0) return true;
    return false;
}

static md_status start_jobs(download *d, size_t *left, md_error *err) {
    size_t active = 0;
    *left = 0;
    for (size_t i = 0; i < d->count; i++) active += d->jobs[i].state == JOB_ACTIVE;
    for (size_t i = 0; i < d->count; i++) {
        job *j = &d->jobs[i];
        if (j->state == JOB_WAITING && active < d->what->parallel && md_clock_seconds() >= j->not_before &&
            !has_twin_before(d, i)) {
            MD_TRY(start_job(d, j, err));
            active += j->state == JOB_ACTIVE;
        }
        *left += j->state != JOB_DONE;
    }
    return MD_OK;
}

static md_status collect_ended(download *d, md_error *err) {
    int queued;
    const CURLMsg *message;
    while ((message = curl_multi_info_read(d->multi, &queued))) {
        if (message->msg != CURLMSG_DONE) continue;
        char *owner = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &owner);
        MD_TRY(transfer_ended(d, (job *)(void *)owner, message->data.result, err));
    }
    return MD_OK;
}

static void report(const download *d, double began) {
    if (!d->what->progress) return;
    md_hub_progress now = {.seconds = md_clock_seconds() - began};
    for (size_t i = 0; i < d->count; i++) {
        const job *j = &d->jobs[i];
        now.total += j->file->size;
        now.done += j->state == JOB_DONE ? j->file->size : j->begun ? j->blob.have : 0;
        now.received += j->file->received;
    }
    d->what->progress(d->what->user, &now);
}

static md_status run(download *d, md_error *err) {
    const md_hub_http *http = d->what->http;
    double began = md_clock_seconds();
    for (;;) {
        size_t left;
        int running;
        MD_TRY(start_jobs(d, &left, err));
        report(d, began);
        if (left == 0) return MD_OK;
        if (http->cancelled && http->cancelled())
            return md_fail(err, MD_E_CANCELLED, "%s: interrupted; the next pull goes on from here", http->repo);
        if (curl_multi_perform(d->multi, &running) != CURLM_OK ||
            curl_multi_poll(d->multi, NULL, 0, running ? POLL_MS : POLL_MS / 5, NULL) != CURLM_OK)
            return md_fail(err, MD_E_IO, "%s: the transfers cannot go on", http->repo);
        MD_TRY(collect_ended(d, err));
    }
}

md_status md_hub_download(const md_hub_downloads *what, md_hub_file *files, size_t count, md_error *err) {
    download d = {.what = what, .count = count, .jobs = calloc(count ? count : 1, sizeof(job))};
    d.multi = curl_multi_init();
    md_status status = MD_OK;
    if (!d.jobs || !d.multi) {
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory for the download", what->http->repo);
        goto fail;
    }
    for (size_t i = 0; i < count; i++) d.jobs[i] = (job){.file = &files[i], .blob = {.fd = -1, .lock = -1}};
    status = run(&d, err);
fail:
    for (size_t i = 0; d.jobs && i < count; i++) {
        end_transfer(&d, &d.jobs[i]);
        if (d.jobs[i].begun) md_hub_blob_close(&d.jobs[i].blob);
    }
    free(d.jobs);
    curl_multi_cleanup(d.multi);
    return status;
}
