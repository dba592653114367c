// Pictures as SVG text: shapes with style classes, escaped text, axes with round ticks. No scripts, no fonts of its
// own, nothing loaded from elsewhere; colours follow the reader's light or dark scheme on a background that the picture
// brings along, so that it can be read wherever it is put.
//
// Lengths are CSS pixels, y grows downwards. What fails (memory) is remembered and told by md_svg_close. One thread.
#ifndef MD_CLI_SVG_H
#define MD_CLI_SVG_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct md_svg {
    md_buf text;
} md_svg;

typedef enum md_svg_anchor { MD_SVG_START, MD_SVG_MIDDLE, MD_SVG_END } md_svg_anchor;

// Classes of shapes and texts. The colours of both schemes are in svg.c.
#define MD_SVG_TITLE "title"  // text: the heading
#define MD_SVG_INK "ink"      // text: what is to be read first
#define MD_SVG_FAINT "faint"  // text: the rest
#define MD_SVG_SMALL "small"  // text: values inside a drawing
#define MD_SVG_GRID "grid"    // lines behind the data
#define MD_SVG_AXIS "axis"    // the line the data stand on
#define MD_SVG_DATA "data"    // filled shapes: the data
#define MD_SVG_CURVE "curve"  // lines: the data
#define MD_SVG_LIMIT "limit"  // lines: what the data can reach at most
#define MD_SVG_HANDOFF "hand" // lines and rings: what one stage leaves to others
#define MD_SVG_PANEL "panel"  // filled shapes: a group of things

void md_svg_open(md_svg *svg, double width, double height, const char *title);
// The figures that the picture shows, as text for programs (`<metadata>`).
void md_svg_metadata(md_svg *svg, const char *text);

// `hover`: a text shown where the pointer rests; NULL: none.
void md_svg_rect(md_svg *svg, const char *class, double x, double y, double width, double height, const char *hover);
void md_svg_line(md_svg *svg, const char *class, double x1, double y1, double x2, double y2);
void md_svg_dot(md_svg *svg, const char *class, double x, double y, double radius, const char *hover);
void md_svg_curve(md_svg *svg, const char *class, const double *x, const double *y, size_t n);
void md_svg_text(md_svg *svg, const char *class, md_svg_anchor anchor, double x, double y, const char *fmt, ...)
    MD_PRINTF(6, 7);

// Writes the end. The text is then svg->text's, for md_buf_free in any case.
md_status md_svg_close(md_svg *svg, md_error *err);

// An axis from 0 to a round number of at least `most`, in at most `ticks` steps.
typedef struct md_svg_scale {
    double step, end; // both > 0
} md_svg_scale;
md_svg_scale md_svg_scale_for(double most, int ticks);

// Text of at most `most` (<= MD_SVG_FIT_MAX - 4) bytes, with "..." where it had more; `out` may be `text`. Returns
// `out`.
enum { MD_SVG_FIT_MAX = 80 };
const char *md_svg_fit(const char *text, size_t most, char *out);

// 1234567 as "1,234,567".
const char *md_svg_count(uint64_t value, char out[32]);

#endif
