#include "server/schema_pattern.h"

#include <stdlib.h>
#include <string.h>

#include "server/choice.h"

enum {
    NODES_MAX = 4096,
    SETS_MAX = 512,
    GROUPS_MAX = 64,  // nested
    REPEAT_MAX = 4096 // of one counted repetition, and of nested ones multiplied
};

typedef enum node_kind {
    NODE_SET,    // one character of sets[a]
    NODE_CAT,    // a, then b
    NODE_EITHER, // a or b
    NODE_REPEAT, // a, min to max times
    NODE_EMPTY,
    NODE_BEGIN, // ^
    NODE_END    // $
} node_kind;

typedef struct node {
    node_kind kind;
    uint32_t a, b;
    uint32_t min, max;
} node;

struct md_schema_pattern {
    node *nodes; // [node_count]; owned
    uint32_t node_count;
    md_charset *sets; // [set_count]; owned
    uint32_t set_count;
    uint32_t root;
};

typedef struct parser {
    md_schema_pattern *out;
    const char *path;
    const char *at, *end;
    uint32_t groups;
    md_status status; // sticky
    md_error *err;
} parser;

static uint32_t parse_either(parser *p);

// ---- nodes and errors ------------------------------------------------------------------------------------------

static uint32_t refuse(parser *p, md_status status, const char *why) {
    if (p->status == MD_OK) p->status = md_fail(p->err, status, "%s: the pattern %s", p->path, why);
    return 0;
}

static uint32_t make(parser *p, node n) {
    if (p->out->node_count == NODES_MAX) return refuse(p, MD_E_UNSUPPORTED, "is too large");
    p->out->nodes[p->out->node_count] = n;
    return p->out->node_count++;
}

static uint32_t make_set(parser *p, const md_charset *set) {
    md_schema_pattern *r = p->out;
    uint32_t i = 0;
    while (i < r->set_count && !md_charset_equal(&r->sets[i], set)) i++;
    if (i == SETS_MAX) return refuse(p, MD_E_UNSUPPORTED, "is too large");
    r->sets[i] = *set;
    if (i == r->set_count) r->set_count++;
    return make(p, (node){.kind = NODE_SET, .a = i});
}

static uint32_t make_any(parser *p) {
    md_charset all = {.count = 0};
    md_charset_negate(&all);
    uint32_t set = make_set(p, &all);
    return make(p, (node){.kind = NODE_REPEAT, .a = set, .max = MD_GRAMMAR_UNBOUNDED});
}

static bool next_is(const parser *p, char c) { return p->at < p->end && *p->at == c; }

static bool next_in(const parser *p, const char *list) { return p->at < p->end && *p->at && strchr(list, *p->at); }

