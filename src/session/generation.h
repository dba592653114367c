// What md_generate needs of a generation beyond the public functions: taking tokens that an engine chose itself.
#ifndef MD_SESSION_GENERATION_H
#define MD_SESSION_GENERATION_H

#include "session/session.h"

// True when tokens follow from the unchanged logits by md_choice's rules and nothing else of them is wanted, so that an
// engine can choose them without handing logits over (md_engine_ops.burst). Fills in the column's choice and stops, and
// lowers *most to the tokens it may still have.
bool md_generation_is_plain(const md_generation *generation, md_burst_column *column, uint32_t *most);

// The session whose logits it reads.
md_session *md_generation_session(const md_generation *generation);

// Takes the token an engine chose, as md_generation_next does the one it chooses; the tokens before it are in the
// session already.
md_status md_generation_take(md_generation *generation, uint32_t id, md_piece *piece, md_error *err);

#endif
