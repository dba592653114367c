// The stages of a step, and the choice of the next token. Every function here is run by all consumer warps of a CTA for
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

static __device__ __noinline__ bool stage_embed(md_ctx &ctx, u32 tag) {
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
    y = bf(y);
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
    float y = 1.0f / (1.0f + e);
    float sig = bf(g < 0 ? y : 1.0f - y);
    return bf(bf(g * sig) * u);
}

// One matrix stage of a CTA. KIND says which; NB = blocks of K; SPLIT = warps that share a tile.
template <int NC, int KIND, u32 NB, u32 SPLIT>
static __device__ __forceinline__ bool stage_matrix(md_ctx &ctx, md_stream &stream, u32 stage, u32 layer, md_best *best) {
    const md_params *p = ctx.p;
    constexpr u32 tiles_in = KIND == KIND_OUT ? T_ATTN : KIND == KIND_DOWN ? T_F : T_X;
    constexpr u32 input = KIND == KIND_OUT      ? VECTOR_ATTN
                          : KIND == KIND_GATE_UP ? VECTOR_XA
                          : KIND == KIND_DOWN    ? VECTOR_ACT
                                                 : VECTOR_XB;
    constexpr u32 a_item = KIND == KIND_GATE_UP ? 2 : 1;
    constexpr u32 fit = RED_FLOATS / (SPLIT * 16 * NC) / a_item * a_item; // tiles a round
    const u32 columns = NC == 1 ? 1 : p->columns;
    const u32 first = SH_RUNS[stage].first, count = SH_RUNS[stage].count, tag = TAG(ctx, stage);
    if (count == 0) return false;
    const u32 r = ctx.lane & 15, half = ctx.lane >> 4;

    // The residual that a row is added to, asked for long before it is needed.
    constexpr u32 old_vector = KIND == KIND_OUT ? VECTOR_XB : VECTOR_XA;
    const u32 old_tag = KIND == KIND_OUT ? TAG(ctx, stage) - (S_OUT - S_QKV) - 1 : TAG(ctx, stage) - (S_DOWN - S_OUT);
    uint4 old = make_uint4(0, 0, 0, 0);
    if (KIND == KIND_OUT || KIND == KIND_DOWN) {
        u32 q = ctx.warp * 2 + half, tile = first + q / columns;
        if (q < count * columns) old = load_entry(entry_of(p, old_vector, T_X, q % columns, tile, r / 6));
    }

    const float *norm = KIND == KIND_QKV       ? PARAM_AUX(p, AUX_ATTN_NORM + layer * T_X * 16)
                        : KIND == KIND_GATE_UP ? PARAM_AUX(p, AUX_FFN_NORM + layer * T_X * 16)
                        : KIND == KIND_HEAD    ? PARAM_AUX(p, AUX_FINAL_NORM)
                                               : nullptr;
    if (load_vector<NC>(ctx, input, tiles_in, NB, tag - 1, norm)) return true;

    constexpr u32 blocks = (NB + SPLIT - 1) / SPLIT;
    constexpr bool cached = blocks <= CACHED_BLOCKS;
    md_acts x[cached ? blocks : 1];
    const u32 k = ctx.warp % SPLIT, first_block = k * NB / SPLIT, own = (k + 1) * NB / SPLIT - first_block;
    if (cached)
#pragma unroll
        for (u32 i = 0; i < blocks; i++)
            if (i < own) acts_load(x[i], first_block + i, ctx.lane, columns);

    u32 unit = stream.position;
    for (u32 done = 0; done < count * a_item; done += fit) {
        u32 n = min(fit, count * a_item - done);
        auto format_of = [&](u32 i) -> u32 {
            if (KIND == KIND_HEAD) return HEAD_FORMAT;
            u32 tile = first + done + i;
            u32 mat = KIND == KIND_QKV       ? (tile < T_Q ? MAT_Q : tile < T_Q + T_K ? MAT_K : MAT_V)
                      : KIND == KIND_OUT     ? MAT_OUT
                      : KIND == KIND_GATE_UP ? (i & 1 ? MAT_UP : MAT_GATE)
                                             : MAT_DOWN;
            return LAYER_FORMAT[layer * MATS + mat];
        };
        unit = tiles_mma<NC, NB, SPLIT>(ctx, stream, x, unit, n, columns, format_of);
        ctx.failed |= stream.failed;
        if (consumers_any(ctx.failed)) return true;
        u32 outputs = n / a_item * columns; // tiles of output values, half a warp each
        for (u32 base = ctx.warp * 2; base < outputs; base += CONSUMER_WARPS * 2) {
            u32 q = base + half, t = q / columns, c = q % columns, tile = first + done / a_item + t;
            bool valid = q < outputs;
            if (!valid) t = c = 0;
            float y = row_sum<NC, SPLIT>(t * a_item, r, c);
            if (KIND == KIND_QKV) {
                end_qkv<NC>(ctx, layer, y, tile, c, valid, tag);
            } else if (KIND == KIND_GATE_UP) {
                float u = bf(row_sum<NC, SPLIT>(t * 2 + 1, r, c));
                y = bf(y);
                if (valid) y = biased(p, y, layer, MAT_GATE, tile, r), u = biased(p, u, layer, MAT_UP, tile, r);
                put_tile(ctx, entry_of(p, VECTOR_ACT, T_F, c, tile, 0), bf_bits(swiglu(y, u)), valid, tag);
            } else if (KIND == KIND_HEAD) {
                u32 row = tile * 16 + r;
                if (valid && row < VOCAB) {
                    u32 bits = bf_bits(y);
                    if (p->col[c].logits) ((u16 *)p->logits)[(u64)c * VOCAB + row] = (u16)bits;
                    if (NC == 1) best_take(*best, bf_to(bits), row);
                }
            } else {
                y = bf(y);
                if (valid) {
                    y = biased(p, y, layer, KIND == KIND_OUT ? MAT_OUT : MAT_DOWN, tile, r);
                    const uint4 *at = entry_of(p, old_vector, T_X, c, tile, r / 6);
                    old = done == 0 && base < CONSUMER_WARPS * 2 ? wait_entry_from(ctx, at, old_tag, old) : wait_entry(ctx, at, old_tag);
                    y = bf(entry_value(old, r) + y);
                }
                put_tile(ctx, entry_of(p, KIND == KIND_OUT ? VECTOR_XA : VECTOR_XB, T_X, c, tile, 0), bf_bits(y), valid, tag);
            }
        }
        if (done + fit < count * a_item) consumers_sync(); // the sums are about to be overwritten
    }
    stream.position = unit;
    return false;
}

