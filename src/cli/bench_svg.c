// The picture of a benchmark: panels beside each other, each a chart of tokens a second that begins at 0.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu_info.h"
#include "cli/bench_report.h"
#include "cli/svg.h"

// Lengths in pixels. A panel is its axis' labels, then the plot.
enum { MARGIN = 24, PLOT_HEIGHT = 230, LABELS = 52, GAP = 16, TOP = 118, LINE = 17, TICKS = 6 };
enum { FOOT = 62, LETTER = 7, NAME_MOST = 36 }; // below the plot; width of a letter, at most; letters

typedef struct bar {
    const char *name;
    double value, limit; // limit 0: not known
    double share;
} bar;

typedef struct picture {
    md_svg *svg;
    double plot_width;
    uint32_t panels; // drawn so far
} picture;

typedef struct panel {
    md_svg *svg;
    double left, top, width; // of the plot
    md_svg_scale scale;
} panel;

// Tokens a second with the memory's read ceiling, at this rate's bytes a token. 0: not known.
static double limit_of(const md_bench_rate *rate) {
    return rate->ceiling_fraction > 0 ? rate->decode_tps / rate->ceiling_fraction : 0;
}

// As the picture writes a rate: four digits are enough.
static const char *rate_text(double value, char out[24]) {
    snprintf(out, 24, value < 999.95 ? "%.1f" : "%.0f", value);
    return out;
}

static double y_of(const panel *p, double value) { return p->top + PLOT_HEIGHT * (1 - value / p->scale.end); }

static panel open_panel(picture *pic, double most, const char *heading) {
    md_svg *svg = pic->svg;
    panel p = {.svg = svg,
               .left = MARGIN + LABELS + pic->panels++ * (pic->plot_width + LABELS + GAP),
               .top = TOP,
               .width = pic->plot_width,
               .scale = md_svg_scale_for(most * 1.08, TICKS)};
    md_svg_text(svg, MD_SVG_INK, MD_SVG_START, p.left - LABELS, p.top - 18, "%s", heading);
    for (int i = 0; i * p.scale.step < p.scale.end * (1 + 1e-9); i++) {
        double value = i * p.scale.step, y = y_of(&p, value);
        md_svg_line(svg, i ? MD_SVG_GRID : MD_SVG_AXIS, p.left, y, p.left + p.width, y);
        md_svg_text(svg, MD_SVG_FAINT, MD_SVG_END, p.left - 8, y + 4, "%g", value);
    }
    return p;
}

// ---- charts ----------------------------------------------------------------------------------------------------

// The texts of a bar whose top is at `y`, and its limit's line at `limit`. Its value stands over it, or where the limit
// is too close above inside its top, or else over the limit; its share of the limit at its foot, if there is room.
static void label_bar(const panel *p, const bar *b, double center, double y, double limit) {
    char value[24];
    double base = p->top + PLOT_HEIGHT;
    bool close = b->limit > 0 && limit > y - LINE - 2 && limit < y + 6, inside = close && base - y >= 2.5 * LINE;
    double at = inside ? y + 15 : close ? limit - 5 : y - 5;
    md_svg_text(p->svg, inside ? "small on8" : MD_SVG_SMALL, MD_SVG_MIDDLE, center, at, "%s",
                rate_text(b->value, value));
    if (b->limit > 0 && base - y >= LINE + 5)
        md_svg_text(p->svg, "small on8", MD_SVG_MIDDLE, center, base - 8, "%.0f%%", 100 * b->share);
}

static void draw_bars(picture *pic, const char *heading, const char *axis, const bar *bars, uint32_t n) {
    double most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (bars[i].value > most) most = bars[i].value;
        if (bars[i].limit > most) most = bars[i].limit;
    }
    panel p = open_panel(pic, most, heading);
    double room = p.width / n, width = room * 0.56 < 72 ? room * 0.56 : 72;
    for (uint32_t i = 0; i < n; i++) {
        double center = p.left + room * (i + 0.5), y = y_of(&p, bars[i].value), limit = y_of(&p, bars[i].limit);
        char hover[96];
        snprintf(hover, sizeof hover,
                 bars[i].limit > 0 ? "%s: %.1f tokens/s, %.0f%% of the ceiling" : "%s: %.1f tokens/s", bars[i].name,
                 bars[i].value, 100 * bars[i].share);
        md_svg_rect(pic->svg, MD_SVG_DATA, center - width / 2, y, width, p.top + PLOT_HEIGHT - y, hover);
        if (bars[i].limit > 0)
            md_svg_line(pic->svg, MD_SVG_LIMIT, center - room * 0.42, limit, center + room * 0.42, limit);
        label_bar(&p, &bars[i], center, y, limit);
        md_svg_text(pic->svg, MD_SVG_FAINT, MD_SVG_MIDDLE, center, p.top + PLOT_HEIGHT + 18, "%s", bars[i].name);
    }
    md_svg_text(pic->svg, MD_SVG_FAINT, MD_SVG_MIDDLE, p.left + p.width / 2, p.top + PLOT_HEIGHT + 36, "%s", axis);
}