static bool take(parser *p, const char *word) {
    size_t n = strlen(word);
    if (p->at > p->end || (size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0) return false;
    p->at += n;
    return true;
}

// ---- characters and classes ------------------------------------------------------------------------------------

// The next character of the pattern, which is valid UTF-8.
static uint32_t read_character(parser *p) {
    unsigned char first = (unsigned char)*p->at++;
    if (first < 0x80) return first;
    uint32_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1, c = first & (0x3fu >> more);
    while (more-- > 0 && p->at < p->end) c = c << 6 | ((unsigned char)*p->at++ & 0x3f);
    return c;
}

static bool read_hex(parser *p, uint32_t digits, uint32_t *out) {
    *out = 0;
    for (uint32_t i = 0; i < digits; i++) {
        char c = p->at < p->end ? *p->at++ : 0;
        uint32_t value = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (value == 16) return false;
        *out = *out << 4 | value;
    }
    return true;
}

static void add_class(md_charset *set, char name) {
    static const uint32_t spaces[][2] = {{'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                                         {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                         {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    md_charset class = {.count = 0};
    char lower = (char)(name | 0x20);
    for (size_t i = 0; lower == 's' && i < sizeof spaces / sizeof spaces[0]; i++)
        md_charset_add(&class, spaces[i][0], spaces[i][1]);
    if (lower != 's') md_charset_add(&class, '0', '9');
    if (lower == 'w') {
        md_charset_add(&class, 'a', 'z');
        md_charset_add(&class, 'A', 'Z');
        md_charset_add(&class, '_', '_');
    }
    if (name < 'a') md_charset_negate(&class); // \D, \W, \S
    md_charset_add_all(set, &class);
}

// After a backslash. A class (\d ...) goes into *set, and true comes back; otherwise *c is the character it means.
static bool read_escape(parser *p, md_charset *set, uint32_t *c) {
    static const char controls[][2] = {{'t', '\t'}, {'n', '\n'}, {'r', '\r'}, {'f', '\f'}, {'v', '\v'}, {'0', '\0'}};
    *c = 0;
    if (p->at == p->end) return refuse(p, MD_E_USAGE, "ends with a backslash");
    if (next_in(p, "dDwWsS")) {
        add_class(set, *p->at++);
        return true;
    }
    bool braces = p->end - p->at > 1 && p->at[0] == 'u' && p->at[1] == '{';
    if (*p->at == 'x' || (*p->at == 'u' && !braces)) {
        uint32_t digits = *p->at++ == 'x' ? 2 : 4;
        if (!read_hex(p, digits, c)) refuse(p, MD_E_USAGE, "has an escape that lacks digits");
        if (*c >= 0xd800 && *c <= 0xdfff)
            refuse(p, MD_E_UNSUPPORTED, "has a surrogate, which can't constrain an answer");
        return false;
    }
    for (size_t i = 0; i < sizeof controls / sizeof controls[0]; i++)
        if (*p->at == controls[i][0] && !(*p->at == '0' && p->end - p->at > 1 && p->at[1] >= '0' && p->at[1] <= '9')) {
            *c = (unsigned char)controls[i][1];
            p->at++;
            return false;
        }
    bool word = (*p->at >= '0' && *p->at <= '9') || ((*p->at | 0x20) >= 'a' && (*p->at | 0x20) <= 'z');
    if (word) // \b, \B, \1, \k, \p, \c, \u{...}
        return refuse(p, MD_E_UNSUPPORTED,
                      "has a backslash with a letter or digit that can't constrain an answer here");
    *c = read_character(p);
    return false;
}

// After "[".
static uint32_t parse_class(parser *p) {
    md_charset set = {.count = 0};
    bool negated = take(p, "^"), fits = true;
    while (p->status == MD_OK && !next_is(p, ']')) {
        if (p->at == p->end) return refuse(p, MD_E_USAGE, "has a [ without its ]");
        uint32_t low, high;
        bool class = false;
        if (take(p, "\\"))
            class = read_escape(p, &set, &low);
        else
            low = read_character(p);
        if (class) {
            if (next_is(p, '-') && p->end - p->at > 1 && p->at[1] != ']')
                return refuse(p, MD_E_USAGE, "has a range that begins with a class");
            continue;
        }
        high = low;
        if (next_is(p, '-') && p->end - p->at > 1 && p->at[1] != ']') {
            p->at++;
            if (take(p, "\\")) {
                if (read_escape(p, &set, &high)) return refuse(p, MD_E_USAGE, "has a range that ends with a class");
            } else {
                high = read_character(p);
            }
            if (high < low) return refuse(p, MD_E_USAGE, "has a range whose end lies before its beginning");
        }
        fits = fits && md_charset_add(&set, low, high);
    }
    if (p->status != MD_OK) return 0; // perhaps at the end, where there is no ] to go past
    p->at++;
    if (negated) fits = fits && md_charset_negate(&set);
    if (!fits) return refuse(p, MD_E_UNSUPPORTED, "has a class of too many ranges");
    return make_set(p, &set);
}

// ---- the syntax ------------------------------------------------------------------------------------------------

static uint32_t parse_group(parser *p) {
    if (take(p, "?:")) {
    } else if (next_is(p, '?')) {
        bool named = p->end - p->at > 2 && p->at[1] == '<' && p->at[2] != '=' && p->at[2] != '!';
        if (!named) return refuse(p, MD_E_UNSUPPORTED, "has a (?...) that can't constrain an answer here");
        const char *close = memchr(p->at, '>', (size_t)(p->end - p->at));
        if (!close) return refuse(p, MD_E_USAGE, "has a group whose name does not end");
        p->at = close + 1;
    }
    if (++p->groups > GROUPS_MAX) return refuse(p, MD_E_UNSUPPORTED, "has groups nested too deeply");
    uint32_t inside = parse_either(p);
    p->groups--;
    if (p->status != MD_OK) return 0;
    if (!take(p, ")")) return refuse(p, MD_E_USAGE, "has a ( without its )");
    return inside;
}

static uint32_t parse_atom(parser *p) {
    md_charset set = {.count = 0};
    if (take(p, "(")) return parse_group(p);
    if (take(p, "[")) return parse_class(p);
    if (take(p, "^")) return make(p, (node){.kind = NODE_BEGIN});
    if (take(p, "$")) return make(p, (node){.kind = NODE_END});
    if (take(p, ".")) { // all but line ends
        md_charset_add(&set, '\n', '\n');
        md_charset_add(&set, '\r', '\r');
        md_charset_add(&set, 0x2028, 0x2029);
        md_charset_negate(&set);
        return make_set(p, &set);
    }
    if (next_in(p, "*+?{")) return refuse(p, MD_E_USAGE, "has a repetition of nothing");
    if (next_in(p, "}]")) return refuse(p, MD_E_USAGE, "has a bracket that was not opened");
    uint32_t c;
    if (take(p, "\\")) {
        if (read_escape(p, &set, &c)) return make_set(p, &set);
    } else {
        c = read_character(p);
    }
    md_charset_add(&set, c, c);
    return make_set(p, &set);
}

static bool read_number(parser *p, uint32_t *out) {
    bool any = false;
    for (*out = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++, any = true)
        if (*out <= REPEAT_MAX) *out = *out * 10 + (uint32_t)(*p->at - '0');
    return any;
}

// {m}, {m,}, {m,n} after "{".
static void read_braces(parser *p, uint32_t *min, uint32_t *max) {
    bool sound = read_number(p, min);
    *max = *min;
    if (take(p, ",") && !read_number(p, max)) *max = MD_GRAMMAR_UNBOUNDED;
    if (!sound || !take(p, "}") || *min > *max) {
        refuse(p, MD_E_USAGE, "has braces that are no {m}, {m,} or {m,n}");
        return;
    }
    if (*min > REPEAT_MAX || (*max > REPEAT_MAX && *max != MD_GRAMMAR_UNBOUNDED))
        refuse(p, MD_E_UNSUPPORTED, "repeats more often than can constrain an answer");
}

static uint32_t parse_repeat(parser *p) {
    const char *from = p->at;
    uint32_t atom = parse_atom(p), repeated = 0;
    bool anchor = p->status == MD_OK && p->at - from == 1 && (*from == '^' || *from == '$');
    while (p->status == MD_OK && p->at < p->end) {
        uint32_t min = 0, max = MD_GRAMMAR_UNBOUNDED;
        if (take(p, "+"))
            min = 1;
        else if (take(p, "?"))
            max = 1;
        else if (take(p, "{"))
            read_braces(p, &min, &max);
        else if (!take(p, "*"))
            break;
        if (anchor || repeated++) return refuse(p, MD_E_USAGE, "repeats an anchor or a repetition");
        take(p, "?"); // lazy: the language is the same
        atom = make(p, (node){.kind = NODE_REPEAT, .a = atom, .min = min, .max = max});
    }
    return atom;
}

static uint32_t parse_cat(parser *p) {
    uint32_t left = make(p, (node){.kind = NODE_EMPTY});
    bool first = true;
    while (p->status == MD_OK && p->at < p->end && *p->at != '|' && *p->at != ')') {
        uint32_t right = parse_repeat(p);
        left = first ? right : make(p, (node){.kind = NODE_CAT, .a = left, .b = right});
        first = false;
    }
    return left;
}

static uint32_t parse_either(parser *p) {
    uint32_t left = parse_cat(p);
    while (p->status == MD_OK && take(p, "|")) {
        uint32_t right = parse_cat(p);
        left = make(p, (node){.kind = NODE_EITHER, .a = left, .b = right});
    }
    return left;
}

// ---- anchors ---------------------------------------------------------------------------------------------------

// The first (or last) part of a sequence: takes an anchor of `kind` there away. False: there is none.
static bool take_anchor(md_schema_pattern *r, uint32_t at, node_kind kind) {
    node *n = &r->nodes[at];
    while (n->kind == NODE_CAT) n = &r->nodes[kind == NODE_BEGIN ? n->a : n->b];
    if (n->kind != kind) return false;
    n->kind = NODE_EMPTY;
    return true;
}

// Makes the pattern match all of a string: what is not anchored may have anything beside it.
static uint32_t anchor(parser *p, uint32_t at) {
    node n = p->out->nodes[at];
    if (n.kind == NODE_EITHER) {
        uint32_t a = anchor(p, n.a), b = anchor(p, n.b);
        return make(p, (node){.kind = NODE_EITHER, .a = a, .b = b});
    }
    bool begins = take_anchor(p->out, at, NODE_BEGIN), ends = take_anchor(p->out, at, NODE_END);
    if (!begins) {
        uint32_t any = make_any(p);
        at = make(p, (node){.kind = NODE_CAT, .a = any, .b = at});
    }
    if (!ends) {
        uint32_t any = make_any(p);
        at = make(p, (node){.kind = NODE_CAT, .a = at, .b = any});
    }
    return at;
}

// ---- lengths ---------------------------------------------------------------------------------------------------

typedef struct length {
    uint64_t min, max; // characters; max UINT64_MAX: no bound
} length;

static uint64_t times(uint64_t x, uint32_t n) {
    if (x == 0 || n == 0) return 0;
    return x == UINT64_MAX || n == MD_GRAMMAR_UNBOUNDED ? UINT64_MAX : x * n; // x * n stays far below 2^64
}

static length length_of(const md_schema_pattern *r, uint32_t at) {
    node n = r->nodes[at];
    length a, b;
    switch (n.kind) {
    case NODE_SET: return (length){1, 1};
    case NODE_CAT:
        a = length_of(r, n.a), b = length_of(r, n.b);
        return (length){a.min + b.min, a.max == UINT64_MAX || b.max == UINT64_MAX ? UINT64_MAX : a.max + b.max};
    case NODE_EITHER:
        a = length_of(r, n.a), b = length_of(r, n.b);
        return (length){a.min < b.min ? a.min : b.min, a.max > b.max ? a.max : b.max};
    case NODE_REPEAT: a = length_of(r, n.a); return (length){times(a.min, n.min), times(a.max, n.max)};
    default: return (length){0, 0};
    }
}

// Of a sequence: the one part that repeats a character, while all others have a fixed length, whose sum is *fixed.
static bool find_variable(const md_schema_pattern *r, uint32_t at, uint32_t *variable, uint64_t *fixed) {
    node n = r->nodes[at];
    if (n.kind == NODE_CAT) return find_variable(r, n.a, variable, fixed) && find_variable(r, n.b, variable, fixed);
    length l = length_of(r, at);
    if (l.min == l.max) {
        *fixed += l.min;
        return true;
    }
    if (*variable != UINT32_MAX || n.kind != NODE_REPEAT || r->nodes[n.a].kind != NODE_SET) return false;
    *variable = at;
    return true;
}

md_status md_schema_pattern_bound(md_schema_pattern *pattern, uint32_t min, uint32_t max, const char *path,
                                  md_error *err) {
    length l = length_of(pattern, pattern->root);
    if (l.min >= min && (max == MD_GRAMMAR_UNBOUNDED || l.max <= max)) return MD_OK;
    if (l.max < min || l.min > max)
        return md_fail(err, MD_E_USAGE, "%s: no string of minLength to maxLength characters matches the pattern", path);
    uint32_t variable = UINT32_MAX;
    uint64_t fixed = 0;
    if (!find_variable(pattern, pattern->root, &variable, &fixed) || variable == UINT32_MAX)
        return md_fail(err, MD_E_UNSUPPORTED,
                       "%s: minLength or maxLength beside a pattern of this form can't constrain an answer here", path);
    node *n = &pattern->nodes[variable];
    uint32_t least = min > fixed ? min - (uint32_t)fixed : 0;
    if (n->min < least) n->min = least;
    if (max != MD_GRAMMAR_UNBOUNDED && n->max > max - fixed) n->max = max - (uint32_t)fixed;
    return MD_OK;
}

// ---- code ------------------------------------------------------------------------------------------------------

static md_status emit(const md_schema_pattern *r, uint32_t at, md_grammar *grammar, md_text_form form, md_error *err);

static md_status emit_repeat(const md_schema_pattern *r, node n, md_grammar *grammar, md_text_form form,
                             md_error *err) {
    if (length_of(r, n.a).min == 0) n.min = 0; // as often as is left over, it reads nothing
    bool optional = n.min == 0 && n.max == 1, counted = n.min > 1 || (n.max > 1 && n.max != MD_GRAMMAR_UNBOUNDED);
    uint32_t loop, first = grammar->size;
    if (n.max == 0) return MD_OK;
    if (!optional && !counted && n.min == 1) { // once and more: behind each one, again or on
        MD_TRY(emit(r, n.a, grammar, form, err));
        if (n.max == 1) return MD_OK;
        return md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, first, grammar->size + 1, NULL, err);
    }
    if (counted) MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_ZERO, 0, 0, NULL, err));
    MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_SPLIT, grammar->size + 1, 0, &loop, err));
    if (counted) MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_COUNT, n.max, n.min, NULL, err));
    MD_TRY(emit(r, n.a, grammar, form, err));
    if (!optional) MD_TRY(md_grammar_emit(grammar, MD_GRAMMAR_JUMP, loop, 0, NULL, err));
    grammar->code[loop].b = grammar->size;
    return counted ? md_grammar_emit(grammar, MD_GRAMMAR_END, n.min, 0, NULL, err) : MD_OK;
}

