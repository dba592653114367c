// Matrix rows times several columns, where each warp brings the part of the input that it multiplies itself (md_slices):
// pair of blocks by pair, so that digits are multiplied as they are made, by a tile or two at once.

#define SLICE_TILES 2

// One block of a tile, whose first unit in the stream is `unit`: sums += W * x. `wide`: the lane's values of its column.
template <u32 CELL, u32 WIDE, u32 SETS, int NC>
static __device__ __forceinline__ void slice_block(md_sums<NC> &sums, const md_stream &s, u32 unit, const md_acts<NC> &acts, u32 wide, u32 lane) {
    const md_at at = stream_at(s, unit);
    if (CELL > CELL_Q8) {
        block_wide<CELL>(sums.row, at, lane, shared_uint4(wide), shared_uint4(wide + 64));
        return;
    }
    md_codes<SETS ? SETS : 1> w;
    codes_load<CELL, WIDE>(w, at + lane * 16, at + code_units(CELL) * UNIT + (lane >> 2) * (WIDE ? 16 : 8));
    block_codes(sums, w, acts);
}

// The partial sums of the CTA's tiles up to `end` to SH_RED. `fits`: the stage's weights have all landed, and stay.
template <int NC, typename KIND>
static __device__ __forceinline__ void slices_product(md_ctx &ctx, md_stream &s, const md_tiles &tiles, md_lane<NC> &x, md_slices<KIND> &in, u32 end,
                                                      bool fits, u32 tag) {
    static_assert(KIND::lanes == 1, "all warps share a tile");
    const u32 size = format_units(x.format), g = ctx.lane >> 2, t = ctx.lane & 3;
    const u32 wide = ctx.smem + slice_of(ctx) + SLICE_WIDE + (g < ctx.p->columns ? g : 0) * SLICE_ROW + 16 * t;
    u32 red = x.red;
#pragma unroll 1
    while (x.tile < end && !ctx.failed) {
        const u32 n = fits ? min(end - x.tile, SLICE_TILES) : 1; // what does not fit is read in its order
        md_sums<NC> sums[SLICE_TILES] = {};
#pragma unroll 1
        for (u32 pair = in.from / 2; 2 * pair < in.until; pair += in.pairs) {
            slices_load(ctx, in, pair, tag);
            if (ctx.failed) break;
            const u32 past = min(2 * (pair + in.pairs), in.until);
#pragma unroll 1
            for (u32 block = max(2 * pair, in.from); block < past; block++) {
                const u32 slot = (block / 2 - pair) << in.shift, unit = x.at + (block - in.from) * size;
                if (!fits) {
                    SPENT(ARITHMETIC);
                    s = stream_turn(s, unit, unit + size - 1, ctx.lane, ctx.p->deadline_us);
                    SPENT(WEIGHTS);
                }
                md_acts<NC> acts;
                const u32 group[2] = {x.group[0] + slot * (GROUP_FLOATS * 4), x.group[NC == 1 ? 0 : 1] + slot * (GROUP_FLOATS * 4)};
                acts_read<UNITS_AT_ONCE * 64, UNITS_AT_ONCE * GROUP_FLOATS * 4>(acts, x.digits + slot * 64 + block % 2 * SLICE_BLOCK, group, block % 2);
#pragma unroll
                for (u32 tile = 0; tile < SLICE_TILES; tile++) {
                    if (tile >= n) break;
                    switch (x.format) {
#define FORMAT_CASE(id, cell, scales, sets)                                                                            \
    case id:                                                                                                           \
        slice_block<cell, scales, sets>(sums[tile], s, unit + tile * x.step, acts, wide + slot * SLICE_ROW + block % 2 * 128, ctx.lane); \
        break;
                        FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
                    }
                }
            }
            __syncwarp(); // the next pairs come to the same place
        }
#pragma unroll
        for (u32 tile = 0; tile < SLICE_TILES; tile++) {
            if (tile >= n) break;
            float out[OUTPUTS(NC)];
#pragma unroll
            for (u32 i = 0; i < OUTPUTS(NC); i++) out[i] = sums[tile].row[i] + sums[tile].bias[i];
            sums_put<NC>(ctx.lane, red + tile * (CONSUMER_WARPS * 16 * NC * 4), out);
        }
        red += n * (CONSUMER_WARPS * 16 * NC * 4);
        x.tile += n, x.at += n * x.step;
    }
    // Behind these tiles comes a barrier: nothing that others need may be kept back until then.
    if (!fits) s = stream_turn(s, min(x.at, tiles.end), min(x.at, tiles.end) - 1, ctx.lane, ctx.p->deadline_us);
}
