// The input is a tokenizer.json, then a NUL and a text. Whatever file is accepted must encode and decode the text
// without a fault, with ids that are its own tokens.
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "text/detok.h"
#include "text/tokenizer.h"

static void use(const md_tokenizer *t, const char *text, size_t n, bool parse) {
    md_ids ids;
    md_buf whole, streamed;
    md_error err;
    md_ids_init(&ids, 1 << 16);
    md_buf_init(&whole, 1 << 20);
    md_buf_init(&streamed, 1 << 20);
    const md_encode_options options = {.add_special = true, .parse_special = parse};
    (void)md_tokenizer_encode(t, text, n, &options, &ids, &err);
    for (size_t i = 0; i < ids.size; i++)
        if (!md_tokenizer_token(t, ids.data[i], NULL)) abort();
    (void)md_tokenizer_decode(t, ids.data, ids.size, false, &whole, &err);
    md_detok detok;
    md_detok_init(&detok, t, false, false);
    for (size_t i = 0; i < ids.size && md_detok_put(&detok, ids.data[i], &streamed, &err) == MD_OK; i++) {
    }
    (void)md_detok_flush(&detok, &streamed, &err);
    md_ids_free(&ids);
    md_buf_free(&whole);
    md_buf_free(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *)data;
    const char *nul = size ? memchr(bytes, 0, size) : NULL;
    const md_tokenizer_source source = {.json = bytes, .json_size = nul ? (size_t)(nul - bytes) : size};
    const char *text = nul ? nul + 1 : "ab the <s> 12 \xe2\x82";
    size_t n = nul ? size - source.json_size - 1 : strlen(text);
    md_tokenizer *t;
    md_error err = {0};
    if (md_tokenizer_open_memory(&source, &t, &err) != MD_OK) {
        if (!err.message[0]) abort();
        return 0;
    }
    use(t, text, n, true);
    use(t, text, n, false);
    md_tokenizer_close(t);
    return 0;
}