static void draw_workers(picture *pic, const md_bench_sweep *sweep, bool cpu) {
    bar bars[MD_BENCH_SWEEP_MAX];
    char names[MD_BENCH_SWEEP_MAX][16];
    for (uint32_t i = 0; i < sweep->count; i++) {
        const md_bench_rate *rate = &sweep->rate[i];
        snprintf(names[i], sizeof names[i], "%" PRIu32, rate->workers);
        bars[i] = (bar){names[i], rate->decode_tps, limit_of(rate), rate->ceiling_fraction};
    }
    draw_bars(pic, cpu ? "Decode by threads, tokens/s" : "Decode by workers, tokens/s",
              cpu ? "threads" : "workers (SMs)", bars, sweep->count);
}

static void draw_sides(picture *pic, const md_bench_options *options, const md_bench_result *result, bool prefill) {
    bar bars[MD_BENCH_SIDES_MAX];
    char heading[96];
    for (uint32_t i = 0; i < options->sides; i++) {
        const md_bench_side *side = &result->side[i];
        const md_bench_rate *rate = &side->rate;
        bars[i] = prefill ? (bar){.name = side->info.engine, .value = rate->prefill_tps}
                          : (bar){side->info.engine, rate->decode_tps, limit_of(rate), rate->ceiling_fraction};
    }
    if (prefill)
        snprintf(heading, sizeof heading, "Prefill of %" PRIu32 " tokens, tokens/s", options->prompt);
    else
        snprintf(heading, sizeof heading, "Decode at depth %" PRIu32 ", tokens/s", options->depth);
    draw_bars(pic, heading, "engine", bars, options->sides);
}

static void draw_depth(picture *pic, const md_bench_sweep *sweep) {
    double x[MD_BENCH_SWEEP_MAX], y[MD_BENCH_SWEEP_MAX], limit[MD_BENCH_SWEEP_MAX], most = 0;
    uint32_t n = sweep->count, deepest = sweep->rate[n - 1].depth;
    for (uint32_t i = 0; i < n; i++) {
        double bound = limit_of(&sweep->rate[i]);
        if (sweep->rate[i].decode_tps > most) most = sweep->rate[i].decode_tps;
        if (bound > most) most = bound;
    }
    panel p = open_panel(pic, most, "Decode by depth, tokens/s");
    for (uint32_t i = 0; i < n; i++) {
        x[i] = p.left + 12 + (p.width - 48) * sweep->rate[i].depth / (deepest ? deepest : 1);
        y[i] = y_of(&p, sweep->rate[i].decode_tps);
        limit[i] = y_of(&p, limit_of(&sweep->rate[i]));
    }
    if (limit_of(&sweep->rate[0]) > 0) md_svg_curve(pic->svg, MD_SVG_LIMIT, x, limit, n);
    md_svg_curve(pic->svg, MD_SVG_CURVE, x, y, n);
    for (uint32_t i = 0; i < n; i++) {
        const md_bench_rate *rate = &sweep->rate[i];
        char hover[96], value[24];
        snprintf(hover, sizeof hover, "depth %" PRIu32 ": %.1f tokens/s, %.1f GB/s, %.0f%% of the ceiling", rate->depth,
                 rate->decode_tps, rate->read_gbps, 100 * rate->ceiling_fraction);
        md_svg_dot(pic->svg, MD_SVG_DATA, x[i], y[i], 3.5, hover);
        // Above and to the right: rates fall with the depth, so that the curve is never there.
        md_svg_text(pic->svg, MD_SVG_SMALL, MD_SVG_START, x[i] + 3, y[i] - 7, "%s", rate_text(rate->decode_tps, value));
        if ((n <= 9 && deepest < 10000) || i % 2 == 0) // as many as have room
            md_svg_text(pic->svg, MD_SVG_FAINT, MD_SVG_MIDDLE, x[i], p.top + PLOT_HEIGHT + 18, "%" PRIu32, rate->depth);
    }
    md_svg_text(pic->svg, MD_SVG_FAINT, MD_SVG_MIDDLE, p.left + p.width / 2, p.top + PLOT_HEIGHT + 36,
                "positions in the KV cache");
}

