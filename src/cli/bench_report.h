// What a benchmark found, in every form `megadecode bench -o` knows.
#ifndef MD_CLI_BENCH_REPORT_H
#define MD_CLI_BENCH_REPORT_H

#include <jansson.h>

#include "base/buf.h"
#include "cli/bench.h"

json_t *md_bench_json(const md_bench_options *options, const md_bench_result *result);     // NULL: out of memory
void md_bench_print_table(const md_bench_options *options, const md_bench_result *result); // Markdown, with notes
void md_bench_print_csv(const md_bench_options *options, const md_bench_result *result);

// Where a token's time goes (result->stages), in the same forms: the JSON is a member of the one above.
json_t *md_bench_stages_json(const md_bench_stages *stages); // NULL: out of memory
void md_bench_print_stages(const md_bench_options *options, const md_bench_result *result);
void md_bench_print_stages_csv(const md_bench_options *options, const md_bench_result *result);

// A picture: the rate by depth and by workers where they were swept, else of the sides, each beside the rate that the
// memory's read ceiling allows. *text for md_buf_free in any case.
md_status md_bench_svg(const md_bench_options *options, const md_bench_result *result, md_buf *text, md_error *err);

// Why the ceiling of this result bounds nothing ("The 5.7 MB of weights ..."), or "".
const char *md_bench_ceiling_note(const md_bench_rate *rate, const md_model_info *info, char *out, size_t size);

#endif
