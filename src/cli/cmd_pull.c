// `megadecode pull`: downloads a model into the hub cache, where -m ORG/NAME finds it.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/hub_pull.h"
#include "cli/output.h"
#include "cli/pull_offer.h"
#include "cli/term.h"

typedef struct pull_args {
    const char *revision;
    md_opt_count jobs;
    bool json;
} pull_args;

#define AT(member) offsetof(pull_args, member)
static const md_option pull_options[] = {
    {'r', "revision", "REVISION", MD_OPT_TEXT, AT(revision), 0, 0, "a branch, a tag or a commit (default: main)"},
    {'j', "jobs", "N", MD_OPT_COUNT, AT(jobs), 1, MD_HUB_PARALLEL_MAX, "files downloaded at once (default: 4)"},
    {0, "json", NULL, MD_OPT_FLAG, AT(json), 0, 0, "print one JSON object instead of the folder"},
};
#undef AT

static const md_option_group pull_groups[] = {
    {"Pull", pull_options, sizeof pull_options / sizeof *pull_options, 0},
};

static const char *origin_of(const md_hub_file *file) {
    if (file->resumed) return "resumed";
    return file->cached && file->received == 0 ? "cached" : "downloaded";
}

static bool print_json(const char *repo, const char *revision, const md_hub_snapshot *snapshot) {
    json_t *files = json_array();
    for (size_t i = 0; i < snapshot->count; i++) {
        const md_hub_file *file = &snapshot->files[i];
        json_array_append_new(files, json_pack("{s:s,s:I,s:s,s:s}", "name", file->name, "bytes", (json_int_t)file->size,
                                               "hash", file->etag, "state", origin_of(file)));
    }
    return md_out_json(json_pack("{s:s,s:s,s:s,s:o,s:I,s:I,s:f,s:o}", "repo", repo, "revision", revision, "commit",
                                 snapshot->commit, "dir", md_json_text(snapshot->dir), "bytes",
                                 (json_int_t)snapshot->bytes, "received_bytes", (json_int_t)snapshot->received,
                                 "seconds", snapshot->seconds, "files", files));
}

// The folder on stdout, for scripts; what was done on stderr.
static bool print_text(const char *repo, const md_hub_snapshot *snapshot) {
    if (snapshot->received == 0)
        fprintf(stderr, "%s: all %zu files were here already (%.1f MB)\n", repo, snapshot->count,
                (double)snapshot->bytes * 1e-6);
    else
        fprintf(stderr, "%s: %zu files, %.1f MB (%.1f MB downloaded in %.1f s)\n", repo, snapshot->count,
                (double)snapshot->bytes * 1e-6, (double)snapshot->received * 1e-6, snapshot->seconds);
    return md_out_write(snapshot->dir, strlen(snapshot->dir)) && md_out_write("\n", 1);
}

static int run(const void *user, int words, char **word) {
    (void)words;
    const pull_args *args = user;
    md_pull_display d = {0};
    const md_hub_request request = {.repo = word[0],
                                    .revision = args->revision,
                                    .parallel = (unsigned)args->jobs.value,
                                    .cancelled = md_interrupted,
                                    .progress = md_term_stderr() ? md_pull_display_draw : NULL,
                                    .user = &d};
    md_hub_snapshot snapshot;
    md_error err = {0};
    md_status status = md_hub_pull(&request, &snapshot, &err);
    md_progress_clear(&d.bar);
    if (status != MD_OK) return md_out_error("pull", args->json, &err);
    bool written = args->json ? print_json(word[0], args->revision ? args->revision : "main", &snapshot)
                              : print_text(word[0], &snapshot);
    md_hub_snapshot_free(&snapshot);
    return written ? MD_EXIT_DONE : MD_EXIT_FAILED;
}

const md_command md_cmd_pull = {
    .name = "pull",
    .summary = "download a model from the hub into its local cache",
    .usage = "ORG/NAME",
    .details = "The files go where other programs look for them too: HF_HUB_CACHE, HF_HOME/hub or\n"
               "~/.cache/huggingface/hub; afterwards -m ORG/NAME finds the model. A download that was cut is gone on\n"
               "with. The token is read from HF_TOKEN or from the file HF_TOKEN_PATH or HF_HOME/token, the hub's\n"
               "address from HF_ENDPOINT.",
    .groups = pull_groups,
    .group_count = sizeof pull_groups / sizeof *pull_groups,
    .args_size = sizeof(pull_args),
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
