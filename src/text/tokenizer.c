#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/tokenizer_impl.h"

enum {
    MAX_CONFIG_BYTES = 32 * 1024 * 1024,
    MAX_TEMPLATE_BYTES = 4 * 1024 * 1024,
    MAX_SPECIAL = 64 // ids a post-processor may put before or after a text
};

void md_tokenizer_close(md_tokenizer *t) {
    if (!t) return;
    md_bpe_free(&t->bpe);
    md_vocab_free(&t->vocab);
    md_added_free(&t->added);
    md_trie_free(&t->raw_trie);
    md_trie_free(&t->normalized_trie);
    md_trie_free(&t->guarded_trie);
    free(t->added_index);
    free(t->control);
    md_normalizer_free(&t->normalizer);
    md_pretok_free(&t->pretok);
    md_ids_free(&t->before);
    md_ids_free(&t->after);
    md_decoder_free(&t->decoder);
    md_buf_free(&t->token_bytes);
    free(t->token_bytes_at);
    free(t->is_byte);
    for (size_t i = 0; i < MD_TOKEN_ROLES; i++) free(t->roles[i].text);
    for (size_t i = 0; i < t->n_templates; i++) {
        free(t->templates[i].name);
        free(t->templates[i].text);
    }
    free(t);
}

static md_tokenizer *new_tokenizer(void) {
    md_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    md_trie_init(&t->raw_trie);
    md_trie_init(&t->normalized_trie);
    md_trie_init(&t->guarded_trie);
    md_ids_init(&t->before, MAX_SPECIAL);
    md_ids_init(&t->after, MAX_SPECIAL);
    md_buf_init(&t->token_bytes, UINT32_MAX / 2);
    return t;
}

// BOS and UNK can be told from tokenizer.json where no config names them: what is put in front of a text, and what the
// model has for unknown characters.
static md_status complete_roles(md_tokenizer *t, const char *what, md_error *err) {
    uint32_t shown[MD_TOKEN_ROLES];
    for (size_t i = 0; i < MD_TOKEN_ROLES; i++) shown[i] = MD_VOCAB_NONE;
    if (t->before.size > 0) shown[MD_TOKEN_BOS] = t->before.data[0];
    shown[MD_TOKEN_UNK] = t->bpe.unk;
    for (size_t i = 0; i < MD_TOKEN_ROLES; i++) {
        md_role *role = &t->roles[i];
        const char *text = md_vocab_text(&t->vocab, shown[i], NULL);
        if (!role->text && text) {
            role->text = strdup(text);
            if (!role->text) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
        }
        role->id = role->text ? md_vocab_find(&t->vocab, role->text, strlen(role->text)) : MD_VOCAB_NONE;
    }
    return MD_OK;
}

static md_status load_all(md_tokenizer *t, const md_tokenizer_source *source, const char *what, md_error *err) {
    json_t *json = NULL;
    MD_TRY(md_json_parse(source->json, source->json_size, true, what, &json, err));
    md_status status = md_tokenizer_load_json(t, json, what, err);
    json_decref(json);
    MD_TRY(status);
    if (source->chat_template)
        MD_TRY(md_tokenizer_add_template(t, NULL, source->chat_template, source->chat_template_size,
                                         "chat_template.jinja", err));
    if (source->config) {
        MD_TRY(md_json_parse(source->config, source->config_size, true, "tokenizer_config.json", &json, err));
        status = md_tokenizer_load_config(t, json, "tokenizer_config.json", err);
        json_decref(json);
        MD_TRY(status);
    }
    MD_TRY(complete_roles(t, what, err));
    return md_tokenizer_finish(t, what, err);
}

md_status md_tokenizer_open_memory(const md_tokenizer_source *source, md_tokenizer **out, md_error *err) {
    *out = NULL;
    const char *what = source->name ? source->name : "tokenizer.json";
    md_tokenizer *t = new_tokenizer();
    if (!t) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    md_status status = load_all(t, source, what, err);
    if (status != MD_OK) {
        md_tokenizer_close(t);
        return status;
    }
    *out = t;
    return MD_OK;
}

