// Attention over a block of a bf16 cache, on tensor cores. Scores: the queries of 8 heads are the rows of A, 8 positions
// the columns of B, one warp each; keys go from the cache straight to registers, asked for before the queries have come.
// Outputs: A is the probabilities, each as two bf16 numbers whose sum has 16 significant bits (rows 0..7 and 8..15 of A),
// B the values from shared memory, a warp for 16 dimensions. A product with a column of ones gives the sum of the
// probabilities.

#define KEY_CHUNKS (HEAD_DIM / 32)
#define HAS_KEY_TAIL (HEAD_DIM % 32 != 0)

// A warp takes every CONSUMER_WARPS-th tile of 8 positions.
#define KEY_TILES (ATTN_ROWS / 8 / CONSUMER_WARPS)
static_assert(ATTN_ROWS / 8 % CONSUMER_WARPS == 0, "the warps share the tiles");

// The key of the lane's position (tile * 8 + lane / 4): dimensions 32 j + 8 t .. + 7, and of a tail of 16 four.
struct md_keys {
    uint4 chunk[KEY_CHUNKS ? KEY_CHUNKS : 1];
    uint2 tail;
};
static __device__ __forceinline__ void keys_load(md_keys &keys, const u16 *row, u32 t, bool shared_memory) {
#pragma unroll
    for (u32 j = 0; j < KEY_CHUNKS; j++) {
        const uint4 *at = (const uint4 *)(row + 32 * j + 8 * t);
        keys.chunk[j] = shared_memory ? *at : __ldcg(at);
    }
    if (!HAS_KEY_TAIL) return;
    const uint2 *at = (const uint2 *)(row + 32 * KEY_CHUNKS + 4 * t);
    keys.tail = shared_memory ? *at : __ldcg(at);
}

// Asks for the cached rows of an item: its keys to registers, its values to shared memory. Rows
// past the end up to a multiple of 16 are zeros, since they meet probabilities of zero.
static __device__ __forceinline__ void rows_ask(const md_ctx &ctx, const md_kv_layer &kv, const md_item &item, u32 cached, md_keys (&keys)[KEY_TILES]) {
    const u64 at = ((u64)item.head * kv.context + item.block * ATTN_ROWS) * HEAD_DIM;
#pragma unroll
    for (u32 k = 0; k < KEY_TILES; k++) {
        u32 position = (k * CONSUMER_WARPS + ctx.warp) * 8 + (ctx.lane >> 2);
        keys[k] = md_keys{};
        if (position < cached) keys_load(keys[k], (const u16 *)kv.k + at + position * HEAD_DIM, ctx.lane & 3, false);
    }
    constexpr u32 units = HEAD_DIM * 2 / UNIT, rows = CONSUMERS / units; // of a row; rows a pass, where they are whole ones
    const u8 *from = (const u8 *)((const u16 *)kv.v + at);
    if (CONSUMERS % units) {
#pragma unroll 1
        for (u32 i = ctx.tid; i < cached * units; i += CONSUMERS)
            copy16_async(ctx.smem + md_map::v + i / units * V_STRIDE + i % units * UNIT, from + i * UNIT);
    } else { // from two addresses: one that changed would have to wait for the copy before
        const u32 row = ctx.tid / units, to = ctx.smem + md_map::v + row * V_STRIDE + ctx.tid % units * UNIT;
#pragma unroll
        for (u32 pass = 0; pass < ATTN_ROWS / rows; pass++)
            if (row + pass * rows < cached) copy16_async(to + pass * (rows * V_STRIDE), from + ctx.tid * UNIT + pass * (CONSUMERS * UNIT));
    }
#pragma unroll
    for (u32 i0 = 0; i0 < 15 * units; i0 += CONSUMERS) {
        const u32 i = i0 + ctx.tid, row = item.n + i / units;
        if (row < (item.n + 15) / 16 * 16) *(uint4 *)(SH_V + row * V_STRIDE + i % units * UNIT) = make_uint4(0, 0, 0, 0);
    }
}

