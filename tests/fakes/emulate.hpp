// A GPU on the host, for tests that run the kernels' own text without one: every thread of every CTA is a fiber; they take
// turns, so that a run is the same every time. What the threads of a warp do together (shuffles, votes, matrix products) is
// done when all have come; a wait for another CTA's entry, or for a copy, gives the turn away. cuda_to_host.py makes PTX
// statements calls of the functions here; emulate_launch.hpp, included behind the kernels, launches them.
//
// The order of turns is fixed, and copies land at once, unless a seed asks for disorder (emulate_disorder.hpp): that shows
// missing barriers. What it does not show: races inside a thread's turn, rounding of the approximate functions, speed.
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define __device__
#define __host__
#define __global__
#define __constant__ const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static // of kernels whose CTAs run one after the other
#define __align__(n) __attribute__((aligned(n)))

struct uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---- fibers --------------------------------------------------------------------------------------------------------

enum { STACK = 256 << 10, MOST_THREADS = 1024, BARRIERS = 16, MOST_COPIES = 64, MOST_BULKS = 64, MOST_STORES = 64 };
struct emu_dim {
    unsigned x, y, z;
};
struct emu_cta;
typedef uint32_t emu_words[8]; // of a thread
struct emu_warp { // meetings of its 32 threads; what they bring to one stays until all have come to the next
    unsigned arrived, turn;
    unsigned long long wakes; // has no turns before this round of them
    emu_words word[2][32];
};
struct emu_barrier { // count: threads that meet, as the first of them said
    unsigned count, arrived, turn, any, result;
};
struct emu_copy { // cp.async, 16 bytes
    const void *from;
    unsigned to, group;
};
struct emu_bulk { // full: its mbarrier
    const void *from;
    unsigned to, bytes, full;
};
struct emu_store { // of an entry
    void *to;
    unsigned long long low, high;
};
struct emu_fiber {
    jmp_buf at;
    ucontext_t begin;
    char *stack;
    const unsigned *waits; // runnable once *waits is not `turn`
    unsigned turn;
    bool begun, over;
    emu_dim thread;
    emu_warp *warp;
    emu_copy copy[MOST_COPIES]; // under way
    unsigned copies, group;     // the group that is open
};
struct emu_cta {
    unsigned char *shared;
    unsigned room; // its bytes
    emu_dim block;
    unsigned threads, over; // those that have ended
    emu_fiber fiber[MOST_THREADS];
    emu_warp warp[MOST_THREADS / 32];
    emu_barrier barrier[BARRIERS]; // the first one: __syncthreads
    emu_bulk bulk[MOST_BULKS];     // under way
    emu_store store[MOST_STORES];  // that others don't see yet
    unsigned bulks, stores;
    uint32_t stalled_lanes; // of all its warps: have no turns for a while, a bit each
};
static emu_cta *emu_now;        // whose turn it is
static emu_fiber *emu_self;
static emu_dim emu_grid, emu_block;
static jmp_buf emu_scheduler;
static unsigned long long emu_passes; // rounds of turns: the time, each taken for 100 ns

static const char *emu_name; // the kernel's
static void emu_fail(const char *what) {
    fprintf(stderr, "emulate: %s: %s\n", emu_name, what);
    abort();
}

#define threadIdx (emu_self->thread)
#define blockIdx (emu_now->block)
#define gridDim emu_grid
#define blockDim emu_block

static inline void emu_yield() {
    if (!_setjmp(emu_self->at)) _longjmp(emu_scheduler, 1);
}
static inline void emu_wait(const unsigned *word, unsigned turn) {
    emu_self->waits = word, emu_self->turn = turn;
    while (*word == turn) emu_yield();
    emu_self->waits = nullptr;
}

// A barrier of copies: threads to come in a phase, those missing, the phase, bytes on their way.
struct emu_mbarrier {
    uint16_t count, missing;
    int32_t bytes : 31;
    uint32_t phase : 1;
};
static_assert(sizeof(emu_mbarrier) == 8, "as in shared memory");
static inline void emu_mbarrier_check(emu_mbarrier *b) {
    if (!b->missing && !b->bytes) b->missing = b->count, b->phase ^= 1;
}

#include "emulate_disorder.hpp"
#define shared (emu_now->shared)

// ---- warps ---------------------------------------------------------------------------------------------------------

