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
#define CONSUMERS (CONSUMER_WARPS * 32)
#define THREADS (CONSUMERS + PRODUCER_WARPS * 32) // behind the consumers, the producer of the weight stream

#define DIGITS 2                         // of an input value (input.cuh)
#define XSTRIDE (INPUT_BLOCKS * 64 + 32) // bf16 values of a column in shared memory; the 32 shift the banks of columns
#define GROUP_FLOATS (SETS_MAX == 1 ? 2 : 4) // of a block and column: unit of its digits, sum of each set of its values
#define RED_FLOATS (COLUMNS > 1 ? 6144 : SHARED_BYTES >= 163840 ? 8192 : 4096) // partial sums; with one column, of two stages in turn
#define RED_ROUND(NC) ((NC) == 1 ? RED_FLOATS / 2 : RED_FLOATS)

// Several columns (input_columns.cuh): a block's entries of a lane; what a warp makes before it puts it, bytes of a block; and
// blocks that a warp brings at once.
#define LANE_ENTRIES (HAS_WIDE ? 6u : 3u)
#define MADE_PAIRS 2u
#define MADE_SUMS (DIGITS * 64)
#define MADE_WIDE (MADE_SUMS + 16)
#define MADE_BYTES (MADE_WIDE + (HAS_WIDE ? 128 : 0))
#define BROUGHT 4u

#define ATTN_ROWS 128 // positions of one attention block on the GPU
#define REP (Q_HEADS / KV_HEADS)
#define PARTIAL_ENTRIES (HEAD_DIM / 4 + 1) // of a partial: four outputs each, then {m, l} (attention.cuh)
#define OUT_STRIDE (HEAD_DIM + 4)
#define S_STRIDE (ATTN_ROWS + 8)
#define HEAD_SETS ((REP + 7) / 8)         // of 8 query heads that share a kv head
#define QUERY_STRIDE (HEAD_DIM * 2 + 64)  // bytes; shifts the banks of rows
#define V_STRIDE (HEAD_DIM * 2 + 16)      // bytes of a cached row of values in shared memory
#define PROB_STRIDE (ATTN_ROWS * 2 + 16)  // bytes
#define Q_STRIDE (HEAD_DIM + 4)           // quantized caches: fp32 queries
#define CODE_STRIDE (HEAD_DIM + 16)       // and bytes of a row of codes

#define CANDIDATES 64 // likeliest tokens that the kernel samples from
#define KINDS 10u     // of stages, the choice of the next tokens included
#define SPENDINGS 5u  // what their time goes into (exchange.cuh)
#define KEYS 512      // ranks of a column that fit shared memory while they are sought

static __host__ __device__ constexpr u32 align128(u32 n) { return (n + 127) / 128 * 128; }
static __host__ __device__ constexpr u32 smaller(u32 a, u32 b) { return a < b ? a : b; }
static __host__ __device__ constexpr u32 larger(u32 a, u32 b) { return a > b ? a : b; }

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
static __host__ __device__ constexpr u32 largest_block(bool quantized) {
    u32 most = 0;
#define FORMAT_MOST(id, cell, wide, sets) most = larger(most, (cell) <= CELL_Q8 || !quantized ? block_units(cell, wide, sets) : 0);
    FORMATS(FORMAT_MOST)
#undef FORMAT_MOST
    return most;
}
// Whether any weights are bf16, f16 or fp32: then inputs are kept as bf16, too.
static __host__ __device__ constexpr bool any_wide() {
    bool any = false;
#define FORMAT_WIDE(id, cell, wide, sets) any = any || (cell) > CELL_Q8;
    FORMATS(FORMAT_WIDE)
#undef FORMAT_WIDE
    return any;
}
#define HAS_WIDE any_wide()
// The most blocks of a tile that one warp takes.
static __host__ __device__ constexpr u32 share(u32 blocks, u32 split) { return (blocks + split - 1) / split; }
static __host__ __device__ constexpr u32 most_blocks() {
    return larger(larger(share(NB_X, SPLIT_QKV), share(NB_ATTN, SPLIT_OUT)),
                  larger(larger(share(NB_X, SPLIT_GATE_UP), share(NB_F, SPLIT_DOWN)), share(NB_X, SPLIT_HEAD)));
}
// The blocks of an input that shared memory has room for. With several columns, where all warps share a tile, what a warp
// multiplies stays in its registers.
static __host__ __device__ constexpr u32 input_blocks() {
    if (COLUMNS == 1) return BLOCKS_MAX;
    return larger(NB_X, larger(SPLIT_OUT == CONSUMER_WARPS ? 0 : NB_ATTN, SPLIT_DOWN == CONSUMER_WARPS ? 0 : NB_F));
}
#define INPUT_BLOCKS input_blocks()
// A warp reads its blocks of a tile in pieces of at most a segment's length, so that a piece lies in two segments at most.
// Where a tile is short all of a warp's blocks are one piece.
static __host__ __device__ constexpr u32 piece_blocks(u32 units) { return larger(SEGMENT_BYTES / (units * UNIT), 1); }
// As much of the ring's beginning as a piece of codes, or a block of other weights, needs lies once more behind its end.
#define RING_OVERFLOW align128(larger(largest_block(false) * UNIT, smaller(most_blocks() * largest_block(true) * UNIT, SEGMENT_BYTES)))

