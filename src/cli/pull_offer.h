// A pull as a person sees it at the terminal: the bar while it runs, and the offer to do one where a command is given
// the name of a model that is not here yet.
#ifndef MD_CLI_PULL_OFFER_H
#define MD_CLI_PULL_OFFER_H

#include <stdbool.h>

#include "cli/hub_pull.h"
#include "cli/shared.h"
#include "cli/term.h"

typedef struct md_pull_display { // zero-initialised
    md_progress bar;
    char label[96];
} md_pull_display;

void md_pull_display_draw(void *display, const md_hub_progress *now); // md_hub_request.progress

// Where the model to use is a repo id that is not in the local cache: asks at the terminal whether to download it, and
// does. MD_OK also where there is nothing to offer, or nobody to ask (`may_ask` false, no terminal, HF_HUB_OFFLINE):
// opening the model then says what is missing. MD_E_CANCELLED: not wanted. Otherwise what md_hub_pull gives.
md_status md_pull_offer(const md_model_args *model, bool may_ask, md_error *err);

#endif
