// Which handler answers a request, and who may ask.
#ifndef MD_SERVER_ROUTE_H
#define MD_SERVER_ROUTE_H

#include "server/http.h"

struct md_route {
    const char *path;
    bool prefix; // the path goes on ("/v1/models/")
    bool post;   // POST; else GET and HEAD
    bool open;   // no API key is asked for
    bool loaded; // only once the model is loaded: `served` is not NULL
    void (*run)(md_request *request, const md_served *served);
};

// Finds the request's route; where there is none, or it may not be used, sets request->early.
void md_route_find(md_request *request, const char *method, const char *url);
void md_route_run(md_request *request);                     // replies
void md_route_refuse(md_request *request, unsigned status); // replies with the error object of `status`
// Kinds of 400.
enum {
    MD_BAD_HOST = 4001, // no Host header, or several
    MD_BAD_LINE         // of the request
};

// The handlers (served is NULL only where `loaded` is false).
void md_handle_page(md_request *request, const md_served *served);
void md_handle_health(md_request *request, const md_served *served);
void md_handle_metrics(md_request *request, const md_served *served);
void md_handle_models(md_request *request, const md_served *served);
void md_handle_model(md_request *request, const md_served *served);
void md_handle_props(md_request *request, const md_served *served);
void md_handle_tokenize(md_request *request, const md_served *served);
void md_handle_detokenize(md_request *request, const md_served *served);
void md_handle_apply_template(md_request *request, const md_served *served);
void md_handle_chat(md_request *request, const md_served *served);
void md_handle_completion(md_request *request, const md_served *served);

#endif
