// Matrix rows times several columns where all warps share a tile (output and down projection): a warp takes the digits of its
// blocks straight from their entries to operands B, as many at once as registers hold. A CTA hardly ever has two such tiles:
// their digits come once more.

template <typename KIND> constexpr u32 slice_blocks = share(KIND::most, share(KIND::most, HAS_WIDE ? SLICE_MOST / 2 : SLICE_MOST));
template <typename KIND> constexpr bool slice_all = KIND::even && KIND::most % slice_blocks<KIND> == 0;
template <typename KIND> using md_slices = md_digits_asked<slice_blocks<KIND>, 1, slice_all<KIND>>;

// A block: operands B and scales.
template <int NC> struct md_slice {
    md_acts<NC> acts;
    uint4 wide[HAS_WIDE ? 2 : 1];
};

// One block of a tile, whose first unit in the stream is `unit`: sums += W * x.
template <u32 CELL, u32 WIDE, u32 SETS, int NC>
static __device__ __forceinline__ void slice_block(md_sums<NC> &sums, const md_stream &s, u32 unit, const md_slice<NC> &x, u32 lane) {
    const md_at at = stream_at(s, unit);
    if (CELL > CELL_Q8) {
        block_wide<CELL>(sums.row, at, lane, x.wide[0], x.wide[HAS_WIDE ? 1 : 0]);
        return;
    }
    md_codes<SETS ? SETS : 1> w;
    codes_load<CELL, WIDE>(w, at + lane * 16, at + code_units(CELL) * UNIT + (lane >> 2) * (WIDE ? 16 : 8));
    block_codes(sums, w, x.acts);
}

// Block k of what was asked for. The lane's columns of D are 2 t and 2 t + 1: lanes 4 (2 t) .. of B have their scales and sums.
template <int NC, u32 N, bool ALL>
static __device__ __forceinline__ void slice_take(md_slice<NC> &x, const md_digits_asked<N, 1, ALL> &in, u32 k, u32 lane) {
#pragma unroll
    for (u32 d = 0; d < DIGITS; d++) x.acts.b[d] = digits_word(in, k, d);
    const u32 with = digits_with(in, k), first = 8 * (lane & 3);
#pragma unroll
    for (u32 c = 0; c < (NC == 1 ? 1 : 2); c++) {
        x.acts.scale[c] = __uint_as_float(__shfl_sync(~0u, with, first + 4 * c));
#pragma unroll
        for (u32 set = 0; set < SETS_MAX; set++) x.acts.sum[set][c] = __uint_as_float(__shfl_sync(~0u, with, first + 4 * c + 1 + set));
    }
    if (HAS_WIDE) x.wide[0] = digits_word(in, k, 0, HAS_WIDE), x.wide[HAS_WIDE ? 1 : 0] = digits_word(in, k, 1, HAS_WIDE);
}

// The partial sums of the CTA's tiles up to `end` to SH_RED, from `red` on. `fits`: the stage's weights have all landed, and stay. `in`: the
// warp's first blocks, asked for where `asked`.
template <int NC, typename KIND>
static __device__ __forceinline__ void slices_product(md_ctx &ctx, md_stream &s, const md_tiles &tiles, md_lane<NC> &x,
                                                      md_slices<KIND> &in, bool asked, u32 red, u32 end, bool fits, u32 tag) {
    static_assert(KIND::lanes == 1, "all warps share a tile");
    const u32 size = format_units(x.format), past = x.first + x.count;
#pragma unroll 1
    while (x.tile < end && !ctx.failed) {
        md_sums<NC> sums = {};
#pragma unroll 1
        for (u32 first = x.first; first < past; first += slice_blocks<KIND>) {
            if (!asked) digits_ask<KIND>(ctx, in, first, past, tag);
            asked = false;
            digits_wait(ctx, in, tag);
            SPENT(HANDOFF);
#pragma unroll
            for (u32 k = 0; k < slice_blocks<KIND>; k++) {
                if (!slice_all<KIND> && first + k >= past) break;
                md_slice<NC> slice;
                slice_take<NC>(slice, in, k, ctx.lane);
                const u32 unit = x.at + (first + k - x.first) * size;
                if (!fits) {
                    SPENT(ARITHMETIC);
                    s = stream_turn(s, unit, unit + size - 1, ctx.lane, ctx.p->deadline_us);
                    SPENT(WEIGHTS);
                }
                switch (x.format) {
#define FORMAT_CASE(id, cell, scales, sets)                                                                            \
    case id: slice_block<cell, scales, sets>(sums, s, unit, slice, ctx.lane); break;
                    FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
                }
            }
        }
        float out[1][OUTPUTS(NC)];
        sums_out<NC>(out[0], sums);
        sums_put<NC, 1>(out, red, ctx.lane);
        red += TILE_RED(NC);
        lane_next<NC, KIND>(s, tiles, x, 1);
    }
    if (!fits) round_release<KIND>(ctx, s, tiles, end);
}
