// Input vectors of matrix stages, as the integers that the tensor cores multiply.
//
// A pair of blocks (128 values x) shares one power of two, its scale, such that |x| < 2^22 scales; x is rounded to an
// integer of scales (a bf16 within 2^14 of the pair's largest is exact, the others lose what an fp32 sum would lose),
// and the integer is written as three signed digits of base 256. A product of codes and digits is then an exact integer,
// whatever the order of its sums. An infinity or NaN makes the scale NaN, and so all that the pair contributes to.
//
// A digit of a block's 64 columns lies as operand B wants it: lane t of a group of four holds the columns 8 t .. 8 t + 7
// and 32 + 8 t .. 32 + 8 t + 7 in 16 bytes (src/plan/tile_mma.h).

#define DIGITS 3
#define LARGEST_FIELD 275u // 127 + 21 + 127: exponent fields of x's largest and of the factor to integers add up to it

static __device__ __forceinline__ u8 *digits_of(u32 block, u32 digit, u32 c) {
    return SH_DIGITS + ((block * DIGITS + digit) * COLUMNS + c) * 64;
}
static __device__ __forceinline__ float *group_of(u32 block, u32 c) { return SH_GROUPS + (block * COLUMNS + c) * GROUP_FLOATS; }

// An entry (e = 0..11) of a block, raw: columns 0..31 where the first digit will lie, 32..63 where the second.
static __device__ __forceinline__ void raw_store(uint4 v, u32 block, u32 c, u32 e) {
    u32 tile = e / 3, k = e % 3, *to = (u32 *)digits_of(block, tile / 2, c) + tile % 2 * 8 + k * 3;
    to[0] = v.x, to[1] = v.y;
    if (k < 2) to[2] = v.z;
}

static __device__ __forceinline__ u32 permute_bytes(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }

// The pair of blocks from raw values to digits, by one warp, four columns a lane; normalised where NORM: times r, rounded,
// times w, rounded.
template <bool NORM>
static __device__ __forceinline__ void digits_make(u32 pair, u32 c, u32 blocks, u32 lane, float r, float4 w) {
    const u32 block = 2 * pair + lane / 16, quad = lane % 16;
    const bool there = block < blocks;
    uint2 x = make_uint2(0, 0);
    if (there) x = *(const uint2 *)(digits_of(block, quad / 8, c) + quad % 8 * 8);
    __syncwarp();
    if (NORM) {
        u32 lo = bf_pair(bf_lo(x.x) * r, bf_hi(x.x) * r), hi = bf_pair(bf_lo(x.y) * r, bf_hi(x.y) * r);
        x.x = bf_pair(w.x * bf_lo(lo), w.y * bf_hi(lo)), x.y = bf_pair(w.z * bf_lo(hi), w.w * bf_hi(hi));
    }
    if (HAS_WIDE && there) *(uint2 *)(SH_XS + c * XSTRIDE + block * 64 + 4 * quad) = x;
    u32 a = x.x & 0x7fff7fffu, b = x.y & 0x7fff7fffu;
    u32 field = __reduce_max_sync(~0u, max(max(a, a << 16), max(b, b << 16))) >> 23; // the largest's exponent
    field = max(field, 27u);
    const float up = __uint_as_float((LARGEST_FIELD - field) << 23);
    const float down = field == 255 ? __int_as_float(0x7fc00000) : __uint_as_float((field - 21) << 23);
    const float value[4] = {bf_lo(x.x), bf_hi(x.x), bf_lo(x.y), bf_hi(x.y)};
    int sum = 0;
    u32 v[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        int n = __float_as_int(fmaf(value[i], up, MAGIC_FLOAT)) - MAGIC_INT; // rounded to nearest even
        sum += n;
        v[i] = ((u32)n + 0x8080u) ^ 0x8080u; // bytes 0, 1, 2: the digits
    }
    int sums[2 * SETS_MAX]; // by sets of the pair's columns
#pragma unroll
    for (u32 i = 0; i < 2 * SETS_MAX; i++) sums[i] = __reduce_add_sync(~0u, lane / (16 / SETS_MAX) == i ? sum : 0);
    if (!there) return;
    u32 low = permute_bytes(v[0], v[1], 0x5140), low2 = permute_bytes(v[2], v[3], 0x5140);
    u32 high = permute_bytes(v[0], v[1], 0x0062), high2 = permute_bytes(v[2], v[3], 0x0062);
    u32 at = quad % 8 / 2 * 4 + quad / 8 * 2 + quad % 2;
    ((u32 *)digits_of(block, 0, c))[at] = permute_bytes(low, low2, 0x5410);
    ((u32 *)digits_of(block, 1, c))[at] = permute_bytes(low, low2, 0x7632);
    ((u32 *)digits_of(block, 2, c))[at] = permute_bytes(high, high2, 0x5410);
    if (quad) return;
    float *group = group_of(block, c);
    group[0] = down;
#pragma unroll
    for (u32 i = 0; i < SETS_MAX; i++) group[1 + i] = (float)(lane ? sums[SETS_MAX + i] : sums[i]) * down;
}

