// megadecode 0.1.0: the decode step of one model as one resident kernel.
// Generated for 24 layers, hidden 1536, 16 query and 2 key/value heads of 128, FFN 4608, vocabulary 130560.

// the model
#define LAYERS 24u
#define HIDDEN 1536u
#define FFN 4608u
#define VOCAB 130560u
#define Q_HEADS 16u
#define KV_HEADS 2u
#define HEAD_DIM 128u
#define NORM_EPS 0x1.0c6f7ap-20f // 9.99999997e-07, RMSNorm
#define ATTN_SCALE 0x1.6a09e6p-4f // 0.0883883461, 1 / sqrt(HEAD_DIM)
#define ROPE_SCALE 0x1p+0f // 1, of positions
#define EMBED_BITS 8u // 0: not quantized
#define EMBED_GROUP 64u

// stages of the plan, and of a layer (relative to its first)
#define STAGES 170u
#define S_EMBED 0u
#define S_LAYERS 1u // the first layer's first stage
#define S_A_LAYER 7u
#define S_QKV 0u
#define S_SCORES 1u
#define S_ATTN 2u
#define S_MERGE 3u
#define S_OUT 4u
#define S_GATE_UP 5u
#define S_DOWN 6u
#define S_HEAD 169u

// tiles of 16 rows (T_), blocks of 64 columns (NB_), warps that share a tile (SPLIT_), the exchanged vectors'
// first entries (VECTOR_), auxiliary values (AUX_), most attention blocks of a cache
#define T_X 96u
#define T_Q 128u
#define T_K 16u
#define T_V 16u
#define T_ATTN 128u
#define T_F 288u
#define T_HEAD 8160u
#define NB_X 24u
#define NB_ATTN 32u
#define NB_F 72u
#define BLOCKS_MAX 72u
#define SPLIT_QKV 8u
#define SPLIT_OUT 16u
#define SPLIT_GATE_UP 8u
#define SPLIT_DOWN 16u
#define SPLIT_HEAD 8u
#define VECTOR_XA 0u
#define VECTOR_XB 2304u
#define VECTOR_Q 4608u
#define VECTOR_K 7680u
#define VECTOR_V 8064u
#define VECTOR_ATTN 8448u
#define VECTOR_ACT 11520u
#define AUX_ATTN_NORM 0u
#define AUX_FFN_NORM 36864u
#define AUX_FINAL_NORM 73728u
#define AUX_INV_FREQ 75264u
#define ATTN_BLOCKS 2048u

// how weights are stored: F(id, cell, scales are fp32, sets of scales a block)
#define FORMATS(F) F(0, CELL_Q8, 0, 1) F(1, CELL_Q4, 0, 1)
#define SETS_MAX 1u
#define HEAD_FORMAT 0u
// of each layer's q, k, v, out, gate, up, down
static __constant__ unsigned char LAYER_FORMAT[] = {
    0, 0, 0, 0, 0, 0, 0, // 0
    1, 1, 0, 0, 1, 1, 0, // 1
    0, 1, 0, 0, 1, 1, 0, // 2
    0, 1, 0, 0, 1, 1, 0, // 3
    1, 1, 0, 0, 1, 1, 1, // 4
    1, 1, 0, 0, 1, 1, 1, // 5
    1, 1, 0, 0, 1, 1, 1, // 6
    0, 1, 1, 0, 1, 0, 1, // 7
    1, 1, 0, 0, 1, 1, 1, // 8
    1, 1, 0, 0, 1, 1, 1, // 9
    1, 1, 0, 0, 1, 1, 1, // 10
    1, 1, 0, 0, 1, 1, 1, // 11
    1, 1, 0, 0, 0, 1, 1, // 12
    1, 1, 0, 0, 1, 1, 1, // 13
    1, 1, 0, 0, 1, 1, 1, // 14
    1, 1, 0, 0, 1, 1, 1, // 15
    1, 1, 0, 0, 1, 1, 1, // 16
    1, 1, 0, 0, 1, 1, 1, // 17
    1, 1, 0, 0, 1, 1, 1, // 18
    1, 1, 0, 0, 1, 1, 1, // 19
    1, 1, 1, 0, 1, 1, 1, // 20
    0, 1, 1, 0, 0, 1, 1, // 21
    0, 1, 1, 0, 1, 1, 0, // 22
    0, 0, 0, 0, 0, 0, 0, // 23
};
#define HAS_BIAS 0u

// the target, sm_90a
#define COLUMNS 1u // widest step
#define SHARED_BYTES 232448u
#define HAS_RING 1u // bulk copies into shared memory
#define SEGMENT_BYTES 8192u // of one bulk copy; a power of two
#define WINDOW_LAYERS 4u // segments in flight inside the layers: more delay the handoffs
#define WINDOW_HEAD 12u // and in the head, which has none
#define CACHED_BLOCKS 5u // a warp's activations stay in registers up to this many blocks
#define INJECT 0u
#define PROFILE 1u
#define INFINITY __int_as_float(0x7f800000)

// ==== sizes.cuh ====

// Sizes that follow from the model's, and the layout of a CTA's shared memory: ring, barriers, tables, and one work area
// that matrix stages, attention and merge use in turn.
//
// The sizes in capitals that are defined nowhere here (HIDDEN, T_Q, SPLIT_HEAD, ...) are literals of the one model this
// source was generated for; they stand at the head of the generated file, with a word on each.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define UNIT 16 // bytes in which stream positions are counted
#define SEGMENT_UNITS (SEGMENT_BYTES / UNIT)
#define CONSUMER_WARPS 16
#define CONSUMERS (CONSUMER_WARPS * 32)
#define THREADS (CONSUMERS + 32) // the last warp is the producer of the weight stream

#define XSTRIDE (BLOCKS_MAX * 64 + 32) // bf16 values of a column in shared memory; the 32 shift the banks of columns
#define RED_FLOATS (COLUMNS == 1 ? 4096 : 8192) // partial sums of a round of tiles

#define ATTN_ROWS 64 // positions of one attention block on the GPU
#define REP (Q_HEADS / KV_HEADS)
#define PARTIAL_ENTRIES ((HEAD_DIM + 2 + 2) / 3) // a partial {m, l, o[HEAD_DIM]} in entries of 3 fp32 and a tag
#define Q_STRIDE (HEAD_DIM + 4)
#define S_STRIDE (ATTN_ROWS + 1)
#define K_STRIDE (HEAD_DIM * 2 + 16) // bytes of a cached row in shared memory
#define MERGE_PARTS 8 // of a CTA, which take every eighth block each
#define MERGE_FEW 16  // up to this many blocks of a head are merged from shared memory

static __host__ __device__ constexpr u32 align128(u32 n) { return (n + 127) / 128 * 128; }
static __host__ __device__ constexpr u32 larger(u32 a, u32 b) { return a > b ? a : b; }

struct md_map { // bytes from the start of shared memory
    static constexpr u32 runs = 0;
    static constexpr u32 rope = runs + align128(STAGES * 16);
    static constexpr u32 tokens = rope + align128(COLUMNS * HEAD_DIM * 4);
    static constexpr u32 work = tokens + 128;
    // matrix stages
    static constexpr u32 xs = work;
    static constexpr u32 red = xs + align128(COLUMNS * XSTRIDE * 2);
    static constexpr u32 parts = red + align128(RED_FLOATS * 4);
    static constexpr u32 matvec_end = parts + align128(COLUMNS * CONSUMER_WARPS * 4);
    // attention
    static constexpr u32 k = work;
    static constexpr u32 v = k + align128(ATTN_ROWS * K_STRIDE);
    static constexpr u32 k_scales = v + align128(ATTN_ROWS * K_STRIDE);
    static constexpr u32 v_scales = k_scales + align128(ATTN_ROWS * (HEAD_DIM / 32) * 4);
    static constexpr u32 q = v_scales + align128(ATTN_ROWS * (HEAD_DIM / 32) * 4);
    static constexpr u32 scores = q + align128(REP * Q_STRIDE * 4);
    static constexpr u32 out = scores + align128(REP * S_STRIDE * 4);
    static constexpr u32 row = out + align128(REP * 3 * PARTIAL_ENTRIES * 4);
    static constexpr u32 attn_end = row + align128(2 * HEAD_DIM * 4);
    // merge, and the choice of the next token
    static constexpr u32 weights = work;
    static constexpr u32 sums = weights + align128(ATTN_BLOCKS * 4);
    static constexpr u32 reduce = sums + align128((MERGE_FEW > MERGE_PARTS ? MERGE_FEW : MERGE_PARTS) * 3 * PARTIAL_ENTRIES * 4);
    static constexpr u32 merge_end = reduce + align128(CONSUMER_WARPS * 32);
    static constexpr u32 work_end = larger(matvec_end, larger(attn_end, merge_end));
#if HAS_RING
    static constexpr u32 segments = (SHARED_BYTES - work_end - 256) / (SEGMENT_BYTES + 16);
    static constexpr u32 bars = work_end; // full[segments], empty[segments], the stop word
    static constexpr u32 ring = bars + align128(segments * 16 + 4);
    static constexpr u32 end = ring + segments * SEGMENT_BYTES;
#else
    static constexpr u32 end = work_end;
#endif
};
static_assert(md_map::end <= SHARED_BYTES, "the work area does not fit shared memory");
extern __shared__ __align__(128) u8 shared[];

