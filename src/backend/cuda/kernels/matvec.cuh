// Matrix rows times up to 8 columns. Weights are the A operand (16 rows), activations the B operand (columns), so the
// stream is read once for all columns and a column's sums don't depend on its neighbours.
//
// The columns of K are cut into blocks of 64. A matrix's blocks are split over SPLIT warps in a way fixed by its shape
// alone, so that the sums of a row are the same whoever computes its tile: CONSUMER_WARPS / SPLIT tiles are under way at
// once, and the SPLIT partial sums of a tile meet in shared memory and are added in order.
//
// Codes are multiplied exactly: a nibble q becomes the bf16 128 + q (or 2048 + 16 q for the high nibbles of 8-bit codes)
// by one lop3 for two, and the offset leaves again through the sum of the activations, which one more product with
// ones gives in the layout in which it is needed.

// How a matrix's blocks are stored (src/plan/tile_mma.h): a cell, whether scales are fp32, and the sets of scales a block
// has (0, 1 or 2).
#define CELL_Q4 0
#define CELL_Q8 1
#define CELL_BF16 2
#define CELL_F16 3
#define CELL_F32 4

static __host__ __device__ constexpr u32 planes_of(u32 cell) {
    return cell == CELL_Q8 || cell == CELL_F16 ? 2 : cell == CELL_F32 ? 3 : 1;
}
static __host__ __device__ constexpr u32 code_units(u32 cell) { return planes_of(cell) * (cell <= CELL_Q8 ? 32 : 128); }
static __host__ __device__ constexpr u32 block_units(u32 cell, u32 wide, u32 sets) {
    return code_units(cell) + sets * (wide ? 8 : 4);
}

// A lane's activations of one block: B operands of its four products, and their sums a set of scales for the lane's two
// columns of D.
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
    const u32 one = 0x3f803f80u;
#pragma unroll
    for (u32 set = 0; set < SETS_MAX; set++) {
        float d[4] = {0, 0, 0, 0};
#pragma unroll
        for (u32 j = set * 4 / SETS_MAX; j < (set + 1) * 4 / SETS_MAX; j++) mma(d, one, one, one, one, x.b[2 * j], x.b[2 * j + 1]);
        x.sum[set][0] = d[0], x.sum[set][1] = d[1];
    }
}

