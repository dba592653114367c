// Attention. A cache is cut into blocks of ATTN_ROWS positions counted from 0, whatever its length and however many CTAs
// there are; block b of kv head h belongs to the CTA (home + b * KV_HEADS + h) mod G, which alone reads and writes it, so
// that no cache entry ever passes between CTAs of one launch. An item is one (column, kv head, block) with all query
// heads of the kv head. docs/MODEL.md has the formulas; a block's partial is {m, l, o[HEAD_DIM]}.

static __device__ __forceinline__ uint4 *stats_entry(const md_params *p, u32 c, u32 head, u32 block) {
    return (uint4 *)p->stats + ((u64)c * Q_HEADS + head) * p->blocks + block;
}
static __device__ __forceinline__ uint4 *partial_entry(const md_params *p, u32 c, u32 head, u32 block, u32 e) {
    return (uint4 *)p->partials + (((u64)c * Q_HEADS + head) * p->blocks + block) * PARTIAL_ENTRIES + e;
}
// Where the cache of a column's layer lies; constant during a launch.
static __device__ __forceinline__ const md_kv_layer &layer_cache(const md_params *p, u32 c, u32 layer) {
    return COLUMNS == 1 ? SH_CACHES[layer] : ((const md_kv_layer *)p->col[c].kv)[layer];
}
static __device__ __forceinline__ u32 first_item(const md_ctx &ctx, u32 home) {
    u32 groups = ctx.p->groups;
    return (ctx.cta + groups - home % groups) % groups;
}

// A group of the token's own key or value as md_affine_quantize (src/model/quant.c) does it, by one warp.
static __device__ void quantize_group(const float *values, u32 bits, u32 group, u8 *codes, u32 *scale_bias, u32 lane) {
    const float top = (float)((1u << bits) - 1u);
    float low = values[lane], high = low;
#pragma unroll 1
    for (u32 i = lane; i < group; i += 32) low = fminf(low, values[i]), high = fmaxf(high, values[i]);
    low = -warp_max(-low), high = warp_max(high);
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
    if (lane == 0) *scale_bias = bf_bits(scale) | bf_bits(bias) << 16;
}

