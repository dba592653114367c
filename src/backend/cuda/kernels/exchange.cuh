// Vectors between CTAs. A vector is exchanged as 16-byte entries {4 bf16 values, nothing, tag}: a tile of 16 values is four
// entries. A producer writes an entry with one store; a consumer reads the entry until the tag is the one it waits for. The
// data is its own flag: no counter, no fence, no grid barrier.
//
// Tags grow by one a stage and never reset inside a launch, so an entry of an earlier stage or step can't be taken for a
// new one. Nothing is overwritten too early either: whoever writes a vector again has seen, directly or through others,
// the work of all its readers. That follows from the plan's stages and is checked on every plan (handoff.c). (What is put
// for the next token's choice is the exception, read by CTAs that may have no items: it alternates between two buffers.)

struct md_ctx { // what every thread carries
    const md_params *p;
    u32 cta, tid, warp, lane;
    u32 step; // of this launch
    u32 tag0; // tag of stage s of this step: tag0 + s + 1
    bool failed;
    u32 stage; // for reports
    u32 smem;  // shared memory's address
    u32 red;   // where in SH_RED the stage's sums meet: two stages in turn
#if ACCOUNT
    u32 kind; // of the stage; KIND_NEXT
    u32 last; // the clock when SPENT was last said
#endif
};

// Where a CTA's time goes: SPENT(x) says that the time since the one before it went into x. The CTA's first thread adds it
// up, by kind of stage (sources generated with ACCOUNT 1).
enum { SETUP, WEIGHTS, HANDOFF, ARITHMETIC, OUT };
#define KIND_NEXT (KINDS - 1)
#if ACCOUNT
#define SPENT(what) account_add(ctx, what)
static __device__ __forceinline__ void account_add(md_ctx &ctx, u32 what) {
    if (ctx.tid) return;
    u32 now = (u32)clock();
    atomicAdd(SH_ACCOUNT + ctx.kind * SPENDINGS + what, now - ctx.last);
    ctx.last = now;
}
static __device__ __forceinline__ void account_begin(md_ctx &ctx) {
    for (u32 i = ctx.tid; i < KINDS * SPENDINGS; i += CONSUMERS) SH_ACCOUNT[i] = 0;
    ctx.kind = 0, ctx.last = (u32)clock();
}
// A launch's cycles to memory, and behind them its nanoseconds: what these are worth.
static __device__ __forceinline__ void account_end(const md_ctx &ctx, u64 ns) {
    if (ctx.tid) return;
    u64 *at = (u64 *)ctx.p->account + ctx.cta;
#pragma unroll 1
    for (u32 i = 0; i < KINDS * SPENDINGS; i++, at += ctx.p->groups)
        if (SH_ACCOUNT[i]) atomicAdd(at, (u64)SH_ACCOUNT[i]);
    atomicAdd(at, ns);
}
#else
#define SPENT(what)
#endif

#define TAG(ctx, s) ((ctx).tag0 + (u32)(s) + 1u)

// Leaving is decided by all threads of a CTA alike: who failed notes the stage before one of its barriers, and behind that
// barrier everyone sees it. (Someone ahead may have noted a later stage meanwhile: that is for the end of that stage.)
static __device__ __forceinline__ void failure_note(const md_ctx &ctx) {
    if (RARELY(ctx.failed)) *SH_FAILED = TAG(ctx, ctx.stage);
}
static __device__ __forceinline__ u32 failure_word(const md_ctx &ctx) { return shared_u32(ctx.smem + md_map::tokens + 64); }
static __device__ __forceinline__ bool is_failure(const md_ctx &ctx, u32 word) { return word - 1 < TAG(ctx, ctx.stage); }
static __device__ __forceinline__ bool failure_seen(const md_ctx &ctx) { return is_failure(ctx, failure_word(ctx)); }

// Called now and then while something is not there; `start` is 0 at first. The first whose deadline passes writes the
// report; everyone who waits sees the abort word. Returns when the wait began, ~0: leave. Kept out of line, so that the
// code between two stages stays short.
static __device__ __noinline__ u64 wait_over(u32 *report, u32 deadline_us, u32 stage, u32 expected, u32 seen, u64 start) {
    u64 now = now_ns();
    if (load_relaxed(report)) return ~0ull;
    if (!start) return now;
    if (now - start < deadline_us * 1000ull) return start;
    if (atomicCAS(report, 0u, 1u) == 0u) {
        report[1] = blockIdx.x, report[2] = stage, report[3] = expected, report[4] = seen;
        __threadfence_system();
    }
    return ~0ull;
}

// Whether a vector's entry {4 bf16 values, 0, tag} has come. The 0 is looked at since a word that nobody reads has no
// register of its own: the next use of that register would wait for the load.
static __device__ __forceinline__ bool is_there(const uint4 &entry, u32 tag) { return (entry.z | (entry.w ^ tag)) == 0; }

