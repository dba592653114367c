// The public functions that give text and ids as plain allocated arrays, over the tokenizer's growing buffers.
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "gen/rng.h"
#include "text/tokenizer.h"

static const size_t MAX_IDS = (size_t)1 << 28, MAX_TEXT = (size_t)1 << 30;

void md_free(void *memory) { free(memory); }

// Gives the array away, or frees it after a failure.
static md_status give_ids(md_ids *from, md_status status, uint32_t **ids, size_t *n, md_error *err) {
    if (status == MD_OK && !from->data) {
        from->data = malloc(sizeof *from->data);
        if (!from->data) status = md_fail(err, MD_E_MEMORY, "tokenizer: out of memory");
    }
    if (status != MD_OK) {
        md_ids_free(from);
        return status;
    }
    *ids = from->data;
    *n = from->size;
    return MD_OK;
}

// A model without tokenizer.json has none.
static md_status need_tokenizer(const md_tokenizer *tokenizer, md_error *err) {
    return tokenizer ? MD_OK : md_fail(err, MD_E_USAGE, "no tokenizer: the model's folder has no tokenizer.json");
}

md_status md_encode(const md_tokenizer *tokenizer, const char *text, size_t size, uint32_t flags, uint32_t **ids,
                    size_t *n, md_error *err) {
    MD_TRY(need_tokenizer(tokenizer, err));
    md_ids out;
    md_encode_options options = {.add_special = (flags & MD_ENCODE_ADD_SPECIAL) != 0,
                                 .parse_special = (flags & MD_ENCODE_PARSE_SPECIAL) != 0};
    md_ids_init(&out, MAX_IDS);
    md_status status = md_tokenizer_encode(tokenizer, text, size, &options, &out, err);
    return give_ids(&out, status, ids, n, err);
}

md_status md_encode_spans(const md_tokenizer *tokenizer, const md_text_span *spans, size_t span_count, bool add_special,
                          uint32_t **ids, size_t *n, md_error *err) {
    MD_TRY(need_tokenizer(tokenizer, err));
    md_ids out;
    md_ids_init(&out, MAX_IDS);
    md_status status = md_tokenizer_encode_spans(tokenizer, spans, span_count, add_special, &out, err);
    return give_ids(&out, status, ids, n, err);
}

md_status md_decode(const md_tokenizer *tokenizer, const uint32_t *ids, size_t n, bool skip_special, char **text,
                    size_t *size, md_error *err) {
    MD_TRY(need_tokenizer(tokenizer, err));
    md_buf out;
    md_buf_init(&out, MAX_TEXT);
    md_status status = md_tokenizer_decode(tokenizer, ids, n, skip_special, &out, err);
    size_t bytes = out.size;
    char *taken = status == MD_OK ? md_buf_take(&out) : NULL;
    if (status == MD_OK && !taken) status = md_fail(err, MD_E_MEMORY, "tokenizer: out of memory");
    if (status != MD_OK) {
        md_buf_free(&out);
        return status;
    }
    *text = taken;
    *size = bytes;
    return MD_OK;
}

md_status md_tokenizer_check(const md_tokenizer *tokenizer, uint32_t vocab, md_error *err) {
    static const char wrong[] =
        "tokenizer.json: %s %zu, but config.json's \"vocab_size\" is %u: it is not this model's "
        "tokenizer";
    size_t known = md_tokenizer_vocab_size(tokenizer), n;
    uint32_t *ids;
    for (size_t id = vocab; id < known; id++) // control tokens may lie there: they harm nobody until they are used
        if (md_tokenizer_token_bytes(tokenizer, (uint32_t)id, &n) && !md_tokenizer_is_special(tokenizer, (uint32_t)id))
            return md_fail(err, MD_E_FORMAT, wrong, "has the token", id, vocab);
    MD_TRY(md_encode(tokenizer, "Hello", 5, MD_ENCODE_ADD_SPECIAL, &ids, &n, err));
    md_status status = n ? MD_OK : md_fail(err, MD_E_FORMAT, "tokenizer.json: makes no tokens of a text");
    for (size_t i = 0; i < n && status == MD_OK; i++)
        if (ids[i] >= vocab)
            status = md_fail(err, MD_E_FORMAT, wrong, "begins a text with the token", (size_t)ids[i], vocab);
    md_free(ids);
    return status;
}

enum { SEED_BITS = 53 }; // of a seed made here: every reader of JSON can take such a number and send it back

uint64_t md_random_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed) return seed >> (64 - SEED_BITS);
    struct timespec now; // a kernel without getrandom: the clock will do, this is no secret
    clock_gettime(CLOCK_REALTIME, &now);
    return md_mix64((uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec) >> (64 - SEED_BITS);
}
