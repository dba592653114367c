#include "server/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/fields.h"

static md_status read_sampling(const json_t *body, md_sampling *s, md_error *err) {
    int64_t top_k = s->top_k, seed = 0;
    MD_TRY(md_field_number(body, "temperature", 0, 2, &s->temperature, err));
    MD_TRY(md_field_number(body, "top_p", 0, 1, &s->top_p, err));
    // Nothing but the likeliest token is in a share of 0; to md_sampling 0 means off.
    if (md_field(body, "top_p") && s->top_p == 0) s->top_p = 1e-9;
    MD_TRY(md_field_int(body, "top_k", -1, INT32_MAX, &top_k, err));
    s->top_k = top_k < 0 ? 0 : (uint32_t)top_k; // 0 and -1: off
    MD_TRY(md_field_number(body, "min_p", 0, 1, &s->min_p, err));
    MD_TRY(md_field_number(body, "presence_penalty", -2, 2, &s->presence_penalty, err));
    MD_TRY(md_field_number(body, "frequency_penalty", -2, 2, &s->frequency_penalty, err));
    MD_TRY(md_field_number(body, "repetition_penalty", 0.01, 10, &s->repetition_penalty, err));
    MD_TRY(md_field_int(body, "seed", INT64_MIN, INT64_MAX, &seed, err));
    s->seed = md_field(body, "seed") ? (uint64_t)seed : md_random_seed();
    return MD_OK;
}

static md_status add_stop(md_job *job, const json_t *text, const char *where, md_error *err) {
    if (!json_is_string(text))
        return md_fail(err, MD_E_USAGE, "%s: found %s, expected a string", where, md_json_type_name(text));
    size_t n = json_string_length(text);
    if (n == 0 || n > MD_STOP_SIZE_MAX)
        return md_fail(err, MD_E_USAGE, "%s: found %zu bytes, expected 1 to %d", where, n, MD_STOP_SIZE_MAX);
    if (strlen(json_string_value(text)) != n)
        return md_fail(err, MD_E_USAGE, "%s: found U+0000 in it, which a stop string can't have", where);
    char *copy = strdup(json_string_value(text));
    if (!copy) return md_fail(err, MD_E_MEMORY, "%s: out of memory", where);
    job->group->stop[job->group->stop_count++] = copy;
    return MD_OK;
}

static md_status read_stop(const json_t *body, md_job *job, md_error *err) {
    const json_t *stop = md_field(body, "stop");
    if (!stop) return MD_OK;
    if (!json_is_string(stop) && !json_is_array(stop))
        return md_fail(err, MD_E_USAGE, "stop: found %s, expected a string or an array of strings",
                       md_json_type_name(stop));
    size_t n = json_is_array(stop) ? json_array_size(stop) : 1;
    if (n > MD_STOP_STRINGS_MAX)
        return md_fail(err, MD_E_USAGE, "stop: found %zu strings, expected at most %d", n, MD_STOP_STRINGS_MAX);
    md_job_group *group = job->group;
    group->stop = calloc(n + 1, sizeof *group->stop);
    if (!group->stop) return md_fail(err, MD_E_MEMORY, "stop: out of memory");
    for (size_t i = 0; i < n; i++) {
        char where[32] = "stop";
        if (json_is_array(stop)) snprintf(where, sizeof where, "stop[%zu]", i);
        MD_TRY(add_stop(job, json_is_array(stop) ? json_array_get(stop, i) : stop, where, err));
    }
    job->params.stop = (const char *const *)group->stop;
    job->params.stop_count = group->stop_count;
    return MD_OK;
}

static md_status read_bias(const json_t *body, const md_served *served, md_job *job, md_error *err) {
    const json_t *biases = NULL;
    MD_TRY(md_field_object(body, "logit_bias", &biases, err));
    size_t n = json_object_size(biases);
    if (n == 0) return MD_OK;
    if (n > MD_LOGIT_BIAS_MAX)
        return md_fail(err, MD_E_USAGE, "logit_bias: found %zu tokens, expected at most %d", n, MD_LOGIT_BIAS_MAX);
    md_logit_bias *list = job->group->bias = calloc(n, sizeof *list);
    if (!list) return md_fail(err, MD_E_MEMORY, "logit_bias: out of memory");
    job->params.sampling.bias = list;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)biases, key, value) {
        bool digits = key[0] && strspn(key, "0123456789") == strlen(key) && strlen(key) <= 10;
        uint64_t id = digits ? strtoull(key, NULL, 10) : UINT64_MAX;
        if (id >= served->info.vocab)
            return md_fail(err, MD_E_USAGE, "logit_bias: found the key \"%.32s\", expected a token id below %" PRIu32,
                           key, served->info.vocab);
        double bias = json_number_value(value);
        if (!json_is_number(value) || !(bias >= -100 && bias <= 100))
            return md_fail(err, MD_E_USAGE, "logit_bias.%s: expected a number from -100 to 100", key);
        // OpenAI: -100 forbids a token.
        list[job->params.sampling.bias_count++] = (md_logit_bias){(uint32_t)id, bias == -100 ? -INFINITY : (float)bias};
    }
    return MD_OK;
}