// {scale of row g, of row g + 8, bias of g, of g + 8}
template <u32 WIDE>
static __device__ __forceinline__ void scales_load(float (&sb)[4], const md_stream &s, u32 at, u32 units, u32 g) {
    if (WIDE) {
        float4 v = *(const float4 *)stream_at(s, at, units + g);
        sb[0] = v.x, sb[1] = v.y, sb[2] = v.z, sb[3] = v.w;
    } else {
        uint2 v = *(const uint2 *)(stream_at(s, at, units + g / 2) + (g & 1) * 8);
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
static __device__ __forceinline__ void block_mma(float (&tot)[4], const md_stream &s, u32 unit, const md_acts &x, u32 lane) {
    u32 at = stream_wrap(unit), g = lane >> 2;
    if (CELL > CELL_Q8) {
#pragma unroll
        for (u32 plane = 0; plane < planes_of(CELL); plane++)
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                uint4 a = *(const uint4 *)stream_at(s, at, plane * 128 + j * 32 + lane);
                mma(tot, a.x, a.y, a.z, a.w, x.b[2 * j], x.b[2 * j + 1]);
            }
        return;
    }
    uint4 w[2];
    w[0] = *(const uint4 *)stream_at(s, at, lane);
    if (CELL == CELL_Q8) w[1] = *(const uint4 *)stream_at(s, at, 32 + lane);
#pragma unroll
    for (u32 set = 0; set < SETS; set++) {
        constexpr u32 sets = SETS ? SETS : 1;
        float sb[4], sum[2];
        scales_load<WIDE>(sb, s, at, code_units(CELL) + set * (WIDE ? 8 : 4), g);
#pragma unroll
        for (u32 i = 0; i < 2; i++) sum[i] = SETS < SETS_MAX ? x.sum[0][i] + x.sum[SETS_MAX - 1][i] : x.sum[set][i];
        u32 first = set * 4 / sets, last = (set + 1) * 4 / sets;
        float d[4] = {0, 0, 0, 0}, lo[4] = {0, 0, 0, 0};
        if (CELL == CELL_Q8) {
            mma_nibbles(d, w[0], x.b, 0x45004500u, first, last);
            mma_nibbles(lo, w[1], x.b, 0x43004300u, first, last);
        } else {
            mma_nibbles(lo, w[0], x.b, 0x43004300u, first, last);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            float v = fmaf(-128.0f, sum[i & 1], lo[i]);
            if (CELL == CELL_Q8) v += fmaf(-2048.0f, sum[i & 1], d[i]);
            tot[i] = fmaf(sb[i / 2], v, tot[i]);
            tot[i] = fmaf(sb[2 + i / 2], sum[i & 1], tot[i]);
        }
    }
}

// A warp's share of one tile: blocks [0, count) from `unit` on; activations in registers (CACHED) or in shared memory.
template <u32 CELL, u32 WIDE, u32 SETS, u32 BLOCKS, bool CACHED>
static __device__ __forceinline__ void tile_mma(float (&tot)[4], const md_stream &s, u32 unit, u32 count, const md_acts *x, u32 first, u32 lane, u32 columns) {
    const u32 step = block_units(CELL, WIDE, SETS);
    if (CACHED) {
#pragma unroll
        for (u32 i = 0; i < BLOCKS; i++)
            if (i < count) block_mma<CELL, WIDE, SETS>(tot, s, unit + i * step, x[i], lane);
    } else {
#pragma unroll 2
        for (u32 i = 0; i < count; i++) {
            md_acts on_the_fly;
            acts_load(on_the_fly, first + i, lane, columns);
            block_mma<CELL, WIDE, SETS>(tot, s, unit + i * step, on_the_fly, lane);
        }
    }
}

// Units of one block of a format that is known at run time only.
static __device__ __forceinline__ u32 format_units(u32 format) {
    switch (format) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: return block_units(cell, wide, sets);
        FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
    }
    return 0;
}

// Brings an input vector of `tiles` tiles to shared memory, normalised where `norm` is given. True when someone failed.
template <int NC>
static __device__ __forceinline__ bool load_vector(md_ctx &ctx, u32 vector, u32 tiles, u32 blocks,
                                                   u32 tag, const float *norm) {
    const md_params *p = ctx.p;
    float squares[NC];
#pragma unroll
    for (int c = 0; c < NC; c++) squares[c] = 0;
    float2 early[3]; // the norm's weights of this thread's first entry, asked for before the wait
    if (norm && ctx.tid < tiles * 3)
#pragma unroll
        for (u32 i = 0; i < 3; i++) early[i] = __ldg((const float2 *)(norm + ctx.tid / 3 * 16 + ctx.tid % 3 * 6) + i);
    for (u32 e = ctx.tid; e < tiles * 3; e += CONSUMERS) {
        u32 tile = e / 3, third = e % 3, at = tile * 16 + third * 6;
#pragma unroll
        for (int c0 = 0; c0 < NC; c0 += 4) { // four columns' loads under way at once
            constexpr int batch = NC < 4 ? NC : 4;
            uint4 v[batch];
#pragma unroll
            for (int i = 0; i < batch; i++)
                if (NC == 1 || c0 + i < p->columns) v[i] = load_entry(entry_of(p, vector, tiles, c0 + i, tile, third));
#pragma unroll
            for (int i = 0; i < batch; i++) {
                int c = c0 + i;
                if (NC > 1 && c >= p->columns) continue;
                uint4 got = wait_entry_from(ctx, entry_of(p, vector, tiles, c, tile, third), tag, v[i]);
                u32 *to = (u32 *)(SH_XS + c * XSTRIDE + at);
                to[0] = got.x, to[1] = got.y;
                if (third < 2) to[2] = got.z;
                if (!norm) continue;
                float sum = fmaf(bf_lo(got.x), bf_lo(got.x), squares[c]);
                sum = fmaf(bf_hi(got.x), bf_hi(got.x), sum);
                sum = fmaf(bf_lo(got.y), bf_lo(got.y), sum), sum = fmaf(bf_hi(got.y), bf_hi(got.y), sum);
                squares[c] = fmaf(bf_hi(got.z), bf_hi(got.z), fmaf(bf_lo(got.z), bf_lo(got.z), sum)); // zeros in a third entry
            }
        }
    }
    for (u32 i = tiles * 16 + 2 * ctx.tid; i < blocks * 64; i += 2 * CONSUMERS)
        for (int c = 0; c < NC; c++) *(u32 *)(SH_XS + c * XSTRIDE + i) = 0;
    if (!norm) return consumers_any(ctx.failed);
#pragma unroll
    for (int c = 0; c < NC; c++) {
        float sum = warp_sum(squares[c]);
        if (ctx.lane == 0) SH_PARTS[c * CONSUMER_WARPS + ctx.warp] = sum;
    }
    if (consumers_any(ctx.failed)) return true;
#pragma unroll
    for (int c = 0; c < NC; c++) {
        if (NC > 1 && c >= p->columns) continue;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < CONSUMER_WARPS; w++) sum += SH_PARTS[c * CONSUMER_WARPS + w];
        squares[c] = 1.0f / sqrtf(sum / (float)HIDDEN + NORM_EPS);
    }
    for (u32 e = ctx.tid; e < tiles * 3; e += CONSUMERS) { // the thread's own values again
        u32 at = e / 3 * 16 + e % 3 * 6, n = e % 3 < 2 ? 3 : 2;
#pragma unroll
        for (u32 i = 0; i < 3; i++) {
            if (i >= n) continue;
            float2 w = e == ctx.tid ? early[i] : __ldg((const float2 *)(norm + at) + i);
#pragma unroll
            for (int c = 0; c < NC; c++) {
                if (NC > 1 && c >= p->columns) continue;
                u32 *to = (u32 *)(SH_XS + c * XSTRIDE + at) + i;
                *to = bf_bits(w.x * bf(bf_lo(*to) * squares[c])) | bf_bits(w.y * bf(bf_hi(*to) * squares[c])) << 16;
            }
        }
    }
    consumers_sync();
    return false;
}

