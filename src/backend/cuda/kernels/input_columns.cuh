// Input vectors of matrix stages for several columns. What is made of a column is what one column alone gets (input.cuh),
// bit for bit; here a warp makes up to UNITS_AT_ONCE pairs of blocks together, of any columns, since each step of one waits
// for the step before, and asks for all entries it will need before anything else.
//
// Stages with a norm: all warps make all columns, and meet twice (md_units). Output and down projection, where a tile is
// split over all warps: a warp makes what it multiplies itself, a few pairs at a time, in a place of its own (md_slices), so
// that a long row needs little shared memory: the ring has it.

#define UNITS_ASKED 16u

// The largest power of two that is at most `n`.
static __host__ __device__ constexpr u32 power_below(u32 n) { return n < 2 ? 1 : 2 * power_below(n / 2); }

// ---- all warps, all columns ----------------------------------------------------------------------------------------

// A unit is a pair of blocks of one of two neighbouring columns. A warp takes every CONSUMER_WARPS-th pair of each column,
// which is what the sums of squares add up by. Where those that are left in the end keep at most half of the warps busy, the
// two columns share them: of odd columns, warps take the other half's pairs, so that all have as much to do.
template <typename KIND> struct md_units {
    static constexpr u32 full = (KIND::blocks + 1) / 2 / CONSUMER_WARPS, rest = (KIND::blocks + 1) / 2 % CONSUMER_WARPS;
    static constexpr bool shared_rest = rest && rest <= CONSUMER_WARPS / 2;
    static constexpr u32 count = 2 * full + (shared_rest ? 1 : rest ? 2 : 0);
    // Pairs that units may name: those past KIND's blocks hold zeros.
    static constexpr u32 pairs = full * CONSUMER_WARPS + (shared_rest ? CONSUMER_WARPS / 2 : rest ? CONSUMER_WARPS : 0);
    static constexpr u32 shift = shared_rest ? CONSUMER_WARPS / 2 : 0; // of odd columns' warps

    static __device__ __forceinline__ u32 odd(u32 u, u32 warp) {
        return shared_rest && u == 2 * full ? warp / (CONSUMER_WARPS / 2) : u & 1;
    }
    static __device__ __forceinline__ u32 pair(u32 u, u32 warp) {
        if (shared_rest && u == 2 * full) return full * CONSUMER_WARPS + warp % (CONSUMER_WARPS / 2);
        return u / 2 * CONSUMER_WARPS + (warp ^ (u & 1 ? shift : 0));
    }
};

// digits_make's target: units from columns 2 j and 2 j + 1 on, EACH of two columns. Its pair k is unit k here.
template <typename KIND, u32 EACH> struct md_digits_units {
    u32 j, first, warp;
    static constexpr u32 digit_words = COLUMNS * 16;
    __device__ __forceinline__ u32 column(u32 k) const { return 2 * (j + k / EACH) + md_units<KIND>::odd(first + k % EACH, warp); }
    __device__ __forceinline__ u32 block(u32 b) const { return 2 * md_units<KIND>::pair(first + b / 2 % EACH, warp) + b % 2; }
    __device__ __forceinline__ u32 *digits(u32 b) const { return (u32 *)digits_of(block(b), 0, column(b / 2)); }
    __device__ __forceinline__ float *group(u32 b) const { return group_of(block(b), column(b / 2)); }
    __device__ __forceinline__ u16 *wide(u32 b) const { return SH_XS + column(b / 2) * XSTRIDE + block(b) * 64; }
};

// Where a lane keeps its raw values of a pair of blocks until they become digits: in the digits' own place.
static __device__ __forceinline__ uint2 *raw_of(u32 pair, u32 c, u32 lane) {
    return (uint2 *)(digits_of(2 * pair + lane / 16, lane % 16 / 8, c) + lane % 8 * 8);
}