// The two halves of a cached head, quantized or copied: row[0] = key, row[1] = value, at `position`.
static __device__ __forceinline__ void cache_store(const md_kv_layer &kv, u32 head, u32 position, const float *row, u32 warp, u32 lane) {
    u64 at = (u64)head * kv.context + position;
    if (!kv.bits) {
#pragma unroll 1
        for (u32 i = warp * 32 + lane; i < HEAD_DIM; i += CONSUMERS) // i: pair of values, keys then values
            ((u32 *)(i < HEAD_DIM / 2 ? kv.k : kv.v))[at * (HEAD_DIM / 2) + i % (HEAD_DIM / 2)] =
                bf_pair(row[2 * i], row[2 * i + 1]);
        return;
    }
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

// The token's own key and value of a kv head, exchanged by the CTAs that computed them, to SH_ROW.
static __device__ __forceinline__ void own_row_load(md_ctx &ctx, u32 c, u32 head, u32 tag) {
    const u32 tiles = HEAD_DIM / 16;
#pragma unroll 1
    for (u32 i = ctx.tid; i < 2 * tiles * 3; i += CONSUMERS) {
        bool value = i >= tiles * 3;
        u32 j = value ? i - tiles * 3 : i, tile = j / 3, e = j % 3;
        uint4 entry = wait_entry(ctx, entry_of(ctx.p, value ? VECTOR_V : VECTOR_K, value ? T_V : T_K, c, head * tiles + tile, e), tag);
        u32 words[3] = {entry.x, entry.y, entry.z};
#pragma unroll
        for (u32 slot = 0; slot < 6; slot++) {
            u32 r = 6 * e + slot;
            if (r >= 16) continue;
            u32 d = value ? tile * 16 + r : tile * 8 + (r & 7) + (r >> 3) * (HEAD_DIM / 2);
            SH_ROW[(value ? HEAD_DIM : 0) + d] = slot & 1 ? bf_hi(words[slot / 2]) : bf_lo(words[slot / 2]);
        }
    }
}

// Copies rows [0, n) of a block to shared memory as they are stored; whoever reads them waits (copies_wait, barrier).
static __device__ __forceinline__ void rows_load(const md_ctx &ctx, const md_kv_layer &kv, u64 at, u32 n, bool values,
                                                 u32 first) {
    u8 *to = (values ? SH_V : SH_K) + first * K_STRIDE;
    u32 *scales = (values ? SH_V_SCALES : SH_K_SCALES) + first * (HEAD_DIM / 32);
    u32 units = (kv.bits ? HEAD_DIM * kv.bits / 8 : HEAD_DIM * 2) / UNIT; // a row: head_dim is a multiple of 16, bits >= 4
    const u8 *from = (const u8 *)(values ? kv.v : kv.k) + at * units * UNIT;
    if (kv.bits == 4 && HEAD_DIM % 32) { // half units
#pragma unroll 1
        for (u32 i = ctx.tid; i < n * (HEAD_DIM / 16); i += CONSUMERS)
            *(u64 *)(to + i / (HEAD_DIM / 16) * K_STRIDE + i % (HEAD_DIM / 16) * 8) =
                __ldcg((const unsigned long long *)((values ? kv.v : kv.k) + at * (HEAD_DIM / 2)) + i);
    } else {
#pragma unroll 1
        for (u32 i = ctx.tid; i < n * units; i += CONSUMERS)
            copy16_async(to + i / units * K_STRIDE + i % units * UNIT, from + i * UNIT);
    }
    if (!kv.bits) return;
    u32 groups = HEAD_DIM / kv.group;
    const u32 *sb = (const u32 *)(values ? kv.v_scales : kv.k_scales) + at * groups;
#pragma unroll 1
    for (u32 i = ctx.tid; i < n * groups; i += CONSUMERS) scales[i / groups * (HEAD_DIM / 32) + i % groups] = __ldcg(sb + i);
}

// Values 2i and 2i + 1 of a row in shared memory.
static __device__ __forceinline__ float2 row_pair(const u8 *row, const u32 *scales, u32 bits, u32 group, u32 i) {
    if (!bits) {
        u32 v = ((const u32 *)row)[i];
        return make_float2(bf_lo(v), bf_hi(v));
    }
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

// The queries of a kv head to shared memory (times the scale, rounded, for a quantized cache).
static __device__ __forceinline__ void queries_load(md_ctx &ctx, u32 c, u32 kv_head, u32 tag, bool scaled) {
    const u32 tiles = HEAD_DIM / 16;
#pragma unroll 1
    for (u32 i = ctx.tid; i < REP * tiles * 3; i += CONSUMERS) {
        u32 h = i / (tiles * 3), j = i % (tiles * 3), tile = j / 3, e = j % 3;
        uint4 entry = wait_entry(ctx, entry_of(ctx.p, VECTOR_Q, T_Q, c, (kv_head * REP + h) * tiles + tile, e), tag);
        u32 words[3] = {entry.x, entry.y, entry.z};
#pragma unroll
        for (u32 slot = 0; slot < 6; slot++) {
            u32 r = 6 * e + slot;
            if (r >= 16) continue;
            float q = slot & 1 ? bf_hi(words[slot / 2]) : bf_lo(words[slot / 2]);
            SH_Q[h * Q_STRIDE + tile * 8 + (r & 7) + (r >> 3) * (HEAD_DIM / 2)] = scaled ? bf(q * bf(ATTN_SCALE)) : q;
        }
    }
}

// An item: a block of a column's positions for one kv head.
struct md_item {
    u32 c, head, block;
    u32 n;    // its rows up to the token's own
    bool own; // its last row is the token's own
};
static __device__ __forceinline__ md_item item_of(const md_ctx &ctx, u32 c, u32 i, u32 length) {
    md_item item;
    item.c = c, item.head = i % KV_HEADS, item.block = i / KV_HEADS;
    item.n = min(length - item.block * ATTN_ROWS, (u32)ATTN_ROWS);
    item.own = (item.block + 1) * ATTN_ROWS >= length;
    return item;
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
            if (own) own_row_load(ctx, item.c, item.head, tag_q);
            queries_load(ctx, item.c, item.head, tag_q, kv.bits != 0);
        }
        copies_wait();
        if (consumers_any(ctx.failed)) return true;
        if (!own || again) break;
        cache_store(kv, item.head, position, SH_ROW, ctx.warp, ctx.lane);
        if (!kv.bits)
#pragma unroll 1
            for (u32 d = ctx.tid; d < 2 * HEAD_DIM; d += CONSUMERS) // K, then V
                *(u16 *)((d < HEAD_DIM ? SH_K : SH_V) + (n - 1) * K_STRIDE + d % HEAD_DIM * 2) = (u16)bf_bits(SH_ROW[d]);
        consumers_sync();
        from = n - 1, until = n;
        again = kv.bits != 0; // a quantized row is read back as it was stored
    } while (again);
#pragma unroll 1
    for (u32 i = ctx.tid; i < REP * ATTN_ROWS; i += CONSUMERS) {
        u32 h = i % REP, j = i / REP;
        if (j >= n) continue;
        const u8 *row = SH_K + j * K_STRIDE;
        const float *q = SH_Q + h * Q_STRIDE;
        float sum[4] = {0, 0, 0, 0};
        if (!kv.bits) {
#pragma unroll 4
            for (u32 d = 0; d < HEAD_DIM; d += 8) {
                uint4 k = *(const uint4 *)(row + 2 * d);
                float4 a = *(const float4 *)(q + d), b = *(const float4 *)(q + d + 4);
                sum[0] = fmaf(a.x, bf_lo(k.x), sum[0]), sum[1] = fmaf(a.y, bf_hi(k.x), sum[1]);
                sum[2] = fmaf(a.z, bf_lo(k.y), sum[2]), sum[3] = fmaf(a.w, bf_hi(k.y), sum[3]);
                sum[0] = fmaf(b.x, bf_lo(k.z), sum[0]), sum[1] = fmaf(b.y, bf_hi(k.z), sum[1]);
                sum[2] = fmaf(b.z, bf_lo(k.w), sum[2]), sum[3] = fmaf(b.w, bf_hi(k.w), sum[3]);
            }
        } else {
#pragma unroll 8
            for (u32 d = 0; d < HEAD_DIM; d += 2) {
                float2 k = row_pair(row, SH_K_SCALES + j * (HEAD_DIM / 32), kv.bits, kv.group, d / 2);
                sum[d & 2] = fmaf(q[d], k.x, sum[d & 2]), sum[(d & 2) + 1] = fmaf(q[d + 1], k.y, sum[(d & 2) + 1]);
            }
        }
        float s = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        SH_SCORES[h * S_STRIDE + j] = kv.bits ? bf(s) : s * ATTN_SCALE;
    }
    consumers_sync();
    return false;
}

