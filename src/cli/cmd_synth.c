// `megadecode synth`: a snapshot with random weights of a config's shapes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/term.h"
#include "megadecode.h"

enum { CONFIG_BYTES_MAX = 1 << 24 };

typedef struct synth_args {
    const char *config, *out;
    md_opt_count seed, bits;
    bool json;
} synth_args;

#define AT(member) offsetof(synth_args, member)
static const md_option synth_options[] = {
    {0, "config", "CONFIG.json", MD_OPT_TEXT, AT(config), 0, 0, "the model's config.json; required"},
    {'o', "output", "DIR", MD_OPT_TEXT, AT(out), 0, 0, "the folder to make; required, must not exist or be empty"},
    {0, "seed", "N", MD_OPT_COUNT, AT(seed), 0, 0, "of the random weights (default 0)"},
    {0, "bits", "N", MD_OPT_COUNT, AT(bits), 2, 8,
     "bits of every quantized matrix, 4 or 8 for example, over the config's"},
    {0, "json", NULL, MD_OPT_FLAG, AT(json), 0, 0, "print {\"dir\", \"seconds\"}"},
};
#undef AT

static const md_option_group synth_groups[] = {
    {"Synth", synth_options, sizeof synth_options / sizeof *synth_options, 0},
};

// The tokenizer that stands beside the config is taken along: one that is broken, or of another vocabulary, is said
// before gigabytes are written for it. What the config itself may be wrong in is md_synth_write's to say.
static md_status check_tokenizer(const char *config_path, md_error *err) {
    const char *slash = strrchr(config_path, '/');
    size_t n = slash ? (size_t)(slash - config_path) : 0;
    char *dir = slash ? strndup(config_path, n ? n : 1) : strdup("."), *path = NULL;
    json_t *config = NULL;
    md_tokenizer *tokenizer = NULL;
    md_status status = MD_OK;
    int64_t vocab = 0;
    if (dir) path = md_path_join(dir, "tokenizer.json");
    if (!path) {
        status = md_fail(err, MD_E_MEMORY, "out of memory");
        goto fail;
    }
    if (md_path_absent(path)) goto fail;
    MD_TRY_GOTO(md_json_read_file(config_path, CONFIG_BYTES_MAX, &config, err));
    MD_TRY_GOTO(md_tokenizer_open(dir, &tokenizer, err));
    if (md_json_get_int(config, "vocab_size", 1, UINT32_MAX, &vocab, config_path, NULL) == MD_OK && vocab)
        status = md_tokenizer_check(tokenizer, (uint32_t)vocab, err);
    if (status != MD_OK) status = md_fail_context(err, status, "%s", dir);
fail:
    md_tokenizer_close(tokenizer);
    json_decref(config);
    free(path);
    free(dir);
    return status;
}

static int synth(const void *arguments, int words, char **word) {
    (void)words, (void)word;
    const synth_args *args = arguments;
    md_error err = {0};
    if (!args->config || !args->out) {
        md_fail(&err, MD_E_USAGE, "%s is missing", args->config ? "-o DIR" : "--config CONFIG.json");
        return md_out_error("synth", args->json, &err);
    }
    md_progress progress = {.label = "writing"};
    const md_synth_options options = {.seed = args->seed.value,
                                      .bits = (uint32_t)args->bits.value,
                                      .progress = md_progress_loading,
                                      .progress_user = &progress};
    double begin = md_clock_seconds();
    md_status status = check_tokenizer(args->config, &err);
    if (status == MD_OK) status = md_synth_write(args->config, args->out, &options, &err);
    double seconds = md_clock_seconds() - begin;
    md_progress_clear(&progress);
    if (status != MD_OK) return md_out_error("synth", args->json, &err);
    if (args->json)
        md_out_json(json_pack("{s:o,s:f}", "dir", md_json_text(args->out), "seconds", seconds));
    else
        fprintf(stderr, "%s: written in %.1f s\n", args->out, seconds);
    return MD_EXIT_DONE;
}

const md_command md_cmd_synth = {
    .name = "synth",
    .summary = "write a snapshot with random weights of a config's shapes",
    .usage = "",
    .details = "For measuring speed where a model's weights are not at hand. The same seed gives the same bytes.\n"
               "generation_config.json, kv_config.json, tokenizer.json and what belongs to it are taken along from\n"
               "beside the config; without a tokenizer.json one is made up: a token a byte.",
    .groups = synth_groups,
    .group_count = sizeof synth_groups / sizeof *synth_groups,
    .args_size = sizeof(synth_args),
    .run = synth,
};
