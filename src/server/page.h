// The chat page at "/": one HTML document with its style and script inside, made once from the files of
// src/server/page/. Thread rule: any thread.
#ifndef MD_SERVER_PAGE_H
#define MD_SERVER_PAGE_H

#include <stddef.h>

#include "base/status.h"

typedef struct md_page {
    const char *html; // never freed, as is all of this
    size_t bytes;
    char etag[72];    // quoted, of the whole document
    char policy[512]; // Content-Security-Policy: only this style and this script, by their SHA-256
} md_page;

// The page; NULL when there is no memory for it.
const md_page *md_page_get(void);

#endif
