#include "cli/svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

enum { MAX_BYTES = 1 << 26, MAX_LABEL = 512 };

// Shape colours in the light scheme, and what the dark one changes. The .bN are the heat map's: N bits a weight, the
// text on them in .onN.
static const char style[] =
    "text{font-family:system-ui,sans-serif;font-size:12px}"
    ".paper{fill:#fff;stroke:#d0d7de}.title{font-size:16px;font-weight:600}.small{font-size:11px}"
    ".title,.ink,.small{fill:#1f2328}.faint{fill:#59636e}.ink{font-weight:600}"
    ".grid{stroke:#d8dee4;fill:none}.axis{stroke:#8c959f;fill:none}.panel{fill:#f3f5f7}"
    ".data{fill:#2a6fdb}.curve{fill:none;stroke:#2a6fdb;stroke-width:2;stroke-linejoin:round}"
    ".limit{fill:none;stroke:#bc5a00;stroke-width:1.5;stroke-dasharray:5 4}"
    ".hand{stroke:#6f42c1;fill:#fff;stroke-width:1.5}.handdot{fill:#6f42c1}"
    ".b2{fill:#f0f6fe}.b3{fill:#dceafd}.b4{fill:#c3dcfb}.b5{fill:#93bff4}.b6{fill:#6aa5ee}.b8{fill:#2a6fdb}"
    ".b16{fill:#163d7a}.on2,.on3,.on4,.on5{fill:#1f2328}.on6,.on8,.on16{fill:#fff}"
    "@media(prefers-color-scheme:dark){"
    ".paper{fill:#0d1117;stroke:#30363d}.title,.ink,.small{fill:#e6edf3}.faint{fill:#9198a1}"
    ".grid{stroke:#262c36}.axis{stroke:#656c76}.panel{fill:#151b23}"
    ".data{fill:#4c94f5}.curve{stroke:#4c94f5}.limit{stroke:#e09b4f}"
    ".hand{stroke:#b392f0;fill:#0d1117}.handdot{fill:#b392f0}"
    ".b2{fill:#10192b}.b3{fill:#13233f}.b4{fill:#173059}.b5{fill:#1d4483}.b6{fill:#2558a8}.b8{fill:#4c94f5}"
    ".b16{fill:#b9d6fd}.on2,.on3,.on4,.on5,.on6{fill:#e6edf3}.on8,.on16{fill:#0d1117}}";

// ---- text ------------------------------------------------------------------------------------------------------

static bool is_utf8(const char *text) {
    json_t *string = json_string(text); // NULL also for want of memory: then '?' does no harm
    json_decref(string);
    return string != NULL;
}

// U+FFFE and U+FFFF, which XML excludes: EF BF BE and EF BF BF.
static bool is_noncharacter(const unsigned char *c) { return c[0] == 0xEF && c[1] == 0xBF && c[2] >= 0xBE; }

// As character data or an attribute's value. What XML can't hold becomes '?'.
static void escape(md_svg *svg, const char *text) {
    bool utf8 = is_utf8(text);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        bool control = (*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7F;
        if (*c == '&')
            md_buf_puts(&svg->text, "&amp;");
        else if (*c == '<')
            md_buf_puts(&svg->text, "&lt;");
        else if (*c == '>')
            md_buf_puts(&svg->text, "&gt;");
        else if (*c == '"')
            md_buf_puts(&svg->text, "&quot;");
        else if (control || (*c >= 0x80 && !utf8))
            md_buf_putc(&svg->text, '?');
        else if (utf8 && is_noncharacter(c)) {
            md_buf_putc(&svg->text, '?');
            c += 2;
        } else
            md_buf_putc(&svg->text, (char)*c);
    }
}

// ---- elements --------------------------------------------------------------------------------------------------

