// Messages for people, on stderr. Data goes to stdout and never through here.
#ifndef MD_BASE_LOG_H
#define MD_BASE_LOG_H

#include "base/status.h"

typedef enum md_log_level { MD_LOG_ERROR, MD_LOG_WARN, MD_LOG_INFO, MD_LOG_DEBUG } md_log_level;

// The level is that of MEGADECODE_LOG (error, warn, info or debug) until this is called; MD_LOG_WARN where that is
// unset, empty or none of them.
void md_log_set_level(md_log_level level);
md_status md_log_check(md_error *err); // MD_E_USAGE: MEGADECODE_LOG is none of them; a program refuses it at its start
void md_log(md_log_level level, const char *fmt, ...) MD_PRINTF(2, 3); // one line, whole (thread-safe)

#endif
