// The input is a text, any bytes, for the shipped tokenizer. It must be encoded; the ids decode to the text when that
// is valid UTF-8, streamed as in one go; and without parse_special there is no control token among them.
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "text/detok.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

static void check(const md_tokenizer *t, const char *text, size_t n, bool parse) {
    md_ids ids;
    md_buf whole, streamed;
    md_error err;
    md_ids_init(&ids, 1 << 22);
    md_buf_init(&whole, 1 << 22);
    md_buf_init(&streamed, 1 << 22);
    const md_encode_options options = {.add_special = false, .parse_special = parse};
    require(md_tokenizer_encode(t, text, n, &options, &ids, &err) == MD_OK);
    require(md_tokenizer_decode(t, ids.data, ids.size, false, &whole, &err) == MD_OK);
    md_detok detok;
    md_detok_init(&detok, t, false, false);
    for (size_t i = 0; i < ids.size; i++) {
        require(parse || !md_tokenizer_is_special(t, ids.data[i]));
        require(md_detok_put(&detok, ids.data[i], &streamed, &err) == MD_OK);
    }
    require(md_detok_flush(&detok, &streamed, &err) == MD_OK);
    require(whole.size == streamed.size);
    require(memcmp(md_buf_str(&whole), md_buf_str(&streamed), whole.size) == 0);
    if (md_utf8_valid_prefix(text, n) == n)
        require(whole.size == n && memcmp(md_buf_str(&whole), n ? text : "", n) == 0);
    md_ids_free(&ids);
    md_buf_free(&whole);
    md_buf_free(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static md_tokenizer *t; // one for the life of the process
    if (!t) require(md_tokenizer_open("models/fairytales", &t, NULL) == MD_OK);
    check(t, (const char *)data, size, true);
    check(t, (const char *)data, size, false);
    return 0;
}
