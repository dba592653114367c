// tokenizer.json: vocabulary, added tokens, post-processor, and the tables made from them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text/utf8.h"

static md_status load_vocab(md_tokenizer *t, const json_t *model, const char *what, md_error *err) {
    const json_t *vocab = json_object_get(model, "vocab");
    if (!json_is_object(vocab))
        return md_fail(err, MD_E_FORMAT, "%s: \"vocab\" is %s, expected an object", what, md_json_type_name(vocab));
    size_t bytes = 0;
    json_t *items = (json_t *)(uintptr_t)vocab; // jansson's iterators take no const; nothing is changed
    for (void *at = json_object_iter(items); at; at = json_object_iter_next(items, at))
        bytes += json_object_iter_key_len(at);
    MD_TRY(md_vocab_reserve(&t->vocab, json_object_size(vocab), bytes, what, err));
    for (void *at = json_object_iter(items); at; at = json_object_iter_next(items, at)) {
        const json_t *id = json_object_iter_value(at);
        const char *text = json_object_iter_key(at);
        if (!json_is_integer(id))
            return md_fail(err, MD_E_FORMAT, "%s: the id of token \"%.60s\" is %s, expected an integer", what, text,
                           md_json_type_name(id));
        MD_TRY(md_vocab_add(&t->vocab, text, json_object_iter_key_len(at), json_integer_value(id), what, err));
    }
    return MD_OK;
}

static md_status load_model(md_tokenizer *t, const json_t *root, const char *what, md_error *err) {
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model))
        return md_fail(err, MD_E_FORMAT, "%s is %s, expected an object", what, md_json_type_name(model));
    const char *type = NULL;
    MD_TRY(md_json_get_string(model, "type", &type, what, err));
    if (!type && json_object_get(model, "merges")) type = "BPE"; // older files do not say it
    if (!type || strcmp(type, "BPE") != 0)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: the type \"%.60s\" is not supported, only BPE is", what,
                       type ? type : "(none)");
    MD_TRY(load_vocab(t, model, what, err));
    return md_bpe_load(&t->bpe, &t->vocab, model, what, err);
}

md_status md_tokenizer_add_token(md_tokenizer *t, const json_t *json, int64_t id, const char *what, md_error *err) {
    size_t before = t->added.n;
    MD_TRY(md_added_load(&t->added, json, id, what, err));
    if (t->added.n == before) return MD_OK; // an empty token, which is left out
    const md_added_token *token = &t->added.tokens[before];
    uint32_t known = md_vocab_find(&t->vocab, token->content, token->size);
    if (known != MD_VOCAB_NONE && (int64_t)known == id) return MD_OK;
    return md_vocab_add(&t->vocab, token->content, token->size, id, what, err);
}

static md_status load_added(md_tokenizer *t, const json_t *root, const char *what, md_error *err) {
    const json_t *list = json_object_get(root, "added_tokens");
    if (!list || json_is_null(list)) return MD_OK;
    if (!json_is_array(list))
        return md_fail(err, MD_E_FORMAT, "%s: \"added_tokens\" is %s, expected an array", what,
                       md_json_type_name(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        char place[256];
        snprintf(place, sizeof place, "%s: added_tokens[%zu]", what, i);
        const json_t *token = json_array_get(list, i);
        int64_t id = -1;
        MD_TRY(md_json_get_int(token, "id", 0, MD_VOCAB_MAX_ID, &id, place, err));
        if (id < 0)
            return md_fail(err, MD_E_FORMAT, "%s: \"id\" is %s, expected an integer", place,
                           md_json_type_name(json_object_get(token, "id")));
        MD_TRY(md_tokenizer_add_token(t, token, id, place, err));
    }
    return MD_OK;
}

// ---- the post-processor --------------------------------------------------------------------------------------------

// The ids of one special token of a template.
static md_status add_special(md_tokenizer *t, const json_t *processor, const char *name, md_ids *out, const char *what,
                             md_error *err) {
    const json_t *special = json_object_get(json_object_get(processor, "special_tokens"), name);
    const json_t *ids = json_object_get(special, "ids");
    if (!json_is_array(ids))
        return md_fail(err, MD_E_FORMAT, "%s: the template's \"%.60s\" is not in \"special_tokens\"", what, name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        // Below n_ids there may be ids without a token.
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= (json_int_t)t->vocab.n_ids ||
            !md_vocab_text(&t->vocab, (uint32_t)json_integer_value(id), NULL))
            return md_fail(err, MD_E_FORMAT, "%s: \"special_tokens\" has an id for \"%.60s\" that is no token", what,
                           name);
        uint32_t value = (uint32_t)json_integer_value(id);
        MD_TRY(md_ids_append(out, &value, 1, err));
    }
    return MD_OK;
}

