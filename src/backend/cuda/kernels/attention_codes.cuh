// Attention over a block of a quantized cache (8 or 4 bits). Two stages: the scores' {m, l} of every block, then, with the
// whole row's, probabilities rounded as MLX rounds them, whose outputs the merge simply adds. docs/MODEL.md has the rules.

// A group of the token's own key or value as md_affine_quantize (src/model/quant.c) does it, by one warp.
static __device__ void quantize_group(const float *values, u32 bits, u32 group, u8 *codes, u32 *scale_bias, u32 lane) {
    const float top = (float)((1u << bits) - 1u);
    float low = values[lane], high = low, poison = 0.0f; // NaN of an infinity or NaN, which fminf and fmaxf lose
#pragma unroll 1
    for (u32 i = lane; i < group; i += 32)
        low = fminf(low, values[i]), high = fmaxf(high, values[i]), poison = fmaf(values[i], 0.0f, poison);
    low = -warp_max(-low), high = warp_max(high), poison = warp_sum(poison);
    float scale = fmaxf((high - low) / top, 1e-7f);
    bool low_end = fabsf(low) > fabsf(high);
    scale = low_end ? scale : -scale;
    float edge = low_end ? low : high, steps = rintf(edge / scale), bias = 0.0f;
    if (steps != 0.0f) scale = edge / steps, bias = edge;
#pragma unroll 1
    for (u32 pair = lane; pair < group / 2; pair += 32) {
        u32 q[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) q[i] = (u32)fminf(fmaxf(rintf((values[2 * pair + i] - bias) / scale), 0.0f), top);
        if (bits == 8)
            codes[2 * pair] = (u8)q[0], codes[2 * pair + 1] = (u8)q[1];
        else
            codes[pair] = (u8)(q[0] | q[1] << 4);
    }
    if (lane == 0) *scale_bias = bf_bits(scale + poison) | bf_bits(bias) << 16; // + 0 of a finite group
}

// The two halves of a cached head: row[0] = key, row[1] = value, at `position`.
static __device__ __forceinline__ void cache_store(const md_kv_layer &kv, u32 head, u32 position, const float *row, u32 warp, u32 lane) {
    u64 at = (u64)head * kv.context + position;
    u32 groups = HEAD_DIM / kv.group;
#pragma unroll 1
    for (u32 i = warp; i < 2 * groups; i += CONSUMER_WARPS) {
        bool value = i >= groups;
        u32 g = value ? i - groups : i;
        quantize_group(row + (value ? HEAD_DIM : 0) + g * kv.group, kv.bits, kv.group,
                       (u8 *)(value ? kv.v : kv.k) + at * (HEAD_DIM * kv.bits / 8) + g * kv.group * kv.bits / 8,
                       (u32 *)(value ? kv.v_scales : kv.k_scales) + at * groups + g, lane);
    }
}

// Copies rows [0, n) of a block to shared memory as they are stored; whoever reads them waits (copies_wait, barrier).
static __device__ __forceinline__ void rows_load(const md_ctx &ctx, const md_kv_layer &kv, u64 at, u32 n, bool values,
                                                 u32 first) {
    u8 *to = (values ? SH_V_CODES : SH_K_CODES) + first * CODE_STRIDE;
    u32 *scales = (values ? SH_V_SCALES : SH_K_SCALES) + first * (HEAD_DIM / 32);
    u32 units = HEAD_DIM * kv.bits / 8 / UNIT; // a row
    const u8 *from = (const u8 *)(values ? kv.v : kv.k) + at * units * UNIT;
    if (kv.bits == 4 && HEAD_DIM % 32) { // half units
#pragma unroll 1
        for (u32 i = ctx.tid; i < n * (HEAD_DIM / 16); i += CONSUMERS)
            *(u64 *)(to + i / (HEAD_DIM / 16) * CODE_STRIDE + i % (HEAD_DIM / 16) * 8) =
                __ldcg((const unsigned long long *)((values ? kv.v : kv.k) + at * (HEAD_DIM / 2)) + i);
    } else {
#pragma unroll 1
        for (u32 i = ctx.tid; i < n * units; i += CONSUMERS)
            copy16_async(to + i / units * CODE_STRIDE + i % units * UNIT, from + i * UNIT);
    }
    u32 groups = HEAD_DIM / kv.group;
    const u32 *sb = (const u32 *)(values ? kv.v_scales : kv.k_scales) + at * groups;
#pragma unroll 1
    for (u32 i = ctx.tid; i < n * groups; i += CONSUMERS) scales[i / groups * (HEAD_DIM / 32) + i % groups] = __ldcg(sb + i);
}

