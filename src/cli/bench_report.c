#include "cli/bench_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cpu_info.h"
#include "base/json.h"
#include "cli/output.h"

enum { MAX_CACHES = 8 };

static const char *kv_name(const md_bench_options *options) { return options->kv ? options->kv : "none"; }

// ---- notes -----------------------------------------------------------------------------------------------------

// The largest cache of CPU 0; 0: the system does not say.
static uint64_t cache_bytes(void) {
    unsigned long most = 0;
    for (int i = 0; i < MAX_CACHES; i++) {
        char path[64];
        unsigned long kib = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *file = fopen(path, "re");
        if (!file) break;
        if (fscanf(file, "%luK", &kib) == 1 && kib > most) most = kib;
        fclose(file);
    }
    return (uint64_t)most * 1024;
}

const char *md_bench_ceiling_note(const md_bench_rate *rate, const md_model_info *info, char *out, size_t size) {
    uint64_t cache = cache_bytes();
    double weights = (double)info->bytes_per_token * 1e-6;
    out[0] = 0;
    if (rate->ceiling_gbps <= 0) return out;
    if (info->bytes_per_token < cache)
        snprintf(out, size,
                 "The %.1f MB of weights that a token reads fit in the processor's cache (%.0f MB): the memory's "
                 "ceiling does not bound this model.",
                 weights, (double)cache / (1 << 20));
    else if (rate->ceiling_fraction > 1.02)
        snprintf(out, size,
                 "More than the ceiling: something else read the memory while it was measured, or a part of the %.1f "
                 "MB of weights stays in a cache.",
                 weights);
    return out;
}

// ---- JSON ------------------------------------------------------------------------------------------------------

static json_t *rate_json(const md_bench_rate *rate, const char *key, uint32_t value) {
    return json_pack("{s:I s:f s:f s:f s:f}", key, (json_int_t)value, "decode_tps", rate->decode_tps, "read_gbps",
                     rate->read_gbps, "ceiling_gbps", rate->ceiling_gbps, "ceiling_fraction", rate->ceiling_fraction);
}

static json_t *sweep_json(const md_bench_sweep *sweep, bool depth) {
    json_t *rows = json_array();
    for (uint32_t i = 0; i < sweep->count; i++) {
        const md_bench_rate *rate = &sweep->rate[i];
        json_array_append_new(rows, rate_json(rate, depth ? "depth" : "groups", depth ? rate->depth : rate->workers));
    }
    return rows;
}

json_t *md_bench_json(const md_bench_options *options, const md_bench_result *result) {
    char machine[128], date[32];
    time_t now = time(NULL);
    struct tm day;
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    const md_bench_side *last = &result->side[options->sides - 1];
    json_t *root = json_pack(
        "{s:o s:s s:s s:s s:s s:s s:s s:I s:I s:I s:I s:I s:o s:f s:f s:I s:f s:f s:f}", "model",
        md_json_text(last->info.name), "engine", last->info.engine, "backend", last->info.backend, "device",
        last->info.device, "machine", md_cpu_name(machine, sizeof machine), "date", date, "version", md_version(),
        "workers", (json_int_t)last->rate.workers, "prompt", (json_int_t)options->prompt, "decode",
        (json_int_t)options->decode, "depth", (json_int_t)options->depth, "repeats", (json_int_t)options->repeats, "kv",
        md_json_text(kv_name(options)), "decode_tps", last->rate.decode_tps, "prefill_tps", last->rate.prefill_tps,
        "bytes_per_token", (json_int_t)last->info.bytes_per_token, "read_gbps", last->rate.read_gbps, "ceiling_gbps",
        last->rate.ceiling_gbps, "ceiling_fraction", last->rate.ceiling_fraction);
    if (options->sides == 2) {
        json_object_set_new(root, "ratio", json_real(result->ratio));
        json_object_set_new(root, "ratio_min", json_real(result->ratio_min));
        json_object_set_new(root, "ratio_max", json_real(result->ratio_max));
        json_object_set_new(root, "a",
                            json_pack("{s:s s:f s:f}", "engine", result->side[0].info.engine, "decode_tps",
                                      result->side[0].rate.decode_tps, "prefill_tps",
                                      result->side[0].rate.prefill_tps));
    }
    if (result->by_workers.count) json_object_set_new(root, "sweep", sweep_json(&result->by_workers, false));
    if (result->by_depth.count) json_object_set_new(root, "by_depth", sweep_json(&result->by_depth, true));
    if (result->stages.account.steps) json_object_set_new(root, "stages", md_bench_stages_json(&result->stages));
    return root;
}

