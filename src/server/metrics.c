#include "server/metrics.h"

#include <inttypes.h>
#include <stdio.h>

static const uint64_t bounds_ms[MD_METRIC_BUCKETS - 1] = {5, 10, 25, 50, 100, 250, 500, 1000, 5000, 15000, 60000};

static const unsigned statuses[MD_METRIC_STATUSES] = {200, 204, 304, 400, 401, 403, 404, 405, 408, 411,
                                                      413, 414, 415, 429, 431, 500, 503, 504, 0};

static uint64_t get(atomic_uint_fast64_t *counter) { return atomic_load_explicit(counter, memory_order_relaxed); }

void md_histogram_add(md_histogram *histogram, uint64_t ms) {
    int i = 0;
    while (i < MD_METRIC_BUCKETS - 1 && ms > bounds_ms[i]) i++;
    md_count(&histogram->buckets[i], 1);
    md_count(&histogram->sum_ms, ms);
}

void md_metrics_response(md_metrics *metrics, unsigned status) {
    int i = 0;
    while (statuses[i] && statuses[i] != status) i++; // the 0 at the end takes any other
    md_count(&metrics->responses[i], 1);
}

static void write_histogram(md_buf *out, const char *name, const char *help, md_histogram *histogram) {
    uint64_t total = 0;
    md_buf_printf(out, "# HELP megadecode_%s_seconds %s\n# TYPE megadecode_%s_seconds histogram\n", name, help, name);
    for (int i = 0; i < MD_METRIC_BUCKETS - 1; i++) {
        total += get(&histogram->buckets[i]);
        md_buf_printf(out, "megadecode_%s_seconds_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)bounds_ms[i] / 1000,
                      total);
    }
    total += get(&histogram->buckets[MD_METRIC_BUCKETS - 1]);
    md_buf_printf(out, "megadecode_%s_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, total);
    md_buf_printf(out, "megadecode_%s_seconds_sum %.3f\n", name, (double)get(&histogram->sum_ms) / 1000);
    md_buf_printf(out, "megadecode_%s_seconds_count %" PRIu64 "\n", name, total);
}

md_status md_metrics_write(md_metrics *m, md_buf *out) {
    const struct {
        const char *name, *type, *help;
        atomic_uint_fast64_t *value;
    } rows[] = {
        {"prompt_tokens_total", "counter", "Prompt tokens of answered requests.", &m->prompt_tokens},
        {"cached_tokens_total", "counter", "Of these, taken from the KV cache of an earlier request.",
         &m->cached_tokens},
        {"generated_tokens_total", "counter", "Tokens chosen.", &m->generated_tokens},
        {"decode_steps_total", "counter", "Steps that computed one token of each running request.", &m->steps},
        {"decode_columns_total", "counter", "Tokens computed in these steps.", &m->columns},
        {"requests_cancelled_total", "counter", "Requests whose client went away.", &m->cancelled},
        {"requests_failed_total", "counter", "Requests that ended with an error after they were accepted.", &m->failed},
        {"requests_running", "gauge", "Requests in prefill or decoding.", &m->running},
        {"requests_queued", "gauge", "Requests waiting for a place.", &m->queued},
        {"connections", "gauge", "Open connections.", &m->connections},
        {"connections_dropped_total", "counter", "Connections closed by a deadline or to make room.",
         &m->connections_dropped},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        md_buf_printf(out, "# HELP megadecode_%s %s\n# TYPE megadecode_%s %s\n", rows[i].name, rows[i].help,
                      rows[i].name, rows[i].type);
        md_buf_printf(out, "megadecode_%s %" PRIu64 "\n", rows[i].name, get(rows[i].value));
    }
    md_buf_puts(out, "# HELP megadecode_responses_total Responses by status code.\n"
                     "# TYPE megadecode_responses_total counter\n");
    for (int i = 0; i < MD_METRIC_STATUSES; i++) {
        char code[16] = "other";
        if (statuses[i]) snprintf(code, sizeof code, "%u", statuses[i]);
        uint64_t n = get(&m->responses[i]);
        if (n) md_buf_printf(out, "megadecode_responses_total{code=\"%s\"} %" PRIu64 "\n", code, n);
    }
    write_histogram(out, "queue", "Time a request waited for a place.", &m->queue_time);
    write_histogram(out, "first_token", "Time from a request's arrival to its first token.", &m->first_token_time);
    write_histogram(out, "request", "Time from a request's arrival to its last token.", &m->request_time);
    return out->failed ? MD_E_MEMORY : MD_OK;
}
