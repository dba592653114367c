// The list of commands: one file a command (cmd_NAME.c), one line here.
#include "cli/commands.h"

const md_command *const md_commands[] = {
    &md_cmd_run,   &md_cmd_chat,  &md_cmd_serve, &md_cmd_inspect, &md_cmd_tokenize, &md_cmd_verify,
    &md_cmd_bench, &md_cmd_synth, &md_cmd_pull,  &md_cmd_devices, &md_cmd_emit,     NULL,
};