// Sums over a warp of N values a lane, each as warp_sum's; lane L has that of value sums_index<N>(L). N: a power of two.
template <u32 N> static __device__ __forceinline__ u32 sums_index(u32 lane) {
    u32 index = 0;
#pragma unroll
    for (u32 n = N, bit = 16; n > 1; n /= 2, bit /= 2) index |= lane & bit ? N / n : 0;
    return index;
}
template <u32 N> static __device__ __forceinline__ float warp_sums(float (&x)[N], u32 lane) {
    u32 bit = 16;
#pragma unroll
    for (u32 n = N; n > 1; n /= 2, bit /= 2) {
#pragma unroll
        for (u32 i = 0; i < n / 2; i++) {
            const bool upper = lane & bit;
            float mine = upper ? x[2 * i + 1] : x[2 * i], theirs = upper ? x[2 * i] : x[2 * i + 1];
            x[i] = mine + __shfl_xor_sync(~0u, theirs, bit);
        }
    }
#pragma unroll
    for (; bit; bit /= 2) x[0] += __shfl_xor_sync(~0u, x[0], bit);
    return x[0];
}

// A warp's entries of `J` times two columns, and the norm's weights: asked for before all else.
template <int NC, typename KIND> struct md_columns {
    typedef md_units<KIND> units;
    static constexpr u32 each = smaller(units::count, UNITS_ASKED); // units of two columns at once
    static constexpr u32 most = larger(NC / 2, 1);
    static constexpr u32 twos = smaller(most, power_below(UNITS_ASKED / each));
    static constexpr u32 made_each = smaller(units::count, UNITS_AT_ONCE), made_twos = smaller(most, power_below(UNITS_AT_ONCE / made_each));
    static constexpr bool keeps = made_each == units::count; // the weights, in registers
    uint4 v[each * twos];
    float4 weights[keeps ? made_each : 1];
};
// The lane's entry of unit u of columns 2 j and 2 j + 1. Written so that of units whose u is known, all of even columns (or
// odd, or of the rest) are one address plus a constant.
template <typename KIND> static __device__ __forceinline__ const uint4 *unit_entry(const md_ctx &ctx, u32 j, u32 u) {
    typedef md_units<KIND> units;
    const bool rest = units::shared_rest && u == 2 * units::full;
    const u32 odd = units::odd(u, ctx.warp), lane = units::pair(rest ? u : u & 1, ctx.warp) * 32 + ctx.lane;
    const uint4 *at = (const uint4 *)ctx.p->exchange + (rest ? odd * (KIND::tiles_in * 4) + lane : lane);
    return at + (KIND::input + (2 * j + (rest ? 0 : odd)) * (KIND::tiles_in * 4) + (rest ? 0 : u / 2 * (CONSUMER_WARPS * 32)));
}
template <int NC, typename KIND>
static __device__ __forceinline__ void units_ask(const md_ctx &ctx, md_columns<NC, KIND> &in, u32 j, u32 first, u32 tag) {
    typedef md_columns<NC, KIND> cols;
    typedef md_units<KIND> units;
    constexpr u32 each = cols::each;
    const u32 columns = ctx.p->columns;
    ask_entries<each * cols::twos>(
        in.v, tag, [&](u32 k) { return unit_entry<KIND>(ctx, j + k / each, first + k % each); },
        [&](u32 k) {
            const u32 u = first + k % each;
            const bool whole = units::pairs * 32 <= KIND::tiles_in * 4; // all units' lanes have an entry
            return (each == units::count || u < units::count) && 2 * (j + k / each) + units::odd(u, ctx.warp) < columns &&
                   (whole || units::pair(u, ctx.warp) * 32 + ctx.lane < KIND::tiles_in * 4);
        });
}
template <int NC, typename KIND>
static __device__ __forceinline__ void columns_ask(const md_ctx &ctx, md_columns<NC, KIND> &in, u32 tag, const float *norm) {
    typedef md_columns<NC, KIND> cols;
    units_ask<NC, KIND>(ctx, in, 0, 0, tag);
    if (KIND::norm && cols::keeps)
#pragma unroll
        for (u32 u = 0; u < cols::made_each; u++) in.weights[u] = norm_quad(norm, md_units<KIND>::pair(u, ctx.warp), ctx.lane);
}

