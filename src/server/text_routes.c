// POST /tokenize, /detokenize, /apply-template: what the model sees, for people who look for a fault.
#include <stdlib.h>

#include "base/json.h"
#include "server/answer.h"
#include "server/chat_request.h"
#include "server/fields.h"
#include "server/route.h"

typedef md_status (*work)(const json_t *body, const md_served *served, json_t **out, md_error *err);

static void handle(md_request *request, const md_served *served, work run) {
    json_t *body, *out = NULL;
    md_error err;
    md_gate_enter(&request->app->gate);
    md_status status = md_body_parse(request, &body, &err);
    if (status == MD_OK) status = run(body, served, &out, &err);
    json_decref(body);
    md_gate_leave(&request->app->gate);
    if (status == MD_OK)
        md_reply_json(request, 200, out);
    else
        md_reply_failure(request, status, &err, false);
}

static md_status tokenize(const json_t *body, const md_served *served, json_t **out, md_error *err) {
    const json_t *content = md_field(body, "content");
    bool add_special = false, parse_special = true;
    if (!json_is_string(content))
        return md_fail(err, MD_E_USAGE, "content: found %s, expected a string", md_json_type_name(content));
    MD_TRY(md_field_bool(body, "add_special", &add_special, err));
    MD_TRY(md_field_bool(body, "parse_special", &parse_special, err));
    uint32_t *ids;
    size_t n;
    MD_TRY(md_encode(served->tokenizer, json_string_value(content), json_string_length(content),
                     (add_special ? MD_ENCODE_ADD_SPECIAL : 0) | (parse_special ? MD_ENCODE_PARSE_SPECIAL : 0), &ids,
                     &n, err));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    md_free(ids);
    *out = json_pack("{s:o,s:I}", "tokens", list, "count", (json_int_t)n);
    return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "tokens: out of memory");
}

static md_status detokenize(const json_t *body, const md_served *served, json_t **out, md_error *err) {
    const json_t *tokens = md_field(body, "tokens");
    if (!json_is_array(tokens))
        return md_fail(err, MD_E_USAGE, "tokens: found %s, expected an array of token ids", md_json_type_name(tokens));
    size_t n = json_array_size(tokens), size;
    uint32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids) return md_fail(err, MD_E_MEMORY, "tokens: out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(tokens, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= (json_int_t)served->info.vocab) {
            free(ids);
            return md_fail(err, MD_E_USAGE, "tokens[%zu]: expected a token id from 0 to %u", i, served->info.vocab - 1);
        }
        ids[i] = (uint32_t)json_integer_value(id);
    }
    char *text;
    md_status status = md_decode(served->tokenizer, ids, n, false, &text, &size, err);
    free(ids);
    MD_TRY(status);
    *out = json_pack("{s:o}", "content", md_text_json(text, size));
    md_free(text);
    return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "content: out of memory");
}

static md_status apply_template(const json_t *body, const md_served *served, json_t **out, md_error *err) {
    md_chat_prompt prompt;
    MD_TRY(md_chat_request_render(body, served, &prompt, err));
    *out = json_pack("{s:o}", "prompt", md_text_json(prompt.text, prompt.size));
    md_chat_prompt_free(&prompt);
    return *out ? MD_OK : md_fail(err, MD_E_MEMORY, "prompt: out of memory");
}

void md_handle_tokenize(md_request *request, const md_served *served) { handle(request, served, tokenize); }
void md_handle_detokenize(md_request *request, const md_served *served) { handle(request, served, detokenize); }
void md_handle_apply_template(md_request *request, const md_served *served) { handle(request, served, apply_template); }
