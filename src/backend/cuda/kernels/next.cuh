// The choice of the next tokens inside the kernel, by every CTA alike: the greatest logit, or what the sampler of
// src/gen/sampler.c gives for the same logits, seed and draw, bit for bit. Functions return true when someone in the CTA
// failed.
//
// A logit's rank is a key: its value's order-preserving code (src/gen/ranking.h), then the lower id first. Each CTA puts
// the greatest keys of its rows. For sampled columns the 64th greatest of all these is a bound that at least 64 keys
// reach, so that each CTA puts its rows that reach it (at most 64), and the sum of all its weights. Weights are whole
// numbers (src/gen/weight.h): their sums don't depend on who adds what. Where the 64 likeliest tokens don't decide
// (more would have to be looked at), the column is handed to the host, with its logits, and the launch ends.
//
// Everything put here alternates between two buffers by step, since a CTA may be late to read.

#define ID_BITS 21
#define UNDECIDED (~0u)  // in place of a token
#define NEXT_BEST 1      // parts of the choice, bits of md_params.next: the ops engine makes each a launch of its own
#define NEXT_CANDIDATES 2
#define NEXT_TOKEN 4
static_assert(VOCAB <= 1u << ID_BITS, "ids do not fit a key");

struct md_next {           // in shared memory
    u64 best[CONSUMER_WARPS * 2]; // the greatest key a warp has seen, or half of one
    u64 part[CONSUMER_WARPS];  // its sum of weights
    u64 bound[COLUMNS];        // keys below it are no candidates
    u64 mass[COLUMNS];         // of all tokens' weights
    u32 count[COLUMNS], filled[COLUMNS];
    u32 token[COLUMNS];
    u32 cancel[CONSUMER_WARPS];
    u64 sorted[COLUMNS][CANDIDATES];
    u64 keys[COLUMNS][KEYS];
};
static_assert(sizeof(md_next) <= md_map::next_bytes, "the map has too little room for the choice");
#define SH_NEXT (*(md_next *)(shared + md_map::work))

// ---- keys and weights ----------------------------------------------------------------------------------------------

static __device__ __forceinline__ u64 key_of(u32 half, u32 id) {
    if ((half & 0x7fffu) > 0x7f80u) half = 0xff80u; // NaN ranks as -infinity
    if (half == 0x8000u) half = 0;                  // -0 as 0
    u32 code = half ^ (half & 0x8000u ? 0xffffu : 0x8000u);
    return (u64)code << ID_BITS | ((1u << ID_BITS) - 1 - id);
}
static __device__ __forceinline__ u32 key_code(u64 key) { return (u32)(key >> ID_BITS); }
static __device__ __forceinline__ u32 key_id(u64 key) { return (1u << ID_BITS) - 1 - ((u32)key & ((1u << ID_BITS) - 1)); }
static __device__ __forceinline__ float key_value(u64 key) {
    u32 code = key_code(key);
    return bf_to((code & 0x8000u ? code : ~code) & (code & 0x8000u ? 0x7fffu : 0xffffu));
}
#define KEY_NOTHING ((u64)0x80 << ID_BITS) // -infinity and no key at all lie below

// src/gen/weight.h, md_weight: the same operations.
static __device__ __forceinline__ u64 weight_of(double halvings) {
    if (!(halvings < 43.0)) return 0;
    u64 fixed = (u64)(halvings * 4294967296.0);
    u32 t = __umulhi((u32)fixed, 2977044472u), sum = 1u << 31;
#pragma unroll
    for (u32 k = 10; k >= 1; k--) sum = (1u << 31) - __umulhi(t, sum) / k;
    return (u64)sum << (42 - 31) >> (fixed >> 32);
}
static __device__ __forceinline__ u64 key_weight(u64 key, u64 greatest, double per_unit) {
    if (key_code(key) == key_code(greatest)) return 1ull << 42;
    return weight_of(((double)key_value(greatest) - (double)key_value(key)) * per_unit);
}
// src/gen/rng.h
static __device__ __forceinline__ u64 random_of(u64 seed, u64 draw) {
    u64 z = seed + (draw + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static __device__ __forceinline__ u64 warp_greatest(u64 x) {
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        u64 other = __shfl_xor_sync(~0u, x, d);
        x = other > x ? other : x;
    }
    return x;
}
static __device__ __forceinline__ u64 warp_total(u64 x) {
#pragma unroll
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d);
    return x;
}

// ---- who does what -------------------------------------------------------------------------------------------------

