// Help texts, printed from the option tables.
#include <stdio.h>
#include <string.h>

#include "cli/option.h"

enum { HELP_COLUMN = 30, HELP_WIDTH = 100 };

// Prints `text` from column `at` on, wrapped at words to HELP_WIDTH, later lines indented to HELP_COLUMN.
static void print_wrapped(FILE *out, const char *text, size_t at) {
    bool first = true;
    for (; *text; first = false) {
        size_t word = strcspn(text, " ");
        if (!first && at + 1 + word > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            at = HELP_COLUMN;
        } else if (!first) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", (int)word, text);
        at += word;
        text += word + (text[word] == ' ');
    }
    fputc('\n', out);
}

static void print_row(FILE *out, const char *left, const char *help) {
    int used = fprintf(out, "  %s", left);
    if (used >= HELP_COLUMN) {
        fputc('\n', out);
        used = 0;
    }
    fprintf(out, "%*s", HELP_COLUMN - used, "");
    print_wrapped(out, help, HELP_COLUMN);
}

static void print_option(FILE *out, const md_option *o) {
    char left[80], letter[] = {'-', o->letter, ',', ' ', 0};
    snprintf(left, sizeof left, "%s--%s%s%s", o->letter ? letter : "    ", o->name, o->arg ? " " : "",
             o->arg ? o->arg : "");
    print_row(out, left, o->help);
}

void md_command_help(const md_command *command) {
    printf("megadecode %s: %s\n\nUsage: megadecode %s [options]%s%s\n", command->name, command->summary, command->name,
           *command->usage ? " " : "", command->usage);
    for (size_t g = 0; g < command->group_count; g++) {
        printf("\n%s:\n", command->groups[g].title);
        for (size_t i = 0; i < command->groups[g].count; i++) print_option(stdout, &command->groups[g].options[i]);
    }
    printf("\n");
    print_row(stdout, "-h, --help", "this help");
    if (command->details) printf("\n%s\n", command->details);
}

void md_program_help(void *stream) {
    FILE *out = stream;
    fprintf(out, "megadecode runs Llama-family models in MLX's quantized format, a whole decode step in one resident "
                 "kernel.\n\nUsage: megadecode COMMAND [options]\n\nCommands:\n");
    for (size_t i = 0; md_commands[i]; i++) print_row(out, md_commands[i]->name, md_commands[i]->summary);
    fprintf(out, "\n'megadecode COMMAND --help' lists a command's options; 'megadecode --version' says the version.\n"
                 "Exit status: 0 done, 1 failed, 2 wrong usage.\n");
}
