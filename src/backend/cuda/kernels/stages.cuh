// The stages of a step. Every function here is run by all consumer warps of a CTA for
// that CTA's share, and returns true when someone in the CTA failed (a wait ran out, or another CTA's did).

// Matrices of a layer in the order of LAYER_FORMAT's columns.
enum { MAT_Q, MAT_K, MAT_V, MAT_OUT, MAT_GATE, MAT_UP, MAT_DOWN, MATS };

#define PARAM_AUX(p, at) ((const float *)(p)->aux + (at))

// ---- embedding ------------------------------------------------------------------------------------------------------

// Code i of a row of packed codes (a little-endian stream of bits).
static __device__ __forceinline__ u32 packed_code(const u32 *row, u32 i) {
    u32 bit = i * EMBED_BITS, word = bit / 32, shift = bit % 32;
    u32 v = __ldg(row + word) >> shift;
    if (shift + EMBED_BITS > 32) v |= __ldg(row + word + 1) << (32 - shift);
    return v & ((1u << EMBED_BITS) - 1u);
}

template <typename P> static __device__ __forceinline__ float embedding(const P *p, u32 token, u32 i) {
#if EMBED_BITS
    const u32 words = HIDDEN * EMBED_BITS / 32, groups = HIDDEN / EMBED_GROUP;
    u64 g = (u64)token * groups + i / EMBED_GROUP;
    float q = (float)packed_code((const u32 *)p->embed + (u64)token * words, i);
    float scaled = bf(__ldg((const float *)p->embed_scales + g) * q);
    return bf(scaled + __ldg((const float *)p->embed_biases + g));
#else
    return bf(__ldg((const float *)p->embed + (u64)token * HIDDEN + i));
#endif
}

static __device__ __forceinline__ bool stage_embed(md_ctx &ctx, u32 tag) {
    const md_params *p = ctx.p;
    u32 r = ctx.lane & 15, n = T_X * p->columns;
    for (u32 base = ctx.cta * CONSUMER_WARPS * 2 + ctx.warp * 2; base < n; base += p->groups * CONSUMER_WARPS * 2) {
        u32 i = base + (ctx.lane >> 4), c = i / T_X, tile = i % T_X, at = tile * 16 + r;
        float x = i < n && at < HIDDEN ? embedding(p, SH_TOKENS[c], at) : 0.0f;
        put_tile(ctx, entry_of(p, VECTOR_XB, T_X, c, tile, 0), bf_bits(x), i < n, tag);
    }
    SPENT(OUT);
    return false;
}

// ---- matrix stages --------------------------------------------------------------------------------------------------

struct md_best { // of the logits a thread has seen
    float value;
    u32 index;
};
static __device__ __forceinline__ void best_take(md_best &best, float value, u32 index) {
    if (value > best.value || (value == best.value && index < best.index)) best.value = value, best.index = index;
}

template <typename P> static __device__ __forceinline__ float biased(const P *p, float y, u32 layer, u32 mat, u32 tile, u32 r) {
#if HAS_BIAS
    u32 at = LAYER_BIAS[layer * MATS + mat];
    if (at != ~0u) y = bf(y + __ldg(PARAM_AUX(p, at) + tile * 16 + r));
#endif
    return y;
}

// RoPE's {cos, sin} for pair i of a head's dimensions, and the rotation of a pair.
static __device__ __forceinline__ float2 rotation(const float *inv_freq, float position, u32 i) {
    float sine, cosine;
    sincos_own(position * ROPE_SCALE * __ldg(inv_freq + i), &sine, &cosine);
    return make_float2(cosine, sine);
}
static __device__ __forceinline__ float rotate_low(float low, float high, float2 cs) { return bf(fmaf(low, cs.x, -(high * cs.y))); }
static __device__ __forceinline__ float rotate_high(float low, float high, float2 cs) { return bf(fmaf(low, cs.y, high * cs.x)); }

