// The filters, in two tables: filters.c has those on single values, filters_seq.c those on sequences.
#ifndef MD_CHAT_JINJA_FILTERS_H
#define MD_CHAT_JINJA_FILTERS_H

#include "chat/jinja/run.h"

const md_jn_func *md_jn_find_seq_filter(const char *name, size_t n);

// The text that Jinja's case-insensitive comparisons use: strings in lower case, everything else unchanged.
md_status md_jn_ignore_case(md_jn_run *run, const md_jv *v, md_jv *out);

#endif
