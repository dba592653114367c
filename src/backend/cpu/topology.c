#define _GNU_SOURCE // sched_getaffinity
#include "backend/cpu/topology.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The first line of a small file; false where it can't be read.
static bool read_line(const char *path, char *line, size_t size) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool ok = fgets(line, (int)size, file) != NULL;
    fclose(file);
    return ok;
}

static bool is_first_of_core(uint32_t cpu) {
    char path[96], line[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    if (!read_line(path, line, sizeof line)) return true;
    return strtoul(line, NULL, 10) == cpu;
}

// A quota of CPUs from one cgroup folder, v2 ("max 100000" or "150000 100000") or v1; 0 = none.
static double quota_of(const char *folder) {
    char path[600], line[128], *end;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_line(path, line, sizeof line)) {
        double quota = strtod(line, &end);
        double period = strtod(end, NULL);
        return end != line && quota > 0 && period > 0 ? quota / period : 0;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_line(path, line, sizeof line)) return 0;
    double quota = strtod(line, NULL);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (quota <= 0 || !read_line(path, line, sizeof line)) return 0;
    double period = strtod(line, NULL);
    return period > 0 ? quota / period : 0;
}

// The smallest quota on the way from a cgroup up to the root of its hierarchy.
static double quota_upwards(const char *root, const char *group) {
    char folder[500];
    double least = 0;
    snprintf(folder, sizeof folder, "%s%s", root, group);
    while (strlen(folder) >= strlen(root)) {
        double quota = quota_of(folder);
        if (quota > 0 && (least == 0 || quota < least)) least = quota;
        char *slash = strrchr(folder, '/');
        if (!slash) break;
        *slash = '\0';
    }
    return least;
}

static bool has_controller(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
    return false;
}

static double read_quota(void) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[400];
    double least = 0;
    while (file && fgets(line, sizeof line, file)) { // "hierarchy:controllers:path"
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        list++;
        if (*list && !has_controller(list, "cpu")) continue;
        double quota = quota_upwards(*list ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup", strcmp(path, "/") ? path : "");
        if (quota > 0 && (least == 0 || quota < least)) least = quota;
    }
    if (file) fclose(file);
    return least;
}

void md_topology_read(md_topology *out) {
    *out = (md_topology){0};
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
    bool first[MD_MAX_CPUS] = {false};
    for (uint32_t cpu = 0; cpu < MD_MAX_CPUS; cpu++) {
        if (!CPU_ISSET(cpu, &set) || !(first[cpu] = is_first_of_core(cpu))) continue;
        out->cpu[out->count++] = cpu;
    }
    for (uint32_t cpu = 0; cpu < MD_MAX_CPUS; cpu++)
        if (CPU_ISSET(cpu, &set) && !first[cpu]) out->cpu[out->count++] = cpu;
    for (uint32_t cpu = 0; cpu < MD_MAX_CPUS; cpu++) out->cores += first[cpu];
    if (out->count == 0) out->count = 1; // an empty mask cannot be; CPU 0 is as good as any
    if (out->cores == 0) out->cores = out->count;
    out->quota = read_quota();
}

uint32_t md_topology_default_threads(const md_topology *topology) {
    uint32_t threads = topology->cores;
    if (topology->quota > 0 && topology->quota + 0.25 < threads) threads = (uint32_t)(topology->quota + 0.25);
    return threads ? threads : 1;
}
