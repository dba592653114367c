// `megadecode bench`: how fast is it here, and how far from what the memory can give?
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/shared.h"

typedef struct bench_args {
    md_model_args model;
    md_engine_args engine;
    md_opt_count prompt, decode, depth, repeats;
    const char *ab, *kv, *output;
    bool sweep, json;
} bench_args;

enum { DEFAULT_PROMPT = 128, DEFAULT_DECODE = 64, DEFAULT_REPEATS = 5, MAX_TOKENS = 1 << 20, MAX_SWEEP = 64 };

#define AT(member) offsetof(bench_args, member)
static const md_option bench_options[] = {
    {'p', "prompt-tokens", "N", MD_OPT_COUNT, AT(prompt), 0, MAX_TOKENS, "tokens of the prefill (128; 0: none)"},
    {'n', "decode-tokens", "N", MD_OPT_COUNT, AT(decode), 0, MAX_TOKENS, "tokens of the decode (64; 0: none)"},
    {'d', "depth", "DEPTH", MD_OPT_COUNT, AT(depth), 0, 1 << 24, "positions already in the cache (0)"},
    {'r', "repeats", "N", MD_OPT_COUNT, AT(repeats), 1, MD_BENCH_REPEATS_MAX, "repeats; medians are reported (5)"},
    {0, "ab", "A,B", MD_OPT_TEXT, AT(ab), 0, 0, "two engines in turn, in one process, and the ratio B/A"},
    {0, "sweep-groups", NULL, MD_OPT_FLAG, AT(sweep), 0, 0, "the decode rate by number of workers"},
    {0, "kv", "KV", MD_OPT_TEXT, AT(kv), 0, 0, "the KV cache: none (bf16), snapshot, 8, 4 or a file"},
    {'o', "output", "FORM", MD_OPT_TEXT, AT(output), 0, 0, "md, json or csv (md)"},
    {0, "json", NULL, MD_OPT_FLAG, AT(json), 0, 0, "the same as -o json"},
};
#undef AT

static const md_option_group bench_groups[] = {
    MD_GROUP_MODEL(bench_args, model),
    MD_GROUP_ENGINE(bench_args, engine),
    {"Bench", bench_options, sizeof bench_options / sizeof *bench_options, 0},
};

typedef enum bench_form { FORM_MD, FORM_JSON, FORM_CSV } bench_form;

typedef struct bench_sweep { // one row a number of workers
    uint32_t count;
    uint32_t groups[MAX_SWEEP];
    double decode_tps[MAX_SWEEP];
} bench_sweep;

static uint32_t count_or(md_opt_count count, uint32_t otherwise) {
    return count.given ? (uint32_t)count.value : otherwise;
}

