// Why no exchanged vector is overwritten while somebody may still read it, checked on the plan (kernels/exchange.cuh
// relies on it: there is no barrier). The kernels promise three things:
//   - an item of a stage has read all it reads before it puts its output;
//   - a matrix stage's item waits for the whole of its input; items of attention, scores and merge wait for a part of
//     theirs, and the items of such a stage together for all of it;
//   - a stage that adds to a vector reads of it just what it overwrites itself.
// With several columns an item of a matrix stage waits for the digits of its whole input instead, each put by a CTA
// that has read what they are made of (kernels/input_columns.cuh); so it still knows all that the input's writers knew.
// The digits themselves are read by that stage alone, and put again when a later input of the same kind has come: after
// all of its items. So when an item of stage s puts its output, these stages are known to be over, all of their items:
// what the writers of its inputs knew, and, where s waits for a whole vector, its writer and whatever that had to wait
// for.
#include "backend/cuda/shape.h"

enum { WINDOW = 1 + 2 * MD_CUDA_STAGES_A_LAYER }; // the embedding and two layers: all layers are alike

static const struct {
    md_stage_kind kind;
    uint32_t whole; // vectors each item waits for in full
} waits[] = {{MD_STAGE_QKV, 1u << MD_VEC_X},
             {MD_STAGE_OUT, 1u << MD_VEC_ATTN},
             {MD_STAGE_GATE_UP, 1u << MD_VEC_X},
             {MD_STAGE_DOWN, 1u << MD_VEC_ACT},
             {MD_STAGE_HEAD, 1u << MD_VEC_X}};

static uint32_t whole_of(md_stage_kind kind) {
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        if (waits[i].kind == kind) return waits[i].whole;
    return 0;
}

md_status md_cuda_check_handoffs(const md_plan *plan, md_error *err) {
    uint32_t known[WINDOW] = {0}, over[WINDOW]; // sets of stages: known to be over; over when this one is
    int writer[MD_VEC_COUNT];
    uint32_t readers[MD_VEC_COUNT] = {0}; // since the last write
    uint32_t n = plan->stage_count < WINDOW ? plan->stage_count : WINDOW;
    for (int v = 0; v < MD_VEC_COUNT; v++) writer[v] = -1;
    for (uint32_t s = 0; s < n; s++) {
        const md_stage *stage = &plan->stage[s];
        // Of few blocks the output projection reads what the merge would have read (kernels/merge.cuh).
        const uint32_t reads = stage->reads | (stage->kind == MD_STAGE_OUT ? 1u << MD_VEC_PARTIALS : 0);
        over[s] = 1u << s;
        for (int v = 0; v < MD_VEC_COUNT; v++) {
            if (!(reads >> v & 1)) continue;
            if (writer[v] < 0)
                return md_fail(err, MD_E_INTERNAL, "CUDA: stage %u (%s) reads %s, which no stage before it writes", s,
                               md_stage_name(stage->kind), md_vector_name((md_vector)v));
            known[s] |= known[writer[v]];
            over[s] |= over[writer[v]];
            if (whole_of(stage->kind) >> v & 1) known[s] |= over[writer[v]];
            readers[v] |= 1u << s;
        }
        for (int v = 0; v < MD_VEC_COUNT; v++) {
            if (!(stage->writes >> v & 1)) continue;
            uint32_t reading = readers[v] & ~known[s] & ~(1u << s), r = 0;
            while (reading && !(reading >> r & 1)) r++;
            if (reading)
                return md_fail(
                    err, MD_E_INTERNAL, "CUDA: stage %u (%s) writes %s while stage %u (%s) may still read it", s,
                    md_stage_name(stage->kind), md_vector_name((md_vector)v), r, md_stage_name(plan->stage[r].kind));
            writer[v] = (int)s, readers[v] = 0;
        }
    }
    for (uint32_t s = n; s + 1 < plan->stage_count; s++) { // the layers are alike
        const md_stage *a = &plan->stage[s], *b = &plan->stage[s - MD_CUDA_STAGES_A_LAYER];
        if (a->kind != b->kind || a->reads != b->reads || a->writes != b->writes)
            return md_fail(err, MD_E_INTERNAL, "CUDA: stage %u (%s) is not like that of the layer before", s,
                           md_stage_name(a->kind));
    }
    return MD_OK;
}