struct md_share { // the warps are shared out over the columns
    u32 c, part, parts;
    bool active, sampled;
    u32 first, step; // what a lane takes of a column's items: first, first + step, ...
};
static __device__ __forceinline__ md_share share_of(const md_ctx &ctx, u32 columns) {
    md_share s;
    s.parts = CONSUMER_WARPS / columns, s.c = ctx.warp / s.parts, s.part = ctx.warp % s.parts;
    s.active = s.c < columns, s.sampled = s.active && ctx.p->choice[s.c].sampled;
    s.first = s.part * 32 + ctx.lane, s.step = s.parts * 32;
    return s;
}

// Bests of a CTA: enough for 128 of all CTAs where there are few, so that the bound is a good one.
static __device__ __forceinline__ u32 bests_of_cta(const md_params *p, u32 parts) {
    u32 n = 1;
    while (n * 2 <= parts && n * p->groups < 128) n *= 2;
    return n;
}

// A column's part of the buffer: bests, then for each CTA {mass, count} and its candidates.
#define RECORDS (p->groups * (CANDIDATES + 2) + 256)
static __device__ __forceinline__ uint4 *records_of(const md_ctx &ctx, u32 c) {
    const md_params *p = ctx.p;
    return (uint4 *)p->records + (u64)((ctx.tag0 / STAGES & 1) * MAX_COLUMNS + c) * RECORDS;
}
static __device__ __forceinline__ uint4 *list_of(const md_ctx &ctx, u32 c, u32 cta) {
    return records_of(ctx, c) + ctx.p->groups + 256 + (u64)cta * (CANDIDATES + 1);
}

// The key of the CTA's own row `i`, which its head stage has written; 0 past its end.
static __device__ __forceinline__ u64 own_key(const md_params *p, u32 c, u32 i) {
    u32 row = SH_RUNS[S_HEAD].z * 16 + i;
    if (i >= SH_RUNS[S_HEAD].w * 16 || row >= VOCAB) return 0;
    return key_of(__ldcg((const u16 *)p->logits + (u64)c * VOCAB + row), row);
}
static __device__ __forceinline__ u32 own_rows() { return SH_RUNS[S_HEAD].w * 16; } // a multiple of 16, not of 32

// ---- the greatest --------------------------------------------------------------------------------------------------

template <int NC> static __device__ __forceinline__ void bests_put(md_ctx &ctx, md_best best, u32 cancel, u32 tag) {
    const md_params *p = ctx.p;
    const u32 columns = NC == 1 ? 1 : p->columns;
    const md_share s = share_of(ctx, columns);
    // A column's parts are the warps, or the half warps, that computed its rows (stage_matrix).
    const u32 parts = NC == 1 ? CONSUMER_WARPS : CONSUMER_WARPS * 2 / columns;
    u64 key = best.index < VOCAB ? key_of(bf_bits(best.value), best.index) : 0;
#pragma unroll
    for (u32 d = NC == 1 ? 16 : 8; d; d >>= 1) key = max(key, __shfl_xor_sync(~0u, key, d));
    if (NC == 1 ? ctx.lane == 0 : ctx.lane % 16 == 0) SH_NEXT.best[NC == 1 ? ctx.warp : ctx.warp * 2 + ctx.lane / 16] = key;
    consumers_sync();
    const u32 each = bests_of_cta(p, s.parts);
    if (ctx.tid >= columns * each) return;
    const u32 c = ctx.tid / each, q = ctx.tid % each;
    key = 0;
    for (u32 part = q; part < parts; part += each) key = max(key, SH_NEXT.best[part * columns + c]);
    put_entry(ctx, records_of(ctx, c) + ctx.cta * each + q, (u32)key, (u32)(key >> 32), cancel, tag);
}

