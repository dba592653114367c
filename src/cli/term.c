#include "cli/term.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

static volatile sig_atomic_t interrupted, terminated;

static void on_signal(int number) {
    if (number == SIGTERM)
        terminated = 1;
    else
        interrupted = 1;
}

void md_signals_install(void) {
    // SA_RESETHAND: the first signal asks, the second has its default effect and kills. No SA_RESTART: a read of the
    // prompt from a terminal ends at once.
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&stop.sa_mask);
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

void md_signals_interactive(void) {
    struct sigaction stop = {.sa_handler = on_signal};
    sigemptyset(&stop.sa_mask);
    sigaction(SIGINT, &stop, NULL);
}

bool md_interrupted(void) { return interrupted || terminated; }
void md_interrupt_clear(void) { interrupted = 0; }
bool md_terminated(void) { return terminated != 0; }

bool md_term_stderr(void) { return isatty(STDERR_FILENO); }
bool md_term_stdout(void) { return isatty(STDOUT_FILENO); }

bool md_term_colour(int fd) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
}

static int terminal_width(void) {
    struct winsize size = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

void md_progress_draw(md_progress *progress, double fraction) {
    enum { LONGEST_BAR = 40, AROUND = 9 }; // AROUND: " [", "] ", "100%"
    static const char full[] = "########################################",
                      none[] = "........................................";
    if (!md_term_stderr()) return;
    double now = md_clock_seconds();
    if (progress->drawn != 0 && now - progress->drawn < 0.05) return;
    progress->drawn = now;
    if (fraction < 0) fraction = 0;
    if (fraction > 1) fraction = 1;
    int bar = terminal_width() - AROUND - (int)strlen(progress->label);
    if (bar > LONGEST_BAR) bar = LONGEST_BAR;
    if (bar < 0) bar = 0;
    int done = (int)(fraction * bar);
    fprintf(stderr, "\r%s [%.*s%.*s] %3d%%", progress->label, done, full, bar - done, none, (int)(fraction * 100));
    fflush(stderr);
}

void md_progress_clear(md_progress *progress) {
    if (progress->drawn == 0) return;
    progress->drawn = 0;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

bool md_progress_loading(void *user, double fraction) {
    md_progress_draw(user, fraction);
    return !md_interrupted();
}
