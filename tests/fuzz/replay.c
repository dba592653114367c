// Feeds every file of the folders named on the command line to the fuzz target.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "fuzz/fuzz.h"

static int replay(const char *dir) {
    DIR *folder = opendir(dir);
    if (!folder) {
        fprintf(stderr, "%s: cannot be listed\n", dir);
        return 1;
    }
    const struct dirent *entry;
    unsigned count = 0;
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.') continue;
        char *path = md_path_join(dir, entry->d_name), *bytes;
        size_t size;
        md_error err = {0};
        if (md_file_read_all(path, 1 << 26, &bytes, &size, &err) != MD_OK) {
            fprintf(stderr, "%s\n", err.message);
            free(path);
            closedir(folder);
            return 1;
        }
        LLVMFuzzerTestOneInput((const uint8_t *)bytes, size);
        free(bytes);
        free(path);
        count++;
    }
    closedir(folder);
    printf("%s: %u inputs\n", dir, count);
    return count == 0;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) failed |= replay(argv[i]);
    return failed;
}
