// Shared memory of a CTA: what kernels/sizes.cuh lays out, counted here so that a model that does not fit is refused
// with numbers and before anything is compiled. tests/unit/test_cuda_shared.c holds both to the same byte.
#include "backend/cuda/emit.h"
#include "backend/cuda/params.h"
#include "base/checked.h"
#include "plan/tile_mma.h"

// The literals of sizes.cuh.
enum {
    UNIT = 16,
    DIGITS = 2,
    CANDIDATES = MD_CUDA_CANDIDATES,
    KEYS = 512,
    WARPS = MD_CUDA_CONSUMER_WARPS,
    ROWS = MD_CUDA_ATTN_ROWS,
    MUCH_SHARED = 163840
};

static uint64_t align128(uint64_t bytes) { return md_round_up(bytes, 128); }

static uint64_t block_bytes(const md_cuda_format *format) {
    const uint64_t plane = format->cell <= MD_CELL_Q8 ? MD_MMA_PLANE : MD_MMA_PLANE16;
    return md_mma_planes(format->cell) * plane + UNIT * format->sets * (format->wide ? 8 : 4);
}

static uint64_t largest_block(const md_cuda_shape *shape, bool quantized) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < shape->format_count; i++)
        if (shape->format[i].cell <= MD_CELL_Q8 || !quantized) most = md_max_u64(most, block_bytes(&shape->format[i]));
    return most;
}

// The most blocks of a tile that one warp takes.
static uint64_t most_blocks(const md_cuda_shape *s) {
    const uint32_t shares[][2] = {{s->blocks_x, s->split_qkv},
                                  {s->blocks_attn, s->split_out},
                                  {s->blocks_x, s->split_gate_up},
                                  {s->blocks_f, s->split_down},
                                  {s->blocks_x, s->split_head}};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        most = md_max_u64(most, md_ceil_div(shares[i][0], shares[i][1]));
    return most;
}

// Tables that hold for the whole launch, or a step: runs, rotations, tokens, the account, the only column's caches;
// of several columns, each warp's of this layer, and where the columns stand.
static uint64_t table_bytes(const md_cuda_shape *shape, uint64_t columns, bool account) {
    const md_snapshot *model = shape->plan->snapshot;
    return align128(shape->plan->stage_count * 16ull) + align128(columns * model->head_dim * 4) + 128 +
           (account ? align128(MD_CUDA_KINDS * MD_CUDA_SPENDINGS * 4) : 0) +
           (columns == 1 ? align128(model->layers * 48ull) : align128(WARPS * columns * 48) + align128(columns * 16));
}

// The work area in a matrix stage: the input's digits and groups, and as bf16 where weights are; partial sums. With
// several columns, inputs of matrices whose tiles all warps share stay in registers; and what a warp makes before it
// puts it.
static uint64_t matrix_bytes(const md_cuda_shape *shape, uint64_t columns, uint32_t shared_bytes) {
    uint64_t blocks = shape->blocks_max;
    if (columns > 1)
        blocks = md_max_u64(shape->blocks_x, md_max_u64(shape->split_out == WARPS ? 0 : shape->blocks_attn,
                                                        shape->split_down == WARPS ? 0 : shape->blocks_f));
    uint32_t sets = 1;
    for (uint32_t i = 0; i < shape->format_count; i++)
        if (shape->format[i].sets > sets) sets = shape->format[i].sets;
    const bool wide = md_cuda_has_wide(shape);
    const uint64_t red = columns > 1 ? 6144 : shared_bytes >= MUCH_SHARED ? 8192 : 4096;
    const uint64_t made = DIGITS * 64 + 16 + (wide ? 128 : 0); // bytes of a block
    return align128(blocks * DIGITS * columns * 64) + align128(blocks * columns * (sets == 1 ? 2 : 4) * 4) +
           (wide ? align128(columns * (blocks * MD_MMA_BLOCK + 32) * 2) : 0) + align128(red * 4) +
           align128((columns > 1 ? 2 : 1) * columns * WARPS * 4) + (columns > 1 ? align128(WARPS * 2 * 2 * made) : 0);
}

// In attention over a bf16 cache, or over codes.
static uint64_t attention_bytes(const md_cuda_shape *shape) {
    const md_snapshot *model = shape->plan->snapshot;
    const uint64_t dim = model->head_dim, rep = model->q_heads / model->kv_heads, heads = md_round_up(rep, 8);
    const uint64_t scores = align128(heads * (ROWS + 8) * 4) + align128(rep * (dim + 4) * 4);
    const uint64_t bf16 = align128(ROWS * (dim * 2 + 16)) + align128(heads * (dim * 2 + 64)) + align128(dim * 2) +
                          align128(heads * (ROWS / 8) * 4) + align128(2 * heads * (ROWS * 2 + 16));
    const uint64_t codes = 2 * align128(ROWS * (dim + 16)) + 2 * align128(ROWS * (dim / 32) * 4) +
                           align128(rep * (dim + 4) * 4) + align128(2 * dim * 4);
    return scores + md_max_u64(bf16, codes);
}

static uint64_t merge_bytes(const md_cuda_shape *shape) {
    return align128(shape->attn_blocks * 4ull) + align128(WARPS * 32 * 4) + align128(WARPS * 32);
}

uint64_t md_cuda_shared_need(const md_cuda_shape *shape, const md_cuda_target *target,
                             const md_cuda_emit_options *options) {
    const uint64_t columns = options->prefill ? 1 : options->columns;
    const uint64_t next = align128(1024 + columns * (CANDIDATES + KEYS) * 8);
    const uint64_t work = md_max_u64(md_max_u64(matrix_bytes(shape, columns, target->shared_bytes), merge_bytes(shape)),
                                     md_max_u64(attention_bytes(shape), next));
    const uint64_t bytes = table_bytes(shape, columns, options->account) + work;
    if (!target->ring && !options->prefill) return bytes;
    const uint64_t segment = md_cuda_segment_bytes(target->shared_bytes);
    const uint64_t piece = md_min_u64(most_blocks(shape) * largest_block(shape, true), segment);
    const uint64_t behind = align128(md_max_u64(largest_block(shape, false), piece)); // of the ring's end
    return bytes + behind + 256 + 2 * (segment + 16);
}

md_status md_cuda_shared_check(const md_cuda_shape *shape, const md_cuda_target *target,
                               const md_cuda_emit_options *options, md_error *err) {
    const md_snapshot *model = shape->plan->snapshot;
    const uint64_t need = md_cuda_shared_need(shape, target, options);
    if (need <= target->shared_bytes) return MD_OK;
    return md_fail(
        err, MD_E_UNSUPPORTED,
        "CUDA: hidden_size %u, intermediate_size %u, %u query and %u key/value heads of %u: a CTA needs %llu "
        "bytes of shared memory, %s has %u",
        model->hidden, model->ffn, model->q_heads, model->kv_heads, model->head_dim, (unsigned long long)need,
        target->arch, target->shared_bytes);
}

uint32_t md_cuda_columns(const md_cuda_shape *shape, const md_cuda_target *target, bool account) {
    md_cuda_emit_options options = {.columns = MD_CUDA_COLUMNS, .account = account};
    while (options.columns > 1 && md_cuda_shared_need(shape, target, &options) > target->shared_bytes)
        options.columns /= 2;
    return options.columns;
}