// Values 2i and 2i + 1 of a row in shared memory.
static __device__ __forceinline__ float2 row_pair(const u8 *row, const u32 *scales, u32 bits, u32 group, u32 i) {
    u32 sb = scales[2 * i / group], a, b;
    if (bits == 8) {
        u32 v = ((const u16 *)row)[i];
        a = v & 255, b = v >> 8;
    } else {
        u32 v = row[i];
        a = v & 15, b = v >> 4;
    }
    return make_float2(fmaf(bf_lo(sb), (float)a, bf_hi(sb)), fmaf(bf_lo(sb), (float)b, bf_hi(sb)));
}

// Queries, times the scale, rounded, to SH_Q, and with `own` the token's own key and value to SH_ROW.
static __device__ __forceinline__ void parts_load_scaled(md_ctx &ctx, const md_item &item, u32 tag, bool own) {
    const u32 count = (own ? REP + 2 : REP) * PARTS_A_HEAD;
#pragma unroll 1
    for (u32 i = ctx.tid; i < count; i += CONSUMERS) {
        md_part part = part_of(ctx.p, item, i);
        uint4 entry = wait_entry(ctx, part.at, tag);
        float *to = part.h < REP ? SH_Q + part.h * Q_STRIDE : SH_ROW + (part.h - REP) * HEAD_DIM;
        float4 v = make_float4(bf_lo(entry.x), bf_hi(entry.x), bf_lo(entry.y), bf_hi(entry.y));
        const float scale = bf(ATTN_SCALE);
        if (part.h < REP) v = make_float4(bf(v.x * scale), bf(v.y * scale), bf(v.z * scale), bf(v.w * scale));
        *(float4 *)(to + part.dim) = v;
    }
}

// scores[h][j] of an item's rows, in shared memory, and with `with_values` the rows of V too. `append`: the token's own
// key and value come from the exchange and go to the cache here; its CTA's later items and steps read them there. True
// when someone failed.
static __device__ __forceinline__ bool item_scores(md_ctx &ctx, const md_kv_layer &kv, const md_item &item, u32 tag_q, bool append, bool with_values) {
    u32 n = item.n, position = item.block * ATTN_ROWS + n - 1;
    u64 at = (u64)item.head * kv.context + item.block * ATTN_ROWS;
    bool own = append && item.own, again = false;
    u32 from = 0, until = own ? n - 1 : n; // these rows don't wait for this stage's input
#pragma unroll 1
    do {
#pragma unroll 1
        for (u32 values = 0; values <= (u32)with_values; values++) rows_load(ctx, kv, at + from, until - from, values, from);
        if (!again) {
            SPENT(SETUP);
            parts_load_scaled(ctx, item, tag_q, own);
            SPENT(HANDOFF);
        }
        copies_wait();
        if (consumers_any(ctx.failed)) return true;
        if (!own || again) break;
        cache_store(kv, item.head, position, SH_ROW, ctx.warp, ctx.lane);
        consumers_sync();
        from = n - 1, until = n;
        again = true; // the row is read back as it was stored
    } while (again);
#pragma unroll 1
    for (u32 i = ctx.tid; i < REP * ATTN_ROWS; i += CONSUMERS) {
        u32 h = i % REP, j = i / REP;
        if (j >= n) continue;
        const u8 *row = SH_K_CODES + j * CODE_STRIDE;
        const float *q = SH_Q + h * Q_STRIDE;
        float sum[4] = {0, 0, 0, 0};
#pragma unroll 8
        for (u32 d = 0; d < HEAD_DIM; d += 2) {
            float2 k = row_pair(row, SH_K_SCALES + j * (HEAD_DIM / 32), kv.bits, kv.group, d / 2);
            sum[d & 2] = fmaf(q[d], k.x, sum[d & 2]), sum[(d & 2) + 1] = fmaf(q[d + 1], k.y, sum[(d & 2) + 1]);
        }
        float s = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        SH_SCORES[h * S_STRIDE + j] = bf(s);
    }
    consumers_sync();
    return false;
}

