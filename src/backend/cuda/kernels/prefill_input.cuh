// The input of a matrix step: a column's vector, normalised where the step has a norm, as digits (input.cuh), once for all
// row tiles. For each set of columns and block of 64 values of K, one after the other:
//     digits [DIGITS][SET_COLUMNS][64], so that 8 columns of a digit are the 512 bytes of an operand B
//     scales and sums [SET_COLUMNS][GROUP_FLOATS]
//     where some weights are not quantized, the values as bf16 [SET_COLUMNS][64]
#define INPUT_SUMS (DIGITS * SET_COLUMNS * 64) // bytes from the block's beginning
#define INPUT_WIDE (INPUT_SUMS + SET_COLUMNS * GROUP_FLOATS * 4)
#define INPUT_BYTES (INPUT_WIDE + (HAS_WIDE ? SET_COLUMNS * 128 : 0))

struct md_digits_there { // digits_make's target: one column
    u8 *set;
    u32 column; // of the set
    static constexpr u32 digit_words = SET_COLUMNS * 16;
    __device__ __forceinline__ u8 *block(u32 b) const { return set + (u64)b * INPUT_BYTES; }
    __device__ __forceinline__ u32 *digits(u32 b) const { return (u32 *)(block(b) + column * 64); }
    __device__ __forceinline__ float *group(u32 b) const { return (float *)(block(b) + INPUT_SUMS) + column * GROUP_FLOATS; }
    __device__ __forceinline__ u16 *wide(u32 b) const { return (u16 *)(block(b) + INPUT_WIDE) + column * 64; }
};

// Column x from a row of KIND::tiles_in tiles; sums of squares as in load_column.
template <typename KIND> static __device__ __forceinline__ void column_digits(const md_prefill &p, u64 rows, u32 norm_at) {
    constexpr u32 pairs = (KIND::blocks + 1) / 2, passes = (pairs + CONSUMER_WARPS - 1) / CONSUMER_WARPS;
    constexpr u32 warps = smaller(pairs, CONSUMER_WARPS), entries = KIND::tiles_in * 4;
    __shared__ __align__(16) float parts[CONSUMER_WARPS];
    const u32 c = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint2 *row = (const uint2 *)((const u16 *)rows + (u64)c * (KIND::tiles_in * 16));
    uint2 x[passes];
    float4 weights[passes] = {};
    float r = 0, squares = 0;
#pragma unroll
    for (u32 k = 0; k < passes; k++) {
        const u32 i = (k * CONSUMER_WARPS + warp) * 32 + lane;
        x[k] = i < entries ? row[i] : make_uint2(0, 0);
        if (KIND::norm) weights[k] = norm_quad(PARAM_AUX(&p, norm_at), k * CONSUMER_WARPS + warp, lane);
    }
    if (KIND::norm) {
#pragma unroll
        for (u32 k = 0; k < passes; k++) squares = squares_of(make_uint4(x[k].x, x[k].y, 0, 0), squares);
        squares = warp_sum(squares);
        if (lane == 0) parts[warp] = warp < warps ? squares : 0;
        __syncthreads();
        r = norm_factor(parts, warps);
    }
    const md_digits_there to = {(u8 *)p.input + (u64)(c / SET_COLUMNS) * KIND::blocks * INPUT_BYTES, c % SET_COLUMNS};
    if (warp < warps) digits_make<passes, KIND::norm>(x, warp, CONSUMER_WARPS, to, 0, KIND::blocks, lane, r, weights);
}

#define INPUT_KERNEL(name, kind, rows, norm_at)                                                                         \
    extern "C" __global__ void __launch_bounds__(CONSUMERS) name(const __grid_constant__ md_prefill p) {                \
        column_digits<kind>(p, rows, norm_at);                                                                          \
    }
INPUT_KERNEL(md_prefill_qkv_input, md_qkv, p.x, AUX_ATTN_NORM + p.layer * (T_X * 16))
INPUT_KERNEL(md_prefill_out_input, md_out, p.attn, 0)
INPUT_KERNEL(md_prefill_gate_up_input, md_gate_up, p.x, AUX_FFN_NORM + p.layer * (T_X * 16))
INPUT_KERNEL(md_prefill_down_input, md_down, p.act, 0)