static inline unsigned emu_lane() { return emu_self->thread.x % 32; }
// What the warp's threads bring to the next meeting; they write their own, meet, and read all.
static inline emu_words *emu_table() { return emu_self->warp->word[emu_self->warp->turn & 1]; }
static inline void emu_meet() {
    emu_warp *w = emu_self->warp;
    const unsigned turn = w->turn;
    if (++w->arrived == 32)
        w->arrived = 0, w->turn++;
    else
        emu_wait(&w->turn, turn);
}
template <typename T> static inline uint32_t emu_bits(T v) {
    uint32_t u;
    static_assert(sizeof v == 4, "a word");
    memcpy(&u, &v, 4);
    return u;
}
template <typename T> static inline T emu_from(uint32_t u) {
    T v;
    memcpy(&v, &u, 4);
    return v;
}
template <typename T> static inline T emu_shuffle(T v, unsigned from) {
    emu_words *all = emu_table();
    all[emu_lane()][0] = emu_bits(v);
    emu_meet();
    return emu_from<T>(all[from & 31][0]);
}
#define SHUFFLES(T)                                                                                                    \
    static inline T __shfl_sync(unsigned, T v, unsigned from) { return emu_shuffle(v, from); }                         \
    static inline T __shfl_xor_sync(unsigned, T v, unsigned mask) { return emu_shuffle(v, emu_lane() ^ mask); }        \
    static inline T __shfl_up_sync(unsigned, T v, unsigned d) { return emu_shuffle(v, emu_lane() < d ? emu_lane() : emu_lane() - d); } \
    static inline T __shfl_down_sync(unsigned, T v, unsigned d) { return emu_shuffle(v, emu_lane() + d > 31 ? emu_lane() : emu_lane() + d); }
SHUFFLES(float) SHUFFLES(unsigned) SHUFFLES(int)
#define SHUFFLES64(name)                                                                                               \
    static inline unsigned long long name(unsigned m, unsigned long long v, unsigned d) {                              \
        const unsigned low = name(m, (unsigned)v, d), high = name(m, (unsigned)(v >> 32), d);                          \
        return low | (unsigned long long)high << 32;                                                                   \
    }
SHUFFLES64(__shfl_sync) SHUFFLES64(__shfl_xor_sync) SHUFFLES64(__shfl_up_sync)
static inline void __syncwarp() { emu_meet(); }
template <typename T, typename F> static inline T emu_reduce(T v, F f) {
    emu_words *all = emu_table();
    all[emu_lane()][0] = emu_bits(v);
    emu_meet();
    T result = emu_from<T>(all[0][0]);
    for (int i = 1; i < 32; i++) result = f(result, emu_from<T>(all[i][0]));
    return result;
}
static inline unsigned __reduce_max_sync(unsigned, unsigned v) { return emu_reduce(v, [](unsigned a, unsigned b) { return a > b ? a : b; }); }
static inline unsigned __reduce_add_sync(unsigned, unsigned v) { return emu_reduce(v, [](unsigned a, unsigned b) { return a + b; }); }
static inline int __reduce_add_sync(unsigned, int v) { return (int)__reduce_add_sync(0, (unsigned)v); }
static inline unsigned __ballot_sync(unsigned, bool v) { return emu_reduce(v ? 1u << emu_lane() : 0u, [](unsigned a, unsigned b) { return a | b; }); }
static inline bool __any_sync(unsigned m, bool v) { return __ballot_sync(m, v) != 0; }
static inline bool __all_sync(unsigned m, bool v) { return __ballot_sync(m, v) == ~0u; }

// ---- the rest of the language --------------------------------------------------------------------------------------

