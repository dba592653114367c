#include "chat/reasoning.h"

#include <string.h>

static const char OPEN[] = "<think>", CLOSE[] = "</think>";

enum {
    MAX_HELD = 1 << 20, // more white space in a row is an error rather than memory
    MAX_PIECE = 1 << 16
};

void md_reasoning_init(md_reasoning *split, bool opened, md_reasoning_sink sink, void *user) {
    *split = (md_reasoning){.state = opened ? MD_REASONING_OPEN : MD_REASONING_START, .sink = sink, .user = user};
    md_buf_init(&split->held, MAX_HELD);
}

void md_reasoning_free(md_reasoning *split) { md_buf_free(&split->held); }

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static md_status emit(md_reasoning *split, bool reasoning, size_t n) {
    md_status status = n ? split->sink(split->user, reasoning, split->held.data, n) : MD_OK;
    if (n) memmove(split->held.data, split->held.data + n, split->held.size - n);
    split->held.size -= n;
    return status;
}

static void drop(md_reasoning *split, size_t n) {
    if (n) memmove(split->held.data, split->held.data + n, split->held.size - n);
    split->held.size -= n;
}

static size_t leading_space(const md_buf *b) {
    size_t n = 0;
    while (n < b->size && is_space(b->data[n])) n++;
    return n;
}

// How many of the first bytes of text[0..n) `mark` shares with it; all of `mark` when it is there.
static size_t matched(const char *text, size_t n, const char *mark) {
    size_t i = 0;
    while (i < n && mark[i] && text[i] == mark[i]) i++;
    return i;
}

// At the start: white space, then perhaps the opening mark.
static md_status at_start(md_reasoning *split, bool end, bool *progress) {
    md_buf *held = &split->held;
    size_t space = leading_space(held), got = matched(held->data + space, held->size - space, OPEN);
    if (got == sizeof OPEN - 1) {
        drop(split, space + got);
        split->state = MD_REASONING_OPEN;
        *progress = true;
    } else if (space + got < held->size || end) { // some other text
        split->state = MD_REASONING_CONTENT;
        *progress = true;
    }
    return MD_OK;
}

// Inside: text up to the closing mark, without the white space before it.
static md_status inside(md_reasoning *split, bool end, bool *progress) {
    md_buf *held = &split->held;
    for (size_t i = 0; i < held->size; i++) {
        size_t space = i;
        while (i < held->size && is_space(held->data[i])) i++;
        size_t got = i < held->size ? matched(held->data + i, held->size - i, CLOSE) : 0;
        if (got == sizeof CLOSE - 1) {
            MD_TRY(emit(split, true, space));
            drop(split, i - space + got);
            split->state = MD_REASONING_CLOSED;
            *progress = true;
            return MD_OK;
        }
        if (i + got == held->size && !end) return emit(split, true, space); // may go on to be the mark
    }
    size_t n = held->size;
    while (end && n > 0 && is_space(held->data[n - 1])) n--;
    MD_TRY(emit(split, true, n));
    if (end) drop(split, held->size);
    return MD_OK;
}

static md_status step(md_reasoning *split, bool end, bool *progress) {
    *progress = false;
    switch (split->state) {
    case MD_REASONING_START: return at_start(split, end, progress);
    case MD_REASONING_OPEN:
    case MD_REASONING_CLOSED:
        drop(split, leading_space(&split->held));
        if (split->held.size == 0) return MD_OK;
        split->state = split->state == MD_REASONING_OPEN ? MD_REASONING_INSIDE : MD_REASONING_CONTENT;
        *progress = true;
        return MD_OK;
    case MD_REASONING_INSIDE: return inside(split, end, progress);
    default: return emit(split, false, split->held.size);
    }
}

static md_status run(md_reasoning *split, bool end) {
    bool progress = true;
    while (progress && split->held.size > 0) MD_TRY(step(split, end, &progress));
    return MD_OK;
}

md_status md_reasoning_feed(md_reasoning *split, const char *text, size_t n, md_error *err) {
    for (size_t take; n > 0; text += take, n -= take) {
        take = n < MAX_PIECE ? n : MAX_PIECE;
        if (md_buf_append(&split->held, text, take) != MD_OK)
            return md_fail(err, MD_E_MEMORY, "out of memory, or more than %d bytes of white space", MAX_HELD);
        MD_TRY(run(split, false));
    }
    return MD_OK;
}

md_status md_reasoning_finish(md_reasoning *split, md_error *err) {
    (void)err; // part of the interface: the sink reports its own errors
    return run(split, true);
}

bool md_reasoning_prompt_opens(const char *prompt, size_t n) {
    while (n > 0 && is_space(prompt[n - 1])) n--;
    return n >= sizeof OPEN - 1 && memcmp(prompt + n - (sizeof OPEN - 1), OPEN, sizeof OPEN - 1) == 0;
}
