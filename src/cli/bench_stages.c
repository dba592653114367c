// Where a token's time goes, as `megadecode bench --stages` prints it.
#include <inttypes.h>
#include <stdio.h>

#include "cli/bench_report.h"

static double whole(const md_stage_time *t) { return t->setup + t->weights + t->handoff + t->arithmetic + t->out; }

// What is left of a token's time: launches, choosing and handing on where the kernel doesn't, the step's last wait.
static double outside(const md_bench_stages *stages) {
    double inside = 0;
    for (uint32_t k = 0; k < stages->account.kinds; k++) inside += whole(&stages->account.stage[k]);
    return stages->ms > inside ? stages->ms - inside : 0;
}

static double share(const md_bench_stages *stages, double ms) { return stages->ms > 0 ? ms / stages->ms : 0; }

// ---- JSON ------------------------------------------------------------------------------------------------------

static json_t *told(bool known, double ms) { return known ? json_real(ms) : json_null(); }

json_t *md_bench_stages_json(const md_bench_stages *stages) {
    const md_account *account = &stages->account;
    json_t *kinds = json_array();
    for (uint32_t k = 0; k < account->kinds; k++) {
        const md_stage_time *t = &account->stage[k];
        json_array_append_new(kinds, json_pack("{s:s s:I s:f s:f s:o s:o s:f s:f s:o s:f}", "stage", t->kind, "count",
                                               (json_int_t)t->stages, "ms", whole(t), "share", share(stages, whole(t)),
                                               "setup_ms", told(account->split, t->setup), "weights_ms",
                                               told(account->split, t->weights), "handoff_ms", t->handoff,
                                               "arithmetic_ms", t->arithmetic, "out_ms", told(account->split, t->out),
                                               "slowest_ms", t->slowest));
    }
    return json_pack("{s:I s:f s:f s:f s:o}", "tokens", (json_int_t)account->steps, "ms", stages->ms, "outside_ms",
                     outside(stages), "outside_share", share(stages, outside(stages)), "kinds", kinds);
}

// ---- rows ------------------------------------------------------------------------------------------------------

static void print_told(bool known, double ms) {
    if (known)
        printf("%.4f | ", ms);
    else
        fputs("- | ", stdout);
}

void md_bench_print_stages(const md_bench_options *options, const md_bench_result *result) {
    const md_bench_stages *stages = &result->stages;
    const md_account *account = &stages->account;
    const md_bench_side *side = &result->side[options->sides - 1];
    printf("\nWhere a token's time goes, in ms a token, means of %" PRIu32 " workers over %" PRIu64
           " tokens from depth %" PRIu32 " on: %.4f\n\n",
           side->rate.workers, account->steps, options->depth, stages->ms);
    puts("| stage | a token | ms | share | setup | waiting for weights | waiting for a handoff | arithmetic | sums and "
         "out "
         "| slowest worker |\n"
         "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (uint32_t k = 0; k < account->kinds; k++) {
        const md_stage_time *t = &account->stage[k];
        printf("| %s | %" PRIu32 " | %.4f | %.1f%% | ", t->kind, t->stages, whole(t), 100 * share(stages, whole(t)));
        print_told(account->split, t->setup);
        print_told(account->split, t->weights);
        printf("%.4f | %.4f | ", t->handoff, t->arithmetic);
        print_told(account->split, t->out);
        printf("%.4f |\n", t->slowest);
    }
    double rest = outside(stages);
    printf("| outside | | %.4f | %.1f%% | | | | | | |\n", rest, 100 * share(stages, rest));
    puts(
        "\nThe slowest worker's time is without its waits for handoffs; outside: launches, and choosing and handing on "
        "tokens where the engine does not.");
}

void md_bench_print_stages_csv(const md_bench_options *options, const md_bench_result *result) {
    const md_bench_stages *stages = &result->stages;
    puts("stage,count,depth,tokens,ms,share,setup_ms,weights_ms,handoff_ms,arithmetic_ms,out_ms,slowest_ms");
    for (uint32_t k = 0; k < stages->account.kinds; k++) {
        const md_stage_time *t = &stages->account.stage[k];
        printf("%s,%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",%.6f,%.4f,", t->kind, t->stages, options->depth,
               stages->account.steps, whole(t), share(stages, whole(t)));
        if (stages->account.split)
            printf("%.6f,%.6f,%.6f,%.6f,%.6f,%.6f\n", t->setup, t->weights, t->handoff, t->arithmetic, t->out,
                   t->slowest);
        else
            printf(",,%.6f,%.6f,,%.6f\n", t->handoff, t->arithmetic, t->slowest);
    }
    printf("outside,,%" PRIu32 ",%" PRIu64 ",%.6f,%.4f,,,,,,\n", options->depth, stages->account.steps, outside(stages),
           share(stages, outside(stages)));
}
