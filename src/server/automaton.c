#include "server/automaton.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    TRIM_STATES = 4096,       // each has a row of 256 next states: 1 KiB
    STATES_MAX = 16384,       // within one token's choice
    THREADS_MAX = 4096,       // of one state
    WORK_MAX = 1 << 20,       // instructions followed for one byte
    TOKEN_WORK_MAX = 1 << 21, // and for one token's choice: a tenth of a second or two, in which others wait
    STACK_NODES_MAX = 1 << 20,
    STACK_DEPTH_MAX = 1024,
    STACK_ROOM = 96, // beyond what the flattest sentence needs: some 30 levels where a schema allows any value
    EMPTY = 0        // the empty stack
};

static const uint32_t UNKNOWN = UINT32_MAX; // a next state that was not computed yet

// Stacks share their lower parts: a stack is its top node, and equal stacks are one node.
typedef struct stack_node {
    uint32_t parent, value, depth;
} stack_node;

typedef struct thread {
    uint32_t at, stack;
} thread;

typedef struct state {
    uint32_t first, count; // threads[first .. first + count), sorted
    bool accepts;
} state;

// An open-addressed table of indices into an array that its user compares with.
typedef struct index_table {
    uint32_t *slots; // [cap], 0: free, else 1 + index; owned
    uint32_t cap, used;
} index_table;

// A thread whose instruction was followed already in this round.
typedef struct seen_thread {
    thread thread;
    uint32_t round;
} seen_thread;

struct md_automaton {
    md_grammar grammar; // owned
    uint32_t *heights;  // [grammar.size] md_grammar_heights
    uint32_t room;      // a thread dies where the stack and its height are more
    stack_node *nodes;  // [node_count]; [0] is the empty stack
    uint32_t node_count, node_cap;
    index_table node_table;
    thread *threads; // [thread_count], of all states
    uint32_t thread_count, thread_cap;
    state *states; // [state_count]; [0] is dead
    uint32_t state_count, state_cap;
    index_table state_table;
    uint32_t (*next)[256]; // [state_cap]
    uint32_t start;
    thread *work; // threads whose instructions are still to be followed
    uint32_t work_count, work_cap;
    uint32_t work_left; // of TOKEN_WORK_MAX
    seen_thread *seen;  // [seen_cap], open-addressed; used are those of this round
    uint32_t seen_count, seen_cap, round;
    thread *set; // [set_count] the state being made
    uint32_t set_count, set_cap;
};

// ---- arrays and tables -----------------------------------------------------------------------------------------

static md_status no_memory(md_error *err) { return md_fail(err, MD_E_MEMORY, "out of memory"); }

static md_status too_complex(md_error *err) {
    return md_fail(err, MD_E_UNSUPPORTED, "the schema is too complex to constrain an answer with");
}

// Room for one more item.
static md_status grow(void **items, uint32_t count, uint32_t *cap, size_t size, md_error *err) {
    if (count < *cap) return MD_OK;
    uint32_t want = *cap ? 2 * *cap : 64;
    void *grown = realloc(*items, want * size);
    if (!grown) return no_memory(err);
    *items = grown;
    *cap = want;
    return MD_OK;
}
#define GROW(array, count, cap) grow((void **)&(array), (count), &(cap), sizeof *(array), err)

static md_status table_grow(index_table *table, uint32_t (*hash_of)(const md_automaton *, uint32_t),
                            const md_automaton *a, md_error *err) {
    if (2 * (table->used + 1) <= table->cap) return MD_OK;
    uint32_t cap = table->cap ? 2 * table->cap : 256;
    uint32_t *slots = calloc(cap, sizeof *slots);
    if (!slots) return no_memory(err);
    for (uint32_t i = 0; i < table->cap; i++) {
        if (!table->slots[i]) continue;
        uint32_t at = hash_of(a, table->slots[i] - 1) & (cap - 1);
        while (slots[at]) at = (at + 1) & (cap - 1);
        slots[at] = table->slots[i];
    }
    free(table->slots);
    table->slots = slots;
    table->cap = cap;
    return MD_OK;
}

static void table_clear(index_table *table) {
    if (table->slots) memset(table->slots, 0, table->cap * sizeof *table->slots);
    table->used = 0;
}

// ---- stacks ----------------------------------------------------------------------------------------------------

static uint32_t node_hash(uint32_t parent, uint32_t value) {
    uint32_t key[2] = {parent, value};
    return (uint32_t)XXH3_64bits(key, sizeof key);
}

