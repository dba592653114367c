#include "backend/cuda/emit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embedded.h"

static const struct {
    int major, minor;
    const char *arch;
    uint32_t shared_bytes; // CUDA programming guide, "technical specifications per compute capability", less 1 KB
} targets[] = {{8, 0, "sm_80", 166912},   {8, 6, "sm_86", 101376},   {8, 7, "sm_87", 166912},
               {8, 9, "sm_89", 101376},   {9, 0, "sm_90a", 232448},  {10, 0, "sm_100", 232448},
               {10, 3, "sm_103", 232448}, {11, 0, "sm_110", 232448}, {12, 0, "sm_120", 101376},
               {12, 1, "sm_121", 101376}};
enum { TARGETS = sizeof targets / sizeof *targets };

static void target_fill(size_t i, md_cuda_target *out) {
    snprintf(out->arch, sizeof out->arch, "%s", targets[i].arch);
    out->shared_bytes = targets[i].shared_bytes;
    out->ring = targets[i].major >= 9;
    out->lends = targets[i].major == 9;
}

md_status md_cuda_target_of(int major, int minor, md_cuda_target *out, md_error *err) {
    for (size_t i = 0; i < TARGETS; i++)
        if (targets[i].major == major && targets[i].minor == minor) {
            target_fill(i, out);
            return MD_OK;
        }
    return md_fail(err, MD_E_UNSUPPORTED, "CUDA: compute capability %d.%d is not one the kernels know (8.0 to 12.1)",
                   major, minor);
}

md_status md_cuda_target_named(const char *arch, md_cuda_target *out, md_error *err) {
    size_t n = strlen(arch);
    if (n && arch[n - 1] == 'a') n--;
    for (size_t i = 0; i < TARGETS; i++) {
        size_t known = strlen(targets[i].arch) - (targets[i].arch[strlen(targets[i].arch) - 1] == 'a');
        if (known == n && strncmp(arch, targets[i].arch, n) == 0) {
            target_fill(i, out);
            return MD_OK;
        }
    }
    return md_fail(err, MD_E_USAGE,
                   "CUDA: architecture %s, expected sm_80, sm_86, sm_87, sm_89, sm_90a, sm_100, sm_103, sm_110, sm_120 "
                   "or sm_121",
                   arch);
}

static void define(md_buf *out, const char *name, uint32_t value, const char *comment) {
    md_buf_printf(out, "#define %s %uu%s%s\n", name, value, comment ? " // " : "", comment ? comment : "");
}

// A float written so that it is read back exactly.
static void define_float(md_buf *out, const char *name, float value, const char *comment) {
    md_buf_printf(out, "#define %s %af // %.9g, %s\n", name, (double)value, (double)value, comment);
}

static void emit_model(md_buf *out, const md_cuda_shape *shape) {
    const md_snapshot *model = shape->plan->snapshot;
    md_buf_puts(out, "// the model\n");
    define(out, "LAYERS", model->layers, NULL);
    define(out, "HIDDEN", model->hidden, NULL);
    define(out, "FFN", model->ffn, NULL);
    define(out, "VOCAB", model->vocab, NULL);
    define(out, "Q_HEADS", model->q_heads, NULL);
    define(out, "KV_HEADS", model->kv_heads, NULL);
    define(out, "HEAD_DIM", model->head_dim, NULL);
    define_float(out, "NORM_EPS", model->norm_eps, "RMSNorm");
    define_float(out, "ATTN_SCALE", (float)(1.0 / sqrt((double)model->head_dim)), "1 / sqrt(HEAD_DIM)");
    define_float(out, "ROPE_SCALE", shape->rope_scale, "of positions");
    define(out, "EMBED_BITS", model->embed.bits, "0: not quantized");
    define(out, "EMBED_GROUP", model->embed.group, NULL);
}

static void emit_stages(md_buf *out, const md_cuda_shape *shape) {
    md_buf_puts(out, "\n// stages of the plan, and of a layer (relative to its first)\n");
    define(out, "STAGES", shape->plan->stage_count, NULL);
    define(out, "S_EMBED", 0, NULL);
    define(out, "S_LAYERS", 1, "the first layer's first stage");
    define(out, "S_A_LAYER", MD_CUDA_STAGES_A_LAYER, NULL);
    static const char *const names[] = {"S_QKV", "S_SCORES", "S_ATTN", "S_MERGE", "S_OUT", "S_GATE_UP", "S_DOWN"};
    for (uint32_t i = 0; i < MD_CUDA_STAGES_A_LAYER; i++) define(out, names[i], i, NULL);
    define(out, "S_HEAD", shape->plan->stage_count - 1, NULL);
}

