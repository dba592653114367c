// Messages for people, on stderr. Data goes to stdout and never through here.
#ifndef MD_BASE_LOG_H
#define MD_BASE_LOG_H

#include "base/status.h"

typedef enum md_log_level { MD_LOG_ERROR, MD_LOG_WARN, MD_LOG_INFO, MD_LOG_DEBUG } md_log_level;

void md_log_set_level(md_log_level level); // default MD_LOG_WARN; MEGADECODE_LOG=error|warn|info|debug overrides
void md_log(md_log_level level, const char *fmt, ...) MD_PRINTF(2, 3); // one line, whole (thread-safe)

#endif
