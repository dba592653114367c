// The input is a config.json and, as another reading of the same bytes, a kv_config.json. Whatever is accepted must be
// inside the bounds that the rest of the program relies on.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "model/config.h"

static void check(const md_config *c) {
    require(c->layers >= 1 && c->layers <= MD_MAX_LAYERS && c->vocab >= 1 && c->vocab <= MD_MAX_VOCAB);
    require(c->hidden >= 1 && c->hidden <= MD_MAX_HIDDEN && c->ffn >= 1 && c->ffn <= MD_MAX_HIDDEN);
    require(c->kv_heads >= 1 && c->q_heads % c->kv_heads == 0 && c->head_dim >= 2 && c->head_dim % 2 == 0);
    require(c->head_dim <= MD_MAX_HEAD_DIM && (uint64_t)c->q_heads * c->head_dim <= MD_MAX_HIDDEN);
    require(c->context >= 1 && c->context <= MD_MAX_CONTEXT && c->norm_eps > 0 && c->rope.theta >= 1);
    require(c->eos_count <= MD_MAX_EOS && c->bos < (int64_t)c->vocab);
    for (uint32_t i = 0; i < c->eos_count; i++) require(c->eos[i] < c->vocab);
    for (uint32_t i = 0; i < MD_LAYER_MATRICES; i++) {
        char path[128];
        md_quant_format format;
        snprintf(path, sizeof path, "model.layers.0.%s", md_config_layer_module(c, i).name);
        if (md_config_module(c, path, true, &format, NULL) != MD_OK) continue;
        require(format.bits <= 8 && format.bits != 1 && format.bits != 7 && (format.bits == 0) == (format.group == 0));
        require(format.group == 0 || format.group == 32 || format.group == 64 || format.group == 128);
    }
}

static void read_kv_config(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    md_kv_format *formats;
    if (md_kv_config_read(path, 6, 64, &formats, NULL) == MD_OK)
        for (int i = 0; i < 6; i++)
            require(formats[i].bits == 0 || (formats[i].bits % 4 == 0 && 64 % formats[i].group == 0));
    free(formats);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    md_config config;
    md_error err = {0};
    if (md_config_parse((const char *)data, size, "config.json", &config, &err) == MD_OK) {
        check(&config);
        md_config_free(&config);
    } else {
        require(err.message[0] != 0);
    }
    read_kv_config(data, size);
    return 0;
}
