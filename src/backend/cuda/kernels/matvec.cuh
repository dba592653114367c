// Matrix rows times up to 8 columns. Weights are the A operand (16 rows), activations the B operand (columns), so the
// stream is read once for all columns and a column's sums don't depend on its neighbours.
//
// The columns of K are cut into blocks of 64. A matrix's blocks are split over SPLIT warps in a way fixed by its shape
// alone, so that the sums of a row are the same whoever computes its tile: CONSUMER_WARPS / SPLIT tiles are under way at
// once, and the SPLIT partial sums of a tile meet in shared memory and are added in order.
//
// Quantized weights are multiplied as integers: codes (bytes; of packed nibbles the low and the high ones) times the digits
// of the input (input.cuh) by mma.m16n8k32. With one column the two digits are columns 0 and 1 of B; with more, a digit of
// all columns is a B of its own. A group's sum of digit 0 plus 256 times that of digit 1 is an exact integer below 2^31.
// A row is then  sum over groups of  scale * unit * (D0 + 256 D1)  +  bias * sum of the group's inputs.

#define B_TILES(NC) ((NC) == 1 ? 1 : DIGITS)  // B operands of a product
#define OUTPUTS(NC) ((NC) == 1 ? 2 : 4)       // of a lane: rows g and g + 8 {by columns 2 t, 2 t + 1}

// What a lane knows of its share of a stage: addresses of its part of the input, from the warp's first block on, and of its
// place in SH_RED; the blocks it takes of a tile, and the tile that comes next. None of it depends on the input: made
// before the wait for it.
template <int NC> struct md_lane {
    u32 digits;                 // of the lane's column (or digit) of B, 16 bytes
    u32 group[NC == 1 ? 1 : 2]; // of its columns of D
    u32 red;
    u32 first, count;
    u32 tile, format, at, step; // of the CTA's run; the warp's first unit of it, and how far it is to the next one's
    md_at lies;                 // where that unit lies
};

// A lane's activations of block i of its warp: B operands of its two products for each digit, the scales and the sums of
// the groups of its columns of D.
template <int NC> struct md_acts {
    uint4 b[B_TILES(NC)];
    float scale[NC == 1 ? 1 : 2], sum[SETS_MAX][NC == 1 ? 1 : 2];
};
template <int NC> static __device__ __forceinline__ void acts_load(md_acts<NC> &x, const md_lane<NC> &lane, u32 i) {
#pragma unroll
    for (u32 j = 0; j < B_TILES(NC); j++) x.b[j] = shared_uint4(lane.digits + (i * DIGITS + j) * (COLUMNS * 64));
#pragma unroll
    for (u32 c = 0; c < (NC == 1 ? 1 : 2); c++) {
        u32 at = lane.group[c] + i * (COLUMNS * GROUP_FLOATS * 4);
        if (SETS_MAX == 1) {
            uint2 v = shared_uint2(at);
            x.scale[c] = __uint_as_float(v.x), x.sum[0][c] = __uint_as_float(v.y);
        } else {
            uint4 v = shared_uint4(at);
            x.scale[c] = __uint_as_float(v.x), x.sum[0][c] = __uint_as_float(v.y);
            x.sum[SETS_MAX - 1][c] = __uint_as_float(v.z);
        }
    }
}

// {scale of row g, of row g + 8, bias of g, of g + 8}
static __device__ __forceinline__ void scales_of(float (&sb)[4], uint2 v) {
    sb[0] = bf_lo(v.x), sb[1] = bf_hi(v.x), sb[2] = bf_lo(v.y), sb[3] = bf_hi(v.y);
}
template <u32 WIDE> static __device__ __forceinline__ void scales_load(float (&sb)[4], md_at at) {
    if (WIDE) {
        uint4 v = stream_uint4(at);
        sb[0] = __uint_as_float(v.x), sb[1] = __uint_as_float(v.y), sb[2] = __uint_as_float(v.z), sb[3] = __uint_as_float(v.w);
    } else {
        scales_of(sb, stream_uint2(at));
    }
}

