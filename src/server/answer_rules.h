// What an answer must look like, as response_format and tool_choice say: JSON that satisfies a schema, tool calls, or
// either of them. Nothing asked for: no constraint.
#ifndef MD_SERVER_ANSWER_RULES_H
#define MD_SERVER_ANSWER_RULES_H

#include <jansson.h>

#include "server/job.h"
#include "server/served.h"

typedef enum md_call_need { MD_CALL_NEVER, MD_CALL_MAY, MD_CALL_MUST } md_call_need;

typedef enum md_thinking {
    MD_THINKING_NEVER,
    MD_THINKING_MAY, // the answer may begin with "<think>"
    MD_THINKING_OPEN // the prompt ends inside of it
} md_thinking;

typedef struct md_tool_choice {
    md_call_need need;
    const char *only; // the one function to call; NULL: any. Borrowed from the request's body
    bool several;     // parallel_tool_calls
} md_tool_choice;

// Gives the job a constraint where one is asked for, which a "strict" function does too. An answer that calls no
// function is constrained by response_format; one that does is calls and nothing else, where a format or a call is
// asked for. What can't be constrained in every part is refused. Reasoning is free, up to its closing mark.
md_status md_answer_rules_read(const json_t *body, const md_served *served, const json_t *tools,
                               const md_tool_choice *choice, md_thinking thinking, md_job *job, md_error *err);

#endif
