// This machine's processor, for reports and warnings.
#ifndef MD_BASE_CPU_INFO_H
#define MD_BASE_CPU_INFO_H

#include <stddef.h>
#include <stdint.h>

// As /proc/cpuinfo names it; where it has no name (aarch64), the architecture with the numbers it gives instead. Never
// empty. Returns `out`.
const char *md_cpu_name(char *out, size_t size);
// The same of the text of a file like /proc/cpuinfo; NULL: there is none.
const char *md_cpu_name_from(const char *path, char *out, size_t size);

uint32_t md_cpu_count(void); // CPUs that this process may run on; at least 1

#endif