// Queries, and with `own` the token's key and value, from the exchange to shared memory: PART_BATCH entries a lane at a
// time, the first of which are asked for before everything else.
#define PART_BATCH smaller(((REP + 2) * PARTS_A_HEAD + CONSUMERS - 1) / CONSUMERS, 4)
struct md_parts {
    uint4 v[PART_BATCH];
    const uint4 *at[PART_BATCH];
    u32 to[PART_BATCH]; // where their values go
};
static __device__ __forceinline__ u32 parts_of(const md_item &item) { return (item.own ? REP + 2 : REP) * PARTS_A_HEAD; }
static __device__ __forceinline__ void parts_ask(const md_ctx &ctx, const md_item &item, u32 tag, u32 base, md_parts &parts) {
    const u32 count = parts_of(item);
#pragma unroll
    for (u32 k = 0; k < PART_BATCH; k++) {
        const md_part part = part_of(ctx.p, item, base + k * CONSUMERS);
        const u32 area = part.h < REP ? md_map::queries + part.h * QUERY_STRIDE : part.h == REP ? md_map::own_key : md_map::v + (item.n - 1) * V_STRIDE;
        parts.at[k] = part.at, parts.to[k] = ctx.smem + area + 2 * part.dim;
    }
    ask_entries<PART_BATCH>(parts.v, tag, [&](u32 k) { return parts.at[k]; }, [&](u32 k) { return base + k * CONSUMERS < count; });
}
static __device__ __forceinline__ void parts_load(md_ctx &ctx, const md_item &item, u32 tag, md_parts &parts) {
    const u32 count = parts_of(item);
    constexpr bool at_once = (REP + 2) * PARTS_A_HEAD <= PART_BATCH * CONSUMERS;
#pragma unroll 1
    for (u32 base = ctx.tid; base - ctx.lane < count; base += PART_BATCH * CONSUMERS) {
        if (!at_once && base != ctx.tid) parts_ask(ctx, item, tag, base, parts);
        wait_asked<PART_BATCH, true>(ctx, parts.v, tag, [&](u32 k) { return parts.at[k]; });
#pragma unroll
        for (u32 k = 0; k < PART_BATCH; k++)
            if (base + k * CONSUMERS < count) at_shared<uint2>(parts.to[k]) = make_uint2(parts.v[k].x, parts.v[k].y);
        if (at_once) break;
    }
}

// A lane's scores of head g of a set by positions 2 t, 2 t + 1 of each of the warp's tiles.
struct md_scores {
    float2 s[HEAD_SETS][KEY_TILES];
};
static __device__ __forceinline__ u32 tile_of(const md_ctx &ctx, u32 k) { return k * CONSUMER_WARPS + ctx.warp; }

// The scores of the warp's tiles; their maxima to SH_TILE_MAX. Positions from item.n on have none.
static __device__ __forceinline__ void tiles_score(const md_ctx &ctx, const md_item &item, md_keys (&keys)[KEY_TILES], const u8 *queries, md_scores &scores) {
    const u32 g = ctx.lane >> 2, t = ctx.lane & 3;
#pragma unroll
    for (u32 k = 0; k < KEY_TILES; k++)
        if (item.own && tile_of(ctx, k) * 8 + g == item.n - 1) keys_load(keys[k], (const u16 *)SH_OWN_KEY, t, true);
    __syncwarp();
#pragma unroll
    for (u32 set = 0; set < HEAD_SETS; set++) {
        const u16 *q = (const u16 *)(queries + (set * 8 + g) * QUERY_STRIDE);
        float d[KEY_TILES][2][4] = {}; // two chains each
#pragma unroll
        for (u32 j = 0; j < KEY_CHUNKS; j++) {
            const uint4 a = *(const uint4 *)(q + 32 * j + 8 * t);
#pragma unroll
            for (u32 k = 0; k < KEY_TILES; k++) {
                mma(d[k][0], a.x, 0, a.y, 0, keys[k].chunk[j].x, keys[k].chunk[j].y);
                mma(d[k][1], a.z, 0, a.w, 0, keys[k].chunk[j].z, keys[k].chunk[j].w);
            }
        }
        if (HAS_KEY_TAIL) {
            const uint2 a = *(const uint2 *)(q + 32 * KEY_CHUNKS + 4 * t);
#pragma unroll
            for (u32 k = 0; k < KEY_TILES; k++) mma(d[k][0], a.x, 0, a.y, 0, keys[k].tail.x, keys[k].tail.y);
        }
        float m[KEY_TILES];
#pragma unroll
        for (u32 k = 0; k < KEY_TILES; k++) {
            const u32 position = tile_of(ctx, k) * 8 + 2 * t;
            float2 &s = scores.s[set][k];
            s.x = position < item.n ? (d[k][0][0] + d[k][1][0]) * ATTN_SCALE : -INFINITY;
            s.y = position + 1 < item.n ? (d[k][0][1] + d[k][1][1]) * ATTN_SCALE : -INFINITY;
            m[k] = fmaxf(s.x, s.y);
            m[k] = fmaxf(m[k], __shfl_xor_sync(~0u, m[k], 1));
        }
#pragma unroll
        for (u32 k = 0; k < KEY_TILES; k++) {
            m[k] = fmaxf(m[k], __shfl_xor_sync(~0u, m[k], 2));
            if (t == 0) SH_TILE_MAX[(set * 8 + g) * (ATTN_ROWS / 8) + tile_of(ctx, k)] = m[k];
        }
    }
}