static md_status emit(const md_schema_pattern *r, uint32_t at, md_grammar *grammar, md_text_form form, md_error *err) {
    node n = r->nodes[at];
    md_choice choice = MD_CHOICE;
    switch (n.kind) {
    case NODE_SET: return md_charset_emit(grammar, &r->sets[n.a], form, err);
    case NODE_CAT: MD_TRY(emit(r, n.a, grammar, form, err)); return emit(r, n.b, grammar, form, err);
    case NODE_EITHER:
        MD_TRY(md_choice_begin(grammar, &choice, true, err));
        MD_TRY(emit(r, n.a, grammar, form, err));
        MD_TRY(md_choice_join(grammar, &choice, err));
        MD_TRY(md_choice_begin(grammar, &choice, false, err));
        MD_TRY(emit(r, n.b, grammar, form, err));
        md_choice_end(grammar, &choice);
        return MD_OK;
    case NODE_REPEAT: return emit_repeat(r, n, grammar, form, err);
    default: return MD_OK;
    }
}

md_status md_schema_pattern_emit(const md_schema_pattern *pattern, md_grammar *grammar, md_text_form form,
                                 md_error *err) {
    return emit(pattern, pattern->root, grammar, form, err);
}

// ---- life ------------------------------------------------------------------------------------------------------

