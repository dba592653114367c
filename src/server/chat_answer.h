// The answer to a chat request: the text of the model split into reasoning, content and tool calls, written whole or as
// chunks of a stream.
#ifndef MD_SERVER_CHAT_ANSWER_H
#define MD_SERVER_CHAT_ANSWER_H

#include "server/answer.h"
#include "server/chat_request.h"

// Takes the request's tools. *out for md_answer with md_chat_writer.
typedef struct md_chat_answer md_chat_answer;
md_status md_chat_answer_new(const md_served *served, md_chat_request *request, md_chat_answer **out, md_error *err);

extern const md_answer_writer md_chat_writer;

#endif