// ---- the next token -------------------------------------------------------------------------------------------------

// Every CTA puts the best of its logits in a record; every CTA reads all records and so knows the next token. Records
// alternate between two buffers by step, since a CTA without tiles may be late to read. CTA 0's record carries the host's
// wish to stop. {value, index, cancel, tag}
static __device__ __forceinline__ uint4 *record_of(const md_ctx &ctx, u32 cta) {
    return (uint4 *)ctx.p->records + (ctx.tag0 / STAGES & 1) * ctx.p->groups + cta;
}

static __device__ __noinline__ void record_put(md_ctx &ctx, md_best best, u32 tag) {
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        float value = __shfl_xor_sync(~0u, best.value, d);
        u32 index = __shfl_xor_sync(~0u, best.index, d);
        best_take(best, value, index);
    }
    uint2 *found = (uint2 *)SH_REDUCE;
    if (ctx.lane == 0) found[ctx.warp] = make_uint2(__float_as_uint(best.value), best.index);
    consumers_sync();
    if (ctx.tid != 0) return;
    for (u32 i = 1; i < CONSUMER_WARPS; i++) best_take(best, __uint_as_float(found[i].x), found[i].y);
    u32 cancel = ctx.cta == 0 && ctx.p->mailbox ? load_system((const u32 *)ctx.p->mailbox + 1) : 0;
    put_entry(ctx, record_of(ctx, ctx.cta), __float_as_uint(best.value), best.index, cancel, tag);
}

// The next token to *token; whether the launch ends here to *stop. True when someone failed.
static __device__ __noinline__ bool next_token(md_ctx &ctx, u32 tag, u32 *token, bool *stop) {
    const md_params *p = ctx.p;
    md_best best = {-INFINITY, ~0u};
    u32 cancel = 0;
    for (u32 i = ctx.tid; i < p->groups; i += CONSUMERS) {
        uint4 e = wait_entry(ctx, record_of(ctx, i), tag);
        best_take(best, __uint_as_float(e.x), e.y);
        cancel |= e.z;
    }
#pragma unroll
    for (int d = 16; d; d >>= 1) {
        float value = __shfl_xor_sync(~0u, best.value, d);
        u32 index = __shfl_xor_sync(~0u, best.index, d);
        best_take(best, value, index);
        cancel |= __shfl_xor_sync(~0u, cancel, d);
    }
    uint4 *found = (uint4 *)SH_REDUCE + CONSUMER_WARPS; // beside those of record_put
    if (ctx.lane == 0) found[ctx.warp] = make_uint4(__float_as_uint(best.value), best.index, cancel, 0);
    if (consumers_any(ctx.failed)) return true;
    best = {-INFINITY, ~0u};
    for (u32 i = 0; i < CONSUMER_WARPS; i++) {
        best_take(best, __uint_as_float(found[i].x), found[i].y);
        cancel |= found[i].z;
    }
    *token = best.index < VOCAB ? best.index : 0; // all logits NaN: a token all the same
    *stop = cancel != 0;
    for (u32 i = 0; i < p->stop_count; i++) *stop |= *token == p->stop[i];
    if (ctx.cta == 0 && ctx.tid == 0 && p->mailbox) {
        u32 *mailbox = (u32 *)p->mailbox;
        mailbox[2 + ctx.step] = *token;
        store_system_release(mailbox, ctx.step + 1);
    }
    return false;
}
