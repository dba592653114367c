// How a session's KV cache is stored, from the text people give: "none", "snapshot", "8", "4", or a file.
#ifndef MD_SESSION_KV_SPEC_H
#define MD_SESSION_KV_SPEC_H

#include "model/snapshot.h"

// *out: malloc'd [layers], or NULL for a bf16 cache (spec NULL or "none", or a file that lists no layer). MD_E_USAGE,
// and what md_kv_config_read gives for a file.
md_status md_kv_spec_read(const md_snapshot *snapshot, const char *spec, md_kv_format **out, md_error *err);

#endif
