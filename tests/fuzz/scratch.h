// A folder of a fuzz target's own, in memory where the system has /dev/shm; made by the first call.
#ifndef MD_TESTS_FUZZ_SCRATCH_H
#define MD_TESTS_FUZZ_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

static char scratch_path[64];

static inline void scratch_remove(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", scratch_path);
    if (system(command) != 0) return; // nothing to be done about it at the end
}

static inline const char *scratch_dir(void) {
    if (scratch_path[0]) return scratch_path;
    snprintf(scratch_path, sizeof scratch_path, "%s/megadecode-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    require(mkdtemp(scratch_path) != NULL);
    atexit(scratch_remove);
    return scratch_path;
}

// Writes a file of the folder, over what was there.
static inline void scratch_write(const char *name, const char *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch_dir(), name);
    FILE *file = fopen(path, "wb");
    require(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

#endif
