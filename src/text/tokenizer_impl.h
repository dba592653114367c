// The parts of an open tokenizer; for the files of src/text alone.
#ifndef MD_TEXT_TOKENIZER_IMPL_H
#define MD_TEXT_TOKENIZER_IMPL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalize.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

// A chat template: `name` is NULL for the one that chat_template.jinja or a plain string gave.
typedef struct md_named_template {
    char *name, *text; // owned
    size_t size;       // bytes of the text
} md_named_template;

enum { MD_TOKENIZER_MAX_TEMPLATES = 32 };

typedef struct md_role {
    char *text;  // owned; NULL: not known
    uint32_t id; // MD_VOCAB_NONE: the text is not a token
} md_role;

struct md_tokenizer {
    md_vocab vocab; // the model's tokens and the added ones
    md_added added;
    md_trie raw_trie;        // added tokens that are looked for in the text as it is
    md_trie normalized_trie; // those that are looked for in the normalized text, by their normal form
    md_trie guarded_trie;    // all of them by content, for texts that may not use control tokens everywhere
    uint32_t *added_index;   // [vocab.n_ids] index in added.tokens, or MD_VOCAB_NONE
    bool *control;           // [vocab.n_ids] must not come out of plain text
    md_normalizer normalizer;
    md_pretok pretok;
    md_bpe bpe;
    md_ids before, after; // what the post-processor puts around a text
    md_decoder decoder;
    md_buf token_bytes;       // what every token stands for, one after the other
    uint32_t *token_bytes_at; // [vocab.n_ids + 1] where each starts
    bool *is_byte;            // [vocab.n_ids] the token is <0xNN> and the decoder makes a byte of it
    md_role roles[MD_TOKEN_ROLES];
    md_named_template templates[MD_TOKENIZER_MAX_TEMPLATES];
    size_t n_templates;
};

enum { MD_TOKENIZER_MAX_JSON = 128 * 1024 * 1024, MD_TOKENIZER_MAX_TEXT = 64 * 1024 * 1024 };

// Reads the parts of a tokenizer.json, in tokenizer_load.c.
md_status md_tokenizer_load_json(md_tokenizer *tokenizer, const json_t *root, const char *what, md_error *err);
// Reads tokenizer_config.json: roles, templates, more added tokens; before md_tokenizer_finish.
md_status md_tokenizer_load_config(md_tokenizer *tokenizer, const json_t *config, const char *what, md_error *err);
// Adds one token to the added ones, and to the vocabulary where it is not there yet.
md_status md_tokenizer_add_token(md_tokenizer *tokenizer, const json_t *json, int64_t id, const char *what,
                                 md_error *err);

// Adds a chat template; the first of a name counts.
md_status md_tokenizer_add_template(md_tokenizer *tokenizer, const char *name, const char *text, size_t n,
                                    const char *what, md_error *err);
// What decoders see of a token: an added token's normal form where it has one, as in Hugging Face; else its text. NULL
// where the id has no token.
const char *md_tokenizer_decoded_text(const md_tokenizer *tokenizer, uint32_t id, size_t *n);
// Makes the tables that need all tokens: tries, control flags, the bytes of every token.
md_status md_tokenizer_finish(md_tokenizer *tokenizer, const char *what, md_error *err);

#endif
