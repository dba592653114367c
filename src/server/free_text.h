// Text of any kind in which a mark ("<function", "</think>") means something.
#ifndef MD_SERVER_FREE_TEXT_H
#define MD_SERVER_FREE_TEXT_H

#include "server/grammar.h"

enum { MD_MARK_MAX = 32 };

// Appends code that reads any text up to and with the first `mark`, and goes on behind itself. "<" stands in the mark
// at its beginning and nowhere else. `end` (may be NULL): the text may also end without a mark; what is to follow then
// is appended later, at md_free_text_end. *end begins as UINT32_MAX.
md_status md_free_text_emit(md_grammar *grammar, const char *mark, uint32_t *end, md_error *err);
void md_free_text_end(md_grammar *grammar, uint32_t end);

#endif