static md_status read_length(const json_t *body, md_length_rule rule, md_job *job, md_params *out, md_error *err) {
    int64_t length = rule.otherwise;
    MD_TRY(md_field_int(body, "max_tokens", rule.least, INT32_MAX, &length, err));
    MD_TRY(md_field_int(body, "max_completion_tokens", rule.least, INT32_MAX, &length, err));
    out->max_given = md_field(body, "max_tokens") || md_field(body, "max_completion_tokens");
    job->params.max_tokens = (uint32_t)length;
    job->prompt_only = out->max_given && length == 0;
    return MD_OK;
}

static md_status read_stream(const json_t *body, md_params *out, md_error *err) {
    const json_t *options = NULL;
    MD_TRY(md_field_bool(body, "stream", &out->stream, err));
    MD_TRY(md_field_object(body, "stream_options", &options, err));
    if (!options) return MD_OK;
    if (!out->stream) return md_fail(err, MD_E_USAGE, "stream_options: only allowed with \"stream\": true");
    const json_t *usage = md_field(options, "include_usage");
    if (usage && !json_is_boolean(usage))
        return md_fail(err, MD_E_USAGE, "stream_options.include_usage: found %s, expected true or false",
                       md_json_type_name(usage));
    out->include_usage = json_is_true(usage);
    return MD_OK;
}

// What other servers constrain an answer with. To ignore it would give an answer that is not constrained at all.
static md_status refuse_foreign_constraints(const json_t *body, md_error *err) {
    static const char *const names[] = {"grammar",        "json_schema",   "guided_json",        "guided_regex",
                                        "guided_grammar", "guided_choice", "structured_outputs", "regex"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        MD_TRY(md_field_refuse(body, names[i], NULL, "not supported; use response_format", err));
    return MD_OK;
}

static md_status refuse_unsupported(const json_t *body, md_error *err) {
    MD_TRY(refuse_foreign_constraints(body, err));
    json_t *one = json_integer(1), *none = json_string("");
    md_status status = MD_OK;
    const json_t *n = md_field(body, "n");
    if (n && !json_is_integer(n)) status = md_fail(err, MD_E_USAGE, "n: found %s, expected 1", md_json_type_name(n));
    if (status == MD_OK) status = md_field_refuse(body, "n", one, "only 1 answer a request is supported", err);
    if (status == MD_OK) status = md_field_refuse(body, "best_of", one, "only 1 is supported", err);
    if (status == MD_OK) status = md_field_refuse(body, "suffix", none, "not supported", err);
    if (status == MD_OK) status = md_field_refuse(body, "audio", NULL, "not supported", err);
    json_decref(one);
    json_decref(none);
    return status;
}

md_status md_params_read(const json_t *body, const md_served *served, md_length_rule length, md_job *job,
                         md_params *out, md_error *err) {
    *out = (md_params){0};
    job->params.sampling = served->defaults;
    MD_TRY(refuse_unsupported(body, err));
    MD_TRY(read_stream(body, out, err));
    MD_TRY(read_sampling(body, &job->params.sampling, err));
    MD_TRY(read_length(body, length, job, out, err));
    MD_TRY(read_stop(body, job, err));
    return read_bias(body, served, job, err);
}

md_status md_params_fit_context(const md_served *served, const md_params *params, md_job *job, md_error *err) {
    uint64_t prompt = job->prompt_size, answer = params->max_given ? job->params.max_tokens : 1;
    if (prompt + answer <= served->context) {
        uint32_t left = served->context - (uint32_t)prompt, *max = &job->params.max_tokens;
        if (!params->max_given && (*max == 0 || *max > left)) *max = left;
        return MD_OK;
    }
    if (prompt >= served->context || !params->max_given)
        return md_fail(err, MD_E_CONTEXT,
                       "This model's maximum context length is %" PRIu32 " tokens. However, your messages resulted in "
                       "%" PRIu64 " tokens. Please reduce the length of the messages.",
                       served->context, prompt);
    return md_fail(err, MD_E_CONTEXT,
                   "This model's maximum context length is %" PRIu32 " tokens. However, you requested %" PRIu64
                   " tokens (%" PRIu64 " in the messages, %" PRIu64 " in the completion). Please reduce the length of "
                   "the messages or completion.",
                   served->context, prompt + answer, prompt, answer);
}

md_status md_params_check_model(const json_t *body, const md_served *served, md_error *err) {
    const char *name = NULL;
    MD_TRY(md_field_string(body, "model", &name, err));
    if (!name || strcmp(name, served->id) == 0) return MD_OK;
    return md_fail(err, MD_E_NOT_FOUND,
                   "model: \"%.128s\" is not served here, expected \"%s\" (--alias gives it another "
                   "name)",
                   name, served->id);
}