void md_svg_open(md_svg *svg, double width, double height, const char *title) {
    md_buf_init(&svg->text, MAX_BYTES);
    md_buf_printf(&svg->text,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                  "role=\"img\">\n<title>",
                  width, height, width, height);
    escape(svg, title);
    md_buf_printf(&svg->text, "</title>\n<style>%s</style>\n", style);
    md_buf_printf(&svg->text, "<rect class=\"paper\" x=\"0.5\" y=\"0.5\" width=\"%.0f\" height=\"%.0f\" rx=\"6\"/>\n",
                  width - 1, height - 1);
}

void md_svg_metadata(md_svg *svg, const char *text) {
    md_buf_puts(&svg->text, "<metadata>");
    escape(svg, text);
    md_buf_puts(&svg->text, "</metadata>\n");
}

static void end_shape(md_svg *svg, const char *name, const char *hover) {
    if (!hover) {
        md_buf_puts(&svg->text, "/>\n");
        return;
    }
    md_buf_puts(&svg->text, "><title>");
    escape(svg, hover);
    md_buf_printf(&svg->text, "</title></%s>\n", name);
}

void md_svg_rect(md_svg *svg, const char *class, double x, double y, double width, double height, const char *hover) {
    md_buf_printf(&svg->text, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\"", class,
                  x, y, width, height);
    end_shape(svg, "rect", hover);
}

void md_svg_line(md_svg *svg, const char *class, double x1, double y1, double x2, double y2) {
    md_buf_printf(&svg->text, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1,
                  x2, y2);
}

void md_svg_dot(md_svg *svg, const char *class, double x, double y, double radius, const char *hover) {
    md_buf_printf(&svg->text, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", class, x, y, radius);
    end_shape(svg, "circle", hover);
}

void md_svg_curve(md_svg *svg, const char *class, const double *x, const double *y, size_t n) {
    md_buf_printf(&svg->text, "<polyline class=\"%s\" points=\"", class);
    for (size_t i = 0; i < n; i++) md_buf_printf(&svg->text, "%s%.1f,%.1f", i ? " " : "", x[i], y[i]);
    md_buf_puts(&svg->text, "\"/>\n");
}

void md_svg_text(md_svg *svg, const char *class, md_svg_anchor anchor, double x, double y, const char *fmt, ...) {
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    char label[MAX_LABEL];
    va_list args;
    va_start(args, fmt);
    vsnprintf(label, sizeof label, fmt, args);
    va_end(args);
    md_buf_printf(&svg->text, "<text class=\"%s\"%s x=\"%.1f\" y=\"%.1f\">", class, anchors[anchor], x, y);
    escape(svg, label);
    md_buf_puts(&svg->text, "</text>\n");
}

md_status md_svg_close(md_svg *svg, md_error *err) {
    md_buf_puts(&svg->text, "</svg>\n");
    return svg->text.failed ? md_fail(err, MD_E_MEMORY, "a picture of more than %d bytes, or memory ran out", MAX_BYTES)
                            : MD_OK;
}

// ---- numbers, names
// ---------------------------------------------------------------------------------------------------

md_svg_scale md_svg_scale_for(double most, int ticks) {
    static const double round_steps[] = {1, 2, 2.5, 5, 10};
    if (!(most > 0) || !isfinite(most)) most = 1;
    double least = most / ticks, power = pow(10, floor(log10(least))), step = 10 * power;
    for (size_t i = sizeof round_steps / sizeof *round_steps; i-- > 0;)
        if (round_steps[i] * power >= least) step = round_steps[i] * power;
    return (md_svg_scale){step, step * ceil(most / step - 1e-9)};
}

const char *md_svg_fit(const char *text, size_t most, char *out) {
    size_t n = strlen(text);
    if (n > most) {
        n = most;
        while (n && ((unsigned char)text[n] & 0xC0) == 0x80) n--; // not inside a character
        memmove(out, text, n);
        memcpy(out + n, "...", 4);
    } else {
        memmove(out, text, n + 1);
    }
    return out;
}

const char *md_svg_count(uint64_t value, char out[32]) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, value);
    char *to = out;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return out;
}