struct md_map { // bytes from the start of shared memory
    static constexpr u32 runs = 0;
    static constexpr u32 rope = runs + align128(STAGES * 16);
    static constexpr u32 tokens = rope + align128(COLUMNS * HEAD_DIM * 4);
    static constexpr u32 account = tokens + 128;
    static constexpr u32 caches = account + (ACCOUNT ? align128(KINDS * SPENDINGS * 4) : 0);
    static constexpr u32 places = caches + align128(COLUMNS == 1 ? LAYERS * 48 : CONSUMER_WARPS * COLUMNS * 48);
    static constexpr u32 work = places + (COLUMNS == 1 ? 0 : align128(COLUMNS * 16));
    // matrix stages
    static constexpr u32 digits = work;
    static constexpr u32 groups = digits + align128(INPUT_BLOCKS * DIGITS * COLUMNS * 64);
    static constexpr u32 xs = groups + align128(INPUT_BLOCKS * COLUMNS * GROUP_FLOATS * 4);
    static constexpr u32 red = xs + (HAS_WIDE ? align128(COLUMNS * XSTRIDE * 2) : 0);
    static constexpr u32 parts = red + align128(RED_FLOATS * 4);
    static constexpr u32 made = parts + align128((COLUMNS > 1 ? 2 : 1) * COLUMNS * CONSUMER_WARPS * 4);
    static constexpr u32 matvec_end = made + (COLUMNS > 1 ? align128(CONSUMER_WARPS * MADE_PAIRS * 2 * MADE_BYTES) : 0);
    // attention
    static constexpr u32 scores = work;
    static constexpr u32 out = scores + align128(HEAD_SETS * 8 * S_STRIDE * 4);
    static constexpr u32 rows = out + align128(REP * OUT_STRIDE * 4);
    static constexpr u32 v = rows; // bf16 caches
    static constexpr u32 queries = v + align128(ATTN_ROWS * V_STRIDE);
    static constexpr u32 own_key = queries + align128(HEAD_SETS * 8 * QUERY_STRIDE);
    static constexpr u32 tile_max = own_key + align128(HEAD_DIM * 2);
    static constexpr u32 probs = tile_max + align128(HEAD_SETS * 8 * (ATTN_ROWS / 8) * 4);
    static constexpr u32 attn_end = probs + align128(2 * HEAD_SETS * 8 * PROB_STRIDE);
    static constexpr u32 k_codes = rows; // quantized caches
    static constexpr u32 v_codes = k_codes + align128(ATTN_ROWS * CODE_STRIDE);
    static constexpr u32 k_scales = v_codes + align128(ATTN_ROWS * CODE_STRIDE);
    static constexpr u32 v_scales = k_scales + align128(ATTN_ROWS * (HEAD_DIM / 32) * 4);
    static constexpr u32 q = v_scales + align128(ATTN_ROWS * (HEAD_DIM / 32) * 4);
    static constexpr u32 row = q + align128(REP * Q_STRIDE * 4);
    static constexpr u32 codes_end = row + align128(2 * HEAD_DIM * 4);
    // merge
    static constexpr u32 weights = work;
    static constexpr u32 sums = weights + align128(ATTN_BLOCKS * 4);
    static constexpr u32 reduce = sums + align128(CONSUMERS * 4);
    static constexpr u32 merge_end = reduce + align128(CONSUMER_WARPS * 32);
    // the choice of the next tokens (next.cuh)
    static constexpr u32 next_bytes = 1024 + COLUMNS * (CANDIDATES + KEYS) * 8;
    static constexpr u32 work_end =
        larger(larger(larger(matvec_end, merge_end), larger(attn_end, codes_end)), work + align128(next_bytes));
#if HAS_RING
    static constexpr u32 room = (SHARED_BYTES - work_end - RING_OVERFLOW - 256) / (SEGMENT_BYTES + 16);
    static constexpr u32 segments = smaller(room, RING_MOST);
    static constexpr u32 bars = work_end; // full[segments], empty[segments], the stop word
    static constexpr u32 ring = bars + align128(segments * 16 + 4);
    static constexpr u32 end = ring + segments * SEGMENT_BYTES + RING_OVERFLOW;
#else
    static constexpr u32 end = work_end;
#endif
};
static_assert(md_map::end <= SHARED_BYTES, "the work area does not fit shared memory");
extern __shared__ __align__(128) u8 shared[];