// All CTAs' bests to shared memory, and the bound of a sampled column's candidates.
static __device__ __forceinline__ bool bests_load(md_ctx &ctx, u32 columns, u32 tag) {
    const md_params *p = ctx.p;
    const md_share s = share_of(ctx, columns);
    const u32 n = bests_of_cta(p, s.parts) * p->groups, limit = s.sampled ? p->choice[s.c].candidates : 0;
    consumers_sync(); // the CTA's own bests are put
    if (ctx.tid < columns) SH_NEXT.bound[ctx.tid] = 0, SH_NEXT.count[ctx.tid] = 0, SH_NEXT.filled[ctx.tid] = 0;
    u64 greatest = 0;
    u32 cancel = 0;
    constexpr u32 once = COLUMNS == 1 ? 1 : 5; // with eight columns a warp has all of one's: of 132 CTAs five a lane
    if (s.active)
#pragma unroll 1
        for (u32 base = s.part * 32; base < n; base += once * s.step) {
            uint4 e[once];
            const uint4 *at = records_of(ctx, s.c) + base + ctx.lane;
            wait_entries<once, false>(ctx, e, tag, [&](u32 k) { return at + k * s.step; }, [&](u32 k) { return base + ctx.lane + k * s.step < n; });
#pragma unroll
            for (u32 k = 0; k < once; k++) {
                const u32 i = base + ctx.lane + k * s.step;
                const u64 key = e[k].x | (u64)e[k].y << 32;
                if (limit && i < n) SH_NEXT.keys[s.c][i] = key;
                greatest = max(greatest, key), cancel |= e[k].z;
            }
        }
    SPENT(HANDOFF);
    greatest = warp_greatest(greatest), cancel = __any_sync(~0u, cancel);
    if (ctx.lane == 0) SH_NEXT.best[ctx.warp] = greatest, SH_NEXT.cancel[ctx.warp] = cancel;
    if (consumers_any(ctx.failed)) return true;
    if (!p->sampled) return false;
    if (limit)
#pragma unroll 1
        for (u32 i = s.first; i < n; i += s.step) {
            u64 key = SH_NEXT.keys[s.c][i];
            u32 rank = 0;
#pragma unroll 4
            for (u32 k = 0; k < n; k++) rank += SH_NEXT.keys[s.c][k] > key;
            if (key && rank + 1 == limit) SH_NEXT.bound[s.c] = key;
        }
    consumers_sync();
    return false;
}
static __device__ __forceinline__ u64 greatest_of(const md_share &s) {
    u64 key = 0;
    for (u32 i = 0; i < s.parts; i++) key = max(key, SH_NEXT.best[s.c * s.parts + i]);
    return key;
}

// ---- candidates ----------------------------------------------------------------------------------------------------

// The bound that exactly CANDIDATES of the CTA's own rows reach, by one warp. Bit by bit: slow, but hardly ever needed.
static __device__ __noinline__ u64 own_bound(const md_params *p, u32 c, u32 lane) {
    u64 bound = 0;
#pragma unroll 1
    for (int bit = 16 + ID_BITS - 1; bit >= 0; bit--) {
        u64 tried = bound | 1ull << bit;
        u32 n = 0;
#pragma unroll 1
        for (u32 i = lane; i < own_rows(); i += 32) n += own_key(p, c, i) >= tried;
        if (__reduce_add_sync(~0u, n) >= CANDIDATES) bound = tried;
    }
    return bound;
}

static __device__ __forceinline__ void candidates_put(md_ctx &ctx, u32 columns, u32 tag) {
    const md_share s = share_of(ctx, columns);
    const md_choice *choice = &ctx.p->choice[s.active ? s.c : 0];
    u64 mass = 0, bound = 0;
    u32 n = 0;
    if (s.sampled) {
        const u64 greatest = greatest_of(s);
        bound = SH_NEXT.bound[s.c];
#pragma unroll 1
        for (u32 i = s.first; i < own_rows(); i += s.step) {
            u64 key = own_key(ctx.p, s.c, i);
            n += key != 0 && key >= bound;
            if (key && choice->all) mass += key_weight(key, greatest, choice->per_unit);
        }
    }
    n = __reduce_add_sync(~0u, n), mass = warp_total(mass);
    if (ctx.lane == 0) SH_NEXT.part[ctx.warp] = mass;
    if (ctx.lane == 0 && s.sampled) atomicAdd(&SH_NEXT.count[s.c], n);
    consumers_sync();
    if (s.sampled && s.part == 0 && SH_NEXT.count[s.c] > CANDIDATES) {
        bound = own_bound(ctx.p, s.c, ctx.lane);
        if (ctx.lane == 0) SH_NEXT.bound[s.c] = bound;
    }
    consumers_sync();
    if (!s.sampled) return;
    bound = SH_NEXT.bound[s.c];
    uint4 *list = list_of(ctx, s.c, ctx.cta);
#pragma unroll 1
    for (u32 i = s.first; i < own_rows(); i += s.step) {
        u64 key = own_key(ctx.p, s.c, i);
        if (!key || key < bound) continue;
        u32 at = atomicAdd(&SH_NEXT.filled[s.c], 1u); // in any order: they are sorted by whoever reads them
        put_entry(ctx, list + 1 + at, (u32)key, (u32)(key >> 32), 0, tag);
    }
    if (s.part || ctx.lane) return;
    mass = 0;
    for (u32 i = 0; i < s.parts; i++) mass += SH_NEXT.part[s.c * s.parts + i];
    put_entry(ctx, list, (u32)mass, (u32)(mass >> 32), min(SH_NEXT.count[s.c], (u32)CANDIDATES), tag);
}