// The areas, by type. What the ring's and the tables' hold for the whole launch, the others within one stage.
struct md_run;
#define SH_RUNS ((md_run *)(shared + md_map::runs))   // this CTA's run of each stage, [STAGES]
#define SH_ROPE ((float2 *)(shared + md_map::rope))   // [COLUMNS][HEAD_DIM / 2] {cos, sin} of this step's positions
#define SH_TOKENS ((u32 *)(shared + md_map::tokens))  // [COLUMNS] this step's
#define SH_XS ((u16 *)(shared + md_map::xs))          // [COLUMNS][XSTRIDE] bf16 input of a matrix stage
#define SH_RED ((float *)(shared + md_map::red))      // [tiles of a round][split][16][COLUMNS] partial sums
#define SH_PARTS ((float *)(shared + md_map::parts))  // [COLUMNS][CONSUMER_WARPS] partial sums of squares
#define SH_K (shared + md_map::k)                     // [ATTN_ROWS][K_STRIDE] rows as the cache stores them
#define SH_V (shared + md_map::v)
#define SH_K_SCALES ((u32 *)(shared + md_map::k_scales)) // [ATTN_ROWS][HEAD_DIM / 32] {scale, bias}
#define SH_V_SCALES ((u32 *)(shared + md_map::v_scales))
#define SH_Q ((float *)(shared + md_map::q))           // [REP][Q_STRIDE]
#define SH_SCORES ((float *)(shared + md_map::scores)) // [REP][S_STRIDE]
#define SH_OUT ((float *)(shared + md_map::out))       // [REP][3 * PARTIAL_ENTRIES]
#define SH_ROW ((float *)(shared + md_map::row))       // [2][HEAD_DIM] the token's own key and value
#define SH_WEIGHTS ((float *)(shared + md_map::weights)) // [ATTN_BLOCKS]
#define SH_SUMS ((float *)(shared + md_map::sums))       // [MERGE_FEW, MERGE_PARTS][3 * PARTIAL_ENTRIES]
#define SH_REDUCE ((float *)(shared + md_map::reduce))   // [2 * CONSUMER_WARPS]
#if HAS_RING
#define SH_RING (shared + md_map::ring)
#define SH_FULL ((u64 *)(shared + md_map::bars))
#define SH_EMPTY (SH_FULL + RING_SEGMENTS)
#define SH_STOP ((volatile u32 *)(SH_EMPTY + RING_SEGMENTS))
#endif
#if HAS_RING
#define RING_SEGMENTS (md_map::segments)
#define RING_UNITS (RING_SEGMENTS * SEGMENT_UNITS)
static_assert(md_map::segments >= 4, "no room for the ring");
#endif

// ==== base.cuh ====

// Parameters, and the few PTX instructions that CUDA C has no name for. Everything here is a leaf.

#define MAX_COLUMNS 8
#define MAX_STOPS 32

// One column of a step; one layer of a sequence's cache; one CTA's share of a stage. The host fills them
// (src/backend/cuda/params.h holds the same declarations).
struct md_col {
    u64 kv; // md_kv_layer[LAYERS]
    u32 position, token;
    u32 home;   // which CTA owns the sequence's first cache block
    u32 logits; // wanted
};
struct md_kv_layer {
    u64 k, v;             // [kv head][context][HEAD_DIM] bf16, or packed codes of `bits`
    u64 k_scales, v_scales; // quantized: [kv head][context][HEAD_DIM / group] {scale, bias} bf16
    u32 bits, group, context, pad;
};
struct md_run {
    u64 offset; // bytes from the arena's start; a run ends where the next stage's begins
    u32 first, count; // items
};
struct md_params {
    u64 arena, runs, aux, embed, embed_scales, embed_biases;
    u64 exchange, stats, partials, records;
    u64 logits;  // bf16 [MAX_COLUMNS][VOCAB]
    u64 report;  // u32[8] {aborted, worker, stage, expected, seen, column, 0, 0}
    u64 mailbox; // pinned host memory: u32 {count, cancel}, then the tokens
    u64 profile; // u32 [STAGES][groups][MARKS], 0 = none
    u32 groups, columns, stage_begin, stage_end;
    u32 tokens;      // steps of this launch (only column 0 then)
    u32 epoch;       // tag of the launch's first stage, minus 1
    u32 blocks;      // attention blocks the partials have room for
    u32 next;        // compute the next token after the head
    u32 deadline_us; // bound of every wait
    u32 stop_count;
    u32 stop[MAX_STOPS];
    u32 delay_seed, drop_worker, drop_tag; // fault injection; read only in sources generated with INJECT 1
    u32 pad;
    md_col col[MAX_COLUMNS];
};

// ---- bf16 and fp32 ------------------------------------------------------------------------------------------------

static __device__ __forceinline__ float bf_lo(u32 pair) { return __uint_as_float(pair << 16); }
static __device__ __forceinline__ float bf_hi(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
static __device__ __forceinline__ float bf_to(u32 half) { return __uint_as_float(half << 16); }
// Nearest, ties to even; the values here are finite.
static __device__ __forceinline__ u32 bf_bits(float x) {
    u32 u = __float_as_uint(x);
    return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
static __device__ __forceinline__ float bf(float x) { return bf_to(bf_bits(x)); }

// src/base/mathx.h, md_expf: the same operations.
static __device__ __forceinline__ float exp_own(float x) {
    if (x < -87.0f) return 0.0f;
    if (x > 88.0f) x = 88.0f;
    float t = fmaf(x, 1.44269504f, 12582912.0f);
    float n = t - 12582912.0f;
    float r = fmaf(n, -0.693145752f, x);
    r = fmaf(n, -1.42860677e-6f, r);
    float p = 1.98412698e-4f;
    p = fmaf(p, r, 1.38888889e-3f);
    p = fmaf(p, r, 8.33333333e-3f);
    p = fmaf(p, r, 4.16666667e-2f);
    p = fmaf(p, r, 1.66666667e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
}

// src/base/mathx.c, md_sincosf: the same operations, in double.
static __device__ __noinline__ void sincos_own(float angle, float *sine, float *cosine) {
    double x = (double)angle;
    double k = rint(x * 0.63661977236758134308);
    double r = ((x - k * 0x1.921fb544p+0) - k * 0x1.0b4611a6p-34) - k * 0x1.3198a2e037073p-69;
    double z = r * r;
    double p = -1.0 / 1307674368000.0;
    p = p * z + 1.0 / 6227020800.0;
    p = p * z - 1.0 / 39916800.0;
    p = p * z + 1.0 / 362880.0;
    p = p * z - 1.0 / 5040.0;
    p = p * z + 1.0 / 120.0;
    p = p * z - 1.0 / 6.0;
    float s = (float)(r + r * (z * p));
    double q = 1.0 / 20922789888000.0;
    q = q * z - 1.0 / 87178291200.0;
    q = q * z + 1.0 / 479001600.0;
    q = q * z - 1.0 / 3628800.0;
    q = q * z + 1.0 / 40320.0;
    q = q * z - 1.0 / 720.0;
    q = q * z + 1.0 / 24.0;
    q = q * z - 0.5;
    float c = (float)(1.0 + z * q);
    switch ((long long)k & 3) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
}

// Sums over a warp in a fixed order: every lane gets the result.
static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d);
    return x;
}
static __device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int d = 16; d; d >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return x;
}

// ---- barriers and memory ------------------------------------------------------------------------------------------

