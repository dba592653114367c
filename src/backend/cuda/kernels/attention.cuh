// Attention: what both kinds of cache share. A cache is cut into blocks of ATTN_ROWS positions counted from 0, whatever
// its length and however many CTAs there are; block b of kv head h belongs to the CTA (home + b * KV_HEADS + h) mod G,
// which alone reads and writes it, so that no cache entry ever passes between CTAs of one launch. An item is one (column,
// kv head, block) with all query heads of the kv head. docs/MODEL.md has the formulas; a block's partial is
// {m, l, o[HEAD_DIM]}.

static __device__ __forceinline__ uint4 *stats_entry(const md_params *p, u32 c, u32 head, u32 block) {
    return (uint4 *)p->stats + ((u64)c * Q_HEADS + head) * p->blocks + block;
}
static __device__ __forceinline__ uint4 *partial_entry(const md_params *p, u32 c, u32 head, u32 block, u32 e) {
    return (uint4 *)p->partials + (((u64)c * Q_HEADS + head) * p->blocks + block) * PARTIAL_ENTRIES + e;
}
// Where the cache of a column's layer lies; constant during a launch. With one column shared memory has all layers'; with
// several, each warp has asked for those of the layer that comes next when it was done with the one before.
static __device__ __forceinline__ const md_kv_layer &layer_cache(const md_ctx &ctx, u32 c, u32 layer) {
    return SH_CACHES[COLUMNS == 1 ? layer : ctx.warp * COLUMNS + c];
}
static __device__ __forceinline__ void caches_ask(const md_ctx &ctx, u32 layer) {
    if (COLUMNS == 1 || ctx.lane >= ctx.p->columns * 3) return;
    const u32 c = ctx.lane / 3, part = ctx.lane % 3;
    copy16_async((uint4 *)(SH_CACHES + ctx.warp * COLUMNS + c) + part, (const uint4 *)((const md_kv_layer *)ctx.p->col[c].kv + layer) + part);
}
static __device__ __forceinline__ u32 first_item(const md_ctx &ctx, u32 home) {
    return ctx.cta >= home ? ctx.cta - home : ctx.cta + ctx.p->groups - home; // home < groups
}

// Where a column stands in this step: {the CTA's first item, items, length, blocks}. With several columns shared memory has it.
static __device__ __forceinline__ uint4 place_of(const md_ctx &ctx, const md_col &col) {
    const u32 length = col.position + ctx.step + 1, blocks = (length + ATTN_ROWS - 1) / ATTN_ROWS;
    return make_uint4(first_item(ctx, col.home), blocks * KV_HEADS, length, blocks);
}
static __device__ __forceinline__ void places_note(const md_ctx &ctx) {
    if (COLUMNS > 1 && ctx.tid < ctx.p->columns) SH_PLACES[ctx.tid] = place_of(ctx, ctx.p->col[ctx.tid]);
}
static __device__ __forceinline__ uint4 place_noted(const md_ctx &ctx, u32 c) {
    return COLUMNS == 1 ? place_of(ctx, ctx.p->col[0]) : shared_uint4(ctx.smem + md_map::places + c * 16);
}
// The columns, a bit each, for which `of` holds: of a column's place, and the column.
template <typename Of> static __device__ __forceinline__ u32 columns_of(const md_ctx &ctx, Of of) {
    bool holds = false;
    if (ctx.lane < ctx.p->columns) holds = of(place_noted(ctx, ctx.lane), ctx.lane);
    return __ballot_sync(~0u, holds);
}

// An item: a block of a column's positions for one kv head.
struct md_item {
    u32 c, head, block;
    u32 n;    // its rows up to the token's own
    bool own; // its last row is the token's own
};
static __device__ __forceinline__ md_item item_of(const md_ctx &ctx, u32 c, u32 i, u32 length) {
    md_item item;
    item.c = c, item.head = i % KV_HEADS, item.block = i / KV_HEADS;
    item.n = min(length - item.block * ATTN_ROWS, (u32)ATTN_ROWS);
    item.own = (item.block + 1) * ATTN_ROWS >= length;
    return item;
}

// Entry i of what an item takes from the exchange: the queries of its heads, HEAD_DIM / 4 entries each, then the token's own
// key and value. Its four values lie beside each other in the head, from `dim` on: of tiles of queries and keys, value r is
// dimension tile * 8 + (r & 7), in the head's second half from r = 8 on (RoPE's pairs meet in a tile).
struct md_part {
    u32 h; // query head of the item; REP: the key, REP + 1: the value
    u32 dim;
    const uint4 *at;
};
#define PARTS_A_HEAD (HEAD_DIM / 4)
static __device__ __forceinline__ md_part part_of(const md_params *p, const md_item &item, u32 i) {
    const u32 tiles = HEAD_DIM / 16;
    md_part part;
    part.h = i / PARTS_A_HEAD;
    u32 j = i % PARTS_A_HEAD, tile = j / 4, e = j % 4;
    part.dim = part.h > REP ? 4 * j : tile * 8 + e % 2 * 4 + e / 2 * (HEAD_DIM / 2);
    if (part.h < REP)
        part.at = entry_of(p, VECTOR_Q, T_Q, item.c, (item.head * REP + part.h) * tiles, j);
    else
        part.at = entry_of(p, part.h == REP ? VECTOR_K : VECTOR_V, part.h == REP ? T_K : T_V, item.c, item.head * tiles, j);
    return part;
}

// A block's output leaves as 24 bits a value, so that an entry holds four: fp32 without the last byte of the mantissa, which
// loses less than 2^-15 of a value that the merge rounds to bf16.
static __device__ __forceinline__ float partial_cut(float x) { return __uint_as_float(__float_as_uint(x) & 0xffffff00u); }
static __device__ __forceinline__ void partial_put(const md_ctx &ctx, uint4 *at, float4 o, u32 tag) {
    const u32 a = __float_as_uint(o.x), b = __float_as_uint(o.y), c = __float_as_uint(o.z), d = __float_as_uint(o.w);
    put_entry(ctx, at, __byte_perm(a, b, 0x5321), __byte_perm(b, c, 0x6532), __byte_perm(c, d, 0x7653), tag);
}
static __device__ __forceinline__ float4 partial_values(uint4 e) {
    return make_float4(__uint_as_float(e.x << 8), partial_cut(__uint_as_float(__byte_perm(e.x, e.y, 0x5430))),
                       partial_cut(__uint_as_float(__byte_perm(e.y, e.z, 0x4320))), partial_cut(__uint_as_float(e.z)));
}
static __device__ __forceinline__ void partial_put_stats(const md_ctx &ctx, const md_item &item, u32 h, float m, float l, u32 tag) {
    put_entry(ctx, partial_entry(ctx.p, item.c, item.head * REP + h, item.block, HEAD_DIM / 4), __float_as_uint(m), __float_as_uint(l), 0, tag);
}

// An item's output SH_OUT as partials.
static __device__ __forceinline__ void item_put(md_ctx &ctx, const md_item &item, u32 tag) {
#pragma unroll 2
    for (u32 k = ctx.tid; k < REP * PARTIAL_ENTRIES; k += CONSUMERS) {
        const u32 h = k / PARTIAL_ENTRIES, e = k % PARTIAL_ENTRIES;
        const float4 o = *(const float4 *)(SH_OUT + h * OUT_STRIDE + 4 * e);
        if (e == HEAD_DIM / 4)
            partial_put_stats(ctx, item, h, o.x, o.y, tag);
        else
            partial_put(ctx, partial_entry(ctx.p, item.c, item.head * REP + h, item.block, e), o, tag);
    }
}
