// The kernel: stages [stage_begin, stage_end) of p.tokens steps. One launch of all stages on all SMs is the resident
// engine; one launch a stage is the ops engine. Both run this same code, so they give the same bits.
//
// One CTA an SM: CONSUMER_WARPS warps compute, one thread of the last warp streams the weights.

// Whether stage s is to be computed; then readies the context.
static __device__ __forceinline__ bool stage_begins(md_ctx &ctx, u32 s) {
    if (s < ctx.p->stage_begin || s >= ctx.p->stage_end) return false;
    ctx.stage = s;
    // Read again in every stage, so that what follows from it isn't computed once and kept in registers for the whole token.
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(ctx.tid));
    ctx.warp = ctx.tid / 32, ctx.lane = ctx.tid % 32;
#if ACCOUNT
    ctx.kind = s == S_EMBED ? 0 : s == S_HEAD ? KIND_NEXT - 1 : 1 + (s - S_LAYERS) % S_A_LAYER;
#endif
#if INJECT
    if (ctx.p->delay_seed) { // a pseudo-random delay of up to 8 us in every stage of every CTA
        u32 h = (ctx.p->delay_seed + s * 0x9e3779b9u) ^ (ctx.cta + ctx.step * 977u) * 0x85ebca6bu;
        h = (h ^ h >> 15) * 0x2c1b3c6du, h ^= h >> 13;
        if (h & 1) __nanosleep(h >> 19);
    }
#endif
    return true;
}

// The layer that stage s belongs to, or the first behind it.
static __device__ __forceinline__ u32 layer_of(u32 s) { return s < S_LAYERS ? 0 : (s - S_LAYERS) / S_A_LAYER; }

// The stages of one layer that this launch wants. True when someone failed.
template <int NC> static __device__ __forceinline__ bool run_layer(md_ctx &ctx, md_stream &stream, u32 layer, md_best *best) {
    const u32 s = S_LAYERS + layer * S_A_LAYER;
    if (stage_begins(ctx, s + S_QKV) && stage_matrix<NC, md_qkv>(ctx, stream, s + S_QKV, layer, best)) return true;
    // With one column: nothing to score where the layer's cache is bf16, nothing to merge where there is one block, or few.
    const bool no_scores = COLUMNS == 1 && !layer_cache(ctx, 0, layer).bits;
#pragma unroll 1
    for (u32 i = no_scores; i < 2; i++) { // one body: S_SCORES, then S_ATTN
        u32 a = s + (i ? S_ATTN : S_SCORES);
        if (stage_begins(ctx, a) && stage_attention(ctx, layer, i == 0, TAG(ctx, s + S_QKV), TAG(ctx, s + S_SCORES), TAG(ctx, a),
                                                    TAG(ctx, s + S_MERGE)))
            return true;
    }
    const bool no_merge = COLUMNS == 1 ? ctx.p->col[0].position + ctx.step < (md_merges<md_out>::possible ? MERGE_FEW : 1) * ATTN_ROWS
                                       : !columns_of(ctx, [](uint4 place, u32) { return place.w > 1; });
    if (!no_merge && stage_begins(ctx, s + S_MERGE) && stage_merge(ctx, TAG(ctx, s + S_ATTN), TAG(ctx, s + S_MERGE))) return true;
    if (stage_begins(ctx, s + S_OUT) && stage_matrix<NC, md_out>(ctx, stream, s + S_OUT, layer, best)) return true;
    if (stage_begins(ctx, s + S_GATE_UP) && stage_matrix<NC, md_gate_up>(ctx, stream, s + S_GATE_UP, layer, best)) return true;
    return stage_begins(ctx, s + S_DOWN) && stage_matrix<NC, md_down>(ctx, stream, s + S_DOWN, layer, best);
}

