// Disorder for the emulation (emulate.hpp, which includes this behind its fibers): with FAKE_CUDA_SEED=N, N > 0, threads no
// longer take turns in one order. Each seed is another run, and the same one every time.
//
//   * Who begins a round of turns is drawn, among CTAs and among a CTA's threads.
//   * CTAs, warps or lanes stand still for a while, some for as long as others can go on without them; warps above all when
//     they have met others at a barrier, since what the next barrier is for goes wrong between two.
//   * A thread may give its turn away at any access to shared memory that is PTX.
//   * Copies land when they like and in any order: cp.async up to the wait for its group, bulk copies until their barrier's
//     phase ends.
//   * So do entries that a CTA stores for others, but for those at one address.
//
// So a barrier that is missing is one that some seed goes past, and what nobody has waited for is read before it is there.
// Everything else is seen by all as soon as it is written.

static uint64_t emu_seed = getenv("FAKE_CUDA_SEED") ? strtoull(getenv("FAKE_CUDA_SEED"), nullptr, 10) : 0; // 0: none
static uint64_t emu_random_state = emu_seed;

static inline uint32_t emu_random_word() { // splitmix64
    uint64_t z = emu_random_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)((z ^ z >> 31) >> 32);
}
static inline unsigned emu_random(unsigned n) { return (unsigned)((uint64_t)emu_random_word() * n >> 32); } // below n
static inline bool emu_one_in(unsigned n) { return emu_random(n) == 0; }

// ---- turns -----------------------------------------------------------------------------------------------------------

enum { HESITATES = 64, SHORT_STALL = 60, LONG_STALL = 1000 }; // one access in so many; rounds of turns, at most
// Before an access to shared memory: others may come in between.
static inline void emu_hesitate() {
    if (emu_seed && emu_one_in(HESITATES)) emu_yield();
}
// Where a round of `count` turns begins.
static inline unsigned emu_first(unsigned count) { return emu_seed ? emu_random(count) : 0; }

static inline uint32_t emu_few() { return emu_random_word() & emu_random_word() & emu_random_word(); } // bits, of 32
static uint32_t emu_some() { // few bits, half of them, or most
    const unsigned many = emu_random(3);
    return many == 0 ? emu_few() : many == 1 ? emu_random_word() : ~emu_few();
}
// The round of turns when what stands still from now on goes on.
static unsigned long long emu_later() { return emu_passes + 1 + emu_random(emu_one_in(3) ? LONG_STALL : SHORT_STALL); }
static void emu_stall_warps(emu_cta *cta, uint32_t warps, unsigned long long until) {
    for (unsigned i = 0; i < cta->threads / 32; i++)
        if (warps >> i & 1) cta->warp[i].wakes = until;
}
static unsigned long long emu_next_stall; // the round when others stand still
// Before a round: now and then, draws who stands still from here on.
static void emu_stall(emu_cta **ctas, unsigned count) {
    if (!emu_seed || emu_passes < emu_next_stall) return;
    emu_next_stall = emu_later();
    const unsigned kind = emu_random(4);
    for (unsigned i = 0; i < count; i++) {
        if (kind != 2) emu_stall_warps(ctas[i], kind ? emu_some() : emu_one_in(2) ? ~0u : 0, emu_next_stall);
        ctas[i]->stalled_lanes = kind >= 2 ? emu_some() : 0;
    }
}
// When threads have met at a barrier: a few warps don't go on at once, but others do.
static void emu_linger() {
    if (emu_seed && emu_one_in(2)) emu_stall_warps(emu_now, emu_few(), emu_later());
}
static inline bool emu_stalled(const emu_cta *cta, const emu_fiber *f) {
    return f->warp->wakes > emu_passes || cta->stalled_lanes >> f->thread.x % 32 & 1;
}
// When no thread could go on: all that stand still may; false when none has since the last time.
static bool emu_unstall(emu_cta **ctas, unsigned count) {
    bool some = false;
    for (unsigned i = 0; i < count; i++) {
        some |= ctas[i]->stalled_lanes != 0, ctas[i]->stalled_lanes = 0;
        for (unsigned w = 0; w < ctas[i]->threads / 32; w++) some |= ctas[i]->warp[w].wakes != 0, ctas[i]->warp[w].wakes = 0;
    }
    return some;
}

