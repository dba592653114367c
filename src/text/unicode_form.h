// Unicode normal forms (NFC, NFD, NFKC, NFKD), linear for any text.
#ifndef MD_TEXT_UNICODE_FORM_H
#define MD_TEXT_UNICODE_FORM_H

#include "base/buf.h"

// Appends the normal form of VALID text[0..n) to *out.
md_status md_unicode_form(const char *text, size_t n, bool compatible, bool composed, md_buf *out, md_error *err);

#endif
