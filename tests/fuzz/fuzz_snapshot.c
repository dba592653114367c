// The input is a whole snapshot: config.json, generation_config.json, kv_config.json, the weights' index and the JSON
// header of model.safetensors, with a NUL after each; an empty part is a file that is not there. The data behind the
// header is a hole. What is accepted makes a plan that the checker accepts, with a layout for both codecs.
#include <fcntl.h>
#include <string.h>

#include "fuzz/scratch.h"
#include "plan/check.h"
#include "plan/tile_mma.h"

enum { PARTS = 5, WORKERS = 3 };
static const uint64_t hole = (uint64_t)1 << 40; // bytes: the file is sparse

static void write_or_remove(const char *name, const char *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch_dir(), name);
    if (n)
        scratch_write(name, bytes, n);
    else
        unlink(path);
}

// The greatest number behind "data_offsets" is where the data ends.
static uint64_t data_end(const char *header, size_t n) {
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (header[i] < '0' || header[i] > '9') continue;
        uint64_t value = 0;
        for (; i < n && header[i] >= '0' && header[i] <= '9'; i++)
            value = value < hole ? value * 10 + (uint64_t)(header[i] - '0') : hole;
        if (value > end && i < n && header[i] == ']') end = value;
    }
    return end;
}

static void write_weights(const char *header, size_t n) {
    char path[128];
    write_or_remove("model.safetensors", header, n);
    if (!n) return;
    uint64_t size = n, end = data_end(header, n);
    snprintf(path, sizeof path, "%s/model.safetensors", scratch_dir());
    FILE *file = fopen(path, "wb");
    require(file != NULL && fwrite(&size, sizeof size, 1, file) == 1 && fwrite(header, 1, n, file) == n);
    require(fclose(file) == 0);
    if (truncate(path, (off_t)(sizeof size + n + end)) != 0) return; // a size the file system does not have
}

static void use(const md_snapshot *snapshot) {
    static const md_tile_codec *const codecs[] = {&md_codec_lanes, &md_codec_mma};
    md_plan *plan;
    md_error err = {0};
    require(md_plan_build(snapshot, &plan, &err) == MD_OK);
    require(md_plan_check(plan, &err) == MD_OK);
    for (size_t i = 0; i < 2; i++) {
        md_layout *layout;
        require(md_layout_build(plan, codecs[i], WORKERS, &layout, &err) == MD_OK);
        md_layout_free(layout);
    }
    md_plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[PARTS - 1] = {"config.json", "generation_config.json", "kv_config.json",
                                                 "model.safetensors.index.json"};
    const char *at = (const char *)data, *end = at + size, *part;
    size_t n;
    for (size_t i = 0; i < PARTS - 1; i++) {
        part = next_part(&at, end, &n);
        write_or_remove(names[i], part, n);
    }
    part = next_part(&at, end, &n);
    write_weights(part, n);
    md_snapshot *snapshot;
    md_error err = {0};
    if (md_snapshot_open(scratch_dir(), &snapshot, &err) == MD_OK) {
        use(snapshot);
        md_snapshot_close(snapshot);
    } else {
        require(err.message[0] != 0);
    }
    return 0;
}