// The partial sums of `tiles` consecutive tiles of this CTA's run, first tile at unit `unit`, to `red`. `format_of(i)` is
// the format of the i-th. Returns the unit after the last.
template <int NC, u32 NB, u32 SPLIT, typename FormatOf>
static __device__ __forceinline__ u32 tiles_mma(md_ctx &ctx, md_stream &s, const md_acts *x, u32 unit,
                                                u32 tiles, u32 columns, FormatOf format_of) {
    constexpr u32 BLOCKS = (NB + SPLIT - 1) / SPLIT;
    constexpr bool CACHED = BLOCKS <= CACHED_BLOCKS;
    const u32 lanes = CONSUMER_WARPS / SPLIT, slot = ctx.warp / SPLIT, k = ctx.warp % SPLIT;
    const u32 first = k * NB / SPLIT, count = (k + 1) * NB / SPLIT - first;
    for (u32 i = 0; i < tiles; i++) {
        u32 format = format_of(i), block = format_units(format), begin = unit;
        unit += NB * block;
        if (i % lanes != slot) continue;
        u32 at = begin + first * block;
        float tot[4] = {0, 0, 0, 0};
        stream_release(s, at, ctx.lane, ctx.p->deadline_us);
        stream_need(s, at + count * block - 1, ctx.p->deadline_us);
        switch (format) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: tile_mma<cell, wide, sets, BLOCKS, CACHED>(tot, s, at, count, x, first, ctx.lane, columns); break;
            FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
        }
        stream_release(s, at + count * block, ctx.lane, ctx.p->deadline_us);
        u32 g = ctx.lane >> 2, c = (ctx.lane & 3) * 2;
        float *red = SH_RED + (i * SPLIT + k) * 16 * NC;
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

// The sum of a row over the warps that share a tile.
template <int NC, u32 SPLIT> static __device__ __forceinline__ float row_sum(u32 tile, u32 row, u32 column) {
    float sum = 0;
#pragma unroll
    for (u32 k = 0; k < SPLIT; k++) sum += SH_RED[((tile * SPLIT + k) * 16 + row) * NC + column];
    return sum;
}
