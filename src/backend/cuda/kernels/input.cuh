// Input vectors of matrix stages, as the integers that the tensor cores multiply: those of src/base/mathx.h and
// docs/MODEL.md.
//
// A block of 64 values x shares a power of two, its unit, such that x is an integer of units below 2^15; x is rounded to
// one, and the integer is written as two signed digits of base 256. A product of codes and digits is then an exact
// integer, whatever the order of its sums. An infinity or NaN makes the unit NaN, and so all that the block contributes to.
//
// A digit of a block's 64 columns lies as operand B wants it: lane t of a group of four holds the columns 8 t .. 8 t + 7
// and 32 + 8 t .. 32 + 8 t + 7 in 16 bytes (src/plan/tile_mma.h).

#define UNIT_BITS 14           // MD_UNIT_BITS: of the greatest's integer, below its leading one
#define UNIT_LEAST_EXPONENT 16 // MD_UNIT_LEAST_EXPONENT: biased, of the greatest
// The bits MAGIC_INT + n are as an fp32 number MAGIC_FLOAT + n, for every |n| < 2^22.
#define MAGIC_INT 0x4b400000
#define MAGIC_FLOAT 12582912.0f

static __device__ __forceinline__ u32 digits_at(const md_ctx &ctx, u32 block, u32 digit, u32 c) {
    return ctx.smem + md_map::digits + ((block * DIGITS + digit) * COLUMNS + c) * 64;
}
static __device__ __forceinline__ u32 group_at(const md_ctx &ctx, u32 block, u32 c) {
    return ctx.smem + md_map::groups + (block * COLUMNS + c) * (GROUP_FLOATS * 4);
}
static __device__ __forceinline__ u8 *digits_of(u32 block, u32 digit, u32 c) {
    return SH_DIGITS + ((block * DIGITS + digit) * COLUMNS + c) * 64;
}
static __device__ __forceinline__ float *group_of(u32 block, u32 c) { return SH_GROUPS + (block * COLUMNS + c) * GROUP_FLOATS; }

static __device__ __forceinline__ u32 permute_bytes(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }

// Where digits_make puts what it makes of a column: here, shared memory.
struct md_digits_here {
    u32 c;
    static constexpr u32 digit_words = COLUMNS * 16; // from one digit of a block to the next
    __device__ __forceinline__ u32 *digits(u32 block) const { return (u32 *)digits_of(block, 0, c); }
    __device__ __forceinline__ float *group(u32 block) const { return group_of(block, c); }
    __device__ __forceinline__ u16 *wide(u32 block) const { return SH_XS + c * XSTRIDE + block * 64; }
};

// RMSNorm of four values: times r, rounded, times w, rounded.
static __device__ __forceinline__ uint2 normalised(uint2 x, float r, float4 w) {
    u32 lo = bf_pair(bf_lo(x.x) * r, bf_hi(x.x) * r), hi = bf_pair(bf_lo(x.y) * r, bf_hi(x.y) * r);
    return make_uint2(bf_pair(w.x * bf_lo(lo), w.y * bf_hi(lo)), bf_pair(w.z * bf_lo(hi), w.w * bf_hi(hi)));
}

