#include "cli/option.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODE_HELP = 256, CODE_FIRST = 257 }; // getopt values: option i of the flat list has CODE_FIRST + i

// A command's options in one list, with where each value goes.
typedef struct flat {
    size_t count;
    const md_option *option[MD_OPTIONS_MAX];
    size_t offset[MD_OPTIONS_MAX];
    struct option longs[MD_OPTIONS_MAX + 2];
    char letters[2 * MD_OPTIONS_MAX + 8];
} flat;

static void flatten(const md_command *command, flat *out) {
    *out = (flat){0};
    char *letter = out->letters;
    *letter++ = ':'; // a missing value is reported as ':'
    *letter++ = 'h';
    for (size_t g = 0; g < command->group_count; g++) {
        const md_option_group *group = &command->groups[g];
        for (size_t i = 0; i < group->count && out->count < MD_OPTIONS_MAX; i++) {
            const md_option *o = &group->options[i];
            size_t n = out->count++;
            out->option[n] = o;
            out->offset[n] = group->base + o->offset;
            out->longs[n] =
                (struct option){o->name, o->arg ? required_argument : no_argument, NULL, CODE_FIRST + (int)n};
            if (o->letter) {
                *letter++ = o->letter;
                if (o->arg) *letter++ = ':';
            }
        }
    }
    out->longs[out->count] = (struct option){"help", no_argument, NULL, CODE_HELP};
}

static int fail(const md_command *command, const char *hint, const char *fmt, const char *a, const char *b) {
    fprintf(stderr, "megadecode %s: ", command->name);
    fprintf(stderr, fmt, a, b);
    fputc('\n', stderr);
    if (hint) fprintf(stderr, "Did you mean --%s?\n", hint);
    fprintf(stderr, "Try 'megadecode %s --help'.\n", command->name);
    return MD_EXIT_USAGE;
}

// ---- values ----------------------------------------------------------------------------------------------------

static bool parse_number(const char *text, double *out) {
    char *end = NULL;
    errno = 0;
    *out = strtod(text, &end);
    return errno == 0 && end != text && *end == 0 && isfinite(*out) && !isspace((unsigned char)*text);
}

static bool parse_count(const char *text, uint64_t *out) {
    char *end = NULL;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && isdigit((unsigned char)*text) && *end == 0;
}

static void range_text(const md_option *o, char *out, size_t size) {
    const char *kind = o->type == MD_OPT_COUNT ? "a whole number" : "a number";
    if (o->max != 0)
        snprintf(out, size, "%s from %.15g to %.15g", kind, o->min, o->max);
    else if (o->min != 0)
        snprintf(out, size, "%s of at least %.15g", kind, o->min);
    else if (o->type == MD_OPT_COUNT)
        snprintf(out, size, "%s from 0 to %" PRIu64, kind, UINT64_MAX);
    else
        snprintf(out, size, "%s", kind);
}

// Stores one option's value; false: it is not of the option's type or range.
static bool store(const md_option *o, void *where, const char *text) {
    switch (o->type) {
    case MD_OPT_FLAG: *(bool *)where = true; return true;
    case MD_OPT_TEXT: *(const char **)where = text; return true;
    case MD_OPT_LIST: {
        md_opt_list *list = where;
        if (list->count == MD_OPT_LIST_MAX) return false;
        list->items[list->count++] = text;
        return true;
    }
    case MD_OPT_COUNT: {
        md_opt_count *count = where;
        count->given = true;
        if (!parse_count(text, &count->value)) return false;
        return (double)count->value >= o->min && (o->max == 0 || (double)count->value <= o->max);
    }
    case MD_OPT_NUMBER: {
        md_opt_number *number = where;
        number->given = true;
        return parse_number(text, &number->value) && number->value >= o->min &&
               (o->max == 0 || number->value <= o->max);
    }
    }
    return false;
}

static void expected_text(const md_option *o, char *out, size_t size) {
    if (o->type == MD_OPT_LIST)
        snprintf(out, size, "it at most %d times", MD_OPT_LIST_MAX);
    else
        range_text(o, out, size);
}

static int store_or_fail(const md_command *command, const flat *options, size_t i, char *args, const char *text) {
    const md_option *o = options->option[i];
    char expected[96], found[160];
    if (store(o, args + options->offset[i], text)) return MD_EXIT_DONE;
    expected_text(o, expected, sizeof expected);
    snprintf(found, sizeof found, "--%s: found \"%.60s\"", o->name, text);
    return fail(command, NULL, "%s, expected %s", found, expected);
}

static size_t value_size(md_opt_type type) {
    switch (type) {
    case MD_OPT_FLAG: return sizeof(bool);
    case MD_OPT_TEXT: return sizeof(const char *);
    case MD_OPT_LIST: return sizeof(md_opt_list);
    case MD_OPT_COUNT: return sizeof(md_opt_count);
    case MD_OPT_NUMBER: return sizeof(md_opt_number);
    }
    return 0;
}

