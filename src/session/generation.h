// What md_generate needs of a generation beyond the public functions: taking tokens that an engine chose itself.
#ifndef MD_SESSION_GENERATION_H
#define MD_SESSION_GENERATION_H

#include "session/session.h"

// True when each token is the argmax of the unchanged logits and nothing else of them is wanted, so that an engine can
// choose tokens without handing logits over (md_engine_ops.burst).
bool md_generation_is_argmax(const md_generation *generation);

// Takes the token an engine chose, as md_generation_next does the one it chooses; the tokens before it are in the
// session already.
md_status md_generation_take_argmax(md_generation *generation, uint32_t id, md_piece *piece, md_error *err);

#endif