// The consumers' barrier; the producer warp takes no part.
static __device__ __forceinline__ void consumers_sync() { asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory"); }
// The same, telling everyone whether anyone failed: the one uniform decision to leave.
static __device__ __forceinline__ bool consumers_any(bool failed) {
    u32 any;
    asm volatile("{\n .reg .pred p, q;\n setp.ne.u32 p, %1, 0;\n bar.red.or.pred q, 1, %2, p;\n selp.u32 %0, 1, 0, q;\n}"
                 : "=r"(any)
                 : "r"((u32)failed), "n"(CONSUMERS)
                 : "memory");
    return any != 0;
}

static __device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// 16 bytes read or written as one: the data is its own flag, so relaxed order is enough; gpu scope, because CTAs of one
// grid talk.
static __device__ __forceinline__ uint4 load_entry(const uint4 *p) {
    u64 lo, hi;
    asm volatile("{\n .reg .b128 v;\n ld.relaxed.gpu.global.b128 v, [%2];\n mov.b128 {%0, %1}, v;\n}"
                 : "=l"(lo), "=l"(hi)
                 : "l"(p)
                 : "memory");
    return make_uint4((u32)lo, (u32)(lo >> 32), (u32)hi, (u32)(hi >> 32));
}
static __device__ __forceinline__ void store_entry(uint4 *p, uint4 v) {
    u64 lo = v.x | (u64)v.y << 32, hi = v.z | (u64)v.w << 32;
    asm volatile("{\n .reg .b128 v;\n mov.b128 v, {%1, %2};\n st.relaxed.gpu.global.b128 [%0], v;\n}" ::"l"(p), "l"(lo),
                 "l"(hi)
                 : "memory");
}
static __device__ __forceinline__ u32 load_relaxed(const u32 *p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
static __device__ __forceinline__ u32 load_system(const u32 *p) {
    u32 v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
// Release at system scope: the host that sees the count also sees the token stored before it.
static __device__ __forceinline__ void store_system_release(u32 *p, u32 v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
static __device__ __forceinline__ u64 now_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

// D += A * B on 16 x 16 by 16 x 8 bf16, fp32 sums. A column of D depends on the same column of B alone.
static __device__ __forceinline__ void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// (nibbles & 0x000f000f) | magic, one instruction.
static __device__ __forceinline__ u32 nibbles(u32 w, u32 magic) {
    u32 r;
    asm("lop3.b32 %0, %1, 0x000f000f, %2, 0xea;" : "=r"(r) : "r"(w), "r"(magic));
    return r;
}

// ==== ring.cuh ====

// The weight stream. A CTA's weights of a whole token lie in one contiguous run of bytes; one producer thread copies it,
// segment by segment, into a ring in shared memory, as far ahead as the ring and the window of bytes in flight allow, and
// never stops at a stage's end: weights don't depend on activations. Positions are counted in units of 16 bytes from
// the launch's start and never reset; every token starts at a whole segment.
//
// full[slot] completes when a segment's bytes have landed; empty[slot] when all consumer warps have gone past it. A warp
// that waits for phase n of a slot has not released it, so phase n + 1 cannot begin: one parity bit suffices.
//
// Without bulk copies (before sm_90) there is no ring: consumers read the run in global memory.

// A consumer warp's view of the stream.
struct md_stream {
#if !HAS_RING
    const u8 *base; // the arena at the launch's first byte of this CTA
#endif
    u32 have, released; // segments known to have landed; segments given back
    u32 position;       // the current stage's first unit
    bool failed;
};

#if HAS_RING
static __device__ __forceinline__ void mbar_init(u64 *bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
static __device__ __forceinline__ bool mbar_test(u64 *bar, u32 parity) {
    u32 done;
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(bar)), "r"(parity)
                 : "memory");
    return done != 0;
}
static __device__ __forceinline__ void mbar_arrive(u64 *bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}

// Waits until segments [0, want) have landed. Bounded: nothing but a lost copy can make it wait for long.
static __device__ __forceinline__ void stream_land(md_stream &s, u32 want, u32 deadline_us) {
    for (; s.have < want; s.have++) {
        u32 slot = s.have % RING_SEGMENTS, parity = s.have / RING_SEGMENTS & 1;
        if (mbar_test(&SH_FULL[slot], parity)) continue;
        u64 start = now_ns();
        while (!s.failed && !mbar_test(&SH_FULL[slot], parity)) s.failed = now_ns() - start > deadline_us * 1000ull;
    }
}
// Lands everything up to and including unit `last`.
static __device__ __forceinline__ void stream_need(md_stream &s, u32 last, u32 deadline_us) {
    stream_land(s, last / SEGMENT_UNITS + 1, deadline_us);
}
// Gives back every segment that ends at or before unit `next`, the first this warp will read from now on. A segment is
// given back only once it has landed: before, the arrival could count for the segment that was in its slot.
static __device__ __forceinline__ void stream_release(md_stream &s, u32 next, u32 lane, u32 deadline_us) {
    u32 end = next / SEGMENT_UNITS;
    if (s.released >= end) return;
    __syncwarp(); // all lanes have read; the arrive below orders their reads before the refill
    for (; s.released < end; s.released++) {
        stream_land(s, s.released + 1, deadline_us);
        if (lane == 0) mbar_arrive(&SH_EMPTY[s.released % RING_SEGMENTS]);
    }
}
static __device__ __forceinline__ u32 stream_wrap(u32 unit) { return unit % RING_UNITS; }
static __device__ __forceinline__ const u8 *stream_at(const md_stream &, u32 wrapped, u32 units) {
    u32 at = wrapped + units;
    return SH_RING + (at >= RING_UNITS ? at - RING_UNITS : at) * UNIT;
}
static __device__ __forceinline__ u32 stream_token_end(u32 unit) {
    return (unit + SEGMENT_UNITS - 1) / SEGMENT_UNITS * SEGMENT_UNITS;
}

// The producer thread: `bytes` from `source`, once a token.
static __device__ void stream_produce(const u8 *source, u32 bytes, u32 head_at, u32 tokens) {
    u32 segment = 0;
    u64 policy; // weights are read once a token: leave L2 to activations and the cache
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    for (u32 token = 0; token < tokens; token++) {
        for (u32 at = 0; at < bytes; at += SEGMENT_BYTES, segment++) {
            u32 slot = segment % RING_SEGMENTS, window = at >= head_at ? WINDOW_HEAD : WINDOW_LAYERS;
            while (segment >= RING_SEGMENTS && !mbar_test(&SH_EMPTY[slot], (segment / RING_SEGMENTS - 1) & 1))
                if (*SH_STOP) goto drain;
            if (segment >= window) {
                u32 before = segment - window;
                while (!mbar_test(&SH_FULL[before % RING_SEGMENTS], before / RING_SEGMENTS & 1))
                    if (*SH_STOP) goto drain;
            }
            u32 n = bytes - at < SEGMENT_BYTES ? bytes - at : SEGMENT_BYTES;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&SH_FULL[slot])), "r"(n)
                         : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                         "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(SH_RING + slot * SEGMENT_BYTES)),
                         "l"(source + at), "r"(n), "r"(shared_address(&SH_FULL[slot])), "l"(policy)
                         : "memory");
        }
    }
drain: // shared memory must not be left while copies into it are under way
    for (u32 i = segment > RING_SEGMENTS ? segment - RING_SEGMENTS : 0; i < segment; i++)
        while (!mbar_test(&SH_FULL[i % RING_SEGMENTS], i / RING_SEGMENTS & 1)) {}
}
#else
static __device__ __forceinline__ void stream_need(md_stream &, u32, u32) {}
static __device__ __forceinline__ void stream_release(md_stream &, u32, u32, u32) {}
static __device__ __forceinline__ u32 stream_wrap(u32 unit) { return unit; }
static __device__ __forceinline__ const u8 *stream_at(const md_stream &s, u32 unit, u32 units) {
    return s.base + (u64)(unit + units) * UNIT;
}
#endif

// ==== exchange.cuh ====

// Vectors between CTAs. A vector is exchanged as 16-byte entries {6 bf16 values, tag}: a tile of 16 values is three
// entries (6 + 6 + 4). A producer writes an entry with one store; a consumer reads the entry until the tag is the one it
// waits for. The data is its own flag: no counter, no fence, no grid barrier.
//
// Tags grow by one a stage and never reset inside a launch, so an entry of an earlier stage or step can't be taken for a
// new one. Nothing is overwritten too early either: every read is made for an item whose output the next stage awaits in
// full, so whoever writes a vector again has seen, directly or through others, the work of all its readers. (The records
// of the next token are the exception, read by CTAs that may have no items: they alternate between two buffers.)

struct md_ctx { // what every thread carries
    const md_params *p;
    u32 cta, tid, warp, lane;
    u32 step; // of this launch
    u32 tag0; // tag of stage s of this step: tag0 + s + 1
    bool failed;
    u32 stage; // for reports
};

// Where a CTA's time goes: its first thread notes its clock at points of a stage (sources generated with PROFILE 1).
#define MARKS 8
#if PROFILE
#define MARK(i)                                                                                                        \
    if (threadIdx.x == 0 && ctx.p->profile)                                                                            \
    ((u32 *)ctx.p->profile)[((u64)ctx.stage * ctx.p->groups + ctx.cta) * MARKS + (i)] = clock()
#else
#define MARK(i)
#endif

#define TAG(ctx, s) ((ctx).tag0 + (u32)(s) + 1u)

#define REPORT_WAIT_ENTRY 1

// The first to fail writes the report; everyone who waits sees the abort word and leaves.
static __device__ __noinline__ bool wait_expired(const md_params *p, u32 cta, u32 stage, u32 expected, u32 seen, u64 start) {
    u32 *report = (u32 *)p->report;
    if (load_relaxed(report)) return true;
    if (now_ns() - start < p->deadline_us * 1000ull) return false;
    if (atomicCAS(report, 0u, 1u) == 0u) {
        report[1] = cta, report[2] = stage, report[3] = expected, report[4] = seen;
        __threadfence_system();
    }
    return true;
}

// Entry `at`, once it carries `tag`. `first` is what an earlier load of it returned.
static __device__ __forceinline__ uint4 wait_entry_from(md_ctx &ctx, const uint4 *at, u32 tag, uint4 first) {
    if (first.w == tag) return first;
    u64 start = 0;
    for (u32 tries = 1; !ctx.failed; tries++) {
        first = load_entry(at);
        if (first.w == tag) break;
        if ((tries & 255u) == 0) {
            if (!start) start = now_ns();
            if (wait_expired(ctx.p, ctx.cta, ctx.stage, tag, first.w, start)) ctx.failed = true;
        }
    }
    return first;
}
static __device__ __forceinline__ uint4 wait_entry(md_ctx &ctx, const uint4 *at, u32 tag) {
    return wait_entry_from(ctx, at, tag, load_entry(at));
}

static __device__ __forceinline__ void put_entry(const md_ctx &ctx, uint4 *at, u32 a, u32 b, u32 c, u32 tag) {
#if INJECT
    if (ctx.p->drop_tag == tag && ctx.p->drop_worker == ctx.cta) return;
#endif
    store_entry(at, make_uint4(a, b, c, tag));
}

// Entry of tile `tile` of column `c` in a vector of `tiles` tiles.
static __device__ __forceinline__ uint4 *entry_of(const md_params *p, u32 vector, u32 tiles, u32 c, u32 tile, u32 e) {
    return (uint4 *)p->exchange + vector + (c * tiles + tile) * 3 + e;
}

// Half a warp holds the 16 values of a tile, one a lane; its first three lanes put the entries.
static __device__ __forceinline__ void put_tile(const md_ctx &ctx, uint4 *entries, u32 value, bool valid, u32 tag) {
    u32 e = ctx.lane & 15, half = ctx.lane & 16, v[6];
#pragma unroll
    for (u32 i = 0; i < 6; i++) v[i] = __shfl_sync(~0u, value, (half + 6 * e + i) & 31);
    if (e == 2) v[4] = v[5] = 0;
    if (valid && e < 3) put_entry(ctx, entries + e, v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, tag);
}