// A lane's sums of a tile: of rows g and g + 8 by the lane's columns of D, {g:c, g+8:c} of one, {g:c, g:c+1, g+8:c, g+8:c+1};
// of the products, and what the biases give.
template <int NC> struct md_sums {
    float row[OUTPUTS(NC)], bias[OUTPUTS(NC)];
};

template <int NC> static __device__ __forceinline__ void sums_out(float (&out)[OUTPUTS(NC)], const md_sums<NC> &sums) {
#pragma unroll
    for (u32 i = 0; i < OUTPUTS(NC); i++) out[i] = sums.row[i] + sums.bias[i];
}

// A lane's codes of a block of a quantized tile, as operands A of the block's two products, and its scales.
template <u32 SETS> struct md_codes {
    uint4 first, second;
    float sb[SETS][4];
};
template <u32 CELL, u32 SETS> static __device__ __forceinline__ void codes_read(md_codes<SETS> &w, md_at codes) {
    w.first = stream_uint4(codes);
    if (CELL == CELL_Q4) {
        const u32 low = 0x0f0f0f0fu;
        w.second = make_uint4(w.first.x >> 4 & low, w.first.y >> 4 & low, w.first.z >> 4 & low, w.first.w >> 4 & low);
        w.first = make_uint4(w.first.x & low, w.first.y & low, w.first.z & low, w.first.w & low);
    } else {
        w.second = stream_uint4(codes + 512);
    }
}
template <u32 CELL, u32 WIDE, u32 SETS> static __device__ __forceinline__ void codes_load(md_codes<SETS> &w, md_at codes, md_at scales) {
    codes_read<CELL>(w, codes);
#pragma unroll
    for (u32 set = 0; set < SETS; set++) scales_load<WIDE>(w.sb[set], scales + set * (WIDE ? 8 : 4) * UNIT);
}

// What the biases give: they multiply the sums of the groups' inputs.
template <u32 SETS, int NC>
static __device__ __forceinline__ void block_biases(md_sums<NC> &sums, const md_codes<SETS> &w, const md_acts<NC> &x) {
#pragma unroll
    for (u32 i = 0; i < OUTPUTS(NC); i++) {
        const u32 row = NC == 1 ? i : i / 2, column = NC == 1 ? 0 : i % 2;
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
            float sum = SETS < SETS_MAX ? x.sum[0][column] + x.sum[SETS_MAX - 1][column] : x.sum[set][column];
            sums.bias[i] = fmaf(w.sb[set][2 + row], sum, sums.bias[i]);
        }
    }
}

// One block of a quantized tile: sums += W * x. Groups of 64 or more are one integer, of 32 two.
template <u32 SETS, int NC>
static __device__ __forceinline__ void block_codes(md_sums<NC> &sums, const md_codes<SETS> &w, const md_acts<NC> &x) {
    int d[B_TILES(NC)][SETS][4];
#pragma unroll
    for (u32 j = 0; j < B_TILES(NC); j++) {
        const uint4 b = x.b[j];
        mma_codes_first(d[j][0], w.first, b.x, b.y);
        if (SETS == 1)
            mma_codes(d[j][0], w.second, b.z, b.w);
        else
            mma_codes_first(d[j][SETS - 1], w.second, b.z, b.w);
    }
#pragma unroll
    for (u32 i = 0; i < OUTPUTS(NC); i++) {
        const u32 row = NC == 1 ? i : i / 2, column = NC == 1 ? 0 : i % 2;
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
            const int low = NC == 1 ? d[0][set][2 * i] : d[0][set][i], high = NC == 1 ? d[0][set][2 * i + 1] : d[B_TILES(NC) - 1][set][i];
            sums.row[i] = fmaf(w.sb[set][row] * x.scale[column], __int2float_rn(low + 256 * high), sums.row[i]);
        }
    }
    block_biases<SETS, NC>(sums, w, x);
}

