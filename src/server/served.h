// The model that is served, with everything requests need of it. Immutable once it is loaded; any thread may use it.
#ifndef MD_SERVER_SERVED_H
#define MD_SERVER_SERVED_H

#include <jansson.h>
#include <stdatomic.h>

#include "base/status.h"
#include "chat/format.h"
#include "chat/toolcall.h"
#include "server/server.h"
#include "server/token_order.h"

enum { MD_MARKS_MAX = 8 };

typedef struct md_served {
    md_model *model; // owned
    md_model_info info;
    const md_tokenizer *tokenizer; // never NULL: a model without one is not served
    char *id;                      // the model's name in the API; owned
    int64_t created;               // seconds since 1970
    uint32_t context;              // positions of a request
    md_session_options session_options;
    md_sampling defaults;
    md_chat_format format; // owned; empty: there is no chat
    md_toolcall_style toolcall_style;
    bool thinks; // its template knows "<think>"
    // Control tokens that are part of an answer: where the tokenizer declares the marks of calls and reasoning as such.
    uint32_t marks[MD_MARKS_MAX];
    uint32_t mark_count;
    md_token_order order;
} md_served;

// Opens the model. `fraction` follows the loading; setting *give_up stops it (MD_E_CANCELLED).
md_status md_served_open(const md_server_options *options, _Atomic(double) *fraction, atomic_bool *give_up,
                         md_served **out, md_error *err);
void md_served_close(md_served *served); // NULL is fine

bool md_served_is_mark(const md_served *served, uint32_t token);

#endif
