// Matrix rows of prompts: a CTA multiplies some tiles of 16 rows, of one matrix, with a set of columns. Weights and inputs
// stream block by block of K through STAGES_AHEAD buffers of shared memory; a warp computes some row tiles by OCTETS tiles of D.
//
// What matvec.cuh shares out to SPLIT warps, one warp walks in turn: at a share's end its digits are joined and added to
// the row's sum, of the first half of the shares, then of the second.

#define COLUMN_WARPS (SET_OCTETS / OCTETS)

static __device__ __forceinline__ void copy16_to(u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
static __device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <u32 N> static __device__ __forceinline__ void copies_wait_but() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// A CTA of ROW_WARPS by COLUMN_WARPS warps, with EACH tiles of 16 rows a warp.
template <u32 ROW_WARPS, u32 EACH> struct md_shape {
    static constexpr u32 each = EACH, row_tiles = ROW_WARPS * EACH, threads = ROW_WARPS * COLUMN_WARPS * 32;
    static constexpr u32 weights = align128(larger(INPUT_WIDE, HAS_WIDE ? SET_COLUMNS * 128 : 0)); // in a buffer
    static constexpr u32 buffer = align128(weights + row_tiles * largest_block(false) * UNIT);
    static constexpr u32 buffers = smaller(STAGES_AHEAD, SHARED_BYTES / buffer), bytes = buffers * buffer;
    static_assert(buffers >= 2, "no room for two buffers");
};

// Where a warp's lane is.
struct md_place {
    u32 rows, octets; // its first row tile of the CTA's, octet of the set
    u32 lane, g, t;
};
template <typename SHAPE> static __device__ __forceinline__ md_place place_of() {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return {warp / COLUMN_WARPS * SHAPE::each, warp % COLUMN_WARPS * OCTETS, lane, lane >> 2, lane & 3};
}

// A lane's sums: [row tile][octet]{g:2t, g:2t+1, g+8:2t, g+8:2t+1}, of the first half of the shares and of the second.
template <u32 EACH> struct md_totals {
    float first[EACH][OCTETS][4], second[EACH][OCTETS][4];
};

// The copies of one CTA: block after block of its input and of its tiles of weights.
template <u32 CELL, u32 UNITS, typename SHAPE> struct md_copies {
    static constexpr u32 input_units = (CELL > CELL_Q8 ? SET_COLUMNS * 128 : INPUT_WIDE) / UNIT, weight_units = SHAPE::row_tiles * UNITS;
    static constexpr u32 rounds = (weight_units + SHAPE::threads - 1) / SHAPE::threads;
    const u8 *input, *from[rounds];

    // `places`: of the CTA's `tiles` tiles; those past the end repeat the last.
    __device__ __forceinline__ void begin(const md_prefill &p, u32 blocks, const u32 *places, u32 tiles) {
        input = (const u8 *)p.input + (u64)blockIdx.x * blocks * INPUT_BYTES + (CELL > CELL_Q8 ? INPUT_WIDE : 0) + threadIdx.x * UNIT;
#pragma unroll
        for (u32 r = 0; r < rounds; r++) {
            const u32 i = threadIdx.x + r * SHAPE::threads;
            from[r] = (const u8 *)p.arena + ((u64)__ldg(places + min(i / UNITS, tiles - 1)) + i % UNITS) * UNIT;
        }
    }
    __device__ __forceinline__ void ask(u32 buffer) {
        const u32 to = buffer + threadIdx.x * UNIT;
#pragma unroll
        for (u32 at = 0; at < input_units; at += SHAPE::threads)
            if (at + SHAPE::threads <= input_units || threadIdx.x < input_units - at) copy16_to(to + at * UNIT, input + at * UNIT);
        input += INPUT_BYTES;
#pragma unroll
        for (u32 r = 0; r < rounds; r++) {
            const u32 at = r * SHAPE::threads;
            if (at + SHAPE::threads <= weight_units || threadIdx.x < weight_units - at) copy16_to(to + SHAPE::weights + at * UNIT, from[r]);
            from[r] += UNITS * UNIT;
        }
    }
};

// An octet's activations of a block.
static __device__ __forceinline__ void acts_take(md_acts<8> &x, u32 input, u32 octet, const md_place &at) {
#pragma unroll
    for (u32 j = 0; j < DIGITS; j++) x.b[j] = at_shared<const uint4>(input + j * (SET_COLUMNS * 64) + octet * 512 + at.lane * 16);
    const u32 sums = input + INPUT_SUMS + (octet * 8 + 2 * at.t) * GROUP_FLOATS * 4;
    if (SETS_MAX == 1) {
        const float4 v = at_shared<const float4>(sums);
        x.scale[0] = v.x, x.sum[0][0] = v.y, x.scale[1] = v.z, x.sum[0][1] = v.w;
    } else {
#pragma unroll
        for (u32 c = 0; c < 2; c++) {
            const float4 v = at_shared<const float4>(sums + c * 16);
            x.scale[c] = v.x, x.sum[0][c] = v.y, x.sum[SETS_MAX - 1][c] = v.z;
        }
    }
}

// A block from its buffer to the sums.
template <u32 CELL, u32 WIDE, u32 SETS, u32 EACH>
static __device__ __forceinline__ void block_product(md_sums<8> (&sums)[EACH][OCTETS], u32 input, u32 weights, const md_place &at) {
    constexpr u32 size = block_units(CELL, WIDE, SETS) * UNIT;
    if (CELL > CELL_Q8) {
#pragma unroll
        for (u32 n = 0; n < OCTETS; n++) {
            const u32 x = input + ((at.octets + n) * 8 + at.g) * 128 + at.t * 16;
            const uint4 lo = at_shared<const uint4>(x), hi = at_shared<const uint4>(x + 64);
#pragma unroll
            for (u32 m = 0; m < EACH; m++) block_wide<CELL>(sums[m][n].digit[0], weights + (at.rows + m) * size, at.lane, lo, hi);
        }
        return;
    }
    md_codes<SETS ? SETS : 1> w[EACH];
#pragma unroll
    for (u32 m = 0; m < EACH; m++) {
        const u32 tile = weights + (at.rows + m) * size;
        codes_load<CELL, WIDE, SETS ? SETS : 1, true>(w[m], tile + at.lane * 16, tile + code_units(CELL) * UNIT + at.g * (WIDE ? 16 : 8));
    }
#pragma unroll
    for (u32 n = 0; n < OCTETS; n++) {
        md_acts<8> x;
        acts_take(x, input, at.octets + n, at);
#pragma unroll
        for (u32 m = 0; m < EACH; m++) block_codes<CELL, true>(sums[m][n], w[m], x);
    }
}

// The CTA's tiles times its set of columns.
template <u32 CELL, u32 WIDE, u32 SETS, typename KIND, typename SHAPE>
static __device__ __forceinline__ void tiles_times_set(md_totals<SHAPE::each> &y, const md_prefill &p, const u32 *places, u32 tiles, bool idle) {
    const md_place at = place_of<SHAPE>();
    md_copies<CELL, block_units(CELL, WIDE, SETS), SHAPE> copies;
    md_sums<8> sums[SHAPE::each][OCTETS] = {};
    u32 ask = shared_address(shared), take = ask, share = 0, end = KIND::blocks / KIND::split; // of the share: its last block + 1
    const u32 last = ask + (SHAPE::buffers - 1) * SHAPE::buffer;
    y = {};
    copies.begin(p, KIND::blocks, places, tiles);
#pragma unroll
    for (u32 i = 0; i + 1 < SHAPE::buffers; i++) {
        if (i < KIND::blocks) copies.ask(ask);
        copies_commit();
        ask += SHAPE::buffer;
    }
#pragma unroll 1
    for (u32 b = 0; b < KIND::blocks; b++) {
        copies_wait_but<SHAPE::buffers - 2>(); // block b has come, and all are done with the buffer that is asked for next
        __syncthreads();
        if (b + SHAPE::buffers - 1 < KIND::blocks) copies.ask(ask);
        copies_commit();
        ask = ask == last ? ask - (SHAPE::buffers - 1) * SHAPE::buffer : ask + SHAPE::buffer;
        if (!idle) block_product<CELL, WIDE, SETS>(sums, take, take + SHAPE::weights, at);
        take = take == last ? take - (SHAPE::buffers - 1) * SHAPE::buffer : take + SHAPE::buffer;
        if (b + 1 < end) continue;
#pragma unroll
        for (u32 m = 0; m < SHAPE::each; m++)
#pragma unroll
            for (u32 n = 0; n < OCTETS; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    const md_sums<8> &s = sums[m][n];
                    y.second[m][n][i] += CELL > CELL_Q8 ? s.digit[0][i] : digits_join(s.digit[0][i], s.digit[1][i], s.digit[2][i]) + s.bias[i];
                    if (share + 1 == KIND::split / 2) y.first[m][n][i] = y.second[m][n][i], y.second[m][n][i] = 0;
                    sums[m][n].bias[i] = sums[m][n].digit[0][i] = sums[m][n].digit[1][i] = sums[m][n].digit[2][i] = 0;
                }
        share++;
        end = (share + 1) * KIND::blocks / KIND::split;
    }
    __syncthreads(); // the buffers may be filled again
}

// Two rows of one column from one row of two: of rows g and g ^ 1 and columns 2 t and 2 t + 1, the lane with the even row
// gets column 2 t, the other 2 t + 1.
static __device__ __forceinline__ u32 rows_pair(float a, float b, u32 odd) {
    const float other = __shfl_xor_sync(~0u, odd ? a : b, 4);
    return odd ? bf_pair(other, b) : bf_pair(a, other);
}

// A tile of outputs, rounded and biased: y[2 * upper half + column]. `kept`: of gate_up, gate's.
template <typename KIND>
static __device__ __forceinline__ void outputs_end(const md_prefill &p, const float (&y)[4], const u32 (&kept)[2], u32 mat, u32 tile, u32 column,
                                                   const md_place &at) {
    const u32 odd = at.g & 1, c = column + 2 * at.t + odd; // the column that the lane writes of, and its rows
    const bool valid = c < p.columns;
    float v[4] = {y[0], y[1], y[2], y[3]};
    if (is_kind<KIND, md_qkv>) {
        if (mat != MAT_V) {
            const u32 pair = tile % (HEAD_DIM / 16) * 8 + at.g;
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                const float2 cs = __ldg((const float2 *)p.rope + min(column + 2 * at.t + i, p.columns - 1) * (HEAD_DIM / 2) + pair);
                v[i] = rotate_low(y[i], y[2 + i], cs), v[2 + i] = rotate_high(y[i], y[2 + i], cs);
            }
        }
        const u32 head = tile / (HEAD_DIM / 16), dim = tile % (HEAD_DIM / 16) * (mat == MAT_V ? 16 : 8) + at.g - odd;
        const u32 low = rows_pair(v[0], v[1], odd), high = rows_pair(v[2], v[3], odd);
        if (!valid) return;
        u16 *row = (u16 *)p.q + ((u64)c * Q_HEADS + head) * HEAD_DIM;
        if (mat != MAT_Q) {
            const md_prefill_column into = PREFILL_COLUMN(p, c);
            const md_kv_layer *kv = (const md_kv_layer *)into.kv + p.layer;
            row = (u16 *)(mat == MAT_K ? kv->k : kv->v) + ((u64)head * kv->context + into.position) * HEAD_DIM;
        }
        *(u32 *)(row + dim) = low, *(u32 *)(row + dim + (mat == MAT_V ? 8 : HEAD_DIM / 2)) = high;
        return;
    }
    if (is_kind<KIND, md_gate_up>)
#pragma unroll
        for (u32 i = 0; i < 4; i++) v[i] = swiglu(i % 2 ? bf_hi(kept[i / 2]) : bf_lo(kept[i / 2]), y[i]);
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 pair = rows_pair(v[2 * half], v[2 * half + 1], odd);
        if (!valid) continue;
        const u32 row = tile * 16 + half * 8 + at.g - odd;
        if (is_kind<KIND, md_gate_up>) {
            *(u32 *)((u16 *)p.act + (u64)c * ROW_ACT + row) = pair;
        } else {
            u32 *x = (u32 *)((u16 *)p.x + (u64)c * ROW_X + row), old = *x;
            *x = bf_pair(bf_lo(old) + bf_lo(pair), bf_hi(old) + bf_hi(pair));
        }
    }
}