// One block of a tile of bf16, f16 or fp32 weights, as bf16 planes.
// `lo` and `hi`: the lane's values of its column of B.
template <u32 CELL> static __device__ __forceinline__ void block_wide(float (&sum)[4], md_at codes, u32 lane, uint4 lo, uint4 hi) {
#pragma unroll
    for (u32 plane = 0; plane < planes_of(CELL); plane++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            uint4 a = stream_uint4(codes + (plane * 128 + j * 32 + lane) * UNIT), b = j < 2 ? lo : hi;
            mma(sum, a.x, a.y, a.z, a.w, j % 2 ? b.z : b.x, j % 2 ? b.w : b.y);
        }
    }
}

// A warp's share of its next TILES tiles to the lane's outputs. With one column only the lanes of column 0 (t = 0) have any.
// Tiles taken at once share what is read of the input, and hide each other's latencies.
template <u32 CELL, u32 WIDE, u32 SETS, int NC, typename KIND, u32 TILES>
static __device__ __forceinline__ void tile_product(float (&out)[TILES][OUTPUTS(NC)], md_stream &s, const md_lane<NC> &x, u32 lane, bool fits,
                                                    u32 deadline_us, u32 columns) {
    constexpr u32 size = block_units(CELL, WIDE, SETS), piece = piece_blocks(size); // the first piece has landed
    if (CELL > CELL_Q8) {
#pragma unroll
        for (u32 tile = 0; tile < TILES; tile++) {
            float sum[4] = {0, 0, 0, 0};
#pragma unroll 1
            for (u32 i = 0; i < x.count; i++) {
                if (!fits && i && i % piece == 0)
                    s = stream_turn(s, x.at + i * size, x.at + min(i + piece, x.count) * size - 1, lane, deadline_us);
                const u32 column = (lane >> 2) < columns ? lane >> 2 : 0; // of those past the end nothing is used
                const uint4 *at = (const uint4 *)(SH_XS + column * XSTRIDE + (x.first + i) * 64 + 8 * (lane & 3));
                block_wide<CELL>(sum, stream_at(s, x.at + tile * x.step + i * size), lane, at[0], at[4]);
            }
#pragma unroll
            for (u32 i = 0; i < OUTPUTS(NC); i++) out[tile][i] = sum[NC == 1 ? 2 * i : i];
        }
        return;
    }
    md_sums<NC> sums[TILES] = {};
    md_at codes[TILES], scales[TILES];
    constexpr u32 pieces = share(KIND::most, piece), most = share(KIND::most, pieces); // of about equal length
    constexpr u32 unroll = NC > 1 ? UNROLL_COLUMNS : most <= UNROLL_ALL ? most : UNROLL;
#pragma unroll 1
    for (u32 first = 0; first < KIND::most; first += most) {
        const u32 begin = x.at + first * size;
        if (pieces > 1 && first && !fits)
            s = stream_turn(s, begin, x.at + min(first + most, x.count) * size - 1, lane, deadline_us);
#pragma unroll
        for (u32 tile = 0; tile < TILES; tile++) {
            const md_at at = tile || (pieces > 1 && first) ? stream_at(s, begin + tile * x.step) : x.lies;
            codes[tile] = at + lane * 16, scales[tile] = at + code_units(CELL) * UNIT + (lane >> 2) * (WIDE ? 16 : 8);
        }
#pragma unroll 1
        for (u32 i0 = 0; i0 < most; i0 += unroll) {
#pragma unroll
            for (u32 k = 0; k < unroll; k++) {
                const u32 j = i0 + k, i = first + j; // of the piece, of all
                if (j >= most || (KIND::most % most && i >= KIND::most) || (!KIND::even && i >= x.count)) break;
                md_acts<NC> acts;
                acts_load<NC>(acts, x, i);
#pragma unroll
                for (u32 tile = 0; tile < TILES; tile++) {
                    md_codes<SETS ? SETS : 1> w;
                    codes_load<CELL, WIDE>(w, codes[tile] + j * size * UNIT, scales[tile] + j * size * UNIT);
                    block_codes(sums[tile], w, acts);
                }
            }
        }
    }
#pragma unroll
    for (u32 tile = 0; tile < TILES; tile++) sums_out<NC>(out[tile], sums[tile]);
}