md_status md_option_set(const md_option *options, size_t count, void *base, const char *name, const char *value,
                        md_error *err) {
    union {
        bool flag;
        const char *text;
        md_opt_list list;
        md_opt_count count;
        md_opt_number number;
    } changed;
    char expected[96];
    size_t i = 0;
    while (i < count && strcmp(options[i].name, name) != 0) i++;
    if (i == count) return md_fail(err, MD_E_USAGE, "found \"%.60s\", which is none of the names", name);
    void *where = (char *)base + options[i].offset;
    memcpy(&changed, where, value_size(options[i].type));
    if (!store(&options[i], &changed, value)) {
        expected_text(&options[i], expected, sizeof expected);
        return md_fail(err, MD_E_USAGE, "%s: found \"%.60s\", expected %s", name, value, expected);
    }
    memcpy(where, &changed, value_size(options[i].type));
    return MD_OK;
}

// ---- guesses ---------------------------------------------------------------------------------------------------

// Edit distance of two short words (one change, insertion or deletion costs 1); a large number for long ones.
static size_t distance(const char *a, const char *b) {
    enum { LONGEST = 31 };
    size_t n = strlen(a), m = strlen(b), row[LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

static void consider(const char *name, const char *candidate, size_t *best, const char **out) {
    size_t d = distance(name, candidate);
    if (d >= *best || d >= strlen(candidate)) return;
    *best = d;
    *out = candidate;
}

const char *md_command_guess(const char *name) {
    size_t best = 3;
    const char *out = NULL;
    for (size_t i = 0; md_commands[i]; i++) consider(name, md_commands[i]->name, &best, &out);
    return out;
}

static const char *option_guess(const flat *options, const char *text) {
    char name[64];
    size_t best = 4;
    const char *out = NULL;
    while (*text == '-') text++;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    for (size_t i = 0; i < options->count; i++) consider(name, options->option[i]->name, &best, &out);
    return out;
}

// ---- running ---------------------------------------------------------------------------------------------------

const md_command *md_command_find(const char *name) {
    for (size_t i = 0; md_commands[i]; i++)
        if (strcmp(md_commands[i]->name, name) == 0) return md_commands[i];
    return NULL;
}

// The option a getopt value stands for; options->count: none.
static size_t option_index(const flat *options, int code) {
    if (code >= CODE_FIRST) return (size_t)(code - CODE_FIRST);
    size_t i = 0;
    while (i < options->count && options->option[i]->letter != code) i++;
    return i;
}

// The long options that `word` ("--to") is the beginning of, with commas between them; how many.
static size_t begun_options(const flat *options, const char *word, char *out, size_t size) {
    size_t count = 0, n = strcspn(word, "="), used = 0;
    *out = 0;
    if (n < 3 || strncmp(word, "--", 2) != 0) return 0;
    for (size_t i = 0; options->longs[i].name; i++) {
        if (strncmp(options->longs[i].name, word + 2, n - 2) != 0) continue;
        int more = snprintf(out + used, size - used, "%s--%s", count++ ? ", " : "", options->longs[i].name);
        used = more < 0 || (size_t)more >= size - used ? size - 1 : used + (size_t)more;
    }
    return count;
}

static int unknown_option(const md_command *command, const flat *options, int argc, char **argv) {
    char letter[3] = {'-', (char)optopt, 0}, begun[256];
    bool is_letter = optopt > 0 && optopt < CODE_HELP;
    const char *word = is_letter ? letter : argv[optind > 1 && optind <= argc ? optind - 1 : 1];
    if (optopt >= CODE_HELP) { // a flag
        const char *value = strchr(word, '='), *name = "help";
        if (optopt >= CODE_FIRST) name = options->option[option_index(options, optopt)]->name;
        return fail(command, NULL, "--%s takes no value, found \"%.60s\"", name, value ? value + 1 : "");
    }
    if (!is_letter && begun_options(options, word, begun, sizeof begun) > 1)
        return fail(command, NULL, "'%s' is the beginning of several options: %s", word, begun);
    return fail(command, is_letter ? NULL : option_guess(options, word), "unknown option '%s'%s", word, "");
}

static int missing_value(const md_command *command, const flat *options) {
    const md_option *o = options->option[option_index(options, optopt)];
    char name[80];
    snprintf(name, sizeof name, o->letter ? "-%.1s, --%s" : "%.0s--%s", &o->letter, o->name);
    return fail(command, NULL, "%s needs a value: %s", name, o->arg);
}

int md_command_main(const md_command *command, int argc, char **argv) {
    union {
        char bytes[MD_ARGS_MAX];
        max_align_t align;
    } args = {{0}};
    flat options;
    flatten(command, &options);
    opterr = 0;
    optind = 1;
    for (int code; (code = getopt_long(argc, argv, options.letters, options.longs, NULL)) != -1;) {
        if (code == 'h' || code == CODE_HELP) {
            md_command_help(command);
            return MD_EXIT_DONE;
        }
        if (code == ':') return missing_value(command, &options);
        if (code == '?') return unknown_option(command, &options, argc, argv);
        int status = store_or_fail(command, &options, option_index(&options, code), args.bytes, optarg);
        if (status != MD_EXIT_DONE) return status;
    }
    size_t words = (size_t)(argc - optind);
    if (words < command->min_words) return fail(command, NULL, "expected %s%s", command->usage, "");
    if (words > command->max_words) {
        const char *extra = argv[optind + (int)command->max_words];
        return fail(command, NULL, "found \"%s\", which is no option%s", extra,
                    command->max_words ? " and one too many" : "");
    }
    return command->run(args.bytes, (int)words, argv + optind);
}
