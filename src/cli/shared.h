// Options and steps that several commands share: which model on which engine, how tokens are chosen, where the prompt
// comes from.
#ifndef MD_CLI_SHARED_H
#define MD_CLI_SHARED_H

#include "base/status.h"
#include "cli/option.h"

// ---- the model: groups MD_GROUP_MODEL(args_type, member) and MD_GROUP_ENGINE -----------------------------------

typedef struct md_model_args {
    const char *model; // -m
} md_model_args;

typedef struct md_engine_args {
    md_opt_count threads, groups, deadline; // -t, --groups, --deadline
    const char *engine, *device;
} md_engine_args;

typedef struct md_sampling_args {
    md_opt_number temperature, top_p, min_p, repetition, presence, frequency;
    md_opt_count top_k, window, seed;
    md_opt_list stop;
} md_sampling_args;

extern const md_option md_model_option[1], md_engine_options_table[5], md_sampling_options_table[10];

#define MD_GROUP_MODEL(args_type, member)                                                                              \
    { "Model", md_model_option, 1, offsetof(args_type, member) }
#define MD_GROUP_ENGINE(args_type, member)                                                                             \
    { "Engine", md_engine_options_table, 5, offsetof(args_type, member) }
#define MD_GROUP_SAMPLING(args_type, member)                                                                           \
    {                                                                                                                  \
        "Sampling (what is not given is as the snapshot's generation_config.json says)", md_sampling_options_table,    \
            10, offsetof(args_type, member)                                                                            \
    }

// The model to use: as given, else $MEGADECODE_MODEL, else the one that is shipped with the program, beside its source
// or in the installed share folder. *out is malloc'd. MD_E_NOT_FOUND says where was looked.
md_status md_find_model(const char *given, char **out, md_error *err);

// Finds and opens the model, with a progress bar on a terminal.
md_status md_open_model(const md_model_args *model, const md_engine_args *engine, md_model **out, md_error *err);

// A warning where the engine has more threads than there are CPUs for them.
void md_warn_threads(const md_model *model);

// The snapshot's defaults with what was given put over them.
void md_sampling_from_args(const md_model *model, const md_sampling_args *args, md_sampling *out);

// ---- the prompt ------------------------------------------------------------------------------------------------

enum { MD_INPUT_MAX = 1 << 28 }; // bytes of a prompt

// The bytes of `text`, of the file `path` ("-": standard input), or of standard input when both are NULL (with a hint
// where that is a terminal): malloc'd, NUL-terminated, *size bytes. MD_E_USAGE where they are no UTF-8: what a model
// would read in place of the broken bytes is not what was meant.
md_status md_read_input(const char *text, const char *path, char **out, size_t *size, md_error *err);

// MD_E_FORMAT where the tokenizer gave an id that the model has no row for: the snapshot's files don't belong together.
md_status md_check_ids(const md_model *model, const uint32_t *ids, size_t n, md_error *err);

#endif
