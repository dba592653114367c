// Input vectors of matrix stages for several columns. One column's CTAs each make its digits for themselves; eight columns
// would take all CTAs longer than the products do. So digits are made once, by whoever has a share of a stage's input, and
// handed on as entries; the bits are one column's (input.cuh).
//
// A stage with a norm: a CTA makes a column, as one column's CTAs do. Others: a warp makes a pair of blocks of a column, and
// all warps of all CTAs share these units.
//
// Entries are what the tensor cores' lanes want: lane 4 c + t of operand B has 32 bytes of column c's digits of a block,
// which three entries {three words, tag} bring, the last with one word more: of t = 0 the block's unit, of t = 1 .. the sums of
// its sets. Where weights are not quantized, three more bring the lane's 16 values as bf16. Entry j of a block's lane is entry
// (block * LANE_ENTRIES + j) * 32 + lane of the stage's digits.

static __device__ __forceinline__ uint4 *lane_entry(const md_params *p, u32 digits, u32 block, u32 j, u32 lane) {
    return (uint4 *)p->exchange + digits + (block * LANE_ENTRIES + j) * 32 + lane;
}

// ---- made once -----------------------------------------------------------------------------------------------------

// digits_make's target before they are put: a place of the warp's own, with room for MADE_PAIRS pairs of blocks. Its blocks
// are counted from the place's first on.
struct md_digits_made {
    u32 place; // from shared memory's start
    static constexpr u32 digit_words = 16;
    __device__ __forceinline__ u32 *digits(u32 b) const { return (u32 *)(shared + place + b * MADE_BYTES); }
    __device__ __forceinline__ float *group(u32 b) const { return (float *)(shared + place + b * MADE_BYTES + MADE_SUMS); }
    __device__ __forceinline__ u16 *wide(u32 b) const { return (u16 *)(shared + place + b * MADE_BYTES + MADE_WIDE); }
};
static __device__ __forceinline__ md_digits_made made_of(const md_ctx &ctx) {
    return md_digits_made{md_map::made + ctx.warp * (MADE_PAIRS * 2 * MADE_BYTES)};
}

// The entries that a lane puts of each pair of blocks of column c: of three lanes' words a lane of B, so that 24 lanes have one;
// where bf16 values are needed too, each has a second.
template <typename KIND> struct md_puts {
    u32 word[3];  // where the words lie in the place, of the pair's first entry
    u32 entry, b; // of the stage's digits, of pair 0; the entry's block of the pair
    bool any;
};
template <typename KIND> static __device__ __forceinline__ md_puts<KIND> puts_of(const md_ctx &ctx, u32 c) {
    const u32 t = ctx.lane % 12 / 3, j = ctx.lane % 3;
    md_puts<KIND> x;
    x.any = ctx.lane < 24, x.b = ctx.lane / 12 % 2;
#pragma unroll
    for (u32 i = 0; i < 3; i++) {
        const u32 w = 3 * j + i; // of the lane of B's eight, and what comes with them
        x.word[i] = ctx.smem + made_of(ctx).place + x.b * MADE_BYTES + (w == 8 ? MADE_SUMS + t * 4 : w / 4 * 64 + t * 16 + w % 4 * 4);
    }
    x.entry = (x.b * LANE_ENTRIES + j) * 32 + 4 * c + t;
    return x;
}
template <typename KIND> static __device__ __forceinline__ uint4 *put_at(const md_ctx &ctx, const md_puts<KIND> &x, u32 pair) {
    return lane_entry(ctx.p, KIND::digits, 2 * pair, 0, x.entry);
}
// Puts pair `k` of the place, which is pair `pair` of the column.
template <typename KIND> static __device__ __forceinline__ void pair_put(const md_ctx &ctx, const md_puts<KIND> &x, u32 k, u32 pair, u32 tag) {
    if (!x.any || 2 * pair + x.b >= KIND::blocks) return;
#pragma unroll
    for (u32 j = 0; j < LANE_ENTRIES; j += 3) { // digits; bf16 values, which lie as the digits do
        const u32 from = k * (2 * MADE_BYTES) + (j ? MADE_WIDE : 0);
        put_entry(ctx, put_at(ctx, x, pair) + j * 32, shared_u32(x.word[0] + from), shared_u32(x.word[1] + from),
                  shared_u32(x.word[2] + (j && ctx.lane % 3 == 2 ? 0 : from)), tag);
    }
}