// Value `lane16` (0..15) of a tile, from its entry.
static __device__ __forceinline__ float entry_value(uint4 entry, u32 lane16) {
    u32 slot = lane16 % 6, word = slot < 2 ? entry.x : slot < 4 ? entry.y : entry.z;
    return slot & 1 ? bf_hi(word) : bf_lo(word);
}

// ==== matvec.cuh ====

// Matrix rows times up to 8 columns. Weights are the A operand (16 rows), activations the B operand (columns), so the
// stream is read once for all columns and a column's sums don't depend on its neighbours.
//
// The columns of K are cut into blocks of 64. A matrix's blocks are split over SPLIT warps in a way fixed by its shape
// alone, so that the sums of a row are the same whoever computes its tile: CONSUMER_WARPS / SPLIT tiles are under way at
// once, and the SPLIT partial sums of a tile meet in shared memory and are added in order.
//
// Codes are multiplied exactly: a nibble q becomes the bf16 128 + q (or 2048 + 16 q for the high nibbles of 8-bit codes)
// by one lop3 for two, and the offset leaves again through the sum of the activations, which one more product with
// ones gives in the layout in which it is needed.

// How a matrix's blocks are stored (src/plan/tile_mma.h): a cell, whether scales are fp32, and the sets of scales a block
// has (0, 1 or 2).
#define CELL_Q4 0
#define CELL_Q8 1
#define CELL_BF16 2
#define CELL_F16 3
#define CELL_F32 4

static __host__ __device__ constexpr u32 planes_of(u32 cell) {
    return cell == CELL_Q8 || cell == CELL_F16 ? 2 : cell == CELL_F32 ? 3 : 1;
}
static __host__ __device__ constexpr u32 code_units(u32 cell) { return planes_of(cell) * (cell <= CELL_Q8 ? 32 : 128); }
static __host__ __device__ constexpr u32 block_units(u32 cell, u32 wide, u32 sets) {
    return code_units(cell) + sets * (wide ? 8 : 4);
}

// A lane's activations of one block: B operands of its four products, and their sums a set of scales for the lane's two
// columns of D.
struct md_acts {
    u32 b[8];
    float sum[SETS_MAX][2];
};

static __device__ __forceinline__ void acts_load(md_acts &x, u32 block, u32 lane, u32 columns) {
    u32 column = lane >> 2, t = lane & 3;
    if (column >= columns) column = 0; // its results are not used
    const uint4 *at = (const uint4 *)(SH_XS + column * XSTRIDE + block * 64 + 8 * t);
    uint4 lo = at[0], hi = at[4];
    x.b[0] = lo.x, x.b[1] = lo.y, x.b[2] = lo.z, x.b[3] = lo.w;
    x.b[4] = hi.x, x.b[5] = hi.y, x.b[6] = hi.z, x.b[7] = hi.w;
    const u32 one = 0x3f803f80u;
#pragma unroll
    for (u32 set = 0; set < SETS_MAX; set++) {
        float d[4] = {0, 0, 0, 0};
#pragma unroll
        for (u32 j = set * 4 / SETS_MAX; j < (set + 1) * 4 / SETS_MAX; j++) mma(d, one, one, one, one, x.b[2 * j], x.b[2 * j + 1]);
        x.sum[set][0] = d[0], x.sum[set][1] = d[1];
    }
}

// {scale of row g, of row g + 8, bias of g, of g + 8}
template <u32 WIDE>
static __device__ __forceinline__ void scales_load(float (&sb)[4], const md_stream &s, u32 at, u32 units, u32 g) {
    if (WIDE) {
        float4 v = *(const float4 *)stream_at(s, at, units + g);
        sb[0] = v.x, sb[1] = v.y, sb[2] = v.z, sb[3] = v.w;
    } else {
        uint2 v = *(const uint2 *)(stream_at(s, at, units + g / 2) + (g & 1) * 8);
        sb[0] = bf_lo(v.x), sb[1] = bf_hi(v.x), sb[2] = bf_lo(v.y), sb[3] = bf_hi(v.y);
    }
}

// d += plane of nibbles, products first..last of the block
static __device__ __forceinline__ void mma_nibbles(float (&d)[4], uint4 w, const u32 (&b)[8], u32 magic, u32 first, u32 last) {
    u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        if (j < first || j >= last) continue;
        u32 v = words[j];
        mma(d, nibbles(v, magic), nibbles(v >> 4, magic), nibbles(v >> 8, magic), nibbles(v >> 12, magic), b[2 * j],
            b[2 * j + 1]);
    }
}

// One block of a tile: tot += W * x. tot: rows g and g + 8 by the lane's two columns, {g:c, g:c+1, g+8:c, g+8:c+1}.
template <u32 CELL, u32 WIDE, u32 SETS>
static __device__ __forceinline__ void block_mma(float (&tot)[4], const md_stream &s, u32 unit, const md_acts &x, u32 lane) {
    u32 at = stream_wrap(unit), g = lane >> 2;
    if (CELL > CELL_Q8) {
#pragma unroll
        for (u32 plane = 0; plane < planes_of(CELL); plane++)
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                uint4 a = *(const uint4 *)stream_at(s, at, plane * 128 + j * 32 + lane);
                mma(tot, a.x, a.y, a.z, a.w, x.b[2 * j], x.b[2 * j + 1]);
            }
        return;
    }
    uint4 w[2];
    w[0] = *(const uint4 *)stream_at(s, at, lane);
    if (CELL == CELL_Q8) w[1] = *(const uint4 *)stream_at(s, at, 32 + lane);
#pragma unroll
    for (u32 set = 0; set < SETS; set++) {
        constexpr u32 sets = SETS ? SETS : 1;
        float sb[4], sum[2];
        scales_load<WIDE>(sb, s, at, code_units(CELL) + set * (WIDE ? 8 : 4), g);
#pragma unroll
        for (u32 i = 0; i < 2; i++) sum[i] = SETS < SETS_MAX ? x.sum[0][i] + x.sum[SETS_MAX - 1][i] : x.sum[set][i];
        u32 first = set * 4 / sets, last = (set + 1) * 4 / sets;
        float d[4] = {0, 0, 0, 0}, lo[4] = {0, 0, 0, 0};
        if (CELL == CELL_Q8) {
            mma_nibbles(d, w[0], x.b, 0x45004500u, first, last);
            mma_nibbles(lo, w[1], x.b, 0x43004300u, first, last);
        } else {
            mma_nibbles(lo, w[0], x.b, 0x43004300u, first, last);
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            float v = fmaf(-128.0f, sum[i & 1], lo[i]);
            if (CELL == CELL_Q8) v += fmaf(-2048.0f, sum[i & 1], d[i]);
            tot[i] = fmaf(sb[i / 2], v, tot[i]);
            tot[i] = fmaf(sb[2 + i / 2], sum[i & 1], tot[i]);
        }
    }
}

// A warp's share of one tile: blocks [0, count) from `unit` on; activations in registers (CACHED) or in shared memory.
template <u32 CELL, u32 WIDE, u32 SETS, u32 BLOCKS, bool CACHED>
static __device__ __forceinline__ void tile_mma(float (&tot)[4], const md_stream &s, u32 unit, u32 count, const md_acts *x, u32 first, u32 lane, u32 columns) {
    const u32 step = block_units(CELL, WIDE, SETS);
    if (CACHED) {
#pragma unroll
        for (u32 i = 0; i < BLOCKS; i++)
            if (i < count) block_mma<CELL, WIDE, SETS>(tot, s, unit + i * step, x[i], lane);
    } else {
#pragma unroll 2
        for (u32 i = 0; i < count; i++) {
            md_acts on_the_fly;
            acts_load(on_the_fly, first + i, lane, columns);
            block_mma<CELL, WIDE, SETS>(tot, s, unit + i * step, on_the_fly, lane);
        }
    }
}

// Units of one block of a format that is known at run time only.
static __device__ __forceinline__ u32 format_units(u32 format) {
    switch (format) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: return block_units(cell, wide, sets);
        FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
    }
    return 0;
}