// q, k, v: RoPE on the pairs that lie 8 lanes apart, and out to the attention.
template <int NC>
static __device__ __forceinline__ void end_qkv(md_ctx &ctx, u32 layer, float y, u32 tile, u32 c, bool valid, u32 tag) {
    u32 r = ctx.lane & 15, mat = tile < T_Q ? MAT_Q : tile < T_Q + T_K ? MAT_K : MAT_V;
    u32 local = tile - (mat == MAT_Q ? 0 : mat == MAT_K ? T_Q : T_Q + T_K);
    if (valid) y = biased(ctx.p, y, layer, mat, local, r);
    float other = __shfl_xor_sync(~0u, y, 8);
    if (mat != MAT_V) {
        u32 d = local % (HEAD_DIM / 16) * 8 + (r & 7);
        float2 cs = SH_ROPE[(valid ? c : 0) * (HEAD_DIM / 2) + d];
        y = r < 8 ? rotate_low(y, other, cs) : rotate_high(other, y, cs);
    }
    u32 vector = mat == MAT_Q ? VECTOR_Q : mat == MAT_K ? VECTOR_K : VECTOR_V;
    u32 tiles = mat == MAT_Q ? T_Q : mat == MAT_K ? T_K : T_V;
    put_tile(ctx, entry_of(ctx.p, vector, tiles, c, local, 0), bf_bits(y), valid, tag);
}

static __device__ __forceinline__ float swiglu(float g, float u) {
    float e = bf(exp_near(fabsf(g)));
    float y = reciprocal(1.0f + e);
    float sig = bf(g < 0 ? y : 1.0f - y);
    return bf(bf(g * sig) * u);
}

// A CTA's tiles of a stage, the first of them tile `first` of the stage.
template <typename KIND>
static __device__ __forceinline__ md_tiles tiles_of(u32 start, u32 layer, u32 first) {
    const u8 *format = LAYER_FORMAT + layer * MATS;
    md_tiles tiles = {0, start, HEAD_FORMAT, 0, 0, 0, 0};
    if (is_kind<KIND, md_qkv>) {
        tiles.format0 = format[MAT_Q], tiles.format1 = format[MAT_K], tiles.format2 = format[MAT_V];
        tiles.k = first < T_Q ? T_Q - first : 0, tiles.v = first < T_Q + T_K ? T_Q + T_K - first : 0;
    }
    if (is_kind<KIND, md_gate_up>) tiles.format0 = format[MAT_GATE], tiles.format1 = format[MAT_UP];
    if (is_kind<KIND, md_out>) tiles.format0 = format[MAT_OUT];
    if (is_kind<KIND, md_down>) tiles.format0 = format[MAT_DOWN];
    return tiles;
}

// What a stage does with the 16 values of an output tile, one a lane of half a warp: y, and for gate_up the other
// matrix's `up`. `old`: the lane's entry of the residual, once it carries the tag `old_tag`.
template <int NC, typename KIND>
static __device__ __forceinline__ void tile_end(md_ctx &ctx, u32 layer, float y, float up, u32 tile, u32 c, bool valid, uint4 old,
                                                u32 old_tag, u32 tag, md_best *best) {
    const md_params *p = ctx.p;
    const u32 r = ctx.lane & 15;
    y = bf(y);
    if (is_kind<KIND, md_qkv>) {
        end_qkv<NC>(ctx, layer, y, tile, c, valid, tag);
    } else if (is_kind<KIND, md_head>) {
        u32 row = tile * 16 + r;
        if (!valid || row >= VOCAB) return;
        if (p->col[c].logits) ((u16 *)p->logits)[(u64)c * VOCAB + row] = (u16)bf_bits(y);
        best_take(*best, y, row);
    } else if (is_kind<KIND, md_gate_up>) {
        up = bf(up);
        if (valid) y = biased(p, y, layer, MAT_GATE, tile, r), up = biased(p, up, layer, MAT_UP, tile, r);
        put_tile(ctx, entry_of(p, VECTOR_ACT, T_F, c, tile, 0), bf_bits(swiglu(y, up)), valid, tag);
    } else {
        constexpr bool out = is_kind<KIND, md_out>;
        if (NC == 1 || valid) { // with one column the upper half does as the lower one
            y = biased(p, y, layer, out ? MAT_OUT : MAT_DOWN, tile, r);
            old = wait_entry_from(ctx, entry_of(p, out ? VECTOR_XB : VECTOR_XA, T_X, c, tile, r / 4), old_tag, old);
            y = bf(entry_value(old, r % 4) + y);
        }
        __syncwarp();
        put_tile(ctx, entry_of(p, out ? VECTOR_XA : VECTOR_XB, T_X, c, tile, 0), bf_bits(y), valid, tag);
    }
}