// A column, normalised, by all warps of the CTA: every CONSUMER_WARPS-th pair a warp, which is what the sums of squares add up
// by. More than MADE_PAIRS pairs of a warp are put in turns.
template <typename KIND> static __device__ __forceinline__ void column_make(md_ctx &ctx, u32 c, const float *norm, u32 tag_in, u32 tag) {
    constexpr u32 pairs = (KIND::blocks + 1) / 2, passes = (pairs + CONSUMER_WARPS - 1) / CONSUMER_WARPS, step = CONSUMER_WARPS * 32;
    uint4 v[passes];
    const uint4 *at = entry_of(ctx.p, KIND::input, KIND::tiles_in, c, 0, ctx.tid);
    ask_entries<passes>(v, tag_in, [&](u32 k) { return at + k * step; }, [&](u32 k) { return ctx.tid + k * step < KIND::tiles_in * 4; });
    float4 weights[passes];
#pragma unroll
    for (u32 k = 0; k < passes; k++) weights[k] = norm_quad(norm, k * CONSUMER_WARPS + ctx.warp, ctx.lane);
    const md_puts<KIND> puts = puts_of<KIND>(ctx, c);
    wait_asked<passes, true>(ctx, v, tag_in, [&](u32 k) { return at + k * step; });
    SPENT(HANDOFF);
    float squares = 0;
#pragma unroll
    for (u32 k = 0; k < passes; k++) squares = squares_of(v[k], squares);
    squares = warp_sum(squares);
    // In turns, since there may be no barrier until the next stage with a norm but the one below.
    float *parts = SH_PARTS + ((KIND::input == VECTOR_XA ? COLUMNS : 0) + c) * CONSUMER_WARPS;
    if (ctx.lane == 0) parts[ctx.warp] = squares;
    failure_note(ctx);
    consumers_sync();
    if (failure_seen(ctx)) ctx.failed = true; // of what came in part, nothing is put
    const float r = norm_factor(parts, smaller(pairs, CONSUMER_WARPS));
#pragma unroll
    for (u32 first = 0; first < passes; first += MADE_PAIRS) {
        constexpr u32 N = smaller(passes, MADE_PAIRS);
        uint2 x[N];
        float4 w[N];
#pragma unroll
        for (u32 k = 0; k < N; k++) {
            const bool is = first + k < passes;
            x[k] = is ? make_uint2(v[is ? first + k : 0].x, v[is ? first + k : 0].y) : make_uint2(0, 0), w[k] = weights[is ? first + k : 0];
        }
        digits_make<N, true>(x, 0, 1, made_of(ctx), 0, 2 * N, ctx.lane, r, w);
        if (ctx.failed) continue;
        __syncwarp();
#pragma unroll
        for (u32 k = 0; k < N; k++) pair_put<KIND>(ctx, puts, k, (first + k) * CONSUMER_WARPS + ctx.warp, tag);
        __syncwarp(); // the place is free again
    }
}

// What this CTA makes of a stage's input, whose entries carry tag_in: digits, with the tag `tag`.
template <typename KIND> static __device__ __forceinline__ void digits_share(md_ctx &ctx, const float *norm, u32 tag_in, u32 tag) {
    const u32 columns = ctx.p->columns, groups = ctx.p->groups;
    SPENT(SETUP);
    if (KIND::norm) {
#pragma unroll 1
        for (u32 c = ctx.cta; c < columns; c += groups) column_make<KIND>(ctx, c, norm, tag_in, tag);
    } else {
        constexpr u32 pairs = (KIND::blocks + 1) / 2;
#pragma unroll 1
        for (u32 unit = ctx.cta + groups * ctx.warp; unit < pairs * columns; unit += groups * CONSUMER_WARPS) {
            const u32 c = unit / pairs, pair = unit % pairs, entry = pair * 32 + ctx.lane;
            const uint4 *at = entry_of(ctx.p, KIND::input, KIND::tiles_in, c, 0, entry);
            const md_puts<KIND> puts = puts_of<KIND>(ctx, c);
            uint4 v[1];
            wait_entries<1, true>(ctx, v, tag_in, [&](u32) { return at; }, [&](u32) { return entry < KIND::tiles_in * 4; });
            SPENT(HANDOFF);
            uint2 x[1] = {make_uint2(v[0].x, v[0].y)};
            const float4 none[1] = {};
            digits_make<1, false>(x, 0, 1, made_of(ctx), 0, 2, ctx.lane, 0, none);
            if (ctx.failed) continue;
            __syncwarp();
            pair_put<KIND>(ctx, puts, 0, pair, tag);
            __syncwarp(); // the place is free again
        }
    }
    SPENT(ARITHMETIC);
}

// ---- and brought by everyone ---------------------------------------------------------------------------------------

