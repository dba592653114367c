#include "text/chars.h"

#include <string.h>
#include <utf8proc.h>

bool md_char_is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= 0x09 && cp <= 0x0d);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static const md_late_range *find_late(uint32_t cp) {
    size_t low = 0, high = md_n_late_ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (cp > md_late_ranges[middle].last) {
            low = middle + 1;
        } else if (cp < md_late_ranges[middle].first) {
            high = middle;
        } else {
            return &md_late_ranges[middle];
        }
    }
    return NULL;
}

// Two letters, "Lo", "Nd".
static const char *category(uint32_t cp) {
    const char *known = utf8proc_category_string((utf8proc_int32_t)cp);
    if (strcmp(known, "Cn") != 0) return known;
    const md_late_range *late = find_late(cp);
    return late ? late->category : known;
}

uint32_t md_char_stand_in(uint32_t cp) {
    // {category, of three bytes, of four bytes}
    static const struct {
        char category[3];
        uint32_t three, four;
    } stand_ins[] = {{"Lu", 0x1e00, 0x10400}, {"Ll", 0x1e01, 0x10428}, {"Lm", 0x1d2c, 0x16b40}, {"Lo", 0xa000, 0x10280},
                     {"Mn", 0x1dc0, 0x101fd}, {"Mc", 0x1b04, 0x11000}, {"Nd", 0x1090, 0x104a0}, {"No", 0x2460, 0x10107},
                     {"Po", 0x2020, 0x10100}, {"Pd", 0x2010, 0x10ead}, {"Sm", 0x2044, 0x1d6c1}, {"So", 0x2195, 0x10137},
                     {"Cf", 0x200b, 0x110bd}};
    const md_late_range *late = cp < 0x800 ? NULL : find_late(cp);
    if (!late) return cp;
    if (cp == 0x2b739 || (cp >= 0x2ebf0 && cp <= 0x2ee5d) || (cp >= 0x31350 && cp <= 0x323af)) return 0x20000;
    for (size_t i = 0; i < sizeof stand_ins / sizeof stand_ins[0]; i++)
        if (strcmp(stand_ins[i].category, late->category) == 0)
            return cp < 0x10000 ? stand_ins[i].three : stand_ins[i].four;
    return cp;
}

bool md_char_is_numeric(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    return category(cp)[0] == 'N';
}

bool md_char_is_punctuation(uint32_t cp) {
    if (cp < 0x80)
        return (cp >= 0x21 && cp <= 0x2f) || (cp >= 0x3a && cp <= 0x40) || (cp >= 0x5b && cp <= 0x60) ||
               (cp >= 0x7b && cp <= 0x7e);
    return category(cp)[0] == 'P';
}

bool md_char_is_word(uint32_t cp) {
    if (cp < 0x80) return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (cp >= '0' && cp <= '9') || cp == '_';
    const char *name = category(cp);
    if (name[0] == 'L' || name[0] == 'M' || strcmp(name, "Nd") == 0 || strcmp(name, "Nl") == 0 ||
        strcmp(name, "Pc") == 0)
        return true;
    if (cp == 0x200c || cp == 0x200d) return true; // Join_Control
    // Other_Alphabetic beyond letters and marks: circled and squared Latin letters.
    return (cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) || (cp >= 0x1f150 && cp <= 0x1f169) ||
           (cp >= 0x1f170 && cp <= 0x1f189);
}
