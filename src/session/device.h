// Which engine on which device: the options and environment variables of md_model_open made into an open engine.
#ifndef MD_SESSION_DEVICE_H
#define MD_SESSION_DEVICE_H

#include "backend/backend.h"

// Where an option is unset, MEGADECODE_ENGINE, MEGADECODE_DEVICE, MEGADECODE_THREADS and MEGADECODE_GROUPS are asked.
// Without a device a GPU is taken where one is usable and the CPU otherwise. MD_E_USAGE names the option or variable;
// MD_E_DEVICE: a GPU was asked for and there is none.
md_status md_device_open(const md_plan *plan, const md_model_options *options, md_engine **out, md_error *err);

#endif