static uint32_t node_hash_of(const md_automaton *a, uint32_t i) {
    return node_hash(a->nodes[i].parent, a->nodes[i].value);
}

static md_status push(md_automaton *a, uint32_t parent, uint32_t value, uint32_t *out, md_error *err) {
    if (a->nodes[parent].depth == STACK_DEPTH_MAX) return too_complex(err);
    MD_TRY(table_grow(&a->node_table, node_hash_of, a, err));
    uint32_t mask = a->node_table.cap - 1, at = node_hash(parent, value) & mask;
    for (; a->node_table.slots[at]; at = (at + 1) & mask) {
        uint32_t i = a->node_table.slots[at] - 1;
        if (a->nodes[i].parent == parent && a->nodes[i].value == value) {
            *out = i;
            return MD_OK;
        }
    }
    if (a->node_count == STACK_NODES_MAX) return too_complex(err);
    MD_TRY(GROW(a->nodes, a->node_count, a->node_cap));
    *out = a->node_count++;
    a->nodes[*out] = (stack_node){parent, value, a->nodes[parent].depth + 1};
    a->node_table.slots[at] = *out + 1;
    a->node_table.used++;
    return MD_OK;
}

// ---- states ----------------------------------------------------------------------------------------------------

static seen_thread *find_seen(const md_automaton *a, thread t) {
    uint32_t mask = a->seen_cap - 1, at = node_hash(t.at, t.stack) & mask;
    while (a->seen[at].round == a->round && (a->seen[at].thread.at != t.at || a->seen[at].thread.stack != t.stack))
        at = (at + 1) & mask;
    return &a->seen[at];
}

// Remembers a thread; *known: it was there. Loops that read nothing, and many ways to one place, end here.
static md_status see(md_automaton *a, thread t, bool *known, md_error *err) {
    if (2 * (a->seen_count + 1) > a->seen_cap) {
        seen_thread *old = a->seen;
        uint32_t old_cap = a->seen_cap;
        a->seen_cap = old_cap ? 2 * old_cap : 256;
        a->seen = calloc(a->seen_cap, sizeof *a->seen);
        if (!a->seen) {
            a->seen = old;
            a->seen_cap = old_cap;
            return no_memory(err);
        }
        for (uint32_t i = 0; i < old_cap; i++)
            if (old[i].round == a->round) *find_seen(a, old[i].thread) = old[i];
        free(old);
    }
    seen_thread *place = find_seen(a, t);
    *known = place->round == a->round;
    if (*known) return MD_OK;
    *place = (seen_thread){t, a->round};
    a->seen_count++;
    return MD_OK;
}

static md_status add_work(md_automaton *a, uint32_t at, uint32_t stack, md_error *err) {
    bool known = false;
    if (a->nodes[stack].depth + a->heights[at] > a->room) return MD_OK;
    MD_TRY(see(a, (thread){at, stack}, &known, err));
    if (known) return MD_OK;
    MD_TRY(GROW(a->work, a->work_count, a->work_cap));
    a->work[a->work_count++] = (thread){at, stack};
    return MD_OK;
}

// Follows one thread's instruction; it ends in the set when it reads a byte or is at the end.
static md_status follow(md_automaton *a, thread t, md_error *err) {
    md_grammar_instruction code = a->grammar.code[t.at];
    stack_node top = a->nodes[t.stack];
    uint32_t stack;
    switch (code.op) {
    case MD_GRAMMAR_RANGE:
    case MD_GRAMMAR_MATCH:
        if (a->set_count == THREADS_MAX) return too_complex(err);
        MD_TRY(GROW(a->set, a->set_count, a->set_cap));
        a->set[a->set_count++] = t;
        return MD_OK;
    case MD_GRAMMAR_JUMP: return add_work(a, code.a, t.stack, err);
    case MD_GRAMMAR_SPLIT: MD_TRY(add_work(a, code.b, t.stack, err)); return add_work(a, code.a, t.stack, err);
    case MD_GRAMMAR_CALL: MD_TRY(push(a, t.stack, t.at + 1, &stack, err)); return add_work(a, code.a, stack, err);
    case MD_GRAMMAR_RETURN: return add_work(a, top.value, top.parent, err);
    case MD_GRAMMAR_ZERO: MD_TRY(push(a, t.stack, 0, &stack, err)); return add_work(a, t.at + 1, stack, err);
    case MD_GRAMMAR_COUNT:
        if (top.value == code.a) return MD_OK;
        if (code.a == MD_GRAMMAR_UNBOUNDED && top.value == code.b) return add_work(a, t.at + 1, t.stack, err);
        MD_TRY(push(a, top.parent, top.value + 1, &stack, err));
        return add_work(a, t.at + 1, stack, err);
    case MD_GRAMMAR_END: return top.value < code.a ? MD_OK : add_work(a, t.at + 1, top.parent, err);
    }
    return MD_OK;
}

