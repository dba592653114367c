// `megadecode bench`: how fast is it here, and how far from what the memory can give?
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/shared.h"

typedef struct bench_args {
    md_model_args model;
    md_engine_args engine;
    md_opt_count prompt, decode, depth, repeats, sweep_depth;
    const char *ab, *kv, *output;
    bool sweep_groups, stages, json;
} bench_args;

enum { DEFAULT_PROMPT = 128, DEFAULT_DECODE = 64, DEFAULT_REPEATS = 5, MAX_TOKENS = 1 << 20, DEPTH_STEPS = 8 };

#define AT(member) offsetof(bench_args, member)
static const md_option bench_options[] = {
    {'p', "prompt-tokens", "N", MD_OPT_COUNT, AT(prompt), 0, MAX_TOKENS, "tokens of the prefill (128; 0: none)"},
    {'n', "decode-tokens", "N", MD_OPT_COUNT, AT(decode), 0, MAX_TOKENS, "tokens of the decode (64; 0: none)"},
    {'d', "depth", "DEPTH", MD_OPT_COUNT, AT(depth), 0, 1 << 24, "positions already in the cache (0)"},
    {'r', "repeats", "N", MD_OPT_COUNT, AT(repeats), 1, MD_BENCH_REPEATS_MAX, "repeats; medians are reported (5)"},
    {0, "ab", "A,B", MD_OPT_TEXT, AT(ab), 0, 0, "two engines in turn, in one process, and the ratio B/A"},
    {0, "sweep-groups", NULL, MD_OPT_FLAG, AT(sweep_groups), 0, 0, "the decode rate by number of workers"},
    {0, "sweep-depth", "DEPTH", MD_OPT_COUNT, AT(sweep_depth), 1, 1 << 24, "the decode rate from depth 0 to DEPTH"},
    {0, "stages", NULL, MD_OPT_FLAG, AT(stages), 0, 0, "where a token's time goes, by kind of stage"},
    {0, "kv", "KV", MD_OPT_TEXT, AT(kv), 0, 0, "the KV cache: none (bf16), snapshot, 8, 4 or a file"},
    {'o', "output", "FORM", MD_OPT_TEXT, AT(output), 0, 0, "md, json, csv or svg, a picture (md)"},
    {0, "json", NULL, MD_OPT_FLAG, AT(json), 0, 0, "the same as -o json"},
};
#undef AT

static const md_option_group bench_groups[] = {
    MD_GROUP_MODEL(bench_args, model),
    MD_GROUP_ENGINE(bench_args, engine),
    {"Bench", bench_options, sizeof bench_options / sizeof *bench_options, 0},
};

enum { FORM_MD, FORM_JSON, FORM_CSV, FORM_SVG, FORM_COUNT };
static const char *const form_names[FORM_COUNT] = {"md", "json", "csv", "svg"};

static uint32_t count_or(md_opt_count count, uint32_t otherwise) {
    return count.given ? (uint32_t)count.value : otherwise;
}

// "ops,resident" into the two engines; `names` keeps their text.
static md_status parse_ab(const char *ab, char *names, size_t size, md_bench_options *options, md_error *err) {
    const char *comma = strchr(ab, ',');
    if (!comma || comma == ab || !comma[1] || strchr(comma + 1, ',') || strlen(ab) >= size)
        return md_fail(err, MD_E_USAGE, "--ab: found \"%s\", expected two engines, as in ops,resident", ab);
    strcpy(names, ab);
    names[comma - ab] = 0;
    options->engine[0] = names;
    options->engine[1] = names + (comma - ab) + 1;
    options->sides = 2;
    return MD_OK;
}

static md_status print_result(int form, const md_bench_options *options, const md_bench_result *result, md_error *err) {
    md_buf picture;
    md_status status = MD_OK;
    switch (form) {
    case FORM_JSON: md_out_json(md_bench_json(options, result)); break;
    case FORM_CSV:
        if (result->stages.account.steps)
            md_bench_print_stages_csv(options, result);
        else
            md_bench_print_csv(options, result);
        break;
    case FORM_SVG:
        status = md_bench_svg(options, result, &picture, err);
        if (status == MD_OK) md_out_write(picture.data, picture.size);
        md_buf_free(&picture);
        break;
    default:
        md_bench_print_table(options, result);
        if (result->stages.account.steps) md_bench_print_stages(options, result);
        break;
    }
    return status;
}

