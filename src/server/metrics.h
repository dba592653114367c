// What the server counts, for /metrics. Every function may be called from any thread.
#ifndef MD_SERVER_METRICS_H
#define MD_SERVER_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

enum { MD_METRIC_BUCKETS = 12, MD_METRIC_STATUSES = 19 };

typedef struct md_histogram {
    atomic_uint_fast64_t buckets[MD_METRIC_BUCKETS]; // not cumulative; the last one takes everything above
    atomic_uint_fast64_t sum_ms;
} md_histogram;

typedef struct md_metrics {
    atomic_uint_fast64_t responses[MD_METRIC_STATUSES]; // by status code, as md_metrics_response maps them
    atomic_uint_fast64_t prompt_tokens, cached_tokens, generated_tokens;
    atomic_uint_fast64_t steps, columns; // decode steps, and columns in them
    atomic_uint_fast64_t cancelled, failed;
    atomic_uint_fast64_t running, queued, connections, connections_dropped; // the first three are gauges
    md_histogram queue_time, first_token_time, request_time;
} md_metrics;

// Statistics alone: no other memory is ordered by them.
static inline void md_count(atomic_uint_fast64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}
static inline void md_gauge(atomic_uint_fast64_t *gauge, uint64_t value) {
    atomic_store_explicit(gauge, value, memory_order_relaxed);
}
void md_histogram_add(md_histogram *histogram, uint64_t ms);
void md_metrics_response(md_metrics *metrics, unsigned status);

// Prometheus' text format.
md_status md_metrics_write(md_metrics *metrics, md_buf *out);

#endif