// exp(score - maximum) as two bf16 numbers to SH_PROBS, once all maxima are there.
static __device__ __forceinline__ void probabilities(const md_ctx &ctx, const md_scores &scores) {
    const u32 g = ctx.lane >> 2, t = ctx.lane & 3;
#pragma unroll
    for (u32 set = 0; set < HEAD_SETS; set++) {
        const u32 h = set * 8 + g;
        float m = -INFINITY;
#pragma unroll
        for (u32 k = 0; k < ATTN_ROWS / 32; k++) {
            const float4 v = ((const float4 *)(SH_TILE_MAX + h * (ATTN_ROWS / 8)))[k];
            m = fmaxf(m, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
        }
#pragma unroll
        for (u32 k = 0; k < KEY_TILES; k++) {
            const float2 s = scores.s[set][k];
            const float e0 = exp_near(s.x - m), e1 = exp_near(s.y - m);
            const u32 high = bf_pair(e0, e1), low = bf_pair(e0 - bf_lo(high), e1 - bf_hi(high));
            u8 *to = SH_PROBS + h * PROB_STRIDE + 4 * (tile_of(ctx, k) * 4 + t);
            *(u32 *)to = high;
            *(u32 *)(to + HEAD_SETS * 8 * PROB_STRIDE) = low;
        }
        if (ctx.warp == 0 && t == 0 && h < REP) SH_OUT[h * OUT_STRIDE + HEAD_DIM] = m;
    }
}

// Four matrices of 8 rows of 16 bytes, of which each lane gives one row's address; as operands of products, as they lie or
// transposed.
static __device__ __forceinline__ void matrices_load(u32 (&m)[4], const u8 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_address(row))
                 : "memory");
}
static __device__ __forceinline__ void matrices_load_transposed(u32 (&m)[4], const u8 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Zeros in place of positions from `n` on.
static __device__ __forceinline__ void values_cut(u32 (&b)[4], u32 n, u32 lane) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 position = 2 * (lane & 3) + i % 2 * 8;
        if (position >= n) b[i] = 0;
        if (position + 1 >= n) b[i] &= 0xffffu;
    }
}

// Probabilities times 16 dimensions of the values for 8 heads: o[0], o[1] of dimensions 2 t, 2 t + 1, o[2], o[3] of
// 8 + 2 t, 9 + 2 t of head g, and the sum of the head's probabilities. CUT: behind the item's rows stand values of others.
// AT_ONCE steps' reads come before their products; even, since the chains are those of even and odd steps.
template <bool CUT = false, u32 AT_ONCE = PRODUCER_WARPS == 4 ? ATTN_ROWS / 16 : 4>
static __device__ __forceinline__ void tile_values(const md_item &item, u32 set, u32 tile, u32 lane, float (&o)[4], float *l) {
    const u8 *probs = SH_PROBS + ((lane >> 3 & 1) * HEAD_SETS * 8 + set * 8 + (lane & 7)) * PROB_STRIDE + (lane >> 4) * 16; // high, low
    const u8 *values = SH_V + ((lane & 7) + (lane >> 3 & 1) * 8) * V_STRIDE + (lane >> 4) * 16 + tile * 32;
    const u32 ones = 0x3f803f80u, steps = (item.n + 15) / 16;
    float a[2][4] = {}, b[2][4] = {}, sum[2][4] = {}; // two chains each
#pragma unroll 1
    for (u32 s0 = 0; s0 < steps; s0 += AT_ONCE) {
        u32 v[AT_ONCE][4], p[AT_ONCE][4];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
            const u32 s = s0 + k;
#pragma unroll
            for (u32 i = 0; i < 4; i++) v[k][i] = p[k][i] = 0;
            if (s >= steps) continue;
            matrices_load_transposed(v[k], values + s * 16 * V_STRIDE);
            if (CUT && s + 1 == steps) values_cut(v[k], item.n - s * 16, lane);
            matrices_load(p[k], probs + 32 * s);
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
            if (k && k % 2 == 0 && s0 + k >= steps) break;
            mma(a[k % 2], p[k][0], p[k][1], p[k][2], p[k][3], v[k][0], v[k][1]);
            mma(b[k % 2], p[k][0], p[k][1], p[k][2], p[k][3], v[k][2], v[k][3]);
            mma(sum[k % 2], p[k][0], p[k][1], p[k][2], p[k][3], ones, ones);
        }
    }
    o[0] = (a[0][0] + a[1][0]) + (a[0][2] + a[1][2]), o[1] = (a[0][1] + a[1][1]) + (a[0][3] + a[1][3]);
    o[2] = (b[0][0] + b[1][0]) + (b[0][2] + b[1][2]), o[3] = (b[0][1] + b[1][1]) + (b[0][3] + b[1][3]);
    *l = (sum[0][0] + sum[1][0]) + (sum[0][2] + sum[1][2]);
}