// N pairs of blocks (first, first + step, ..) of a column to digits, as far as they are blocks [from, until), by one warp. x:
// four values a lane and pair, of columns 4 lane .. 4 lane + 3; normalised where NORM.
// Step by step for all pairs, since every step waits for the one before.
template <u32 N, bool NORM, typename TO>
static __device__ __forceinline__ void digits_make(uint2 (&x)[N], u32 first, u32 step, const TO &put, u32 from, u32 until, u32 lane, float r,
                                                   const float4 (&w)[N]) {
    const u32 quad = lane % 16;
    const bool upper = lane >= 16; // of the pair's two blocks
    u32 most[N], v[N][4];
    int sums[N][2 * SETS_MAX]; // by sets of a pair's columns
    float unit[N];
#pragma unroll
    for (u32 k = 0; k < N; k++) {
        if (NORM) x[k] = normalised(x[k], r, w[k]);
        const u32 a = x[k].x & 0x7fff7fffu, b = x[k].y & 0x7fff7fffu, m = max(max(a, a << 16), max(b, b << 16));
        const u32 low = __reduce_max_sync(~0u, upper ? 0 : m), high = __reduce_max_sync(~0u, upper ? m : 0);
        most[k] = upper ? high : low; // a bf16, and below it bits that don't matter
    }
#pragma unroll
    for (u32 k = 0; k < N; k++) {
        // The exponent of the greatest times 1 + 1/128: the next one where its mantissa is all ones.
        const u32 exponent = max((most[k] + 0x10000u) >> 23, (u32)UNIT_LEAST_EXPONENT);
        const float inverse = __uint_as_float((254 + UNIT_BITS - exponent) << 23);
        unit[k] = exponent >= 255 ? __int_as_float(0x7fc00000) : __uint_as_float((exponent - UNIT_BITS) << 23);
        const float value[4] = {bf_lo(x[k].x), bf_hi(x[k].x), bf_lo(x[k].y), bf_hi(x[k].y)};
        // The sum's bits hold the integer, rounded to nearest even, plus 128: byte 1 is then the high digit, and byte 0 the
        // low one but for its sign bit.
#pragma unroll
        for (u32 i = 0; i < 4; i++) v[k][i] = __float_as_uint(fmaf(value[i], inverse, MAGIC_FLOAT + 128));
        const int sum = (int)(v[k][0] + v[k][1] + v[k][2] + v[k][3] - 4u * (MAGIC_INT + 128));
#pragma unroll
        for (u32 i = 0; i < 2 * SETS_MAX; i++) sums[k][i] = __reduce_add_sync(~0u, lane / (16 / SETS_MAX) == i ? sum : 0);
    }
#pragma unroll
    for (u32 k = 0; k < N; k++) {
        const u32 block = 2 * (first + k * step) + lane / 16;
        if (block < from || block >= until) continue;
        if (HAS_WIDE) *(uint2 *)(put.wide(block) + 4 * quad) = x[k];
        const u32 a = permute_bytes(v[k][0], v[k][1], 0x5140), b = permute_bytes(v[k][2], v[k][3], 0x5140);
        u32 *to = put.digits(block) + (quad % 8 / 2 * 4 + quad / 8 * 2 + quad % 2);
        to[0] = permute_bytes(a, b, 0x5410) ^ 0x80808080u;
        to[TO::digit_words] = permute_bytes(a, b, 0x7632);
        if (quad) continue;
        float *group = put.group(block);
        group[0] = unit[k];
#pragma unroll
        for (u32 i = 0; i < SETS_MAX; i++) group[1 + i] = (float)(lane ? sums[k][SETS_MAX + i] : sums[k][i]) * unit[k];
    }
}

// The lane's four norm weights of a pair of blocks.
static __device__ __forceinline__ float4 norm_quad(const float *norm, u32 pair, u32 lane) {
    u32 at = pair * 128 + lane * 4;
    return norm && at < T_X * 16 ? __ldg((const float4 *)(norm + at)) : make_float4(0, 0, 0, 0);
}

static __device__ __forceinline__ float squares_of(uint4 v, float sum) {
    sum = fmaf(bf_lo(v.x), bf_lo(v.x), sum), sum = fmaf(bf_hi(v.x), bf_hi(v.x), sum);
    return fmaf(bf_hi(v.y), bf_hi(v.y), fmaf(bf_lo(v.y), bf_lo(v.y), sum));
}
// 1 / root of the mean square of a column, from the partial sums of `warps` warps.
static __device__ __forceinline__ float norm_factor(const float *parts, u32 warps) {
    float sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (u32 w = 0; w < CONSUMER_WARPS / 4; w++) {
        if (4 * w >= warps) break;
        float4 part = ((const float4 *)parts)[w];
        sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
    }
    return reciprocal_root(fmaf((sum[0] + sum[1]) + (sum[2] + sum[3]), 1.0f / HIDDEN, NORM_EPS));
}

