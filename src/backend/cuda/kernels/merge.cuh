// The merge of attention's partials to a head's output: a stage, 16 dimensions an item, so that most CTAs have a share; or, of
// few blocks, part of the output projection.

#define MERGE_PARTS (CONSUMERS / 16) // of a CTA: part i takes blocks i, i + MERGE_PARTS, ..
#define MERGE_KEPT 9                 // values a thread keeps from the wait for them on: of 144 blocks, 18,432 positions

// Value `slot` of an entry of a partial.
static __device__ __forceinline__ float value_of(uint4 e, u32 slot) {
    const float4 v = partial_values(e);
    return slot < 2 ? slot ? v.y : v.x : slot == 2 ? v.z : v.w;
}

// With several columns there are items for all warps: of a column of at most MERGE_BRIEF blocks a warp takes one by itself, and
// nobody waits for others. The sums are those below: of parts i and i + MERGE_PARTS, then over the parts in their order, the
// first half of them by the lower 16 lanes.
#define MERGE_BRIEF 32u
static __device__ __forceinline__ void merge_brief(md_ctx &ctx, u32 c, u32 head, u32 tile, u32 blocks, u32 tag_partials, u32 tag) {
    const md_params *p = ctx.p;
    constexpr u32 half_parts = MERGE_PARTS / 2, n = 2 * half_parts; // blocks of a lane: of half the parts, two of each
    const u32 dim = ctx.lane % 16, first = ctx.lane / 16 * half_parts, at = tile * 16 + dim;
    const uint4 *row = partial_entry(p, c, head, first, at / 4), *heads = partial_entry(p, c, head, ctx.lane, HEAD_DIM / 4);
    pin(row), pin(heads);
    auto block_of = [&](u32 k) { return k / half_parts * MERGE_PARTS + k % half_parts; }; // from the lane's first on
    uint4 stats[1], v[n]; // {m, l} of block `lane`; values, asked for when these have come (as in digits_wait)
    ask_entries<1>(stats, tag_partials, [&](u32) { return heads; }, [&](u32) { return ctx.lane < blocks; });
    wait_asked<1, false>(ctx, stats, tag_partials, [&](u32) { return heads; });
    auto entry_at = [&](u32 k) { return row + block_of(k) * PARTIAL_ENTRIES; };
    ask_entries<n>(v, tag_partials, entry_at, [&](u32 k) { return first + block_of(k) < blocks; });
    wait_asked<n, false, 1>(ctx, v, tag_partials, entry_at);
    SPENT(HANDOFF);
    if (ctx.failed) return;
    const bool mine = ctx.lane < blocks;
    const float m = warp_max(mine ? __uint_as_float(stats[0].x) : -INFINITY);
    const float w = mine ? exp_own(__uint_as_float(stats[0].x) - m) : 0;
    const float l = warp_sum(mine ? fmaf(__uint_as_float(stats[0].y), w, 0.0f) : 0);
    float part[half_parts] = {}, o = 0;
#pragma unroll
    for (u32 k = 0; k < n; k++) {
        const float weight = __shfl_sync(~0u, w, first + block_of(k));
        if (first + block_of(k) < blocks) part[k % half_parts] = fmaf(value_of(v[k], at % 4), weight, part[k % half_parts]);
    }
#pragma unroll
    for (u32 half = 0; half < 2; half++) { // the upper lanes go on where the lower ones ended
        if (half) o = __shfl_sync(~0u, o, dim);
        if (half == ctx.lane / 16)
#pragma unroll
            for (u32 i = 0; i < half_parts; i++) o += part[i];
    }
    put_tile(ctx, entry_of(p, VECTOR_ATTN, T_ATTN, c, head * (HEAD_DIM / 16) + tile, 0), bf_bits(o * reciprocal(l)), ctx.lane >= 16, tag);
    SPENT(OUT);
}