// Brings an input vector of `tiles` tiles to shared memory, normalised where `norm` is given. True when someone failed.
template <int NC>
static __device__ __forceinline__ bool load_vector(md_ctx &ctx, u32 vector, u32 tiles, u32 blocks,
                                                   u32 tag, const float *norm) {
    const md_params *p = ctx.p;
    float squares[NC];
#pragma unroll
    for (int c = 0; c < NC; c++) squares[c] = 0;
    float2 early[3]; // the norm's weights of this thread's first entry, asked for before the wait
    if (norm && ctx.tid < tiles * 3)
#pragma unroll
        for (u32 i = 0; i < 3; i++) early[i] = __ldg((const float2 *)(norm + ctx.tid / 3 * 16 + ctx.tid % 3 * 6) + i);
    for (u32 e = ctx.tid; e < tiles * 3; e += CONSUMERS) {
        u32 tile = e / 3, third = e % 3, at = tile * 16 + third * 6;
#pragma unroll
        for (int c0 = 0; c0 < NC; c0 += 4) { // four columns' loads under way at once
            constexpr int batch = NC < 4 ? NC : 4;
            uint4 v[batch];
#pragma unroll
            for (int i = 0; i < batch; i++)
                if (NC == 1 || c0 + i < p->columns) v[i] = load_entry(entry_of(p, vector, tiles, c0 + i, tile, third));
#pragma unroll
            for (int i = 0; i < batch; i++) {
                int c = c0 + i;
                if (NC > 1 && c >= p->columns) continue;
                uint4 got = wait_entry_from(ctx, entry_of(p, vector, tiles, c, tile, third), tag, v[i]);
                u32 *to = (u32 *)(SH_XS + c * XSTRIDE + at);
                to[0] = got.x, to[1] = got.y;
                if (third < 2) to[2] = got.z;
                if (!norm) continue;
                float sum = fmaf(bf_lo(got.x), bf_lo(got.x), squares[c]);
                sum = fmaf(bf_hi(got.x), bf_hi(got.x), sum);
                sum = fmaf(bf_lo(got.y), bf_lo(got.y), sum), sum = fmaf(bf_hi(got.y), bf_hi(got.y), sum);
                squares[c] = fmaf(bf_hi(got.z), bf_hi(got.z), fmaf(bf_lo(got.z), bf_lo(got.z), sum)); // zeros in a third entry
            }
        }
    }
    for (u32 i = tiles * 16 + 2 * ctx.tid; i < blocks * 64; i += 2 * CONSUMERS)
        for (int c = 0; c < NC; c++) *(u32 *)(SH_XS + c * XSTRIDE + i) = 0;
    if (!norm) return consumers_any(ctx.failed);
#pragma unroll
    for (int c = 0; c < NC; c++) {
        float sum = warp_sum(squares[c]);
        if (ctx.lane == 0) SH_PARTS[c * CONSUMER_WARPS + ctx.warp] = sum;
    }
    if (consumers_any(ctx.failed)) return true;
    MARK(1);
#pragma unroll
    for (int c = 0; c < NC; c++) {
        if (NC > 1 && c >= p->columns) continue;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < CONSUMER_WARPS; w++) sum += SH_PARTS[c * CONSUMER_WARPS + w];
        squares[c] = 1.0f / sqrtf(sum / (float)HIDDEN + NORM_EPS);
    }
    for (u32 e = ctx.tid; e < tiles * 3; e += CONSUMERS) { // the thread's own values again
        u32 at = e / 3 * 16 + e % 3 * 6, n = e % 3 < 2 ? 3 : 2;
#pragma unroll
        for (u32 i = 0; i < 3; i++) {
            if (i >= n) continue;
            float2 w = e == ctx.tid ? early[i] : __ldg((const float2 *)(norm + at) + i);
#pragma unroll
            for (int c = 0; c < NC; c++) {
                if (NC > 1 && c >= p->columns) continue;
                u32 *to = (u32 *)(SH_XS + c * XSTRIDE + at) + i;
                *to = bf_bits(w.x * bf(bf_lo(*to) * squares[c])) | bf_bits(w.y * bf(bf_hi(*to) * squares[c])) << 16;
            }
        }
    }
    consumers_sync();
    return false;
}

// The partial sums of `tiles` consecutive tiles of this CTA's run, first tile at unit `unit`, to `red`. `format_of(i)` is
// the format of the i-th. Returns the unit after the last.
template <int NC, u32 NB, u32 SPLIT, typename FormatOf>
static __device__ __forceinline__ u32 tiles_mma(md_ctx &ctx, md_stream &s, const md_acts *x, u32 unit,
                                                u32 tiles, u32 columns, FormatOf format_of) {
    constexpr u32 BLOCKS = (NB + SPLIT - 1) / SPLIT;
    constexpr bool CACHED = BLOCKS <= CACHED_BLOCKS;
    const u32 lanes = CONSUMER_WARPS / SPLIT, slot = ctx.warp / SPLIT, k = ctx.warp % SPLIT;
    const u32 first = k * NB / SPLIT, count = (k + 1) * NB / SPLIT - first;
    for (u32 i = 0; i < tiles; i++) {
        u32 format = format_of(i), block = format_units(format), begin = unit;
        unit += NB * block;
        if (i % lanes != slot) continue;
        u32 at = begin + first * block;
        float tot[4] = {0, 0, 0, 0};
        stream_release(s, at, ctx.lane, ctx.p->deadline_us);
        stream_need(s, at + count * block - 1, ctx.p->deadline_us);
        switch (format) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: tile_mma<cell, wide, sets, BLOCKS, CACHED>(tot, s, at, count, x, first, ctx.lane, columns); break;
            FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
        }
        stream_release(s, at + count * block, ctx.lane, ctx.p->deadline_us);
        u32 g = ctx.lane >> 2, c = (ctx.lane & 3) * 2;
        float *red = SH_RED + (i * SPLIT + k) * 16 * NC;
        if (NC == 1) {
            if (c == 0) red[g] = tot[0], red[g + 8] = tot[2];
        } else if (c < NC) {
            *(float2 *)(red + g * NC + c) = make_float2(tot[0], tot[1]);
            *(float2 *)(red + (g + 8) * NC + c) = make_float2(tot[2], tot[3]);
        }
    }
    stream_release(s, unit, ctx.lane, ctx.p->deadline_us);
    return unit;
}

// The sum of a row over the warps that share a tile.
template <int NC, u32 SPLIT> static __device__ __forceinline__ float row_sum(u32 tile, u32 row, u32 column) {
    float sum = 0;
#pragma unroll
    for (u32 k = 0; k < SPLIT; k++) sum += SH_RED[((tile * SPLIT + k) * 16 + row) * NC + column];
    return sum;
}

// ==== attention.cuh ====

// Attention. A cache is cut into blocks of ATTN_ROWS positions counted from 0, whatever its length and however many CTAs
// there are; block b of kv head h belongs to the CTA (home + b * KV_HEADS + h) mod G, which alone reads and writes it, so
// that no cache entry ever passes between CTAs of one launch. An item is one (column, kv head, block) with all query
// heads of the kv head. docs/MODEL.md has the formulas; a block's partial is {m, l, o[HEAD_DIM]}.

static __device__ __forceinline__ uint4 *stats_entry(const md_params *p, u32 c, u32 head, u32 block) {
    return (uint4 *)p->stats + ((u64)c * Q_HEADS + head) * p->blocks + block;
}
static __device__ __forceinline__ uint4 *partial_entry(const md_params *p, u32 c, u32 head, u32 block, u32 e) {
    return (uint4 *)p->partials + (((u64)c * Q_HEADS + head) * p->blocks + block) * PARTIAL_ENTRIES + e;
}
// Where the cache of a column's layer lies; constant during a launch.
static __device__ __forceinline__ md_kv_layer layer_cache(const md_params *p, u32 c, u32 layer) {
    const uint4 *at = (const uint4 *)((const md_kv_layer *)p->col[c].kv + layer);
    uint4 a = __ldg(at), b = __ldg(at + 1), d = __ldg(at + 2);
    md_kv_layer kv;
    kv.k = a.x | (u64)a.y << 32, kv.v = a.z | (u64)a.w << 32;
    kv.k_scales = b.x | (u64)b.y << 32, kv.v_scales = b.z | (u64)b.w << 32;
    kv.bits = d.x, kv.group = d.y, kv.context = d.z, kv.pad = 0;
    return kv;
}
static __device__ __forceinline__ u32 first_item(const md_ctx &ctx, u32 home) {
    u32 groups = ctx.p->groups;
    return (ctx.cta + groups - home % groups) % groups;
}

// A group of the token's own key or value as md_affine_quantize (src/model/quant.c) does it, by one warp.
static __device__ void quantize_group(const float *values, u32 bits, u32 group, u8 *codes, u32 *scale_bias, u32 lane) {
    const float top = (float)((1u << bits) - 1u);
    float low = values[lane], high = low;
    for (u32 i = lane; i < group; i += 32) low = fminf(low, values[i]), high = fmaxf(high, values[i]);
    low = -warp_max(-low), high = warp_max(high);
    float scale = fmaxf((high - low) / top, 1e-7f);
    bool low_end = fabsf(low) > fabsf(high);
    scale = low_end ? scale : -scale;
    float edge = low_end ? low : high, steps = rintf(edge / scale), bias = 0.0f;
    if (steps != 0.0f) scale = edge / steps, bias = edge;
    for (u32 pair = lane; pair < group / 2; pair += 32) {
        u32 q[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) q[i] = (u32)fminf(fmaxf(rintf((values[2 * pair + i] - bias) / scale), 0.0f), top);
        if (bits == 8)
            codes[2 * pair] = (u8)q[0], codes[2 * pair + 1] = (u8)q[1];
        else
            codes[pair] = (u8)(q[0] | q[1] << 4);
    }
    if (lane == 0) *scale_bias = bf_bits(scale) | bf_bits(bias) << 16;
}

// The two halves of a cached head, quantized or copied: row[0] = key, row[1] = value, at `position`.
static __device__ void cache_store(const md_kv_layer &kv, u32 head, u32 position, const float *row, u32 warp, u32 lane) {
    u64 at = (u64)head * kv.context + position;
    if (!kv.bits) {
        for (u32 i = warp * 32 + lane; i < HEAD_DIM; i += CONSUMERS) // i: pair of values, keys then values
            ((u32 *)(i < HEAD_DIM / 2 ? kv.k : kv.v))[at * (HEAD_DIM / 2) + i % (HEAD_DIM / 2)] =
                bf_bits(row[2 * i]) | bf_bits(row[2 * i + 1]) << 16;
        return;
    }
    u32 groups = HEAD_DIM / kv.group;
    for (u32 i = warp; i < 2 * groups; i += CONSUMER_WARPS) {
        bool value = i >= groups;
        u32 g = value ? i - groups : i;
        quantize_group(row + (value ? HEAD_DIM : 0) + g * kv.group, kv.bits, kv.group,
                       (u8 *)(value ? kv.v : kv.k) + at * (HEAD_DIM * kv.bits / 8) + g * kv.group * kv.bits / 8,
                       (u32 *)(value ? kv.v_scales : kv.k_scales) + at * groups + g, lane);
    }
}

