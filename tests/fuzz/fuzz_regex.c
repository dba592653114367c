// The input is a regular expression in Oniguruma's dialect, a NUL, and a text. It is refused with a reason, or its
// matches lie in the text, in order and without overlaps, on the borders of characters; replacing works.
#include <string.h>

#include "fuzz/fuzz.h"
#include "text/regex.h"
#include "text/utf8.h"

static bool is_border(const char *text, size_t n, size_t at) {
    return at == n || ((unsigned char)text[at] & 0xc0) != 0x80;
}

static void match(const md_pattern *pattern, const char *text, size_t n, md_match_scratch *scratch) {
    md_match_iter iter;
    size_t start, end, last = 0, count = 0;
    bool found = true;
    if (md_match_begin(&iter, pattern, text, n, scratch, NULL) != MD_OK) return;
    while (md_match_next(&iter, &found, &start, &end, NULL) == MD_OK && found) {
        require(start >= last && end >= start && end <= n);
        require(is_border(text, n, start) && is_border(text, n, end));
        require(++count <= n + 1);
        last = end;
    }
}

static void replace(const md_pattern *pattern, const char *text, size_t n, md_match_scratch *scratch) {
    md_buf in, out;
    md_buf_init(&in, 1 << 16);
    md_buf_init(&out, 1 << 20);
    if (md_buf_append(&in, text, n) == MD_OK && md_match_replace(pattern, &in, "ab", 2, scratch, &out, NULL) == MD_OK)
        require(out.size <= 3 * n + 2 && md_utf8_valid_prefix(md_buf_str(&out), out.size) == out.size);
    md_buf_free(&in);
    md_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    size_t regex_size, n;
    const char *regex = next_part(&at, end, &regex_size);
    const char *text = next_part(&at, end, &n);
    md_pattern *pattern;
    md_error err = {0};
    n = md_utf8_valid_prefix(text, n);
    regex_size = md_utf8_valid_prefix(regex, regex_size); // it comes out of a JSON string
    if (md_pattern_regex(regex, regex_size, "regex", &pattern, &err) != MD_OK) {
        require(err.message[0] != 0);
        return 0;
    }
    md_match_scratch scratch = {0};
    match(pattern, text, n, &scratch);
    replace(pattern, text, n, &scratch);
    md_match_scratch_free(&scratch);
    md_pattern_free(pattern);
    return 0;
}
