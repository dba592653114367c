// The picture of a snapshot and its plan: which stages a token passes, the weights each reads, which vectors they hand
// to each other; and the bits of every matrix.
#ifndef MD_CLI_INSPECT_SVG_H
#define MD_CLI_INSPECT_SVG_H

#include <jansson.h>

#include "base/buf.h"
#include "base/status.h"

// `root`: what md_inspect says, its plan too; `name`: what the model is called. *text for md_buf_free in any case.
// MD_E_MEMORY.
md_status md_inspect_svg(const json_t *root, const char *name, md_buf *text, md_error *err);

#endif
