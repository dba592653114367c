#define _GNU_SOURCE // sched_getaffinity
#include "base/cpu_info.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

// The value of a line "key   : value" into `out`, where the line has that key and a value.
static void take(const char *line, const char *key, char *out, size_t size) {
    size_t n = strlen(key);
    const char *colon = strchr(line, ':');
    if (out[0] || strncmp(line, key, n) != 0 || !colon || line + n + strspn(line + n, " \t") != colon) return;
    colon += 1 + strspn(colon + 1, " \t");
    snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
}

const char *md_cpu_name_from(const char *path, char *out, size_t size) {
    char line[256], maker[32] = "", part[32] = "";
    struct utsname system;
    out[0] = 0;
    FILE *file = path ? fopen(path, "re") : NULL;
    while (file && !out[0] && fgets(line, sizeof line, file)) {
        take(line, "model name", out, size);
        take(line, "CPU implementer", maker, sizeof maker);
        take(line, "CPU part", part, sizeof part);
    }
    if (file) fclose(file);
    if (out[0]) return out;
    const char *machine = uname(&system) == 0 && system.machine[0] ? system.machine : "unknown";
    if (maker[0] && part[0])
        snprintf(out, size, "%s processor (implementer %s, part %s)", machine, maker, part);
    else
        snprintf(out, size, "%s processor", machine);
    return out;
}

const char *md_cpu_name(char *out, size_t size) { return md_cpu_name_from("/proc/cpuinfo", out, size); }

uint32_t md_cpu_count(void) {
    cpu_set_t set; // a machine of more than CPU_SETSIZE CPUs makes the call fail
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    long online = count > 0 ? count : sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}
