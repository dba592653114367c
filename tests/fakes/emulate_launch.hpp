// Behind the kernels' text: launches of them on fibers (emulate.hpp).
#undef shared

static void (*emu_entry)(void **);
static void **emu_arguments;
static void emu_start() {
    emu_entry(emu_arguments);
    emu_self->over = true, emu_now->over++;
    for (;;) emu_yield();
}

// One turn of every thread of a CTA that is neither over, nor waiting for what has not come, nor standing still; how many
// there were, and one more where memory had something under way.
static unsigned emu_turn(emu_cta *cta) {
    volatile unsigned ran = emu_memory_goes_on(cta);
    const unsigned first = emu_first(cta->threads);
    emu_now = cta;
    for (volatile unsigned k = 0; k < cta->threads; k = k + 1) {
        const unsigned i = first + k < cta->threads ? first + k : first + k - cta->threads;
        emu_fiber *f = &cta->fiber[i];
        emu_copies_go_on(cta, f);
        if (f->over || (f->waits && *f->waits == f->turn) || emu_stalled(cta, f)) continue;
        ran = ran + 1;
        emu_self = f;
        if (_setjmp(emu_scheduler)) continue;
        if (f->begun) _longjmp(f->at, 1);
        f->begun = true;
        setcontext(&f->begin);
    }
    return ran;
}
static void emu_begin(emu_cta *cta, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned bytes) {
    cta->block = {x, y, z}, cta->threads = threads, cta->over = 0;
    cta->bulks = cta->stores = 0, cta->stalled_lanes = 0;
    memset(cta->shared, 0xff, bytes); // NaN, until written
    for (unsigned i = 0; i < threads; i++) {
        emu_fiber *f = &cta->fiber[i];
        f->thread = {i, 0, 0}, f->warp = &cta->warp[i / 32], f->begun = f->over = false, f->waits = nullptr;
        f->copies = f->group = 0;
        if (!f->stack) f->stack = (char *)malloc(STACK);
        getcontext(&f->begin);
        f->begin.uc_stack.ss_sp = f->stack, f->begin.uc_stack.ss_size = STACK, f->begin.uc_link = nullptr;
        makecontext(&f->begin, emu_start, 0);
    }
    memset(cta->warp, 0, sizeof cta->warp), memset(cta->barrier, 0, sizeof cta->barrier);
}
static void *emu_kernel;
static void emu_call(void **a) {
#ifdef SET_COLUMNS // a source of prompts
    if (strcmp(emu_name, "md_prefill_hand") == 0)
        md_prefill_hand(*(const md_prefill *)a[0], *(const md_prefill_wanted *)a[1]);
    else
        ((void (*)(md_prefill))emu_kernel)(*(const md_prefill *)a[0]);
#else
    if (strcmp(emu_name, "md_step") == 0)
        md_step(*(const md_params *)a[0]);
    else
        md_cache_quantize(*(const md_kv_layer *)a[0], *(const md_kv_layer *)a[1], *(const unsigned *)a[2]);
#endif
}

// CTAs with `bytes` of shared memory each, kept for the launches to come.
enum { MOST_CTAS = 512 };
static emu_cta *emu_ctas[MOST_CTAS];
static void emu_room(unsigned count, unsigned bytes) {
    for (unsigned i = 0; i < count; i++) {
        if (!emu_ctas[i]) emu_ctas[i] = (emu_cta *)calloc(1, sizeof *emu_ctas[i]);
        if (emu_ctas[i]->room > bytes) continue;
        free(emu_ctas[i]->shared);
        emu_ctas[i]->room = (bytes + 256) / 128 * 128;
        emu_ctas[i]->shared = (unsigned char *)aligned_alloc(128, emu_ctas[i]->room);
    }
}

// Lets CTAs [0, count) take turns until all are over.
static void emu_run(unsigned count) {
    for (unsigned ran = 1; ran || emu_unstall(emu_ctas, count); emu_passes++) {
        ran = 0;
        emu_stall(emu_ctas, count);
        const unsigned first = emu_first(count);
        for (unsigned i = 0; i < count; i++) ran += emu_turn(emu_ctas[(first + i) % count]);
    }
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < emu_ctas[i]->threads; k++)
            if (!emu_ctas[i]->fiber[k].over) {
                fprintf(stderr, "emulate: %s: thread %u of CTA %u waits for some that never come\n", emu_name, k, i);
                abort();
            }
}

// Runs a kernel: of a cooperative launch all CTAs take turns, of another they come one after the other, so that one that waits
// for another's work never ends.
extern "C" void emulate(const char *name, void *kernel, const unsigned *grid, unsigned threads, unsigned bytes, void **arguments, int together);
void emulate(const char *name, void *kernel, const unsigned *grid, unsigned threads, unsigned bytes, void **arguments, int together) {
    const unsigned all = grid[0] * grid[1] * grid[2], at_once = together ? all : 1;
    if (threads > MOST_THREADS || at_once > MOST_CTAS) abort();
#if defined(__x86_64__)
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040); // denormals flushed, as the kernels are compiled
#endif
    emu_room(at_once, bytes);
    emu_name = name, emu_kernel = kernel, emu_entry = emu_call, emu_arguments = arguments;
    emu_grid = {grid[0], grid[1], grid[2]}, emu_block = {threads, 1, 1};
    for (unsigned first = 0; first < all; first += at_once) {
        for (unsigned i = 0; i < at_once; i++) {
            const unsigned k = first + i;
            emu_begin(emu_ctas[i], k % grid[0], k / grid[0] % grid[1], k / grid[0] / grid[1], threads, bytes);
        }
        emu_run(at_once);
    }
#if defined(__x86_64__)
    _mm_setcsr(mode);
#endif
}