// Brings all columns to shared memory, normalised where KIND has a norm. First raw values and sums of squares, by the
// units that a warp asks for together; behind a barrier digits, by those that it makes together.
template <int NC, typename KIND>
static __device__ __forceinline__ void columns_load(md_ctx &ctx, md_columns<NC, KIND> &in, u32 tag, const float *norm) {
    typedef md_columns<NC, KIND> cols;
    typedef md_units<KIND> units;
    static_assert(NC % 2 == 0 && 2 * units::pairs <= INPUT_BLOCKS, "columns are taken by twos; their digits have room");
    const u32 columns = ctx.p->columns;
    constexpr u32 each = cols::each, twos = cols::twos;
#pragma unroll 1
    for (u32 j = 0; j < NC / 2 && 2 * j < columns; j += twos) {
        float squares[2 * twos] = {};
#pragma unroll 1
        for (u32 first = 0; first < units::count; first += each) {
            SPENT(ARITHMETIC);
            if (j || first) units_ask<NC, KIND>(ctx, in, j, first, tag);
            wait_asked<each * twos, true, 1>(ctx, in.v, tag, [&](u32 k) { return unit_entry<KIND>(ctx, j + k / each, first + k % each); });
            SPENT(HANDOFF);
#pragma unroll
            for (u32 k = 0; k < each * twos; k++) {
                const u32 u = first + k % each, odd = units::odd(u, ctx.warp), two = k / each * 2;
                if ((each < units::count && u >= units::count) || 2 * j + two >= columns) break;
                *raw_of(units::pair(u, ctx.warp), 2 * j + two + odd, ctx.lane) = make_uint2(in.v[k].x, in.v[k].y);
                if (!KIND::norm) continue;
                const float sum = squares_of(in.v[k], odd ? squares[two + 1] : squares[two]);
                squares[two] = odd ? squares[two] : sum, squares[two + 1] = odd ? sum : squares[two + 1];
            }
        }
        if (!KIND::norm) continue;
        const float sum = warp_sums<2 * twos>(squares, ctx.lane);
        const u32 i = sums_index<2 * twos>(ctx.lane);
        if (ctx.lane % (16 / twos) == 0) SH_PARTS[(2 * j + i) * CONSUMER_WARPS + (ctx.warp ^ (i & 1 ? units::shift : 0))] = sum;
    }
    float r = 0; // of column `lane`
    if (KIND::norm) {
        consumers_sync();
        r = norm_factor(SH_PARTS + ctx.lane % NC * CONSUMER_WARPS, smaller((KIND::blocks + 1) / 2, CONSUMER_WARPS));
    } else {
        __syncwarp();
    }
    constexpr u32 made = cols::made_each, N = made * cols::made_twos;
#pragma unroll 1
    for (u32 j = 0; 2 * j < columns; j += cols::made_twos) {
#pragma unroll 1
        for (u32 first = 0; first < units::count; first += made) {
            const md_digits_units<KIND, made> to = {j, first, ctx.warp};
            uint2 x[N];
#pragma unroll
            for (u32 k = 0; k < N; k++) x[k] = *raw_of(to.block(2 * k) / 2, to.column(k), ctx.lane);
            if (KIND::norm)
#pragma unroll
                for (u32 k = 0; k < N; k++)
                    x[k] = normalised(x[k], __shfl_sync(~0u, r, to.column(k)),
                                      cols::keeps ? in.weights[k % made] : norm_quad(norm, to.block(2 * k) / 2, ctx.lane));
            __syncwarp(); // digits come where others' raw values lie
            const float4 none[N] = {};
            const u32 until = made == units::count ? 2 * N : smaller(2 * (units::count - first), 2 * N);
            digits_make<N, false>(x, 0, 1, to, 0, until, ctx.lane, 0, none);
        }
    }
    consumers_sync();
}

// ---- a warp, what it multiplies itself -----------------------------------------------------------------------------

// A warp's place: up to UNITS_AT_ONCE pairs of blocks, one a slot, as operands B of so many columns: [block of the pair][digit]
// [slot][64]. The pairs of several columns lie in neighbouring slots; where columns are few, several pairs of theirs.
static __device__ __forceinline__ u32 slice_of(const md_ctx &ctx) { return md_map::digits + ctx.warp * SLICE_BYTES; }

