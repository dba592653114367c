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
#if HAS_RING
    u32 ring; // the ring's address; the barriers lie before it
#else
    const u8 *base; // the arena at the launch's first byte of this CTA
#endif
    u32 have, released; // segments known to have landed; segments given back
    u32 token;          // the current token's first unit
    bool failed;
};

#if HAS_RING
static __device__ __forceinline__ u32 full_of(u32 ring, u32 segment) { return ring - (md_map::ring - md_map::bars) + segment % RING_SEGMENTS * 8; }
static __device__ __forceinline__ u32 empty_of(u32 ring, u32 segment) { return full_of(ring, segment) + RING_SEGMENTS * 8; }

static __device__ __forceinline__ void mbar_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
static __device__ __forceinline__ bool mbar_test(u32 bar, u32 parity) {
    u32 done;
    asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}
static __device__ __forceinline__ void mbar_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

// The slow path of a wait for a segment: true when it did not land in time. Nothing but a lost copy can make it last.
static __device__ __noinline__ bool stream_late(u32 ring, u32 segment, u32 deadline_us) {
    u64 start = now_ns();
    while (!mbar_test(full_of(ring, segment), segment / RING_SEGMENTS & 1))
        if (now_ns() - start > deadline_us * 1000ull) return true;
    return false;
}
// Waits until segments [0, want) have landed, a segment a lane: no more than the ring has are ever asked for at once.
static __device__ __forceinline__ void stream_land(md_stream &s, u32 want, u32 lane, u32 deadline_us) {
    if (s.have >= want) return;
    bool late = false;
#pragma unroll 1
    for (u32 i = s.have + (RELEASE_LANES == 1 ? lane : 0); i < want; i += RELEASE_LANES == 1 ? 32 : 1)
        if (!mbar_test(full_of(s.ring, i), i / RING_SEGMENTS & 1) && !s.failed) late |= stream_late(s.ring, i, deadline_us);
    if (__any_sync(~0u, late)) s.failed = true;
    __syncwarp(); // what one lane has seen land, all may read
    s.have = want;
}
// The same in the layers, where a segment is asked for when the one WINDOW_LAYERS before it has landed, so that the last
// ones tell for all. Their slots' earlier segments have been given back.
static __device__ __forceinline__ void stream_land_last(md_stream &s, u32 want, u32 deadline_us) {
    if (s.have >= want) return;
#pragma unroll
    for (u32 k = 0; k < WINDOW_LAYERS; k++) {
        const u32 i = max(s.have, want - 1 - smaller(k, want - 1));
        if (RARELY(!mbar_test(full_of(s.ring, i), i / RING_SEGMENTS & 1)) && !s.failed) s.failed = stream_late(s.ring, i, deadline_us);
    }
    s.have = want;
}
// Lands everything up to and including unit `last`. IN_LAYERS: of a layer's stage that fits the ring.
template <bool IN_LAYERS> static __device__ __forceinline__ void stream_need(md_stream &s, u32 last, u32 lane, u32 deadline_us) {
    if (IN_LAYERS && WINDOW_LAYERS <= 2)
        stream_land_last(s, last / SEGMENT_UNITS + 1, deadline_us);
    else
        stream_land(s, last / SEGMENT_UNITS + 1, lane, deadline_us);
}
// Whether a stage that ends before unit `end` fits the ring whole, without anything being given back.
static __device__ __forceinline__ bool stream_fits(const md_stream &s, u32 end) {
    return (end - 1) / SEGMENT_UNITS < s.released + RING_SEGMENTS;
}
// Gives back every segment that ends at or before unit `next`, the first this warp will read from now on, a segment a
// lane; all have landed.
static __device__ __forceinline__ void stream_release(md_stream &s, u32 next, u32 lane) {
    u32 end = next / SEGMENT_UNITS;
    __syncwarp(); // all lanes have read; the arrive below orders their reads before the refill
#if RELEASE_LANES == 1
    if (s.released + lane < end) mbar_arrive(empty_of(s.ring, s.released + lane));
#else
    for (u32 i = s.released; i < end; i++) mbar_arrive(empty_of(s.ring, i));
#endif
    s.released = max(s.released, end);
}
// The same for a stage that does not fit the ring: gives back what lies before unit `next`, landing it first (else the
// arrival could count for the segment that was in its slot), and lands up to unit `last`. Out of line: it is rare where
// time is short.
static __device__ __noinline__ md_stream stream_turn(md_stream s, u32 next, u32 last, u32 lane, u32 deadline_us) {
    u32 end = next / SEGMENT_UNITS;
    while (s.released < end) {
        u32 until = min(end, s.released + RING_SEGMENTS);
        stream_land(s, until, lane, deadline_us);
        stream_release(s, until * SEGMENT_UNITS, lane);
    }
    stream_need<false>(s, last, lane, deadline_us);
    return s;
}
// Where a unit lies. The bytes that a warp takes of a tile, or a block of weights that are not quantized, follow each
// other even across the ring's end (RING_OVERFLOW).
typedef u32 md_at;
static __device__ __forceinline__ md_at stream_at(const md_stream &s, u32 unit) { return s.ring + unit % RING_UNITS * UNIT; }
static __device__ __forceinline__ uint4 stream_uint4(md_at at) { return shared_uint4(at); }
static __device__ __forceinline__ uint2 stream_uint2(md_at at) { return shared_uint2(at); }
static __device__ __forceinline__ u32 stream_token_end(u32 unit) {
    return (unit + SEGMENT_UNITS - 1) / SEGMENT_UNITS * SEGMENT_UNITS;
}

