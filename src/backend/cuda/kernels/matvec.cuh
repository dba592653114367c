// Matrix rows times up to 8 columns. Weights are the A operand (16 rows), activations the B operand (columns), so the
// stream is read once for all columns and a column's sums don't depend on its neighbours.
//
// The columns of K are cut into blocks of 64. A matrix's blocks are split over SPLIT warps in a way fixed by its shape
// alone, so that the sums of a row are the same whoever computes its tile: CONSUMER_WARPS / SPLIT tiles are under way at
// once, and the SPLIT partial sums of a tile meet in shared memory and are added in order.
//
// Codes are multiplied exactly: a nibble q becomes the bf16 128 + q (or 2048 + 16 q for the high nibbles of 8-bit codes)
// by one lop3 for two, and the offset leaves again through the sum of the group's activations.

// A lane's activations of one block: B operands of its four products, and their sums a set of scales for the lane's two
// columns of D (one where there is only one column).
struct md_acts {
    u32 b[8];
    float sum[SETS_MAX][2];
};

static __device__ __forceinline__ void acts_load(md_acts &x, u32 block, u32 lane, u32 columns) {
    u32 column = lane >> 2, t = lane & 3;
    if (column >= columns) column = 0; // its results are not used
    const uint4 *at = (const uint4 *)(SH_XS + column * XSTRIDE + block * 64 + 8 * t);
    uint4 lo = at[0], hi = at[4];
    x.b[0] = lo.x, x.b[1] = lo.y, x.b[2] = lo.z, x.b[3] = lo.w;
    x.b[4] = hi.x, x.b[5] = hi.y, x.b[6] = hi.z, x.b[7] = hi.w;
#pragma unroll
    for (u32 set = 0; set < SETS_MAX; set++) {
        const float *sums = SH_XSUMS + (block * SETS_MAX + set) * COLUMNS;
        x.sum[set][0] = sums[COLUMNS == 1 ? 0 : (2 * t) % COLUMNS];
        x.sum[set][1] = sums[COLUMNS == 1 ? 0 : (2 * t + 1) % COLUMNS];
    }
}

// {scale of row g, of row g + 8, bias of g, of g + 8}
template <u32 WIDE> static __device__ __forceinline__ void scales_load(float (&sb)[4], const u8 *at, u32 g) {
    if (WIDE) {
        float4 v = ((const float4 *)at)[g];
        sb[0] = v.x, sb[1] = v.y, sb[2] = v.z, sb[3] = v.w;
    } else {
        uint2 v = ((const uint2 *)at)[g];
        sb[0] = bf_lo(v.x), sb[1] = bf_hi(v.x), sb[2] = bf_lo(v.y), sb[3] = bf_hi(v.y);
    }
}

// d += plane of nibbles, products first..last of the block
static __device__ __forceinline__ void mma_nibbles(float (&d)[4], uint4 w, const u32 (&b)[8], u32 magic, u32 first, u32 last) {
    u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        if (j < first || j >= last) continue;
        u32 v = words[j];
        mma(d, nibbles(v, magic), nibbles(v >> 4, magic), nibbles(v >> 8, magic), nibbles(v >> 12, magic), b[2 * j],
            b[2 * j + 1]);
    }
}

// One block of a tile: tot += W * x. tot: rows g and g + 8 by the lane's two columns, {g:c, g:c+1, g+8:c, g+8:c+1}.
template <u32 CELL, u32 WIDE, u32 SETS>
static __device__ __forceinline__ void block_mma(float (&tot)[4], const u8 *block, const md_acts &x, u32 lane) {
    const uint4 *codes = (const uint4 *)block + lane;
    if (CELL > CELL_Q8) {
#pragma unroll
        for (u32 plane = 0; plane < planes_of(CELL); plane++)
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                uint4 a = codes[plane * 128 + j * 32];
                mma(tot, a.x, a.y, a.z, a.w, x.b[2 * j], x.b[2 * j + 1]);
            }
        return;
    }
    uint4 w[2];
    w[0] = codes[0];
    if (CELL == CELL_Q8) w[1] = codes[32];