// A matrix step. Set x of the columns; group y of row tiles, none of two matrices. Of gate_up first gate's tiles, then up's.
template <typename KIND, typename shape> static __device__ __forceinline__ void matrix(const md_prefill &p) {
    const md_place at = place_of<shape>();
    u32 mat = is_kind<KIND, md_out> ? MAT_OUT : is_kind<KIND, md_down> ? MAT_DOWN : MAT_GATE, place = PLACE_OUT, tiles = T_X, group = blockIdx.y;
    if (is_kind<KIND, md_down>) place = PLACE_DOWN;
    if (is_kind<KIND, md_gate_up>) place = PLACE_GATE, tiles = T_F;
    if (is_kind<KIND, md_qkv>) {
        constexpr u32 groups_q = (T_Q + shape::row_tiles - 1) / shape::row_tiles, groups_k = (T_K + shape::row_tiles - 1) / shape::row_tiles;
        mat = group < groups_q ? MAT_Q : group < groups_q + groups_k ? MAT_K : MAT_V;
        group -= mat == MAT_Q ? 0 : mat == MAT_K ? groups_q : groups_q + groups_k;
        place = mat == MAT_Q ? PLACE_Q : mat == MAT_K ? PLACE_K : PLACE_V, tiles = mat == MAT_Q ? T_Q : mat == MAT_K ? T_K : T_V;
    }
    const u32 first = group * shape::row_tiles, column0 = blockIdx.x * SET_COLUMNS;
    const bool idle = column0 + at.octets * 8 >= p.columns || first + at.rows >= tiles;
    u32 kept[shape::each][OCTETS][2] = {};
    md_totals<shape::each> y;
#pragma unroll 1
    for (u32 pass = 0; pass < (is_kind<KIND, md_gate_up> ? 2 : 1); pass++) {
        if (pass) mat = MAT_UP, place = PLACE_UP;
        const u32 *places = (const u32 *)p.places + p.layer * PLACES + place + first;
        switch (LAYER_FORMAT[p.layer * MATS + mat]) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: tiles_times_set<cell, wide, sets, KIND, shape>(y, p, places, tiles - first, idle); break;
            FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
        }
        if (idle) continue;
#pragma unroll
        for (u32 m = 0; m < shape::each; m++) {
            const u32 tile = first + at.rows + m;
            if (tile >= tiles) break;
#pragma unroll
            for (u32 n = 0; n < OCTETS; n++) {
                float out[4];
#pragma unroll
                for (u32 i = 0; i < 4; i++)
                    out[i] = biased(&p, bf(y.first[m][n][i] + y.second[m][n][i]), p.layer, mat, tile, at.g + i / 2 * 8);
                if (is_kind<KIND, md_gate_up> && pass == 0)
                    kept[m][n][0] = bf_pair(out[0], out[1]), kept[m][n][1] = bf_pair(out[2], out[3]);
                else
                    outputs_end<KIND>(p, out, kept[m][n], mat, tile, column0 + (at.octets + n) * 8, at);
            }
        }
    }
}