// Units of one block of a format.
static __device__ __forceinline__ u32 format_units(u32 format) {
    u32 units = 0;
#define FORMAT_SIZE(id, cell, wide, sets) units = format == (id) ? block_units(cell, wide, sets) : units;
    FORMATS(FORMAT_SIZE)
#undef FORMAT_SIZE
    return units;
}

// The most pairs of blocks that a warp's blocks lie in.
static __host__ __device__ constexpr u32 most_pairs(u32 blocks, u32 split) {
    u32 most = 0;
    for (u32 k = 0; k < split; k++) {
        u32 from = k * blocks / split, until = (k + 1) * blocks / split;
        most = larger(most, (until + 1) / 2 - from / 2);
    }
    return most;
}

// The kinds of matrix stages. `split` warps share a tile; an item of gate_up is two tiles, of gate and of up.
template <u32 BLOCKS, u32 SPLIT, u32 INPUT, u32 TILES_IN, bool NORM, u32 MADE> struct md_kind {
    static constexpr u32 blocks = BLOCKS, split = SPLIT, input = INPUT, tiles_in = TILES_IN;
    static constexpr u32 digits = MADE; // with several columns: the input's digits
    static constexpr bool norm = NORM;
    static constexpr u32 lanes = CONSUMER_WARPS / SPLIT;           // tiles under way at once
    static constexpr u32 most = (BLOCKS + SPLIT - 1) / SPLIT;      // blocks of a tile that one warp takes
    static constexpr bool even = BLOCKS % SPLIT == 0;
    static constexpr bool pieces = most > piece_blocks(largest_block(false)); // a warp's blocks may be more than one
    static constexpr bool own_slices = !NORM && SPLIT == CONSUMER_WARPS; // a warp brings the part of the input that it multiplies
    static constexpr u32 slice_pairs = most_pairs(BLOCKS, SPLIT);
};
struct md_qkv : md_kind<NB_X, SPLIT_QKV, VECTOR_XB, T_X, true, DIGITS_X> {};
struct md_out : md_kind<NB_ATTN, SPLIT_OUT, VECTOR_ATTN, T_ATTN, false, DIGITS_ATTN> {};
struct md_gate_up : md_kind<NB_X, SPLIT_GATE_UP, VECTOR_XA, T_X, true, DIGITS_X> {};
struct md_down : md_kind<NB_F, SPLIT_DOWN, VECTOR_ACT, T_F, false, DIGITS_ACT> {};
struct md_head : md_kind<NB_X, SPLIT_HEAD, VECTOR_XB, T_X, true, DIGITS_X> {};
template <typename A, typename B> constexpr bool is_kind = false;
template <typename A> constexpr bool is_kind<A, A> = true;

// A CTA's tiles of a stage in the stream: their formats, and where each begins. Of qkv the format changes at tiles `k` and
// `v` of the run, of gate_up with every tile, of the others never.
struct md_tiles {
    u32 end; // unit after the last
    u32 start, format0, format1, format2; // units; of q, k, v; of gate, up; of the only matrix
    u32 k, v;
};
template <typename KIND> static __device__ __forceinline__ u32 tile_unit(const md_tiles &tiles, u32 i) {
    const u32 size0 = KIND::blocks * format_units(tiles.format0);
    if (is_kind<KIND, md_gate_up>)
        return tiles.start + (i >> 1) * (size0 + KIND::blocks * format_units(tiles.format1)) + (i & 1) * size0;
    if (!is_kind<KIND, md_qkv>) return tiles.start + i * size0;
    u32 a = min(i, tiles.k), b = min(i, tiles.v) - a;
    return tiles.start + a * size0 + KIND::blocks * (b * format_units(tiles.format1) + (i - a - b) * format_units(tiles.format2));
}
template <typename KIND> static __device__ __forceinline__ u32 tile_format(const md_tiles &tiles, u32 i) {
    if (is_kind<KIND, md_gate_up>) return i & 1 ? tiles.format1 : tiles.format0;
    if (!is_kind<KIND, md_qkv>) return tiles.format0;
    return i < tiles.k ? tiles.format0 : i < tiles.v ? tiles.format1 : tiles.format2;
}

