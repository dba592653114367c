// Attention of prompts over bf16 caches. The keys and values of all columns are in the cache by now; a CTA takes a span of
// columns (x), a kv head (y) and a block of positions (z), keeps the block's keys in registers and its values in shared
// memory, and computes one column after the other as item_bf16 does.

extern "C" __global__ void __launch_bounds__(CONSUMERS, ATTENTION_CTAS) md_prefill_attention(const __grid_constant__ md_prefill p) {
    const md_prefill_span span = ((const md_prefill_span *)p.spans)[blockIdx.x];
    const u32 begin = blockIdx.z * ATTN_ROWS, last = PREFILL_COLUMN(p, span.first + span.count - 1).position;
    if (begin > last) return;
    md_ctx ctx;
    ctx.tid = threadIdx.x, ctx.warp = threadIdx.x / 32, ctx.lane = threadIdx.x % 32;
    const md_kv_layer kv = ((const md_kv_layer *)PREFILL_COLUMN(p, span.first).kv)[p.layer];
    md_item item;
    item.head = blockIdx.y, item.block = blockIdx.z, item.own = false;
    item.n = min(last + 1 - begin, (u32)ATTN_ROWS);
    md_keys keys[KEY_TILES];
    rows_ask(ctx, kv, item, item.n, keys);
    copies_wait();
#pragma unroll 1
    for (u32 c = span.first; c < span.first + span.count; c++) {
        const u32 position = PREFILL_COLUMN(p, c).position, t = ctx.lane & 3;
        if (position < begin) continue;
        item.n = min(position + 1 - begin, (u32)ATTN_ROWS);
        const u8 *q = (const u8 *)((const u16 *)p.q + ((u64)c * Q_HEADS + item.head * REP) * HEAD_DIM);
        for (u32 i = ctx.tid; i < REP * HEAD_DIM / 8; i += CONSUMERS)
            *(uint4 *)(SH_QUERIES + i / (HEAD_DIM / 8) * QUERY_STRIDE + i % (HEAD_DIM / 8) * 16) = ((const uint4 *)q)[i];
        consumers_sync();
#pragma unroll
        for (u32 k = 0; k < KEY_TILES; k++) tile_scores(ctx, item, k * CONSUMER_WARPS + ctx.warp, keys[k]);
        consumers_sync();
        probabilities(ctx, item);
        consumers_sync();
#pragma unroll 1
        for (u32 unit = ctx.warp; unit < HEAD_SETS * (HEAD_DIM / 16); unit += CONSUMER_WARPS) {
            const u32 set = unit / (HEAD_DIM / 16), tile = unit % (HEAD_DIM / 16), h = set * 8 + (ctx.lane >> 2), head = item.head * REP + h;
            float o[4], l;
            tile_values<true>(item, set, tile, ctx.lane, o, &l);
            if (h >= REP) continue;
            if (position < ATTN_ROWS) { // of one block: nothing to merge
                const float scale = reciprocal(l);
                u32 *out = (u32 *)((u16 *)p.attn + (u64)c * ROW_ATTN + head * HEAD_DIM + tile * 16) + t;
                out[0] = bf_pair(o[0] * scale, o[1] * scale), out[4] = bf_pair(o[2] * scale, o[3] * scale);
                continue;
            }
            const u64 at = ((u64)(c - p.first) * Q_HEADS + head) * p.blocks + item.block;
            float2 *out = (float2 *)((float *)p.partials + at * HEAD_DIM + tile * 16) + t;
            out[0] = make_float2(o[0], o[1]), out[4] = make_float2(o[2], o[3]);
            if (tile == 0 && t == 0) ((float2 *)p.stats)[at] = make_float2(SH_OUT[h * 3 * PARTIAL_ENTRIES], l);
        }
    }
}

// The merge of a column (p.first + x) and a query head a warp, in the order of stage_merge's sums.
extern "C" __global__ void __launch_bounds__(CONSUMERS) md_prefill_merge(const __grid_constant__ md_prefill p) {
    extern __shared__ float merge_weights[]; // [CONSUMER_WARPS][blocks]
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y * CONSUMER_WARPS + warp, c = p.first + blockIdx.x;
    const u32 blocks = PREFILL_COLUMN(p, c).position / ATTN_ROWS + 1;
    if (blocks == 1 || head >= Q_HEADS) return;
    const u64 at = ((u64)blockIdx.x * Q_HEADS + head) * p.blocks;
    const float2 *stats = (const float2 *)p.stats + at;
    const float *partials = (const float *)p.partials + at * HEAD_DIM;
    float *weights = merge_weights + warp * p.blocks, m = -INFINITY, total = 0;
    for (u32 b = lane; b < blocks; b += 32) m = fmaxf(m, stats[b].x);
    m = warp_max(m);
    for (u32 w = 0; w < CONSUMER_WARPS && w * 32 < blocks; w++) { // a warp of stage_merge
        float l = 0;
        for (u32 b = w * 32 + lane; b < blocks; b += CONSUMERS) {
            const float2 s = stats[b];
            const float weight = exp_own(s.x - m);
            weights[b] = weight;
            l = fmaf(s.y, weight, l);
        }
        total += warp_sum(l);
    }
    __syncwarp();
    const float scale = reciprocal(total);
    for (u32 d = lane; d < HEAD_DIM; d += 32) {
        float o = 0;
        for (u32 part = 0; part < MERGE_PARTS && part < blocks; part++) {
            float sum = 0;
#pragma unroll 4
            for (u32 b = part; b < blocks; b += MERGE_PARTS) sum = fmaf(partials[(u64)b * HEAD_DIM + d], weights[b], sum);
            o += sum;
        }
        ((u16 *)p.attn)[(u64)c * ROW_ATTN + head * HEAD_DIM + d] = (u16)bf_bits(o * scale);
    }
}