static int compare_threads(const void *x, const void *y) { return memcmp(x, y, sizeof(thread)); }

static uint32_t state_hash_of(const md_automaton *a, uint32_t i) {
    return (uint32_t)XXH3_64bits(a->threads + a->states[i].first, a->states[i].count * sizeof *a->threads);
}

// The state of the set's threads.
static md_status intern_set(md_automaton *a, uint32_t *out, md_error *err) {
    qsort(a->set, a->set_count, sizeof *a->set, compare_threads);
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->set_count; i++)
        if (n == 0 || compare_threads(&a->set[n - 1], &a->set[i]) != 0) a->set[n++] = a->set[i];
    a->set_count = n;
    *out = MD_AUTOMATON_DEAD;
    if (n == 0) return MD_OK;
    MD_TRY(table_grow(&a->state_table, state_hash_of, a, err));
    uint32_t mask = a->state_table.cap - 1, at = (uint32_t)XXH3_64bits(a->set, n * sizeof *a->set) & mask;
    for (; a->state_table.slots[at]; at = (at + 1) & mask) {
        const state *s = &a->states[a->state_table.slots[at] - 1];
        if (s->count == n && memcmp(a->threads + s->first, a->set, n * sizeof *a->set) == 0) {
            *out = a->state_table.slots[at] - 1;
            return MD_OK;
        }
    }
    if (a->state_count == STATES_MAX) return too_complex(err);
    if (a->state_count == a->state_cap) {
        uint32_t cap = a->state_cap;
        MD_TRY(GROW(a->states, a->state_count, cap));
        void *next = realloc(a->next, cap * sizeof *a->next);
        if (!next) return no_memory(err);
        a->next = next;
        a->state_cap = cap;
    }
    state *s = &a->states[a->state_count];
    *s = (state){.first = a->thread_count, .count = n};
    for (uint32_t i = 0; i < n; i++) {
        MD_TRY(GROW(a->threads, a->thread_count, a->thread_cap));
        a->threads[a->thread_count++] = a->set[i];
        s->accepts |= a->grammar.code[a->set[i].at].op == MD_GRAMMAR_MATCH;
    }
    memset(a->next[a->state_count], 0xff, sizeof *a->next); // UNKNOWN
    *out = a->state_count++;
    a->state_table.slots[at] = *out + 1;
    a->state_table.used++;
    return MD_OK;
}

static void new_round(md_automaton *a) {
    a->work_count = a->seen_count = 0;
    if (++a->round != 0) return;
    memset(a->seen, 0, a->seen_cap * sizeof *a->seen); // 2^32 rounds: 0 is what a fresh table has
    a->round = 1;
}

static md_status finish_work(md_automaton *a, uint32_t *out, md_error *err) {
    a->set_count = 0;
    for (uint32_t steps = 0; a->work_count; steps++) {
        if (steps == WORK_MAX || a->work_left == 0) return too_complex(err);
        a->work_left--;
        MD_TRY(follow(a, a->work[--a->work_count], err));
    }
    return intern_set(a, out, err);
}

md_status md_automaton_next(md_automaton *automaton, uint32_t from, uint8_t byte, uint32_t *next, md_error *err) {
    md_automaton *a = automaton;
    *next = a->next[from][byte];
    if (*next != UNKNOWN) return MD_OK;
    new_round(a);
    state s = a->states[from];
    for (uint32_t i = s.first; i < s.first + s.count; i++) {
        md_grammar_instruction code = a->grammar.code[a->threads[i].at];
        if (code.op == MD_GRAMMAR_RANGE && byte >= code.a && byte <= code.b)
            MD_TRY(add_work(a, a->threads[i].at + 1, a->threads[i].stack, err));
    }
    MD_TRY(finish_work(a, next, err));
    a->next[from][byte] = *next;
    return MD_OK;
}

