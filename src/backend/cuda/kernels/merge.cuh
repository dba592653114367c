// The merge of attention's partials: a head's blocks to its output, by one CTA a head and column.

// A head with few blocks: all its partials at once to shared memory, then block after block.
static __device__ __forceinline__ bool merge_few(md_ctx &ctx, u32 c, u32 head, u32 blocks, u32 tag_partials, u32 tag) {
#pragma unroll 1
    for (u32 i = ctx.tid; i < blocks * PARTIAL_ENTRIES; i += CONSUMERS) {
        uint4 v = wait_entry(ctx, partial_entry(ctx.p, c, head, 0, i), tag_partials); // blocks follow each other
        float *to = SH_SUMS + i * 3;
        to[0] = __uint_as_float(v.x), to[1] = __uint_as_float(v.y), to[2] = __uint_as_float(v.z);
    }
    if (consumers_any(ctx.failed)) return true;
    MARK(1);
#pragma unroll 1
    for (u32 base = ctx.warp * 32; base < HEAD_DIM; base += CONSUMERS) {
        u32 d = base + ctx.lane;
        float m = -INFINITY, l = 0, o = 0;
        for (u32 b = 0; b < blocks; b++) m = fmaxf(m, SH_SUMS[b * 3 * PARTIAL_ENTRIES]);
#pragma unroll 4
        for (u32 b = 0; b < blocks; b++) {
            const float *partial = SH_SUMS + b * 3 * PARTIAL_ENTRIES;
            float w = exp_own(partial[0] - m);
            l = fmaf(partial[1], w, l);
            o = fmaf(partial[2 + min(d, HEAD_DIM - 1u)], w, o);
        }
        put_tile(ctx, entry_of(ctx.p, VECTOR_ATTN, T_ATTN, c, (head * HEAD_DIM + d) / 16, 0), bf_bits(o * reciprocal(l)), d < HEAD_DIM, tag);
    }
    return false;
}

// The blocks of a head to its output. Eight parts of the CTA take every eighth block each and are added in order.
static __device__ __forceinline__ bool stage_merge(md_ctx &ctx, u32 tag_partials, u32 tag) {
    const md_params *p = ctx.p;
    float *weights = SH_WEIGHTS, *sums = SH_SUMS, *parts = SH_REDUCE;
    bool worked = false;
#pragma unroll 1
    for (u32 item = ctx.cta; item < p->columns * Q_HEADS; item += p->groups) {
        u32 c = item / Q_HEADS, head = item % Q_HEADS;
        u32 blocks = (p->col[c].position + ctx.step) / ATTN_ROWS + 1;
        if (blocks == 1) continue; // done by the attention itself
        consumers_sync(); // the work area is free: of the last stage, or the last item
        worked = true;
        if (blocks <= MERGE_FEW) {
            if (merge_few(ctx, c, head, blocks, tag_partials, tag)) return true;
            continue;
        }
        float m = -INFINITY, l = 0;
#pragma unroll 1
        for (u32 b = ctx.tid; b < blocks; b += CONSUMERS)
            m = fmaxf(m, __uint_as_float(wait_entry(ctx, partial_entry(p, c, head, b, 0), tag_partials).x));
        m = warp_max(m);
        if (ctx.lane == 0) parts[ctx.warp] = m;
        if (consumers_any(ctx.failed)) return true;
        for (u32 w = 0; w < CONSUMER_WARPS; w++) m = fmaxf(m, parts[w]);
#pragma unroll 1
        for (u32 b = ctx.tid; b < blocks; b += CONSUMERS) {
            uint4 e = wait_entry(ctx, partial_entry(p, c, head, b, 0), tag_partials);
            float w = exp_own(__uint_as_float(e.x) - m);
            weights[b] = w;
            l = fmaf(__uint_as_float(e.y), w, l);
        }
        l = warp_sum(l);
        if (ctx.lane == 0) parts[CONSUMER_WARPS + ctx.warp] = l;
        consumers_sync();
        const u32 threads = CONSUMERS / MERGE_PARTS;
        u32 part = ctx.tid / threads;
#pragma unroll 1
        for (u32 e = ctx.tid % threads; e < PARTIAL_ENTRIES; e += threads) {
            float o[3] = {0, 0, 0};
#pragma unroll 4
            for (u32 b = part; b < blocks; b += MERGE_PARTS) {
                uint4 v = wait_entry(ctx, partial_entry(p, c, head, b, e), tag_partials);
                o[0] = fmaf(__uint_as_float(v.x), weights[b], o[0]);
                o[1] = fmaf(__uint_as_float(v.y), weights[b], o[1]);
                o[2] = fmaf(__uint_as_float(v.z), weights[b], o[2]);
            }
            for (u32 i = 0; i < 3; i++) sums[part * 3 * PARTIAL_ENTRIES + 3 * e + i] = o[i];
        }
        if (consumers_any(ctx.failed)) return true;
        l = 0;
        for (u32 w = 0; w < CONSUMER_WARPS; w++) l += parts[CONSUMER_WARPS + w];
#pragma unroll 1
        for (u32 base = ctx.warp * 32; base < HEAD_DIM; base += CONSUMERS) { // whole warps: put_tile shuffles
            u32 d = base + ctx.lane;
            float o = 0;
            for (u32 i = 0; i < MERGE_PARTS; i++) o += sums[i * 3 * PARTIAL_ENTRIES + 2 + min(d, HEAD_DIM - 1u)];
            put_tile(ctx, entry_of(p, VECTOR_ATTN, T_ATTN, c, (head * HEAD_DIM + d) / 16, 0), bf_bits(o * reciprocal(l)), d < HEAD_DIM, tag);
        }
    }
    if (worked) consumers_sync();
    return false;
}
