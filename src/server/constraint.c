#include "server/constraint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/automaton.h"

enum { MASKS_MAX = 64, AFTER_MAX = 16 };

// The tokens allowed in a state.
typedef struct mask {
    uint32_t state; // MD_AUTOMATON_DEAD: free
    uint64_t used;
    bool any;
    uint64_t *bits; // [words]; owned
} mask;

struct md_constraint {
    md_automaton *automaton;
    const md_token_order *order;
    const uint32_t *eos;
    uint32_t eos_count;
    uint32_t words; // of 64 tokens
    uint32_t state;
    uint32_t *path; // [longest + 1] states while the vocabulary is walked
    mask masks[MASKS_MAX];
    uint64_t uses;
    const char *after; // NULL: constrained now
    size_t after_size;
    char tail[AFTER_MAX]; // the last bytes of the free part
    size_t tail_size;
};

md_status md_constraint_new(md_grammar *grammar, const md_token_order *order, const uint32_t *eos, uint32_t eos_count,
                            const char *after, md_constraint **out, md_error *err) {
    *out = NULL;
    md_automaton *automaton;
    MD_TRY(md_automaton_new(grammar, &automaton, err));
    md_constraint *c = calloc(1, sizeof *c);
    uint32_t *path = malloc((order->longest + 1) * sizeof *path);
    if (!c || !path) {
        free(c);
        free(path);
        md_automaton_free(automaton);
        return md_fail(err, MD_E_MEMORY, "out of memory");
    }
    *c = (md_constraint){.automaton = automaton,
                         .order = order,
                         .eos = eos,
                         .eos_count = eos_count,
                         .words = (order->ids + 63) / 64,
                         .state = md_automaton_start(automaton),
                         .path = path,
                         .after = after,
                         .after_size = after ? strlen(after) : 0};
    *out = c;
    return MD_OK;
}

void md_constraint_free(md_constraint *constraint) {
    if (!constraint) return;
    for (uint32_t i = 0; i < MASKS_MAX; i++) free(constraint->masks[i].bits);
    md_automaton_free(constraint->automaton);
    free(constraint->path);
    free(constraint);
}

// ---- masks -----------------------------------------------------------------------------------------------------

static void allow(mask *m, uint32_t id) {
    m->bits[id / 64] |= (uint64_t)1 << (id % 64);
    m->any = true;
}

// Walks the vocabulary in the order of its bytes: path[k] is the state after k bytes of the current token, kept for the
// part it shares with the next one.
static md_status fill_mask(md_constraint *c, mask *m, md_error *err) {
    memset(m->bits, 0, c->words * sizeof *m->bits);
    m->any = false;
    c->path[0] = c->state;
    uint32_t known = 0; // path[0 .. known] belong to the token before; path[known] may be dead
    for (uint32_t i = 0; i < c->order->count; i++) {
        const md_ordered_token *token = &c->order->tokens[i];
        uint32_t at = token->shared < known ? token->shared : known;
        // It goes on from a beginning that is dead already: shared > known says all of path[known] is in it.
        if (c->path[at] == MD_AUTOMATON_DEAD) {
            known = at;
            continue;
        }
        while (at < token->size && c->path[at] != MD_AUTOMATON_DEAD) {
            MD_TRY(md_automaton_next(c->automaton, c->path[at], (uint8_t)token->bytes[at], &c->path[at + 1], err));
            at++;
        }
        known = at;
        if (c->path[at] != MD_AUTOMATON_DEAD) allow(m, token->id);
    }
    if (md_automaton_accepts(c->automaton, c->state))
        for (uint32_t i = 0; i < c->eos_count; i++)
            if (c->eos[i] < c->order->ids) allow(m, c->eos[i]);
    return MD_OK;
}

