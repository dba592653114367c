#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

// A symbol of the word being merged: a doubly linked list inside one array.
typedef struct md_bpe_symbol {
    uint32_t id;         // MD_VOCAB_NONE: merged into the one before
    uint32_t prev, next; // indices; NO_SYMBOL at the ends
} md_bpe_symbol;

// A merge that may be done: the heap's order is by rank, then from left to right.
typedef struct md_bpe_candidate {
    uint64_t key; // rank << 32 | index of the left symbol
    uint32_t id;  // what the pair became when this was pushed; tells candidates that are out of date
} md_bpe_candidate;

#define NO_SYMBOL UINT32_MAX

void md_bpe_free(md_bpe *bpe) {
    free(bpe->merges);
    *bpe = (md_bpe){0};
}

void md_bpe_scratch_free(md_bpe_scratch *scratch) {
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (md_bpe_scratch){0};
}

// ---- the table of merges -----------------------------------------------------------------------------------------

static size_t pair_slot(const md_bpe *bpe, uint32_t left, uint32_t right) {
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(hash >> 32) & bpe->mask;
    for (;; at = (at + 1) & bpe->mask) {
        const md_bpe_merge *slot = &bpe->merges[at];
        if (slot->left == MD_VOCAB_NONE || (slot->left == left && slot->right == right)) return at;
    }
}

static const md_bpe_merge *find_merge(const md_bpe *bpe, uint32_t left, uint32_t right) {
    const md_bpe_merge *slot = &bpe->merges[pair_slot(bpe, left, right)];
    return slot->left == MD_VOCAB_NONE ? NULL : slot;
}

typedef struct part {
    const char *text;
    size_t n;
} part;

// The two parts of merges[i]: ["a", "b"], or "a b" as older files have it. All entries must have one form.
static md_status merge_parts(const json_t *entry, bool as_pairs, size_t i, const char *what, part parts[2],
                             md_error *err) {
    if (as_pairs) {
        const json_t *a = json_array_get(entry, 0), *b = json_array_get(entry, 1);
        if (!json_is_string(a) || !json_is_string(b) || json_array_size(entry) != 2)
            return md_fail(err, MD_E_FORMAT, "%s: merges[%zu] is %s, expected a pair of strings as merges[0]", what, i,
                           json_is_array(entry) ? "another array" : md_json_type_name(entry));
        parts[0] = (part){json_string_value(a), json_string_length(a)};
        parts[1] = (part){json_string_value(b), json_string_length(b)};
        return MD_OK;
    }
    if (!json_is_string(entry))
        return md_fail(err, MD_E_FORMAT, "%s: merges[%zu] is %s, expected a string as merges[0]", what, i,
                       md_json_type_name(entry));
    const char *text = json_string_value(entry);
    size_t n = json_string_length(entry);
    const char *space = memchr(text, ' ', n);
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - text)))
        return md_fail(err, MD_E_FORMAT, "%s: merges[%zu] is \"%.60s\", expected two parts with one space between",
                       what, i, text);
    parts[0] = (part){text, (size_t)(space - text)};
    parts[1] = (part){space + 1, n - parts[0].n - 1};
    return MD_OK;
}

static md_status no_such_token(size_t i, const char *role, part p, const char *what, md_error *err) {
    return md_fail(err, MD_E_FORMAT, "%s: merges[%zu]: %s \"%.*s\" is not in the vocabulary", what, i, role,
                   (int)(p.n < 60 ? p.n : 60), p.text);
}

static md_status add_merge(md_bpe *bpe, const part parts[2], size_t i, uint32_t rank, md_error *err, const char *what) {
    uint32_t ids[2];
    for (size_t k = 0; k < 2; k++) {
        ids[k] = md_vocab_find(bpe->vocab, parts[k].text, parts[k].n);
        if (ids[k] == MD_VOCAB_NONE) return no_such_token(i, "the part", parts[k], what, err);
    }
    char small[256];
    size_t n = parts[0].n + parts[1].n;
    char *joined = n <= sizeof small ? small : malloc(n);
    if (!joined) return md_fail(err, MD_E_MEMORY, "%s: out of memory", what);
    memcpy(joined, parts[0].text, parts[0].n);
    memcpy(joined + parts[0].n, parts[1].text, parts[1].n);
    uint32_t id = md_vocab_find(bpe->vocab, joined, n);
    md_status status = MD_OK;
    if (id == MD_VOCAB_NONE) status = no_such_token(i, "what it makes,", (part){joined, n}, what, err);
    if (joined != small) free(joined);
    if (status != MD_OK) return status;
    // A pair that is listed twice has the later rank, as in Hugging Face's table.
    bpe->merges[pair_slot(bpe, ids[0], ids[1])] = (md_bpe_merge){ids[0], ids[1], rank, id};
    return MD_OK;
}

