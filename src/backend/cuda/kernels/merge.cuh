// The merge of attention's partials to a head's output, 16 dimensions an item, so that most CTAs have a share.

#define MERGE_PARTS (CONSUMERS / 16) // of a CTA: part i takes blocks i, i + MERGE_PARTS, ..
#define MERGE_KEPT 9                 // values a thread keeps from the wait for them on: of 144 blocks, 18,432 positions

// Value `slot` (0..2) of an entry of a partial.
static __device__ __forceinline__ float value_of(uint4 e, u32 slot) { return __uint_as_float(slot == 0 ? e.x : slot == 1 ? e.y : e.z); }

// With several columns there are items for all warps: of a column of at most MERGE_BRIEF blocks a warp takes one by itself, and
// nobody waits for others. The sums are those below: of parts i and i + MERGE_PARTS, then over the parts in their order, the
// first half of them by the lower 16 lanes.
#define MERGE_BRIEF 32u
static __device__ __forceinline__ void merge_brief(md_ctx &ctx, u32 c, u32 head, u32 tile, u32 blocks, u32 tag_partials, u32 tag) {
    const md_params *p = ctx.p;
    constexpr u32 half_parts = MERGE_PARTS / 2, n = 2 * half_parts; // blocks of a lane: of half the parts, two of each
    const u32 dim = ctx.lane % 16, first = ctx.lane / 16 * half_parts, at = 2 + tile * 16 + dim;
    const uint4 *row = partial_entry(p, c, head, first, at / 3), *heads = partial_entry(p, c, head, ctx.lane, 0);
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
        if (first + block_of(k) < blocks) part[k % half_parts] = fmaf(value_of(v[k], at % 3), weight, part[k % half_parts]);
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
        const u32 at = 2 + tile * 16 + dim; // in the partial {m, l, o[HEAD_DIM]}
        const uint4 *row = partial_entry(p, c, head, 0, at / 3);
        // Asked for together: the statistics of the thread's first block, and the values of its first blocks.
        uint4 stats = make_uint4(__float_as_uint(-INFINITY), 0, 0, tag_partials);
        if (ctx.tid < blocks) stats = load_entry(partial_entry(p, c, head, ctx.tid, 0));
        float value[MERGE_KEPT];
        uint4 entries[MERGE_KEPT];
        wait_entries<MERGE_KEPT, false>(
            ctx, entries, tag_partials, [&](u32 k) { return row + (part + k * MERGE_PARTS) * PARTIAL_ENTRIES; },
            [&](u32 k) { return part + k * MERGE_PARTS < blocks; });
#pragma unroll
        for (u32 k = 0; k < MERGE_KEPT; k++) value[k] = value_of(entries[k], at % 3);
#pragma unroll 1
        for (u32 b = part + MERGE_KEPT * MERGE_PARTS; b < blocks; b += MERGE_PARTS)
            wait_entry(ctx, row + b * PARTIAL_ENTRIES, tag_partials); // read below, several at once
        if (ctx.tid < blocks) stats = wait_entry_from(ctx, partial_entry(p, c, head, ctx.tid, 0), tag_partials, stats);
        float m = __uint_as_float(stats.x), l = 0, o = 0;
#pragma unroll 1
        for (u32 b = ctx.tid + CONSUMERS; b < blocks; b += CONSUMERS)
            m = fmaxf(m, __uint_as_float(wait_entry(ctx, partial_entry(p, c, head, b, 0), tag_partials).x));
        m = warp_max(m);
        if (ctx.lane == 0) parts[ctx.warp] = m;
        failure_note(ctx);
        consumers_sync();
        if (failure_seen(ctx)) return true;
        SPENT(HANDOFF);
        for (u32 w = 0; w < CONSUMER_WARPS; w++) m = fmaxf(m, parts[w]);
#pragma unroll 1
        for (u32 b = ctx.tid; b < blocks; b += CONSUMERS) {
            if (b >= CONSUMERS) stats = load_entry(partial_entry(p, c, head, b, 0)); // it has come
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
            o = fmaf(value_of(load_entry(row + b * PARTIAL_ENTRIES), at % 3), weights[b], o);
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
