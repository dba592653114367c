#include "cli/pull_offer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hubdir.h"

// "  264 of  612 MB,  11.2 MB/s,  0:31 left": of one width, so that the bar behind it stands still.
void md_pull_display_draw(void *display, const md_hub_progress *now) {
    md_pull_display *d = display;
    double rate = now->seconds > 0.5 ? (double)now->received / now->seconds : 0;
    int n = snprintf(d->label, sizeof d->label, "%5.0f of %.0f MB, %6.1f MB/s", (double)now->done * 1e-6,
                     (double)now->total * 1e-6, rate * 1e-6);
    double left = rate > 0 ? (double)(now->total - now->done) / rate : 0;
    if (rate > 0 && left < 360000.0)
        snprintf(d->label + n, sizeof d->label - (size_t)n, ", %3d:%02d left", (int)left / 60, (int)left % 60);
    else
        snprintf(d->label + n, sizeof d->label - (size_t)n, "%13s", "");
    d->bar.label = d->label;
    md_progress_draw(&d->bar, now->total ? (double)now->done / (double)now->total : 1);
}

// ---- the question ------------------------------------------------------------------------------------------------

// A line from the terminal without its end; false: the end of the input, or a signal. Byte by byte, since what follows
// belongs to others. A line longer than `out` is cut.
static bool read_line(char *out, size_t size) {
    size_t n = 0;
    for (;;) {
        char c;
        if (md_interrupted() || read(STDIN_FILENO, &c, 1) != 1) return false;
        if (c == '\n') break;
        if (n + 1 < size) out[n++] = c;
    }
    out[n] = 0;
    return true;
}

static bool ask(size_t files, uint64_t bytes) {
    char answer[16];
    double mb = (double)bytes * 1e-6;
    for (;;) {
        fprintf(stderr, mb < 1000 ? "download %zu file%s, %.1f MB? [Y/n] " : "download %zu file%s, %.2f GB? [Y/n] ",
                files, files == 1 ? "" : "s", mb < 1000 ? mb : mb * 1e-3);
        fflush(stderr);
        if (!read_line(answer, sizeof answer)) {
            fputc('\n', stderr);
            return false;
        }
        if (strcmp(answer, "") == 0 || strcmp(answer, "y") == 0 || strcmp(answer, "Y") == 0 ||
            strcmp(answer, "yes") == 0)
            return true;
        if (strcmp(answer, "n") == 0 || strcmp(answer, "N") == 0 || strcmp(answer, "no") == 0) return false;
    }
}

static bool confirm(void *user, size_t files, uint64_t bytes) {
    (void)user;
    return ask(files, bytes);
}

// ---- the offer ---------------------------------------------------------------------------------------------------

static bool is_missing(const char *name) {
    char *dir = NULL;
    bool missing = md_hub_is_repo_id(name) && md_model_dir(name, &dir, NULL) == MD_E_NOT_FOUND;
    md_free(dir);
    return missing;
}

static md_status pull(const char *repo, md_error *err) {
    md_pull_display d = {0};
    const md_hub_request request = {
        .repo = repo, .cancelled = md_interrupted, .confirm = confirm, .progress = md_pull_display_draw, .user = &d};
    md_hub_snapshot snapshot;
    fprintf(stderr, "%s is not on this machine yet; looking for it on the hub.\n", repo);
    md_status status = md_hub_pull(&request, &snapshot, err);
    md_progress_clear(&d.bar);
    if (status == MD_E_CANCELLED)
        return md_fail(err, status, "%s: not downloaded; 'megadecode pull %s' does it too", repo, repo);
    if (status == MD_OK) md_hub_snapshot_free(&snapshot);
    return status;
}

md_status md_pull_offer(const md_model_args *model, bool may_ask, md_error *err) {
    char *name = NULL;
    if (!may_ask || !isatty(STDIN_FILENO) || !md_term_stderr() || md_hub_offline()) return MD_OK;
    if (md_find_model(model->model, &name, NULL) != MD_OK) return MD_OK;
    md_status status = is_missing(name) ? pull(name, err) : MD_OK;
    free(name);
    return status;
}
