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

static __device__ __forceinline__ float embedding(const md_params *p, u32 token, u32 i) {
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

static __device__ __forceinline__ bool stage_embed(md_ctx ctx, u32 tag) {
    const md_params *p = ctx.p;
    u32 r = ctx.lane & 15, n = T_X * p->columns;
    for (u32 base = ctx.cta * CONSUMER_WARPS * 2 + ctx.warp * 2; base < n; base += p->groups * CONSUMER_WARPS * 2) {
        u32 i = base + (ctx.lane >> 4), c = i / T_X, tile = i % T_X, at = tile * 16 + r;
        float x = i < n && at < HIDDEN ? embedding(p, SH_TOKENS[c], at) : 0.0f;
        put_tile(ctx, entry_of(p, VECTOR_XB, T_X, c, tile, 0), bf_bits(x), i < n, tag);
    }
    return false;
}

// ---- matrix stages --------------------------------------------------------------------------------------------------

#define SPLIT_LOG2(split) (split == 16 ? 4 : split == 8 ? 3 : split == 4 ? 2 : split == 2 ? 1 : 0)
#define KIND_QKV 0
#define KIND_OUT 1
#define KIND_GATE_UP 2
#define KIND_DOWN 3
#define KIND_HEAD 4

struct md_best { // of the logits a thread has seen
    float value;
    u32 index;
};
static __device__ __forceinline__ void best_take(md_best &best, float value, u32 index) {
    if (value > best.value || (value == best.value && index < best.index)) best.value = value, best.index = index;
}

static __device__ __forceinline__ float biased(const md_params *p, float y, u32 layer, u32 mat, u32 tile, u32 r) {
#if HAS_BIAS
    u32 at = LAYER_BIAS[layer * MATS + mat];
    if (at != ~0u) y = bf(y + __ldg(PARAM_AUX(p, at) + tile * 16 + r));
#endif
    return y;
}

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
        y = r < 8 ? bf(fmaf(y, cs.x, -(other * cs.y))) : bf(fmaf(other, cs.y, y * cs.x));
    }
    u32 vector = mat == MAT_Q ? VECTOR_Q : mat == MAT_K ? VECTOR_K : VECTOR_V;
    u32 tiles = mat == MAT_Q ? T_Q : mat == MAT_K ? T_K : T_V;
    put_tile(ctx, entry_of(ctx.p, vector, tiles, c, local, 0), bf_bits(y), valid, tag);
}

static __device__ __forceinline__ float swiglu(float g, float u) {
    float e = bf(exp_own(fabsf(g)));
    float y = reciprocal(1.0f + e);
    float sig = bf(g < 0 ? y : 1.0f - y);
    return bf(bf(g * sig) * u);
}

static __constant__ md_kind KINDS[] = {
    {NB_X, SPLIT_QKV, SPLIT_LOG2(SPLIT_QKV), VECTOR_XB, T_X, AUX_ATTN_NORM, T_X * 16},
    {NB_ATTN, SPLIT_OUT, SPLIT_LOG2(SPLIT_OUT), VECTOR_ATTN, T_ATTN, ~0u, 0},
    {NB_X, SPLIT_GATE_UP, SPLIT_LOG2(SPLIT_GATE_UP), VECTOR_XA, T_X, AUX_FFN_NORM, T_X * 16},
    {NB_F, SPLIT_DOWN, SPLIT_LOG2(SPLIT_DOWN), VECTOR_ACT, T_F, ~0u, 0},
    {NB_X, SPLIT_HEAD, SPLIT_LOG2(SPLIT_HEAD), VECTOR_XB, T_X, AUX_FINAL_NORM, 0},
};

static __constant__ u8 FIRST_MAT[] = {MAT_Q, MAT_OUT, MAT_GATE, MAT_DOWN, 0}; // by kind