// {m, l} of a head's scores by one warp.
static __device__ __forceinline__ float2 block_softmax(const float *scores, u32 n, u32 lane) {
    float m = -INFINITY, l = 0;
#pragma unroll 1
    for (u32 j = lane; j < n; j += 32) m = fmaxf(m, scores[j]);
    m = warp_max(m);
#pragma unroll 1
    for (u32 j = lane; j < n; j += 32) l += exp_own(scores[j] - m);
    return make_float2(m, warp_sum(l));
}

// The whole row's maximum and sum from its blocks' statistics, by one warp.
static __device__ __forceinline__ float2 row_stats(md_ctx &ctx, u32 c, u32 head, u32 blocks, u32 tag) {
    float m = -INFINITY, l = 0;
#pragma unroll 1
    for (u32 b = ctx.lane; b < blocks; b += 32) m = fmaxf(m, __uint_as_float(wait_entry(ctx, stats_entry(ctx.p, c, head, b), tag).x));
    m = warp_max(m);
#pragma unroll 1
    for (u32 b = ctx.lane; b < blocks; b += 32) {
        uint4 e = wait_entry(ctx, stats_entry(ctx.p, c, head, b), tag);
        l = fmaf(__uint_as_float(e.y), exp_own(__uint_as_float(e.x) - m), l);
    }
    return make_float2(m, warp_sum(l));
}

// The item's scores to probabilities of the whole row, rounded.
static __device__ __forceinline__ void item_probabilities(md_ctx &ctx, const md_item &item, u32 blocks, u32 tag_scores) {
#pragma unroll 1
    for (u32 h = ctx.warp; h < REP; h += CONSUMER_WARPS) {
        float *scores = SH_SCORES + h * S_STRIDE, *out = SH_OUT + h * OUT_STRIDE;
        float2 ml = row_stats(ctx, item.c, item.head * REP + h, blocks, tag_scores);
        float scale = 1.0f / ml.y;
#pragma unroll 1
        for (u32 j = ctx.lane; j < item.n; j += 32) scores[j] = bf(exp_own(scores[j] - ml.x) * scale);
        if (ctx.lane == 0) out[HEAD_DIM] = 0.0f, out[HEAD_DIM + 1] = item.block == 0 ? 1.0f : 0.0f;
    }
}

// Probabilities times values to SH_OUT.
static __device__ __forceinline__ void item_values(const md_ctx &ctx, const md_kv_layer &kv, u32 n) {
#pragma unroll 1
    for (u32 k = ctx.tid; k < REP * (HEAD_DIM / 2); k += CONSUMERS) {
        u32 h = k / (HEAD_DIM / 2), pair = k % (HEAD_DIM / 2);
        const float *prob = SH_SCORES + h * S_STRIDE;
        float a = 0, b = 0;
#pragma unroll 4
        for (u32 j = 0; j < n; j++) {
            float2 v = row_pair(SH_V_CODES + j * CODE_STRIDE, SH_V_SCALES + j * (HEAD_DIM / 32), kv.bits, kv.group, pair);
            a = fmaf(prob[j], v.x, a), b = fmaf(prob[j], v.y, b);
        }
        SH_OUT[h * OUT_STRIDE + 2 * pair] = a;
        SH_OUT[h * OUT_STRIDE + 2 * pair + 1] = b;
    }
}

