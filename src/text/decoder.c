#include "text/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "text/byte_level.h"
#include "text/utf8.h"

void md_decoder_free(md_decoder *decoder) {
    for (size_t i = 0; i < decoder->n_steps; i++) {
        md_pattern_free(decoder->steps[i].pattern);
        free(decoder->steps[i].content);
    }
    *decoder = (md_decoder){0};
}

// ---- loading -------------------------------------------------------------------------------------------------------

typedef enum phase {
    PER_TOKEN, // decoders so far work on each token by itself
    BYTE_RUNS, // after ByteFallback: runs of byte tokens have become text
    JOINED     // after Fuse or ByteLevel: there is one text
} phase;

typedef struct loader {
    md_decoder *decoder;
    phase phase;
    const char *what;
    md_error *err;
} loader;

static md_status load_character(const json_t *json, const char *key, uint32_t *out, const char *what, md_error *err) {
    const char *text = NULL;
    MD_TRY(md_json_get_string(json, key, &text, what, err));
    if (!text || !md_utf8_single(text, strlen(text), out))
        return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is \"%.40s\", expected one character", what, key,
                       text ? text : "");
    return MD_OK;
}

static md_status load_strip(const loader *load, const json_t *json, md_decode_step *step) {
    int64_t start = 0, stop = 0;
    MD_TRY(load_character(json, "content", &step->character, load->what, load->err));
    MD_TRY(md_json_get_int(json, "start", 0, INT32_MAX, &start, load->what, load->err));
    MD_TRY(md_json_get_int(json, "stop", 0, INT32_MAX, &stop, load->what, load->err));
    step->kind = MD_DECODE_STRIP;
    step->start = (size_t)start;
    step->stop = (size_t)stop;
    return MD_OK;
}

static md_status load_replace(const loader *load, const json_t *json, md_decode_step *step) {
    step->kind = MD_DECODE_REPLACE;
    MD_TRY(md_pattern_from_json(json_object_get(json, "pattern"), load->what, &step->pattern, load->err));
    const json_t *content = json_object_get(json, "content");
    if (!json_is_string(content))
        return md_fail(load->err, MD_E_FORMAT, "%s: \"content\" is %s, expected a string", load->what,
                       md_json_type_name(content));
    step->content_size = json_string_length(content);
    step->content = malloc(step->content_size + 1);
    if (!step->content) return md_fail(load->err, MD_E_MEMORY, "%s: out of memory", load->what);
    memcpy(step->content, json_string_value(content), step->content_size + 1);
    return MD_OK;
}

static md_status load_metaspace(const loader *load, const json_t *json, md_decode_step *step) {
    const char *scheme = "always";
    bool add_prefix_space = true;
    step->kind = MD_DECODE_METASPACE;
    MD_TRY(load_character(json, "replacement", &step->character, load->what, load->err));
    MD_TRY(md_json_get_string(json, "prepend_scheme", &scheme, load->what, load->err));
    MD_TRY(md_json_get_bool(json, "add_prefix_space", &add_prefix_space, load->what, load->err));
    step->drop_first = add_prefix_space && strcmp(scheme, "never") != 0;
    load->decoder->drop_first |= step->drop_first;
    return MD_OK;
}

static md_status load_token_step(loader *load, const json_t *json, const char *type) {
    md_decoder *decoder = load->decoder;
    if (decoder->n_steps == MD_DECODER_MAX_STEPS)
        return md_fail(load->err, MD_E_UNSUPPORTED, "%s: more than %d steps", load->what, MD_DECODER_MAX_STEPS);
    md_decode_step *step = &decoder->steps[decoder->n_steps++];
    if (strcmp(type, "Replace") == 0) return load_replace(load, json, step);
    if (strcmp(type, "Strip") == 0) return load_strip(load, json, step);
    return load_metaspace(load, json, step);
}

static md_status load_one(loader *load, const json_t *json, const char *type) {
    md_decoder *decoder = load->decoder;
    if (strcmp(type, "Fuse") == 0) {
        load->phase = JOINED;
        return MD_OK;
    }
    bool byte_level = strcmp(type, "ByteLevel") == 0, byte_fallback = strcmp(type, "ByteFallback") == 0;
    bool strip = strcmp(type, "Strip") == 0;
    if (!byte_level && !byte_fallback && !strip && strcmp(type, "Replace") != 0 && strcmp(type, "Metaspace") != 0)
        return md_fail(load->err, MD_E_UNSUPPORTED, "%s: the type \"%.60s\" is not supported", load->what, type);
    if (load->phase == PER_TOKEN) {
        if (!byte_level && !byte_fallback) return load_token_step(load, json, type);
        decoder->bytes = byte_level ? MD_DECODE_BYTE_LEVEL : MD_DECODE_BYTE_FALLBACK;
        load->phase = byte_level ? JOINED : BYTE_RUNS;
        return MD_OK;
    }
    if (load->phase == JOINED && strip && decoder->strip_start == 0) {
        md_decode_step step = {0};
        MD_TRY(load_strip(load, json, &step));
        if (step.stop == 0) {
            decoder->strip = step.character;
            decoder->strip_start = step.start;
            return MD_OK;
        }
    }
    return md_fail(load->err, MD_E_UNSUPPORTED, "%s: \"%s\" at this place of a Sequence is not supported", load->what,
                   type);
}