static void emit_shapes(md_buf *out, const md_cuda_shape *shape) {
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"T_X", shape->tiles_x},
                   {"T_Q", shape->tiles_q},
                   {"T_K", shape->tiles_k},
                   {"T_V", shape->tiles_v},
                   {"T_ATTN", shape->tiles_attn},
                   {"T_F", shape->tiles_f},
                   {"T_HEAD", shape->tiles_head},
                   {"NB_X", shape->blocks_x},
                   {"NB_ATTN", shape->blocks_attn},
                   {"NB_F", shape->blocks_f},
                   {"BLOCKS_MAX", shape->blocks_max},
                   {"VECTOR_XA", shape->vector_xa},
                   {"VECTOR_XB", shape->vector_xb},
                   {"VECTOR_Q", shape->vector_q},
                   {"VECTOR_K", shape->vector_k},
                   {"VECTOR_V", shape->vector_v},
                   {"VECTOR_ATTN", shape->vector_attn},
                   {"VECTOR_ACT", shape->vector_act},
                   {"DIGITS_X", shape->digits_x},
                   {"DIGITS_ATTN", shape->digits_attn},
                   {"DIGITS_ACT", shape->digits_act},
                   {"AUX_ATTN_NORM", shape->aux_attn_norm},
                   {"AUX_FFN_NORM", shape->aux_ffn_norm},
                   {"AUX_FINAL_NORM", shape->aux_final_norm},
                   {"AUX_INV_FREQ", shape->aux_inv_freq},
                   {"ATTN_BLOCKS", shape->attn_blocks}};
    md_buf_puts(out, "\n// tiles of 16 rows (T_), blocks of 64 columns (NB_), warps that share a tile (SPLIT_), the "
                     "exchanged vectors'\n"
                     "// first entries (VECTOR_), auxiliary values (AUX_), most attention blocks of a cache\n");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) define(out, numbers[i].name, numbers[i].value, NULL);
}

static void emit_formats(md_buf *out, const md_cuda_shape *shape) {
    static const char *const cells[] = {"CELL_Q4", "CELL_Q8", "CELL_BF16", "CELL_F16", "CELL_F32"};
    const md_snapshot *model = shape->plan->snapshot;
    uint32_t sets = 1;
    md_buf_puts(
        out, "\n// how weights are stored: F(id, cell, scales are fp32, sets of scales a block)\n#define FORMATS(F)");
    for (uint32_t i = 0; i < shape->format_count; i++) {
        const md_cuda_format *format = &shape->format[i];
        md_buf_printf(out, " F(%u, %s, %d, %u)", i, cells[format->cell], format->wide, format->sets);
        if (format->sets > sets) sets = format->sets;
    }
    md_buf_putc(out, '\n');
    define(out, "SETS_MAX", sets, NULL);
    define(out, "HEAD_FORMAT", shape->head_format, NULL);
    md_buf_puts(
        out, "// of each layer's q, k, v, out, gate, up, down\nstatic __constant__ unsigned char LAYER_FORMAT[] = {\n");
    for (uint32_t l = 0; l < model->layers; l++) {
        md_buf_puts(out, "   ");
        for (uint32_t m = 0; m < MD_CUDA_MATS; m++)
            md_buf_printf(out, " %u,", shape->layer_format[l * MD_CUDA_MATS + m]);
        md_buf_printf(out, " // %u\n", l);
    }
    md_buf_puts(out, "};\n");
    define(out, "HAS_BIAS", shape->has_bias, NULL);
    if (!shape->has_bias) return;
    md_buf_puts(out, "static __constant__ unsigned LAYER_BIAS[] = {");
    for (uint32_t i = 0; i < model->layers * MD_CUDA_MATS; i++)
        md_buf_printf(out, "%s%uu,", i % MD_CUDA_MATS ? " " : "\n    ", shape->layer_bias[i]);
    md_buf_puts(out, "\n};\n");
}

