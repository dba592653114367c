// Matrix rows times up to 8 columns. Weights are the A operand (16 rows), activations the B operand (columns), so the
// stream is read once for all columns and a column's sums don't depend on its neighbours.
//
// The columns of K are cut into blocks of 64. A matrix's blocks are split over SPLIT warps in a way fixed by its shape
// alone, so that the sums of a row are the same whoever computes its tile: CONSUMER_WARPS / SPLIT tiles are under way at
// once, and the SPLIT partial sums of a tile meet in shared memory and are added in order.
//
// Quantized weights are multiplied as integers: codes (bytes; a nibble becomes a byte by one `and`, the high ones sixteen
// times too large) times the digits of the input (input.cuh) by mma.m16n8k32. A group's sum of a digit is an exact
// integer below 2^22; it starts at MAGIC_INT, so that its bits read as an fp32 number are MAGIC_FLOAT plus it.
// With one column the three digits are columns 0..2 of B; with more, a digit of all columns is a B of its own.
// A row is then  sum over groups of  scale * input scale * (65536 D2 + 256 D1 + D0)  +  bias * sum of the group's inputs.

#define B_TILES(NC) ((NC) == 1 ? 1 : DIGITS)  // B operands of a product
#define OUTPUTS(NC) ((NC) == 1 ? 2 : 4)       // of a lane: rows g and g + 8 {by columns 2 t, 2 t + 1}

// A lane's activations of one block: B operands of its two products for each digit, the scales and the sums of the
// groups of its columns of D.
template <int NC> struct md_acts {
    uint4 b[B_TILES(NC)];
    float scale[NC == 1 ? 1 : 2], sum[SETS_MAX][NC == 1 ? 1 : 2];
};

