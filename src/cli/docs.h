// Man pages and shell completions, made from the option tables as --help is, so that they can't say something else.
// `megadecode generate-docs DIR` writes them where an installation has them below its share folder; the build runs it.
#ifndef MD_CLI_DOCS_H
#define MD_CLI_DOCS_H

#include "base/buf.h"
#include "cli/option.h"

int md_docs_main(int argc, char **argv); // argv[1] is DIR; returns the exit status

void md_docs_program_page(md_buf *out);                            // megadecode(1)
void md_docs_command_page(md_buf *out, const md_command *command); // megadecode-COMMAND(1)
void md_docs_bash(md_buf *out);
void md_docs_zsh(md_buf *out);
void md_docs_fish(md_buf *out);

#endif