// The entries of the input that a lane brings, with one column. Where a tile is split over all warps, a warp brings the slice
// of K that it multiplies itself, so that there is no barrier between arrival and product (a pair of blocks that two warps
// share is made by both, each its own block); otherwise every CONSUMER_WARPS-th pair of blocks.
template <typename KIND> struct md_input {
    static constexpr u32 pairs = (KIND::blocks + 1) / 2;
    static constexpr u32 passes = KIND::own_slices ? KIND::slice_pairs : (pairs + CONSUMER_WARPS - 1) / CONSUMER_WARPS;
    static constexpr u32 step = KIND::own_slices ? 1 : CONSUMER_WARPS; // pairs from one to the next
    uint4 v[passes];
    float4 weights[passes]; // of the norm
    u32 pair, from, until;  // the first one; blocks
    const uint4 *at;
};
// Where they lie, and the norm's weights.
template <typename KIND> static __device__ __forceinline__ void input_begin(const md_ctx &ctx, md_input<KIND> &x, const float *norm) {
    x.from = KIND::own_slices ? ctx.warp * KIND::blocks / KIND::split : 0;
    x.until = KIND::own_slices ? (ctx.warp + 1) * KIND::blocks / KIND::split : KIND::blocks;
    x.pair = KIND::own_slices ? x.from / 2 : ctx.warp;
    x.at = entry_of(ctx.p, KIND::input, KIND::tiles_in, 0, 0, x.pair * 32 + ctx.lane);
#pragma unroll
    for (u32 k = 0; k < md_input<KIND>::passes; k++)
        x.weights[k] = KIND::norm ? norm_quad(norm, k * CONSUMER_WARPS + ctx.warp, ctx.lane) : make_float4(0, 0, 0, 0);
}
// Asks for them.
template <typename KIND> static __device__ __forceinline__ void input_ask(const md_ctx &ctx, md_input<KIND> &x, u32 tag) {
    constexpr u32 step = md_input<KIND>::step * 32; // entries
    const u32 end = min(KIND::tiles_in * 4, (x.until + 1) / 2 * 32), first = x.pair * 32 + ctx.lane;
    ask_entries<md_input<KIND>::passes>(
        x.v, tag, [&](u32 k) { return x.at + k * step; }, [&](u32 k) { return first + k * step < end; });
}

// Brings the input vector of the one column to shared memory, normalised where KIND has a norm: for all
// warps, or with own slices for the warp itself.
template <typename KIND> static __device__ __forceinline__ void load_column(md_ctx &ctx, md_input<KIND> &in, u32 tag) {
    constexpr u32 passes = md_input<KIND>::passes, step = md_input<KIND>::step, warps = smaller(md_input<KIND>::pairs, CONSUMER_WARPS);
    wait_asked<passes, true>(ctx, in.v, tag, [&](u32 k) { return in.at + k * (step * 32); });
    SPENT(HANDOFF);
    float r = 0;
    if (KIND::norm) {
        if (ctx.warp < warps) {
            float squares = 0;
#pragma unroll
            for (u32 k = 0; k < passes; k++) squares = squares_of(in.v[k], squares);
            squares = warp_sum(squares);
            if (ctx.lane == 0) SH_PARTS[ctx.warp] = squares;
        } else if (warps % 4 && ctx.lane == 0) {
            SH_PARTS[ctx.warp] = 0;
        }
        consumers_sync();
        r = norm_factor(SH_PARTS, warps);
    }
    uint2 x[passes];
#pragma unroll
    for (u32 k = 0; k < passes; k++) x[k] = make_uint2(in.v[k].x, in.v[k].y);
    if (KIND::own_slices || ctx.warp < warps)
        digits_make<passes, KIND::norm>(x, in.pair, step, md_digits_here{0}, in.from, in.until, ctx.lane, r, in.weights);
    if (KIND::own_slices)
        __syncwarp();
    else
        consumers_sync();
}
