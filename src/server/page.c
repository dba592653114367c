// GET /: the chat page, one HTML document with its style and script inside, made once from the files of
// src/server/page/.
#include <nettle/base64.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/embedded.h"
#include "server/route.h"

enum { PAGE_MAX = 4 << 20, HASH_SIZE = BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE) + 1 };

// What page.html has in place of its style and its script.
static const char style_mark[] = "/*style*/", script_mark[] = "/*script*/";

// ---- putting it together ---------------------------------------------------------------------------------------

static bool is_kind(const char *name, const char *kind) {
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot + 1, kind) == 0;
}

// All files of one kind, one after the other.
static void join(md_buf *out, const char *kind) {
    for (const md_embedded *file = md_page_files; file->name; file++)
        if (is_kind(file->name, kind)) md_buf_append(out, file->text, file->bytes);
}

static const char *html_frame(void) {
    for (const md_embedded *file = md_page_files; file->name; file++)
        if (is_kind(file->name, "html")) return file->text;
    return "";
}

// The SHA-256 of a text in base 64, as a policy and an entity tag name it.
static void hash_text(const md_buf *text, char out[HASH_SIZE]) {
    struct sha256_ctx sha;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&sha);
    sha256_update(&sha, text->size, (const uint8_t *)text->data);
    sha256_digest(&sha, sizeof digest, digest);
    base64_encode_raw(out, sizeof digest, digest);
    out[HASH_SIZE - 1] = '\0';
}

static void write_page(md_buf *out, const md_buf *style, const md_buf *script) {
    const char *at = html_frame();
    const struct {
        const char *mark;
        const md_buf *text;
    } parts[] = {{style_mark, style}, {script_mark, script}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *mark = strstr(at, parts[i].mark);
        if (!mark) break;
        md_buf_append(out, at, (size_t)(mark - at));
        md_buf_append(out, parts[i].text->data, parts[i].text->size);
        at = mark + strlen(parts[i].mark);
    }
    md_buf_puts(out, at);
}

// Made by make_page and never freed.
static struct page {
    const char *html; // NULL: there was no memory for it
    size_t bytes;
    char etag[HASH_SIZE + 2]; // quoted, of the whole document
    char policy[512];         // Content-Security-Policy: only this style and this script, by their SHA-256
} page;

static void make_page(void) {
    md_buf style, script, html;
    md_buf_init(&style, PAGE_MAX);
    md_buf_init(&script, PAGE_MAX);
    md_buf_init(&html, PAGE_MAX);
    join(&style, "css");
    md_buf_puts(&script, "(() => {\n\"use strict\";\n"); // one scope for all files, and none of it is the window's
    join(&script, "js");
    md_buf_puts(&script, "})();\n");
    write_page(&html, &style, &script);
    char style_hash[HASH_SIZE], script_hash[HASH_SIZE], html_hash[HASH_SIZE];
    if (!style.failed && !script.failed && !html.failed) {
        hash_text(&style, style_hash);
        hash_text(&script, script_hash);
        hash_text(&html, html_hash);
        snprintf(page.etag, sizeof page.etag, "\"%s\"", html_hash);
        // data: is the icon in the page's own head. With Trusted Types a mistake in the script can't make HTML of text.
        snprintf(
            page.policy, sizeof page.policy,
            "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
            "trusted-types 'none'",
            script_hash, style_hash);
        page.html = html.data;
        page.bytes = html.size;
    } else {
        md_buf_free(&html);
    }
    md_buf_free(&style);
    md_buf_free(&script);
}

// ---- GET / -----------------------------------------------------------------------------------------------------

void md_handle_page(md_request *request, const md_served *served) {
    (void)served;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_page);
    if (!page.html) {
        md_reply_error(request, 500, "server_error", NULL, NULL, "page: out of memory");
        return;
    }
    const md_header headers[] = {
        {"Content-Security-Policy", page.policy},
        {"ETag", page.etag},
        {"Cache-Control", "no-cache"}, // kept, but asked for again: a new version is seen at once
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {NULL, NULL},
    };
    const char *have = md_request_header(request, "If-None-Match");
    bool same = have && strstr(have, page.etag);
    md_reply_fixed(request, same ? 304 : 200, same ? NULL : "text/html; charset=utf-8", same ? "" : page.html,
                   same ? 0 : page.bytes, headers);
}
