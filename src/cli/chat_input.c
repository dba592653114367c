#include "cli/chat_input.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/chat_history.h"
#include "cli/term.h"

enum { QUOTES = 3 };

struct md_chat_input {
    EditLine *editor; // NULL: plain lines
    md_chat_history history;
    FILE *screen;     // stderr's terminal, buffered: the editor writes character by character
    bool continuing;  // inside a message: the other prompt
    unsigned cleared; // Ctrl-C in a row
};

// ---- the terminal ----------------------------------------------------------------------------------------------

// Waits for a byte of standard input. A signal that came before the wait ends it too: signals are blocked but in it.
static bool wait_for_input(void) {
    sigset_t stop, before;
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(STDIN_FILENO, &readable);
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &stop, &before);
    bool ready = !md_interrupted() && pselect(STDIN_FILENO + 1, &readable, NULL, NULL, NULL, &before) > 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ready;
}

// The editor's source of characters. Its own would go on reading after a signal.
static int read_character(EditLine *editor, wchar_t *out) {
    mbstate_t state = {0};
    for (;;) {
        char byte = 0;
        *out = 0;
        ssize_t n = wait_for_input() ? read(STDIN_FILENO, &byte, 1) : -1;
        if (n == 0) return 0;
        if (n < 0 && md_interrupted()) return -1;
        if (n < 0 && errno != EINTR) return -1;
        if (n < 0) { // back from a stop, or another size
            el_set(editor, EL_REFRESH);
            continue;
        }
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2) continue; // the first bytes of a character
        if (used == (size_t)-1) *out = 0xFFFD;
        return 1;
    }
}

static char *prompt(EditLine *editor) {
    static char first[] = "> ", next[] = "... ";
    md_chat_input *input = NULL;
    el_get(editor, EL_CLIENTDATA, &input);
    return input && input->continuing ? next : first;
}

static md_status open_editor(md_chat_input *input, bool keep, md_error *err) {
    int fd = dup(STDERR_FILENO);
    input->screen = fd < 0 ? NULL : fdopen(fd, "w");
    if (!input->screen && fd >= 0) close(fd);
    input->editor = input->screen ? el_init("megadecode", stdin, input->screen, stderr) : NULL;
    if (!input->editor) return md_fail(err, MD_E_IO, "the terminal can't be used for line editing");
    MD_TRY(md_chat_history_open(&input->history, keep, err));
    el_set(input->editor, EL_CLIENTDATA, input);
    el_set(input->editor, EL_PROMPT, prompt);
    el_set(input->editor, EL_EDITOR, "emacs");
    el_set(input->editor, EL_SIGNAL, 1);
    el_set(input->editor, EL_HIST, history, input->history.entries);
    el_set(input->editor, EL_GETCFN, read_character);
    el_source(input->editor, NULL); // the user's ~/.editrc
    return MD_OK;
}

md_status md_chat_input_open(bool keep, md_chat_input **out, md_error *err) {
    *out = NULL;
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    md_chat_input *input = calloc(1, sizeof *input);
    if (!input) return md_fail(err, MD_E_MEMORY, "out of memory");
    md_status status = isatty(STDIN_FILENO) ? open_editor(input, keep, err) : MD_OK;
    if (status == MD_OK)
        *out = input;
    else
        md_chat_input_close(input);
    return status;
}

void md_chat_input_close(md_chat_input *input) {
    if (!input) return;
    if (input->editor) el_end(input->editor);
    md_chat_history_close(&input->history);
    if (input->screen) fclose(input->screen);
    free(input);
}

bool md_chat_input_edits(const md_chat_input *input) { return input->editor != NULL; }

// ---- lines -----------------------------------------------------------------------------------------------------

static md_status too_long(const md_buf *text, md_error *err) {
    return md_fail(err, MD_E_USAGE, "a message: found more than %zu bytes, or memory ran out", text->max);
}

