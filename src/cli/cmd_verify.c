// `megadecode verify`: is what the engine computes right? Against MLX's own logits, or against another engine.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/shared.h"
#include "cli/verify.h"

typedef struct verify_args {
    md_model_args model;
    md_engine_args engine;
    const char *golden, *kv, *against, *prompt;
    md_opt_count steps;
    bool json;
} verify_args;

enum { DEFAULT_STEPS = 32, MAX_STEPS = 1 << 20 };

#define AT(member) offsetof(verify_args, member)
static const md_option verify_options[] = {
    {0, "golden", "FILE", MD_OPT_TEXT, AT(golden), 0, 0, "a golden: teacher-forced logits of MLX (NAME.json)"},
    {0, "against", "ENGINE", MD_OPT_TEXT, AT(against), 0, 0,
     "compare bit by bit with this engine (reference runs on the CPU, others on the same device)"},
    {0, "prompt", "TEXT", MD_OPT_TEXT, AT(prompt), 0, 0, "with --against: what to begin from"},
    {0, "steps", "N", MD_OPT_COUNT, AT(steps), 1, MAX_STEPS, "with --against: steps to compare (32)"},
    {0, "kv", "KV", MD_OPT_TEXT, AT(kv), 0, 0,
     "the KV cache: none (bf16), snapshot, 8, 4 or a file (as the golden was made; none)"},
    {0, "json", NULL, MD_OPT_FLAG, AT(json), 0, 0, "print one JSON object"},
};
#undef AT

static const md_option_group verify_groups[] = {
    MD_GROUP_MODEL(verify_args, model),
    MD_GROUP_ENGINE(verify_args, engine),
    {"Verify", verify_options, sizeof verify_options / sizeof *verify_options, 0},
};

static void print_golden(const md_verify_golden *result, const md_model *model, bool json) {
    const md_score *score = &result->score;
    char digest[17];
    snprintf(digest, sizeof digest, "%016" PRIx64, score->digest);
    // Steps with NaN have no divergence, and so the mean has none.
    double kl_mean = score->nan ? (double)NAN : score->kl_sum / (double)score->steps;
    if (json) {
        md_out_json(json_pack("{s:I s:I s:I s:o s:o s:o s:I s:b s:s s:b}", "steps", (json_int_t)score->steps, "agree",
                              (json_int_t)score->agree, "legal_flips", (json_int_t)score->legal_flips, "kl_mean",
                              md_out_number(kl_mean), "kl_max", md_out_number(score->kl_max), "max_abs_diff",
                              md_out_number(score->max_abs_diff), "nan", (json_int_t)score->nan, "deterministic",
                              result->deterministic, "digest", digest, "pass", result->pass));
        return;
    }
    md_model_info info;
    md_model_get_info(model, &info);
    printf("%s on %s: %s\n", info.engine, info.device, result->pass ? "pass" : "FAIL");
    printf("  %zu steps: %zu agree, %zu legal flips, %zu others, %zu with NaN\n", score->steps, score->agree,
           score->legal_flips, score->steps - score->agree - score->legal_flips - score->nan, score->nan);
    printf("  KL(MLX || ours): mean %.3g, max %.3g; largest difference %g\n", kl_mean, score->kl_max,
           score->max_abs_diff);
    printf("  %d runs %s, digest %s\n", MD_VERIFY_RUNS, result->deterministic ? "identical" : "DIFFER", digest);
}

static md_status verify_golden(const verify_args *args, bool *pass, md_error *err) {
    md_golden golden;
    md_model *model = NULL;
    md_verify_golden result;
    MD_TRY(md_golden_read(args->golden, &golden, err));
    const char *kv = args->kv ? args->kv : golden.kv_quantized ? "snapshot" : "none";
    md_status status = md_open_model(&args->model, &args->engine, &model, err);
    if (status == MD_OK) status = md_verify_against_golden(model, &golden, kv, &result, err);
    if (status == MD_OK) {
        print_golden(&result, model, args->json);
        *pass = result.pass;
    }
    md_model_close(model);
    md_golden_free(&golden);
    return status;
}

static json_t *first_difference(const md_verify_pair *pair) {
    if (pair->bit_identical) return json_null();
    return json_pack("{s:I s:I s:o s:o}", "step", (json_int_t)pair->first_step, "token", (json_int_t)pair->first_token,
                     "expected", md_out_number((double)pair->expected), "found", md_out_number((double)pair->found));
}

