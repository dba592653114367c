// The tokenizer: text to token ids and back, as Hugging Face's tokenizers library does it from the same tokenizer.json.
//
// A tokenizer is immutable once it is open: any number of threads may use one at the same time. What a file asks for
// and this reader does not model is refused when it is opened, by the name of the type (MD_E_UNSUPPORTED).
//
// Input is any bytes. A byte that is not part of valid UTF-8 is read as U+FFFD (one for each maximal invalid piece, as
// Unicode recommends and Python's and Rust's lossy conversions do), so that bad bytes give what Hugging Face gives for
// the text it would see, and no token sequence that no text can have. NUL is an ordinary character.
#ifndef MD_TEXT_TOKENIZER_H
#define MD_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "text/ids.h"

typedef struct md_tokenizer md_tokenizer;

// Opens the folder `dir`: tokenizer.json, and where present tokenizer_config.json and chat_template.jinja. *out is
// owned by the caller; NULL on failure. MD_E_NOT_FOUND, MD_E_FORMAT, MD_E_UNSUPPORTED, MD_E_MEMORY, naming the field.
md_status md_tokenizer_open(const char *dir, md_tokenizer **out, md_error *err);

// The same from memory. `config` (tokenizer_config.json) and `chat_template` (chat_template.jinja) may be NULL.
typedef struct md_tokenizer_source {
    const char *json;
    size_t json_size;
    const char *config;
    size_t config_size;
    const char *chat_template;
    size_t chat_template_size;
    const char *name; // names the source in messages; NULL: "tokenizer.json"
} md_tokenizer_source;
md_status md_tokenizer_open_memory(const md_tokenizer_source *source, md_tokenizer **out, md_error *err);

void md_tokenizer_close(md_tokenizer *tokenizer); // NULL is fine

// ---- encode ----------------------------------------------------------------------------------------------------

typedef struct md_encode_options {
    bool add_special;   // add what the post-processor adds (BOS and the like)
    bool parse_special; // recognise added tokens ("<|im_start|>", "</think>") in the text
} md_encode_options;

// Appends the ids of text[0..n) to *out. options NULL = both true, which is what Hugging Face's encode() does.
//
// With parse_special false no text can become a control token: added tokens, special or not, are read as plain
// characters, and merges that would end in one are not done. Only added tokens made of whitespace alone are still
// recognised, since they are text. MD_E_CONTEXT when out->max would be passed.
md_status md_tokenizer_encode(const md_tokenizer *tokenizer, const char *text, size_t n,
                              const md_encode_options *options, md_ids *out, md_error *err);

// Encodes the concatenation of the spans (md_text_span: megadecode.h; `parse` is parse_special for its bytes) as one
// text (a word may cross from one span into the next). An added token is recognised only where every byte of it comes
// from spans with parse = true.
md_status md_tokenizer_encode_spans(const md_tokenizer *tokenizer, const md_text_span *spans, size_t n_spans,
                                    bool add_special, md_ids *out, md_error *err);

// ---- decode ----------------------------------------------------------------------------------------------------

// Appends the text of the ids to *out: always valid UTF-8, equal to Hugging Face's decode(). Ids without a token (the
// padding rows of a model's vocabulary) give nothing. With skip_special, tokens flagged special give nothing. For ids
// that arrive one by one see text/detok.h.
md_status md_tokenizer_decode(const md_tokenizer *tokenizer, const uint32_t *ids, size_t n, bool skip_special,
                              md_buf *out, md_error *err);

// ---- lookups ---------------------------------------------------------------------------------------------------

size_t md_tokenizer_vocab_size(const md_tokenizer *tokenizer); // 1 + the highest id; ids may have gaps

// The id of a token as it is written in tokenizer.json ("<|im_end|>", "\u0120the"). False where there is none.
bool md_tokenizer_find(const md_tokenizer *tokenizer, const char *token, size_t n, uint32_t *id);

// The token as it is written in tokenizer.json; NULL where the id has none. Borrowed; NUL-terminated, but may hold
// NULs.
const char *md_tokenizer_token(const md_tokenizer *tokenizer, uint32_t id, size_t *n);

// The bytes the token stands for inside a text (" the"; one byte of a character for a byte token); may be no valid
// UTF-8 by itself. NULL where the id has no token. Borrowed; joined over a sequence they give the decoded text, but for
// what a decoder does at the start of a text (the one leading space that SentencePiece-style decoders take off).
const char *md_tokenizer_token_bytes(const md_tokenizer *tokenizer, uint32_t id, size_t *n);

bool md_tokenizer_is_special(const md_tokenizer *tokenizer, uint32_t id); // an added token with "special": true
bool md_tokenizer_is_added(const md_tokenizer *tokenizer, uint32_t id);   // any added token

// Tokens by role, as tokenizer_config.json names them (BOS and UNK also as tokenizer.json shows them).
typedef enum md_token_role {
    MD_TOKEN_BOS,
    MD_TOKEN_EOS,
    MD_TOKEN_PAD,
    MD_TOKEN_UNK,
    MD_TOKEN_ROLES // how many there are
} md_token_role;
const char *md_tokenizer_role_text(const md_tokenizer *tokenizer, md_token_role role); // NULL where not known; borrowed
bool md_tokenizer_role_id(const md_tokenizer *tokenizer, md_token_role role, uint32_t *id);

// True when add_special puts a BOS in front. A chat template that writes its own BOS is encoded with add_special false.
bool md_tokenizer_adds_bos(const md_tokenizer *tokenizer);

// The chat template's text, borrowed; NULL where there is none. `name` picks one of several named templates
// ("tool_use", "default"); NULL is the default: chat_template.jinja first, then tokenizer_config.json.
const char *md_tokenizer_chat_template(const md_tokenizer *tokenizer, const char *name, size_t *n);

#endif