// Appends a line without its end.
static md_status edit_line(md_chat_input *input, md_buf *text, md_chat_read *out, md_error *err) {
    int n = 0;
    el_set(input->editor, EL_PREP_TERM, 1); // before the prompt is there, so that the terminal echoes nothing by itself
    const char *line = el_gets(input->editor, &n);
    if (!line || n <= 0) {
        bool cleared = md_interrupted() && !md_terminated();
        *out = cleared ? MD_CHAT_READ_CLEARED : MD_CHAT_READ_END;
        fputc('\n', stderr);
        return MD_OK;
    }
    if (n > 1) md_chat_history_add(&input->history, line);
    if (line[n - 1] == '\n') n--;
    return md_buf_append(text, line, (size_t)n) == MD_OK ? MD_OK : too_long(text, err);
}

static md_status plain_line(md_buf *text, md_chat_read *out, md_error *err) {
    size_t start = text->size;
    int c;
    while ((c = getc_unlocked(stdin)) != EOF && c != '\n')
        if (md_buf_putc(text, (char)c) != MD_OK) return too_long(text, err);
    if (c == EOF && ferror(stdin) && !md_interrupted())
        return md_fail(err, MD_E_IO, "standard input: cannot read: %s", strerror(errno));
    if (md_interrupted() || (c == EOF && text->size == start)) *out = MD_CHAT_READ_END;
    if (text->size > start && text->data[text->size - 1] == '\r') text->data[--text->size] = 0;
    return MD_OK;
}

static md_status read_line(md_chat_input *input, md_buf *text, md_chat_read *out, md_error *err) {
    return input->editor ? edit_line(input, text, out, err) : plain_line(text, out, err);
}

static bool ends_in_quotes(const md_buf *text, size_t from) {
    return text->size >= from + QUOTES && memcmp(text->data + text->size - QUOTES, "\"\"\"", QUOTES) == 0;
}

static void cut(md_buf *text, size_t size) {
    text->size = size;
    text->data[size] = 0;
}

// The rest of a message whose first line is in *text.
static md_status read_rest(md_chat_input *input, md_chat_message *message, md_chat_read *out, md_error *err) {
    md_buf *text = &message->text;
    message->block = text->size >= QUOTES && memcmp(text->data, "\"\"\"", QUOTES) == 0;
    size_t line = message->block ? QUOTES : 0; // where the last line begins
    for (;;) {
        bool more =
            message->block ? !ends_in_quotes(text, line) : text->size > line && text->data[text->size - 1] == '\\';
        if (!more) break;
        if (!message->block) cut(text, text->size - 1);
        if (md_buf_putc(text, '\n') != MD_OK) return too_long(text, err);
        line = text->size;
        input->continuing = true;
        md_status status = read_line(input, text, out, err);
        input->continuing = false;
        if (status != MD_OK || *out == MD_CHAT_READ_CLEARED || md_interrupted()) return status;
        if (*out != MD_CHAT_READ_END) continue;
        *out = MD_CHAT_READ_MESSAGE; // what is there is the message; the end comes again at the next reading
        cut(text, text->size - 1);
        return MD_OK;
    }
    if (message->block) cut(text, text->size - QUOTES);
    return MD_OK;
}

static void take_off_quotes(md_buf *text) {
    size_t skip = QUOTES + (text->size > QUOTES && text->data[QUOTES] == '\n');
    memmove(text->data, text->data + skip, text->size - skip);
    cut(text, text->size - skip);
    if (text->size && text->data[text->size - 1] == '\n') cut(text, text->size - 1);
}

md_status md_chat_input_read(md_chat_input *input, md_chat_message *message, md_chat_read *out, md_error *err) {
    md_buf_clear(&message->text);
    message->block = false;
    *out = MD_CHAT_READ_MESSAGE;
    if (input->editor) md_interrupt_clear();
    MD_TRY(read_line(input, &message->text, out, err));
    if (*out == MD_CHAT_READ_MESSAGE && message->text.size) MD_TRY(read_rest(input, message, out, err));
    if (message->block && *out == MD_CHAT_READ_MESSAGE) take_off_quotes(&message->text);
    if (*out != MD_CHAT_READ_CLEARED)
        input->cleared = 0;
    else if (++input->cleared == 2)
        fputs("Ctrl-D or /quit leaves the chat.\n", stderr);
    return MD_OK;
}
