// Completions for bash, zsh and fish.
#include <string.h>

#include "cli/docs.h"

// `text` with each character of `special` preceded by `escape`.
static void put_escaped(md_buf *out, const char *text, const char *special, const char *escape) {
    for (; *text; text++) {
        if (strchr(special, *text)) md_buf_puts(out, escape);
        md_buf_putc(out, *text);
    }
}

static void for_each_option(md_buf *out, const md_command *command,
                            void (*print)(md_buf *out, const md_command *command, const md_option *option)) {
    for (size_t g = 0; g < command->group_count; g++)
        for (size_t i = 0; i < command->groups[g].count; i++) print(out, command, &command->groups[g].options[i]);
}

// ---- bash --------------------------------------------------------------------------------------------------------

static void bash_words(md_buf *out, const md_command *command, const md_option *o) {
    (void)command;
    if (o->letter) md_buf_printf(out, " -%c", o->letter);
    md_buf_printf(out, " --%s", o->name);
}

static void bash_words_with_value(md_buf *out, const md_command *command, const md_option *o) {
    if (o->arg) bash_words(out, command, o);
}

void md_docs_bash(md_buf *out) {
    md_buf_puts(out,
                "# bash completion for megadecode; made from its option tables\n_megadecode() {\n"
                "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options= values=\n"
                "    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        mapfile -t COMPREPLY < <(compgen "
                "-W \"--help --version");
    for (size_t i = 0; md_commands[i]; i++) md_buf_printf(out, " %s", md_commands[i]->name);
    md_buf_puts(out, "\" -- \"$word\")\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; md_commands[i]; i++) {
        md_buf_printf(out, "    %s)\n        options=\"--help", md_commands[i]->name);
        for_each_option(out, md_commands[i], bash_words);
        md_buf_puts(out, "\"\n        values=\"");
        for_each_option(out, md_commands[i], bash_words_with_value);
        md_buf_puts(out, " \" ;;\n");
    }
    md_buf_puts(out, "    esac\n    if [[ $word == -* && $values != *\" $before \"* ]]; then\n"
                     "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n    else\n"
                     "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n    fi\n}\n"
                     "complete -o filenames -F _megadecode megadecode\n");
}

// ---- zsh ---------------------------------------------------------------------------------------------------------

// Inside single quotes, where zsh's own '[', ']' and ':' mean something too.
static void zsh_text(md_buf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '\'')
            md_buf_puts(out, "'\\''");
        else if (strchr("[]:\\", *text))
            md_buf_printf(out, "\\%c", *text);
        else
            md_buf_putc(out, *text);
    }
}

static void zsh_option(md_buf *out, const md_command *command, const md_option *o) {
    (void)command;
    md_buf_puts(out, " \\\n            ");
    bool repeats = o->type == MD_OPT_LIST;
    if (o->letter && !repeats) md_buf_printf(out, "'(-%c --%s)'", o->letter, o->name);
    if (o->letter)
        md_buf_printf(out, "{%s-%c,%s--%s}'[", repeats ? "\\*" : "", o->letter, repeats ? "\\*" : "", o->name);
    else
        md_buf_printf(out, "'%s--%s[", repeats ? "*" : "", o->name);
    zsh_text(out, o->help);
    md_buf_putc(out, ']');
    if (o->arg) {
        md_buf_putc(out, ':');
        zsh_text(out, o->arg);
        md_buf_puts(out, ":_files");
    }
    md_buf_putc(out, '\'');
}

void md_docs_zsh(md_buf *out) {
    md_buf_puts(out, "#compdef megadecode\n# zsh completion for megadecode; made from its option tables\n"
                     "_megadecode() {\n    local -a commands=(\n");
    for (size_t i = 0; md_commands[i]; i++) {
        md_buf_printf(out, "        '%s:", md_commands[i]->name);
        put_escaped(out, md_commands[i]->summary, "'", "'\\'");
        md_buf_puts(out, "'\n");
    }
    md_buf_puts(out,
                "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
                "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in\n");
    for (size_t i = 0; md_commands[i]; i++) {
        md_buf_printf(out, "    %s)\n        _arguments", md_commands[i]->name);
        for_each_option(out, md_commands[i], zsh_option);
        md_buf_puts(out, " \\\n            '--help[this help]' '*:file:_files' ;;\n");
    }
    md_buf_puts(out, "    esac\n}\n_megadecode \"$@\"\n");
}

// ---- fish --------------------------------------------------------------------------------------------------------

static void fish_description(md_buf *out, const char *text) {
    md_buf_puts(out, " -d '");
    put_escaped(out, text, "'\\", "\\");
    md_buf_puts(out, "'\n");
}

static void fish_option(md_buf *out, const md_command *command, const md_option *o) {
    md_buf_printf(out, "complete -c megadecode -n '__fish_seen_subcommand_from %s' -l %s", command->name, o->name);
    if (o->letter) md_buf_printf(out, " -s %c", o->letter);
    if (o->arg) md_buf_puts(out, " -r");
    fish_description(out, o->help);
}

void md_docs_fish(md_buf *out) {
    md_buf_puts(out, "# fish completion for megadecode; made from its option tables\n");
    for (size_t i = 0; md_commands[i]; i++) {
        md_buf_printf(out, "complete -c megadecode -n __fish_use_subcommand -f -a %s", md_commands[i]->name);
        fish_description(out, md_commands[i]->summary);
        for_each_option(out, md_commands[i], fish_option);
    }
}
