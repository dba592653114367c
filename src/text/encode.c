// Encoding: the order in which the parts of a tokenizer are applied to a text.
//
//   bytes -> valid UTF-8 -> added tokens cut out -> normalized -> added tokens cut out again -> words -> BPE -> ids
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/utf8.h"

// The working memory of one call.
typedef struct encoder {
    const md_tokenizer *t;
    md_ids *out;
    md_error *err;
    bool guarded;     // some of the text may not use control tokens
    md_buf text;      // the whole text, valid UTF-8
    md_range *ranges; // owned: parts of the text that may use control tokens, when guarded
    size_t n_ranges;
    md_buf normalized, spare;
    md_pretok_scratch pretok;
    md_bpe_scratch bpe;
} encoder;

static void encoder_free(encoder *e) {
    md_buf_free(&e->text);
    free(e->ranges);
    md_buf_free(&e->normalized);
    md_buf_free(&e->spare);
    md_pretok_scratch_free(&e->pretok);
    md_bpe_scratch_free(&e->bpe);
}

// Puts the spans together, with U+FFFD for what is not UTF-8, and notes where control tokens may be recognised. A
// character that lies across a border belongs to the span that its last byte is in.
static md_status join_spans(encoder *e, const md_text_span *spans, size_t n_spans) {
    size_t total = 0;
    for (size_t i = 0; i < n_spans; i++) {
        if (spans[i].size > MD_TOKENIZER_MAX_TEXT - total)
            return md_fail(e->err, MD_E_CONTEXT, "the text has more than %d bytes", MD_TOKENIZER_MAX_TEXT);
        total += spans[i].size;
        e->guarded |= !spans[i].parse;
    }
    md_buf_init(&e->spare, total);
    md_buf_init(&e->text, total * 3); // U+FFFD is three bytes
    e->ranges = calloc(n_spans + 1, sizeof *e->ranges);
    if (!e->ranges) return md_fail(e->err, MD_E_MEMORY, "out of memory for %zu pieces of text", n_spans);
    for (size_t i = 0; i < n_spans; i++) md_buf_append(&e->spare, spans[i].text, spans[i].size);
    size_t at = 0, span = 0, span_end = n_spans ? spans[0].size : 0, size;
    const char *raw = md_buf_str(&e->spare);
    while (at < total && !e->spare.failed) {
        while (span_end <= at) span_end += spans[++span].size; // skips empty spans; total says that there are more
        size_t valid = md_utf8_valid_prefix(raw + at, span_end - at), start = e->text.size;
        if (valid > 0) {
            md_buf_append(&e->text, raw + at, valid);
            at += valid;
        } else {
            bool whole = md_utf8_scan(raw + at, total - at, &size) == MD_UTF8_CHAR;
            md_buf_append(&e->text, whole ? raw + at : MD_UTF8_REPLACEMENT, whole ? size : 3);
            at += size;
            while (span_end < at) span_end += spans[++span].size;
        }
        if (!spans[span].parse) continue;
        md_range *last = e->n_ranges ? &e->ranges[e->n_ranges - 1] : NULL;
        if (last && last->end == start) {
            last->end = e->text.size;
        } else {
            e->ranges[e->n_ranges++] = (md_range){start, e->text.size};
        }
    }
    if (e->spare.failed || e->text.failed)
        return md_fail(e->err, MD_E_MEMORY, "out of memory for %zu bytes of text", total);
    return MD_OK;
}

// Text without added tokens: words, and their tokens.
static md_status encode_plain(encoder *e, const char *text, size_t n, bool origin) {
    MD_TRY(md_pretok_run(&e->t->pretok, text, n, origin, &e->pretok, e->err));
    for (size_t i = 0; i < e->pretok.words.n; i++) {
        md_word word = e->pretok.words.items[i];
        MD_TRY(md_bpe_encode(&e->t->bpe, e->pretok.text.data + word.start, word.size, e->guarded ? e->t->control : NULL,
                             &e->bpe, e->out, e->err));
    }
    return MD_OK;
}

// What lies between two added tokens of the text: normalized, and the tokens in its normal form cut out.
static md_status encode_segment(encoder *e, const char *text, size_t n, bool origin) {
    const md_tokenizer *t = e->t;
    if (t->normalizer.n_steps == 0 && (e->guarded || t->normalized_trie.n == 0))
        return encode_plain(e, text, n, origin);
    md_buf_clear(&e->normalized);
    e->normalized.max = n;
    if (md_buf_append(&e->normalized, text, n) != MD_OK)
        return md_fail(e->err, MD_E_MEMORY, "out of memory for %zu bytes of text", n);
    MD_TRY(md_normalize(&t->normalizer, &e->normalized, &e->spare, &e->pretok.match, e->err));
    const char *normal = md_buf_str(&e->normalized);
    size_t size = e->normalized.size, done = 0, start, end;
    md_added_iter iter = {.added = &t->added, .trie = &t->normalized_trie, .text = normal, .n = size};
    const md_added_token *token;
    while (!e->guarded && md_added_next(&iter, &token, &start, &end)) {
        if (start > done) MD_TRY(encode_plain(e, normal + done, start - done, origin && done == 0));
        MD_TRY(md_ids_append(e->out, &token->id, 1, e->err));
        done = end;
    }
    return size > done ? encode_plain(e, normal + done, size - done, origin && done == 0) : MD_OK;
}

static md_status encode_text(encoder *e) {
    const md_tokenizer *t = e->t;
    const char *text = md_buf_str(&e->text);
    size_t n = e->text.size, done = 0, start, end;
    md_added_iter iter = {.added = &t->added,
                          .trie = e->guarded ? &t->guarded_trie : &t->raw_trie,
                          .text = text,
                          .n = n,
                          .guarded = e->guarded,
                          .ranges = e->ranges,
                          .n_ranges = e->n_ranges};
    const md_added_token *token;
    while (md_added_next(&iter, &token, &start, &end)) {
        if (start > done) MD_TRY(encode_segment(e, text + done, start - done, done == 0));
        MD_TRY(md_ids_append(e->out, &token->id, 1, e->err));
        done = end;
    }
    return n > done ? encode_segment(e, text + done, n - done, done == 0) : MD_OK;
}

md_status md_tokenizer_encode_spans(const md_tokenizer *t, const md_text_span *spans, size_t n_spans, bool add_special,
                                    md_ids *out, md_error *err) {
    encoder e = {.t = t, .out = out, .err = err};
    size_t before = out->size;
    md_status status;
    MD_TRY_GOTO(join_spans(&e, spans, n_spans));
    if (add_special) MD_TRY_GOTO(md_ids_append(out, t->before.data, t->before.size, err));
    MD_TRY_GOTO(encode_text(&e));
    if (add_special) MD_TRY_GOTO(md_ids_append(out, t->after.data, t->after.size, err));
fail:
    if (status != MD_OK) out->size = before;
    encoder_free(&e);
    return status;
}

md_status md_tokenizer_encode(const md_tokenizer *t, const char *text, size_t n, const md_encode_options *options,
                              md_ids *out, md_error *err) {
    md_text_span span = {text, n, options ? options->parse_special : true};
    return md_tokenizer_encode_spans(t, &span, 1, options ? options->add_special : true, out, err);
}