// The mask of the current state, from the cache or in the place of the one used longest ago.
static md_status find_mask(md_constraint *c, mask **out, md_error *err) {
    mask *oldest = &c->masks[0];
    for (uint32_t i = 0; i < MASKS_MAX; i++) {
        mask *m = &c->masks[i];
        if (m->state == c->state) {
            m->used = ++c->uses;
            *out = m;
            return MD_OK;
        }
        if (m->used < oldest->used) oldest = m;
    }
    if (!oldest->bits && !(oldest->bits = malloc(c->words * sizeof *oldest->bits)))
        return md_fail(err, MD_E_MEMORY, "out of memory");
    oldest->state = MD_AUTOMATON_DEAD;
    MD_TRY(fill_mask(c, oldest, err));
    oldest->state = c->state;
    oldest->used = ++c->uses;
    *out = oldest;
    return MD_OK;
}

static void forbid_eos(const md_constraint *c, float *logits, uint32_t vocab) {
    for (uint32_t i = 0; i < c->eos_count; i++)
        if (c->eos[i] < vocab) logits[c->eos[i]] = -INFINITY;
}

static void apply_mask(const md_constraint *c, const mask *m, float *logits, uint32_t vocab) {
    for (uint32_t word = 0; word < (vocab + 63) / 64; word++)
        for (uint64_t forbidden = word < c->words ? ~m->bits[word] : UINT64_MAX; forbidden;
             forbidden &= forbidden - 1) {
            uint32_t id = word * 64 + (uint32_t)__builtin_ctzll(forbidden);
            if (id < vocab) logits[id] = -INFINITY;
        }
}

md_status md_constraint_adjust(void *user, float *logits, uint32_t vocab, md_error *err) {
    md_constraint *c = user;
    if (c->after) { // an answer that ends here would not be constrained at all
        forbid_eos(c, logits, vocab);
        return MD_OK;
    }
    bool trimmed;
    md_automaton_refresh(c->automaton);
    MD_TRY(md_automaton_trim(c->automaton, &c->state, &trimmed, err));
    if (trimmed)
        for (uint32_t i = 0; i < MASKS_MAX; i++) c->masks[i].state = MD_AUTOMATON_DEAD;
    mask *m = NULL;
    MD_TRY(find_mask(c, &m, err));
    if (!m->any) return md_fail(err, MD_E_INTERNAL, "the vocabulary has no token to go on with under the constraint");
    apply_mask(c, m, logits, vocab);
    return MD_OK;
}

// ---- what was chosen -------------------------------------------------------------------------------------------

static md_status take_bytes(md_constraint *c, const char *bytes, size_t n, md_error *err) {
    for (size_t i = 0; i < n; i++) {
        MD_TRY(md_automaton_next(c->automaton, c->state, (uint8_t)bytes[i], &c->state, err));
        if (c->state == MD_AUTOMATON_DEAD) return md_fail(err, MD_E_INTERNAL, "the answer left its grammar");
    }
    return MD_OK;
}

// Looks for `after` in the free part; the bytes behind it are the first of the sentence.
static md_status take_free(md_constraint *c, const char *bytes, size_t n, md_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (c->tail_size == c->after_size) memmove(c->tail, c->tail + 1, --c->tail_size);
        c->tail[c->tail_size++] = bytes[i];
        if (c->tail_size == c->after_size && memcmp(c->tail, c->after, c->after_size) == 0) {
            c->after = NULL;
            return take_bytes(c, bytes + i + 1, n - i - 1, err);
        }
    }
    return MD_OK;
}

md_status md_constraint_accept(md_constraint *constraint, uint32_t token, md_error *err) {
    md_constraint *c = constraint;
    for (uint32_t i = 0; i < c->eos_count; i++)
        if (c->eos[i] == token) return MD_OK;
    size_t n = 0;
    const char *bytes = md_tokenizer_token_bytes(c->order->tokenizer, token, &n);
    return c->after ? take_free(c, bytes, n, err) : take_bytes(c, bytes, n, err);
}