void md_automaton_refresh(md_automaton *automaton) { automaton->work_left = TOKEN_WORK_MAX; }

uint32_t md_automaton_start(const md_automaton *automaton) { return automaton->start; }
bool md_automaton_accepts(const md_automaton *automaton, uint32_t from) { return automaton->states[from].accepts; }

// ---- life ------------------------------------------------------------------------------------------------------

// The empty stack and the dead state, and nothing else.
static md_status reset(md_automaton *a, md_error *err) {
    table_clear(&a->node_table);
    table_clear(&a->state_table);
    a->node_count = a->state_count = a->thread_count = 0;
    MD_TRY(GROW(a->nodes, 0, a->node_cap));
    a->nodes[a->node_count++] = (stack_node){EMPTY, 0, 0};
    if (!a->state_cap) {
        uint32_t cap = 0;
        MD_TRY(GROW(a->states, 0, cap));
        a->next = malloc(cap * sizeof *a->next);
        if (!a->next) return no_memory(err);
        a->state_cap = cap;
    }
    a->states[0] = (state){0};
    memset(a->next[0], 0, sizeof *a->next); // dead stays dead
    a->state_count = 1;
    return MD_OK;
}

md_status md_automaton_new(md_grammar *grammar, md_automaton **out, md_error *err) {
    *out = NULL;
    md_automaton *a = calloc(1, sizeof *a);
    if (!a) {
        md_grammar_free(grammar);
        return no_memory(err);
    }
    a->grammar = *grammar;
    *grammar = (md_grammar){0};
    md_status status;
    MD_TRY_GOTO(md_grammar_heights(&a->grammar, &a->heights, err));
    a->room = a->heights[0] + STACK_ROOM;
    if (a->heights[0] > STACK_DEPTH_MAX - STACK_ROOM) { // also: it has no sentence at all
        status = a->heights[0] == MD_GRAMMAR_UNBOUNDED ? md_fail(err, MD_E_USAGE, "no answer can satisfy the schema")
                                                       : too_complex(err);
        goto fail;
    }
    MD_TRY_GOTO(reset(a, err));
    new_round(a);
    md_automaton_refresh(a);
    MD_TRY_GOTO(add_work(a, 0, EMPTY, err));
    MD_TRY_GOTO(finish_work(a, &a->start, err));
    *out = a;
    return MD_OK;
fail:
    md_automaton_free(a);
    return status;
}

void md_automaton_free(md_automaton *automaton) {
    if (!automaton) return;
    md_grammar_free(&automaton->grammar);
    free(automaton->heights);
    free(automaton->seen);
    free(automaton->nodes);
    free(automaton->node_table.slots);
    free(automaton->threads);
    free(automaton->states);
    free(automaton->state_table.slots);
    free(automaton->next);
    free(automaton->work);
    free(automaton->set);
    free(automaton);
}

// A thread with its stack written out from the bottom up, so that it can be made again.
typedef struct saved_thread {
    uint32_t at, depth;
    uint32_t values[STACK_DEPTH_MAX];
} saved_thread;

md_status md_automaton_trim(md_automaton *automaton, uint32_t *from, bool *trimmed, md_error *err) {
    md_automaton *a = automaton;
    *trimmed = false;
    if (a->state_count < TRIM_STATES && a->node_count < STACK_NODES_MAX / 2) return MD_OK;
    state s = a->states[*from];
    saved_thread *saved = malloc(s.count * sizeof *saved);
    if (!saved) return no_memory(err);
    for (uint32_t i = 0; i < s.count; i++) {
        thread t = a->threads[s.first + i];
        saved[i].at = t.at;
        saved[i].depth = a->nodes[t.stack].depth;
        for (uint32_t node = t.stack; node != EMPTY; node = a->nodes[node].parent)
            saved[i].values[a->nodes[node].depth - 1] = a->nodes[node].value;
    }
    md_status status;
    MD_TRY_GOTO(reset(a, err));
    a->set_count = 0;
    for (uint32_t i = 0; i < s.count; i++) {
        uint32_t stack = EMPTY;
        for (uint32_t k = 0; k < saved[i].depth; k++) MD_TRY_GOTO(push(a, stack, saved[i].values[k], &stack, err));
        a->set[a->set_count++] = (thread){saved[i].at, stack}; // it held as many before
    }
    MD_TRY_GOTO(intern_set(a, from, err));
    a->start = *from;
    *trimmed = true;
fail:
    free(saved);
    return status;
}