// The names of numbers that measurements may want to change without a new build: those of all calls of tuned and
// define_tuned.
static const char tunables[] =
    " CONSUMER_WARPS SPLIT_QKV SPLIT_OUT SPLIT_GATE_UP SPLIT_DOWN SPLIT_HEAD POLL_NS LOOKS SEGMENT_BYTES WINDOW_LAYERS"
    " WINDOW_HEAD RING_MOST RELEASE_LANES UNROLL UNROLL_ALL TWO_TILES UNROLL_COLUMNS SLICE_MOST KEEP_MOST MERGE_FEW"
    " OCTETS TALL TALL_TILES TALL_CTAS SHORT SHORT_TILES SHORT_CTAS BUFFERS ATTENTION_CTAS ";

// Whether NAME=NUMBER stands at the head of a list; *length: of it, and of the comma behind it.
static bool is_tunable(const char *at, size_t *length) {
    char name[32];
    const size_t n = strcspn(at, "=,"), digits = at[n] == '=' ? strspn(at + n + 1, "0123456789") : 0;
    const char end = digits ? at[n + 1 + digits] : 0;
    *length = n + 1 + digits + (end == ',');
    if (n < 1 || strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != n || n + 3 > sizeof name || digits < 1 || digits > 9 ||
        (end && end != ','))
        return false;
    snprintf(name, sizeof name, " %.*s ", (int)n, at);
    return strstr(tunables, name) != NULL;
}

md_status md_cuda_tune_check(const char *tune, md_error *err) {
    size_t length;
    for (const char *at = tune; at && *at; at += length)
        if (!is_tunable(at, &length))
            return md_fail(err, MD_E_USAGE, "MEGADECODE_CUDA_TUNE: found \"%.60s\", expected NAME=NUMBER,... of%.*s",
                           at, (int)sizeof tunables - 2, tunables);
    return MD_OK;
}

static uint32_t tuned(const md_cuda_emit_options *options, const char *name, uint32_t value) {
    size_t n = strlen(name);
    for (const char *at = options->tune; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && at[n] == '=') value = (uint32_t)strtoul(at + n + 1, NULL, 10);
    return value;
}

static void define_tuned(md_buf *out, const md_cuda_emit_options *options, const char *name, uint32_t value,
                         const char *comment) {
    define(out, name, tuned(options, name, value), comment);
}

static uint32_t consumer_warps(const md_cuda_emit_options *options) {
    return tuned(options, "CONSUMER_WARPS", MD_CUDA_CONSUMER_WARPS);
}

// Registers change hands by groups of four warps.
static uint32_t producer_warps(const md_cuda_target *target, const md_cuda_emit_options *options) {
    return target->lends && consumer_warps(options) % 4 == 0 ? 4 : 1;
}

uint32_t md_cuda_threads(const md_cuda_target *target, const md_cuda_emit_options *options) {
    return 32 * (consumer_warps(options) + producer_warps(target, options));
}

// How the launches of prompts share their work out.
static void emit_prefill(md_buf *out, const md_cuda_emit_options *options) {
    define_tuned(out, options, "OCTETS", 2, "of 8 columns: a warp's");
    define_tuned(out, options, "TALL", 1, "warps above each other in a tall CTA, and tiles of 16 rows of each");
    define_tuned(out, options, "TALL_TILES", 3, NULL);
    define_tuned(out, options, "TALL_CTAS", 2, "of them on an SM");
    define_tuned(out, options, "SHORT", 1, NULL);
    define_tuned(out, options, "SHORT_TILES", 2, NULL);
    define_tuned(out, options, "SHORT_CTAS", 3, NULL);
    define_tuned(out, options, "BUFFERS", 4, "of a block of weights and inputs in shared memory");
    define_tuned(out, options, "ATTENTION_CTAS", 3, "on an SM");
}