// The output of a sequence of one block: the merge of one is o / l.
static __device__ __forceinline__ void item_put_only(md_ctx &ctx, const md_item &item, u32 tag) {
#pragma unroll 1
    for (u32 k = ctx.warp * 32; k < REP * HEAD_DIM; k += CONSUMERS) { // whole warps: put_tile shuffles
        u32 at = k + ctx.lane, h = at / HEAD_DIM, d = at % HEAD_DIM;
        bool valid = at < REP * HEAD_DIM;
        const float *o = SH_OUT + (valid ? h : 0) * OUT_STRIDE;
        put_tile(ctx, entry_of(ctx.p, VECTOR_ATTN, T_ATTN, item.c, (item.head * REP * HEAD_DIM + at) / 16, 0),
                 bf_bits(o[d] * reciprocal(o[HEAD_DIM + 1])), valid, tag);
    }
}

// {m, l} of an item's heads: what all blocks' probabilities need when the cache is quantized.
static __device__ __forceinline__ void item_stats(md_ctx &ctx, const md_item &item, u32 tag) {
#pragma unroll 1
    for (u32 h = ctx.warp; h < REP; h += CONSUMER_WARPS) {
        float2 ml = block_softmax(SH_SCORES + h * S_STRIDE, item.n, ctx.lane);
        if (ctx.lane == 0)
            put_entry(ctx, stats_entry(ctx.p, item.c, item.head * REP + h, item.block), __float_as_uint(ml.x), __float_as_uint(ml.y), 0, tag);
    }
    consumers_sync();
}

// An item, whole, in either of its two stages. True when someone failed.
static __device__ __forceinline__ bool item_quantized(md_ctx &ctx, const md_kv_layer &kv, const md_item &item, u32 blocks, bool scores_only,
                                                      u32 tag_qkv, u32 tag_scores, u32 tag, u32 tag_merge) {
    consumers_sync(); // the work area is free: of the last stage, or the last item
    if (item_scores(ctx, kv, item, tag_qkv, scores_only, !scores_only)) return true;
    if (scores_only) {
        SPENT(ARITHMETIC);
        item_stats(ctx, item, tag);
        return false;
    }
    SPENT(ARITHMETIC);
    item_probabilities(ctx, item, blocks, tag_scores);
    SPENT(HANDOFF); // most of it: other blocks' statistics
    if (consumers_any(ctx.failed)) return true;
    item_values(ctx, kv, item.n);
    consumers_sync();
    SPENT(ARITHMETIC);
    if (blocks == 1)
        item_put_only(ctx, item, tag_merge);
    else
        item_put(ctx, item, tag);
    return false;
}

// The stages ATTN_SCORES (quantized caches only) and ATTN.
static __device__ __forceinline__ bool stage_attention(md_ctx &ctx, u32 layer, bool scores_only, u32 tag_qkv, u32 tag_scores, u32 tag,
                                                       u32 tag_merge) {
    bool worked = false;
    u32 left = 1; // columns of which the CTA has items, a bit each
    if (COLUMNS > 1) {
        copies_wait();
        __syncwarp();
        left = columns_of(ctx, [&](uint4 place, u32 c) { return place.x < place.y && (!scores_only || layer_cache(ctx, c, layer).bits); });
    }
#pragma unroll 1
    while (left) {
        const u32 c = COLUMNS == 1 ? 0 : __ffs(left) - 1;
        left &= left - 1;
        const md_kv_layer &kv = layer_cache(ctx, c, layer);
        if (scores_only && !kv.bits) continue;
        const uint4 place = place_noted(ctx, c);
        const u32 blocks = place.w;
#pragma unroll 1
        for (u32 i = place.x; i < place.y; i += ctx.p->groups) {
            md_item item = item_of(ctx, c, i, place.z);
            SPENT(SETUP);
            bool failed = kv.bits ? item_quantized(ctx, kv, item, blocks, scores_only, tag_qkv, tag_scores, tag, tag_merge)
                                  : item_bf16(ctx, kv, item, blocks, tag_qkv, tag, tag_merge);
            if (failed) return true;
            SPENT(OUT);
            worked = true;
        }
    }
    if (worked) consumers_sync();
    if (!scores_only && layer + 1 < LAYERS) caches_ask(ctx, layer + 1);
    return false;
}