// N blocks' entries of a lane, STEP blocks apart; lanes of columns that are not there have none, nor have blocks from `until` on.
// ALL: none of the blocks is. Until the last one has come, only that is looked at: all warps of all CTAs wait here, and asking
// for everything all the while would take what L2 has.
template <u32 N, u32 STEP, bool ALL> struct md_digits_asked {
    uint4 v[N * LANE_ENTRIES];
    const uint4 *at;
    u32 blocks; // that are the lane's, of N
    static constexpr u32 last = N * LANE_ENTRIES - 1;
    static __device__ __forceinline__ u32 entry(u32 k) { return (k / LANE_ENTRIES * (STEP * LANE_ENTRIES) + k % LANE_ENTRIES) * 32; }
};
template <typename KIND, u32 N, u32 STEP, bool ALL>
static __device__ __forceinline__ void digits_ask(const md_ctx &ctx, md_digits_asked<N, STEP, ALL> &in, u32 first, u32 until, u32 tag) {
    in.at = lane_entry(ctx.p, KIND::digits, first, 0, ctx.lane);
    pin(in.at);
    const bool column = ctx.lane / 4 < ctx.p->columns;
    in.blocks = column ? ALL ? N : min((until - first + STEP - 1) / STEP, N) : 0;
    uint4 last[1];
    ask_entries<1>(last, tag, [&](u32) { return in.at + in.entry(in.last); }, [&](u32) { return in.blocks == N; });
    in.v[in.last] = last[0];
}
template <u32 N, u32 STEP, bool ALL> static __device__ __forceinline__ void digits_wait(md_ctx &ctx, md_digits_asked<N, STEP, ALL> &in, u32 tag) {
    uint4 last[1] = {in.v[in.last]};
    wait_asked<1, false>(ctx, last, tag, [&](u32) { return in.at + in.entry(in.last); });
    ask_entries<N * LANE_ENTRIES>(
        in.v, tag, [&](u32 k) { return in.at + in.entry(k); }, [&](u32 k) { return k < in.last && (ALL ? in.blocks > 0 : k / LANE_ENTRIES < in.blocks); });
    in.v[in.last] = last[0];
    wait_asked<N * LANE_ENTRIES, false, 1>(ctx, in.v, tag, [&](u32 k) { return in.at + in.entry(k); });
}
// Of block k: the lane's 16 bytes of digit (or half of the bf16 values) d, and what comes with them.
template <u32 N, u32 STEP, bool ALL>
static __device__ __forceinline__ uint4 digits_word(const md_digits_asked<N, STEP, ALL> &in, u32 k, u32 d, bool wide = false) {
    const u32 e = k * LANE_ENTRIES + (wide ? 3 : 0);
    const uint4 a = in.v[e], b = in.v[e + 1], c = in.v[e + 2];
    return d == 0 ? make_uint4(a.x, a.y, a.z, b.x) : make_uint4(b.y, b.z, c.x, c.y);
}
template <u32 N, u32 STEP, bool ALL> static __device__ __forceinline__ u32 digits_with(const md_digits_asked<N, STEP, ALL> &in, u32 k) { return in.v[k * LANE_ENTRIES + 2].z; }

// All columns to shared memory, for all warps. A warp brings every CONSUMER_WARPS-th block, BROUGHT at once.
template <typename KIND> struct md_columns {
    static constexpr u32 blocks = share(KIND::blocks, CONSUMER_WARPS), once = share(blocks, share(blocks, BROUGHT));
    static constexpr bool all = KIND::blocks % (once * CONSUMER_WARPS) == 0;
    md_digits_asked<once, CONSUMER_WARPS, all> in; // of the first
};
template <typename KIND> static __device__ __forceinline__ void columns_ask(const md_ctx &ctx, md_columns<KIND> &x, u32 tag) {
    digits_ask<KIND>(ctx, x.in, ctx.warp, KIND::blocks, tag);
}
template <typename KIND> static __device__ __forceinline__ void columns_load(md_ctx &ctx, md_columns<KIND> &x, u32 tag) {
    constexpr u32 once = md_columns<KIND>::once;
    constexpr bool all = md_columns<KIND>::all;
    const u32 c = ctx.lane / 4, t = ctx.lane % 4;
#pragma unroll 1
    for (u32 first = ctx.warp; first < KIND::blocks; first += once * CONSUMER_WARPS) {
        if (first != ctx.warp) digits_ask<KIND>(ctx, x.in, first, KIND::blocks, tag);
        digits_wait(ctx, x.in, tag);
#pragma unroll
        for (u32 k = 0; k < once; k++) {
            const u32 block = first + k * CONSUMER_WARPS;
            if ((!all && block >= KIND::blocks) || c >= ctx.p->columns) break;
#pragma unroll
            for (u32 d = 0; d < DIGITS; d++) at_shared<uint4>(digits_at(ctx, block, d, c) + 16 * t) = digits_word(x.in, k, d);
            if (t <= SETS_MAX) at_shared<u32>(group_at(ctx, block, c) + 4 * t) = digits_with(x.in, k);
            if (!HAS_WIDE) continue;
            uint4 *wide = (uint4 *)(SH_XS + c * XSTRIDE + block * 64 + 8 * t);
            wide[0] = digits_word(x.in, k, 0, HAS_WIDE), wide[4] = digits_word(x.in, k, 1, HAS_WIDE);
        }
    }
    SPENT(HANDOFF);
    consumers_sync();
}