// All CTAs' candidates to shared memory, the greatest CANDIDATES of them sorted, and the sum of all weights.
static __device__ __forceinline__ bool candidates_load(md_ctx &ctx, u32 columns, u32 tag) {
    const md_params *p = ctx.p;
    const md_share s = share_of(ctx, columns);
    u64 mass = 0;
    consumers_sync(); // the keys of the bests have been read
    if (ctx.tid < columns) SH_NEXT.count[ctx.tid] = 0;
    if (ctx.lane < CANDIDATES / 2 && s.sampled && s.part == 0)
        SH_NEXT.sorted[s.c][2 * ctx.lane] = SH_NEXT.sorted[s.c][2 * ctx.lane + 1] = 0;
    consumers_sync();
    if (s.sampled)
#pragma unroll 1
        for (u32 i = s.first; i < p->groups; i += s.step) {
            const uint4 *list = list_of(ctx, s.c, i);
            uint4 e = wait_entry(ctx, list, tag);
            if (ctx.failed) break;
            mass += e.x | (u64)e.y << 32;
            u32 at = atomicAdd(&SH_NEXT.count[s.c], e.z);
            for (u32 k = 0; k < e.z && at + k < KEYS; k++) {
                uint4 key = wait_entry(ctx, list + 1 + k, tag);
                SH_NEXT.keys[s.c][at + k] = key.x | (u64)key.y << 32;
            }
        }
    SPENT(HANDOFF);
    mass = warp_total(mass);
    if (ctx.lane == 0) SH_NEXT.part[ctx.warp] = mass;
    if (consumers_any(ctx.failed)) return true;
    if (!s.sampled) return false;
    const u32 n = min(SH_NEXT.count[s.c], (u32)KEYS);
#pragma unroll 1
    for (u32 i = s.first; i < n; i += s.step) {
        u64 key = SH_NEXT.keys[s.c][i];
        u32 rank = 0;
        for (u32 k = 0; k < n; k++) rank += SH_NEXT.keys[s.c][k] > key;
        if (rank < CANDIDATES) SH_NEXT.sorted[s.c][rank] = key;
    }
    if (s.part || ctx.lane) return false;
    mass = 0;
    for (u32 i = 0; i < s.parts; i++) mass += SH_NEXT.part[s.c * s.parts + i];
    SH_NEXT.mass[s.c] = mass;
    return false;
}

// ---- the choice ----------------------------------------------------------------------------------------------------

// Candidates 2 i and 2 i + 1 lie in lane i. The first for which something holds; CANDIDATES: none.
static __device__ __forceinline__ u32 first_candidate(bool even, bool odd) {
    u32 a = __ffs(__ballot_sync(~0u, even)), b = __ffs(__ballot_sync(~0u, odd));
    return min(a ? 2 * (a - 1) : (u32)CANDIDATES, b ? 2 * (b - 1) + 1 : (u32)CANDIDATES);
}

// The sampler (src/gen/sampler.c) on the sorted candidates, by one warp: top-k, top-p, min-p and the draw.
static __device__ __forceinline__ u32 sample(const md_choice &choice, u64 greatest, u32 step, u32 lane, u32 c) {
    const u64 even = SH_NEXT.sorted[c][2 * lane], odd = SH_NEXT.sorted[c][2 * lane + 1];
    u32 n = min(SH_NEXT.count[c], choice.candidates);
    u64 weight[2] = {0, 0}, sum[2]; // of each candidate, and of all up to it
    if (2 * lane < n) weight[0] = key_weight(even, greatest, choice.per_unit);
    if (2 * lane + 1 < n) weight[1] = key_weight(odd, greatest, choice.per_unit);
    sum[1] = weight[0] + weight[1];
#pragma unroll
    for (u32 d = 1; d < 32; d <<= 1) {
        u64 before = __shfl_up_sync(~0u, sum[1], d);
        if (lane >= d) sum[1] += before;
    }
    sum[0] = sum[1] - weight[1];
    u64 total = __shfl_sync(~0u, sum[1], 31);
    bool complete = !choice.all || total == SH_NEXT.mass[c]; // no other token has a weight
    if (!complete && choice.top_k) return UNDECIDED;         // which others are among the k greatest?
    if (!complete) total = SH_NEXT.mass[c];
    if (choice.top_p > 0.0 && choice.top_p < 1.0) {
        u64 goal = (u64)ceil(choice.top_p * (double)total);
        u32 last = first_candidate(sum[0] >= goal && 2 * lane < n, sum[1] >= goal && 2 * lane + 1 < n);
        if (last == CANDIDATES && !complete) return UNDECIDED;
        if (last < CANDIDATES)
            n = last + 1, complete = true, total = __shfl_sync(~0u, last & 1 ? sum[1] : sum[0], last >> 1);
    }
    if (choice.least_weight) {
        u32 end = first_candidate(weight[0] < choice.least_weight || 2 * lane >= n,
                                  weight[1] < choice.least_weight || 2 * lane + 1 >= n);
        if (end >= n && !complete) return UNDECIDED;
        if (end < n) // and not 0: the greatest weighs most
            n = end, total = __shfl_sync(~0u, (end - 1) & 1 ? sum[1] : sum[0], (end - 1) >> 1);
    }
    u64 goal = __umul64hi(random_of(choice.seed, choice.draw + step), total);
    u32 at = first_candidate(sum[0] > goal && 2 * lane < n, sum[1] > goal && 2 * lane + 1 < n);
    if (at == CANDIDATES) return UNDECIDED;
    return key_id(__shfl_sync(~0u, at & 1 ? odd : even, at >> 1));
}