static md_status load_merges(md_bpe *bpe, const json_t *merges, const char *what, md_error *err) {
    if (!json_is_array(merges))
        return md_fail(err, MD_E_FORMAT, "%s: \"merges\" is %s, expected an array", what, md_json_type_name(merges));
    size_t n = json_array_size(merges), n_slots = 64;
    while (n_slots < n * 2) n_slots *= 2;
    bpe->merges = malloc(n_slots * sizeof *bpe->merges);
    if (!bpe->merges) return md_fail(err, MD_E_MEMORY, "%s: out of memory for %zu merges", what, n);
    bpe->mask = n_slots - 1;
    for (size_t i = 0; i < n_slots; i++) bpe->merges[i].left = MD_VOCAB_NONE;
    bool as_pairs = json_is_array(json_array_get(merges, 0));
    uint32_t rank = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(merges, i);
        if (!as_pairs && json_is_string(entry) && strncmp(json_string_value(entry), "#version", 8) == 0) continue;
        part parts[2] = {{NULL, 0}, {NULL, 0}};
        MD_TRY(merge_parts(entry, as_pairs, i, what, parts, err));
        MD_TRY(add_merge(bpe, parts, i, rank++, err, what));
    }
    return MD_OK;
}

// ---- the model ---------------------------------------------------------------------------------------------------

static md_status refuse_affixes(const json_t *model, const char *what, md_error *err) {
    static const char *const keys[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const char *affix = NULL;
        MD_TRY(md_json_get_string(model, keys[i], &affix, what, err));
        if (affix && affix[0])
            return md_fail(err, MD_E_UNSUPPORTED, "%s: \"%s\" is \"%.40s\", only an empty one is supported", what,
                           keys[i], affix);
    }
    double dropout = 0;
    MD_TRY(md_json_get_number(model, "dropout", 0, 1, &dropout, what, err));
    if (dropout > 0) return md_fail(err, MD_E_UNSUPPORTED, "%s: \"dropout\" is %g, only 0 is supported", what, dropout);
    return MD_OK;
}

md_status md_bpe_load(md_bpe *bpe, const md_vocab *vocab, const json_t *model, const char *what, md_error *err) {
    *bpe = (md_bpe){.vocab = vocab, .unk = MD_VOCAB_NONE};
    MD_TRY(refuse_affixes(model, what, err));
    MD_TRY(md_json_get_bool(model, "ignore_merges", &bpe->ignore_merges, what, err));
    MD_TRY(md_json_get_bool(model, "byte_fallback", &bpe->byte_fallback, what, err));
    MD_TRY(md_json_get_bool(model, "fuse_unk", &bpe->fuse_unk, what, err));
    const char *unk = NULL;
    MD_TRY(md_json_get_string(model, "unk_token", &unk, what, err));
    if (unk) {
        bpe->unk = md_vocab_find(vocab, unk, strlen(unk));
        if (bpe->unk == MD_VOCAB_NONE)
            return md_fail(err, MD_E_FORMAT, "%s: \"unk_token\" \"%.60s\" is not in the vocabulary", what, unk);
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        static const char hex[] = "0123456789ABCDEF";
        char name[] = {'<', '0', 'x', hex[byte >> 4], hex[byte & 15], '>'};
        bpe->byte_ids[byte] = md_vocab_find(vocab, name, sizeof name);
    }
    for (uint32_t cp = 0; cp < MD_BPE_DIRECT_CHARS; cp++) {
        char text[4];
        bpe->direct[cp] = md_vocab_find(vocab, text, md_utf8_encode(cp, text));
    }
    return load_merges(bpe, json_object_get(model, "merges"), what, err);
}

// ---- encoding ----------------------------------------------------------------------------------------------------

static void *grown(void *memory, size_t *cap, size_t need, size_t item) {
    size_t want = *cap + *cap / 2 > need ? *cap + *cap / 2 : need + 64;
    void *larger = want <= SIZE_MAX / item ? realloc(memory, want * item) : NULL;
    if (larger) *cap = want;
    return larger;
}

static md_status heap_push(md_bpe_scratch *scratch, md_bpe_candidate candidate, md_error *err) {
    if (scratch->heap_size == scratch->heap_cap) {
        void *heap = grown(scratch->heap, &scratch->heap_cap, scratch->heap_size + 1, sizeof *scratch->heap);
        if (!heap) return md_fail(err, MD_E_MEMORY, "out of memory for %zu merges of a word", scratch->heap_size);
        scratch->heap = heap;
    }
    md_bpe_candidate *heap = scratch->heap;
    size_t at = scratch->heap_size++;
    for (; at > 0 && heap[(at - 1) / 2].key > candidate.key; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = candidate;
    return MD_OK;
}

static md_bpe_candidate heap_pop(md_bpe_scratch *scratch) {
    md_bpe_candidate *heap = scratch->heap, top = heap[0], last = heap[--scratch->heap_size];
    size_t at = 0, n = scratch->heap_size;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= last.key) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

// Pushes the merge of the symbol `left` with the one after it, where there is one.
static md_status propose(const md_bpe *bpe, uint32_t left, const bool *control, md_bpe_scratch *scratch,
                         md_error *err) {
    const md_bpe_symbol *symbols = scratch->symbols;
    const md_bpe_merge *merge = find_merge(bpe, symbols[left].id, symbols[symbols[left].next].id);
    if (!merge || (control && control[merge->id])) return MD_OK;
    return heap_push(scratch, (md_bpe_candidate){(uint64_t)merge->rank << 32 | left, merge->id}, err);
}

static void add_symbol(md_bpe_scratch *scratch, size_t *n, uint32_t id) {
    uint32_t at = (uint32_t)*n;
    scratch->symbols[at] = (md_bpe_symbol){id, at ? at - 1 : NO_SYMBOL, NO_SYMBOL};
    if (at) scratch->symbols[at - 1].next = at;
    *n += 1;
}

static bool has_byte_tokens(const md_bpe *bpe, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bpe->byte_ids[(unsigned char)bytes[i]] == MD_VOCAB_NONE) return false;
    return true;
}

