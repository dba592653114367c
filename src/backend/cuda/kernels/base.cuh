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
struct md_choice { // how a column's next token is chosen
    double per_unit;         // halvings of the weight for each unit a logit lies below the greatest: log2(e) / temperature
    double top_p;            // 0 or 1: off
    u64 least_weight;        // of min_p; 0: off
    u64 seed, draw;          // mixed (src/gen/rng.h); number of the first step's draw
    u32 top_k, candidates;   // how many of the greatest are looked at: top_k or 64
    u32 all;                 // the sum of all weights is needed
    u32 sampled;             // 0: the greatest
};
struct md_params {
    u64 arena, runs, aux, embed, embed_scales, embed_biases;
    u64 exchange, stats, partials, records;
    u64 logits;  // bf16 [MAX_COLUMNS][VOCAB]
    u64 report;  // u32[8] {aborted, worker, stage, expected, seen, column, 0, 0}
    u64 mailbox; // pinned host memory: u32 {steps done, cancel}, then each step's tokens
    u64 account; // u64 cycles [KINDS][SPENDINGS][groups], then u64 nanoseconds [groups]; read only with ACCOUNT 1
    u64 state;   // u32 {steps done, epoch of this one, its tokens}; read only with GRAPH 1
    u32 groups, columns, stage_begin, stage_end;
    u32 tokens;      // steps of this launch
    u32 epoch;       // tag of the launch's first stage, minus 1
    u32 blocks;      // attention blocks the partials have room for
    u32 next;        // NEXT_ parts of the choice of the next tokens, after the head
    u32 sampled;     // a column is
    u32 deadline_us; // bound of every wait
    u32 stop_count;
    u32 stop[MAX_STOPS];
    u8 stop_columns[MAX_STOPS]; // bit c: a stop of column c
    u32 delay_seed, drop_worker, drop_tag; // fault injection; read only in sources generated with INJECT 1
    md_col col[MAX_COLUMNS];
    md_choice choice[MAX_COLUMNS];
};

// For the compiler, which puts what is rare out of the way: a jump to code not fetched lately costs 50 cycles.
#define USUALLY(x) __builtin_expect(!!(x), 1)
#define RARELY(x) __builtin_expect(!!(x), 0)

// ---- bf16 and fp32 ------------------------------------------------------------------------------------------------

static __device__ __forceinline__ float bf_lo(u32 pair) { return __uint_as_float(pair << 16); }
static __device__ __forceinline__ float bf_hi(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
static __device__ __forceinline__ float bf_to(u32 half) { return __uint_as_float(half << 16); }
// Nearest, ties to even: two values to a pair {lo, hi}.
static __device__ __forceinline__ u32 bf_pair(float lo, float hi) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}
static __device__ __forceinline__ u32 bf_bits(float x) { return bf_pair(x, 0.0f); }
static __device__ __forceinline__ float bf(float x) { return bf_to(bf_bits(x)); }
// 1 / x within 1 ulp, 1 / sqrt(x) within 2: what follows rounds to bf16.
static __device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float reciprocal_root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

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
    return x == x ? __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23)) : x; // a NaN's bits are 0x7fffffff here
}

// The same within 1e-6 for x from -20 to 0, in two instructions.
static __device__ __forceinline__ float exp_near(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}

// src/base/mathx.c, md_sincosf: the same operations, in double.
static __device__ __forceinline__ void sincos_own(float angle, float *sine, float *cosine) {
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

// Shared memory by address: what a stage prepares before a wait is an address in a register; `pin` keeps the compiler from
// computing it again behind the wait. Plain loads and stores by name would find the area's address anew each time, and could
// not fold a constant into the instruction.
template <typename T> static __device__ __forceinline__ T &at_shared(u32 address) { return *(T *)__cvta_shared_to_generic(address); }
static __device__ __forceinline__ void pin(u32 &x) { asm volatile("" : "+r"(x)); }
template <typename T> static __device__ __forceinline__ void pin(const T *&x) { asm volatile("" : "+l"(x)); }
static __device__ __forceinline__ u32 shared_u32(u32 at) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}
static __device__ __forceinline__ float shared_float(u32 at) { return __uint_as_float(shared_u32(at)); }
static __device__ __forceinline__ uint2 shared_uint2(u32 at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
static __device__ __forceinline__ uint4 shared_uint4(u32 at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}
static __device__ __forceinline__ void shared_put(u32 at, float v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory"); }
static __device__ __forceinline__ void shared_put(u32 at, float2 v) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory");
}

// 16 bytes from global to shared memory without a register between; wait, then a barrier before others read.
static __device__ __forceinline__ void copy16_async(u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
static __device__ __forceinline__ void copy16_async(void *to, const void *from) { copy16_async(shared_address(to), from); }
static __device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

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
// Integers: D = A * B, or D += A * B, on 16 x 32 codes (unsigned bytes) by 32 x 8 digits (signed bytes).
static __device__ __forceinline__ void mma_codes_first(int (&d)[4], uint4 a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "r"(0));
}
static __device__ __forceinline__ void mma_codes(int (&d)[4], uint4 a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