static md_status load_template(md_tokenizer *t, const json_t *processor, const char *what, md_error *err) {
    const json_t *single = json_object_get(processor, "single");
    if (!json_is_array(single))
        return md_fail(err, MD_E_FORMAT, "%s: \"single\" is %s, expected an array", what, md_json_type_name(single));
    size_t texts = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *name = json_object_get(json_object_get(piece, "SpecialToken"), "id");
        if (json_is_string(name)) {
            MD_TRY(add_special(t, processor, json_string_value(name), texts ? &t->after : &t->before, what, err));
        } else if (json_object_get(piece, "Sequence")) {
            texts++;
        } else {
            return md_fail(err, MD_E_FORMAT, "%s: single[%zu] is neither a SpecialToken nor a Sequence", what, i);
        }
    }
    if (texts != 1)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: a template that uses the text %zu times is not supported", what,
                       texts);
    return MD_OK;
}

// Sequences may hold sequences; the depth is bounded by the JSON parser's.
static md_status load_processor(md_tokenizer *t, const json_t *json, const char *what, md_error *err) {
    if (!json || json_is_null(json)) return MD_OK;
    const char *type = "(none)";
    MD_TRY(md_json_get_string(json, "type", &type, what, err));
    if (strcmp(type, "ByteLevel") == 0) return MD_OK; // changes offsets, never ids
    if (strcmp(type, "TemplateProcessing") == 0) {
        if (t->before.size || t->after.size)
            return md_fail(err, MD_E_UNSUPPORTED, "%s: more than one template is not supported", what);
        return load_template(t, json, what, err);
    }
    if (strcmp(type, "Sequence") != 0)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: the type \"%.60s\" is not supported", what, type);
    const json_t *list = json_object_get(json, "processors");
    for (size_t i = 0; i < json_array_size(list); i++) MD_TRY(load_processor(t, json_array_get(list, i), what, err));
    return MD_OK;
}

md_status md_tokenizer_load_json(md_tokenizer *t, const json_t *root, const char *what, md_error *err) {
    if (!json_is_object(root))
        return md_fail(err, MD_E_FORMAT, "%s: found %s, expected an object", what, md_json_type_name(root));
    char place[256];
    snprintf(place, sizeof place, "%s: model", what);
    MD_TRY(load_model(t, root, place, err));
    MD_TRY(load_added(t, root, what, err));
    snprintf(place, sizeof place, "%s: normalizer", what);
    MD_TRY(md_normalizer_load(&t->normalizer, json_object_get(root, "normalizer"), place, err));
    snprintf(place, sizeof place, "%s: pre_tokenizer", what);
    MD_TRY(md_pretok_load(&t->pretok, json_object_get(root, "pre_tokenizer"), place, err));
    snprintf(place, sizeof place, "%s: post_processor", what);
    MD_TRY(load_processor(t, json_object_get(root, "post_processor"), place, err));
    snprintf(place, sizeof place, "%s: decoder", what);
    return md_decoder_load(&t->decoder, json_object_get(root, "decoder"), place, err);
}

// ---- tables --------------------------------------------------------------------------------------------------------

// A token that plain text must not become. Not so: white space, and single characters that are no special tokens, which
// the model needs to spell words.
static bool is_control(const md_added_token *token) {
    bool one_character = token->size <= 4 && md_utf8_valid_prefix(token->content, token->size) == token->size;
    size_t first = 0;
    if (one_character) md_utf8_decode(token->content, token->size, &first);
    return !token->blank && (token->special || first != token->size);
}

