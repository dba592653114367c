#include "cli/shared.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu_info.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/term.h"

// MEGADECODE_DATA_DIR, the installed share folder, and MEGADECODE_SOURCE_DIR come from the build.
static const char shipped_name[] = "models/fairytales";

const md_option md_model_option[1] = {
    {'m', "model", "MODEL", MD_OPT_TEXT, offsetof(md_model_args, model), 0, 0,
     "a folder with an MLX snapshot, or a Hugging Face repo id in the local cache; without it $MEGADECODE_MODEL, or "
     "the "
     "model that comes with the program"},
};

#define AT(member) offsetof(md_engine_args, member)
const md_option md_engine_options_table[5] = {
    {'t', "threads", "N", MD_OPT_COUNT, AT(threads), 1, 1024, "CPU threads; without it as many as may run at once"},
    {0, "engine", "E", MD_OPT_TEXT, AT(engine), 0, 0,
     "resident (one dispatch a step, the default), ops (one an operator) or reference (plain C)"},
    {0, "device", "D", MD_OPT_TEXT, AT(device), 0, 0, "cpu, cuda or cuda:N; without it a GPU where one is usable"},
    {0, "groups", "G", MD_OPT_COUNT, AT(groups), 1, 1024, "workers that share a step (GPU: SMs)"},
    {0, "deadline", "MS", MD_OPT_COUNT, AT(deadline), 1, 4294967295.0,
     "milliseconds after which a wait inside a step gives up"},
};
#undef AT

#define AT(member) offsetof(md_sampling_args, member)
const md_option md_sampling_options_table[10] = {
    {0, "temp", "X", MD_OPT_NUMBER, AT(temperature), 0, 1e6, "temperature; 0 takes the likeliest token"},
    {0, "top-k", "N", MD_OPT_COUNT, AT(top_k), 0, 4294967295.0, "keep the N likeliest tokens; 0: off"},
    {0, "top-p", "X", MD_OPT_NUMBER, AT(top_p), 0, 1,
     "keep the fewest tokens with this probability together; 0 or 1: off"},
    {0, "min-p", "X", MD_OPT_NUMBER, AT(min_p), 0, 1, "keep tokens with X times the greatest probability; 0: off"},
    {0, "repeat-penalty", "X", MD_OPT_NUMBER, AT(repetition), 0, 1e6,
     "divide the logits of tokens that occurred; 0 or 1: off"},
    {0, "presence-penalty", "X", MD_OPT_NUMBER, AT(presence), -1e6, 1e6,
     "subtract X from tokens the answer has already"},
    {0, "frequency-penalty", "X", MD_OPT_NUMBER, AT(frequency), -1e6, 1e6,
     "subtract X for each time the answer has the token"},
    {0, "penalty-window", "N", MD_OPT_COUNT, AT(window), 0, 4294967295.0,
     "penalties look at the last N tokens; 0: all"},
    {0, "seed", "N", MD_OPT_COUNT, AT(seed), 0, 0, "the same seed gives the same text; without it a random one"},
    {0, "stop", "S", MD_OPT_LIST, AT(stop), 0, 0, "end before this text; may be given several times"},
};
#undef AT

// ---- the model -------------------------------------------------------------------------------------------------

// `folder`/models/fairytales if that is a model; malloc'd, or NULL.
static char *shipped_in(const char *folder) {
    char *dir = md_path_join(folder, shipped_name), *config = dir ? md_path_join(dir, "config.json") : NULL;
    bool found = config && md_file_exists(config);
    free(config);
    if (found) return dir;
    free(dir);
    return NULL;
}

// Beside the program: the folders above it (a build tree inside the sources), and ../share/megadecode of each (an
// installed tree that was moved).
static char *shipped_near_program(void) {
    char path[4096], *found = NULL;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) return NULL;
    path[n] = 0;
    for (int up = 0; up < 4 && !found; up++) {
        char *slash = strrchr(path, '/');
        if (!slash) break;
        *slash = 0;
        found = shipped_in(path);
        char *share = found ? NULL : md_path_join(path, "share/megadecode");
        if (share) found = shipped_in(share);
        free(share);
    }
    return found;
}

md_status md_find_model(const char *given, char **out, md_error *err) {
    const char *variable = getenv("MEGADECODE_MODEL");
    if (!given && variable && *variable) given = variable;
    if (given) {
        *out = strdup(given);
        return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory");
    }
    *out = shipped_near_program();
    if (!*out) *out = shipped_in(MEGADECODE_DATA_DIR);
#ifdef MEGADECODE_SOURCE_DIR
    if (!*out) *out = shipped_in(MEGADECODE_SOURCE_DIR);
#endif
    if (*out) return MD_OK;
    return md_fail(err, MD_E_NOT_FOUND,
                   "the shipped model is neither near the program nor in %s; give -m MODEL or set MEGADECODE_MODEL",
                   MEGADECODE_DATA_DIR);
}

