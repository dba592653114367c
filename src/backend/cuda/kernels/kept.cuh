// With one column, a warp's first tile of a stage: its codes and scales go from the ring to registers before the stage's
// input has come, nibbles as bytes already, so that behind the arrival there is only the product, the same code whatever
// the bits.

#define KEPT_FORMAT(id, cell, wide, sets) &&(cell) <= CELL_Q8 && !(wide) && (sets) == 1
static __host__ __device__ constexpr bool formats_keep() { return true FORMATS(KEPT_FORMAT); }
#undef KEPT_FORMAT

template <typename KIND> struct md_kept {
    static constexpr bool possible = HAS_RING && COLUMNS == 1 && formats_keep() && !KIND::pieces && KIND::most <= KEEP_MOST && !is_kind<KIND, md_head>;
    static constexpr u32 blocks = possible ? KIND::most : 1;
    uint4 first[blocks], second[blocks];
    uint2 scales[blocks];
};
static __device__ __forceinline__ void pin(uint4 &x) { asm volatile("" : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)); }

template <u32 CELL, typename KIND> static __device__ __forceinline__ void kept_take(md_kept<KIND> &kept, const md_lane<1> &x, u32 lane) {
    constexpr u32 size = block_units(CELL, 0, 1) * UNIT;
#pragma unroll
    for (u32 i = 0; i < KIND::most; i++) {
        md_codes<1> w = {};
        kept.scales[i] = make_uint2(0, 0);
        if (KIND::even || i < x.count) {
            codes_read<CELL>(w, x.lies + i * size + lane * 16);
            kept.scales[i] = stream_uint2(x.lies + i * size + code_units(CELL) * UNIT + (lane >> 2) * 8);
        }
        kept.first[i] = w.first, kept.second[i] = w.second;
    }
#pragma unroll
    for (u32 i = 0; i < KIND::most; i++) pin(kept.first[i]), pin(kept.second[i]);
}
// All of the stage's weights have landed.
template <typename KIND> static __device__ __forceinline__ void kept_load(md_kept<KIND> &kept, const md_lane<1> &x, u32 lane) {
    switch (x.format) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: kept_take<smaller(cell, CELL_Q8), KIND>(kept, x, lane); break;
        FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
    default: __builtin_unreachable();
    }
}

// Where there is none: registers that are not always written would be kept for the whole token.
template <typename KIND> static __device__ __forceinline__ void kept_clear(md_kept<KIND> &kept) {
#pragma unroll
    for (u32 i = 0; i < KIND::most; i++) kept.first[i] = kept.second[i] = make_uint4(0, 0, 0, 0), kept.scales[i] = make_uint2(0, 0);
}

// Its partial sums to `red`.
template <typename KIND> static __device__ __forceinline__ void kept_sum(const md_kept<KIND> &kept, const md_lane<1> &x, u32 red, u32 lane) {
    md_sums<1> sums = {};
#pragma unroll
    for (u32 i = 0; i < KIND::most; i++) {
        if (!KIND::even && i >= x.count) break;
        md_codes<1> w = {kept.first[i], kept.second[i], {}};
        scales_of(w.sb[0], kept.scales[i]);
        md_acts<1> acts;
        acts_load<1>(acts, x, i);
        block_codes(sums, w, acts);
    }
    float out[1][OUTPUTS(1)];
    sums_out<1>(out[0], sums);
    sums_put<1, 1>(out, red, lane);
}