// The lane's four norm weights of a pair of blocks.
static __device__ __forceinline__ float4 norm_quad(const float *norm, u32 pair, u32 lane) {
    u32 at = pair * 128 + lane * 4;
    return norm && at < T_X * 16 ? __ldg((const float4 *)(norm + at)) : make_float4(0, 0, 0, 0);
}

// Brings an input vector to shared memory, normalised where `norm` is given. A warp takes pairs of blocks: their 24
// entries lie in lanes 0..23. True when someone failed.
template <int NC>
static __device__ __forceinline__ bool load_vector(md_ctx &ctx, u32 vector, u32 tiles, u32 blocks, u32 tag, const float *norm) {
    const md_params *p = ctx.p;
    const u32 columns = NC == 1 ? 1 : p->columns, side = ctx.lane / 12, e = ctx.lane % 12; // side 2: idle lanes
    const u32 passes = (blocks + 2 * CONSUMER_WARPS - 1) / (2 * CONSUMER_WARPS), items = passes * columns;
    const float4 first_weights = norm_quad(norm, ctx.warp, ctx.lane); // asked for before the wait
    constexpr u32 BATCH = NC == 1 ? 3 : 2;                            // loads of a thread under way at once
    float squares = 0;
#pragma unroll 1
    for (u32 i0 = 0; i0 < items; i0 += BATCH) {
        uint4 v[BATCH];
#pragma unroll
        for (u32 k = 0; k < BATCH; k++) {
            u32 i = i0 + k, c = NC == 1 ? 0 : i / passes, pass = i - c * passes;
            u32 tile = ((pass * CONSUMER_WARPS + ctx.warp) * 2 + side) * 4 + e / 3;
            v[k] = make_uint4(0, 0, 0, tag);
            if (i < items && side < 2 && tile < tiles) v[k] = load_entry(entry_of(p, vector, tiles, c, tile, e % 3));
        }
#pragma unroll
        for (u32 k = 0; k < BATCH; k++) {
            u32 i = i0 + k, c = NC == 1 ? 0 : i / passes, pass = i - c * passes;
            u32 pair = pass * CONSUMER_WARPS + ctx.warp, block = pair * 2 + side, tile = block * 4 + e / 3;
            if (i >= items) continue; // the same for the whole warp
            if (2 * pair < blocks) {
                uint4 got = wait_entry_from(ctx, entry_of(p, vector, tiles, c, tile, e % 3), tag, v[k]);
                if (side < 2 && block < blocks) raw_store(got, block, c, e);
                if (norm) {
                    squares = fmaf(bf_lo(got.x), bf_lo(got.x), squares), squares = fmaf(bf_hi(got.x), bf_hi(got.x), squares);
                    squares = fmaf(bf_lo(got.y), bf_lo(got.y), squares), squares = fmaf(bf_hi(got.y), bf_hi(got.y), squares);
                    squares = fmaf(bf_lo(got.z), bf_lo(got.z), squares), squares = fmaf(bf_hi(got.z), bf_hi(got.z), squares);
                } else {
                    __syncwarp();
                    digits_make<false>(pair, c, blocks, ctx.lane, 0, first_weights);
                }
            }
            if (norm && pass + 1 == passes) {
                squares = warp_sum(squares);
                if (ctx.lane == 0) SH_PARTS[c * CONSUMER_WARPS + ctx.warp] = squares;
                squares = 0;
            }
        }
    }
    if (!norm) return consumers_any(ctx.failed);
    MARK(1);
    if (consumers_any(ctx.failed)) return true;
#pragma unroll 1
    for (u32 i = 0; i < items; i++) {
        u32 c = NC == 1 ? 0 : i / passes, pass = i - c * passes, pair = pass * CONSUMER_WARPS + ctx.warp;
        if (2 * pair >= blocks) continue;
        float sum = 0;
#pragma unroll
        for (u32 w = 0; w < CONSUMER_WARPS / 4; w++) {
            float4 part = ((const float4 *)(SH_PARTS + c * CONSUMER_WARPS))[w];
            sum += (part.x + part.y) + (part.z + part.w);
        }
        float r = reciprocal_root(fmaf(sum, 1.0f / HIDDEN, NORM_EPS));
        digits_make<true>(pair, c, blocks, ctx.lane, r, pass ? norm_quad(norm, pair, ctx.lane) : first_weights);
    }
    consumers_sync();
    return false;
}
