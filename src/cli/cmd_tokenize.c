// `megadecode tokenize`: text to ids and back.
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/shared.h"

enum { MAX_WORDS = 1 << 20 };

typedef struct tokenize_args {
    md_model_args model;
    bool decode, no_special, json;
} tokenize_args;

#define AT(member) offsetof(tokenize_args, member)
static const md_option tokenize_options[] = {
    {0, "decode", NULL, MD_OPT_FLAG, AT(decode), 0, 0,
     "ids to text: numbers with spaces, commas or JSON's signs between them"},
    {0, "no-special", NULL, MD_OPT_FLAG, AT(no_special), 0, 0,
     "add no special tokens; with --decode leave them out of the text"},
    {0, "json", NULL, MD_OPT_FLAG, AT(json), 0, 0, "print {\"ids\": [...]} or {\"text\": \"...\"}"},
};
#undef AT

static const md_option_group tokenize_groups[] = {
    MD_GROUP_MODEL(tokenize_args, model),
    {"Tokenize", tokenize_options, sizeof tokenize_options / sizeof *tokenize_options, 0},
};

static md_status print_ids(const uint32_t *ids, size_t n, bool json, md_error *err) {
    if (json) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
        md_out_json(json_pack("{s:o}", "ids", list));
        return MD_OK;
    }
    md_buf text;
    md_buf_init(&text, SIZE_MAX / 2);
    for (size_t i = 0; i < n; i++) md_buf_printf(&text, "%s%" PRIu32, i ? " " : "", ids[i]);
    md_buf_putc(&text, '\n');
    md_status status = text.failed ? md_fail(err, MD_E_MEMORY, "out of memory for %zu ids", n) : MD_OK;
    if (status == MD_OK) md_out_write(text.data, text.size);
    md_buf_free(&text);
    return status;
}

static md_status encode(const tokenize_args *args, const md_tokenizer *tokenizer, const char *text, size_t size,
                        md_error *err) {
    uint32_t *ids = NULL, add = args->no_special ? 0 : MD_ENCODE_ADD_SPECIAL;
    size_t n = 0;
    MD_TRY(md_encode(tokenizer, text, size, add | MD_ENCODE_PARSE_SPECIAL, &ids, &n, err));
    md_status status = print_ids(ids, n, args->json, err);
    md_free(ids);
    return status;
}

// Bytes from `at` that may stand between ids: a space, a bracket, or the member name "ids" of JSON; 0: none.
static size_t between_ids(const char *at, const char *end) {
    if (isspace((unsigned char)*at) || (*at && strchr(",;:[]{}()\"'", *at))) return 1;
    return end - at >= 3 && memcmp(at, "ids", 3) == 0 ? 3 : 0;
}

// What stands at `at` and is no id.
static md_status fail_no_id(const char *at, const char *end, md_error *err) {
    size_t n = 1;
    while (n < 40 && at + n < end && !between_ids(at + n, end)) n++;
    if (*at == '-') return md_fail(err, MD_E_USAGE, "ids: found a negative number, \"%.*s\"", (int)n, at);
    return md_fail(err, MD_E_USAGE, "ids: found \"%.*s\", expected numbers", (int)n, at);
}

// The numbers of a text like "1 2 3", "[1, 2, 3]" or {"ids": [1, 2, 3]}, each below `vocab`. *ids is malloc'd.
static md_status parse_ids(const char *text, size_t size, size_t vocab, uint32_t **ids, size_t *n, md_error *err) {
    bool any = false;
    *n = 0;
    *ids = malloc((size / 2 + 1) * sizeof **ids); // an id takes a digit and a separator
    if (!*ids) return md_fail(err, MD_E_MEMORY, "out of memory");
    for (const char *at = text, *end = text + size; at < end;) {
        if (!isspace((unsigned char)*at)) any = true;
        if (!isdigit((unsigned char)*at)) {
            size_t skip = between_ids(at, end);
            if (!skip) return fail_no_id(at, end, err);
            at += skip;
            continue;
        }
        char *after = NULL;
        errno = 0;
        unsigned long long id = strtoull(at, &after, 10);
        if (errno || id >= vocab)
            return md_fail(err, MD_E_USAGE, "ids: found %.*s, expected a token id below %zu",
                           (int)(after - at < 40 ? after - at : 40), at, vocab);
        (*ids)[(*n)++] = (uint32_t)id;
        at = after;
    }
    return any ? MD_OK : md_fail(err, MD_E_USAGE, "ids: found nothing, expected numbers");
}

static md_status decode(const tokenize_args *args, const md_tokenizer *tokenizer, const char *input, size_t input_size,
                        md_error *err) {
    uint32_t *ids = NULL;
    char *text = NULL;
    size_t n = 0, size = 0;
    md_status status = parse_ids(input, input_size, md_tokenizer_vocab_size(tokenizer), &ids, &n, err);
    if (status == MD_OK) status = md_decode(tokenizer, ids, n, args->no_special, &text, &size, err);
    if (status == MD_OK && args->json) md_out_json(json_pack("{s:o}", "text", json_stringn(text, size)));
    if (status == MD_OK && !args->json) md_out_write(text, size);
    md_free(text);
    free(ids);
    return status;
}

// The words joined by spaces, or standard input byte for byte when there are none.
static md_status read_text(int words, char **word, char **out, size_t *size, md_error *err) {
    if (words == 0) return md_read_input(NULL, NULL, out, size, err);
    md_buf text;
    md_buf_init(&text, MD_INPUT_MAX);
    for (int i = 0; i < words; i++) {
        if (i) md_buf_putc(&text, ' ');
        md_buf_puts(&text, word[i]);
    }
    *size = text.size;
    bool failed = text.failed;
    *out = md_buf_take(&text);
    if (failed || !*out) return md_fail(err, MD_E_MEMORY, "out of memory");
    return md_utf8_check("the text", *out, *size, MD_E_USAGE, err);
}

static int tokenize(const void *arguments, int words, char **word) {
    const tokenize_args *args = arguments;
    md_error err = {0};
    char *model = NULL, *dir = NULL, *text = NULL;
    size_t size = 0;
    md_tokenizer *tokenizer = NULL;
    md_status status = MD_OK;
    MD_TRY_GOTO(md_find_model(args->model.model, &model, &err));
    MD_TRY_GOTO(md_model_dir(model, &dir, &err));
    MD_TRY_GOTO(md_tokenizer_open(dir, &tokenizer, &err));
    MD_TRY_GOTO(read_text(words, word, &text, &size, &err));
    MD_TRY_GOTO(args->decode ? decode(args, tokenizer, text, size, &err) : encode(args, tokenizer, text, size, &err));
fail:
    md_tokenizer_close(tokenizer);
    free(text);
    md_free(dir);
    free(model);
    return status == MD_OK ? MD_EXIT_DONE : md_out_error("tokenize", args->json, &err);
}

const md_command md_cmd_tokenize = {
    .name = "tokenize",
    .summary = "text to token ids, and back",
    .usage = "[TEXT]",
    .details = "Without TEXT standard input is read, byte for byte. Text that is no UTF-8 is refused.",
    .groups = tokenize_groups,
    .group_count = sizeof tokenize_groups / sizeof *tokenize_groups,
    .args_size = sizeof(tokenize_args),
    .max_words = MAX_WORDS,
    .run = tokenize,
};
