// The checks of plan, layout table and CUDA shape against damage: every field of every structure is changed in every
// way below, one at a time, and every change must be refused with a text that says where, what was found and what was
// expected. A field that is forgotten here is noticed: the sizes of a structure's fields must add up to its own.
#include "model_maker.h"

#include "backend/cuda/shape.h"
#include "plan/check.h"
#include "plan/tile_mma.h"

typedef enum kind { NUMBER, FLAG, POINTER } kind;

typedef struct field {
    const char *name;
    size_t offset, size;
    kind kind;
    size_t step; // POINTER: bytes of what it points to; 0: of that there is only one
} field;

#define AT(type, member) offsetof(type, member), sizeof(((type *)0)->member)
#define NUMBER_OF(type, member)                                                                                        \
    { #type "." #member, AT(type, member), NUMBER, 0 }
#define FLAG_OF(type, member)                                                                                          \
    { #type "." #member, AT(type, member), FLAG, 0 }
#define POINTER_OF(type, member)                                                                                       \
    { #type "." #member, AT(type, member), POINTER, sizeof *((type *)0)->member }
#define COUNT(fields) (sizeof(fields) / sizeof *(fields))

static const field plan_fields[] = {{"md_plan.snapshot", AT(md_plan, snapshot), POINTER, 0},
                                    NUMBER_OF(md_plan, stage_count),
                                    POINTER_OF(md_plan, stage)};

static const field stage_fields[] = {
    NUMBER_OF(md_stage, kind),       NUMBER_OF(md_stage, layer),      NUMBER_OF(md_stage, matrix_count),
    POINTER_OF(md_stage, matrix[0]), POINTER_OF(md_stage, matrix[1]), POINTER_OF(md_stage, matrix[2]),
    POINTER_OF(md_stage, norm),      NUMBER_OF(md_stage, reads),      NUMBER_OF(md_stage, writes)};

static const field layout_fields[] = {POINTER_OF(md_layout, plan),         POINTER_OF(md_layout, codec),
                                      NUMBER_OF(md_layout, workers),       POINTER_OF(md_layout, stage),
                                      POINTER_OF(md_layout, run),          POINTER_OF(md_layout, worker_offset),
                                      POINTER_OF(md_layout, worker_bytes), NUMBER_OF(md_layout, arena_bytes)};

static const field stage_layout_fields[] = {NUMBER_OF(md_stage_layout, items), NUMBER_OF(md_stage_layout, tiles[0]),
                                            NUMBER_OF(md_stage_layout, tiles[1]), NUMBER_OF(md_stage_layout, tiles[2])};

static const field shape_fields[] = {NUMBER_OF(md_tile_shape, cell),      FLAG_OF(md_tile_shape, wide_scales),
                                     NUMBER_OF(md_tile_shape, cols),      NUMBER_OF(md_tile_shape, group),
                                     NUMBER_OF(md_tile_shape, chunks),    NUMBER_OF(md_tile_shape, chunk_bytes),
                                     NUMBER_OF(md_tile_shape, tile_bytes)};

static const field map_fields[] = {NUMBER_OF(md_row_map, rows), NUMBER_OF(md_row_map, rope_dim)};

static const field run_fields[] = {NUMBER_OF(md_run, first_item), NUMBER_OF(md_run, item_count),
                                   NUMBER_OF(md_run, offset), NUMBER_OF(md_run, bytes)};

static const field word_fields[] = {{"worker_offset or worker_bytes", 0, 8, NUMBER, 0}};

static const field cuda_fields[] = {POINTER_OF(md_cuda_shape, plan),
                                    NUMBER_OF(md_cuda_shape, format_count),
                                    NUMBER_OF(md_cuda_shape, head_format),
                                    POINTER_OF(md_cuda_shape, layer_format),
                                    POINTER_OF(md_cuda_shape, layer_bias),
                                    FLAG_OF(md_cuda_shape, has_bias),
                                    NUMBER_OF(md_cuda_shape, tiles_x),
                                    NUMBER_OF(md_cuda_shape, tiles_q),
                                    NUMBER_OF(md_cuda_shape, tiles_k),
                                    NUMBER_OF(md_cuda_shape, tiles_v),
                                    NUMBER_OF(md_cuda_shape, tiles_attn),
                                    NUMBER_OF(md_cuda_shape, tiles_f),
                                    NUMBER_OF(md_cuda_shape, tiles_head),
                                    NUMBER_OF(md_cuda_shape, blocks_x),
                                    NUMBER_OF(md_cuda_shape, blocks_attn),
                                    NUMBER_OF(md_cuda_shape, blocks_f),
                                    NUMBER_OF(md_cuda_shape, blocks_max),
                                    NUMBER_OF(md_cuda_shape, split_qkv),
                                    NUMBER_OF(md_cuda_shape, split_out),
                                    NUMBER_OF(md_cuda_shape, split_gate_up),
                                    NUMBER_OF(md_cuda_shape, split_down),
                                    NUMBER_OF(md_cuda_shape, split_head),
                                    NUMBER_OF(md_cuda_shape, vector_xa),
                                    NUMBER_OF(md_cuda_shape, vector_xb),
                                    NUMBER_OF(md_cuda_shape, vector_q),
                                    NUMBER_OF(md_cuda_shape, vector_k),
                                    NUMBER_OF(md_cuda_shape, vector_v),
                                    NUMBER_OF(md_cuda_shape, vector_attn),
                                    NUMBER_OF(md_cuda_shape, vector_act),
                                    NUMBER_OF(md_cuda_shape, digits_x),
                                    NUMBER_OF(md_cuda_shape, digits_attn),
                                    NUMBER_OF(md_cuda_shape, digits_act),
                                    NUMBER_OF(md_cuda_shape, exchange_entries),
                                    NUMBER_OF(md_cuda_shape, aux_attn_norm),
                                    NUMBER_OF(md_cuda_shape, aux_ffn_norm),
                                    NUMBER_OF(md_cuda_shape, aux_final_norm),
                                    NUMBER_OF(md_cuda_shape, aux_inv_freq),
                                    NUMBER_OF(md_cuda_shape, aux_count),
                                    NUMBER_OF(md_cuda_shape, rope_scale),
                                    NUMBER_OF(md_cuda_shape, attn_blocks)};

static const field format_fields[] = {NUMBER_OF(md_cuda_format, cell), FLAG_OF(md_cuda_format, wide),
                                      NUMBER_OF(md_cuda_format, sets)};

static const field format_index_fields[] = {{"md_cuda_shape.layer_format[]", 0, 1, NUMBER, 0}};
static const field bias_fields[] = {{"md_cuda_shape.layer_bias[]", 0, 4, NUMBER, 0}};

// ---- what is checked ---------------------------------------------------------------------------------------------

enum { WORKERS = 3 };

typedef struct fixture {
    char *dir;
    md_snapshot *snapshot;
    md_plan *plan;
    md_layout *layout;
    md_cuda_shape *shape;
    md_status (*check)(struct fixture *f, md_error *err);
    const md_tile_codec *codec;
    const char *what; // how the check's messages begin
    unsigned changes;
} fixture;

static md_status check_plan(fixture *f, md_error *err) { return md_plan_check(f->plan, err); }
static md_status check_layout(fixture *f, md_error *err) {
    return md_layout_check(f->layout, f->plan, f->codec, WORKERS, err);
}
static md_status check_shape(fixture *f, md_error *err) { return md_cuda_shape_check(f->shape, f->plan, err); }

// Mixed bits, biases, an unquantized head of another type, heads that don't divide evenly among the workers.
static int setup(void **state) {
    static fixture f;
    mm_shape shape = MM_SHAPE;
    md_error err = {0};
    shape.quant = "\"lm_head\": false, \"model.layers.0.mlp.up_proj\": {\"bits\": 8, \"group_size\": 32}";
    shape.extra = "\"attention_bias\": true";
    f.dir = mm_make(&shape, 1);
    if (md_snapshot_open(f.dir, &f.snapshot, &err) != MD_OK) fail_msg("%s", err.message);
    if (md_plan_build(f.snapshot, &f.plan, &err) != MD_OK) fail_msg("%s", err.message);
    if (md_cuda_shape_build(f.plan, &f.shape, &err) != MD_OK) fail_msg("%s", err.message);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    md_cuda_shape_free(f->shape);
    md_plan_free(f->plan);
    md_snapshot_close(f->snapshot);
    mm_remove(f->dir);
    return 0;
}

// ---- changes -----------------------------------------------------------------------------------------------------

static void must_be_refused(fixture *f, const field *what, size_t index, const char *change) {
    md_error err = {0};
    f->changes++;
    if (f->check(f, &err) == MD_OK) fail_msg("%s, element %zu, %s: was accepted", what->name, index, change);
    if (err.code != MD_E_INTERNAL || !strstr(err.message, f->what) || !strstr(err.message, "found ") ||
        !strstr(err.message, "expected "))
        fail_msg("%s, element %zu, %s: refused without saying why: \"%s\"", what->name, index, change, err.message);
}

// Writes `changed` where it differs from what is there, checks, and restores.
static void try_bytes(fixture *f, const field *what, uint8_t *at, const void *changed, size_t index,
                      const char *change) {
    uint8_t kept[8];
    memcpy(kept, at, what->size);
    if (memcmp(kept, changed, what->size) == 0) return;
    memcpy(at, changed, what->size);
    must_be_refused(f, what, index, change);
    memcpy(at, kept, what->size);
}

static uint64_t read_number(const uint8_t *at, size_t size) {
    uint64_t value = 0;
    memcpy(&value, at, size); // little endian
    return value;
}

static void try_number(fixture *f, const field *what, uint8_t *at, size_t index) {
    uint64_t value = read_number(at, what->size), more = value + 1, less = value - 1, zero = 0, most = UINT64_MAX;
    uint64_t half = most >> 1 >> (64 - 8 * what->size); // the largest of a signed field
    try_bytes(f, what, at, &more, index, "+1");
    try_bytes(f, what, at, &less, index, "-1");
    try_bytes(f, what, at, &zero, index, "0");
    try_bytes(f, what, at, &most, index, "max");
    try_bytes(f, what, at, &half, index, "signed max");
}

static void try_pointer(fixture *f, const field *what, uint8_t *at, size_t index) {
    const char *value, *none = NULL;
    memcpy(&value, at, sizeof value);
    try_bytes(f, what, at, &none, index, "NULL");
    if (!value || !what->step) return;
    value += what->step;
    try_bytes(f, what, at, &value, index, "one further");
}

// Exchanges two places and checks, where they differ.
static void try_swap(fixture *f, const field *what, uint8_t *a, uint8_t *b, size_t size, size_t index) {
    uint8_t kept[256];
    assert_true(size <= sizeof kept);
    if (memcmp(a, b, size) == 0) return;
    memcpy(kept, a, size);
    memcpy(a, b, size);
    memcpy(b, kept, size);
    must_be_refused(f, what, index, "swapped with its neighbour");
    memcpy(b, a, size);
    memcpy(a, kept, size);
}

// Pointers of different types are not exchanged: that is no value the compiler lets through.
static bool may_swap(const field *a, const field *b) {
    return a->size == b->size && a->kind == b->kind && a->kind != FLAG && a->step == b->step;
}

static void damage(fixture *f, const field *fields, size_t count, void *element, size_t index) {
    for (size_t i = 0; i < count; i++) {
        uint8_t *at = (uint8_t *)element + fields[i].offset;
        bool flipped = !*at;
        switch (fields[i].kind) {
        case NUMBER: try_number(f, &fields[i], at, index); break;
        case FLAG: try_bytes(f, &fields[i], at, &flipped, index, "flipped"); break;
        case POINTER: try_pointer(f, &fields[i], at, index); break;
        }
        if (i + 1 < count && may_swap(&fields[i], &fields[i + 1]))
            try_swap(f, &fields[i], at, (uint8_t *)element + fields[i + 1].offset, fields[i].size, index);
    }
}

// The elements of an array one by one, and each exchanged with the next as a whole.
static void damage_all(fixture *f, const field *fields, size_t count, void *elements, size_t n, size_t size) {
    for (size_t i = 0; i < n; i++) {
        uint8_t *element = (uint8_t *)elements + i * size;
        damage(f, fields, count, element, i);
        if (i + 1 < n) try_swap(f, fields, element, element + size, size, i);
    }
}

static void begin(fixture *f, md_status (*check)(fixture *, md_error *), const char *what) {
    md_error err = {0};
    f->check = check;
    f->what = what;
    f->changes = 0;
    if (check(f, &err) != MD_OK) fail_msg("undamaged: %s", err.message);
}

static void end(const fixture *f, unsigned least) {
    print_message("%s %u changes, all refused\n", f->what, f->changes);
    assert_true(f->changes >= least);
}

// ---- tests -------------------------------------------------------------------------------------------------------

static void damaged_plans_are_refused(void **state) {
    fixture *f = *state;
    begin(f, check_plan, "plan: ");
    damage(f, plan_fields, COUNT(plan_fields), f->plan, 0);
    damage_all(f, stage_fields, COUNT(stage_fields), f->plan->stage, f->plan->stage_count, sizeof(md_stage));
    end(f, 400);
}

// A snapshot whose matrices are equal in everything but are others.
static void a_plan_of_another_snapshot_is_refused(void **state) {
    fixture *f = *state;
    const md_snapshot *kept = f->plan->snapshot;
    md_snapshot *other;
    md_error err = {0};
    assert_int_equal(md_snapshot_open(f->dir, &other, &err), MD_OK);
    f->plan->snapshot = other;
    assert_int_equal(md_plan_check(f->plan, &err), MD_E_INTERNAL);
    assert_non_null(strstr(err.message, "matrix[0]"));
    f->plan->snapshot = kept;
    md_snapshot_close(other);
}

static void damage_layout(fixture *f, const md_tile_codec *codec) {
    md_error err = {0};
    f->codec = codec;
    if (md_layout_build(f->plan, codec, WORKERS, &f->layout, &err) != MD_OK) fail_msg("%s", err.message);
    md_layout *layout = f->layout;
    size_t stages = f->plan->stage_count;
    begin(f, check_layout, "layout: ");
    damage(f, layout_fields, COUNT(layout_fields), layout, 0);
    damage_all(f, stage_layout_fields, COUNT(stage_layout_fields), layout->stage, stages, sizeof(md_stage_layout));
    for (size_t s = 0; s < stages; s++) {
        damage_all(f, shape_fields, COUNT(shape_fields), layout->stage[s].shape, 3, sizeof(md_tile_shape));
        damage_all(f, map_fields, COUNT(map_fields), layout->stage[s].map, 3, sizeof(md_row_map));
    }
    damage_all(f, run_fields, COUNT(run_fields), layout->run, stages * WORKERS, sizeof(md_run));
    for (size_t s = 0; s < stages; s++) { // two fields at once, where each alone is seen by the other
        md_run *run = &layout->run[s * WORKERS], kept = *run;
        if (layout->stage[s].items) continue;
        run->first_item = 10, run->item_count = 1;
        must_be_refused(f, &run_fields[0], s, "an item of a stage that has none");
        *run = kept;
    }
    damage_all(f, word_fields, COUNT(word_fields), layout->worker_offset, WORKERS, 8);
    damage_all(f, word_fields, COUNT(word_fields), layout->worker_bytes, WORKERS, 8);
    end(f, 1500);
    md_layout_free(layout);
}

static void damaged_layouts_are_refused(void **state) {
    damage_layout(*state, &md_codec_lanes);
    damage_layout(*state, &md_codec_mma);
}

static void damaged_cuda_shapes_are_refused(void **state) {
    fixture *f = *state;
    md_cuda_shape *shape = f->shape;
    size_t matrices = (size_t)f->snapshot->layers * MD_CUDA_MATS;
    begin(f, check_shape, "CUDA shape: ");
    damage(f, cuda_fields, COUNT(cuda_fields), shape, 0);
    damage_all(f, format_fields, COUNT(format_fields), shape->format, MD_CUDA_MAX_FORMATS, sizeof(md_cuda_format));
    damage_all(f, format_index_fields, 1, shape->layer_format, matrices, 1);
    damage_all(f, bias_fields, 1, shape->layer_bias, matrices, 4);
    end(f, 200);
}

// What md_layout_build is given is checked first.
static void a_damaged_plan_gets_no_layout(void **state) {
    fixture *f = *state;
    md_layout *layout;
    md_error err = {0};
    f->plan->stage[3].reads ^= 1u << MD_VEC_KV;
    assert_int_equal(md_layout_build(f->plan, &md_codec_lanes, 1, &layout, &err), MD_E_INTERNAL);
    assert_null(layout);
    assert_string_equal(err.message, "plan: stage 3 (attn of layer 0): reads: found 10, expected 14");
    f->plan->stage[3].reads ^= 1u << MD_VEC_KV;
}

// The sizes of all fields, and of the padding between them, are the structure's.
static size_t sum(const field *fields, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += fields[i].size;
    return bytes;
}

static void no_field_is_forgotten(void **state) {
    (void)state;
    assert_int_equal(sum(plan_fields, COUNT(plan_fields)) + 4, sizeof(md_plan));
    assert_int_equal(sum(stage_fields, COUNT(stage_fields)) + 4, sizeof(md_stage));
    assert_int_equal(sum(layout_fields, COUNT(layout_fields)) + 4, sizeof(md_layout));
    assert_int_equal(sum(stage_layout_fields, COUNT(stage_layout_fields)) + 3 * sizeof(md_tile_shape) +
                         3 * sizeof(md_row_map),
                     sizeof(md_stage_layout));
    assert_int_equal(sum(shape_fields, COUNT(shape_fields)) + 3, sizeof(md_tile_shape));
    assert_int_equal(sum(map_fields, COUNT(map_fields)), sizeof(md_row_map));
    assert_int_equal(sum(run_fields, COUNT(run_fields)), sizeof(md_run));
    assert_int_equal(sum(format_fields, COUNT(format_fields)) + 3, sizeof(md_cuda_format));
    assert_int_equal(sum(cuda_fields, COUNT(cuda_fields)) + sizeof(((md_cuda_shape *)0)->format) + 7,
                     sizeof(md_cuda_shape));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_plans_are_refused),     cmocka_unit_test(a_plan_of_another_snapshot_is_refused),
        cmocka_unit_test(damaged_layouts_are_refused),   cmocka_unit_test(damaged_cuda_shapes_are_refused),
        cmocka_unit_test(a_damaged_plan_gets_no_layout), cmocka_unit_test(no_field_is_forgotten),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