static __device__ __forceinline__ bool stage_merge(md_ctx &ctx, u32 tag_partials, u32 tag) {
    const md_params *p = ctx.p;
    if (COLUMNS > 1) {
        const u32 tiles = HEAD_DIM / 16, a_column = Q_HEADS * tiles;
        u32 left = columns_of(ctx, [](uint4 place, u32) { return place.w > 1 && place.w <= MERGE_BRIEF; });
        const u32 items = __popc(left) * a_column;
#pragma unroll 1
        for (u32 i = ctx.cta + p->groups * ctx.warp; i < items; i += p->groups * CONSUMER_WARPS) {
            u32 columns = left; // the one wanted, and those behind it
            for (u32 k = i / a_column; k; k--) columns &= columns - 1;
            const u32 c = __ffs(columns) - 1;
            merge_brief(ctx, c, i / tiles % Q_HEADS, i % tiles, place_noted(ctx, c).w, tag_partials, tag);
        }
        if (!columns_of(ctx, [](uint4 place, u32) { return place.w > MERGE_BRIEF; })) return false;
    }
    const u32 tiles = HEAD_DIM / 16, dim = ctx.tid % 16, part = ctx.tid / 16;
    float *weights = SH_WEIGHTS, *sums = SH_SUMS, *parts = SH_REDUCE;
    bool worked = false;
#pragma unroll 1
    for (u32 item = ctx.cta; item < p->columns * Q_HEADS * tiles; item += p->groups) {
        const u32 c = item / (Q_HEADS * tiles), head = item / tiles % Q_HEADS, tile = item % tiles;
        const u32 blocks = (p->col[c].position + ctx.step) / ATTN_ROWS + 1;
        if (blocks == 1 || (COLUMNS > 1 && blocks <= MERGE_BRIEF)) continue; // done by the attention itself, or above
        consumers_sync();          // the work area is free: of the last stage, or the last item
        worked = true;
        SPENT(SETUP);
        const u32 at = tile * 16 + dim;
        const uint4 *row = partial_entry(p, c, head, 0, at / 4);
        // Asked for together: the statistics of the thread's first block, and the values of its first blocks.
        uint4 stats = make_uint4(__float_as_uint(-INFINITY), 0, 0, tag_partials);
        if (ctx.tid < blocks) stats = load_entry(partial_entry(p, c, head, ctx.tid, HEAD_DIM / 4));
        float value[MERGE_KEPT];
        uint4 entries[MERGE_KEPT];
        wait_entries<MERGE_KEPT, false>(
            ctx, entries, tag_partials, [&](u32 k) { return row + (part + k * MERGE_PARTS) * PARTIAL_ENTRIES; },
            [&](u32 k) { return part + k * MERGE_PARTS < blocks; });
#pragma unroll
        for (u32 k = 0; k < MERGE_KEPT; k++) value[k] = value_of(entries[k], at % 4);
#pragma unroll 1
        for (u32 b = part + MERGE_KEPT * MERGE_PARTS; b < blocks; b += MERGE_PARTS)
            wait_entry(ctx, row + b * PARTIAL_ENTRIES, tag_partials); // read below, several at once
        if (ctx.tid < blocks) stats = wait_entry_from(ctx, partial_entry(p, c, head, ctx.tid, HEAD_DIM / 4), tag_partials, stats);
        float m = __uint_as_float(stats.x), l = 0, o = 0;
#pragma unroll 1
        for (u32 b = ctx.tid + CONSUMERS; b < blocks; b += CONSUMERS)
            m = fmaxf(m, __uint_as_float(wait_entry(ctx, partial_entry(p, c, head, b, HEAD_DIM / 4), tag_partials).x));
        m = warp_max(m);
        if (ctx.lane == 0) parts[ctx.warp] = m;
        failure_note(ctx);
        consumers_sync();
        if (failure_seen(ctx)) return true;
        SPENT(HANDOFF);
        for (u32 w = 0; w < CONSUMER_WARPS; w++) m = fmaxf(m, parts[w]);
#pragma unroll 1
        for (u32 b = ctx.tid; b < blocks; b += CONSUMERS) {
            if (b >= CONSUMERS) stats = load_entry(partial_entry(p, c, head, b, HEAD_DIM / 4)); // it has come
            float w = exp_own(__uint_as_float(stats.x) - m);
            weights[b] = w;
            l = fmaf(__uint_as_float(stats.y), w, l);
        }
        l = warp_sum(l);
        if (ctx.lane == 0) parts[CONSUMER_WARPS + ctx.warp] = l;
        consumers_sync();
#pragma unroll
        for (u32 k = 0; k < MERGE_KEPT; k++) {
            u32 b = part + k * MERGE_PARTS;
            if (b < blocks) o = fmaf(value[k], weights[b], o);
        }
#pragma unroll 4
        for (u32 b = part + MERGE_KEPT * MERGE_PARTS; b < blocks; b += MERGE_PARTS)
            o = fmaf(value_of(load_entry(row + b * PARTIAL_ENTRIES), at % 4), weights[b], o);
        sums[ctx.tid] = o;
        consumers_sync();
        SPENT(ARITHMETIC);
        if (ctx.warp) continue;
        o = l = 0;
#pragma unroll
        for (u32 i = 0; i < MERGE_PARTS; i++) o += sums[i * 16 + dim];
        for (u32 w = 0; w < CONSUMER_WARPS; w++) l += parts[CONSUMER_WARPS + w];
        put_tile(ctx, entry_of(p, VECTOR_ATTN, T_ATTN, c, head * tiles + tile, 0), bf_bits(o * reciprocal(l)), ctx.lane < 16, tag);
        SPENT(OUT);
    }
    if (worked) consumers_sync();
    return false;
}