#pragma unroll
    for (u32 set = 0; set < SETS; set++) {
        constexpr u32 sets = SETS ? SETS : 1;
        float sb[4], sum[2];
        scales_load<WIDE>(sb, block + (code_units(CELL) + set * (WIDE ? 8 : 4)) * UNIT, lane >> 2);
#pragma unroll
        for (u32 i = 0; i < 2; i++) sum[i] = SETS < SETS_MAX ? x.sum[0][i] + x.sum[SETS_MAX - 1][i] : x.sum[set][i];
        u32 first = set * 4 / sets, last = (set + 1) * 4 / sets;
        u32 middle = (first + last) / 2; // two chains of products each: half the latency
        float hi[4] = {0, 0, 0, 0}, hi2[4] = {0, 0, 0, 0}, lo[4] = {0, 0, 0, 0}, lo2[4] = {0, 0, 0, 0};
        if (CELL == CELL_Q8) {
            mma_nibbles(hi, w[0], x.b, 0x45004500u, first, middle);
            mma_nibbles(hi2, w[0], x.b, 0x45004500u, middle, last);
        }
        mma_nibbles(lo, w[CELL == CELL_Q8], x.b, 0x43004300u, first, middle);
        mma_nibbles(lo2, w[CELL == CELL_Q8], x.b, 0x43004300u, middle, last);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (COLUMNS == 1 && i % 2) continue; // the lane's second column repeats the first
            float v = lo[i] + lo2[i];
            if (!EXACT_CODES) v = fmaf(-128.0f, sum[i & 1], v);
            if (CELL == CELL_Q8) v += EXACT_CODES ? hi[i] + hi2[i] : fmaf(-2048.0f, sum[i & 1], hi[i] + hi2[i]);
            tot[i] = fmaf(sb[i / 2], v, tot[i]);
            tot[i] = fmaf(sb[2 + i / 2], sum[i & 1], tot[i]);
        }
    }
}

// A warp's share of one tile: blocks [first, first + count), from `unit` of the stream on.
template <u32 CELL, u32 WIDE, u32 SETS>
static __device__ __forceinline__ void tile_mma(float (&tot)[4], const md_stream &s, u32 unit, u32 first, u32 count, u32 lane,
                                                u32 columns) {
    u32 at = stream_wrap(unit);
#pragma unroll 2
    for (u32 i = 0; i < count; i++) {
        md_acts x;
        acts_load(x, first + i, lane, columns);
        block_mma<CELL, WIDE, SETS>(tot, stream_at(s, at), x, lane);
        at = stream_next(at, block_units(CELL, WIDE, SETS));
    }
}

// Units of one block of each format.
static __constant__ u8 FORMAT_UNITS[] = {
#define FORMAT_SIZE(id, cell, wide, sets) (u8)block_units(cell, wide, sets),
    FORMATS(FORMAT_SIZE)
#undef FORMAT_SIZE
};

// A thread's entry to its place in SH_XS (entries past the vector's end are zeros).
static __device__ __forceinline__ void vector_store(const md_ctx &ctx, uint4 v, u32 c, u32 block, u32 side, u32 e, u32 blocks) {
    if (side >= 2 || block >= blocks) return;
    u32 *to = (u32 *)(SH_XS + c * XSTRIDE + block * 64 + e / 3 * 16 + e % 3 * 6);
    to[0] = v.x, to[1] = v.y;
    if (e % 3 < 2) to[2] = v.z;
}

// The sum of each set of a block, from its 12 entries: an entry, a tile, two tiles, four.
static __device__ __forceinline__ void block_sums(uint4 v, u32 c, u32 block, u32 side, u32 e, u32 blocks) {
    float s = ((bf_lo(v.x) + bf_hi(v.x)) + (bf_lo(v.y) + bf_hi(v.y))) + (bf_lo(v.z) + bf_hi(v.z)); // third entry: z is 0
    float a = __shfl_down_sync(~0u, s, 1), b = __shfl_down_sync(~0u, s, 2);
    s = s + a + b; // lanes 0, 3, 6, 9 of a block
    s += __shfl_down_sync(~0u, s, 3);
    float rest = __shfl_down_sync(~0u, s, 6);
    if (side >= 2 || block >= blocks || e) return;
    float *to = SH_XSUMS + block * SETS_MAX * COLUMNS + c;
    if (SETS_MAX == 1)
        to[0] = s + rest;
    else
        to[0] = s, to[(SETS_MAX - 1) * COLUMNS] = rest;
}