// A thread comes to one of the barriers, where `count` meet.
static inline emu_barrier *emu_barrier_arrive(unsigned which, unsigned count, bool any) {
    if (which >= BARRIERS) emu_fail("there is no such barrier");
    emu_barrier *b = &emu_now->barrier[which];
    if (b->arrived++ == 0) b->count = count;
    if (b->count != count) emu_fail("threads at one barrier expect different numbers of threads");
    b->any |= any;
    if (b->arrived == count) {
        b->arrived = 0, b->result = b->any, b->any = 0, b->turn++;
        emu_linger();
    }
    return b;
}
static inline unsigned emu_barrier_meet(unsigned which, unsigned count, bool any) {
    const unsigned turn = emu_now->barrier[which % BARRIERS].turn;
    emu_barrier *b = emu_barrier_arrive(which, count, any);
    if (b->turn == turn) emu_wait(&b->turn, turn);
    return b->result;
}
static inline void __syncthreads() { emu_barrier_meet(0, emu_now->threads, false); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const unsigned long long v = a | (unsigned long long)b << 32;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) out |= (unsigned)(v >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return out;
}
static inline float __uint_as_float(unsigned u) { return emu_from<float>(u); }
static inline float __int_as_float(int u) { return emu_from<float>((uint32_t)u); }
static inline unsigned __float_as_uint(float f) { return emu_bits(f); }
static inline int __float_as_int(float f) { return (int)emu_bits(f); }
static inline float __int2float_rn(int n) { return (float)n; }
template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldcg(const T *p) { return *p; }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(unsigned v) { return __builtin_ffs((int)v); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
template <typename T> static inline T atomicAdd(T *p, T v) {
    const T old = *p;
    *p += v;
    return old;
}
static inline unsigned atomicCAS(unsigned *p, unsigned expected, unsigned v) {
    const unsigned old = *p;
    if (old == expected) *p = v;
    return old;
}
static inline void __threadfence_system() { emu_stores_land(nullptr); }
static inline void __nanosleep(unsigned) { emu_yield(); }
static inline unsigned __cvta_generic_to_shared(const void *p) { return (unsigned)((const unsigned char *)p - shared); }
static inline void *__cvta_shared_to_generic(unsigned at) { return shared + at; }
template <typename A, typename B> static inline auto max(A a, B b) -> decltype(a + b) { return a > b ? a : b; }
template <typename A, typename B> static inline auto min(A a, B b) -> decltype(a + b) { return a < b ? a : b; }

// ---- PTX -----------------------------------------------------------------------------------------------------------

static inline void ptx_nothing() {}
template <typename T> static inline void ptx_nothing(T) {}
static inline unsigned emu_bf16(float x) { // nearest, ties to even
    const unsigned u = emu_bits(x);
    return x != x ? 0x7fffu : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
static inline void ptx_bf16x2(unsigned &pair, float high, float low) { pair = emu_bf16(low) | emu_bf16(high) << 16; }
static inline void ptx_reciprocal(float &y, float x) { y = 1 / x; }
static inline void ptx_reciprocal_root(float &y, float x) { y = 1 / sqrtf(x); }
static inline void ptx_exp2(float &y, float x) { y = exp2f(x); }
static inline void ptx_barrier(unsigned which, unsigned count) { emu_barrier_meet(which, count, false); }
static inline void ptx_barrier_arrive(unsigned which, unsigned count) { emu_barrier_arrive(which, count, false); }
static inline void ptx_barrier_any(unsigned which, unsigned &any, unsigned own, unsigned count) { any = emu_barrier_meet(which, count, own != 0); }
template <typename T> static inline void ptx_load_shared(T &v, unsigned at) {
    emu_hesitate();
    memcpy(&v, shared + at, sizeof v);
}
template <typename T> static inline void ptx_load_shared(T &a, T &b, unsigned at) { ptx_load_shared(a, at), ptx_load_shared(b, at + 4); }
template <typename T> static inline void ptx_load_shared(T &a, T &b, T &c, T &d, unsigned at) { ptx_load_shared(a, b, at), ptx_load_shared(c, d, at + 8); }
static inline void ptx_store_shared(unsigned at, float v) {
    emu_hesitate();
    memcpy(shared + at, &v, 4);
}
static inline void ptx_store_shared(unsigned at, float a, float b) { ptx_store_shared(at, a), ptx_store_shared(at + 4, b); }
static inline void ptx_copy16(unsigned to, const void *from) { emu_copy_begin(to, from); }
static inline void ptx_copies_commit() { emu_self->group++; }
static inline void ptx_copies_wait_groups(unsigned but) { emu_copies_wait(emu_self->group > but ? emu_self->group - but : 0); }
static inline void ptx_copies_wait() { emu_copies_wait(emu_self->group + 1); }
static inline void ptx_load_entry(unsigned long long &low, unsigned long long &high, const void *p) {
    emu_yield();
    emu_stores_land(p);
    memcpy(&low, p, 8), memcpy(&high, (const char *)p + 8, 8);
}
static inline void ptx_store_entry(void *p, unsigned long long low, unsigned long long high) { emu_store_begin(p, low, high); }
static inline void ptx_load(unsigned &v, const unsigned *p) {
    emu_yield();
    v = *p;
}
static inline void ptx_store(unsigned *p, unsigned v) {
    emu_stores_land(nullptr);
    *p = v;
}
static inline void ptx_time(unsigned long long &ns) { ns = emu_passes * 100; }
static inline void ptx_thread(unsigned &tid) { tid = threadIdx.x; }
static inline void ptx_policy(unsigned long long &policy) { policy = 0; }

static inline emu_mbarrier *emu_mbarrier_at(unsigned at) { return (emu_mbarrier *)(shared + at); }
static inline void ptx_mbarrier_init(unsigned at, unsigned count) { *emu_mbarrier_at(at) = {(uint16_t)count, (uint16_t)count, 0, 0}; }
static inline void ptx_mbarrier_arrive(unsigned at) {
    emu_hesitate();
    emu_mbarrier_at(at)->missing--, emu_mbarrier_check(emu_mbarrier_at(at));
}
static inline void ptx_mbarrier_expect(unsigned at, unsigned bytes) { emu_mbarrier_at(at)->bytes += (int)bytes, ptx_mbarrier_arrive(at); }
static inline void ptx_mbarrier_test(unsigned &done, unsigned at, unsigned parity) {
    done = emu_mbarrier_at(at)->phase != parity;
    if (!done) emu_yield();
}
static inline void ptx_bulk_copy(unsigned to, const void *from, unsigned bytes, unsigned full, unsigned long long) {
    emu_yield(); // others go on before it lands
    emu_bulk_begin(to, from, bytes, full);
}

// Matrix products: each lane brings its words of A and B; D as the manual lays it out.
static inline emu_words *emu_operands(unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    emu_words *all = emu_table();
    uint32_t *own = all[emu_lane()];
    own[0] = a0, own[1] = a1, own[2] = a2, own[3] = a3, own[4] = b0, own[5] = b1;
    emu_meet();
    return all;
}
static inline float emu_half(unsigned word, unsigned i) { return emu_from<float>(i ? word & 0xffff0000u : word << 16); }
static inline void ptx_mma_bf16(float &d0, float &d1, float &d2, float &d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    const emu_words *all = emu_operands(a0, a1, a2, a3, b0, b1);
    float *d[4] = {&d0, &d1, &d2, &d3};
    const unsigned g = emu_lane() / 4, t = emu_lane() % 4;
    for (unsigned i = 0; i < 4; i++) {
        double sum = 0; // 16 products: rounded once
        for (unsigned k = 0; k < 16; k++) {
            const unsigned pair = k % 8 / 2, upper = k / 8; // A: registers {row, row + 8} of columns 0..7, then of 8..15
            sum += (double)emu_half(all[g * 4 + pair][upper * 2 + i / 2], k % 2) * emu_half(all[(2 * t + i % 2) * 4 + pair][4 + upper], k % 2);
        }
        *d[i] = (float)(sum + *d[i]);
    }
}
static inline void ptx_mma_codes(int &d0, int &d1, int &d2, int &d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    const emu_words *all = emu_operands(a0, a1, a2, a3, b0, b1);
    int *d[4] = {&d0, &d1, &d2, &d3};
    const unsigned g = emu_lane() / 4, t = emu_lane() % 4;
    for (unsigned i = 0; i < 4; i++) {
        int sum = *d[i];
        for (unsigned half = 0; half < 2; half++)
            for (unsigned quad = 0; quad < 4; quad++) {
                const uint32_t a = all[g * 4 + quad][half * 2 + i / 2], b = all[(2 * t + i % 2) * 4 + quad][4 + half];
                for (unsigned byte = 0; byte < 32; byte += 8) sum += (int)(a >> byte & 255) * (int8_t)(b >> byte);
            }
        *d[i] = sum;
    }
}
static inline void ptx_mma_codes(int &d0, int &d1, int &d2, int &d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1, int c) {
    d0 = d1 = d2 = d3 = c;
    ptx_mma_codes(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1);
}

// Four matrices of 8 rows of 16 bytes; lane 8 i + r has the address of row r of matrix i.
static inline void emu_matrices(unsigned (&m)[4], unsigned row, bool transposed) {
    emu_words *all = emu_table();
    all[emu_lane()][0] = row;
    emu_meet();
    const unsigned g = emu_lane() / 4, t = emu_lane() % 4;
    for (unsigned i = 0; i < 4; i++) {
        uint16_t v[2];
        for (unsigned k = 0; k < 2; k++)
            memcpy(&v[k], shared + (transposed ? all[8 * i + 2 * t + k][0] + 2 * g : all[8 * i + g][0] + 2 * (2 * t + k)), 2);
        m[i] = v[0] | (unsigned)v[1] << 16;
    }
}
static inline void ptx_matrices(unsigned &a, unsigned &b, unsigned &c, unsigned &d, unsigned row) {
    unsigned m[4];
    emu_matrices(m, row, false);
    a = m[0], b = m[1], c = m[2], d = m[3];
}
static inline void ptx_matrices_transposed(unsigned &a, unsigned &b, unsigned &c, unsigned &d, unsigned row) {
    unsigned m[4];
    emu_matrices(m, row, true);
    a = m[0], b = m[1], c = m[2], d = m[3];
}