md_status md_open_model(const md_model_args *model, const md_engine_args *engine, md_model **out, md_error *err) {
    char *name = NULL;
    md_progress progress = {.label = "loading"};
    md_model_options options = {.engine = engine->engine,
                                .device = engine->device,
                                .threads = (uint32_t)engine->threads.value,
                                .groups = (uint32_t)engine->groups.value,
                                .deadline_ms = (uint32_t)engine->deadline.value,
                                .progress = md_progress_loading,
                                .progress_user = &progress};
    MD_TRY(md_find_model(model->model, &name, err));
    md_status status = md_model_open(name, &options, out, err);
    md_progress_clear(&progress);
    free(name);
    if (status == MD_OK) md_warn_threads(*out);
    return status;
}

void md_warn_threads(const md_model *model) {
    md_model_info info;
    uint32_t cpus = md_cpu_count();
    md_model_get_info(model, &info);
    if (strcmp(info.backend, "cpu") != 0 || strcmp(info.engine, "reference") == 0 || info.workers <= cpus) return;
    md_log(MD_LOG_WARN, "%" PRIu32 " threads on %" PRIu32 " CPU%s take turns, which makes every token slower",
           info.workers, cpus, cpus == 1 ? "" : "s");
}

void md_sampling_from_args(const md_model *model, const md_sampling_args *args, md_sampling *out) {
    md_model_sampling(model, out);
    if (args->temperature.given) out->temperature = args->temperature.value;
    if (args->top_p.given) out->top_p = args->top_p.value;
    if (args->min_p.given) out->min_p = args->min_p.value;
    if (args->repetition.given) out->repetition_penalty = args->repetition.value;
    if (args->presence.given) out->presence_penalty = args->presence.value;
    if (args->frequency.given) out->frequency_penalty = args->frequency.value;
    if (args->top_k.given) out->top_k = (uint32_t)args->top_k.value;
    if (args->window.given) out->penalty_window = (uint32_t)args->window.value;
    out->seed = args->seed.given ? args->seed.value : md_random_seed();
}

// ---- the prompt ------------------------------------------------------------------------------------------------

// All of a file, a pipe or a terminal; `name` is what messages call it.
static md_status read_stream(FILE *stream, const char *name, char **out, size_t *size, md_error *err) {
    size_t cap = 1 << 16, used = 0;
    char *bytes = malloc(cap + 1);
    while (bytes) {
        used += fread(bytes + used, 1, cap - used, stream);
        if (used < cap) break;
        if (cap >= MD_INPUT_MAX) {
            free(bytes);
            return md_fail(err, MD_E_USAGE, "%s: found more than %d bytes", name, MD_INPUT_MAX);
        }
        char *larger = realloc(bytes, cap * 2 + 1);
        if (!larger) free(bytes);
        bytes = larger;
        cap *= 2;
    }
    if (!bytes) return md_fail(err, MD_E_MEMORY, "%s: out of memory", name);
    if (ferror(stream) || md_interrupted()) {
        const int why = errno;
        free(bytes);
        return md_interrupted() ? md_fail(err, MD_E_CANCELLED, "interrupted")
                                : md_fail(err, MD_E_IO, "%s: cannot read: %s", name, strerror(why));
    }
    md_status status = md_utf8_check(name, bytes, used, MD_E_USAGE, err);
    if (status != MD_OK) {
        free(bytes);
        return status;
    }
    bytes[used] = 0;
    *out = bytes;
    *size = used;
    return MD_OK;
}

// Any file but a folder will do: `-f <(program)` gives a pipe.
static md_status read_named(const char *path, char **out, size_t *size, md_error *err) {
    FILE *stream = fopen(path, "rbe");
    if (!stream)
        return md_fail(err, errno == ENOENT || errno == ENOTDIR ? MD_E_NOT_FOUND : MD_E_IO, "%s: cannot open: %s", path,
                       strerror(errno));
    md_status status = read_stream(stream, path, out, size, err);
    fclose(stream);
    return status;
}

md_status md_read_input(const char *text, const char *path, char **out, size_t *size, md_error *err) {
    *out = NULL;
    if (text) {
        *size = strlen(text);
        MD_TRY(md_utf8_check("the prompt", text, *size, MD_E_USAGE, err));
        *out = strdup(text);
        return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "out of memory");
    }
    if (path && strcmp(path, "-") != 0) return read_named(path, out, size, err);
    if (isatty(STDIN_FILENO)) fputs("Type the text; Ctrl-D ends it.\n", stderr);
    return read_stream(stdin, "standard input", out, size, err);
}

md_status md_check_ids(const md_model *model, const uint32_t *ids, size_t n, md_error *err) {
    md_model_info info;
    md_model_get_info(model, &info);
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= info.vocab)
            return md_fail(err, MD_E_FORMAT,
                           "%s: tokenizer.json gives token %" PRIu32 ", but config.json's \"vocab_size\" is %" PRIu32,
                           info.dir, ids[i], info.vocab);
    return MD_OK;
}