// Sequences may hold sequences; the depth is bounded by the JSON parser's.
static md_status load_chain(loader *load, const json_t *json) {
    if (!json_is_object(json))
        return md_fail(load->err, MD_E_FORMAT, "%s: found %s, expected an object", load->what, md_json_type_name(json));
    const char *type = "(none)";
    MD_TRY(md_json_get_string(json, "type", &type, load->what, load->err));
    if (strcmp(type, "Sequence") != 0) return load_one(load, json, type);
    const json_t *list = json_object_get(json, "decoders");
    if (!json_is_array(list))
        return md_fail(load->err, MD_E_FORMAT, "%s: \"decoders\" is %s, expected an array", load->what,
                       md_json_type_name(list));
    for (size_t i = 0; i < json_array_size(list); i++) MD_TRY(load_chain(load, json_array_get(list, i)));
    return MD_OK;
}

md_status md_decoder_load(md_decoder *decoder, const json_t *json, const char *what, md_error *err) {
    *decoder = (md_decoder){0};
    if (!json || json_is_null(json)) {
        decoder->spaced = true;
        return MD_OK;
    }
    loader load = {.decoder = decoder, .phase = PER_TOKEN, .what = what, .err = err};
    return load_chain(&load, json);
}

// ---- one token -----------------------------------------------------------------------------------------------------

static md_status strip(const md_decode_step *step, const md_buf *text, md_buf *out) {
    size_t start = 0, end = text->size, size;
    for (size_t i = 0; i < step->start && start < end; i++) {
        if (md_utf8_decode(text->data + start, end - start, &size) != step->character) break;
        start += size;
    }
    for (size_t i = 0; i < step->stop && end > start; i++) {
        size_t last = md_utf8_last(text->data, end);
        if (md_utf8_decode(text->data + last, end - last, &size) != step->character) break;
        end = last;
    }
    return md_buf_append(out, text->data + start, end - start);
}

static md_status metaspace(const md_decode_step *step, const md_buf *text, bool first, md_buf *out) {
    size_t size;
    for (size_t at = 0; at < text->size; at += size) {
        if (md_utf8_decode(text->data + at, text->size - at, &size) != step->character) {
            MD_TRY(md_buf_append(out, text->data + at, size));
        } else if (!first || !step->drop_first) {
            MD_TRY(md_buf_putc(out, ' '));
        }
    }
    return MD_OK;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_byte_token(const char *text, size_t n, char *byte) {
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return false;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    if (high < 0 || low < 0) return false;
    *byte = (char)(high << 4 | low);
    return true;
}

static md_status too_large(md_status status, md_error *err) {
    return md_fail(err, status, "a token's text is too large, or memory is out");
}

md_status md_decoder_token(const md_decoder *decoder, const char *token, size_t n, bool first,
                           md_match_scratch *scratch, md_buf *spare, md_buf *out, bool *is_byte, md_error *err) {
    size_t before = out->size;
    *is_byte = false;
    md_buf text = {.data = (char *)(uintptr_t)token, .size = n}; // read only, until the first step has made a copy
    for (size_t i = 0; i < decoder->n_steps && text.size > 0; i++) {
        const md_decode_step *step = &decoder->steps[i];
        md_status status;
        size_t made = out->size;
        if (step->kind == MD_DECODE_REPLACE) {
            status = md_match_replace(step->pattern, &text, step->content, step->content_size, scratch, out, err);
        } else if (step->kind == MD_DECODE_STRIP) {
            status = strip(step, &text, out);
        } else {
            status = metaspace(step, &text, first, out);
        }
        // The step's result moves to `spare`, where the next one reads it.
        md_buf_clear(spare);
        if (status == MD_OK) status = md_buf_append(spare, md_buf_str(out) + made, out->size - made);
        if (status != MD_OK) return out->failed || spare->failed ? too_large(status, err) : status;
        out->size = before;
        text = (md_buf){.data = spare->data, .size = spare->size};
    }
    char byte;
    md_status status;
    if (decoder->bytes == MD_DECODE_BYTE_LEVEL) {
        status = md_byte_level_decode(text.data, text.size, out);
    } else if (decoder->bytes == MD_DECODE_BYTE_FALLBACK && is_byte_token(text.data, text.size, &byte)) {
        *is_byte = true;
        status = md_buf_putc(out, byte);
    } else {
        status = md_buf_append(out, text.data, text.size);
    }
    return status == MD_OK ? MD_OK : too_large(status, err);
}
