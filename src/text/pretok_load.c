// Reading "pre_tokenizer" of a tokenizer.json.
#include <stdlib.h>
#include <string.h>

#include "text/pretok.h"
#include "text/utf8.h"

// The regex that GPT-2's byte-level pre-tokenizer has built in.
static const char GPT2_REGEX[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

void md_pretok_free(md_pretok *pretok) {
    for (size_t i = 0; i < pretok->n_steps; i++) md_pattern_free(pretok->steps[i].pattern);
    free(pretok->steps);
    *pretok = (md_pretok){0};
}

static md_status load_behavior(md_pretok_step *step, const json_t *json, const char *what, md_error *err) {
    static const struct {
        const char *name;
        md_split_behavior behavior;
    } behaviors[] = {{"Removed", MD_SPLIT_REMOVED},
                     {"Isolated", MD_SPLIT_ISOLATED},
                     {"MergedWithPrevious", MD_SPLIT_MERGED_WITH_PREVIOUS},
                     {"MergedWithNext", MD_SPLIT_MERGED_WITH_NEXT},
                     {"Contiguous", MD_SPLIT_CONTIGUOUS}};
    const char *name = NULL;
    MD_TRY(md_json_get_string(json, "behavior", &name, what, err));
    step->behavior = MD_SPLIT_ISOLATED; // Punctuation's default; Split must say it
    if (!name && step->kind == MD_PRETOK_PUNCTUATION) return MD_OK;
    for (size_t i = 0; name && i < sizeof behaviors / sizeof behaviors[0]; i++) {
        if (strcmp(behaviors[i].name, name) != 0) continue;
        step->behavior = behaviors[i].behavior;
        return MD_OK;
    }
    return md_fail(err, MD_E_FORMAT,
                   "%s: \"behavior\" is \"%.40s\", expected Removed, Isolated, MergedWithPrevious, "
                   "MergedWithNext or Contiguous",
                   what, name ? name : "");
}

static md_status load_metaspace(md_pretok_step *step, const json_t *json, const char *what, md_error *err) {
    const char *replacement = NULL, *scheme = NULL;
    bool add_prefix_space = true;
    step->split = true;
    MD_TRY(md_json_get_string(json, "replacement", &replacement, what, err));
    MD_TRY(md_json_get_string(json, "prepend_scheme", &scheme, what, err));
    MD_TRY(md_json_get_bool(json, "add_prefix_space", &add_prefix_space, what, err));
    MD_TRY(md_json_get_bool(json, "split", &step->split, what, err));
    uint32_t cp;
    if (!replacement || !md_utf8_single(replacement, strlen(replacement), &cp))
        return md_fail(err, MD_E_FORMAT, "%s: \"replacement\" is \"%.40s\", expected one character", what,
                       replacement ? replacement : "");
    step->replacement_size = md_utf8_encode(cp, step->replacement);
    if (!add_prefix_space || (scheme && strcmp(scheme, "never") == 0)) {
        step->prepend = MD_PREPEND_NEVER;
    } else if (!scheme || strcmp(scheme, "always") == 0) {
        step->prepend = MD_PREPEND_ALWAYS;
    } else if (strcmp(scheme, "first") == 0) {
        step->prepend = MD_PREPEND_FIRST;
    } else {
        return md_fail(err, MD_E_FORMAT, "%s: \"prepend_scheme\" is \"%.40s\", expected always, first or never", what,
                       scheme);
    }
    return md_pattern_literal(step->replacement, step->replacement_size, what, &step->pattern, err);
}

static md_status load_byte_level(md_pretok_step *step, const json_t *json, const char *what, md_error *err) {
    bool use_regex = true;
    step->behavior = MD_SPLIT_ISOLATED;
    MD_TRY(md_json_get_bool(json, "add_prefix_space", &step->add_prefix_space, what, err));
    MD_TRY(md_json_get_bool(json, "use_regex", &use_regex, what, err));
    return use_regex ? md_pattern_regex(GPT2_REGEX, sizeof GPT2_REGEX - 1, what, &step->pattern, err) : MD_OK;
}

static md_status load_step(md_pretok_step *step, const json_t *json, const char *type, const char *what,
                           md_error *err) {
    if (strcmp(type, "ByteLevel") == 0) {
        step->kind = MD_PRETOK_BYTE_LEVEL;
        return load_byte_level(step, json, what, err);
    }
    if (strcmp(type, "Metaspace") == 0) {
        step->kind = MD_PRETOK_METASPACE;
        return load_metaspace(step, json, what, err);
    }
    if (strcmp(type, "Split") == 0) {
        step->kind = MD_PRETOK_SPLIT;
        MD_TRY(md_json_get_bool(json, "invert", &step->invert, what, err));
        MD_TRY(load_behavior(step, json, what, err));
        return md_pattern_from_json(json_object_get(json, "pattern"), what, &step->pattern, err);
    }
    if (strcmp(type, "Digits") == 0) {
        bool individual = false;
        step->kind = MD_PRETOK_DIGITS;
        MD_TRY(md_json_get_bool(json, "individual_digits", &individual, what, err));
        step->behavior = individual ? MD_SPLIT_ISOLATED : MD_SPLIT_CONTIGUOUS;
        return MD_OK;
    }
    if (strcmp(type, "Punctuation") == 0) {
        step->kind = MD_PRETOK_PUNCTUATION;
        return load_behavior(step, json, what, err);
    }
    if (strcmp(type, "Whitespace") == 0 || strcmp(type, "WhitespaceSplit") == 0) {
        step->kind = strcmp(type, "Whitespace") == 0 ? MD_PRETOK_WHITESPACE : MD_PRETOK_WHITESPACE_SPLIT;
        step->behavior = MD_SPLIT_REMOVED;
        return MD_OK;
    }
    return md_fail(err, MD_E_UNSUPPORTED, "%s: the type \"%.60s\" is not supported", what, type);
}

// Sequences may hold sequences; the depth is bounded by the JSON parser's.
static md_status load_steps(md_pretok *pretok, const json_t *json, const char *what, md_error *err) {
    if (!json_is_object(json))
        return md_fail(err, MD_E_FORMAT, "%s: found %s, expected an object", what, md_json_type_name(json));
    const char *type = "(none)";
    MD_TRY(md_json_get_string(json, "type", &type, what, err));
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(json, "pretokenizers");
        if (!json_is_array(list))
            return md_fail(err, MD_E_FORMAT, "%s: \"pretokenizers\" is %s, expected an array", what,
                           md_json_type_name(list));
        for (size_t i = 0; i < json_array_size(list); i++)
            MD_TRY(load_steps(pretok, json_array_get(list, i), what, err));
        return MD_OK;
    }
    if (pretok->n_steps == MD_PRETOK_MAX_STEPS)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: more than %d steps", what, MD_PRETOK_MAX_STEPS);
    return load_step(&pretok->steps[pretok->n_steps++], json, type, what, err);
}

md_status md_pretok_load(md_pretok *pretok, const json_t *json, const char *what, md_error *err) {
    *pretok = (md_pretok){0};
    if (!json || json_is_null(json)) return MD_OK;
    pretok->steps = calloc(MD_PRETOK_MAX_STEPS, sizeof *pretok->steps);
    if (!pretok->steps) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    return load_steps(pretok, json, what, err);
}