// Brings an input vector to shared memory, normalised where `norm` is given, and the sums of its groups. A warp takes two
// blocks at a time: a block's 12 entries lie in lanes 0..11 and 12..23. True when someone failed.
template <int NC>
static __device__ __forceinline__ bool load_vector(md_ctx &ctx, u32 vector, u32 tiles, u32 blocks, u32 tag, const float *norm) {
    const md_params *p = ctx.p;
    const u32 columns = NC == 1 ? 1 : p->columns;
    const u32 side = ctx.lane / 12, e = ctx.lane % 12; // side 2: idle lanes
    if (norm) // the norm's weights, asked for before the wait
#pragma unroll 1
        for (u32 i = ctx.tid; i < T_X * 4; i += CONSUMERS) copy16_async(SH_NORM + 4 * i, norm + 4 * i);
    if (norm && ctx.lane < NC) SH_PARTS[ctx.lane * CONSUMER_WARPS + ctx.warp] = 0;
    __syncwarp();
    const u32 passes = (blocks + 2 * CONSUMER_WARPS - 1) / (2 * CONSUMER_WARPS), items = passes * columns;
    constexpr u32 BATCH = 2; // loads of a thread under way at once
#pragma unroll 1
    for (u32 i0 = 0; i0 < items; i0 += BATCH) {
        uint4 v[BATCH];
#pragma unroll
        for (u32 k = 0; k < BATCH; k++) {
            u32 i = i0 + k, pass = NC == 1 ? i : i / columns, c = NC == 1 ? 0 : i % columns;
            u32 tile = ((pass * CONSUMER_WARPS + ctx.warp) * 2 + side) * 4 + e / 3;
            if (i < items && side < 2 && tile < tiles) v[k] = load_entry(entry_of(p, vector, tiles, c, tile, e % 3));
        }
#pragma unroll
        for (u32 k = 0; k < BATCH; k++) {
            u32 i = i0 + k, pass = NC == 1 ? i : i / columns, c = NC == 1 ? 0 : i % columns;
            u32 block = (pass * CONSUMER_WARPS + ctx.warp) * 2 + side, tile = block * 4 + e / 3;
            if (i >= items || block - side >= blocks) continue; // the same for the whole warp
            uint4 got = make_uint4(0, 0, 0, 0);
            if (side < 2 && tile < tiles) got = wait_entry_from(ctx, entry_of(p, vector, tiles, c, tile, e % 3), tag, v[k]);
            vector_store(ctx, got, c, block, side, e, blocks);
            if (norm) {
                float sum = fmaf(bf_lo(got.x), bf_lo(got.x), bf_hi(got.x) * bf_hi(got.x));
                sum = fmaf(bf_lo(got.y), bf_lo(got.y), sum), sum = fmaf(bf_hi(got.y), bf_hi(got.y), sum);
                sum = fmaf(bf_lo(got.z), bf_lo(got.z), sum), sum = fmaf(bf_hi(got.z), bf_hi(got.z), sum); // zeros in a third entry
                sum = warp_sum(side < 2 ? sum : 0.0f);
                if (ctx.lane == 0) SH_PARTS[c * CONSUMER_WARPS + ctx.warp] += sum;
            } else {
                block_sums(got, c, block, side, e, blocks);
            }
        }
    }
    if (!norm) return consumers_any(ctx.failed);
    copies_wait();
    if (consumers_any(ctx.failed)) return true;
    MARK(1);
#pragma unroll 1
    for (u32 i = 0; i < items; i++) {
        u32 pass = NC == 1 ? i : i / columns, c = NC == 1 ? 0 : i % columns;
        u32 block = (pass * CONSUMER_WARPS + ctx.warp) * 2 + side, tile = block * 4 + e / 3, at = tile * 16 + e % 3 * 6;
        if (block - side >= blocks) continue;
        float sum = 0;
#pragma unroll
        for (u32 w = 0; w < CONSUMER_WARPS / 4; w++) {
            float4 part = ((const float4 *)(SH_PARTS + c * CONSUMER_WARPS))[w];
            sum += (part.x + part.y) + (part.z + part.w);
        }
        float r = reciprocal_root(fmaf(sum, 1.0f / HIDDEN, NORM_EPS));
        u32 out[3] = {0, 0, 0};
        if (side < 2 && tile < tiles) {
            const u32 *own = (const u32 *)(SH_XS + c * XSTRIDE + at);
#pragma unroll
            for (u32 k = 0; k < 3; k++) {
                if (k == 2 && e % 3 == 2) continue;
                float2 w = *(const float2 *)(SH_NORM + at + 2 * k);
                u32 x = own[k];
                u32 n = bf_pair(bf_lo(x) * r, bf_hi(x) * r);
                out[k] = bf_pair(w.x * bf_lo(n), w.y * bf_hi(n));
            }
        }
        uint4 got = make_uint4(out[0], out[1], out[2], 0);
        vector_store(ctx, got, c, block, side, e, blocks);
        block_sums(got, c, block, side, e, blocks);
    }
    consumers_sync();
    return false;
}