// Reads dir/name; a file that is not there is fine unless `needed`, and leaves *text NULL.
static md_status read_part(const char *dir, const char *name, size_t max, bool needed, char **text, size_t *size,
                           md_error *err) {
    char *path = md_path_join(dir, name);
    if (!path) return md_fail(err, MD_E_MEMORY, "%s: out of memory", name);
    md_status status = MD_OK;
    if (needed || !md_path_absent(path)) status = md_file_read_all(path, max, text, size, err);
    free(path);
    return status;
}

md_status md_tokenizer_open(const char *dir, md_tokenizer **out, md_error *err) {
    *out = NULL;
    char *json = NULL, *config = NULL, *chat = NULL;
    md_tokenizer_source source = {0};
    md_status status;
    MD_TRY_GOTO(read_part(dir, "tokenizer.json", MD_TOKENIZER_MAX_JSON, true, &json, &source.json_size, err));
    MD_TRY_GOTO(read_part(dir, "tokenizer_config.json", MAX_CONFIG_BYTES, false, &config, &source.config_size, err));
    MD_TRY_GOTO(
        read_part(dir, "chat_template.jinja", MAX_TEMPLATE_BYTES, false, &chat, &source.chat_template_size, err));
    source.json = json;
    source.config = config;
    source.chat_template = chat;
    status = md_tokenizer_open_memory(&source, out, err);
    if (status != MD_OK) md_fail_context(err, status, "%s", dir);
fail:
    free(json);
    free(config);
    free(chat);
    return status;
}

// ---- lookups -------------------------------------------------------------------------------------------------------

size_t md_tokenizer_vocab_size(const md_tokenizer *t) { return t->vocab.n_ids; }

bool md_tokenizer_find(const md_tokenizer *t, const char *token, size_t n, uint32_t *id) {
    uint32_t found = md_vocab_find(&t->vocab, token, n);
    if (found == MD_VOCAB_NONE) return false;
    *id = found;
    return true;
}

const char *md_tokenizer_token(const md_tokenizer *t, uint32_t id, size_t *n) {
    return md_vocab_text(&t->vocab, id, n);
}

const char *md_tokenizer_token_bytes(const md_tokenizer *t, uint32_t id, size_t *n) {
    if (!md_vocab_text(&t->vocab, id, NULL)) return NULL;
    if (n) *n = t->token_bytes_at[id + 1] - t->token_bytes_at[id] - 1; // without the NUL
    return t->token_bytes.data + t->token_bytes_at[id];
}

bool md_tokenizer_is_added(const md_tokenizer *t, uint32_t id) {
    return id < t->vocab.n_ids && t->added_index[id] != MD_VOCAB_NONE;
}

bool md_tokenizer_is_special(const md_tokenizer *t, uint32_t id) {
    return md_tokenizer_is_added(t, id) && t->added.tokens[t->added_index[id]].special;
}

const char *md_tokenizer_role_text(const md_tokenizer *t, md_token_role role) { return t->roles[role].text; }

bool md_tokenizer_role_id(const md_tokenizer *t, md_token_role role, uint32_t *id) {
    if (t->roles[role].id == MD_VOCAB_NONE) return false;
    *id = t->roles[role].id;
    return true;
}

bool md_tokenizer_adds_bos(const md_tokenizer *t) {
    uint32_t bos;
    return t->before.size > 0 && md_tokenizer_role_id(t, MD_TOKEN_BOS, &bos) && t->before.data[0] == bos;
}

const char *md_tokenizer_chat_template(const md_tokenizer *t, const char *name, size_t *n) {
    const md_named_template *found = NULL;
    for (size_t i = 0; i < t->n_templates && !found; i++) {
        const md_named_template *one = &t->templates[i];
        bool is_default = !one->name || strcmp(one->name, "default") == 0;
        if (name ? one->name && strcmp(one->name, name) == 0 : is_default) found = one;
    }
    if (!found) return NULL;
    if (n) *n = found->size;
    return found->text;
}
