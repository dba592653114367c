// Every command's entry. A command is a file cmd_NAME.c that defines its struct of arguments, its option tables and
// `const md_command md_cmd_NAME`; it is declared here and listed in commands.c.
#ifndef MD_CLI_COMMANDS_H
#define MD_CLI_COMMANDS_H

#include "cli/option.h"

extern const md_command md_cmd_run;
extern const md_command md_cmd_chat;
extern const md_command md_cmd_inspect;
extern const md_command md_cmd_tokenize;
extern const md_command md_cmd_verify;
extern const md_command md_cmd_bench;
extern const md_command md_cmd_serve;
extern const md_command md_cmd_synth;
extern const md_command md_cmd_devices;
extern const md_command md_cmd_emit;
extern const md_command md_cmd_pull;

#endif