static __device__ __forceinline__ void bulk_copy(void *to, const void *from, u32 bytes, u32 full, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(full), "l"(policy)
                 : "memory");
}

// The producer thread: `bytes` from `source`, once a token.
static __device__ void stream_produce(const u8 *source, u32 bytes, u32 head_at, u32 tokens) {
    const u32 ring = shared_address(SH_RING);
    u32 segment = 0;
    u64 policy; // weights are read once a token: leave L2 to activations and the cache
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    for (u32 token = 0; token < tokens; token++) {
        for (u32 at = 0; at < bytes; at += SEGMENT_BYTES, segment++) {
            u32 slot = segment % RING_SEGMENTS;
            // Never wider than the ring: a barrier only tells about its slot's latest segment.
            u32 window = smaller(at >= head_at ? WINDOW_HEAD : WINDOW_LAYERS, RING_SEGMENTS);
            while (segment >= RING_SEGMENTS && !mbar_test(empty_of(ring, slot), (segment / RING_SEGMENTS - 1) & 1))
                if (*SH_STOP) goto drain;
            if (segment >= window) {
                u32 before = segment - window;
                while (!mbar_test(full_of(ring, before), before / RING_SEGMENTS & 1))
                    if (*SH_STOP) goto drain;
            }
            u32 n = bytes - at < SEGMENT_BYTES ? bytes - at : SEGMENT_BYTES;
            u32 begin = slot * SEGMENT_BYTES; // what lies in the ring's beginning comes once more behind its end
            u32 again = begin < RING_OVERFLOW ? smaller(n, RING_OVERFLOW - begin) : 0;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full_of(ring, slot)),
                         "r"(n + again)
                         : "memory");
            bulk_copy(SH_RING + begin, source + at, n, full_of(ring, slot), policy);
            if (again) bulk_copy(SH_RING + RING_SEGMENTS * SEGMENT_BYTES + begin, source + at, again, full_of(ring, slot), policy);
        }
    }
drain: // shared memory must not be left while copies into it are under way
    for (u32 i = segment > RING_SEGMENTS ? segment - RING_SEGMENTS : 0; i < segment; i++)
        while (!mbar_test(full_of(ring, i), i / RING_SEGMENTS & 1)) {}
}
#else
template <bool IN_LAYERS> static __device__ __forceinline__ void stream_need(md_stream &, u32, u32, u32) {}
static __device__ __forceinline__ bool stream_fits(const md_stream &, u32) { return true; }
static __device__ __forceinline__ void stream_release(md_stream &, u32, u32) {}
static __device__ __forceinline__ md_stream stream_turn(md_stream s, u32, u32, u32, u32) { return s; }
typedef const u8 *md_at;
static __device__ __forceinline__ md_at stream_at(const md_stream &s, u32 unit) { return s.base + (u64)unit * UNIT; }
static __device__ __forceinline__ uint4 stream_uint4(md_at at) { return *(const uint4 *)at; }
static __device__ __forceinline__ uint2 stream_uint2(md_at at) { return *(const uint2 *)at; }
#endif
