// tokenizer_config.json: tokens by role, chat templates, and added tokens that tokenizer.json does not have.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_impl.h"

static char *copy(const char *text, size_t n) {
    char *out = malloc(n + 1);
    if (out) memcpy(out, text, n);
    if (out) out[n] = 0;
    return out;
}

md_status md_tokenizer_add_template(md_tokenizer *t, const char *name, const char *text, size_t n, const char *what,
                                    md_error *err) {
    if (t->n_templates == MD_TOKENIZER_MAX_TEMPLATES)
        return md_fail(err, MD_E_UNSUPPORTED, "%s: more than %d chat templates", what, MD_TOKENIZER_MAX_TEMPLATES);
    md_named_template *slot = &t->templates[t->n_templates++];
    *slot = (md_named_template){.name = name ? copy(name, strlen(name)) : NULL, .text = copy(text, n), .size = n};
    if (!slot->text || (name && !slot->name)) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    return MD_OK;
}

static md_status load_templates(md_tokenizer *t, const json_t *config, const char *what, md_error *err) {
    const json_t *given = json_object_get(config, "chat_template");
    if (!given || json_is_null(given)) return MD_OK;
    if (json_is_string(given))
        return md_tokenizer_add_template(t, NULL, json_string_value(given), json_string_length(given), what, err);
    if (!json_is_array(given))
        return md_fail(err, MD_E_FORMAT, "%s: \"chat_template\" is %s, expected a string or an array", what,
                       md_json_type_name(given));
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *entry = json_array_get(given, i);
        const json_t *name = json_object_get(entry, "name"), *text = json_object_get(entry, "template");
        if (!json_is_string(name) || !json_is_string(text))
            return md_fail(err, MD_E_FORMAT, "%s: chat_template[%zu] is not {\"name\": ..., \"template\": ...}", what,
                           i);
        MD_TRY(md_tokenizer_add_template(t, json_string_value(name), json_string_value(text), json_string_length(text),
                                         what, err));
    }
    return MD_OK;
}

static md_status load_roles(md_tokenizer *t, const json_t *config, const char *what, md_error *err) {
    static const char *const keys[MD_TOKEN_ROLES] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    for (size_t role = 0; role < MD_TOKEN_ROLES; role++) {
        const json_t *token = json_object_get(config, keys[role]);
        if (json_is_object(token)) token = json_object_get(token, "content"); // a whole AddedToken
        if (!token || json_is_null(token)) continue;
        if (!json_is_string(token))
            return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is %s, expected a string or an object with \"content\"", what,
                           keys[role], md_json_type_name(token));
        free(t->roles[role].text);
        t->roles[role].text = copy(json_string_value(token), json_string_length(token));
        if (!t->roles[role].text) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    }
    return MD_OK;
}

// "added_tokens_decoder": {"151643": {"content": ..., "special": ...}, ...}: transformers adds those that
// tokenizer.json does not have.
static md_status load_added(md_tokenizer *t, const json_t *config, const char *what, md_error *err) {
    const json_t *map = json_object_get(config, "added_tokens_decoder");
    if (!map || json_is_null(map)) return MD_OK;
    if (!json_is_object(map))
        return md_fail(err, MD_E_FORMAT, "%s: \"added_tokens_decoder\" is %s, expected an object", what,
                       md_json_type_name(map));
    size_t known_before = t->added.n;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, key, value) { // not changed, for all that the macro takes no const
        char *end;
        long id = strtol(key, &end, 10);
        if (*end || end == key || id < 0 || id > MD_VOCAB_MAX_ID)
            return md_fail(err, MD_E_FORMAT, "%s: added_tokens_decoder has the id \"%.40s\", expected 0 to %d", what,
                           key, MD_VOCAB_MAX_ID);
        const json_t *content = json_object_get(value, "content");
        bool known = false;
        for (size_t i = 0; i < known_before && !known && json_is_string(content); i++)
            known = t->added.tokens[i].size == json_string_length(content) &&
                    memcmp(t->added.tokens[i].content, json_string_value(content), t->added.tokens[i].size) == 0;
        if (known) continue;
        char place[256];
        snprintf(place, sizeof place, "%s: added_tokens_decoder[%s]", what, key);
        MD_TRY(md_tokenizer_add_token(t, value, id, place, err));
    }
    return MD_OK;
}

// transformers builds a post-processor from these two where tokenizer.json's puts nothing around a text.
static md_status load_bos_and_eos(md_tokenizer *t, const json_t *config, const char *what, md_error *err) {
    bool add_bos = false, add_eos = false;
    MD_TRY(md_json_get_bool(config, "add_bos_token", &add_bos, what, err));
    MD_TRY(md_json_get_bool(config, "add_eos_token", &add_eos, what, err));
    if (t->before.size > 0 || t->after.size > 0) return MD_OK;
    const md_role *bos = &t->roles[MD_TOKEN_BOS], *eos = &t->roles[MD_TOKEN_EOS];
    for (size_t i = 0; i < 2; i++) {
        const md_role *role = i ? eos : bos;
        if (!(i ? add_eos : add_bos) || !role->text) continue;
        uint32_t id = md_vocab_find(&t->vocab, role->text, strlen(role->text));
        if (id == MD_VOCAB_NONE)
            return md_fail(err, MD_E_FORMAT, "%s: \"%s\" is set, but \"%.60s\" is not a token", what,
                           i ? "add_eos_token" : "add_bos_token", role->text);
        MD_TRY(md_ids_append(i ? &t->after : &t->before, &id, 1, err));
    }
    return MD_OK;
}

md_status md_tokenizer_load_config(md_tokenizer *t, const json_t *config, const char *what, md_error *err) {
    if (!json_is_object(config))
        return md_fail(err, MD_E_FORMAT, "%s: found %s, expected an object", what, md_json_type_name(config));
    MD_TRY(load_roles(t, config, what, err));
    MD_TRY(load_added(t, config, what, err));
    MD_TRY(load_bos_and_eos(t, config, what, err));
    return load_templates(t, config, what, err);
}