// What a kind of matrix stage looks like. `split` warps share a tile.
struct md_kind {
    u32 blocks, split, split_log2;
    u32 input, tiles_in;
    u32 norm, norm_stride; // where in aux the norm's weights of layer 0 lie, and how far a layer's are apart; ~0: no norm
};

// The partial sums of `tiles` consecutive tiles of this CTA's run, the first at unit `unit`, to SH_RED. `format_of(i)` is
// the format of the i-th. Returns the unit after the last.
template <int NC, typename FormatOf>
static __device__ __forceinline__ u32 tiles_mma(md_ctx &ctx, md_stream &s, const md_kind &kind, u32 first, u32 count,
                                                u32 unit, u32 tiles, u32 columns, FormatOf format_of) {
    const u32 lanes = CONSUMER_WARPS >> kind.split_log2, slot = ctx.warp >> kind.split_log2, k = ctx.warp & (kind.split - 1);
#pragma unroll 1
    for (u32 i = 0; i < tiles; i++) {
        u32 format = format_of(i), block = FORMAT_UNITS[format], begin = unit;
        unit += kind.blocks * block;
        if ((i & (lanes - 1)) != slot) continue;
        u32 at = begin + first * block;
        float tot[4] = {0, 0, 0, 0};
        stream_release(s, at, ctx.lane, ctx.p->deadline_us);
        stream_need(s, at + count * block - 1, ctx.p->deadline_us);
        switch (format) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: tile_mma<cell, wide, sets>(tot, s, at, first, count, ctx.lane, columns); break;
            FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
        }
        stream_release(s, at + count * block, ctx.lane, ctx.p->deadline_us);
        u32 g = ctx.lane >> 2, c = (ctx.lane & 3) * 2;
        float *red = SH_RED + ((i << kind.split_log2) + k) * 16 * NC;
        if (NC == 1) {
            if (c == 0) red[g] = tot[0], red[g + 8] = tot[2];
        } else if (c < NC) {
            *(float2 *)(red + g * NC + c) = make_float2(tot[0], tot[1]);
            *(float2 *)(red + (g + 8) * NC + c) = make_float2(tot[2], tot[3]);
        }
    }
    stream_release(s, unit, ctx.lane, ctx.p->deadline_us);
    return unit;
}

// The sum of a row over the warps that share a tile, in their order.
template <int NC> static __device__ __forceinline__ float row_sum(u32 split, u32 tile, u32 row, u32 column) {
    const float *red = SH_RED + (tile * split * 16 + row) * NC + column;
    float sum = 0;
#pragma unroll 4
    for (u32 k = 0; k < split; k++) sum += red[k * 16 * NC];
    return sum;
}
