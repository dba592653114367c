// `megadecode inspect`: what a snapshot holds and what a step does, without loading its weights.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/inspect_svg.h"
#include "cli/output.h"
#include "cli/shared.h"

typedef struct inspect_args {
    md_model_args model;
    const char *kv, *output;
    bool plan, json;
} inspect_args;

#define AT(member) offsetof(inspect_args, member)
static const md_option inspect_options[] = {
    {0, "plan", NULL, MD_OPT_FLAG, AT(plan), 0, 0, "the stages of a step too"},
    {0, "kv", "KV", MD_OPT_TEXT, AT(kv), 0, 0,
     "the KV cache whose size is said: none, snapshot (where there is one), 8, 4 or a file"},
    {'o', "output", "FORM", MD_OPT_TEXT, AT(output), 0, 0, "text, json or svg, a picture with the plan (text)"},
    {0, "json", NULL, MD_OPT_FLAG, AT(json), 0, 0, "the same as -o json"},
};
#undef AT

static const md_option_group inspect_groups[] = {
    MD_GROUP_MODEL(inspect_args, model),
    {"Inspect", inspect_options, sizeof inspect_options / sizeof *inspect_options, 0},
};

// The members of md_inspect's own JSON, which is known to hold them.
static int64_t integer(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}
static const char *string(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}

static void print_hyperparameters(const json_t *root) {
    const json_t *rope = json_object_get(root, "rope"), *kv = json_object_get(root, "kv"),
                 *eos = json_object_get(root, "eos");
    printf("%s\n", string(root, "dir"));
    printf("  layers %" PRId64 ", hidden %" PRId64 ", ffn %" PRId64 ", vocabulary %" PRId64 ", context %" PRId64 "\n",
           integer(root, "layers"), integer(root, "hidden"), integer(root, "ffn"), integer(root, "vocab"),
           integer(root, "context"));
    printf("  query heads %" PRId64 ", key/value heads %" PRId64 ", head dimension %" PRId64 "\n",
           integer(root, "q_heads"), integer(root, "kv_heads"), integer(root, "head_dim"));
    printf("  RoPE %s, theta %g; norm eps %g; head %s\n", string(rope, "type"),
           json_number_value(json_object_get(rope, "theta")), json_number_value(json_object_get(root, "norm_eps")),
           json_is_true(json_object_get(root, "tied_head")) ? "tied to the embedding" : "of its own");
    printf("  end of text:");
    for (size_t i = 0; i < json_array_size(eos); i++)
        printf(" %" PRId64, (int64_t)json_integer_value(json_array_get(eos, i)));
    printf("\n  bytes read a token %" PRId64 " (%.1f MB)\n", integer(root, "bytes_per_token"),
           (double)integer(root, "bytes_per_token") * 1e-6);
    printf("  KV cache bytes a position %" PRId64 " (bf16: %" PRId64 ")\n", integer(kv, "bytes_per_position"),
           integer(kv, "bytes_per_position_bf16"));
}

static void print_matrices(const json_t *root) {
    const json_t *list = json_object_get(root, "matrices");
    printf("\n%-44s %8s %8s %5s %6s %5s %12s\n", "matrix", "rows", "cols", "bits", "group", "type", "bytes");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        printf("%-44s %8" PRId64 " %8" PRId64, string(m, "path"), integer(m, "rows"), integer(m, "cols"));
        if (integer(m, "bits"))
            printf(" %5" PRId64 " %6" PRId64, integer(m, "bits"), integer(m, "group"));
        else
            printf(" %5s %6s", "-", "-");
        printf(" %5s %12" PRId64 "\n", string(m, "type"), integer(m, "bytes"));
    }
    printf("%-44s %8s %8s %5s %6s %5s %12" PRId64 "\n", "all matrices", "", "", "", "", "",
           integer(root, "matrix_bytes"));
}

static void print_names(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        printf("%s%s", i ? "+" : "", json_string_value(json_array_get(list, i)));
}

static void print_plan(const json_t *plan) {
    if (!plan) return;
    printf("\nplan: %zu stages\n", json_array_size(plan));
    for (size_t i = 0; i < json_array_size(plan); i++) {
        const json_t *stage = json_array_get(plan, i), *layer = json_object_get(stage, "layer");
        printf("%5zu  ", i);
        if (json_is_integer(layer))
            printf("layer %-4" PRId64, (int64_t)json_integer_value(layer));
        else
            printf("%-10s", "");
        printf(" %-12s %10" PRId64 " B  ", string(stage, "stage"), integer(stage, "bytes"));
        print_names(json_object_get(stage, "reads"));
        printf(" -> ");
        print_names(json_object_get(stage, "writes"));
        const json_t *matrices = json_object_get(stage, "matrices");
        for (size_t m = 0; m < json_array_size(matrices); m++) {
            const char *path = json_string_value(json_array_get(matrices, m)), *dot = strrchr(path, '.');
            printf("%s%s", m ? ", " : "   ", dot ? dot + 1 : path);
        }
        printf("\n");
    }
}

enum { FORM_TEXT, FORM_JSON, FORM_SVG, FORM_COUNT };
static const char *const form_names[FORM_COUNT] = {"text", "json", "svg"};

// What a model is called: the last part of its folder or repo id.
static void name_of(const char *model, char *out, size_t size) {
    size_t n = strlen(model);
    while (n > 1 && model[n - 1] == '/') n--;
    size_t start = n;
    while (start > 0 && model[start - 1] != '/') start--;
    snprintf(out, size, "%.*s", (int)(n - start), model + start);
}

static md_status print_svg(const json_t *root, const char *model, md_error *err) {
    char name[128];
    md_buf picture;
    name_of(model, name, sizeof name);
    md_status status = md_inspect_svg(root, name, &picture, err);
    if (status == MD_OK) md_out_write(picture.data, picture.size);
    md_buf_free(&picture);
    return status;
}

static int inspect(const void *arguments, int words, char **word) {
    (void)words, (void)word;
    const inspect_args *args = arguments;
    md_error err = {0};
    char *model = NULL, *text = NULL;
    json_t *root = NULL;
    int form;
    md_status status = md_out_form(args->output, args->json, form_names, FORM_COUNT, &form, &err);
    if (status != MD_OK) return md_out_error("inspect", args->json, &err);
    md_inspect_options options = {.kv = args->kv, .plan = args->plan || form == FORM_SVG};
    MD_TRY_GOTO(md_find_model(args->model.model, &model, &err));
    MD_TRY_GOTO(md_inspect(model, &options, &text, &err));
    if (form == FORM_JSON) {
        if (md_out_write(text, strlen(text))) md_out_write("\n", 1);
        goto fail;
    }
    MD_TRY_GOTO(md_json_parse(text, strlen(text), false, "inspect", &root, &err));
    if (form == FORM_SVG) {
        status = print_svg(root, model, &err);
        goto fail;
    }
    print_hyperparameters(root);
    print_matrices(root);
    print_plan(json_object_get(root, "plan"));
fail:
    json_decref(root);
    md_free(text);
    free(model);
    return status == MD_OK ? MD_EXIT_DONE : md_out_error("inspect", form == FORM_JSON, &err);
}

const md_command md_cmd_inspect = {
    .name = "inspect",
    .summary = "a snapshot's hyperparameters, matrices, bytes and plan",
    .usage = "",
    .groups = inspect_groups,
    .group_count = sizeof inspect_groups / sizeof *inspect_groups,
    .args_size = sizeof(inspect_args),
    .run = inspect,
};