template <int NC> static __device__ __forceinline__ void acts_load(md_acts<NC> &x, u32 block, u32 lane, u32 columns) {
    const u32 g = lane >> 2, t = lane & 3;
#pragma unroll
    for (u32 j = 0; j < B_TILES(NC); j++) { // columns of B that hold nothing repeat others: their results are not used
        u32 digit = NC == 1 ? min(g, DIGITS - 1u) : j, c = NC == 1 || g >= columns ? 0 : g;
        x.b[j] = *(const uint4 *)(digits_of(block, digit, c) + 16 * t);
    }
#pragma unroll
    for (u32 i = 0; i < (NC == 1 ? 1 : 2); i++) {
        u32 c = NC == 1 || 2 * t + i >= columns ? 0 : 2 * t + i;
        const float *group = group_of(block, c);
        if (SETS_MAX == 1) {
            float2 v = *(const float2 *)group;
            x.scale[i] = v.x, x.sum[0][i] = v.y;
        } else {
            float4 v = *(const float4 *)group;
            x.scale[i] = v.x, x.sum[0][i] = v.y, x.sum[SETS_MAX - 1][i] = v.z;
        }
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

// A lane's sums of a tile: digits of rows g and g + 8 by the lane's two columns of D, {g:c, g:c+1, g+8:c, g+8:c+1}, and
// what the biases give.
template <int NC> struct md_sums {
    float digit[B_TILES(NC)][4];
    float bias[OUTPUTS(NC)];
};

// One block of a quantized tile: sums += W * x.
template <u32 CELL, u32 WIDE, u32 SETS, int NC>
static __device__ __forceinline__ void block_codes(md_sums<NC> &sums, const u8 *block, const md_acts<NC> &x, u32 lane) {
    constexpr bool q4 = CELL == CELL_Q4;
    const uint4 *codes = (const uint4 *)block + lane;
    uint4 first = codes[0], second;
    if (q4) {
        second = make_uint4(first.x & 0xf0f0f0f0u, first.y & 0xf0f0f0f0u, first.z & 0xf0f0f0f0u, first.w & 0xf0f0f0f0u);
        first = make_uint4(first.x & 0x0f0f0f0fu, first.y & 0x0f0f0f0fu, first.z & 0x0f0f0f0fu, first.w & 0x0f0f0f0fu);
    } else {
        second = codes[32];
    }
    float sb[SETS][4];
#pragma unroll
    for (u32 set = 0; set < SETS; set++)
        scales_load<WIDE>(sb[set], block + (code_units(CELL) + set * (WIDE ? 8 : 4)) * UNIT, lane >> 2);
#pragma unroll
    for (u32 j = 0; j < B_TILES(NC); j++) {
        const uint4 b = x.b[j];
        int d[2][4];
        mma_codes_first(d[0], first, b.x, b.y);
        if (q4 || SETS == 2)
            mma_codes_first(d[1], second, b.z, b.w);
        else
            mma_codes(d[0], second, b.z, b.w);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 row = i / 2, column = NC == 1 ? 0 : i % 2;
#pragma unroll
            for (u32 set = 0; set < SETS; set++) {
                float v = __int_as_float(d[set][i]), scale = sb[set][row] * x.scale[column];
                if (q4 && SETS == 1)
                    v = fmaf(__int_as_float(d[1][i]), 1.0f / 16, v) - MAGIC_FLOAT * (1 + 1.0f / 16); // exact, all of it
                else
                    v -= MAGIC_FLOAT;
                if (q4 && set == 1) scale *= 1.0f / 16;
                sums.digit[j][i] = fmaf(scale, v, sums.digit[j][i]);
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < OUTPUTS(NC); i++) {
        const u32 row = NC == 1 ? i : i / 2, column = NC == 1 ? 0 : i % 2;
#pragma unroll
        for (u32 set = 0; set < SETS; set++) {
            float sum = SETS < SETS_MAX ? x.sum[0][column] + x.sum[SETS_MAX - 1][column] : x.sum[set][column];
            sums.bias[i] = fmaf(sb[set][2 + row], sum, sums.bias[i]);
        }
    }
}

// One block of a tile of bf16, f16 or fp32 weights, as bf16 planes.
template <u32 CELL> static __device__ __forceinline__ void block_wide(float (&sum)[4], const u8 *block, u32 index, u32 lane, u32 columns) {
    u32 column = lane >> 2;
    if (column >= columns) column = 0; // its results are not used
    const uint4 *at = (const uint4 *)(SH_XS + column * XSTRIDE + index * 64 + 8 * (lane & 3)), *codes = (const uint4 *)block + lane;
    uint4 lo = at[0], hi = at[4];
#pragma unroll
    for (u32 plane = 0; plane < planes_of(CELL); plane++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            uint4 a = codes[plane * 128 + j * 32], b = j < 2 ? lo : hi;
            mma(sum, a.x, a.y, a.z, a.w, j % 2 ? b.z : b.x, j % 2 ? b.w : b.y);
        }
    }
}

// A warp's share of one tile: blocks [first, first + count), from `unit` of the stream on, to the lane's outputs. With one
// column only the lanes of column 0 (t = 0) have any.
template <u32 CELL, u32 WIDE, u32 SETS, int NC>
static __device__ __forceinline__ void tile_product(float (&out)[OUTPUTS(NC)], const md_stream &s, u32 unit, u32 first, u32 count,
                                                    u32 lane, u32 columns) {
    u32 at = stream_wrap(unit);
    if (CELL > CELL_Q8) {
        float sum[4] = {0, 0, 0, 0};
#pragma unroll 1
        for (u32 i = 0; i < count; i++) {
            block_wide<CELL>(sum, stream_at(s, at), first + i, lane, columns);
            at = stream_next(at, block_units(CELL, WIDE, SETS));
        }
#pragma unroll
        for (u32 i = 0; i < OUTPUTS(NC); i++) out[i] = sum[NC == 1 ? 2 * i : i];
        return;
    }
    md_sums<NC> sums = {};
    constexpr u32 unroll = NC == 1 ? UNROLL : 1;
#pragma unroll unroll
    for (u32 i = 0; i < count; i++) {
        md_acts<NC> x;
        acts_load<NC>(x, first + i, lane, columns);
        block_codes<CELL, WIDE, SETS ? SETS : 1, NC>(sums, stream_at(s, at), x, lane);
        at = stream_next(at, block_units(CELL, WIDE, SETS));
    }
#pragma unroll
    for (u32 i = 0; i < OUTPUTS(NC); i++) {
        float low, mid, high;
        if (NC == 1) { // digits 0 and 1 lie here, digit 2 in the next lane
            low = sums.digit[0][2 * i], mid = sums.digit[0][2 * i + 1];
            high = __shfl_down_sync(~0u, sums.digit[0][2 * i], 1);
        } else {
            low = sums.digit[0][i], mid = sums.digit[B_TILES(NC) / 2][i], high = sums.digit[B_TILES(NC) - 1][i];
        }
        out[i] = fmaf(65536.0f, high, fmaf(256.0f, mid, low)) + sums.bias[i];
    }
}

// Units of one block of each format.
static __constant__ u8 FORMAT_UNITS[] = {
#define FORMAT_SIZE(id, cell, wide, sets) (u8)block_units(cell, wide, sets),
    FORMATS(FORMAT_SIZE)
#undef FORMAT_SIZE
};

// What a kind of matrix stage looks like. `split` warps share a tile.
struct md_kind {
    u32 blocks, split, split_log2;
    u32 input, tiles_in;
    u32 norm, norm_stride; // where in aux the norm's weights of layer 0 lie, and how far a layer's are apart; ~0: no norm
};

// The partial sums of `tiles` consecutive tiles of this CTA's run, the first at unit `unit`, to SH_RED. `format_of(i)` is
// the format of the i-th. Returns the unit after the last.
template <int NC, typename FormatOf>
static __device__ __forceinline__ u32 tiles_product(md_ctx &ctx, md_stream &s, const md_kind &kind, u32 first, u32 count,
                                                    u32 unit, u32 tiles, u32 columns, FormatOf format_of) {
    const u32 lanes = CONSUMER_WARPS >> kind.split_log2, slot = ctx.warp >> kind.split_log2, k = ctx.warp & (kind.split - 1);
#pragma unroll 1
    for (u32 i = 0; i < tiles; i++) {
        u32 format = format_of(i), block = FORMAT_UNITS[format], begin = unit;
        unit += kind.blocks * block;
        if ((i & (lanes - 1)) != slot) continue;
        u32 at = begin + first * block;
        float out[OUTPUTS(NC)];
        stream_release(s, at, ctx.lane, ctx.p->deadline_us);
        stream_need(s, at + count * block - 1, ctx.p->deadline_us);
        switch (format) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: tile_product<cell, wide, sets, NC>(out, s, at, first, count, ctx.lane, columns); break;
            FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
        }
        stream_release(s, at + count * block, ctx.lane, ctx.p->deadline_us);
        u32 g = ctx.lane >> 2, c = (ctx.lane & 3) * 2;
        float *red = SH_RED + ((i << kind.split_log2) + k) * 16 * NC;
        if (NC == 1) {
            if (c == 0) red[g] = out[0], red[g + 8] = out[1];
        } else if (c < NC) {
            *(float2 *)(red + g * NC + c) = make_float2(out[0], out[1]);
            *(float2 *)(red + (g + 8) * NC + c) = make_float2(out[OUTPUTS(NC) - 2], out[OUTPUTS(NC) - 1]);
        }
    }
    stream_release(s, unit, ctx.lane, ctx.p->deadline_us);
    return unit;
}

// The sum of a row over warps [first, last) of those that share a tile, in their order.
template <int NC> static __device__ __forceinline__ float part_sum(u32 split, u32 tile, u32 row, u32 column, u32 first, u32 last) {
    const float *red = SH_RED + (tile * split * 16 + row) * NC + column;
    float sum = 0;
#pragma unroll 8
    for (u32 k = first; k < last; k++) sum += red[k * 16 * NC];
    return sum;
}
// The sum of a row over all of them: of the first half, plus of the second.
template <int NC> static __device__ __forceinline__ float row_sum(u32 split, u32 tile, u32 row, u32 column) {
    return part_sum<NC>(split, tile, row, column, 0, split / 2) + part_sum<NC>(split, tile, row, column, split / 2, split);
}