// {m, l} of a head's scores by one warp; scores become exp(s - m) when `replace`.
static __device__ __forceinline__ float2 block_softmax(float *scores, u32 n, u32 lane, bool replace) {
    float m = -INFINITY, l = 0;
#pragma unroll 1
    for (u32 j = lane; j < n; j += 32) m = fmaxf(m, scores[j]);
    m = warp_max(m);
#pragma unroll 1
    for (u32 j = lane; j < n; j += 32) {
        float e = exp_own(scores[j] - m);
        l += e;
        if (replace) scores[j] = e;
    }
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

// The item's scores to probabilities: of its block alone (bf16 cache; {m, l} beside them), or of the whole row, rounded
// (quantized cache: the blocks' outputs are then simply added).
static __device__ __forceinline__ void item_probabilities(md_ctx &ctx, const md_kv_layer &kv, const md_item &item, u32 blocks, u32 tag_scores) {
#pragma unroll 1
    for (u32 h = ctx.warp; h < REP; h += CONSUMER_WARPS) {
        float *scores = SH_SCORES + h * S_STRIDE, *out = SH_OUT + h * 3 * PARTIAL_ENTRIES;
        float2 ml;
        if (!kv.bits) {
            ml = block_softmax(scores, item.n, ctx.lane, true);
        } else {
            ml = row_stats(ctx, item.c, item.head * REP + h, blocks, tag_scores);
            float scale = 1.0f / ml.y;
#pragma unroll 1
            for (u32 j = ctx.lane; j < item.n; j += 32) scores[j] = bf(exp_own(scores[j] - ml.x) * scale);
            ml = make_float2(0.0f, item.block == 0 ? 1.0f : 0.0f);
        }
        if (ctx.lane == 0) out[0] = ml.x, out[1] = ml.y;
        if (ctx.lane + HEAD_DIM + 2 < 3 * PARTIAL_ENTRIES) out[HEAD_DIM + 2 + ctx.lane] = 0; // what fills the last entry
    }
}

// Probabilities times values to SH_OUT.
static __device__ __forceinline__ void item_values(const md_ctx &ctx, const md_kv_layer &kv, u32 n) {
#pragma unroll 1
    for (u32 k = ctx.tid; k < REP * (HEAD_DIM / 2); k += CONSUMERS) {
        u32 h = k / (HEAD_DIM / 2), pair = k % (HEAD_DIM / 2);
        const float *prob = SH_SCORES + h * S_STRIDE;
        float a = 0, b = 0;
        if (!kv.bits) {
#pragma unroll 8
            for (u32 j = 0; j < n; j++) {
                u32 v = *(const u32 *)(SH_V + j * K_STRIDE + pair * 4);
                a = fmaf(prob[j], bf_lo(v), a), b = fmaf(prob[j], bf_hi(v), b);
            }
        } else {
#pragma unroll 4
            for (u32 j = 0; j < n; j++) {
                float2 v = row_pair(SH_V + j * K_STRIDE, SH_V_SCALES + j * (HEAD_DIM / 32), kv.bits, kv.group, pair);
                a = fmaf(prob[j], v.x, a), b = fmaf(prob[j], v.y, b);
            }
        }
        SH_OUT[h * 3 * PARTIAL_ENTRIES + 2 + 2 * pair] = a;
        SH_OUT[h * 3 * PARTIAL_ENTRIES + 3 + 2 * pair] = b;
    }
}

// An item's output as partials; of a sequence that has one block only, the output itself (the merge of one is o / l).
static __device__ __forceinline__ void item_put(md_ctx &ctx, const md_item &item, u32 blocks, u32 tag, u32 tag_merge) {
    if (blocks == 1) {
#pragma unroll 1
        for (u32 k = ctx.warp * 32; k < REP * HEAD_DIM; k += CONSUMERS) { // whole warps: put_tile shuffles
            u32 at = k + ctx.lane, h = at / HEAD_DIM, d = at % HEAD_DIM;
            bool valid = at < REP * HEAD_DIM;
            const float *o = SH_OUT + (valid ? h : 0) * 3 * PARTIAL_ENTRIES;
            put_tile(ctx, entry_of(ctx.p, VECTOR_ATTN, T_ATTN, item.c, (item.head * REP * HEAD_DIM + at) / 16, 0),
                     bf_bits(o[2 + d] * reciprocal(o[1])), valid, tag_merge);
        }
        return;
    }
#pragma unroll 1
    for (u32 k = ctx.tid; k < REP * PARTIAL_ENTRIES; k += CONSUMERS) {
        u32 h = k / PARTIAL_ENTRIES, e = k % PARTIAL_ENTRIES;
        const float *o = SH_OUT + h * 3 * PARTIAL_ENTRIES + 3 * e;
        put_entry(ctx, partial_entry(ctx.p, item.c, item.head * REP + h, item.block, e), __float_as_uint(o[0]), __float_as_uint(o[1]),
                  __float_as_uint(o[2]), tag);
    }
}

// {m, l} of an item's heads: what all blocks' probabilities need when the cache is quantized.
static __device__ __forceinline__ void item_stats(md_ctx &ctx, const md_item &item, u32 tag) {
#pragma unroll 1
    for (u32 h = ctx.warp; h < REP; h += CONSUMER_WARPS) {
        float2 ml = block_softmax(SH_SCORES + h * S_STRIDE, item.n, ctx.lane, false);
        if (ctx.lane == 0)
            put_entry(ctx, stats_entry(ctx.p, item.c, item.head * REP + h, item.block), __float_as_uint(ml.x), __float_as_uint(ml.y), 0, tag);
    }
    consumers_sync();
}

// The stages ATTN_SCORES (quantized caches only) and ATTN. One body: most of it is shared.
static __device__ __forceinline__ bool stage_attention(md_ctx &ctx, u32 layer, bool scores_only, u32 tag_qkv, u32 tag_scores, u32 tag,
                                                       u32 tag_merge) {
    const md_params *p = ctx.p;
    const u32 columns = COLUMNS == 1 ? 1 : p->columns;
#pragma unroll 1
    for (u32 c = 0; c < columns; c++) {
        const md_kv_layer kv = layer_cache(p, c, layer);
        if (scores_only && !kv.bits) continue;
        u32 length = p->col[c].position + ctx.step + 1, blocks = (length + ATTN_ROWS - 1) / ATTN_ROWS;
#pragma unroll 1
        for (u32 i = first_item(ctx, p->col[c].home); i < blocks * KV_HEADS; i += p->groups) {
            md_item item = item_of(ctx, c, i, length);
            MARK(1);
            if (item_scores(ctx, kv, item, tag_qkv, scores_only || !kv.bits, !scores_only)) return true;
            MARK(2);
            if (scores_only) {
                item_stats(ctx, item, tag);
                continue;
            }
            item_probabilities(ctx, kv, item, blocks, tag_scores);
            if (consumers_any(ctx.failed)) return true;
            MARK(3);
            item_values(ctx, kv, item.n);
            consumers_sync();
            MARK(4);
            item_put(ctx, item, blocks, tag, tag_merge);
        }
    }
    return false;
}

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
#pragma unroll 1
    for (u32 item = ctx.cta; item < p->columns * Q_HEADS; item += p->groups) {
        u32 c = item / Q_HEADS, head = item % Q_HEADS;
        u32 blocks = (p->col[c].position + ctx.step) / ATTN_ROWS + 1;
        if (blocks == 1) continue; // done by the attention itself
        if (item != ctx.cta) consumers_sync(); // the last item's sums may still be read
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
    return false;
}