template <int NC> static __device__ __forceinline__ void consume(const md_params &p, md_stream &stream) {
    md_ctx ctx;
    ctx.p = &p, ctx.cta = blockIdx.x, ctx.tid = threadIdx.x, ctx.warp = threadIdx.x / 32, ctx.lane = threadIdx.x % 32;
    ctx.failed = false, ctx.stage = 0, ctx.red = 0, ctx.smem = shared_address(shared);
    pin(ctx.smem);
    const md_run *runs = (const md_run *)p.runs + ctx.cta; // as units of the stream: SH_RUNS
    for (u32 s = ctx.tid; s < STAGES; s += CONSUMERS) {
        const md_run &run = runs[(u64)s * p.groups];
        u64 begin = p.stage_begin < STAGES ? runs[(u64)p.stage_begin * p.groups].offset : 0, end = runs[(u64)(s + 1) * p.groups].offset;
        SH_RUNS[s] = make_uint4((u32)((run.offset - begin) / UNIT), (u32)((end - begin) / UNIT), run.first, run.count);
    }
    if (NC == 1)
        for (u32 i = ctx.tid; i < LAYERS * 3; i += CONSUMERS) ((uint4 *)SH_CACHES)[i] = __ldg((const uint4 *)p.col[0].kv + i);
#if GRAPH
    const u32 *state = (const u32 *)p.state;
    const u32 first = __ldcg(state), epoch = __ldcg(state + 1);
    if (ctx.tid < (NC == 1 ? 1 : p.columns)) SH_TOKENS[ctx.tid] = __ldcg(state + 2 + ctx.tid);
#else
    const u32 first = 0, epoch = p.epoch;
    if (ctx.tid < (NC == 1 ? 1 : p.columns)) SH_TOKENS[ctx.tid] = p.col[ctx.tid].token;
#endif
    if (ctx.tid == 0) *SH_FAILED = 0;
#if ACCOUNT
    const u64 begin = now_ns();
    account_begin(ctx);
#endif
    stream.token = 0;
    for (ctx.step = first; ctx.step < first + p.tokens; ctx.step++) {
        ctx.tag0 = epoch + (ctx.step - first) * STAGES;
        consumers_sync();
        caches_ask(ctx, min(layer_of(p.stage_begin), LAYERS - 1u));
        places_note(ctx);
        for (u32 i = ctx.tid; i < (NC == 1 ? 1 : p.columns) * (HEAD_DIM / 2); i += CONSUMERS) {
            float position = (float)(p.col[i / (HEAD_DIM / 2)].position + ctx.step);
            SH_ROPE[i] = rotation(PARAM_AUX(&p, AUX_INV_FREQ), position, i % (HEAD_DIM / 2));
        }
        consumers_sync();
        md_best best = {-INFINITY, ~0u};
        if (stage_begins(ctx, S_EMBED) && stage_embed(ctx, TAG(ctx, S_EMBED))) return;
#pragma unroll 1
        for (u32 layer = layer_of(p.stage_begin); layer < LAYERS && S_LAYERS + layer * S_A_LAYER < p.stage_end; layer++)
            if (run_layer<NC>(ctx, stream, layer, &best)) return;
        if (stage_begins(ctx, S_HEAD) && stage_matrix<NC, md_head>(ctx, stream, S_HEAD, 0, &best)) return;
        if (p.next) {
            bool stop;
#if ACCOUNT
            ctx.kind = KIND_NEXT;
#endif
            if (next_tokens<NC>(ctx, best, TAG(ctx, S_HEAD), &stop)) return;
            if (stop) break;
        }
#if HAS_RING
        if (p.stage_begin == p.stage_end) continue; // nothing was streamed
        stream.token = stream_token_end(stream.token + SH_RUNS[p.stage_end - 1].y);
        stream_release(stream, stream.token, ctx.lane);
#endif
    }
#if ACCOUNT
    account_end(ctx, now_ns() - begin);
#endif
}

// A CTA's registers are shared out evenly at its start. Where warps can hand some on, the producer's group keeps 24 a thread
// and the consumers take the rest: four schedulers have 512 for the threads of theirs.
#define CONSUMER_REGISTERS ((512 - 24) / (CONSUMER_WARPS / 4) / 8 * 8)
static __device__ __forceinline__ void registers_give() {
#if PRODUCER_WARPS == 4
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
#endif
}
static __device__ __forceinline__ void registers_take() {
#if PRODUCER_WARPS == 4
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
#endif
}

template <int NC> static __device__ __forceinline__ void kernel(const md_params &p) {
    const md_run *runs = (const md_run *)p.runs + blockIdx.x;
    u64 begin = p.stage_begin < STAGES ? runs[(u64)p.stage_begin * p.groups].offset : 0;
    md_stream stream;
    stream.have = stream.released = 0, stream.failed = false;
#if INJECT
    for (u32 i = threadIdx.x; i < md_map::end / 16; i += THREADS) ((uint4 *)shared)[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
    __syncthreads();
#endif
#if HAS_RING
    stream.ring = shared_address(SH_RING);
    pin(stream.ring);
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < RING_SEGMENTS; i++) mbar_init(full_of(stream.ring, i), 1), mbar_init(empty_of(stream.ring, i), CONSUMER_WARPS * RELEASE_LANES);
        *SH_STOP = 0;
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        registers_give();
        if (threadIdx.x == CONSUMERS && p.stage_begin < p.stage_end) {
            u64 bytes = runs[(u64)p.stage_end * p.groups].offset - begin;
            u64 head = p.stage_end == STAGES ? runs[(u64)S_HEAD * p.groups].offset - begin : ~0u; // wider window there
            stream_produce((const u8 *)p.arena + begin, (u32)bytes, (u32)head, p.tokens);
        }
        return;
    }
    registers_take();
    consume<NC>(p, stream);
    *SH_STOP = 1; // every thread may say so: the producer leaves at its next wait
#else
    if (threadIdx.x >= CONSUMERS) return;
    stream.base = (const u8 *)p.arena + begin;
    consume<NC>(p, stream);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) md_step(const __grid_constant__ md_params p) { kernel<COLUMNS>(p); }

// Quantizes the first `positions` entries of one layer's bf16 cache into another description of it: one warp a group.
extern "C" __global__ void md_cache_quantize(md_kv_layer from, md_kv_layer to, u32 positions) {
    u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;
    __shared__ float values[8][128];
    float *own = values[threadIdx.x / 32];
    u32 groups = HEAD_DIM / to.group, n = positions * KV_HEADS * groups * 2;
    for (u32 i = warp; i < n; i += warps) {
        u32 g = i % groups, value = i / groups % 2, head = i / groups / 2 % KV_HEADS, position = i / groups / 2 / KV_HEADS;
        const u16 *row = (const u16 *)(value ? from.v : from.k) + ((u64)head * from.context + position) * HEAD_DIM + g * to.group;
        for (u32 k = lane; k < to.group; k += 32) own[k] = bf_to(row[k]);
        __syncwarp();
        u64 at = (u64)head * to.context + position;
        quantize_group(own, to.bits, to.group, (u8 *)(value ? to.v : to.k) + at * (HEAD_DIM * to.bits / 8) + g * to.group * to.bits / 8,
                       (u32 *)(value ? to.v_scales : to.k_scales) + at * groups + g, lane);
        __syncwarp();
    }
}