// Tall CTAs where there are many columns; short ones, so that all SMs have some, where there are few.
typedef md_shape<TALL, TALL_TILES> md_tall;
typedef md_shape<SHORT, SHORT_TILES> md_short;
#define MATRIX_KERNEL(name, kind)                                                                                       \
    extern "C" __global__ void __launch_bounds__(md_tall::threads, 1) name##_tall(const __grid_constant__ md_prefill p) {    \
        matrix<kind, md_tall>(p);                                                                                          \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(md_short::threads, SHORT_CTAS) name##_short(const __grid_constant__ md_prefill p) { \
        matrix<kind, md_short>(p);                                                                                         \
    }
MATRIX_KERNEL(md_prefill_qkv, md_qkv)
MATRIX_KERNEL(md_prefill_out, md_out)
MATRIX_KERNEL(md_prefill_gate_up, md_gate_up)
MATRIX_KERNEL(md_prefill_down, md_down)

// What the host has to know of these: [shape: tall, short]{threads, row tiles, bytes of shared memory}, bytes of attention's.
extern "C" __constant__ u32 md_prefill_sizes[] = {md_tall::threads,  md_tall::row_tiles,  md_tall::bytes,
                                                  md_short::threads, md_short::row_tiles, md_short::bytes,
                                                  md_map::attn_end,         INPUT_BYTES};