// A matrix stage of a CTA. One body for all kinds, so that a layer's code stays in the instruction cache: a token walks
// it over a hundred times, and a copy a kind costs several times what literals would save (docs/SPEED.md).
template <int NC>
static __device__ __forceinline__ bool stage_matrix(md_ctx &ctx, md_stream &stream, u32 stage, u32 which, u32 layer, md_best *best) {
    const md_params *p = ctx.p;
    const u32 first = SH_RUNS[stage].first, count = SH_RUNS[stage].count, tag = TAG(ctx, stage);
    if (count == 0) return false;
    const md_kind &kind = KINDS[which];
    const u32 columns = NC == 1 ? 1 : p->columns, r = ctx.lane & 15, half = ctx.lane >> 4;
    const u32 pair = which == KIND_GATE_UP ? 1 : 0;                                 // an item is 1 << pair tiles
    const u32 fit = (RED_FLOATS / (16 * NC) >> kind.split_log2) & ~1u;              // tiles a round
    const bool adds = which == KIND_OUT || which == KIND_DOWN;                      // rows are added to the residual
    const u32 old_vector = which == KIND_OUT ? VECTOR_XB : VECTOR_XA;               // it lies here
    const u32 old_tag = tag - (which == KIND_OUT ? S_OUT - S_QKV + 1 : S_DOWN - S_OUT); // since this stage

    uint4 old = make_uint4(0, 0, 0, 0); // asked for long before it is needed
    if (adds) {
        u32 q = NC == 1 ? ctx.warp : ctx.warp * 2 + half, tile = first + q / columns;
        if (q < count * columns) old = load_entry(entry_of(p, old_vector, T_X, q % columns, tile, r / 6));
    }
    const float *norm = kind.norm == ~0u ? nullptr : PARAM_AUX(p, kind.norm + layer * kind.norm_stride);
    if (load_vector<NC>(ctx, kind.input, kind.tiles_in, kind.blocks, tag - 1, norm)) return true;
    MARK(2);

    const u32 k = ctx.warp & (kind.split - 1), first_block = k * kind.blocks >> kind.split_log2;
    const u32 own = ((k + 1) * kind.blocks >> kind.split_log2) - first_block;
    MARK(3);

    // Formats of the stage's tiles: before edge[0], before edge[1], after; gate and up by turns.
    const bool qkv = which == KIND_QKV;
    const u32 edge[2] = {qkv ? T_Q : ~0u, T_Q + T_K};
    u32 formats[3];
    formats[0] = which == KIND_HEAD ? HEAD_FORMAT : LAYER_FORMAT[layer * MATS + FIRST_MAT[which]];
    formats[1] = LAYER_FORMAT[layer * MATS + (qkv ? MAT_K : MAT_UP)], formats[2] = LAYER_FORMAT[layer * MATS + MAT_V];

    u32 unit = stream.position;
#pragma unroll 1
    for (u32 done = 0; done < count << pair; done += fit) {
        u32 n = min(fit, (count << pair) - done);
        auto format_of = [&](u32 i) -> u32 {
            if (which == KIND_GATE_UP) return i & 1 ? formats[1] : formats[0];
            return first + done + i < edge[0] ? formats[0] : first + done + i < edge[1] ? formats[1] : formats[2];
        };
        unit = tiles_product<NC>(ctx, stream, kind, first_block, own, unit, n, columns, format_of);
        if (stream.failed && !ctx.failed) { // the weights did not come: said as a wait for their position
            u64 long_ago = 1;
            wait_over((u32 *)p->report, 0, stage, unit, stream.have, long_ago);
            ctx.failed = true;
        }
        MARK(4);
        if (consumers_any(ctx.failed)) return true;
        MARK(5);
        // Output tiles of 16 values: half a warp each; with one column a warp each, whose halves share the sums.
        const u32 step = NC == 1 ? 1 : 2, outputs = (n >> pair) * columns;
#pragma unroll 1
        for (u32 base = ctx.warp * step; base < outputs; base += CONSUMER_WARPS * step) {
            u32 q = NC == 1 ? base : base + half, t = NC == 1 ? q : q / columns, c = NC == 1 ? 0 : q % columns;
            u32 tile = first + (done >> pair) + t;
            bool valid = q < outputs && (NC > 1 || half == 0);
            if (q >= outputs) t = c = 0;
            float y, up;
            if (NC > 1) {
                y = row_sum<NC>(kind.split, t << pair, r, c);
                if (pair) up = row_sum<NC>(kind.split, t * 2 + 1, r, c);
            } else if (pair) { // the lower half sums gate, the upper one up
                y = row_sum<NC>(kind.split, t * 2 + half, r, c);
                up = __shfl_xor_sync(~0u, y, 16);
            } else {
                y = part_sum<NC>(kind.split, t, r, c, half * kind.split / 2, (half + 1) * kind.split / 2);
                y += __shfl_xor_sync(~0u, y, 16);
            }
            y = bf(y);
            if (which == KIND_QKV) {
                end_qkv<NC>(ctx, layer, y, tile, c, valid, tag);
            } else if (which == KIND_HEAD) {
                u32 row = tile * 16 + r;
                if (valid && row < VOCAB) {
                    if (p->col[c].logits) ((u16 *)p->logits)[(u64)c * VOCAB + row] = (u16)bf_bits(y);
                    if (NC == 1) best_take(*best, y, row);
                }
            } else {
                uint4 *to;
                if (which == KIND_GATE_UP) {
                    float u = bf(up);
                    if (valid) y = biased(p, y, layer, MAT_GATE, tile, r), u = biased(p, u, layer, MAT_UP, tile, r);
                    y = swiglu(y, u);
                    to = entry_of(p, VECTOR_ACT, T_F, c, tile, 0);
                } else {
                    if (valid) {
                        y = biased(p, y, layer, which == KIND_OUT ? MAT_OUT : MAT_DOWN, tile, r);
                        const uint4 *at = entry_of(p, old_vector, T_X, c, tile, r / 6);
                        if (done || base >= CONSUMER_WARPS * step) old = load_entry(at);
                        old = wait_entry_from(ctx, at, old_tag, old);
                        y = bf(entry_value(old, r) + y);
                    }
                    to = entry_of(p, which == KIND_OUT ? VECTOR_XA : VECTOR_XB, T_X, c, tile, 0);
                }
                put_tile(ctx, to, bf_bits(y), valid, tag);
            }
        }
        if (done + fit < count << pair) consumers_sync(); // the sums are about to be overwritten
    }
    stream.position = unit;
    MARK(6);
    return false;
}