// Of few blocks there is no merge: with one column, and where a warp of the output projection brings the slice of its input
// that it multiplies, it merges that slice itself. The sums are stage_merge's: a block's term each, in the blocks' order.
template <typename KIND> struct md_merges {
    static constexpr bool possible = is_kind<KIND, md_out> && COLUMNS == 1 && KIND::own_slices && HEAD_DIM % 64 == 0 && MERGE_FEW > 1;
};
static_assert(MERGE_FEW <= MERGE_PARTS, "a block a part");

template <typename KIND> static __device__ __forceinline__ void load_merged(md_ctx &ctx, const md_input<KIND> &in, u32 tag, u32 blocks) {
    constexpr u32 passes = md_input<KIND>::passes, each = MERGE_FEW + 1; // entries a pass and lane: of the blocks, and statistics
    const md_params *p = ctx.p;
    const u32 own = ctx.lane % 16; // a block whose statistics the lane has; 16 lanes' values are of one head
    u32 head[passes], quad[passes];
    bool valid[passes];
#pragma unroll
    for (u32 k = 0; k < passes; k++) {
        const u32 i = (in.pair + k) * 32 + ctx.lane;
        head[k] = i / (HEAD_DIM / 4), quad[k] = i % (HEAD_DIM / 4), valid[k] = head[k] < Q_HEADS && i < (in.until + 1) / 2 * 32;
    }
    auto at = [&](u32 n) {
        const u32 k = n / each, b = n % each;
        return b < MERGE_FEW ? partial_entry(p, 0, head[k], b, quad[k]) : partial_entry(p, 0, head[k], own, HEAD_DIM / 4);
    };
    uint4 v[passes * each];
    ask_entries<passes * each>(v, tag, at, [&](u32 n) { return valid[n / each] && (n % each < MERGE_FEW ? n % each : own) < blocks; });
    wait_asked<passes * each, false, 1>(ctx, v, tag, at);
    SPENT(HANDOFF);
    uint2 x[passes];
#pragma unroll
    for (u32 k = 0; k < passes; k++) {
        const uint4 stats = v[k * each + MERGE_FEW];
        const bool has = valid[k] && own < blocks;
        float m = has ? __uint_as_float(stats.x) : -INFINITY, own_m = m;
#pragma unroll
        for (u32 d = 8; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
        const float weight = has ? exp_own(own_m - m) : 0.0f;
        float l = has ? fmaf(__uint_as_float(stats.y), weight, 0.0f) : 0.0f;
#pragma unroll
        for (u32 d = 8; d; d >>= 1) l += __shfl_xor_sync(~0u, l, d);
        float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
        for (u32 b = 0; b < MERGE_FEW; b++) { // past the last block zeros times zero
            const float w = __shfl_sync(~0u, weight, (ctx.lane & 16) + b);
            const float4 value = partial_values(v[k * each + b]);
            o.x += value.x * w, o.y += value.y * w, o.z += value.z * w, o.w += value.w * w;
        }
        const float scale = reciprocal(l);
        x[k] = valid[k] ? make_uint2(bf_pair(o.x * scale, o.y * scale), bf_pair(o.z * scale, o.w * scale)) : make_uint2(0, 0);
    }
    const float4 none[passes] = {};
    digits_make<passes, false>(x, in.pair, 1, md_digits_here{0}, in.from, in.until, ctx.lane, 0, none);
    __syncwarp();
}
