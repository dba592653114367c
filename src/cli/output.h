// Data on stdout, and how failures are said. A closed pipe (`| head`) ends the output quietly; any other write that
// fails makes the program fail.
#ifndef MD_CLI_OUTPUT_H
#define MD_CLI_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

bool md_out_write(const char *bytes, size_t n); // and flushes; false: nothing more can be written
bool md_out_json(json_t *object);               // one line; takes the reference
json_t *md_out_number(double number);           // null where JSON has no such number: infinite or NaN
// Which of the forms (`names`, of them `count`; the first where nothing is said) --output and --json ask for: its index
// in *form. MD_E_USAGE where it is none of them, or where --json stands beside another.
md_status md_out_form(const char *output, bool json, const char *const *names, int count, int *form, md_error *err);
// Flushes stdout; JSON that lacked memory is a failure, too. `status` is what the program is about to exit with; the
// result is what it exits with.
int md_out_finish(int status);

// Says the error on stderr as "megadecode COMMAND: message", and with `json` as {"error": {"status", "message"}} on
// stdout. Returns the exit status: MD_EXIT_USAGE for MD_E_USAGE, else MD_EXIT_FAILED.
int md_out_error(const char *command, bool json, const md_error *error);

#endif