template <int NC, typename KIND>
static __device__ __forceinline__ md_lane<NC> lane_of(const md_ctx &ctx, const md_stream &s, const md_tiles &tiles, u32 columns) {
    const u32 g = ctx.lane >> 2, t = ctx.lane & 3, k = ctx.warp % KIND::split;
    md_lane<NC> x;
    x.first = k * KIND::blocks / KIND::split;
    x.count = KIND::even ? KIND::most : (k + 1) * KIND::blocks / KIND::split - x.first;
    // Columns of B that hold nothing repeat others: their results are not used.
    if (NC == 1)
        x.digits = digits_at(ctx, x.first, min(g, DIGITS - 1u), 0) + 16 * t;
    else
        x.digits = digits_at(ctx, x.first, 0, g < columns ? g : 0) + 16 * t;
    pin(x.digits);
#pragma unroll
    for (u32 i = 0; i < (NC == 1 ? 1 : 2); i++) {
        x.group[i] = group_at(ctx, x.first, NC > 1 && 2 * t + i < columns ? 2 * t + i : 0);
        pin(x.group[i]);
    }
    x.red = ctx.smem + md_map::red + (ctx.red + (ctx.warp * 16 + g) * NC + (NC == 1 ? 0 : 2 * t)) * 4; // of tile `warp / split`
    pin(x.red);
    x.tile = ctx.warp / KIND::split;
    x.format = tile_format<KIND>(tiles, x.tile);
    x.at = tile_unit<KIND>(tiles, x.tile) + x.first * format_units(x.format);
    x.step = tile_unit<KIND>(tiles, KIND::lanes) - tiles.start; // where all steps are alike
    pin(x.format), pin(x.at), pin(x.step);
    x.lies = stream_at(s, x.at);
    pin(x.lies);
    return x;
}

// A lane's outputs of TILES tiles to `red` in SH_RED; a tile's partial sums are TILE_RED bytes.
#define TILE_RED(NC) (CONSUMER_WARPS * 16 * (NC)*4)
template <int NC, u32 TILES> static __device__ __forceinline__ void sums_put(const float (&out)[TILES][OUTPUTS(NC)], u32 red, u32 lane) {
#pragma unroll
    for (u32 tile = 0; tile < TILES; tile++) {
        const u32 to = red + tile * TILE_RED(NC);
        if (NC == 1) {
            if (lane % 4 == 0) shared_put(to, out[tile][0]), shared_put(to + 32, out[tile][1]);
        } else if (lane % 4 * 2 < NC) {
            shared_put(to, make_float2(out[tile][0], out[tile][1]));
            shared_put(to + 8 * NC * 4, make_float2(out[tile][OUTPUTS(NC) - 2], out[tile][OUTPUTS(NC) - 1]));
        }
    }
}

// The partial sums of the warp's next TILES tiles to `red`.
template <int NC, typename KIND, u32 TILES>
static __device__ __forceinline__ void tiles_sum(const md_ctx &ctx, md_stream &s, const md_lane<NC> &x, u32 red, bool fits, u32 columns) {
    float out[TILES][OUTPUTS(NC)];
    switch (x.format) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: tile_product<cell, wide, sets, NC, KIND, TILES>(out, s, x, ctx.lane, fits, ctx.p->deadline_us, columns); break;
        FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
    }
    sums_put<NC, TILES>(out, red, ctx.lane);
}

// Whether the format changes from one of a warp's tiles to the next.
template <typename KIND> constexpr bool is_mixed = is_kind<KIND, md_qkv> || (is_kind<KIND, md_gate_up> && KIND::lanes % 2);

// On to the warp's tile after the next `n`.
template <int NC, typename KIND> static __device__ __forceinline__ void lane_next(const md_stream &s, const md_tiles &tiles, md_lane<NC> &x, u32 n) {
    x.tile += n * KIND::lanes;
    if (is_mixed<KIND>) {
        x.format = tile_format<KIND>(tiles, x.tile);
        x.at = tile_unit<KIND>(tiles, x.tile) + x.first * format_units(x.format);
    } else {
        x.at += n * x.step;
    }
    x.lies = stream_at(s, x.at);
}