static md_status run_sweeps(const bench_args *args, const md_bench_options *options, md_bench_result *result,
                            md_error *err) {
    uint32_t depth[DEPTH_STEPS + 1], count = 0, most = count_or(args->sweep_depth, 0);
    if (args->sweep_groups)
        MD_TRY(md_bench_by_workers(options, result->side[options->sides - 1].info.workers, &result->by_workers, err));
    if (!args->sweep_depth.given) return MD_OK;
    for (uint32_t i = 0; i <= DEPTH_STEPS; i++) {
        uint32_t next = (uint32_t)((uint64_t)most * i / DEPTH_STEPS);
        if (i == 0 || next != depth[count - 1]) depth[count++] = next;
    }
    return md_bench_by_depth(options, depth, count, &result->by_depth, err);
}

// What can't be asked for together.
static md_status check_args(const bench_args *args, int form, md_error *err) {
    const bool sweep = args->sweep_groups || args->sweep_depth.given, decode = count_or(args->decode, DEFAULT_DECODE);
    if (args->ab && args->engine.engine)
        return md_fail(err, MD_E_USAGE, "--ab and --engine exclude each other: --ab names both engines");
    if (!count_or(args->prompt, DEFAULT_PROMPT) && !decode)
        return md_fail(err, MD_E_USAGE, "-p 0 and -n 0: nothing to measure");
    if (!decode && sweep) return md_fail(err, MD_E_USAGE, "-n 0: a sweep measures the decode rate");
    if (!decode && args->stages) return md_fail(err, MD_E_USAGE, "-n 0: --stages looks at decoded tokens");
    if (args->stages && form == FORM_SVG) return md_fail(err, MD_E_USAGE, "--stages: there is no picture of it");
    if (args->stages && form == FORM_CSV && (args->ab || sweep))
        return md_fail(err, MD_E_USAGE, "--stages: its CSV has no rows of --ab and of sweeps, expected one of them");
    return MD_OK;
}

static md_status run_bench(const bench_args *args, md_error *err) {
    int form;
    char names[64];
    MD_TRY(md_out_form(args->output, args->json, form_names, FORM_COUNT, &form, err));
    MD_TRY(check_args(args, form, err));
    md_bench_options options = {.engine = {args->engine.engine},
                                .sides = 1,
                                .device = args->engine.device,
                                .kv = args->kv,
                                .threads = count_or(args->engine.threads, 0),
                                .groups = count_or(args->engine.groups, 0),
                                .deadline_ms = count_or(args->engine.deadline, 0),
                                .prompt = count_or(args->prompt, DEFAULT_PROMPT),
                                .decode = count_or(args->decode, DEFAULT_DECODE),
                                .depth = count_or(args->depth, 0),
                                .repeats = count_or(args->repeats, DEFAULT_REPEATS)};
    if (args->ab) MD_TRY(parse_ab(args->ab, names, sizeof names, &options, err));
    char *model;
    MD_TRY(md_find_model(args->model.model, &model, err));
    options.model = model;
    md_bench_result result;
    md_status status = md_bench_run(&options, &result, err);
    if (status == MD_OK) status = run_sweeps(args, &options, &result, err);
    if (status == MD_OK && args->stages) status = md_bench_by_stage(&options, &result.stages, err);
    if (status == MD_OK) status = print_result(form, &options, &result, err);
    free(model);
    return status;
}

static int bench(const void *arguments, int words, char **word) {
    (void)words, (void)word;
    const bench_args *args = arguments;
    md_error err = {0};
    bool json = args->json || (args->output && strcmp(args->output, "json") == 0);
    return run_bench(args, &err) == MD_OK ? MD_EXIT_DONE : md_out_error("bench", json, &err);
}

const md_command md_cmd_bench = {
    .name = "bench",
    .summary = "measure decode and prefill rates beside the memory's read ceiling",
    .usage = "",
    .details = "Medians over the repeats; the read ceiling is measured between them. Tokenizing and sampling are\n"
               "not part of any figure; a GPU, which chooses tokens itself, decodes greedily. With --stages the CSV\n"
               "is that of the stages.",
    .groups = bench_groups,
    .group_count = sizeof bench_groups / sizeof *bench_groups,
    .args_size = sizeof(bench_args),
    .run = bench,
};