// The token's own key and value of a kv head, exchanged by the CTAs that computed them, to SH_ROW.
static __device__ __forceinline__ void own_row_load(md_ctx &ctx, u32 c, u32 head, u32 tag) {
    const u32 tiles = HEAD_DIM / 16;
    for (u32 i = ctx.tid; i < 2 * tiles * 3; i += CONSUMERS) {
        bool value = i >= tiles * 3;
        u32 j = value ? i - tiles * 3 : i, tile = j / 3, e = j % 3;
        uint4 entry = wait_entry(ctx, entry_of(ctx.p, value ? VECTOR_V : VECTOR_K, value ? T_V : T_K, c, head * tiles + tile, e), tag);
        u32 words[3] = {entry.x, entry.y, entry.z};
#pragma unroll
        for (u32 slot = 0; slot < 6; slot++) {
            u32 r = 6 * e + slot;
            if (r >= 16) continue;
            u32 d = value ? tile * 16 + r : tile * 8 + (r & 7) + (r >> 3) * (HEAD_DIM / 2);
            SH_ROW[(value ? HEAD_DIM : 0) + d] = slot & 1 ? bf_hi(words[slot / 2]) : bf_lo(words[slot / 2]);
        }
    }
}

static __device__ __forceinline__ void copy16_async(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
static __device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Copies rows [0, n) of a block to shared memory as they are stored; whoever reads them waits (copies_wait, barrier).
static __device__ __forceinline__ void rows_load(const md_ctx &ctx, const md_kv_layer &kv, u64 at, u32 n, bool values,
                                                 u32 first = 0) {
    u8 *to = (values ? SH_V : SH_K) + first * K_STRIDE;
    u32 *scales = (values ? SH_V_SCALES : SH_K_SCALES) + first * (HEAD_DIM / 32);
    u32 units = (kv.bits ? HEAD_DIM * kv.bits / 8 : HEAD_DIM * 2) / UNIT; // a row: head_dim is a multiple of 16, bits >= 4
    const u8 *from = (const u8 *)(values ? kv.v : kv.k) + at * units * UNIT;
    if (kv.bits == 4 && HEAD_DIM % 32) { // half units
        for (u32 i = ctx.tid; i < n * (HEAD_DIM / 16); i += CONSUMERS)
            *(u64 *)(to + i / (HEAD_DIM / 16) * K_STRIDE + i % (HEAD_DIM / 16) * 8) =
                __ldcg((const unsigned long long *)((values ? kv.v : kv.k) + at * (HEAD_DIM / 2)) + i);
    } else {
        for (u32 i = ctx.tid; i < n * units; i += CONSUMERS)
            copy16_async(to + i / units * K_STRIDE + i % units * UNIT, from + i * UNIT);
    }
    if (!kv.bits) return;
    u32 groups = HEAD_DIM / kv.group;
    const u32 *sb = (const u32 *)(values ? kv.v_scales : kv.k_scales) + at * groups;
    for (u32 i = ctx.tid; i < n * groups; i += CONSUMERS) scales[i / groups * (HEAD_DIM / 32) + i % groups] = __ldcg(sb + i);
}

// Values 2i and 2i + 1 of a row in shared memory.
static __device__ __forceinline__ float2 row_pair(const u8 *row, const u32 *scales, u32 bits, u32 group, u32 i) {
    if (!bits) {
        u32 v = ((const u32 *)row)[i];
        return make_float2(bf_lo(v), bf_hi(v));
    }
    u32 sb = scales[2 * i / group], a, b;
    if (bits == 8) {
        u32 v = ((const u16 *)row)[i];
        a = v & 255, b = v >> 8;
    } else {
        u32 v = row[i];
        a = v & 15, b = v >> 4;
    }
    return make_float2(fmaf(bf_lo(sb), (float)a, bf_hi(sb)), fmaf(bf_lo(sb), (float)b, bf_hi(sb)));
}

// The queries of a kv head to shared memory (times the scale, rounded, for a quantized cache).
static __device__ __forceinline__ void queries_load(md_ctx &ctx, u32 c, u32 kv_head, u32 tag, bool scaled) {
    const u32 tiles = HEAD_DIM / 16;
    for (u32 i = ctx.tid; i < REP * tiles * 3; i += CONSUMERS) {
        u32 h = i / (tiles * 3), j = i % (tiles * 3), tile = j / 3, e = j % 3;
        uint4 entry = wait_entry(ctx, entry_of(ctx.p, VECTOR_Q, T_Q, c, (kv_head * REP + h) * tiles + tile, e), tag);
        u32 words[3] = {entry.x, entry.y, entry.z};
        for (u32 slot = 0; slot < (e < 2 ? 6 : 4); slot++) {
            u32 r = 6 * e + slot;
            float q = slot & 1 ? bf_hi(words[slot / 2]) : bf_lo(words[slot / 2]);
            SH_Q[h * Q_STRIDE + tile * 8 + (r & 7) + (r >> 3) * (HEAD_DIM / 2)] = scaled ? bf(q * bf(ATTN_SCALE)) : q;
        }
    }
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

// scores[h][j] of an item's rows, in shared memory, and with `with_values` the rows of V too. `append`: the token's own
// key and value come from the exchange and go to the cache here; its CTA's later items and steps read them there. True
// when someone failed.
static __device__ __forceinline__ bool item_scores(md_ctx &ctx, const md_kv_layer &kv, const md_item &item, u32 tag_q, bool append,
                                                   bool with_values) {
    u32 n = item.n, position = item.block * ATTN_ROWS + n - 1;
    u64 at = (u64)item.head * kv.context + item.block * ATTN_ROWS;
    bool own = append && item.own;
    u32 cached = own ? n - 1 : n; // these rows don't wait for this stage's input
    rows_load(ctx, kv, at, cached, false);
    if (with_values) rows_load(ctx, kv, at, cached, true);
    if (own) own_row_load(ctx, item.c, item.head, tag_q);
    queries_load(ctx, item.c, item.head, tag_q, kv.bits != 0);
    copies_wait();
    if (consumers_any(ctx.failed)) return true;
    if (own) {
        cache_store(kv, item.head, position, SH_ROW, ctx.warp, ctx.lane);
        if (kv.bits) {
            consumers_sync(); // the row is read back as it was stored
            rows_load(ctx, kv, at + n - 1, 1, false, n - 1);
            if (with_values) rows_load(ctx, kv, at + n - 1, 1, true, n - 1);
            copies_wait();
        } else {
            for (u32 d = ctx.tid; d < 2 * HEAD_DIM; d += CONSUMERS) // K, then V
                *(u16 *)((d < HEAD_DIM ? SH_K : SH_V) + (n - 1) * K_STRIDE + d % HEAD_DIM * 2) = (u16)bf_bits(SH_ROW[d]);
        }
        consumers_sync();
    }
    for (u32 i = ctx.tid; i < REP * ATTN_ROWS; i += CONSUMERS) {
        u32 h = i % REP, j = i / REP;
        if (j >= n) continue;
        const u8 *row = SH_K + j * K_STRIDE;
        const float *q = SH_Q + h * Q_STRIDE;
        float sum[4] = {0, 0, 0, 0};
        if (!kv.bits) {
#pragma unroll 4
            for (u32 d = 0; d < HEAD_DIM; d += 8) {
                uint4 k = *(const uint4 *)(row + 2 * d);
                float4 a = *(const float4 *)(q + d), b = *(const float4 *)(q + d + 4);
                sum[0] = fmaf(a.x, bf_lo(k.x), sum[0]), sum[1] = fmaf(a.y, bf_hi(k.x), sum[1]);
                sum[2] = fmaf(a.z, bf_lo(k.y), sum[2]), sum[3] = fmaf(a.w, bf_hi(k.y), sum[3]);
                sum[0] = fmaf(b.x, bf_lo(k.z), sum[0]), sum[1] = fmaf(b.y, bf_hi(k.z), sum[1]);
                sum[2] = fmaf(b.z, bf_lo(k.w), sum[2]), sum[3] = fmaf(b.w, bf_hi(k.w), sum[3]);
            }
        } else {
#pragma unroll 8
            for (u32 d = 0; d < HEAD_DIM; d += 2) {
                float2 k = row_pair(row, SH_K_SCALES + j * (HEAD_DIM / 32), kv.bits, kv.group, d / 2);
                sum[d & 2] = fmaf(q[d], k.x, sum[d & 2]), sum[(d & 2) + 1] = fmaf(q[d + 1], k.y, sum[(d & 2) + 1]);
            }
        }
        float s = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        SH_SCORES[h * S_STRIDE + j] = kv.bits ? bf(s) : s * ATTN_SCALE;
    }
    consumers_sync();
    return false;
}

// {m, l} of a head's scores by one warp; scores become exp(s - m) when `replace`.
static __device__ __forceinline__ float2 block_softmax(float *scores, u32 n, u32 lane, bool replace) {
    float m = -INFINITY, l = 0;
    for (u32 j = lane; j < n; j += 32) m = fmaxf(m, scores[j]);
    m = warp_max(m);
    for (u32 j = lane; j < n; j += 32) {
        float e = exp_own(scores[j] - m);
        l += e;
        if (replace) scores[j] = e;
    }
    return make_float2(m, warp_sum(l));
}

// Quantized caches: m and l of every block, which all blocks' probabilities need. True when someone failed.
static __device__ __noinline__ bool stage_scores(md_ctx ctx, u32 layer, u32 tag_qkv, u32 tag) {
    const md_params *p = ctx.p;
    for (u32 c = 0; c < p->columns; c++) {
        const md_kv_layer kv = layer_cache(p, c, layer);
        if (!kv.bits) continue;
        u32 length = p->col[c].position + ctx.step + 1, items = (length + ATTN_ROWS - 1) / ATTN_ROWS * KV_HEADS;
        for (u32 i = first_item(ctx, p->col[c].home); i < items; i += p->groups) {
            md_item item = item_of(ctx, c, i, length);
            if (item_scores(ctx, kv, item, tag_qkv, true, false)) return true;
            for (u32 h = ctx.warp; h < REP; h += CONSUMER_WARPS) {
                float2 ml = block_softmax(SH_SCORES + h * S_STRIDE, item.n, ctx.lane, false);
                if (ctx.lane == 0)
                    put_entry(ctx, stats_entry(p, c, item.head * REP + h, item.block), __float_as_uint(ml.x), __float_as_uint(ml.y), 0, tag);
            }
            consumers_sync();
        }
    }
    return false;
}

// The whole row's maximum and sum from its blocks' statistics, by one warp.
static __device__ __forceinline__ float2 row_stats(md_ctx &ctx, u32 c, u32 head, u32 blocks, u32 tag) {
    float m = -INFINITY, l = 0;
    for (u32 b = ctx.lane; b < blocks; b += 32) m = fmaxf(m, __uint_as_float(wait_entry(ctx, stats_entry(ctx.p, c, head, b), tag).x));
    m = warp_max(m);
    for (u32 b = ctx.lane; b < blocks; b += 32) {
        uint4 e = wait_entry(ctx, stats_entry(ctx.p, c, head, b), tag);
        l = fmaf(__uint_as_float(e.y), exp_own(__uint_as_float(e.x) - m), l);
    }
    return make_float2(m, warp_sum(l));
}

// The item's scores to probabilities: of its block alone (bf16 cache; {m, l} beside them), or of the whole row, rounded
// (quantized cache: the blocks' outputs are then simply added).
static __device__ __forceinline__ void item_probabilities(md_ctx &ctx, const md_kv_layer &kv, const md_item &item, u32 blocks, u32 tag_scores) {
    for (u32 h = ctx.warp; h < REP; h += CONSUMER_WARPS) {
        float *scores = SH_SCORES + h * S_STRIDE, *out = SH_OUT + h * 3 * PARTIAL_ENTRIES;
        float2 ml;
        if (!kv.bits) {
            ml = block_softmax(scores, item.n, ctx.lane, true);
        } else {
            ml = row_stats(ctx, item.c, item.head * REP + h, blocks, tag_scores);
            float scale = 1.0f / ml.y;
            for (u32 j = ctx.lane; j < item.n; j += 32) scores[j] = bf(exp_own(scores[j] - ml.x) * scale);
            ml = make_float2(0.0f, item.block == 0 ? 1.0f : 0.0f);
        }
        if (ctx.lane == 0) out[0] = ml.x, out[1] = ml.y;
        if (ctx.lane + HEAD_DIM + 2 < 3 * PARTIAL_ENTRIES) out[HEAD_DIM + 2 + ctx.lane] = 0; // what fills the last entry
    }
}

// Probabilities times values to SH_OUT.
static __device__ __forceinline__ void item_values(const md_ctx &ctx, const md_kv_layer &kv, u32 n) {
    for (u32 k = ctx.tid; k < REP * (HEAD_DIM / 2); k += CONSUMERS) {
        u32 h = k / (HEAD_DIM / 2), pair = k % (HEAD_DIM / 2);
        const float *prob = SH_SCORES + h * S_STRIDE;
        float a = 0, b = 0;
        if (!kv.bits) {
#pragma unroll 8
            for (u32 j = 0; j < n; j++) {
                u32 v = *(const u32 *)(SH_V + j * K_STRIDE + pair * 4);
                a = fmaf(prob[j], bf_lo(v), a), b = fmaf(prob[j], bf_hi(v), b);
            }
        } else {
#pragma unroll 4
            for (u32 j = 0; j < n; j++) {
                float2 v = row_pair(SH_V + j * K_STRIDE, SH_V_SCALES + j * (HEAD_DIM / 32), kv.bits, kv.group, pair);
                a = fmaf(prob[j], v.x, a), b = fmaf(prob[j], v.y, b);
            }
        }
        SH_OUT[h * 3 * PARTIAL_ENTRIES + 2 + 2 * pair] = a;
        SH_OUT[h * 3 * PARTIAL_ENTRIES + 3 + 2 * pair] = b;
    }
}

// Partials of every block; of a sequence that has one block only, the output itself (the merge of one block is o / l).
static __device__ __noinline__ bool stage_attn(md_ctx ctx, u32 layer, u32 tag_qkv, u32 tag_scores, u32 tag, u32 tag_merge) {
    const md_params *p = ctx.p;
    for (u32 c = 0; c < p->columns; c++) {
        const md_kv_layer kv = layer_cache(p, c, layer);
        u32 length = p->col[c].position + ctx.step + 1, blocks = (length + ATTN_ROWS - 1) / ATTN_ROWS;
        for (u32 i = first_item(ctx, p->col[c].home); i < blocks * KV_HEADS; i += p->groups) {
            md_item item = item_of(ctx, c, i, length);
            MARK(1);
            if (item_scores(ctx, kv, item, tag_qkv, !kv.bits, true)) return true;
            MARK(2);
            item_probabilities(ctx, kv, item, blocks, tag_scores);
            if (consumers_any(ctx.failed)) return true;
            MARK(3);
            item_values(ctx, kv, item.n);
            consumers_sync();
            MARK(4);
            if (blocks == 1) {
                for (u32 k = ctx.warp * 32; k < REP * HEAD_DIM; k += CONSUMERS) { // whole warps: put_tile shuffles
                    u32 at = k + ctx.lane, h = at / HEAD_DIM, d = at % HEAD_DIM;
                    bool valid = at < REP * HEAD_DIM;
                    const float *o = SH_OUT + (valid ? h : 0) * 3 * PARTIAL_ENTRIES;
                    put_tile(ctx, entry_of(p, VECTOR_ATTN, T_ATTN, c, (item.head * REP * HEAD_DIM + at) / 16, 0),
                             bf_bits(o[2 + d] / o[1]), valid, tag_merge);
                }
                continue;
            }
            for (u32 k = ctx.tid; k < REP * PARTIAL_ENTRIES; k += CONSUMERS) {
                u32 h = k / PARTIAL_ENTRIES, e = k % PARTIAL_ENTRIES;
                const float *o = SH_OUT + h * 3 * PARTIAL_ENTRIES + 3 * e;
                put_entry(ctx, partial_entry(p, c, item.head * REP + h, item.block, e), __float_as_uint(o[0]), __float_as_uint(o[1]),
                          __float_as_uint(o[2]), tag);
            }
        }
    }
    return false;
}

// A head with few blocks: all its partials at once to shared memory, then block after block.
static __device__ __forceinline__ bool merge_few(md_ctx &ctx, u32 c, u32 head, u32 blocks, u32 tag_partials, u32 tag) {
    for (u32 i = ctx.tid; i < blocks * PARTIAL_ENTRIES; i += CONSUMERS) {
        uint4 v = wait_entry(ctx, partial_entry(ctx.p, c, head, 0, i), tag_partials); // blocks follow each other
        float *to = SH_SUMS + i * 3;
        to[0] = __uint_as_float(v.x), to[1] = __uint_as_float(v.y), to[2] = __uint_as_float(v.z);
    }
    if (consumers_any(ctx.failed)) return true;
    MARK(1);
    for (u32 base = ctx.warp * 32; base < HEAD_DIM; base += CONSUMERS) {
        u32 d = base + ctx.lane;
        float m = -INFINITY, l = 0, o = 0;
        for (u32 b = 0; b < blocks; b++) m = fmaxf(m, SH_SUMS[b * 3 * PARTIAL_ENTRIES]);
#pragma unroll 4
        for (u32 b = 0; b < blocks; b++) {
            const float *partial = SH_SUMS + b * 3 * PARTIAL_ENTRIES;
            float w = exp_own(partial[0] - m);
            l = fmaf(partial[1], w, l);
            o = fmaf(partial[2 + min(d, HEAD_DIM - 1u)], w, o);
        }
        put_tile(ctx, entry_of(ctx.p, VECTOR_ATTN, T_ATTN, c, (head * HEAD_DIM + d) / 16, 0), bf_bits(o / l), d < HEAD_DIM, tag);
    }
    return false;
}

// The blocks of a head to its output. Eight parts of the CTA take every eighth block each and are added in order.
static __device__ __noinline__ bool stage_merge(md_ctx ctx, u32 tag_partials, u32 tag) {
    const md_params *p = ctx.p;
    float *weights = SH_WEIGHTS, *sums = SH_SUMS, *parts = SH_REDUCE;
    for (u32 item = ctx.cta; item < p->columns * Q_HEADS; item += p->groups) {
        u32 c = item / Q_HEADS, head = item % Q_HEADS;
        u32 blocks = (p->col[c].position + ctx.step) / ATTN_ROWS + 1;
        if (blocks == 1) continue; // done by the attention itself
        if (item != ctx.cta) consumers_sync(); // the last item's sums may still be read
        if (blocks <= MERGE_FEW) {
            if (merge_few(ctx, c, head, blocks, tag_partials, tag)) return true;
            continue;
        }
        float m = -INFINITY, l = 0;
        for (u32 b = ctx.tid; b < blocks; b += CONSUMERS)
            m = fmaxf(m, __uint_as_float(wait_entry(ctx, partial_entry(p, c, head, b, 0), tag_partials).x));
        m = warp_max(m);
        if (ctx.lane == 0) parts[ctx.warp] = m;
        if (consumers_any(ctx.failed)) return true;
        for (u32 w = 0; w < CONSUMER_WARPS; w++) m = fmaxf(m, parts[w]);
        for (u32 b = ctx.tid; b < blocks; b += CONSUMERS) {
            uint4 e = wait_entry(ctx, partial_entry(p, c, head, b, 0), tag_partials);
            float w = exp_own(__uint_as_float(e.x) - m);
            weights[b] = w;
            l = fmaf(__uint_as_float(e.y), w, l);
        }
        l = warp_sum(l);
        if (ctx.lane == 0) parts[CONSUMER_WARPS + ctx.warp] = l;
        consumers_sync();
        const u32 threads = CONSUMERS / MERGE_PARTS;
        u32 part = ctx.tid / threads;
        for (u32 e = ctx.tid % threads; e < PARTIAL_ENTRIES; e += threads) {
            float o[3] = {0, 0, 0};
#pragma unroll 4
            for (u32 b = part; b < blocks; b += MERGE_PARTS) {
                uint4 v = wait_entry(ctx, partial_entry(p, c, head, b, e), tag_partials);
                o[0] = fmaf(__uint_as_float(v.x), weights[b], o[0]);
                o[1] = fmaf(__uint_as_float(v.y), weights[b], o[1]);
                o[2] = fmaf(__uint_as_float(v.z), weights[b], o[2]);
            }
            for (u32 i = 0; i < 3; i++) sums[part * 3 * PARTIAL_ENTRIES + 3 * e + i] = o[i];
        }
        if (consumers_any(ctx.failed)) return true;
        l = 0;
        for (u32 w = 0; w < CONSUMER_WARPS; w++) l += parts[CONSUMER_WARPS + w];
        for (u32 base = ctx.warp * 32; base < HEAD_DIM; base += CONSUMERS) { // whole warps: put_tile shuffles
            u32 d = base + ctx.lane;
            float o = 0;
            for (u32 i = 0; i < MERGE_PARTS; i++) o += sums[i * 3 * PARTIAL_ENTRIES + 2 + min(d, HEAD_DIM - 1u)];
            put_tile(ctx, entry_of(p, VECTOR_ATTN, T_ATTN, c, (head * HEAD_DIM + d) / 16, 0), bf_bits(o / l), d < HEAD_DIM, tag);
        }
    }
    return false;
}

// ==== stages.cuh ====

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

static __device__ __noinline__ bool stage_embed(md_ctx ctx, u32 tag) {
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

    MARK(2);
    constexpr u32 blocks = (NB + SPLIT - 1) / SPLIT;
    constexpr bool cached = blocks <= CACHED_BLOCKS;
    md_acts x[cached ? blocks : 1];
    const u32 k = ctx.warp % SPLIT, first_block = k * NB / SPLIT, own = (k + 1) * NB / SPLIT - first_block;
    if (cached)
#pragma unroll
        for (u32 i = 0; i < blocks; i++)
            if (i < own) acts_load(x[i], first_block + i, ctx.lane, columns);

    u32 unit = stream.position;
    MARK(3);
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
        MARK(4);
        if (consumers_any(ctx.failed)) return true;
        MARK(5);
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
    MARK(6);
    return false;
}

// ---- the next token -------------------------------------------------------------------------------------------------

// Every CTA puts the best of its logits in a record; every CTA reads all records and so knows the next token. Records
// alternate between two buffers by step, since a CTA without tiles may be late to read. CTA 0's record carries the host's
// wish to stop. {value, index, cancel, tag}
static __device__ __forceinline__ uint4 *record_of(const md_ctx &ctx, u32 cta) {
    return (uint4 *)ctx.p->records + (ctx.tag0 / STAGES & 1) * ctx.p->groups + cta;
}

static __device__ __noinline__ void record_put(md_ctx ctx, md_best best, u32 tag) {
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
static __device__ __noinline__ bool next_token(md_ctx ctx, u32 tag, u32 *token, bool *stop) {
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

// ==== kernel.cuh ====

// The kernel: stages [stage_begin, stage_end) of p.tokens steps. One launch of all stages on all SMs is the resident
// engine; one launch a stage is the ops engine. Both run this same code, so they give the same bits.
//
// One CTA an SM: CONSUMER_WARPS warps compute, one thread of the last warp streams the weights.

template <int NC> static __device__ __forceinline__ bool run_stage(md_ctx &ctx, md_stream &stream, u32 s, md_best *best) {
    ctx.stage = s;
    MARK(0);
#if INJECT
    if (ctx.p->delay_seed) { // a pseudo-random delay of up to 8 us in every stage of every CTA
        u32 h = (ctx.p->delay_seed + s * 0x9e3779b9u) ^ (ctx.cta + ctx.step * 977u) * 0x85ebca6bu;
        h = (h ^ h >> 15) * 0x2c1b3c6du, h ^= h >> 13;
        if (h & 1) __nanosleep(h >> 19);
    }
#endif
    if (s == S_EMBED) return stage_embed(ctx, TAG(ctx, s));
    if (s == S_HEAD) return stage_matrix<NC, KIND_HEAD, NB_X, SPLIT_HEAD>(ctx, stream, s, 0, best);
    u32 layer = (s - S_LAYERS) / S_A_LAYER, qkv = s - (s - S_LAYERS) % S_A_LAYER;
    // Attention, merge and matrix stages use one work area: where its use changes, nobody may still be in the old one.
    if (s - qkv >= S_SCORES && s - qkv <= S_OUT) consumers_sync();
    switch (s - qkv) {
    case S_QKV: return stage_matrix<NC, KIND_QKV, NB_X, SPLIT_QKV>(ctx, stream, s, layer, best);
    case S_SCORES: return stage_scores(ctx, layer, TAG(ctx, qkv), TAG(ctx, s));
    case S_ATTN: return stage_attn(ctx, layer, TAG(ctx, qkv), TAG(ctx, qkv + S_SCORES), TAG(ctx, s), TAG(ctx, qkv + S_MERGE));
    case S_MERGE: return stage_merge(ctx, TAG(ctx, qkv + S_ATTN), TAG(ctx, s));
    case S_OUT: return stage_matrix<NC, KIND_OUT, NB_ATTN, SPLIT_OUT>(ctx, stream, s, layer, best);
    case S_GATE_UP: return stage_matrix<NC, KIND_GATE_UP, NB_X, SPLIT_GATE_UP>(ctx, stream, s, layer, best);
    default: return stage_matrix<NC, KIND_DOWN, NB_F, SPLIT_DOWN>(ctx, stream, s, layer, best);
    }
}

template <int NC> static __device__ __forceinline__ void consume(const md_params &p, md_stream &stream) {
    md_ctx ctx;
    ctx.p = &p, ctx.cta = blockIdx.x, ctx.tid = threadIdx.x, ctx.warp = threadIdx.x / 32, ctx.lane = threadIdx.x % 32;
    ctx.failed = false, ctx.stage = 0;
    for (u32 s = ctx.tid; s < STAGES; s += CONSUMERS) SH_RUNS[s] = ((const md_run *)p.runs)[(u64)s * p.groups + ctx.cta];
    if (ctx.tid < (NC == 1 ? 1 : p.columns)) SH_TOKENS[ctx.tid] = p.col[ctx.tid].token;
    stream.position = 0;
    for (ctx.step = 0; ctx.step < p.tokens; ctx.step++) {
        ctx.tag0 = p.epoch + ctx.step * STAGES;
        consumers_sync();
        for (u32 i = ctx.tid; i < (NC == 1 ? 1 : p.columns) * (HEAD_DIM / 2); i += CONSUMERS) {
            float position = (float)(p.col[i / (HEAD_DIM / 2)].position + ctx.step), sine, cosine;
            sincos_own(position * ROPE_SCALE * __ldg(PARAM_AUX(&p, AUX_INV_FREQ) + i % (HEAD_DIM / 2)), &sine, &cosine);
            SH_ROPE[i] = make_float2(cosine, sine);
        }
        consumers_sync();
        md_best best = {-INFINITY, ~0u};
        for (u32 s = p.stage_begin; s < p.stage_end; s++)
            if (run_stage<NC>(ctx, stream, s, &best)) return;
        if (NC == 1 && p.stage_end == STAGES && p.stage_begin < STAGES) {
            consumers_sync();
            record_put(ctx, best, TAG(ctx, S_HEAD));
        }
        if (NC == 1 && p.next) {
            u32 token;
            bool stop;
            if (next_token(ctx, TAG(ctx, S_HEAD), &token, &stop) || stop) return;
            if (ctx.tid == 0) SH_TOKENS[0] = token; // read after the next step's first barrier
        }
#if HAS_RING
        stream.position = stream_token_end(stream.position);
        stream_release(stream, stream.position, ctx.lane, p.deadline_us);
#else
        stream.position = 0;
#endif
    }
}

template <int NC> static __device__ __forceinline__ void kernel(const md_params &p) {
    const md_run *runs = (const md_run *)p.runs + blockIdx.x;
    u64 begin = p.stage_begin < STAGES ? runs[(u64)p.stage_begin * p.groups].offset : 0;
    md_stream stream;
    stream.have = stream.released = 0, stream.failed = false;
#if HAS_RING
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < RING_SEGMENTS; i++) mbar_init(&SH_FULL[i], 1), mbar_init(&SH_EMPTY[i], CONSUMER_WARPS);
        *SH_STOP = 0;
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x == CONSUMERS && p.stage_begin < p.stage_end) {
            u64 bytes = runs[(u64)p.stage_end * p.groups].offset - begin;
            u64 head = p.stage_end == STAGES ? runs[(u64)S_HEAD * p.groups].offset - begin : ~0u; // wider window there
            stream_produce((const u8 *)p.arena + begin, (u32)bytes, (u32)head, p.tokens);
        }
        return;
    }
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
