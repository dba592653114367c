#include "cli/output.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/option.h"

static bool closed; // stdout's reader has gone
static bool lost;   // JSON that was not written, and said to be
static bool said;   // that writing failed, and why
static int reason;  // errno of the first write that failed

static bool flush_failed(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return false;
    if (errno == EPIPE) closed = true;
    if (!reason) reason = errno;
    return true;
}

bool md_out_write(const char *bytes, size_t n) {
    errno = 0;
    if (fwrite(bytes, 1, n, stdout) != n && errno) {
        if (errno == EPIPE) closed = true;
        if (!reason) reason = errno;
    }
    return !flush_failed();
}

json_t *md_out_number(double number) { return isfinite(number) ? json_real(number) : json_null(); }

bool md_out_json(json_t *object) {
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    json_decref(object);
    if (!text || md_json_losses()) { // a command builds one object, and some of it may be missing
        free(text);
        fputs("megadecode: out of memory for the JSON output\n", stderr);
        lost = true;
        return false;
    }
    bool written = md_out_write(text, strlen(text)) && md_out_write("\n", 1);
    free(text);
    return written;
}

md_status md_out_form(const char *output, bool json, const char *const *names, int count, int *form, md_error *err) {
    char expected[80] = "";
    const char *text = output ? output : json ? "json" : names[0];
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s%s",
                 i == 0          ? ""
                 : i + 1 < count ? ", "
                                 : " or ",
                 names[i]);
    }
    for (*form = 0; *form < count; ++*form) {
        if (strcmp(text, names[*form]) != 0) continue;
        if (!json || strcmp(text, "json") == 0) return MD_OK;
        return md_fail(err, MD_E_USAGE, "--output %s and --json exclude each other", text);
    }
    return md_fail(err, MD_E_USAGE, "--output: found \"%s\", expected %s", text, expected);
}

int md_out_finish(int status) {
    errno = 0;
    bool failed = flush_failed();
    if (status == MD_EXIT_DONE && (lost || md_json_losses())) { // what was written may have parts missing
        if (!lost) fputs("megadecode: out of memory for JSON\n", stderr);
        status = MD_EXIT_FAILED;
    }
    if (closed || !failed) return status;
    if (!said)
        fprintf(stderr, "megadecode: writing to standard output failed%s%s\n", reason ? ": " : "",
                reason ? strerror(reason) : "");
    said = true;
    return status == MD_EXIT_DONE ? MD_EXIT_FAILED : status;
}

int md_out_error(const char *command, bool json, const md_error *error) {
    fprintf(stderr, "megadecode %s: %s\n", command, error->message);
    if (json)
        md_out_json(json_pack("{s:{s:s,s:o}}", "error", "status", md_status_name(error->code), "message",
                              md_json_text(error->message)));
    return error->code == MD_E_USAGE ? MD_EXIT_USAGE : MD_EXIT_FAILED;
}