// Behind a round's tiles, up to `end`, comes a barrier. Nothing that others need until then may be kept back; and no more may
// be awaited: what lies behind them, up to the warp's own next share, can be more than the ring holds.
template <typename KIND> static __device__ __forceinline__ void round_release(const md_ctx &ctx, md_stream &s, const md_tiles &tiles, u32 end) {
    const u32 next = min(tile_unit<KIND>(tiles, end), tiles.end);
    s = stream_turn(s, next, next - 1, ctx.lane, ctx.p->deadline_us);
}

// The partial sums of the CTA's tiles up to `end` to SH_RED, from `red` on. `fits`: the stage's weights have all landed, and
// stay; FITS: that is known, and two tiles are taken at once where all of a warp's have one format.
template <int NC, typename KIND, bool FITS>
static __device__ __forceinline__ void tiles_product(md_ctx &ctx, md_stream &s, const md_tiles &tiles, md_lane<NC> &x, u32 red, u32 end, bool fits,
                                                     u32 columns) {
    constexpr bool two = FITS && NC == 1 && is_kind<KIND, md_gate_up> && !is_mixed<KIND> && TWO_TILES;
#pragma unroll 1
    while (x.tile < end) {
        if (!FITS && !fits) {
            SPENT(ARITHMETIC);
            const u32 units = format_units(x.format), first = KIND::pieces ? min(x.count, piece_blocks(units)) : x.count;
            s = stream_turn(s, x.at, x.at + first * units - 1, ctx.lane, ctx.p->deadline_us);
            SPENT(WEIGHTS);
        }
        u32 n = 1;
        if (two && x.tile + KIND::lanes < end)
            tiles_sum<NC, KIND, two ? 2 : 1>(ctx, s, x, red, FITS || fits, columns), n = 2;
        else
            tiles_sum<NC, KIND, 1>(ctx, s, x, red, FITS || fits, columns);
        red += n * TILE_RED(NC);
        lane_next<NC, KIND>(s, tiles, x, n);
    }
    if (!FITS && !fits) round_release<KIND>(ctx, s, tiles, end);
}

// The sum of a row over `count` of the warps that share a tile, in their order; `at`: the first one's.
template <int NC, u32 COUNT> static __device__ __forceinline__ float part_sum(u32 at) {
    float sum = 0;
#pragma unroll
    for (u32 k = 0; k < COUNT; k++) sum += shared_float(at + k * (16 * NC * 4));
    return sum;
}
// The sum of a row over all of them: of the first half, plus of the second.
template <int NC, u32 SPLIT> static __device__ __forceinline__ float row_sum(u32 at) {
    return part_sum<NC, SPLIT / 2>(at) + part_sum<NC, SPLIT - SPLIT / 2>(at + SPLIT / 2 * (16 * NC * 4));
}
// With one column a warp has an output tile, and its halves share the work: of gate_up each sums one of the two matrices, of
// others one half of the warps. Where a lane's part begins, for the warp's first output:
template <typename KIND> static __device__ __forceinline__ u32 halves_at(const md_ctx &ctx) {
    const u32 r = ctx.lane & 15, half = ctx.lane >> 4;
    u32 row = is_kind<KIND, md_gate_up> ? (ctx.warp * 2 + half) * KIND::split : ctx.warp * KIND::split + half * (KIND::split / 2);
    u32 at = ctx.smem + md_map::red + (ctx.red + row * 16 + r) * 4;
    pin(at);
    return at;
}
template <typename KIND> static __device__ __forceinline__ float halves_sum(u32 at, float &up) {
    if (is_kind<KIND, md_gate_up>) {
        float y = row_sum<1, KIND::split>(at);
        up = __shfl_xor_sync(~0u, y, 16);
        return y;
    }
    if (KIND::split == 1) return row_sum<1, 1>(at);
    float sum = part_sum<1, KIND::split / 2>(at);
    return sum + __shfl_xor_sync(~0u, sum, 16);
}
