#include "server/logprobs.h"

#include <math.h>

#include "server/answer.h"

json_t *md_token_text_json(const md_served *served, uint32_t id) {
    size_t n = 0;
    const char *bytes = md_tokenizer_token_bytes(served->tokenizer, id, &n);
    json_t *text = bytes ? json_stringn(bytes, n) : json_string("");
    if (text) return text;
    char *decoded;
    if (md_decode(served->tokenizer, &id, 1, false, &decoded, &n, NULL) != MD_OK) return NULL;
    text = md_text_json(decoded, n);
    md_free(decoded);
    return text;
}

bool md_token_is_shown(const md_served *served, const md_job_token *token) {
    bool control = md_tokenizer_is_special(served->tokenizer, token->id) && !md_served_is_mark(served, token->id);
    return !token->hidden && !control;
}

double md_logprob_shown(double logprob) { return isfinite(logprob) ? logprob : -9999.0; }

static json_t *entry_json(const md_served *served, uint32_t id, double logprob) {
    size_t n = 0;
    const char *bytes = md_tokenizer_token_bytes(served->tokenizer, id, &n);
    json_t *list = json_array();
    for (size_t i = 0; bytes && i < n; i++) json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    return json_pack("{s:o,s:f,s:o}", "token", md_token_text_json(served, id), "logprob", md_logprob_shown(logprob),
                     "bytes", list);
}

json_t *md_chat_logprob_json(const md_served *served, const md_delivery *delivery, const md_job_token *token) {
    json_t *entry = entry_json(served, token->id, token->logprob), *top = json_array();
    for (uint32_t i = 0; i < token->top_count; i++) {
        const md_logprob *t = &delivery->tops[token->top_first + i];
        json_array_append_new(top, entry_json(served, t->token, t->logprob));
    }
    json_object_set_new(entry, "top_logprobs", top);
    return entry;
}
