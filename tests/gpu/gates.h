// What the gates' files share.
#ifndef GATES_H
#define GATES_H

#include <stdbool.h>
#include <stdint.h>

void gate(bool ok, const char *text); // a line; counts failures

void gate_sampling(const char *path, uint32_t tokens, uint32_t groups); // 0 groups: all

#endif