static void emit_target(md_buf *out, const md_cuda_shape *shape, const md_cuda_target *target,
                        const md_cuda_emit_options *options) {
    md_buf_printf(out, "\n// the target, %s\n", target->arch);
    define(out, "COLUMNS", options->prefill ? 1 : options->columns, "widest step");
    define(out, "CONSUMER_WARPS", consumer_warps(options), "of a CTA; one more streams the weights");
    define(out, "PRODUCER_WARPS", producer_warps(target, options), "4: three lend their registers and leave");
    define_tuned(out, options, "SPLIT_QKV", shape->split_qkv, "warps that share a tile: by the matrix's shape alone");
    define_tuned(out, options, "SPLIT_OUT", shape->split_out, NULL);
    define_tuned(out, options, "SPLIT_GATE_UP", shape->split_gate_up, NULL);
    define_tuned(out, options, "SPLIT_DOWN", shape->split_down, NULL);
    define_tuned(out, options, "SPLIT_HEAD", shape->split_head, NULL);
    define_tuned(out, options, "POLL_NS", 0, "pause between two looks at an entry");
    define_tuned(out, options, "LOOKS", options->columns > 1 ? 2 : 4, "at entries between two jumps back");
    define(out, "SHARED_BYTES", target->shared_bytes, NULL);
    define(out, "HAS_RING", target->ring || options->prefill, "weights are read in shared memory, not where they lie");
    define_tuned(out, options, "SEGMENT_BYTES", md_cuda_segment_bytes(target->shared_bytes), "of one bulk copy");
    define_tuned(out, options, "WINDOW_LAYERS", 1, "segments in flight inside the layers: more delay the handoffs");
    define_tuned(out, options, "WINDOW_HEAD", 6, "and in the head, which has none");
    define_tuned(out, options, "RING_MOST", 32, "segments of the ring, if so many fit; a lane gives back one");
    define_tuned(out, options, "RELEASE_LANES", 1,
                 "of a warp that give a segment back; 32 for tools that don't follow __syncwarp");
    define_tuned(out, options, "UNROLL", 3, "blocks of a tile that a warp has under way, with one column");
    define_tuned(out, options, "UNROLL_ALL", 9, "unless it takes at most so many: then all");
    define_tuned(out, options, "TWO_TILES", 1, "of gate and up that a warp has under way, with one column");
    define_tuned(out, options, "UNROLL_COLUMNS", target->lends ? 3 : 2, "the same with several columns");
    define_tuned(out, options, "SLICE_MOST", target->lends ? 5 : 3,
                 "blocks whose digits a warp has in registers, with several columns");
    define_tuned(
        out, options, "KEEP_MOST", target->lends ? 6 : 0,
        "blocks of its first tile, if it has no more, that a warp keeps in registers while it awaits its input");
    define_tuned(out, options, "MERGE_FEW", target->lends ? 8 : 1,
                 "attention blocks that the output projection merges itself, with one column");
    if (options->prefill) emit_prefill(out, options);
    define(out, "INJECT", options->inject, NULL);
    define(out, "ACCOUNT", options->account, NULL);
    define(out, "GRAPH", options->graph, "one step a launch, whose place and tokens lie in memory");
    md_buf_puts(out, "#define INFINITY __int_as_float(0x7f800000)\n");
}

md_status md_cuda_emit(const md_cuda_shape *shape, const md_cuda_target *target, const md_cuda_emit_options *options,
                       md_buf *out, md_error *err) {
    const md_snapshot *model = shape->plan->snapshot;
    MD_TRY(md_cuda_tune_check(options->tune, err));
    if (!options->tune || !*options->tune) MD_TRY(md_cuda_shared_check(shape, target, options, err));
    md_buf_printf(
        out,
        "// megadecode %s: %s.\n"
        "// Generated for %u layers, hidden %u, %u query and %u key/value heads of %u, FFN %u, vocabulary %u.\n\n",
        md_version(),
        options->prefill ? "prompts of one model, a launch a stage"
                         : "the decode step of one model as one resident kernel",
        model->layers, model->hidden, model->q_heads, model->kv_heads, model->head_dim, model->ffn, model->vocab);
    emit_model(out, shape);
    emit_stages(out, shape);
    emit_shapes(out, shape);
    emit_formats(out, shape);
    emit_target(out, shape, target, options);
    for (const md_embedded *file = md_cuda_kernels; file->name; file++) {
        bool prefill = strncmp(file->name, "prefill", 7) == 0;
        bool step = strcmp(file->name, "next.cuh") == 0 || strcmp(file->name, "kernel.cuh") == 0;
        if (options->prefill ? step : prefill) continue;
        md_buf_printf(out, "\n// ==== %s ====\n\n", file->name);
        md_buf_append(out, file->text, file->bytes);
    }
    return out->failed ? md_fail(err, MD_E_MEMORY, "the generated source is over %zu bytes", out->max) : MD_OK;
}
