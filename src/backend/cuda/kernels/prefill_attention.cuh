// Attention of prompts over bf16 caches. The keys and values of all columns are in the cache by now; a CTA takes a span of
// columns (x), a kv head (y) and a block of positions (z), keeps the block's keys in registers and its values in shared
// memory, and computes one column after the other as item_bf16 does, while the next one's queries come.
#define QUERY_BYTES align128(HEAD_SETS * 8 * QUERY_STRIDE)
#define ATTENTION_BYTES (md_map::attn_end + QUERY_BYTES)

// Asks for the queries of column c and the CTA's kv head.
static __device__ __forceinline__ void queries_ask(const md_prefill &p, u32 c, u8 *to, u32 tid) {
    constexpr u32 units = HEAD_DIM / 8;
    const uint4 *q = (const uint4 *)((const u16 *)p.q + ((u64)c * Q_HEADS + blockIdx.y * REP) * HEAD_DIM);
#pragma unroll
    for (u32 i0 = 0; i0 < REP * units; i0 += CONSUMERS) {
        const u32 i = i0 + tid;
        if (i < REP * units) copy16_async(to + i / units * QUERY_STRIDE + i % units * UNIT, q + i);
    }
}

extern "C" __global__ void __launch_bounds__(CONSUMERS, ATTENTION_CTAS) md_prefill_attention(const __grid_constant__ md_prefill p) {
    const md_prefill_span span = ((const md_prefill_span *)p.spans)[blockIdx.x];
    const md_prefill_column column = PREFILL_COLUMN(p, span.first);
    const u32 begin = blockIdx.z * ATTN_ROWS, last = column.position + span.count - 1;
    if (begin > last) return;
    md_ctx ctx;
    ctx.tid = threadIdx.x, ctx.warp = threadIdx.x / 32, ctx.lane = threadIdx.x % 32, ctx.smem = shared_address(shared);
    const md_kv_layer kv = ((const md_kv_layer *)column.kv)[p.layer];
    md_item item;
    item.head = blockIdx.y, item.block = blockIdx.z, item.own = false;
    item.n = min(last + 1 - begin, (u32)ATTN_ROWS);
    md_keys keys[KEY_TILES];
    rows_ask(ctx, kv, item, item.n, keys);
    u8 *queries = SH_QUERIES, *other = shared + md_map::attn_end;
    u32 c = begin > column.position ? span.first + begin - column.position : span.first; // the first that sees the block
    queries_ask(p, c, queries, ctx.tid);
#pragma unroll 1
    for (; c < span.first + span.count; c++) {
        const u32 position = column.position + (c - span.first), t = ctx.lane & 3;
        item.n = min(position + 1 - begin, (u32)ATTN_ROWS);
        copies_wait();
        consumers_sync();
        if (c + 1 < span.first + span.count) queries_ask(p, c + 1, other, ctx.tid);
        md_scores scores;
        tiles_score(ctx, item, keys, queries, scores);
        u8 *swap = queries;
        queries = other, other = swap;
        consumers_sync();
        probabilities(ctx, scores);
        consumers_sync();
#pragma unroll 1
        for (u32 unit = ctx.warp; unit < HEAD_SETS * (HEAD_DIM / 16); unit += CONSUMER_WARPS) {
            const u32 set = unit / (HEAD_DIM / 16), tile = unit % (HEAD_DIM / 16), h = set * 8 + (ctx.lane >> 2), head = item.head * REP + h;
            float o[4], l;
            tile_values<true, 2>(item, set, tile, ctx.lane, o, &l);
            if (h >= REP) continue;
            if (position < ATTN_ROWS) { // of one block: nothing to merge
                const float scale = reciprocal(l);
                u32 *out = (u32 *)((u16 *)p.attn + (u64)c * ROW_ATTN + head * HEAD_DIM + tile * 16) + t;
                out[0] = bf_pair(o[0] * scale, o[1] * scale), out[4] = bf_pair(o[2] * scale, o[3] * scale);
                continue;
            }
            const u64 at = ((u64)(c - p.first) * Q_HEADS + head) * p.blocks + item.block;
            float2 *out = (float2 *)((float *)p.partials + at * HEAD_DIM + tile * 16) + t;
            out[0] = make_float2(partial_cut(o[0]), partial_cut(o[1])), out[4] = make_float2(partial_cut(o[2]), partial_cut(o[3]));
            if (tile == 0 && t == 0) ((float2 *)p.stats)[at] = make_float2(SH_OUT[h * OUT_STRIDE + HEAD_DIM], l);
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
    for (u32 d = 4 * lane; d < HEAD_DIM; d += 128) { // four dimensions a lane
        const float *row = partials + d;
        float4 o = make_float4(0, 0, 0, 0);
#pragma unroll 1
        for (u32 first = 0; first < MERGE_PARTS && first < blocks; first += 4) { // four parts' loads together
            float4 v[4];
#pragma unroll
            for (u32 k = 0; k < 4; k++) v[k] = *(const float4 *)(row + (u64)min(first + k, blocks - 1) * HEAD_DIM);
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 1
                for (u32 b = first + k; b < blocks; b += MERGE_PARTS) {
                    if (b != first + k) v[k] = *(const float4 *)(row + (u64)b * HEAD_DIM);
                    const float w = weights[b];
                    sum.x = fmaf(v[k].x, w, sum.x), sum.y = fmaf(v[k].y, w, sum.y);
                    sum.z = fmaf(v[k].z, w, sum.z), sum.w = fmaf(v[k].w, w, sum.w);
                }
                o.x += sum.x, o.y += sum.y, o.z += sum.z, o.w += sum.w;
            }
        }
        *(uint2 *)((u16 *)p.attn + (u64)c * ROW_ATTN + head * HEAD_DIM + d) =
            make_uint2(bf_pair(o.x * scale, o.y * scale), bf_pair(o.z * scale, o.w * scale));
    }
}

// What the host has to know: [shape: tall, short]{threads, row tiles, bytes of shared memory}, then attention's bytes and the set.
extern "C" __constant__ u32 md_prefill_sizes[] = {md_tall::threads,  md_tall::row_tiles,  md_tall::bytes,
                                                  md_short::threads, md_short::row_tiles, md_short::bytes,
                                                  ATTENTION_BYTES,    SET_COLUMNS,         INPUT_BYTES};
