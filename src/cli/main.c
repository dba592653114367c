// The program: finds the command and runs it.
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/build_facts.h"
#include "cli/docs.h"
#include "cli/option.h"
#include "cli/output.h"
#include "cli/term.h"

static int wrong(const char *what, const char *word, const char *why) {
    fprintf(stderr, "megadecode%s%s: found '%s'%s\nTry 'megadecode --help'.\n", *what ? " " : "", what, word, why);
    return MD_EXIT_USAGE;
}

static int help(int argc, char **argv) {
    if (argc < 1) {
        md_program_help(stdout);
        return MD_EXIT_DONE;
    }
    if (argc > 1) return wrong("help", argv[1], ", expected one command");
    const md_command *command = md_command_find(argv[0]);
    if (command) {
        md_command_help(command);
        return MD_EXIT_DONE;
    }
    fprintf(stderr, "megadecode help: no command '%s'\n", argv[0]);
    return MD_EXIT_USAGE;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        md_program_help(stderr);
        return MD_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        if (argc > 2) return wrong(name, argv[2], ", expected nothing more");
        md_build_facts_print();
        return MD_EXIT_DONE;
    }
    if (strncmp(name, "--version=", 10) == 0 || strncmp(name, "--help=", 7) == 0)
        return wrong("", name, ", which takes no value");
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(argc - 2, argv + 2);
    if (strcmp(name, "generate-docs") == 0) return md_docs_main(argc - 1, argv + 1); // for the build
    const md_command *command = md_command_find(name);
    md_error err;
    if (command && md_log_check(&err) != MD_OK) return md_out_error(name, false, &err);
    if (command) return md_command_main(command, argc - 1, argv + 1);
    const char *guess = md_command_guess(name);
    fprintf(stderr, "megadecode: unknown %s '%s'\n", name[0] == '-' ? "option" : "command", name);
    if (guess) fprintf(stderr, "Did you mean '%s'?\n", guess);
    fprintf(stderr, "Try 'megadecode --help'.\n");
    return MD_EXIT_USAGE;
}

// A program may be started with its standard streams closed; the next files it opens would then take their numbers, and
// a model's weights be read as the prompt. Each gets a /dev/null that fails as a closed one does: no reading from
// standard input, no writing to standard output.
static bool open_standard_streams(void) {
    static const int mode[3] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", mode[fd]) != fd) return false; // open gives the lowest number
    return true;
}

int main(int argc, char **argv) {
    if (!open_standard_streams()) return MD_EXIT_FAILED;
    md_signals_install();
    return md_out_finish(dispatch(argc, argv));
}