// Anchors that stand where they can't be decided, and repetitions whose counters multiply.
static void check_tree(parser *p, uint32_t at, uint64_t counted) {
    node n = p->out->nodes[at];
    if (n.kind == NODE_BEGIN || n.kind == NODE_END)
        refuse(p, MD_E_UNSUPPORTED, "has an anchor inside, which can't constrain an answer here");
    if (n.kind == NODE_REPEAT) {
        uint32_t most = n.max == MD_GRAMMAR_UNBOUNDED ? n.min : n.max;
        if (most > 1) counted *= most;
        if (counted > REPEAT_MAX) refuse(p, MD_E_UNSUPPORTED, "repeats more often than can constrain an answer");
    }
    if (p->status != MD_OK) return;
    if (n.kind == NODE_CAT || n.kind == NODE_EITHER || n.kind == NODE_REPEAT) check_tree(p, n.a, counted);
    if (n.kind == NODE_CAT || n.kind == NODE_EITHER) check_tree(p, n.b, counted);
}

md_status md_schema_pattern_parse(const char *text, size_t n, const char *path, md_schema_pattern **out,
                                  md_error *err) {
    md_schema_pattern *r = *out = NULL;
    r = calloc(1, sizeof *r);
    if (!r || !(r->nodes = malloc(NODES_MAX * sizeof *r->nodes)) || !(r->sets = malloc(SETS_MAX * sizeof *r->sets))) {
        md_schema_pattern_free(r);
        return md_fail(err, MD_E_MEMORY, "%s: out of memory", path);
    }
    parser p = {.out = r, .path = path, .at = text, .end = text + n, .err = err};
    r->root = parse_either(&p);
    if (p.status == MD_OK && p.at < p.end) refuse(&p, MD_E_USAGE, "has a ) without its (");
    if (p.status == MD_OK) r->root = anchor(&p, r->root);
    if (p.status == MD_OK) check_tree(&p, r->root, 1);
    if (p.status != MD_OK) {
        md_schema_pattern_free(r);
        return p.status;
    }
    *out = r;
    return MD_OK;
}

void md_schema_pattern_free(md_schema_pattern *pattern) {
    if (!pattern) return;
    free(pattern->nodes);
    free(pattern->sets);
    free(pattern);
}
