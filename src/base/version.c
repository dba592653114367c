#include "megadecode.h"

#ifndef MEGADECODE_VERSION
#error "the build passes MEGADECODE_VERSION"
#endif

const char *md_version(void) { return MEGADECODE_VERSION; }