// Entry `at`, once it carries `tag`. `entry` is what an earlier load of it returned.
static __device__ __forceinline__ uint4 wait_entry_from(md_ctx &ctx, const uint4 *at, u32 tag, uint4 entry) {
    u64 start = 0;
#pragma unroll 1
    for (u32 tries = 1; entry.w != tag && !ctx.failed; tries++) {
        if ((tries & 255u) == 0) {
            start = wait_over((u32 *)ctx.p->report, ctx.p->deadline_us, ctx.stage, tag, entry.w, start);
            ctx.failed = start == ~0ull;
        }
        if (POLL_NS) __nanosleep(POLL_NS);
        entry = load_entry(at);
    }
    return entry;
}
static __device__ __forceinline__ uint4 wait_entry(md_ctx &ctx, const uint4 *at, u32 tag) {
    return wait_entry_from(ctx, at, tag, load_entry(at));
}

// N entries a lane, at(0) .. at(N - 1) where valid(k), the others are zeros: all asked for at once, long before they are
// needed; then waited for: what has not come is asked for again. VECTOR: of a vector, whose third word is 0. For whole warps.
template <u32 N, typename At, typename Valid>
static __device__ __forceinline__ void ask_entries(uint4 (&v)[N], u32 tag, At at, Valid valid) {
#pragma unroll
    for (u32 k = 0; k < N; k++) {
        v[k] = make_uint4(0, 0, 0, tag);
        if (valid(k)) v[k] = load_entry(at(k));
    }
}
template <u32 N, bool VECTOR, u32 SIDE_BY_SIDE = LOOKS, typename At>
static __device__ __forceinline__ void wait_asked(md_ctx &ctx, uint4 (&v)[N], u32 tag, At at) {
    u64 start = 0;
    auto missing = [&](u32 k) { return VECTOR ? !is_there(v[k], tag) : v[k].w != tag; };
#pragma unroll 1
    for (u32 turn = 1;; turn++) {
#pragma unroll
        for (u32 look = 0; look < SIDE_BY_SIDE; look++) { // side by side: a jump back costs 50 cycles
            bool there = true;
#pragma unroll
            for (u32 k = 0; k < N; k++) there = there && !missing(k);
            if (__all_sync(~0u, there)) return;
            if (POLL_NS) __nanosleep(POLL_NS);
#pragma unroll
            for (u32 k = 0; k < N; k++)
                if (missing(k)) v[k] = load_entry(at(k));
        }
        if (USUALLY(turn & 63u)) continue;
        bool any = false;
        u32 seen = tag;
#pragma unroll
        for (u32 k = 0; k < N; k++) any = any || missing(k), seen = v[k].w != tag ? v[k].w : seen;
        if (any) start = wait_over((u32 *)ctx.p->report, ctx.p->deadline_us, ctx.stage, tag, seen, start);
        if (__any_sync(~0u, start == ~0ull)) {
            ctx.failed = true;
            return;
        }
    }
}
template <u32 N, bool VECTOR, typename At, typename Valid>
static __device__ __forceinline__ void wait_entries(md_ctx &ctx, uint4 (&v)[N], u32 tag, At at, Valid valid) {
    ask_entries<N>(v, tag, at, valid);
    wait_asked<N, VECTOR>(ctx, v, tag, at);
}

static __device__ __forceinline__ void put_entry(const md_ctx &ctx, uint4 *at, u32 a, u32 b, u32 c, u32 tag) {
#if INJECT
    if (ctx.p->drop_tag == tag && ctx.p->drop_worker == ctx.cta) return;
#endif
    store_entry(at, make_uint4(a, b, c, tag));
}

// Entry of tile `tile` of column `c` in a vector of `tiles` tiles.
static __device__ __forceinline__ uint4 *entry_of(const md_params *p, u32 vector, u32 tiles, u32 c, u32 tile, u32 e) {
    return (uint4 *)p->exchange + vector + (c * tiles + tile) * 4 + e;
}

// Half a warp holds the 16 values of a tile, one a lane; its first four lanes put the entries.
static __device__ __forceinline__ void put_tile(const md_ctx &ctx, uint4 *entries, u32 value, bool valid, u32 tag) {
    u32 e = ctx.lane & 15, half = ctx.lane & 16, v[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) v[i] = __shfl_sync(~0u, value, (half + 4 * e + i) & 31);
    if (valid && e < 4) put_entry(ctx, entries + e, v[0] | v[1] << 16, v[2] | v[3] << 16, 0, tag);
}

// Value `slot` (0..3) of an entry.
static __device__ __forceinline__ float entry_value(uint4 entry, u32 slot) {
    u32 word = slot < 2 ? entry.x : entry.y;
    return slot & 1 ? bf_hi(word) : bf_lo(word);
}
