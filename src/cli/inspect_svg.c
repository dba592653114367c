#include "cli/inspect_svg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/svg.h"

enum { MAX_STAGES = 16, MAX_VECTORS = 16, MAX_ROWS = 16 };

// Lengths in pixels. Left of the drawings stand the names of their rows.
enum { WIDTH = 920, MARGIN = 24, LABELS = 92, LINE = 17, LEFT = MARGIN + LABELS, ROOM = WIDTH - MARGIN - LEFT };
enum { BARS_TOP = 140, BARS_HEIGHT = 110, TEXTS_HEIGHT = 104, LANE = 22, CELL_HEIGHT = 20, CELL_MOST = 32 };

// A stage of the plan, all layers taken together.
typedef struct column {
    const char *name;
    const json_t *first;         // one of them
    uint64_t count;              // how many there are
    uint64_t bytes, least, most; // of weights: all of them, and of one
    bool in_layer;
} column;

typedef struct drawing {
    md_svg *svg;
    const json_t *root;
    column columns[MAX_STAGES];
    size_t count;
    uint64_t layers, bytes; // bytes: of the weights of all stages
    double width;           // of a column
} drawing;

static uint64_t integer(const json_t *object, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static const char *last_part(const char *path, char separator) {
    const char *at = strrchr(path, separator);
    return at ? at + 1 : path;
}

static bool is_small(uint64_t bytes) { return bytes < 1000000; }

static const char *size_text(uint64_t bytes, char out[24]) {
    snprintf(out, 24, is_small(bytes) ? "%.0f kB" : "%.1f MB", (double)bytes * (is_small(bytes) ? 1e-3 : 1e-6));
    return out;
}

// ---- the plan as columns ---------------------------------------------------------------------------------------

static void add_stage(drawing *d, const json_t *stage) {
    const char *name = text_of(stage, "stage");
    uint64_t bytes = integer(stage, "bytes");
    size_t i = 0;
    while (i < d->count && strcmp(d->columns[i].name, name) != 0) i++;
    if (i == MAX_STAGES) return;
    column *c = &d->columns[i];
    if (i == d->count) {
        *c = (column){.name = name, .first = stage, .least = bytes};
        c->in_layer = json_is_integer(json_object_get(stage, "layer"));
        d->count++;
    }
    c->count++;
    c->bytes += bytes;
    if (bytes < c->least) c->least = bytes;
    if (bytes > c->most) c->most = bytes;
}

static void read_plan(drawing *d) {
    size_t i;
    const json_t *stage;
    json_array_foreach(json_object_get(d->root, "plan"), i, stage) { add_stage(d, stage); }
    for (i = 0; i < d->count; i++) d->bytes += d->columns[i].bytes;
    d->layers = integer(d->root, "layers");
    d->width = d->count ? (double)ROOM / (double)d->count : ROOM;
}

static bool has_vector(const column *c, const char *key, const char *vector) {
    size_t i;
    const json_t *name;
    json_array_foreach(json_object_get(c->first, key), i, name) {
        if (strcmp(json_string_value(name), vector) == 0) return true;
    }
    return false;
}

static double center_of(const drawing *d, size_t at) { return LEFT + d->width * ((double)at + 0.5); }

// ---- stages ----------------------------------------------------------------------------------------------------

static void draw_heading(const drawing *d, const char *name) {
    char a[32], b[32], c[32], size[24], fitted[MD_SVG_FIT_MAX];
    const json_t *kv = json_object_get(d->root, "kv");
    md_svg_text(d->svg, MD_SVG_TITLE, MD_SVG_START, MARGIN, 36, "%s: one token, %zu stages",
                md_svg_fit(name, 60, fitted), json_array_size(json_object_get(d->root, "plan")));
    md_svg_text(d->svg, MD_SVG_FAINT, MD_SVG_START, MARGIN, 57,
                "%" PRIu64 " layers, hidden %s, ffn %s, %" PRIu64 " query and %" PRIu64 " key/value heads of %" PRIu64
                ", vocabulary %s",
                d->layers, md_svg_count(integer(d->root, "hidden"), a), md_svg_count(integer(d->root, "ffn"), b),
                integer(d->root, "q_heads"), integer(d->root, "kv_heads"), integer(d->root, "head_dim"),
                md_svg_count(integer(d->root, "vocab"), c));
    md_svg_text(
        d->svg, MD_SVG_FAINT, MD_SVG_START, MARGIN, 57 + LINE,
        "%s of weights a token (%s bytes); KV cache %s bytes a position (in bf16: %s)",
        size_text(integer(d->root, "bytes_per_token"), size), md_svg_count(integer(d->root, "bytes_per_token"), a),
        md_svg_count(integer(kv, "bytes_per_position"), b), md_svg_count(integer(kv, "bytes_per_position_bf16"), c));
}

static void draw_bar(const drawing *d, const column *c, size_t at, uint64_t most) {
    char total[32], hover[160], size[24], least[24], names[24], each[64];
    double center = center_of(d, at), height = most ? BARS_HEIGHT * (double)c->bytes / (double)most : 0,
           base = BARS_TOP + BARS_HEIGHT;
    snprintf(hover, sizeof hover, "%s: %s bytes in %" PRIu64 " stage%s", c->name, md_svg_count(c->bytes, total),
             c->count, c->count == 1 ? "" : "s");
    if (c->bytes) {
        md_svg_rect(d->svg, MD_SVG_DATA, center - d->width * 0.3, base - height, d->width * 0.6, height, hover);
        md_svg_text(d->svg, MD_SVG_SMALL, MD_SVG_MIDDLE, center, base - height - 19, "%s", size_text(c->bytes, size));
        md_svg_text(d->svg, "small faint", MD_SVG_MIDDLE, center, base - height - 6, "%.0f%%",
                    100.0 * (double)c->bytes / (double)d->bytes);
    }
    md_svg_text(d->svg, MD_SVG_INK, MD_SVG_MIDDLE, center, base + 19, "%s", c->name);
    size_t i;
    const json_t *path;
    json_array_foreach(json_object_get(c->first, "matrices"), i, path) {
        snprintf(names, sizeof names, "%s", last_part(json_string_value(path), '.'));
        md_svg_text(d->svg, "small faint", MD_SVG_MIDDLE, center, base + 38 + 14 * (double)i, "%s", names);
    }
    if (has_vector(c, "reads", "kv")) md_svg_text(d->svg, "small faint", MD_SVG_MIDDLE, center, base + 38, "KV cache");
    if (has_vector(c, "writes", "scores"))
        md_svg_text(d->svg, "small faint", MD_SVG_MIDDLE, center, base + 52, "if quantized");
    if (!c->in_layer || !c->bytes) return;
    if (c->least == c->most)
        snprintf(each, sizeof each, "%s", size_text(c->most, size));
    else
        snprintf(each, sizeof each, is_small(c->most) ? "%.0f to %s" : "%.1f to %s",
                 (double)c->least * (is_small(c->most) ? 1e-3 : 1e-6), size_text(c->most, least));
    md_svg_text(d->svg, MD_SVG_SMALL, MD_SVG_MIDDLE, center, base + 86, "%s", each);
}

// Behind the stages of a layer, over bars and handoffs.
static void draw_layer_panel(const drawing *d, double bottom) {
    size_t first = 0, last = d->count;
    while (first < d->count && !d->columns[first].in_layer) first++;
    while (last > first && !d->columns[last - 1].in_layer) last--;
    if (first == last) return;
    double x = LEFT + d->width * (double)first;
    md_svg_rect(d->svg, MD_SVG_PANEL, x, BARS_TOP - 42, d->width * (double)(last - first), bottom - BARS_TOP + 42,
                NULL);
    md_svg_text(d->svg, MD_SVG_INK, MD_SVG_MIDDLE, x + d->width * (double)(last - first) / 2, BARS_TOP - 24,
                "a layer, %" PRIu64 " times", d->layers);
}

static void draw_stages(const drawing *d) {
    uint64_t most = 0;
    double base = BARS_TOP + BARS_HEIGHT;
    for (size_t i = 0; i < d->count; i++)
        if (d->columns[i].bytes > most) most = d->columns[i].bytes;
    md_svg_text(d->svg, MD_SVG_FAINT, MD_SVG_START, MARGIN, base - 4, "weights read");
    md_svg_text(d->svg, MD_SVG_FAINT, MD_SVG_START, MARGIN, base + 19, "stage");
    md_svg_text(d->svg, MD_SVG_FAINT, MD_SVG_START, MARGIN, base + 38, "matrices");
    md_svg_text(d->svg, MD_SVG_FAINT, MD_SVG_START, MARGIN, base + 86, "in one layer");
    md_svg_line(d->svg, MD_SVG_AXIS, LEFT, base, WIDTH - MARGIN, base);
    for (size_t i = 0; i < d->count; i++) draw_bar(d, &d->columns[i], i, most);
}

// ---- handoffs --------------------------------------------------------------------------------------------------

// A lane a vector, from its first writer to its last reader.
static void draw_lane(const drawing *d, const char *vector, double y) {
    size_t first = d->count, last = 0;
    for (size_t i = 0; i < d->count; i++) {
        if (!has_vector(&d->columns[i], "reads", vector) && !has_vector(&d->columns[i], "writes", vector)) continue;
        if (first == d->count) first = i;
        last = i;
    }
    md_svg_text(d->svg, MD_SVG_SMALL, MD_SVG_START, MARGIN, y + 4, "%s", vector);
    md_svg_line(d->svg, MD_SVG_GRID, LEFT, y, WIDTH - MARGIN, y);
    md_svg_line(d->svg, MD_SVG_HANDOFF, center_of(d, first), y, center_of(d, last), y);
    for (size_t i = first; i <= last; i++) {
        bool reads = has_vector(&d->columns[i], "reads", vector), writes = has_vector(&d->columns[i], "writes", vector);
        char hover[96];
        if (!reads && !writes) continue;
        snprintf(hover, sizeof hover, "%s %s%s%s %s", d->columns[i].name, reads ? "reads" : "",
                 reads && writes ? " and " : "", writes ? "writes" : "", vector);
        md_svg_dot(d->svg, MD_SVG_HANDOFF, center_of(d, i), y, 6, hover);
        if (writes) md_svg_dot(d->svg, "handdot", center_of(d, i), y, reads ? 3 : 6, NULL);
    }
}

// The vectors in the order they are first written; their number.
static size_t list_vectors(const drawing *d, const char *vectors[MAX_VECTORS]) {
    size_t count = 0, i;
    const json_t *name;
    for (size_t c = 0; c < d->count; c++) {
        json_array_foreach(json_object_get(d->columns[c].first, "writes"), i, name) {
            size_t v = 0;
            while (v < count && strcmp(vectors[v], json_string_value(name)) != 0) v++;
            if (v == count && count < MAX_VECTORS) vectors[count++] = json_string_value(name);
        }
    }
    return count;
}

static void draw_handoffs(const drawing *d, double top, const char *const *vectors, size_t n) {
    for (size_t i = 0; i < n; i++) draw_lane(d, vectors[i], top + LANE * ((double)i + 0.5));
    double y = top + LANE * (double)n + 14;
    md_svg_dot(d->svg, "handdot", LEFT + 6, y - 4, 5, NULL);
    md_svg_text(d->svg, MD_SVG_FAINT, MD_SVG_START, LEFT + 17, y, "written");
    md_svg_dot(d->svg, MD_SVG_HANDOFF, LEFT + 80, y - 4, 5, NULL);
    md_svg_text(d->svg, MD_SVG_FAINT, MD_SVG_START, LEFT + 91, y,
                "read; between two stages every worker waits until what it reads is written");
}

// ---- bits ------------------------------------------------------------------------------------------------------

static unsigned bits_of(const json_t *matrix) {
    uint64_t bits = integer(matrix, "bits");
    return bits ? (unsigned)bits : strcmp(text_of(matrix, "type"), "F32") == 0 ? 32 : 16;
}

static void draw_cell(const drawing *d, double x, double y, double width, unsigned bits, const char *hover) {
    char class[16], on[24];
    snprintf(class, sizeof class, "b%u", bits > 16 ? 16 : bits);
    snprintf(on, sizeof on, "small on%u", bits > 16 ? 16 : bits);
    md_svg_rect(d->svg, class, x + 0.5, y + 0.5, width - 1, CELL_HEIGHT - 1, hover);
    if (width >= 16) md_svg_text(d->svg, on, MD_SVG_MIDDLE, x + width / 2, y + 14, "%u", bits);
}

static void draw_matrix(const drawing *d, const json_t *matrix, double x, double y, double width) {
    char hover[192], bytes[32];
    snprintf(hover, sizeof hover, "%s: %u bits, %s bytes", text_of(matrix, "path"), bits_of(matrix),
             md_svg_count(integer(matrix, "bytes"), bytes));
    draw_cell(d, x, y, width, bits_of(matrix), hover);
}

typedef struct map {
    const char *names[MAX_ROWS]; // of the matrices of a layer
    size_t rows;
    double top, width; // of a cell
} map;

// Draws the matrices of layers as cells, and the others below the map.
static void draw_matrices(const drawing *d, map *m) {
    double x = LEFT;
    size_t i;
    const json_t *matrix;
    json_array_foreach(json_object_get(d->root, "matrices"), i, matrix) {
        unsigned long layer = 0;
        const char *path = text_of(matrix, "path"), *name = last_part(path, '.'), *number = strstr(path, "layers.");
        if (!number) continue;
        layer = strtoul(number + strlen("layers."), NULL, 10);
        size_t row = 0;
        while (row < m->rows && strcmp(m->names[row], name) != 0) row++;
        if (row == MAX_ROWS) continue;
        if (row == m->rows) {
            m->names[m->rows++] = name;
            md_svg_text(d->svg, MD_SVG_SMALL, MD_SVG_START, MARGIN, m->top + CELL_HEIGHT * (double)row + 14, "%s",
                        name);
        }
        draw_matrix(d, matrix, LEFT + m->width * (double)layer, m->top + CELL_HEIGHT * (double)row, m->width);
    }
    double y = m->top + CELL_HEIGHT * (double)(m->rows + 1) + 30;
    json_array_foreach(json_object_get(d->root, "matrices"), i, matrix) {
        const char *path = text_of(matrix, "path");
        char size[24];
        if (strstr(path, "layers.")) continue;
        draw_matrix(d, matrix, x, y, 24);
        md_svg_text(d->svg, MD_SVG_SMALL, MD_SVG_START, x + 30, y + 14, "%s, %s", last_part(path, '.'),
                    size_text(integer(matrix, "bytes"), size));
        x += 190;
    }
}

static void draw_map(const drawing *d, double top) {
    map m = {.top = top + 12};
    m.width = d->layers ? (double)ROOM / (double)d->layers : CELL_MOST;
    if (m.width > CELL_MOST) m.width = CELL_MOST;
    md_svg_text(d->svg, MD_SVG_INK, MD_SVG_START, MARGIN, top, "Bits of a weight, by layer");
    draw_matrices(d, &m);
    double y = m.top + CELL_HEIGHT * (double)m.rows;
    const json_t *kv = json_object_get(json_object_get(d->root, "kv"), "bits"), *bits;
    md_svg_text(d->svg, MD_SVG_SMALL, MD_SVG_START, MARGIN, y + 18, "KV cache");
    uint64_t every = m.width >= 18 ? 1 : m.width >= 9 ? 4 : 8;
    size_t i;
    json_array_foreach(kv, i, bits) {
        char hover[64];
        snprintf(hover, sizeof hover, "KV cache of layer %zu: %" PRId64 " bits", i, (int64_t)json_integer_value(bits));
        draw_cell(d, LEFT + m.width * (double)i, y + 4, m.width, (unsigned)json_integer_value(bits), hover);
        if (i % every == 0)
            md_svg_text(d->svg, "small faint", MD_SVG_MIDDLE, LEFT + m.width * ((double)i + 0.5),
                        y + 4 + CELL_HEIGHT + 14, "%zu", i);
    }
}

md_status md_inspect_svg(const json_t *root, const char *name, md_buf *text, md_error *err) {
    md_svg svg;
    const char *vectors[MAX_VECTORS];
    drawing d = {.svg = &svg, .root = root};
    read_plan(&d);
    size_t lanes = list_vectors(&d, vectors);
    double handoffs = BARS_TOP + BARS_HEIGHT + TEXTS_HEIGHT, bits = handoffs + LANE * (double)lanes + 54;
    // Seven rows of matrices, the cache's, the layers' numbers, and the matrices outside layers.
    double height = bits + 12 + 8 * CELL_HEIGHT + 30 + CELL_HEIGHT + MARGIN;
    md_svg_open(&svg, WIDTH, height, "megadecode inspect: the stages of a token");
    draw_heading(&d, name);
    draw_layer_panel(&d, handoffs + LANE * (double)lanes);
    draw_stages(&d);
    draw_handoffs(&d, handoffs, vectors, lanes);
    draw_map(&d, bits);
    md_status status = md_svg_close(&svg, err);
    *text = svg.text;
    return status;
}
