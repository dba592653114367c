#include "text/detok.h"

#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/utf8.h"

void md_detok_init(md_detok *detok, const md_tokenizer *tokenizer, bool skip_special, bool continues) {
    *detok = (md_detok){.tokenizer = tokenizer,
                        .skip_special = skip_special,
                        .started = continues,
                        .strip_left = continues ? 0 : tokenizer->decoder.strip_start};
}

// Appends valid text, less what the decoder strips from the start of the whole.
static md_status emit(md_detok *detok, const char *text, size_t n, md_buf *out, md_error *err) {
    while (detok->strip_left > 0 && n > 0) {
        size_t size;
        if (md_utf8_decode(text, n, &size) != detok->tokenizer->decoder.strip) {
            detok->strip_left = 0;
            break;
        }
        detok->strip_left--;
        text += size;
        n -= size;
    }
    md_status status = md_buf_append(out, text, n);
    return status == MD_OK ? MD_OK
                           : md_fail(err, status, "the text has more than %zu bytes, or memory is out", out->max);
}

// U+FFFD for n bytes that are no UTF-8: one for all (ByteLevel: a lossy conversion), or one for each (ByteFallback).
static md_status emit_invalid(md_detok *detok, size_t n, md_buf *out, md_error *err) {
    if (detok->tokenizer->decoder.bytes != MD_DECODE_BYTE_FALLBACK) n = 1;
    for (size_t i = 0; i < n; i++) MD_TRY(emit(detok, MD_UTF8_REPLACEMENT, 3, out, err));
    return MD_OK;
}

// Bytes of tokens, any: whole characters are emitted, the start of one is held.
static md_status put_bytes(md_detok *detok, const char *bytes, size_t n, md_buf *out, md_error *err) {
    size_t at = 0, size;
    while (at < n) {
        if (detok->held_size == 0) {
            size_t valid = md_utf8_valid_prefix(bytes + at, n - at);
            MD_TRY(emit(detok, bytes + at, valid, out, err));
            at += valid;
            if (at == n) break;
            if (md_utf8_scan(bytes + at, n - at, &size) == MD_UTF8_INCOMPLETE) {
                memcpy(detok->held, bytes + at, size);
                detok->held_size = (uint8_t)size;
            } else {
                MD_TRY(emit_invalid(detok, size, out, err));
            }
            at += size;
            continue;
        }
        detok->held[detok->held_size] = (unsigned char)bytes[at];
        const char *held = (const char *)detok->held;
        md_utf8_kind kind = md_utf8_scan(held, detok->held_size + 1u, &size);
        if (kind == MD_UTF8_INVALID) { // what was held stays incomplete; this byte starts anew
            MD_TRY(md_detok_flush(detok, out, err));
            continue;
        }
        detok->held_size++;
        at++;
        if (kind == MD_UTF8_CHAR) {
            MD_TRY(emit(detok, held, size, out, err));
            detok->held_size = 0;
        }
    }
    return MD_OK;
}

md_status md_detok_flush(md_detok *detok, md_buf *out, md_error *err) {
    if (detok->held_size == 0) return MD_OK;
    size_t n = detok->held_size;
    detok->held_size = 0;
    return emit_invalid(detok, n, out, err);
}

// The first token of a text where the decoder treats it differently: worked out anew from the token.
static md_status put_first(md_detok *detok, uint32_t id, md_buf *out, md_error *err) {
    const md_tokenizer *t = detok->tokenizer;
    size_t n;
    const char *token = md_tokenizer_decoded_text(t, id, &n);
    md_buf text, spare;
    md_buf_init(&text, UINT32_MAX);
    md_buf_init(&spare, UINT32_MAX);
    md_match_scratch scratch = {0};
    bool is_byte;
    md_status status = md_decoder_token(&t->decoder, token, n, true, &scratch, &spare, &text, &is_byte, err);
    if (status == MD_OK) status = put_bytes(detok, md_buf_str(&text), text.size, out, err);
    md_match_scratch_free(&scratch);
    md_buf_free(&text);
    md_buf_free(&spare);
    return status;
}

// True when the id gives nothing.
static bool is_silent(const md_detok *detok, uint32_t id) {
    return !md_vocab_text(&detok->tokenizer->vocab, id, NULL) ||
           (detok->skip_special && md_tokenizer_is_special(detok->tokenizer, id));
}

md_status md_detok_put(md_detok *detok, uint32_t id, md_buf *out, md_error *err) {
    if (is_silent(detok, id)) return MD_OK;
    const md_tokenizer *t = detok->tokenizer;
    bool first = !detok->started;
    if (t->decoder.spaced && !first) MD_TRY(emit(detok, " ", 1, out, err));
    detok->started = true;
    if (first && t->decoder.drop_first) return put_first(detok, id, out, err);
    if (t->decoder.bytes == MD_DECODE_BYTE_FALLBACK && !t->is_byte[id]) MD_TRY(md_detok_flush(detok, out, err));
    size_t n;
    const char *bytes = md_tokenizer_token_bytes(t, id, &n);
    return put_bytes(detok, bytes, n, out, err);
}

// ByteFallback's rule for a whole run of byte tokens, ids[0..n): one bad byte makes all of them U+FFFD.
static md_status put_run(md_detok *detok, const uint32_t *ids, size_t n, md_buf *run, md_buf *out, md_error *err) {
    md_buf_clear(run);
    for (size_t i = 0; i < n; i++) {
        size_t size;
        if (is_silent(detok, ids[i])) continue;
        if (md_buf_append(run, md_tokenizer_token_bytes(detok->tokenizer, ids[i], &size), 1) != MD_OK)
            return md_fail(err, MD_E_MEMORY, "out of memory for %zu bytes of text", n);
    }
    detok->started = true;
    if (md_utf8_valid_prefix(run->data, run->size) == run->size) return emit(detok, run->data, run->size, out, err);
    return emit_invalid(detok, run->size, out, err);
}

md_status md_tokenizer_decode(const md_tokenizer *t, const uint32_t *ids, size_t n, bool skip_special, md_buf *out,
                              md_error *err) {
    md_detok detok;
    md_detok_init(&detok, t, skip_special, false);
    md_buf run;
    md_buf_init(&run, n);
    md_status status = MD_OK;
    for (size_t i = 0, end; i < n && status == MD_OK; i = end) {
        for (end = i; end < n && (is_silent(&detok, ids[end]) || t->is_byte[ids[end]]); end++) {
        }
        if (end > i && !is_silent(&detok, ids[i])) {
            status = put_run(&detok, ids + i, end - i, &run, out, err);
        } else {
            status = md_detok_put(&detok, ids[i], out, err);
            end = i + 1;
        }
    }
    if (status == MD_OK) status = md_detok_flush(&detok, out, err);
    md_buf_free(&run);
    return status;
}