static md_status parse_form(const bench_args *args, bench_form *form, md_error *err) {
    const char *text = args->output ? args->output : args->json ? "json" : "md";
    if (strcmp(text, "md") == 0)
        *form = FORM_MD;
    else if (strcmp(text, "json") == 0)
        *form = FORM_JSON;
    else if (strcmp(text, "csv") == 0)
        *form = FORM_CSV;
    else
        return md_fail(err, MD_E_USAGE, "--output: found \"%s\", expected md, json or csv", text);
    return MD_OK;
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

static void print_json(const md_bench_options *options, const md_bench_result *result, const bench_sweep *sweep) {
    const md_bench_side *last = &result->side[options->sides - 1];
    json_t *root = json_pack(
        "{s:s s:s s:s s:s s:I s:I s:I s:I s:I s:f s:f s:I s:f s:f s:f}", "model", last->info.name, "engine",
        last->info.engine, "backend", last->info.backend, "device", last->info.device, "workers",
        (json_int_t)last->info.workers, "prompt", (json_int_t)options->prompt, "decode", (json_int_t)options->decode,
        "depth", (json_int_t)options->depth, "repeats", (json_int_t)options->repeats, "decode_tps", last->decode_tps,
        "prefill_tps", last->prefill_tps, "bytes_per_token", (json_int_t)last->info.bytes_per_token, "read_gbps",
        result->read_gbps, "ceiling_gbps", result->ceiling_gbps, "ceiling_fraction", result->ceiling_fraction);
    if (options->sides == 2) {
        json_object_set_new(root, "ratio", json_real(result->ratio));
        json_object_set_new(root, "ratio_min", json_real(result->ratio_min));
        json_object_set_new(root, "ratio_max", json_real(result->ratio_max));
        json_object_set_new(root, "a",
                            json_pack("{s:s s:f s:f}", "engine", result->side[0].info.engine, "decode_tps",
                                      result->side[0].decode_tps, "prefill_tps", result->side[0].prefill_tps));
    }
    if (sweep->count) {
        json_t *rows = json_array();
        for (uint32_t i = 0; i < sweep->count; i++)
            json_array_append_new(rows, json_pack("{s:I s:f}", "groups", (json_int_t)sweep->groups[i], "decode_tps",
                                                  sweep->decode_tps[i]));
        json_object_set_new(root, "sweep", rows);
    }
    md_out_json(root);
}

static void print_row(const md_model_info *info, uint32_t workers, uint32_t depth, double decode, double prefill,
                      bool csv) {
    const char *edge = csv ? "" : "| ", *bar = csv ? "," : " | ", *end = csv ? "" : " |";
    printf("%s%s%s%s%s%" PRIu32 "%s%" PRIu32 "%s%.2f%s%.2f%s%" PRIu64 "%s\n", edge, info->name, bar, info->engine, bar,
           workers, bar, depth, bar, decode, bar, prefill, bar, info->bytes_per_token, end);
}

static void print_rows(const md_bench_options *options, const md_bench_result *result, const bench_sweep *sweep,
                       bool csv) {
    puts(csv ? "model,engine,workers,depth,decode_tps,prefill_tps,bytes_per_token"
             : "| model | engine | workers | depth | decode tok/s | prefill tok/s | bytes a token |\n"
               "| --- | --- | --- | --- | --- | --- | --- |");
    for (uint32_t i = 0; i < options->sides; i++) {
        const md_bench_side *side = &result->side[i];
        print_row(&side->info, side->info.workers, options->depth, side->decode_tps, side->prefill_tps, csv);
    }
    const md_model_info *last = &result->side[options->sides - 1].info;
    for (uint32_t i = 0; i < sweep->count; i++)
        print_row(last, sweep->groups[i], options->depth, sweep->decode_tps[i], 0, csv);
    if (csv) return;
    printf("\nread %.1f GB/s", result->read_gbps);
    if (result->ceiling_gbps > 0)
        printf(" of %.1f GB/s that the memory gave in the same run: %.0f%%", result->ceiling_gbps,
               100 * result->ceiling_fraction);
    if (options->sides == 2)
        printf("\n%s over %s: %.3f (%.3f to %.3f)", result->side[1].info.engine, result->side[0].info.engine,
               result->ratio, result->ratio_min, result->ratio_max);
    printf("\n(%s)\n", result->side[options->sides - 1].info.device);
}

// 1, 2, 4, ... and the engine's own number of workers.
static md_status run_sweep(const md_bench_options *options, uint32_t most, bench_sweep *out, md_error *err) {
    md_bench_options one = *options;
    one.prompt = 0;
    one.sides = 1;
    one.engine[0] = options->engine[options->sides - 1];
    for (uint32_t groups = 1; out->count < MAX_SWEEP; groups = groups * 2 < most ? groups * 2 : most) {
        one.groups = groups;
        md_bench_result result;
        MD_TRY(md_bench_run(&one, &result, err));
        out->groups[out->count] = groups;
        out->decode_tps[out->count++] = result.side[0].decode_tps;
        if (groups >= most) break;
    }
    return MD_OK;
}

static md_status run_bench(const bench_args *args, md_error *err) {
    bench_form form = FORM_MD;
    char names[64];
    MD_TRY(parse_form(args, &form, err));
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
    if (!options.prompt && !options.decode) return md_fail(err, MD_E_USAGE, "-p 0 and -n 0: nothing to measure");
    char *model;
    MD_TRY(md_find_model(args->model.model, &model, err));
    options.model = model;
    md_bench_result result;
    bench_sweep sweep = {0};
    md_status status = md_bench_run(&options, &result, err);
    if (status == MD_OK && args->sweep)
        status = run_sweep(&options, result.side[options.sides - 1].info.workers, &sweep, err);
    if (status == MD_OK && form == FORM_JSON) print_json(&options, &result, &sweep);
    if (status == MD_OK && form != FORM_JSON) print_rows(&options, &result, &sweep, form == FORM_CSV);
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
    .details =
        "Medians over the repeats; the read ceiling is measured between them. Tokenizing and sampling are not part\n"
        "of any figure.",
    .groups = bench_groups,
    .group_count = sizeof bench_groups / sizeof *bench_groups,
    .args_size = sizeof(bench_args),
    .run = bench,
};