// ---- copies ----------------------------------------------------------------------------------------------------------

// Copies of a thread, 16 bytes each: copy i lands.
static void emu_copy_land(emu_cta *cta, emu_fiber *f, unsigned i) {
    memcpy(cta->shared + f->copy[i].to, f->copy[i].from, 16);
    f->copy[i] = f->copy[--f->copies];
}
// At a turn of its CTA, whether the thread itself has one or not.
static inline void emu_copies_go_on(emu_cta *cta, emu_fiber *f) {
    if (f->copies && emu_one_in(8)) emu_copy_land(cta, f, emu_random(f->copies));
}
static void emu_copy_begin(unsigned to, const void *from) {
    emu_fiber *f = emu_self;
    if (f->copies == MOST_COPIES) emu_copy_land(emu_now, f, emu_random(f->copies));
    f->copy[f->copies++] = {from, to, f->group};
    if (!emu_seed) emu_copy_land(emu_now, f, 0);
}
// Those that are in groups before `group` land.
static void emu_copies_wait(unsigned group) {
    for (unsigned i = 0; i < emu_self->copies;)
        if (emu_self->copy[i].group < group)
            emu_copy_land(emu_now, emu_self, i);
        else
            i++;
}

// Bulk copies of a CTA: copy i lands, and its barrier is told.
static void emu_bulk_land(emu_cta *cta, unsigned i) {
    const emu_bulk b = cta->bulk[i];
    if (cta->over == cta->threads) emu_fail("a bulk copy lands in a CTA that is over");
    memcpy(cta->shared + b.to, b.from, b.bytes);
    emu_mbarrier *full = (emu_mbarrier *)(cta->shared + b.full);
    full->bytes -= (int)b.bytes, emu_mbarrier_check(full);
    cta->bulk[i] = cta->bulk[--cta->bulks];
}
static void emu_bulk_begin(unsigned to, const void *from, unsigned bytes, unsigned full) {
    while (emu_now->bulks == MOST_BULKS) emu_yield();
    emu_now->bulk[emu_now->bulks++] = {from, to, bytes, full};
    if (!emu_seed) emu_bulk_land(emu_now, emu_now->bulks - 1);
}

// ---- entries ---------------------------------------------------------------------------------------------------------

static void emu_store_land(emu_cta *cta, unsigned i) {
    const emu_store s = cta->store[i];
    memcpy(s.to, &s.low, 8), memcpy((char *)s.to + 8, &s.high, 8);
    cta->store[i] = cta->store[--cta->stores];
}
// Those at one address, which the CTA that stored it sees at once; at all of them: nullptr.
static void emu_stores_land(const void *at) {
    for (unsigned i = 0; i < emu_now->stores;)
        if (!at || emu_now->store[i].to == at)
            emu_store_land(emu_now, i);
        else
            i++;
}
static void emu_store_begin(void *to, unsigned long long low, unsigned long long high) {
    emu_stores_land(to); // stores to one address keep their order
    if (emu_now->stores == MOST_STORES) emu_store_land(emu_now, emu_random(MOST_STORES));
    emu_now->store[emu_now->stores++] = {to, low, high};
    if (!emu_seed) emu_store_land(emu_now, 0);
}

// At a turn of the CTA, what is under way to or from it; whether there was anything.
static bool emu_memory_goes_on(emu_cta *cta) {
    if (!cta->bulks && !cta->stores) return false;
    if (cta->bulks && emu_one_in(4)) emu_bulk_land(cta, emu_random(cta->bulks));
    for (unsigned n = cta->stores; n > 0 && !emu_one_in(4); n--) emu_store_land(cta, emu_random(cta->stores));
    return true;
}