// Works out the normal form of an added token.
static md_status normalize_added(const md_tokenizer *t, md_added_token *token, md_buf *spare, md_match_scratch *scratch,
                                 const char *what, md_error *err) {
    md_buf text;
    md_buf_init(&text, token->size);
    md_status status = md_buf_append(&text, token->content, token->size);
    if (status != MD_OK) return md_fail(err, status, "%s: out of memory", what);
    status = md_normalize(&t->normalizer, &text, spare, scratch, err);
    if (status == MD_OK && (text.size != token->size || memcmp(text.data, token->content, text.size) != 0)) {
        token->normal_size = text.size;
        token->normal = md_buf_take(&text);
        if (!token->normal) status = md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    }
    md_buf_free(&text);
    return status;
}

static md_status index_added(md_tokenizer *t, const char *what, md_error *err) {
    md_buf spare;
    md_buf_init(&spare, 0);
    md_match_scratch scratch = {0};
    md_status status = MD_OK;
    for (uint32_t i = 0; i < t->added.n; i++) {
        md_added_token *token = &t->added.tokens[i];
        t->added_index[token->id] = i;
        t->control[token->id] = is_control(token);
        MD_TRY_GOTO(md_trie_add(&t->guarded_trie, token->content, token->size, i, what, err));
        if (token->normalized) MD_TRY_GOTO(normalize_added(t, token, &spare, &scratch, what, err));
        size_t n;
        const char *text = md_tokenizer_decoded_text(t, token->id, &n);
        md_trie *trie = token->normalized ? &t->normalized_trie : &t->raw_trie;
        if (n > 0) MD_TRY_GOTO(md_trie_add(trie, text, n, i, what, err));
    }
fail:
    md_buf_free(&spare);
    md_match_scratch_free(&scratch);
    return status;
}

const char *md_tokenizer_decoded_text(const md_tokenizer *t, uint32_t id, size_t *n) {
    const char *text = md_vocab_text(&t->vocab, id, n);
    if (!text || t->added_index[id] == MD_VOCAB_NONE) return text;
    const md_added_token *token = &t->added.tokens[t->added_index[id]];
    if (!token->normal) return text;
    *n = token->normal_size;
    return token->normal;
}

static md_status fill_token_bytes(md_tokenizer *t, const char *what, md_error *err) {
    md_buf spare;
    md_buf_init(&spare, UINT32_MAX);
    md_match_scratch scratch = {0};
    md_status status = MD_OK;
    for (size_t id = 0; id < t->vocab.n_ids; id++) {
        size_t n;
        const char *text = md_tokenizer_decoded_text(t, (uint32_t)id, &n);
        t->token_bytes_at[id] = (uint32_t)t->token_bytes.size;
        if (text)
            MD_TRY_GOTO(
                md_decoder_token(&t->decoder, text, n, false, &scratch, &spare, &t->token_bytes, &t->is_byte[id], err));
        // A NUL after each, so that what is handed out is a string.
        if (md_buf_putc(&t->token_bytes, 0) != MD_OK) {
            status = md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
            goto fail;
        }
    }
    t->token_bytes_at[t->vocab.n_ids] = (uint32_t)t->token_bytes.size;
fail:
    md_buf_free(&spare);
    md_match_scratch_free(&scratch);
    return status;
}

md_status md_tokenizer_finish(md_tokenizer *t, const char *what, md_error *err) {
    size_t n = t->vocab.n_ids;
    t->added_index = malloc((n + 1) * sizeof *t->added_index);
    t->control = calloc(n + 1, sizeof *t->control);
    t->token_bytes_at = calloc(n + 1, sizeof *t->token_bytes_at);
    t->is_byte = calloc(n + 1, sizeof *t->is_byte);
    if (!t->added_index || !t->control || !t->token_bytes_at || !t->is_byte)
        return md_fail(err, MD_E_MEMORY, "%s: out of memory for %zu tokens", what, n);
    for (size_t id = 0; id < n; id++) t->added_index[id] = MD_VOCAB_NONE;
    MD_TRY(index_added(t, what, err));
    return fill_token_bytes(t, what, err);
}
