// The choice of the next token inside the kernel, by every CTA alike. Functions return true when someone in the CTA failed.

// Every CTA puts the best of its logits in a record; every CTA reads all records and so knows the next token. Records
// alternate between two buffers by step, since a CTA without tiles may be late to read. CTA 0's record carries the host's
// wish to stop. {value, index, cancel, tag}
static __device__ __forceinline__ uint4 *record_of(const md_ctx &ctx, u32 cta) {
    return (uint4 *)ctx.p->records + (ctx.tag0 / STAGES & 1) * ctx.p->groups + cta;
}

static __device__ __forceinline__ void record_put(md_ctx ctx, md_best best, u32 tag) {
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
static __device__ __forceinline__ bool next_token(md_ctx ctx, u32 tag, u32 *token, bool *stop) {
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