// 16 dimensions of 8 heads leave as entries of four values. Of the four lanes t that hold a head's tile, an even one puts the
// first pair of its own and of its neighbour's, an odd one the second ones: which of the tile's entries that is.
static __device__ __forceinline__ u32 tile_entry(u32 t) { return t / 2 + t % 2 * 2; }

// The output of a sequence of one block, to the exchange.
static __device__ __forceinline__ void tile_put(md_ctx &ctx, const md_item &item, u32 set, u32 tile, const float (&o)[4], float l, u32 tag) {
    const u32 t = ctx.lane & 3, odd = t & 1, h = set * 8 + (ctx.lane >> 2);
    const float scale = reciprocal(l);
    const u32 first = bf_pair(o[0] * scale, o[1] * scale), second = bf_pair(o[2] * scale, o[3] * scale);
    const u32 other = __shfl_xor_sync(~0u, odd ? first : second, 1);
    if (h < REP)
        put_entry(ctx, entry_of(ctx.p, VECTOR_ATTN, T_ATTN, item.c, (item.head * REP + h) * (HEAD_DIM / 16) + tile, tile_entry(t)),
                  odd ? other : first, odd ? second : other, 0, tag);
}

// One of several blocks' output, and with its first tile the head's statistics.
static __device__ __forceinline__ void tile_put_partial(md_ctx &ctx, const md_item &item, u32 set, u32 tile, const float (&o)[4], float l, u32 tag) {
    const u32 t = ctx.lane & 3, odd = t & 1, h = set * 8 + (ctx.lane >> 2);
    const float a = __shfl_xor_sync(~0u, odd ? o[0] : o[2], 1), b = __shfl_xor_sync(~0u, odd ? o[1] : o[3], 1);
    if (h >= REP) return;
    partial_put(ctx, partial_entry(ctx.p, item.c, item.head * REP + h, item.block, tile * 4 + tile_entry(t)),
                odd ? make_float4(a, b, o[2], o[3]) : make_float4(o[0], o[1], a, b), tag);
    if (tile == 0 && t == 0) partial_put_stats(ctx, item, h, SH_OUT[h * OUT_STRIDE + HEAD_DIM], l, tag);
}

// The token's own key and value to the cache.
static __device__ __forceinline__ void own_append(const md_ctx &ctx, const md_kv_layer &kv, const md_item &item) {
    u64 at = ((u64)item.head * kv.context + item.block * ATTN_ROWS + item.n - 1) * HEAD_DIM;
    for (u32 i = ctx.tid; i < HEAD_DIM; i += CONSUMERS) { // pairs of values, keys then values
        bool value = i >= HEAD_DIM / 2;
        u32 pair = value ? i - HEAD_DIM / 2 : i;
        ((u32 *)((u16 *)(value ? kv.v : kv.k) + at))[pair] = ((const u32 *)(value ? SH_V + (item.n - 1) * V_STRIDE : SH_OWN_KEY))[pair];
    }
}

// An item, whole; `blocks` is the number of the column's blocks: of one, the output leaves at once. True when someone
// failed.
static __device__ __forceinline__ bool item_bf16(md_ctx &ctx, const md_kv_layer &kv, const md_item &item, u32 blocks, u32 tag_qkv, u32 tag,
                                                 u32 tag_merge) {
    md_keys keys[KEY_TILES];
    md_parts parts;
    md_scores scores;
    parts_ask(ctx, item, tag_qkv, ctx.tid, parts);
    consumers_sync(); // the work area is free: of the last stage, or the last item
    rows_ask(ctx, kv, item, item.own ? item.n - 1 : item.n, keys);
    parts_load(ctx, item, tag_qkv, parts);
    SPENT(HANDOFF);
    failure_note(ctx);
    consumers_sync();
    tiles_score(ctx, item, keys, SH_QUERIES, scores);
    copies_wait();
    consumers_sync();
    if (failure_seen(ctx)) return true;
    probabilities(ctx, scores);
    consumers_sync();
    const bool only = blocks == 1;
#pragma unroll 1
    for (u32 unit = ctx.warp; unit < HEAD_SETS * (HEAD_DIM / 16); unit += CONSUMER_WARPS) {
        const u32 set = unit / (HEAD_DIM / 16), tile = unit % (HEAD_DIM / 16);
        float o[4], l;
        tile_values(item, set, tile, ctx.lane, o, &l);
        if (only)
            tile_put(ctx, item, set, tile, o, l, tag_merge);
        else
            tile_put_partial(ctx, item, set, tile, o, l, tag);
    }
    SPENT(ARITHMETIC);
    if (item.own) own_append(ctx, kv, item);
    return false;
}