static __device__ __forceinline__ void tokens_choose(md_ctx &ctx, u32 columns, bool *stop) {
    const md_params *p = ctx.p;
    const md_share s = share_of(ctx, columns);
    consumers_sync(); // candidates are sorted
    if (s.active && s.part == 0) {
        u32 token = UNDECIDED;
        u64 greatest = greatest_of(s);
        if (greatest >= KEY_NOTHING) {
            if (!s.sampled)
                token = key_id(greatest);
            else if (SH_NEXT.count[s.c] <= KEYS)
                token = sample(p->choice[s.c], greatest, ctx.step, ctx.lane, s.c);
        }
        if (ctx.lane == 0) SH_NEXT.token[s.c] = token;
    }
    consumers_sync();
    for (u32 w = 0; w < CONSUMER_WARPS; w++) *stop |= SH_NEXT.cancel[w] != 0;
    for (u32 c = 0; c < columns; c++) {
        u32 token = SH_NEXT.token[c];
        *stop |= token == UNDECIDED;
        for (u32 i = 0; i < p->stop_count; i++) *stop |= token == p->stop[i] && p->stop_columns[i] >> c & 1;
    }
    if (ctx.tid < columns) SH_TOKENS[ctx.tid] = SH_NEXT.token[ctx.tid]; // read after the next step's first barrier
    // The CTA that tells the host waits for the bus: not one that has rows of the next embedding to bring.
    if (ctx.cta + 1 != gridDim.x || ctx.tid || !p->mailbox) return;
    u32 *mailbox = (u32 *)p->mailbox;
    for (u32 c = 0; c < columns; c++) mailbox[2 + ctx.step * columns + c] = SH_NEXT.token[c];
    store_system_release(mailbox, ctx.step + 1);
#if GRAPH // this launch is of one CTA: nobody else reads the state now
    u32 *state = (u32 *)p->state;
    state[0] = ctx.step + 1, state[1] = ctx.tag0 + STAGES;
    for (u32 c = 0; c < columns; c++) state[2 + c] = min(SH_NEXT.token[c], VOCAB - 1u); // after UNDECIDED nothing counts
#endif
}

// The parts of the choice that p->next names, after the head stage. *stop: the launch ends here.
template <int NC> static __device__ __forceinline__ bool next_tokens(md_ctx &ctx, md_best best, u32 cancel, u32 tag, bool *stop) {
    const md_params *p = ctx.p;
    const u32 columns = NC == 1 ? 1 : p->columns;
    *stop = false;
    consumers_sync(); // the matrix stage's work area is free
    if (p->next & NEXT_BEST) bests_put<NC>(ctx, best, cancel, tag);
    SPENT(OUT);
    if (!(p->next & (NEXT_CANDIDATES | NEXT_TOKEN))) return false;
    if (bests_load(ctx, columns, tag)) return true;
    SPENT(ARITHMETIC);
    if (p->sampled && p->next & NEXT_CANDIDATES) candidates_put(ctx, columns, tag);
    SPENT(OUT);
    if (!(p->next & NEXT_TOKEN)) return false;
    if (p->sampled && candidates_load(ctx, columns, tag)) return true;
    tokens_choose(ctx, columns, stop);
    SPENT(ARITHMETIC);
    return false;
}
