// Options of a command as a table: it drives parsing, --help, and what is made from it (man pages, completions).
//
// A command has one struct of arguments, filled with zeros before parsing. Each option says where in it its value goes;
// groups of options that several commands share (the model's, the sampling's) are tables with a struct of their own,
// which a command embeds and names by its offset.
#ifndef MD_CLI_OPTION_H
#define MD_CLI_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct md_opt_count { // MD_OPT_COUNT
    bool given;
    uint64_t value;
} md_opt_count;

typedef struct md_opt_number { // MD_OPT_NUMBER
    bool given;
    double value;
} md_opt_number;

enum { MD_OPT_LIST_MAX = 64 };
typedef struct md_opt_list { // MD_OPT_LIST: an option that may be given several times
    size_t count;
    const char *items[MD_OPT_LIST_MAX]; // borrowed from argv
} md_opt_list;

typedef enum md_opt_type {
    MD_OPT_FLAG,   // bool
    MD_OPT_COUNT,  // md_opt_count: a whole number in [min, max]
    MD_OPT_NUMBER, // md_opt_number: a number in [min, max]
    MD_OPT_TEXT,   // const char *, borrowed from argv; NULL: not given
    MD_OPT_LIST    // md_opt_list
} md_opt_type;

typedef struct md_option {
    char letter;      // 'm' for -m; 0: none
    const char *name; // "model" for --model; never NULL
    const char *arg;  // what its value is called in the help ("MODEL"); NULL for a flag
    md_opt_type type;
    size_t offset;   // of the value in the group's struct
    double min, max; // of MD_OPT_COUNT and MD_OPT_NUMBER; max 0: no bound
    const char *help;
} md_option;

typedef struct md_option_group {
    const char *title; // "Model", "Sampling"
    const md_option *options;
    size_t count;
    size_t base; // offset of the group's struct in the command's arguments
} md_option_group;

typedef struct md_command {
    const char *name;
    const char *summary; // one line
    const char *usage;   // what follows the options: "[TEXT]"; "" for nothing
    const char *details; // more help after the options; NULL: none
    const md_option_group *groups;
    size_t group_count;
    size_t args_size;            // bytes of the command's struct of arguments, at most MD_ARGS_MAX
    size_t min_words, max_words; // words that are no options
    int (*run)(const void *args, int words, char **word); // returns the program's exit status
} md_command;

enum { MD_ARGS_MAX = 4096, MD_OPTIONS_MAX = 64 };
enum { MD_EXIT_DONE = 0, MD_EXIT_FAILED = 1, MD_EXIT_USAGE = 2 };

extern const md_command *const md_commands[]; // all of them, in the order of the help; NULL at the end (commands.c)

const md_command *md_command_find(const char *name); // NULL: none
// The name of a command, or NULL, that `name` may be a slip of.
const char *md_command_guess(const char *name);

// Parses argv[1..) of a command (argv[0] is its name) into `args` (command->args_size bytes) and runs it, or prints its
// help. A mistake is said on stderr with a hint: MD_EXIT_USAGE.
int md_command_main(const md_command *command, int argc, char **argv);

// Sets one option of a table by its long name, as the command line would: `base` is the group's struct. An option that
// takes a list gets `value` (borrowed) added. MD_E_USAGE: no such option, or a value that is not of its type or range
// (*base is then as before).
md_status md_option_set(const md_option *options, size_t count, void *base, const char *name, const char *value,
                        md_error *err);

void md_command_help(const md_command *command); // on stdout
void md_program_help(void *stream);              // a FILE *

#endif