// ---- rows ------------------------------------------------------------------------------------------------------

typedef void (*print_row)(const md_bench_options *options, const md_bench_side *side, const md_bench_rate *rate,
                          double ratio);

static void print_rows(const md_bench_options *options, const md_bench_result *result, print_row print) {
    const md_bench_side *last = &result->side[options->sides - 1];
    for (uint32_t i = 0; i < options->sides; i++)
        print(options, &result->side[i], &result->side[i].rate, options->sides == 2 && i ? result->ratio : 0);
    for (uint32_t i = 0; i < result->by_workers.count; i++) print(options, last, &result->by_workers.rate[i], 0);
    for (uint32_t i = 0; i < result->by_depth.count; i++) print(options, last, &result->by_depth.rate[i], 0);
}

static void print_table_row(const md_bench_options *options, const md_bench_side *side, const md_bench_rate *rate,
                            double ratio) {
    (void)options, (void)ratio;
    printf("| %s | %s | %" PRIu32 " | %" PRIu32 " | %.2f | %.2f | %" PRIu64 " | %.1f | ", side->info.name,
           side->info.engine, rate->workers, rate->depth, rate->decode_tps, rate->prefill_tps,
           side->info.bytes_per_token, rate->read_gbps);
    if (rate->ceiling_gbps > 0)
        printf("%.1f | %.0f%% |\n", rate->ceiling_gbps, 100 * rate->ceiling_fraction);
    else
        puts("- | - |");
}

void md_bench_print_table(const md_bench_options *options, const md_bench_result *result) {
    char note[256];
    const md_bench_side *last = &result->side[options->sides - 1];
    puts("| model | engine | workers | depth | decode tok/s | prefill tok/s | bytes a token | read GB/s | ceiling GB/s "
         "| share |\n"
         "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    print_rows(options, result, print_table_row);
    printf("\nKV cache %s; %s", kv_name(options), last->info.device);
    if (last->rate.ceiling_gbps > 0) printf("; the ceiling is what the memory gave to plain reads in the same run");
    if (options->sides == 2)
        printf("\n%s over %s: %.3f (%.3f to %.3f)", last->info.engine, result->side[0].info.engine, result->ratio,
               result->ratio_min, result->ratio_max);
    md_bench_ceiling_note(&last->rate, &last->info, note, sizeof note);
    printf("%s%s\n", note[0] ? "\n" : "", note);
}

// A field of CSV: in quotes where it needs them (RFC 4180).
static void print_field(const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_csv_row(const md_bench_options *options, const md_bench_side *side, const md_bench_rate *rate,
                          double ratio) {
    print_field(side->info.name);
    printf(",%s,%" PRIu32 ",%" PRIu32 ",", side->info.engine, rate->workers, rate->depth);
    print_field(kv_name(options));
    printf(",%.2f,%.2f,%" PRIu64 ",%.2f,", rate->decode_tps, rate->prefill_tps, side->info.bytes_per_token,
           rate->read_gbps);
    if (rate->ceiling_gbps > 0) printf("%.2f,%.4f", rate->ceiling_gbps, rate->ceiling_fraction);
    if (rate->ceiling_gbps <= 0) putchar(',');
    if (ratio > 0)
        printf(",%.4f\n", ratio);
    else
        puts(",");
}

void md_bench_print_csv(const md_bench_options *options, const md_bench_result *result) {
    puts("model,engine,workers,depth,kv,decode_tps,prefill_tps,bytes_per_token,read_gbps,ceiling_gbps,ceiling_fraction,"
         "ratio");
    print_rows(options, result, print_csv_row);
}
