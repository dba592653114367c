// Prompts: up to some hundred columns at once, one launch a step of the plan (src/backend/cuda/prefill.c). Columns are
// consecutive positions of one or more sequences; they leave in the caches and in the last column's logits the bits that
// the resident kernel would: the same sums in the same order, by the same functions, for many columns beside each other.
//
// Vectors of a column lie in plain rows of bf16 in global memory. Columns come in sets of SET_COLUMNS, the width of what
// one CTA multiplies a tile of weights with.

#define SET_COLUMNS 64
#define SET_OCTETS (SET_COLUMNS / 8) // of 8 columns: operands B

// A column; columns that attention takes together (consecutive, of one sequence). The host fills them
// (src/backend/cuda/prefill.h holds the same declarations).
struct md_prefill_column {
    u64 kv; // md_kv_layer[LAYERS]
    u32 position, token;
};
struct md_prefill_span {
    u32 first, count;
};
struct md_prefill {
    u64 arena, runs, aux, embed, embed_scales, embed_biases, exchange;
    u64 places;         // u32 [LAYERS][PLACES] where each tile of weights begins in the arena, in units
    u64 columns_at;     // md_prefill_column [columns]
    u64 spans;          // md_prefill_span []
    u64 rope;           // float2 [columns][HEAD_DIM / 2] {cos, sin}
    u64 x, q, attn, act; // bf16 [columns][HIDDEN, Q_HEADS * HEAD_DIM, the same, FFN; each up to whole tiles]
    u64 input;          // of a matrix step (prefill_input.cuh)
    u64 partials;       // fp32 [columns][Q_HEADS][blocks][HEAD_DIM], of the columns from `first` on
    u64 stats;          // float2 [columns][Q_HEADS][blocks] {m, l}
    u32 workers;        // that the arena is shared out to
    u32 columns, layer;
    u32 blocks;         // most attention blocks of a column
    u32 first;          // the first column that partials are kept of
};

#define PREFILL_COLUMN(p, c) (((const md_prefill_column *)(p).columns_at)[c])
#define ROW_X (T_X * 16) // values of a row
#define ROW_ATTN (T_ATTN * 16)
#define ROW_ACT (T_F * 16)

// Tiles of a layer, matrix by matrix.
#define PLACE_Q 0
#define PLACE_K (PLACE_Q + T_Q)
#define PLACE_V (PLACE_K + T_K)
#define PLACE_OUT (PLACE_V + T_V)
#define PLACE_GATE (PLACE_OUT + T_X)
#define PLACE_UP (PLACE_GATE + T_F)
#define PLACE_DOWN (PLACE_UP + T_F)
#define PLACES (PLACE_DOWN + T_X)

template <typename KIND>
static __device__ __forceinline__ void places_of_run(const md_prefill &p, u32 layer, u32 stage, u32 place, u32 worker, u32 thread) {
    constexpr bool pair = is_kind<KIND, md_gate_up>;
    const md_run run = ((const md_run *)p.runs)[(u64)(S_LAYERS + layer * S_A_LAYER + stage) * p.workers + worker];
    const md_tiles tiles = tiles_of<KIND>(0, layer, run.first);
    for (u32 i = thread; i < run.count << pair; i += 32) {
        u32 at = pair ? (i % 2 ? PLACE_UP : PLACE_GATE) + run.first + i / 2 : place + run.first + i;
        ((u32 *)p.places)[layer * PLACES + at] = (u32)(run.offset / UNIT) + tile_unit<KIND>(tiles, i);
    }
}
// Once: a warp for each layer (x) and worker (y).
extern "C" __global__ void __launch_bounds__(32) md_prefill_places(const __grid_constant__ md_prefill p) {
    const u32 layer = blockIdx.x, worker = blockIdx.y, thread = threadIdx.x;
    places_of_run<md_qkv>(p, layer, S_QKV, PLACE_Q, worker, thread);
    places_of_run<md_out>(p, layer, S_OUT, PLACE_OUT, worker, thread);
    places_of_run<md_gate_up>(p, layer, S_GATE_UP, 0, worker, thread);
    places_of_run<md_down>(p, layer, S_DOWN, PLACE_DOWN, worker, thread);
}

// The embedding's row and the rotations of column x.
extern "C" __global__ void __launch_bounds__(CONSUMERS) md_prefill_begin(const __grid_constant__ md_prefill p) {
    const u32 c = blockIdx.x;
    const md_prefill_column column = PREFILL_COLUMN(p, c);
    for (u32 i = threadIdx.x; i < HEAD_DIM / 2; i += CONSUMERS)
        ((float2 *)p.rope)[c * (HEAD_DIM / 2) + i] = rotation(PARAM_AUX(&p, AUX_INV_FREQ), (float)column.position, i);
    for (u32 i = threadIdx.x; i < ROW_X; i += CONSUMERS)
        ((u16 *)p.x)[(u64)c * ROW_X + i] = (u16)bf_bits(i < HIDDEN ? embedding(&p, column.token, i) : 0.0f);
}

// Columns whose logits are wanted: to the exchange, as the last layer's down projection leaves them, for a launch of the
// resident kernel's head. Column x.
struct md_prefill_wanted {
    u32 column[MAX_COLUMNS];
    u32 tag;
};
extern "C" __global__ void __launch_bounds__(CONSUMERS)
    md_prefill_hand(const __grid_constant__ md_prefill p, const __grid_constant__ md_prefill_wanted wanted) {
    const uint2 *row = (const uint2 *)((const u16 *)p.x + (u64)wanted.column[blockIdx.x] * ROW_X);
    uint4 *to = (uint4 *)p.exchange + VECTOR_XB + blockIdx.x * T_X * 4;
    for (u32 i = threadIdx.x; i < T_X * 4; i += CONSUMERS) store_entry(to + i, make_uint4(row[i].x, row[i].y, 0, wanted.tag));
}