// The areas, by type. What the ring's and the tables' hold for the whole launch, the others within one stage.
struct md_kv_layer;
#define SH_RUNS ((uint4 *)(shared + md_map::runs))    // [STAGES] this CTA's run: first unit of the token, end, first item, items
#define SH_ROPE ((float2 *)(shared + md_map::rope))   // [COLUMNS][HEAD_DIM / 2] {cos, sin} of this step's positions
#define SH_TOKENS ((u32 *)(shared + md_map::tokens))  // [COLUMNS] this step's
#define SH_FAILED ((volatile u32 *)(shared + md_map::tokens + 64)) // the tag of the stage in which someone failed, or 0
#define SH_ACCOUNT ((u32 *)(shared + md_map::account)) // ACCOUNT: [KINDS][SPENDINGS] cycles of this launch
#define SH_CACHES ((md_kv_layer *)(shared + md_map::caches)) // of one column [LAYERS]; of several [CONSUMER_WARPS][COLUMNS] of this layer
#define SH_PLACES ((uint4 *)(shared + md_map::places)) // [COLUMNS] this step's: the CTA's first item of attention, items, length, blocks
#define SH_DIGITS (shared + md_map::digits)           // [INPUT_BLOCKS][DIGITS][COLUMNS][64] the input of a matrix stage (input.cuh)
#define SH_GROUPS ((float *)(shared + md_map::groups)) // [INPUT_BLOCKS][COLUMNS][GROUP_FLOATS]
#define SH_XS ((u16 *)(shared + md_map::xs))          // HAS_WIDE: [COLUMNS][XSTRIDE] the same as bf16
#define SH_RED ((float *)(shared + md_map::red))      // [tiles of a round][split][16][COLUMNS] partial sums
#define SH_PARTS ((float *)(shared + md_map::parts))  // [COLUMNS][CONSUMER_WARPS] partial sums of squares; of several columns, of two stages in turn
#define SH_SCORES ((float *)(shared + md_map::scores)) // [HEAD_SETS * 8][S_STRIDE]
#define SH_OUT ((float *)(shared + md_map::out))       // [REP][OUT_STRIDE] {o[HEAD_DIM], m, l}
#define SH_V (shared + md_map::v)                      // [ATTN_ROWS][V_STRIDE] bf16
#define SH_QUERIES (shared + md_map::queries)          // [HEAD_SETS * 8][QUERY_STRIDE] bf16
#define SH_OWN_KEY (shared + md_map::own_key)          // [HEAD_DIM] bf16, the token's own
#define SH_TILE_MAX ((float *)(shared + md_map::tile_max)) // [HEAD_SETS * 8][ATTN_ROWS / 8]
#define SH_PROBS (shared + md_map::probs)              // [2][HEAD_SETS * 8][PROB_STRIDE] bf16
#define SH_K_CODES (shared + md_map::k_codes)          // [ATTN_ROWS][CODE_STRIDE] rows as the cache stores them
#define SH_V_CODES (shared + md_map::v_codes)
#define SH_K_SCALES ((u32 *)(shared + md_map::k_scales)) // [ATTN_ROWS][HEAD_DIM / 32] {scale, bias}
#define SH_V_SCALES ((u32 *)(shared + md_map::v_scales))
#define SH_Q ((float *)(shared + md_map::q))             // [REP][Q_STRIDE]
#define SH_ROW ((float *)(shared + md_map::row))         // [2][HEAD_DIM] the token's own key and value
#define SH_WEIGHTS ((float *)(shared + md_map::weights)) // [ATTN_BLOCKS]
#define SH_SUMS ((float *)(shared + md_map::sums))       // [CONSUMERS]
#define SH_REDUCE ((float *)(shared + md_map::reduce))   // [2 * CONSUMER_WARPS]
#if HAS_RING
#define SH_RING (shared + md_map::ring)
#define SH_STOP ((volatile u32 *)(shared + md_map::bars + RING_SEGMENTS * 16)) // behind full[] and empty[] (ring.cuh)
#endif
#if HAS_RING
#define RING_SEGMENTS (md_map::segments)
#define RING_UNITS (RING_SEGMENTS * SEGMENT_UNITS)
static_assert(md_map::segments >= 2 && largest_block(false) * UNIT <= SEGMENT_BYTES, "no room for the ring");
#endif