struct md_digits_slice { // digits_make's target: its pair k is slot k
    u32 place;           // slice_of
    static constexpr u32 digit_words = UNITS_AT_ONCE * 16;
    __device__ __forceinline__ u32 *digits(u32 b) const { return (u32 *)(shared + place + b % 2 * SLICE_BLOCK + b / 2 * 64); }
    __device__ __forceinline__ float *group(u32 b) const {
        return (float *)(shared + place + SLICE_GROUPS + (b % 2 * UNITS_AT_ONCE + b / 2) * (GROUP_FLOATS * 4));
    }
    __device__ __forceinline__ u16 *wide(u32 b) const { return (u16 *)(shared + place + SLICE_WIDE + b / 2 * SLICE_ROW + b % 2 * 128); }
};

template <typename KIND> struct md_slices {
    uint4 v[UNITS_AT_ONCE]; // the entries of pairs [asked, asked + pairs)
    u32 from, until;        // the warp's blocks
    u32 shift;              // a pair has 1 << shift slots, at least as many as there are columns
    u32 pairs;              // at once
    u32 asked;              // the first
};
// Slot k's entry. How far it lies from slot 0's is in shared memory; slots of columns that are not there repeat the first.
template <typename KIND> static __device__ __forceinline__ const uint4 *slice_entry(const md_ctx &ctx, u32 pair, u32 k) {
    const uint4 *at = (const uint4 *)ctx.p->exchange + KIND::input + pair * 32 + ctx.lane;
    return at + shared_u32(ctx.smem + slice_of(ctx) + SLICE_OFFSETS + k * 4);
}
template <typename KIND> static __device__ __forceinline__ void slices_ask(const md_ctx &ctx, md_slices<KIND> &in, u32 pair, u32 tag) {
    const u32 slots = ((in.until + 1) / 2 - pair) << in.shift; // of pairs that are the warp's
    in.asked = pair;
    ask_entries<UNITS_AT_ONCE>(
        in.v, tag, [&](u32 k) { return slice_entry<KIND>(ctx, pair, k); },
        [&](u32 k) {
            return k < slots && (KIND::tiles_in % 8 == 0 || (pair + (k >> in.shift)) * 32 + ctx.lane < KIND::tiles_in * 4);
        });
}
template <typename KIND> static __device__ __forceinline__ void slices_begin(const md_ctx &ctx, md_slices<KIND> &in, u32 tag) {
    const u32 columns = ctx.p->columns;
    in.from = ctx.warp * KIND::blocks / KIND::split, in.until = (ctx.warp + 1) * KIND::blocks / KIND::split;
    in.shift = columns > 4 ? 3 : columns > 2 ? 2 : 1, in.pairs = UNITS_AT_ONCE >> in.shift;
    const u32 c = ctx.lane & ((1u << in.shift) - 1), offset = (c < columns ? c * (KIND::tiles_in * 4) : 0) + (ctx.lane >> in.shift) * 32;
    if (ctx.lane < UNITS_AT_ONCE) *(u32 *)(shared + slice_of(ctx) + SLICE_OFFSETS + ctx.lane * 4) = offset;
    __syncwarp();
    slices_ask(ctx, in, in.from / 2, tag);
}

// Brings the pairs [pair, pair + pairs) to the warp's place, and asks for those that follow.
template <typename KIND> static __device__ __forceinline__ void slices_load(md_ctx &ctx, md_slices<KIND> &in, u32 pair, u32 tag) {
    if (in.asked != pair) slices_ask(ctx, in, pair, tag);
    wait_asked<UNITS_AT_ONCE, true, 1>(ctx, in.v, tag, [&](u32 k) { return slice_entry<KIND>(ctx, pair, k); });
    SPENT(HANDOFF);
    uint2 x[UNITS_AT_ONCE];
#pragma unroll
    for (u32 k = 0; k < UNITS_AT_ONCE; k++) x[k] = make_uint2(in.v[k].x, in.v[k].y);
    if (2 * (pair + in.pairs) < in.until) slices_ask(ctx, in, pair + in.pairs, tag);
    const float4 none[UNITS_AT_ONCE] = {};
    digits_make<UNITS_AT_ONCE, false>(x, 0, 1, md_digits_slice{slice_of(ctx)}, 0, 2 * UNITS_AT_ONCE, ctx.lane, 0, none);
    __syncwarp();
}