// ---- around them -----------------------------------------------------------------------------------------------

static void draw_heading(md_svg *svg, const md_bench_options *options, const md_bench_result *result,
                         const json_t *figures) {
    char machine[128], name[MD_SVG_FIT_MAX];
    const md_bench_side *last = &result->side[options->sides - 1];
    bool cpu = strcmp(last->info.backend, "cpu") == 0;
    const char *first = options->sides == 2 ? result->side[0].info.engine : "";
    md_svg_text(svg, MD_SVG_TITLE, MD_SVG_START, MARGIN, 36, "%s: %s%s%s engine%s",
                md_svg_fit(last->info.name, NAME_MOST, name), first, *first ? " and " : "", last->info.engine,
                *first ? "s" : "");
    md_svg_text(svg, MD_SVG_FAINT, MD_SVG_START, MARGIN, 36 + LINE + 4, "%s%s%s",
                cpu ? md_svg_fit(md_cpu_name(machine, sizeof machine), NAME_MOST, machine) : "", cpu ? ", " : "",
                last->info.device);
    md_svg_text(svg, MD_SVG_FAINT, MD_SVG_START, MARGIN, 36 + 2 * LINE + 4,
                "%.1f MB of weights a token, KV cache %s; %s, megadecode %s", (double)last->info.bytes_per_token * 1e-6,
                options->kv ? options->kv : "bf16", json_string_value(json_object_get(figures, "date")), md_version());
}

// The words of `text` in lines of at most `width` pixels; the number of lines.
static int draw_wrapped(md_svg *svg, double x, double y, double width, const char *text) {
    size_t most = (size_t)(width / LETTER), n = strlen(text);
    int lines = 0;
    while (n) {
        size_t take = n;
        if (take > most)
            for (take = most; take > 1 && text[take] != ' ';) take--;
        md_svg_text(svg, MD_SVG_FAINT, MD_SVG_START, x, y + LINE * lines++, "%.*s", (int)take, text);
        while (text[take] == ' ') take++;
        text += take;
        n -= take;
    }
    return lines;
}

md_status md_bench_svg(const md_bench_options *options, const md_bench_result *result, md_buf *text, md_error *err) {
    const md_bench_side *last = &result->side[options->sides - 1];
    const md_bench_rate *rate = &last->rate;
    char note[256];
    bool cpu = strcmp(last->info.backend, "cpu") == 0, swept = result->by_depth.count || result->by_workers.count;
    uint32_t panels = swept ? (result->by_depth.count > 0) + (result->by_workers.count > 0)
                            : (options->decode > 0) + (options->prompt > 0);
    md_svg svg;
    picture pic = {.svg = &svg, .plot_width = panels == 1 ? 560 : 370};
    double width = 2 * MARGIN + panels * (pic.plot_width + LABELS) + (panels - 1) * GAP,
           legend = TOP + PLOT_HEIGHT + FOOT;
    md_bench_ceiling_note(rate, &last->info, note, sizeof note);
    size_t note_lines = note[0] ? 1 + strlen(note) * LETTER / (size_t)(width - 2 * MARGIN) : 0;
    json_t *figures = md_bench_json(options, result);
    char *json = figures ? json_dumps(figures, JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    double height = rate->ceiling_gbps > 0 ? legend + (double)note_lines * LINE + MARGIN - 4 : legend - LINE + 4;
    md_svg_open(&svg, width, height, "megadecode bench: tokens a second");
    md_svg_metadata(&svg, json ? json : "");
    if (json)
        draw_heading(&svg, options, result, figures);
    else
        svg.text.failed = true;
    if (result->by_depth.count) draw_depth(&pic, &result->by_depth);
    if (result->by_workers.count) draw_workers(&pic, &result->by_workers, cpu);
    if (!swept && options->decode) draw_sides(&pic, options, result, false);
    if (!swept && options->prompt) draw_sides(&pic, options, result, true);
    if (rate->ceiling_gbps > 0) {
        md_svg_line(&svg, MD_SVG_LIMIT, MARGIN, legend - 4, MARGIN + 30, legend - 4);
        md_svg_text(&svg, MD_SVG_FAINT, MD_SVG_START, MARGIN + 38, legend,
                    "what the memory allows: plain reads measured in the same run; %% = share of it");
        draw_wrapped(&svg, MARGIN, legend + LINE + 2, width - 2 * MARGIN, note);
    }
    md_status status = md_svg_close(&svg, err);
    *text = svg.text;
    free(json);
    json_decref(figures);
    return status;
}
