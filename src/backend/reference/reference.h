// What tests look at inside the reference engine.
#ifndef MD_BACKEND_REFERENCE_REFERENCE_H
#define MD_BACKEND_REFERENCE_REFERENCE_H

#include "backend/backend.h"

// The residual stream X of the last column computed, [hidden], as the last stage of the plan left it. Borrowed.
const float *md_reference_residual(const md_engine *engine);

#endif