// A matrix stage of a CTA. What does not depend on its input comes before the wait for it: what follows the arrival is the
// token's time.
template <int NC, typename KIND>
static __device__ __forceinline__ bool stage_matrix(md_ctx &ctx, md_stream &stream, u32 stage, u32 layer, md_best *best) {
    const md_params *p = ctx.p;
    const uint4 run = shared_uint4(ctx.smem + md_map::runs + stage * 16); // {first unit, unit after the last, first item, items}
    const u32 first = run.z, count = run.w, tag = TAG(ctx, stage);
    const u32 norm_at = is_kind<KIND, md_head>  ? AUX_FINAL_NORM
                        : is_kind<KIND, md_qkv> ? AUX_ATTN_NORM + layer * (T_X * 16)
                                                : AUX_FFN_NORM + layer * (T_X * 16);
    if constexpr (NC > 1) digits_share<KIND>(ctx, PARAM_AUX(p, norm_at), tag - 1, tag);
    if (RARELY(count == 0)) return false;
    constexpr u32 pair = is_kind<KIND, md_gate_up> ? 1 : 0;                  // an item is 1 << pair tiles
    constexpr u32 fit = RED_ROUND(NC) / (16 * NC) / KIND::split & ~1u;          // tiles a round
    constexpr bool out = is_kind<KIND, md_out>, adds = out || is_kind<KIND, md_down>; // rows are added to the residual
    const u32 columns = NC == 1 ? 1 : p->columns, r = ctx.lane & 15, half = ctx.lane >> 4, all = count << pair;
    md_input<KIND> input;          // of the only column; of several:
    md_columns<KIND> columns_in;
    md_slices<KIND> slices_in;
    constexpr bool slices = NC > 1 && KIND::own_slices;
    const u32 end = stream.token + run.y;
    const bool fits = stream_fits(stream, end);
    SPENT(SETUP);
    if (fits) stream_need<!is_kind<KIND, md_head>>(stream, end - 1, ctx.lane, p->deadline_us);
    SPENT(WEIGHTS);
    if constexpr (NC == 1)
        input_begin<KIND>(ctx, input, PARAM_AUX(p, norm_at));
    else if constexpr (slices)
        digits_ask<KIND>(ctx, slices_in, ctx.warp * KIND::blocks / KIND::split, (ctx.warp + 1) * KIND::blocks / KIND::split, tag);
    else
        columns_ask<KIND>(ctx, columns_in, tag);
    md_tiles tiles = tiles_of<KIND>(stream.token + run.x, layer, first);
    tiles.end = end;
    const u32 old_tag = tag - (out ? S_OUT - S_QKV + 1 : S_DOWN - S_OUT); // the stage that the residual comes from
    const u32 old_vector = out ? VECTOR_XB : VECTOR_XA;
    // Output tiles: with one column a warp each, whose halves share the sums; with several half a warp each, always of the
    // same column.
    const u32 worker = NC == 1 ? ctx.warp : ctx.warp * 2 + half, c = NC == 1 ? 0 : worker % columns;
    const u32 step = NC == 1 ? CONSUMER_WARPS : CONSUMER_WARPS * 2 / columns, item0 = NC == 1 ? worker : worker / columns;
    uint4 old = make_uint4(0, 0, 0, 0);
    if (adds && item0 < step && item0 < count) // asked for long before it is needed
        old = load_entry(entry_of(p, old_vector, T_X, c, first + item0, r / 4));
    const u32 out_at = NC == 1 ? halves_at<KIND>(ctx) : ctx.smem + md_map::red;
    md_lane<NC> lane = lane_of<NC, KIND>(ctx, stream, tiles, columns);
    // Asked for here, so that the answer comes when all else is ready: a CTA that is late finds all there at its first look.
    constexpr bool merges = md_merges<KIND>::possible;
    const u32 blocks = NC == 1 ? (p->col[0].position + ctx.step) / ATTN_ROWS + 1 : 0;
    const bool merged = merges && blocks > 1 && blocks <= MERGE_FEW; // the input comes as partials
    if (NC == 1 && !merged) input_ask<KIND>(ctx, input, tag - 1);
    md_kept<KIND> kept; // the warp's first tile
    constexpr bool keep = md_kept<KIND>::possible;
    if constexpr (keep) {
        if (USUALLY(fits) && lane.tile < min(fit, all))
            kept_load<KIND>(kept, lane, ctx.lane);
        else
            kept_clear<KIND>(kept);
    }
    SPENT(SETUP);
    if constexpr (merges)
        if (merged) load_merged<KIND>(ctx, input, tag - (S_OUT - S_ATTN), blocks);
    if constexpr (NC == 1) {
        if (!merged) load_column<KIND>(ctx, input, tag - 1);
    } else if constexpr (slices) {
        consumers_sync(); // others may still be adding sums of the stage before
    } else {
        columns_load<KIND>(ctx, columns_in, tag);
    }
#pragma unroll 1
    for (u32 done = 0; done < all; done += fit) {
        u32 n = min(fit, all - done);
        constexpr bool known = NC == 1 && !is_kind<KIND, md_head>; // a case of its own where it is the usual one
        u32 red = lane.red;
        if constexpr (keep)
            if (USUALLY(fits && !done) && lane.tile < n) {
                kept_sum<KIND>(kept, lane, red, ctx.lane);
                red += TILE_RED(NC);
                lane_next<NC, KIND>(stream, tiles, lane, 1);
            }
        if constexpr (slices)
            slices_product<NC, KIND>(ctx, stream, tiles, lane, slices_in, done == 0, red, done + n, fits, tag);
        else if (known && USUALLY(fits))
            tiles_product<NC, KIND, known>(ctx, stream, tiles, lane, red, done + n, true, columns);
        else
            tiles_product<NC, KIND, false>(ctx, stream, tiles, lane, red, done + n, fits, columns);
        if (RARELY(stream.failed || ctx.failed)) {
            u64 long_ago = 1; // the weights did not come: said as a wait for their position
            if (!ctx.failed) wait_over((u32 *)p->report, 0, stage, tiles.start, stream.have, long_ago);
            ctx.failed = true;
            failure_note(ctx);
        }
        consumers_sync();
        const bool failed = is_failure(ctx, failure_word(ctx));
        SPENT(ARITHMETIC);
        const u32 items = n >> pair;
        u32 sums = out_at;
#pragma unroll 1
        for (u32 base = NC == 1 ? ctx.warp : 0; base < items; base += step) { // as often for both halves of a warp
            const u32 t = NC == 1 ? base : base + item0, tile = first + (done >> pair) + t;
            const bool there = NC == 1 || (item0 < step && t < items);
            float y, up = 0;
            if (NC == 1) {
                y = halves_sum<KIND>(sums, up);
                sums += CONSUMER_WARPS * (KIND::split << pair) * 16 * 4;
            } else {
                const u32 at = sums + ((((there ? t : 0) << pair) * KIND::split * 16 + r) * NC + c) * 4;
                y = row_sum<NC, KIND::split>(at);
                if (pair) up = row_sum<NC, KIND::split>(at + KIND::split * 16 * NC * 4);
            }
            const bool valid = there & (NC > 1 || half == 0) & !failed;
            if (adds && there && (done || base != (NC == 1 ? ctx.warp : 0))) old = load_entry(entry_of(p, old_vector, T_X, c, tile, r / 4));
            tile_end<NC, KIND>(ctx, layer, y, up, tile, c, valid, old, old_tag, tag, best);
        }
        if (RARELY(failed)) return true;
        SPENT(OUT);
        if (RARELY(done + fit < all)) consumers_sync(); // the sums are about to be overwritten
    }
    stream_release(stream, tiles.end, ctx.lane); // all of it has landed
    if (NC == 1) ctx.red ^= RED_FLOATS / 2; // others may still be adding when this warp has its next partial sums
    return false;
}
