// A byte-level BPE of the 256 bytes, no merges, and a plain chat template: enough to run, measure and chat with. Every
// other id is a token too, so that what the model writes can be seen: a space and its own number, which no text encodes
// to, since nothing merges.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/config.h"
#include "model/synth.h"

static bool is_special(const md_config *c, uint32_t id) {
    if (c->bos == id) return true;
    for (uint32_t i = 0; i < c->eos_count; i++)
        if (c->eos[i] == id) return true;
    return false;
}

static void special_name(const md_config *c, uint32_t id, char *out, size_t cap) {
    if (c->bos == id)
        snprintf(out, cap, "<s>");
    else if (c->eos[0] == id)
        snprintf(out, cap, "</s>");
    else
        snprintf(out, cap, "<|end_%u|>", id);
}

// The byte alphabet of GPT-2: printable bytes stand for themselves, the others for U+0100 and up in their order.
static uint32_t byte_codepoint(uint32_t byte, uint32_t *next_other) {
    bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return printable ? byte : (*next_other)++;
}

static const char *utf8(uint32_t codepoint, char out[3]) { // below U+0800
    size_t n = 0;
    if (codepoint < 0x80) {
        out[n++] = (char)codepoint;
    } else {
        out[n++] = (char)(0xc0 | codepoint >> 6);
        out[n++] = (char)(0x80 | (codepoint & 0x3f));
    }
    out[n] = 0;
    return out;
}

// Fills vocab (text -> id) and added (the special tokens); false where an id would not fit the vocabulary.
static bool fill_vocab(const md_config *c, json_t *vocab, json_t *added) {
    uint32_t next_other = 256, id = 0;
    char text[3], name[32];
    for (uint32_t byte = 0; byte < 256; byte++, id++) {
        while (is_special(c, id)) id++;
        if (id >= c->vocab) return false;
        json_object_set_new(vocab, utf8(byte_codepoint(byte, &next_other), text), json_integer(id));
    }
    for (; id < c->vocab; id++) {
        snprintf(name, sizeof name, "\xc4\xa0%u", id); // U+0120 stands for a space
        if (!is_special(c, id)) json_object_set_new(vocab, name, json_integer(id));
    }
    for (uint32_t i = 0; i <= c->eos_count; i++) { // the eos tokens, then bos
        if (i == c->eos_count && c->bos < 0) break;
        uint32_t special = i < c->eos_count ? c->eos[i] : (uint32_t)c->bos;
        special_name(c, special, name, sizeof name);
        if (json_object_get(vocab, name)) continue; // bos is also an eos
        json_object_set_new(vocab, name, json_integer(special));
        json_array_append_new(added,
                              json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", (int)special, "content", name,
                                        "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    }
    return true;
}

static json_t *bos_template(const md_config *c) {
    if (c->bos < 0) return json_null();
    return json_pack("{s:s, s:[{s:{s:s,s:i}},{s:{s:s,s:i}}], s:[{s:{s:s,s:i}},{s:{s:s,s:i}}], s:{s:{s:s,s:[I],s:[s]}}}",
                     "type", "TemplateProcessing", "single", "SpecialToken", "id", "<s>", "type_id", 0, "Sequence",
                     "id", "A", "type_id", 0, "pair", "Sequence", "id", "A", "type_id", 0, "Sequence", "id", "B",
                     "type_id", 1, "special_tokens", "<s>", "id", "<s>", "ids", (json_int_t)c->bos, "tokens", "<s>");
}

static md_status write_json(const char *dir, const char *name, const json_t *root, md_error *err) {
    char *path = md_path_join(dir, name), *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    md_status status;
    if (!path || !text)
        status = md_fail(err, MD_E_MEMORY, "%s: out of memory for %s", dir, name);
    else
        status = md_file_write_atomic(path, text, strlen(text), err);
    free(path);
    free(text);
    return status;
}

md_status md_synth_tokenizer(const md_config *config, const char *dir, md_error *err) {
    json_t *vocab = json_object(), *added = json_array();
    if (!vocab || !added || !fill_vocab(config, vocab, added)) {
        json_decref(vocab);
        json_decref(added);
        return MD_OK;
    }
    json_t *level =
        json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0);
    json_t *tokenizer =
        json_pack("{s:s, s:n, s:n, s:o, s:n, s:O, s:o, s:o, s:{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:o,s:[]}}", "version",
                  "1.0", "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer", level,
                  "post_processor", bos_template(config), "decoder", level, "model", "type", "BPE", "dropout",
                  "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                  "ignore_merges", 0, "vocab", vocab, "merges");
    md_status status = write_json(dir, "tokenizer.json", tokenizer, err);
    json_decref(tokenizer);
    if (status != MD_OK) return status;
    char eos[32] = "";
    if (config->eos_count) special_name(config, config->eos[0], eos, sizeof eos);
    json_t *settings = json_pack(
        "{s:s, s:s*, s:s*, s:s}", "tokenizer_class", "PreTrainedTokenizerFast", "bos_token",
        config->bos >= 0 ? "<s>" : NULL, "eos_token", eos[0] ? eos : NULL, "chat_template",
        "{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}");
    status = write_json(dir, "tokenizer_config.json", settings, err);
    json_decref(settings);
    return status;
}
