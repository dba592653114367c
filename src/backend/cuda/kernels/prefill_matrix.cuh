// Matrix rows of prompts: a CTA multiplies some tiles of 16 rows, of one matrix, with a set of columns. Weights and inputs
// stream block by block of K through BUFFERS buffers of shared memory; a warp computes some row tiles by OCTETS tiles of D.
//
// What matvec.cuh shares out to SPLIT warps, one warp walks in turn: at a share's end its sum is added to the row's, of
// the first half of the shares, then of the second.

#define COLUMN_WARPS (SET_OCTETS / OCTETS)

// A CTA of ROW_WARPS by COLUMN_WARPS warps, with EACH tiles of 16 rows a warp.
template <u32 ROW_WARPS, u32 EACH> struct md_shape {
    static constexpr u32 each = EACH, row_tiles = ROW_WARPS * EACH, threads = ROW_WARPS * COLUMN_WARPS * 32;
    static constexpr u32 weights = align128(larger(INPUT_WIDE, HAS_WIDE ? SET_COLUMNS * 128 : 0)); // in a buffer
    static constexpr u32 buffer = align128(weights + row_tiles * largest_block(false) * UNIT);
    static constexpr u32 buffers = smaller(BUFFERS, SHARED_BYTES / buffer), bytes = buffers * buffer;
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

// The copies of one CTA: block after block of its input and of its tiles of weights. `turn` counts a CTA's blocks.
template <u32 CELL, u32 UNITS, typename SHAPE> struct md_copies {
    static constexpr u32 input_units = (CELL > CELL_Q8 ? SET_COLUMNS * 128 : INPUT_WIDE) / UNIT, weight_units = SHAPE::row_tiles * UNITS;
    static constexpr u32 rounds = (weight_units + SHAPE::threads - 1) / SHAPE::threads;
    const u8 *input, *from[rounds];

    __device__ __forceinline__ void begin(const md_prefill &p, u32 blocks, const u32 *places, u32 tiles, u32 turn) {
        input = (const u8 *)p.input + (u64)blockIdx.x * blocks * INPUT_BYTES + (CELL > CELL_Q8 ? INPUT_WIDE : 0) + threadIdx.x * UNIT;
#pragma unroll
        for (u32 r = 0; r < rounds; r++) {
            const u32 i = threadIdx.x + r * SHAPE::threads;
            from[r] = (const u8 *)p.arena + ((u64)__ldg(places + min(i / UNITS, tiles - 1)) + i % UNITS) * UNIT;
        }
#pragma unroll
        for (u32 i = 0; i + 1 < SHAPE::buffers; i++) ask(turn + i, i < blocks);
    }
    // Asks for block `turn` where there is one; a group of copies in any case.
    __device__ __forceinline__ void ask(u32 turn, bool any) {
        const u32 to = shared_address(shared) + turn % SHAPE::buffers * SHAPE::buffer + threadIdx.x * UNIT;
        if (any) {
#pragma unroll
            for (u32 at = 0; at < input_units; at += SHAPE::threads)
                if (at + SHAPE::threads <= input_units || threadIdx.x < input_units - at) copy16_async(to + at * UNIT, input + at * UNIT);
            input += INPUT_BYTES;
#pragma unroll
            for (u32 r = 0; r < rounds; r++) {
                const u32 at = r * SHAPE::threads;
                if (at + SHAPE::threads <= weight_units || threadIdx.x < weight_units - at) copy16_async(to + SHAPE::weights + at * UNIT, from[r]);
                from[r] += UNITS * UNIT;
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    // Block `turn`, `b` of `blocks`, is there; all are done with the buffer that is asked for now.
    __device__ __forceinline__ void next(u32 turn, u32 b, u32 blocks) {
        asm volatile("cp.async.wait_group %0;" ::"n"(SHAPE::buffers - 2) : "memory");
        __syncthreads();
        ask(turn + SHAPE::buffers - 1, b + SHAPE::buffers - 1 < blocks);
    }
};

// Where a lane's part of a block lies, from the buffer's beginning: its first tile's codes and scales, its octets' operands B,
// scales and sums.
struct md_offsets {
    u32 codes, scales, b, sums;
};
template <u32 CELL, u32 WIDE, u32 SETS, typename SHAPE> static __device__ __forceinline__ md_offsets offsets_of(const md_place &at) {
    const u32 tile = SHAPE::weights + at.rows * block_units(CELL, WIDE, SETS) * UNIT;
    md_offsets o = {tile + at.lane * 16, tile + code_units(CELL) * UNIT + at.g * (WIDE ? 16 : 8), at.octets * 512 + at.lane * 16,
                    INPUT_SUMS + (at.octets * 8 + 2 * at.t) * GROUP_FLOATS * 4};
    pin(o.codes), pin(o.scales), pin(o.b), pin(o.sums);
    return o;
}

// An octet's scales and sums of a block.
static __device__ __forceinline__ void sums_take(md_acts<8> &x, u32 sums) {
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
#define OCTET_SUMS (8 * GROUP_FLOATS * 4) // bytes

// A block of quantized weights from its buffer to the sums.
template <u32 CELL, u32 WIDE, u32 SETS, u32 EACH>
static __device__ __forceinline__ void block_quantized(md_sums<8> (&sums)[EACH][OCTETS], u32 buffer, const md_offsets &at) {
    md_codes<SETS> w[EACH];
#pragma unroll
    for (u32 m = 0; m < EACH; m++) {
        const u32 tile = buffer + m * block_units(CELL, WIDE, SETS) * UNIT;
        codes_load<CELL, WIDE, SETS>(w[m], tile + at.codes, tile + at.scales);
    }
#pragma unroll
    for (u32 n = 0; n < OCTETS; n++) {
        md_acts<8> x;
#pragma unroll
        for (u32 j = 0; j < DIGITS; j++) x.b[j] = at_shared<const uint4>(buffer + at.b + j * (SET_COLUMNS * 64) + n * 512);
        sums_take(x, buffer + at.sums + n * OCTET_SUMS);
#pragma unroll
        for (u32 m = 0; m < EACH; m++) block_codes(sums[m][n], w[m], x);
    }
}

// The same of weights that are not quantized.
template <u32 CELL, u32 EACH>
static __device__ __forceinline__ void block_unquantized(md_sums<8> (&sums)[EACH][OCTETS], u32 input, u32 weights, const md_place &at) {
#pragma unroll
    for (u32 n = 0; n < OCTETS; n++) {
        const u32 x = input + ((at.octets + n) * 8 + at.g) * 128 + at.t * 16;
        const uint4 lo = at_shared<const uint4>(x), hi = at_shared<const uint4>(x + 64);
#pragma unroll
        for (u32 m = 0; m < EACH; m++)
            block_wide<CELL>(sums[m][n].row, weights + (at.rows + m) * block_units(CELL, 0, 0) * UNIT, at.lane, lo, hi);
    }
}

// The CTA's tiles times its set of columns. `turn`: blocks that the CTA has gone through.
template <u32 CELL, u32 WIDE, u32 SETS, typename KIND, typename SHAPE>
static __device__ __forceinline__ void tiles_times_set(md_totals<SHAPE::each> &y, const md_prefill &p, const u32 *places, u32 tiles, bool idle,
                                                       u32 &turn) {
    const md_place at = place_of<SHAPE>();
    const md_offsets offsets = offsets_of<CELL, WIDE, SETS, SHAPE>(at);
    md_copies<CELL, block_units(CELL, WIDE, SETS), SHAPE> copies;
    md_sums<8> sums[SHAPE::each][OCTETS] = {};
    u32 share = 0, end = KIND::blocks / KIND::split; // of the share: its last block + 1
    y = {};
    copies.begin(p, KIND::blocks, places, tiles, turn);
#pragma unroll 1
    for (u32 b = 0; b < KIND::blocks; b++, turn++) {
        copies.next(turn, b, KIND::blocks);
        const u32 buffer = shared_address(shared) + turn % SHAPE::buffers * SHAPE::buffer;
        if (!idle) {
            if (CELL > CELL_Q8)
                block_unquantized<CELL>(sums, buffer, buffer + SHAPE::weights, at);
            else
                block_quantized<CELL, WIDE, SETS ? SETS : 1>(sums, buffer, offsets);
        }
        if (b + 1 < end) continue;
#pragma unroll
        for (u32 m = 0; m < SHAPE::each; m++)
#pragma unroll
            for (u32 n = 0; n < OCTETS; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    const md_sums<8> &s = sums[m][n];
                    y.second[m][n][i] += CELL > CELL_Q8 ? s.row[i] : s.row[i] + s.bias[i];
                    if (share + 1 == KIND::split / 2) y.first[m][n][i] = y.second[m][n][i], y.second[m][n][i] = 0;
                    sums[m][n].row[i] = sums[m][n].bias[i] = 0;
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
struct md_rows {
    u32 mat, place, tiles; // the (first) matrix, its first tile's place, how many it has
    u32 first;             // of them, the CTA's first
};
template <typename KIND, typename SHAPE> static __device__ __forceinline__ md_rows rows_of(u32 group) {
    md_rows rows = {MAT_OUT, PLACE_OUT, T_X, 0};
    if (is_kind<KIND, md_down>) rows = {MAT_DOWN, PLACE_DOWN, T_X, 0};
    if (is_kind<KIND, md_gate_up>) rows = {MAT_GATE, PLACE_GATE, T_F, 0};
    if (is_kind<KIND, md_qkv>) {
        constexpr u32 groups_q = (T_Q + SHAPE::row_tiles - 1) / SHAPE::row_tiles, groups_k = (T_K + SHAPE::row_tiles - 1) / SHAPE::row_tiles;
        rows = {MAT_Q, PLACE_Q, T_Q, 0};
        if (group >= groups_q) rows = {MAT_K, PLACE_K, T_K, 0}, group -= groups_q;
        if (rows.mat == MAT_K && group >= groups_k) rows = {MAT_V, PLACE_V, T_V, 0}, group -= groups_k;
    }
    rows.first = group * SHAPE::row_tiles;
    return rows;
}
#define PASSES(KIND) (is_kind<KIND, md_gate_up> ? 2 : 1)

template <typename KIND, typename SHAPE> static __device__ __forceinline__ void matrix(const md_prefill &p) {
    const md_place at = place_of<SHAPE>();
    const md_rows rows = rows_of<KIND, SHAPE>(blockIdx.y);
    const u32 column0 = blockIdx.x * SET_COLUMNS;
    const bool idle = column0 + at.octets * 8 >= p.columns || rows.first + at.rows >= rows.tiles;
    u32 kept[SHAPE::each][OCTETS][2] = {}, turn = 0;
    md_totals<SHAPE::each> y;
#pragma unroll 1
    for (u32 pass = 0; pass < PASSES(KIND); pass++) {
        const u32 mat = rows.mat + pass;
        const u32 *places = (const u32 *)p.places + p.layer * PLACES + rows.place + pass * (PLACE_UP - PLACE_GATE) + rows.first;
        switch (LAYER_FORMAT[p.layer * MATS + mat]) {
#define FORMAT_CASE(id, cell, wide, sets)                                                                              \
    case id: tiles_times_set<cell, wide, sets, KIND, SHAPE>(y, p, places, rows.tiles - rows.first, idle, turn); break;
            FORMATS(FORMAT_CASE)
#undef FORMAT_CASE
        }
        if (idle) continue;
#pragma unroll
        for (u32 m = 0; m < SHAPE::each; m++) {
            const u32 tile = rows.first + at.rows + m;
            if (tile >= rows.tiles) break;
#pragma unroll
            for (u32 n = 0; n < OCTETS; n++) {
                float out[4];
#pragma unroll
                for (u32 i = 0; i < 4; i++)
                    out[i] = biased(&p, bf(y.first[m][n][i] + y.second[m][n][i]), p.layer, mat, tile, at.g + i / 2 * 8);
                if (PASSES(KIND) == 2 && pass == 0)
                    kept[m][n][0] = bf_pair(out[0], out[1]), kept[m][n][1] = bf_pair(out[2], out[3]);
                else
                    outputs_end<KIND>(p, out, kept[m][n], mat, tile, column0 + (at.octets + n) * 8, at);
            }
        }
    }
}
static_assert(MAT_UP == MAT_GATE + 1, "gate_up's second pass");

// Tall CTAs where there are many columns; short ones, so that all SMs have some, where there are few.
typedef md_shape<TALL, TALL_TILES> md_tall;
typedef md_shape<SHORT, SHORT_TILES> md_short;
#define MATRIX_KERNEL(name, kind)                                                                                       \
    extern "C" __global__ void __launch_bounds__(md_tall::threads, TALL_CTAS) name##_tall(const __grid_constant__ md_prefill p) {    \
        matrix<kind, md_tall>(p);                                                                                          \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(md_short::threads, SHORT_CTAS) name##_short(const __grid_constant__ md_prefill p) { \
        matrix<kind, md_short>(p);                                                                                         \
    }
MATRIX_KERNEL(md_prefill_qkv, md_qkv)
MATRIX_KERNEL(md_prefill_out, md_out)
MATRIX_KERNEL(md_prefill_gate_up, md_gate_up)
MATRIX_KERNEL(md_prefill_down, md_down)
