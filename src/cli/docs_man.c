// Man pages in roff's man macros.
#include <ctype.h>
#include <string.h>

#include "cli/docs.h"
#include "megadecode.h"

// Text as roff prints it unchanged: '-' as the ASCII sign that can be copied, no line that looks like a request.
static void put(md_buf *out, const char *text) {
    bool line_start = out->size == 0 || out->data[out->size - 1] == '\n';
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\'')) md_buf_puts(out, "\\&");
        if (*text == '-')
            md_buf_puts(out, "\\-");
        else if (*text == '\\')
            md_buf_puts(out, "\\e");
        else
            md_buf_putc(out, *text);
        line_start = *text == '\n';
    }
}

static void put_upper(md_buf *out, const char *text) {
    for (; *text; text++) md_buf_putc(out, (char)toupper((unsigned char)*text));
}

static void put_header(md_buf *out, const char *command, const char *summary) {
    md_buf_puts(out, ".TH MEGADECODE");
    if (command) {
        md_buf_puts(out, "\\-");
        put_upper(out, command);
    }
    md_buf_printf(out, " 1 \"\" \"megadecode %s\" \"megadecode\"\n.SH NAME\nmegadecode", md_version());
    if (command) {
        md_buf_puts(out, "\\-");
        put(out, command);
    }
    md_buf_puts(out, " \\- ");
    put(out, summary);
    md_buf_puts(out, "\n.SH SYNOPSIS\n.B megadecode\n");
}

static void put_option(md_buf *out, const md_option *o) {
    md_buf_puts(out, ".TP\n");
    if (o->letter) md_buf_printf(out, "\\fB\\-%c\\fR, ", o->letter);
    md_buf_puts(out, "\\fB\\-\\-");
    put(out, o->name);
    md_buf_puts(out, "\\fR");
    if (o->arg) {
        md_buf_puts(out, " \\fI");
        put(out, o->arg);
        md_buf_puts(out, "\\fR");
    }
    md_buf_putc(out, '\n');
    put(out, o->help);
    md_buf_putc(out, '\n');
}

void md_docs_command_page(md_buf *out, const md_command *command) {
    put_header(out, command->name, command->summary);
    put(out, command->name);
    md_buf_puts(out, "\n[options]\n");
    if (*command->usage) {
        put(out, command->usage);
        md_buf_putc(out, '\n');
    }
    for (size_t g = 0; g < command->group_count; g++) {
        md_buf_puts(out, ".SH ");
        put_upper(out, command->groups[g].title);
        md_buf_puts(out, " OPTIONS\n");
        for (size_t i = 0; i < command->groups[g].count; i++) put_option(out, &command->groups[g].options[i]);
    }
    if (command->details) {
        md_buf_puts(out, ".SH DESCRIPTION\n.nf\n");
        put(out, command->details);
        md_buf_puts(out, "\n.fi\n");
    }
    md_buf_puts(out, ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage.\n.SH SEE ALSO\n.BR megadecode (1)\n");
}

static void put_variable(md_buf *out, const char *name, const char *help) {
    md_buf_printf(out, ".TP\n.B %s\n%s\n", name, help);
}

void md_docs_program_page(md_buf *out) {
    put_header(out, NULL, "run language models in MLX's quantized format");
    md_buf_puts(out, ".I command\n[options]\n.SH DESCRIPTION\n"
                     "Runs Llama\\-family models in MLX's quantized format. The whole decode step, from a token's "
                     "embedding to the next token, is computed in one resident kernel: a parked team of threads on a "
                     "CPU, one launch on an NVIDIA GPU.\n.SH COMMANDS\n");
    for (size_t i = 0; md_commands[i]; i++) {
        md_buf_puts(out, ".TP\n.BR megadecode\\-");
        put(out, md_commands[i]->name);
        md_buf_puts(out, " (1)\n");
        put(out, md_commands[i]->summary);
        md_buf_putc(out, '\n');
    }
    md_buf_puts(out, ".SH ENVIRONMENT\n");
    put_variable(out, "MEGADECODE_MODEL", "the model where \\fB\\-\\-model\\fR is not given");
    put_variable(out, "MEGADECODE_ENGINE", "the engine where \\fB\\-\\-engine\\fR is not given");
    put_variable(out, "MEGADECODE_DEVICE", "the device where \\fB\\-\\-device\\fR is not given");
    put_variable(out, "MEGADECODE_THREADS", "the CPU threads where \\fB\\-\\-threads\\fR is not given");
    put_variable(out, "MEGADECODE_GROUPS", "the workers of a step where \\fB\\-\\-groups\\fR is not given");
    put_variable(out, "MEGADECODE_CPU",
                 "the best kernels to use: scalar, avx2, avx512, avx512vnni, avx512bf16 or neon");
    put_variable(out, "MEGADECODE_HISTORY", "the file of lines typed in chats; empty: none");
    put_variable(out, "MEGADECODE_LOG",
                 "what is said on standard error: error, warn (where it is not set), info or debug");
    put_variable(out, "MEGADECODE_API_KEY",
                 "the key that clients of \\fBserve\\fR must send where \\fB\\-\\-api\\-key\\fR is not given");
    put_variable(out, "HF_HUB_CACHE, HF_HOME", "where the hub's cache of models lies");
    put_variable(out, "HF_TOKEN, HF_TOKEN_PATH", "the token for the hub, or the file that holds it");
    put_variable(out, "HF_ENDPOINT", "the hub's address");
    put_variable(out, "HF_HUB_OFFLINE", "when set (not to 0), nothing is downloaded");
    put_variable(out, "NO_COLOR", "no colours, when set");
    md_buf_puts(out, ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage.\n.SH SEE ALSO\n");
    for (size_t i = 0; md_commands[i]; i++) {
        md_buf_puts(out, ".BR megadecode\\-");
        put(out, md_commands[i]->name);
        md_buf_puts(out, md_commands[i + 1] ? " (1),\n" : " (1)\n");
    }
}