static void print_pair(const md_verify_pair *pair, bool pass, bool json) {
    if (json) {
        md_out_json(json_pack("{s:b s:o s:I s:I s:o s:o s:o s:b s:b}", "bit_identical", pair->bit_identical,
                              "first_difference", first_difference(pair), "steps", (json_int_t)pair->steps, "agree",
                              (json_int_t)pair->agree, "kl_mean", md_out_number(pair->kl_mean), "kl_max",
                              md_out_number(pair->kl_max), "max_abs_diff", md_out_number(pair->max_abs_diff), "nan",
                              pair->nan, "pass", pass));
        return;
    }
    printf("%s: %" PRIu32 " steps, %s%s\n", pass ? "pass" : "FAIL", pair->steps,
           pair->bit_identical ? "bit-identical" : "not bit-identical", pair->nan ? ", logits with NaN" : "");
    if (pair->bit_identical) return;
    printf("  first difference: step %" PRIu32 ", token %" PRIu32 ": expected %g, found %g\n", pair->first_step,
           pair->first_token, (double)pair->expected, (double)pair->found);
    printf("  %" PRIu32 " steps agree; KL mean %.3g, max %.3g; largest difference %g\n", pair->agree, pair->kl_mean,
           pair->kl_max, pair->max_abs_diff);
}

// The prompt's ids: --prompt's text, or the model's first ids where it has no tokenizer.
static md_status prompt_ids(const verify_args *args, const md_model *model, uint32_t **ids, size_t *n, md_error *err) {
    const md_tokenizer *tokenizer = md_model_tokenizer(model);
    const char *text = args->prompt ? args->prompt : "Once upon a time";
    if (!tokenizer) return md_fail(err, MD_E_UNSUPPORTED, "the snapshot has no tokenizer.json to encode a prompt with");
    MD_TRY(md_utf8_check("--prompt", text, strlen(text), MD_E_USAGE, err));
    MD_TRY(md_encode(tokenizer, text, strlen(text), MD_ENCODE_ADD_SPECIAL, ids, n, err));
    return *n ? MD_OK : md_fail(err, MD_E_USAGE, "--prompt: no tokens, expected at least one");
}

static md_status verify_pair(const verify_args *args, bool *pass, md_error *err) {
    md_engine_args other_args = args->engine;
    other_args.engine = args->against;
    if (strcmp(args->against, "reference") == 0) other_args.device = "cpu";
    md_model *model = NULL, *other = NULL;
    uint32_t *ids = NULL;
    size_t n = 0;
    md_verify_pair pair;
    md_status status = md_open_model(&args->model, &args->engine, &model, err);
    if (status == MD_OK) status = md_open_model(&args->model, &other_args, &other, err);
    if (status == MD_OK) status = prompt_ids(args, model, &ids, &n, err);
    uint32_t steps = args->steps.given ? (uint32_t)args->steps.value : DEFAULT_STEPS;
    if (status == MD_OK) status = md_verify_against_engine(model, other, ids, n, steps, args->kv, &pair, err);
    if (status == MD_OK) {
        md_model_info own, theirs;
        md_model_get_info(model, &own);
        md_model_get_info(other, &theirs);
        // The same bits are promised within a backend; across backends the distributions must be close.
        bool close = strcmp(own.backend, theirs.backend) != 0 && pair.kl_mean <= MD_VERIFY_KL_REFERENCE;
        *pass = !pair.nan && (pair.bit_identical || close);
        print_pair(&pair, *pass, args->json);
    }
    md_free(ids);
    md_model_close(model);
    md_model_close(other);
    return status;
}

static int verify(const void *arguments, int words, char **word) {
    (void)words, (void)word;
    const verify_args *args = arguments;
    md_error err = {0};
    bool pass = false;
    md_status status;
    if (!args->golden == !args->against)
        status = md_fail(&err, MD_E_USAGE, "give either --golden FILE or --against ENGINE");
    else if (args->golden && args->prompt)
        status = md_fail(&err, MD_E_USAGE, "--prompt goes with --against; a golden has its own");
    else if (args->golden && args->steps.given)
        status = md_fail(&err, MD_E_USAGE, "--steps goes with --against; a golden has as many as it has");
    else
        status = args->golden ? verify_golden(args, &pass, &err) : verify_pair(args, &pass, &err);
    if (status != MD_OK) return md_out_error("verify", args->json, &err);
    return pass ? MD_EXIT_DONE : MD_EXIT_FAILED;
}

const md_command md_cmd_verify = {
    .name = "verify",
    .summary = "check an engine against MLX's logits, or against another engine",
    .usage = "",
    .details =
        "A golden passes with at least 98% of steps agreeing or legal (a flip is legal where MLX's logits of the\n"
        "two tokens lie within 2 bf16 steps), a mean KL of at most 5e-4 (6e-3 with a quantized KV cache), no NaN,\n"
        "and three runs with one digest.",
    .groups = verify_groups,
    .group_count = sizeof verify_groups / sizeof *verify_groups,
    .args_size = sizeof(verify_args),
    .run = verify,
};
