// `megadecode emit`: the kernel that is generated for a model, as source.
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/shared.h"

typedef struct emit_args {
    md_model_args model;
    const char *target, *arch;
    md_opt_count columns;
} emit_args;

#define AT(member) offsetof(emit_args, member)
static const md_option emit_options[] = {
    {0, "target", "TARGET", MD_OPT_TEXT, AT(target), 0, 0, "cuda, the only one there is"},
    {0, "arch", "ARCH", MD_OPT_TEXT, AT(arch), 0, 0, "sm_80, sm_86, sm_87, sm_89, sm_90a (default), sm_100 .. sm_121"},
    {0, "columns", "N", MD_OPT_COUNT, AT(columns), 1, 64,
     "the widest step: 1 (default), 2, 4 or 8; 64: the launches of prompts"},
};
#undef AT

static const md_option_group emit_groups[] = {
    MD_GROUP_MODEL(emit_args, model),
    {"Emit", emit_options, sizeof emit_options / sizeof *emit_options, 0},
};

static int emit(const void *arguments, int words, char **word) {
    (void)words, (void)word;
    const emit_args *args = arguments;
    md_error err = {0};
    char *model = NULL, *source = NULL;
    if (args->target && strcmp(args->target, "cuda") != 0) {
        md_fail(&err, MD_E_USAGE, "--target: found \"%s\", expected cuda", args->target);
        return md_out_error("emit", false, &err);
    }
    md_status status = md_find_model(args->model.model, &model, &err);
    if (status == MD_OK) status = md_emit_cuda(model, args->arch, (uint32_t)args->columns.value, &source, &err);
    free(model);
    if (status != MD_OK) return md_out_error("emit", false, &err);
    md_out_write(source, strlen(source));
    md_free(source);
    return md_out_finish(MD_EXIT_DONE);
}

const md_command md_cmd_emit = {
    .name = "emit",
    .summary = "the kernel generated for a model, as source",
    .usage = "",
    .groups = emit_groups,
    .group_count = 2,
    .args_size = sizeof(emit_args),
    .run = emit,
};
