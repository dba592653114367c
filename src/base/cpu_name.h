// What this machine's processor is called, for reports.
#ifndef MD_BASE_CPU_NAME_H
#define MD_BASE_CPU_NAME_H

#include <stddef.h>

// As /proc/cpuinfo names it; where it has no name (aarch64), the architecture with the numbers it gives instead. Never
// empty. Returns `out`.
const char *md_cpu_name(char *out, size_t size);
// The same of the text of a file like /proc/cpuinfo; NULL: there is none.
const char *md_cpu_name_from(const char *path, char *out, size_t size);

#endif