// The word's characters as symbols: their tokens, else tokens of their bytes, else the unknown token. There is room for
// one symbol a byte. The unknown token waits until a known one comes, as in Hugging Face's merge_word.
static size_t split_characters(const md_bpe *bpe, const char *word, size_t n, const bool *control,
                               md_bpe_scratch *scratch) {
    size_t n_symbols = 0;
    bool unknown = false;
    size_t size;
    for (size_t at = 0; at < n; at += size) {
        uint32_t cp = md_utf8_decode(word + at, n - at, &size);
        uint32_t id = cp < MD_BPE_DIRECT_CHARS ? bpe->direct[cp] : md_vocab_find(bpe->vocab, word + at, size);
        bool bytes_instead = bpe->byte_fallback && (id == MD_VOCAB_NONE || (control && control[id])) &&
                             has_byte_tokens(bpe, word + at, size);
        if (bytes_instead) {
            for (size_t i = 0; i < size; i++)
                add_symbol(scratch, &n_symbols, bpe->byte_ids[(unsigned char)word[at + i]]);
        } else if (id != MD_VOCAB_NONE) {
            if (unknown) add_symbol(scratch, &n_symbols, bpe->unk);
            unknown = false;
            add_symbol(scratch, &n_symbols, id);
        } else if (bpe->unk != MD_VOCAB_NONE) {
            if (unknown && !bpe->fuse_unk) add_symbol(scratch, &n_symbols, bpe->unk);
            unknown = true;
        }
    }
    if (unknown) add_symbol(scratch, &n_symbols, bpe->unk);
    return n_symbols;
}

static md_status merge_all(const md_bpe *bpe, size_t n, const bool *control, md_bpe_scratch *scratch, md_error *err) {
    md_bpe_symbol *symbols = scratch->symbols;
    scratch->heap_size = 0;
    for (uint32_t i = 0; i + 1 < n; i++) MD_TRY(propose(bpe, i, control, scratch, err));
    while (scratch->heap_size > 0) {
        md_bpe_candidate candidate = heap_pop(scratch);
        uint32_t at = (uint32_t)candidate.key;
        md_bpe_symbol *left = &symbols[at];
        if (left->id == MD_VOCAB_NONE || left->next == NO_SYMBOL) continue;
        md_bpe_symbol *right = &symbols[left->next];
        const md_bpe_merge *merge = find_merge(bpe, left->id, right->id);
        if (!merge || merge->id != candidate.id) continue; // out of date: one of the two has been merged since
        left->id = candidate.id;
        left->next = right->next;
        right->id = MD_VOCAB_NONE;
        if (left->next != NO_SYMBOL) {
            symbols[left->next].prev = at;
            MD_TRY(propose(bpe, at, control, scratch, err));
        }
        if (left->prev != NO_SYMBOL) MD_TRY(propose(bpe, left->prev, control, scratch, err));
    }
    return MD_OK;
}

md_status md_bpe_encode(const md_bpe *bpe, const char *word, size_t n, const bool *control, md_bpe_scratch *scratch,
                        md_ids *out, md_error *err) {
    if (n == 0) return MD_OK;
    if (bpe->ignore_merges) {
        uint32_t id = md_vocab_find(bpe->vocab, word, n);
        if (id != MD_VOCAB_NONE && !(control && control[id])) return md_ids_append(out, &id, 1, err);
    }
    if (n > scratch->symbols_cap) {
        void *symbols = grown(scratch->symbols, &scratch->symbols_cap, n, sizeof *scratch->symbols);
        if (!symbols) return md_fail(err, MD_E_MEMORY, "out of memory for a word of %zu bytes", n);
        scratch->symbols = symbols;
    }
    size_t n_symbols = split_characters(bpe, word, n, control, scratch);
    MD_TRY(merge_all(bpe, n_symbols, control, scratch, err));
    for (uint32_t at = n_symbols ? 0 : NO_SYMBOL; at != NO_SYMBOL; at = scratch->symbols[at].next)
        MD_TRY(md_ids_append(out, &scratch->symbols[at].id, 1, err));
    return MD_OK;
}
