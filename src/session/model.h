// The loaded model behind md_model: snapshot, plan, engine and tokenizer, and the count of those who hold it. Immutable
// once open but for that count; the engine serialises steps itself.
#ifndef MD_SESSION_MODEL_H
#define MD_SESSION_MODEL_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "base/status.h"
#include "text/tokenizer.h"

// Columns of one step, of a batch and of a prompt, that sessions ask for, whatever an engine offers.
enum { MD_WIDEST_STEP = 256, MD_WIDEST_PROMPT = 1024 };

struct md_model {
    atomic_uint holders;
    md_snapshot *snapshot;   // owned
    md_plan *plan;           // owned
    md_engine *engine;       // owned
    md_tokenizer *tokenizer; // owned; NULL: the snapshot has none
    char *name;              // owned
    md_model_info info;
};

// Puts a model together from its parts; takes ownership of all of them, also on failure. tokenizer may be NULL.
md_status md_model_assemble(const char *name, md_snapshot *snapshot, md_plan *plan, md_engine *engine,
                            md_tokenizer *tokenizer, md_model **out, md_error *err);

void md_model_hold(md_model *model); // md_model_close lets go

// KV cache bytes of one position; format NULL = bf16.
uint64_t md_kv_position_bytes(const md_snapshot *snapshot, const md_kv_format *format);

#endif
