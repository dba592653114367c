// The terminal: colours, a progress bar, and the signals that stop the program.
#ifndef MD_CLI_TERM_H
#define MD_CLI_TERM_H

#include <stdbool.h>
#include <stdint.h>

// Ctrl-C and SIGTERM set the flag that md_interrupted reads; the second one ends the program. Writing to a closed pipe
// or past the limit of a file's size is an error of the write (cli/output.h), not a signal.
void md_signals_install(void);
bool md_interrupted(void);

// For programs that go on after Ctrl-C: from here on Ctrl-C only sets the flag, however often, and md_interrupt_clear
// takes it back. SIGTERM's flag stays, and md_terminated tells it apart.
void md_signals_interactive(void);
void md_interrupt_clear(void);
bool md_terminated(void);

bool md_term_stderr(void);   // stderr is a terminal
bool md_term_stdout(void);   // stdout is a terminal
bool md_term_colour(int fd); // that descriptor is a terminal that takes colours (NO_COLOR unset, TERM not dumb)

// A bar on stderr; nothing where that is no terminal. Zero-initialise it with its label.
typedef struct md_progress {
    const char *label; // "loading"
    double drawn;      // when it was last drawn; 0: never
} md_progress;

void md_progress_draw(md_progress *progress, double fraction); // at most 20 times a second
void md_progress_clear(md_progress *progress);                 // takes it off the screen

// md_model_options.progress with a md_progress as `user`: draws, and gives up on Ctrl-C.
bool md_progress_loading(void *user, double fraction);

#endif
